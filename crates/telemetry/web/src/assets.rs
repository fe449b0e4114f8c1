//! The page's files, built into the program. Nothing has to be installed, and nothing is fetched from
//! elsewhere.

use crate::http::Reply;

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const SVG: &str = "image/svg+xml";

/// A file: path, content type and contents.
type Asset = (&'static str, &'static str, &'static [u8]);

macro_rules! assets {
    ($($path:literal: $kind:ident $file:literal,)+) => {
        &[$(($path, $kind, include_bytes!(concat!("../assets/", $file))),)+]
    };
}

const ASSETS: &[Asset] = assets! {
    "/": HTML "index.html",
    "/style.css": CSS "style.css",
    "/icon.svg": SVG "icon.svg",
    "/theme.js": SCRIPT "theme.js",
    "/app.js": SCRIPT "app.js",
    "/dom.js": SCRIPT "dom.js",
    "/format.js": SCRIPT "format.js",
    "/server.js": SCRIPT "server.js",
    "/figures.js": SCRIPT "figures.js",
    "/table.js": SCRIPT "table.js",
    "/chart.js": SCRIPT "chart.js",
    "/heat.js": SCRIPT "heat.js",
    "/views.js": SCRIPT "views.js",
    "/private.js": SCRIPT "private.js",
    "/profile.js": SCRIPT "profile.js",
    "/flame.js": SCRIPT "flame.js",
};

/// Returns the file at a path.
pub(crate) fn find(path: &str) -> Option<Reply> {
    let (_, kind, bytes) = ASSETS.iter().find(|(own, ..)| *own == path)?;
    Some(Reply::new("200 OK", kind, *bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(bytes: &[u8]) -> String {
        String::from_utf8(bytes.to_vec()).unwrap()
    }

    /// The content security policy would block violations in a browser; this test finds them earlier.
    #[test]
    fn the_page_needs_no_network_and_has_nothing_inline() {
        for (path, _, bytes) in ASSETS {
            let text = text(bytes).replace("http://www.w3.org/2000/svg", "");
            for banned in
                ["http://", "https://", "innerHTML", "insertAdjacentHTML", "eval(", " style=\"", " onclick="]
            {
                assert!(!text.contains(banned), "{path} has {banned}");
            }
        }
        let page = text(ASSETS[0].2);
        assert!(
            page.matches("<script").count()
                == page.matches("<script src=").count()
                    + page.matches("<script type=\"module\" src=").count()
        );
    }

    #[test]
    fn every_file_that_is_named_is_there() {
        for (path, _, bytes) in ASSETS {
            let text = text(bytes);
            let named = text.split(['"', '\'']).filter(|word| {
                let is_file = [".js", ".css", ".svg"].iter().any(|end| word.ends_with(end));
                is_file && !word.contains(' ') && word.len() < 40
            });
            for name in named {
                let name = format!("/{}", name.trim_start_matches("./").trim_start_matches('/'));
                assert!(find(&name).is_some(), "{path} names {name}");
            }
        }
        assert!(find("/../Cargo.toml").is_none() && find("").is_none());
    }
}
