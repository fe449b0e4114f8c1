//! The web page as a handler of requests: access control, and the headers that all replies share.

use crate::guard::{Guard, SESSION_LIFETIME};
use crate::history::History;
use crate::http::{Handler, Reply};
use crate::key::Key;
use crate::request::{Method, Request};
use crate::{Source, assets};
use parking_lot::Mutex;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::OnceLock;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Content security policy: the page may load only this server's own files. Trusted types make the browser
/// block every way of turning text into markup.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
     connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
     require-trusted-types-for 'script'; trusted-types 'none'";

/// How clients reach the page.
#[derive(Clone, Debug, Default)]
pub struct SiteSettings {
    /// Host names of the page, in addition to addresses and `localhost`.
    pub names: Vec<String>,
    /// Proxies that clients reach over TLS. Only their headers about clients are trusted.
    pub tls_proxies: Vec<IpAddr>,
}

/// The page. It answers from the start, and reports that the server is starting until [`Self::begin`] is
/// called.
pub struct Site {
    pub(crate) guard: Guard,
    settings: SiteSettings,
    source: OnceLock<Arc<dyn Source>>,
    /// Guards the history; locked while a sample is taken or sent.
    pub(crate) history: Mutex<History>,
    /// Name of the cookie. Cookies are shared between ports, so it includes the port number.
    cookie: OnceLock<String>,
}

impl Site {
    /// Creates a page for which codes made with this key are valid.
    pub fn new(key: Key, settings: SiteSettings) -> Site {
        let (source, history, cookie) = Default::default();
        Site { guard: Guard::new(key), settings, source, history, cookie }
    }

    /// Sets the address that the page was opened on.
    pub fn opened(&self, address: SocketAddr) {
        let _ = self.cookie.set(format!("cellar_{}", address.port()));
    }

    /// Sets the source, once all services answer.
    pub fn begin(&self, source: Arc<dyn Source>) {
        let _ = self.source.set(source);
    }

    /// Takes a sample for the charts. Call it every [`PERIOD`](crate::PERIOD).
    pub fn sample(&self) {
        if let Some(source) = self.source.get() {
            self.history.lock().look(source.observed(), now());
        }
    }

    pub(crate) fn source(&self) -> Option<&Arc<dyn Source>> {
        self.source.get()
    }

    fn cookie_name(&self) -> &str {
        self.cookie.get().map_or("cellar", String::as_str)
    }

    /// Returns the header that makes a browser store a session's secret, or delete it.
    pub(crate) fn cookie(&self, request: &Request, secret: Option<&str>) -> String {
        let (value, seconds) = secret.map_or(("", 0), |secret| (secret, SESSION_LIFETIME.as_secs()));
        let name = self.cookie_name();
        let secure = if self.is_proxy(request.peer) { "; Secure" } else { "" };
        format!("{name}={value}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}")
    }

    fn is_proxy(&self, peer: IpAddr) -> bool {
        self.settings.tls_proxies.contains(&peer)
    }

    /// Whether the request was confidential: it came over TLS, or from this machine.
    pub(crate) fn is_confidential(&self, request: &Request) -> bool {
        if self.is_proxy(request.peer) {
            return request
                .header("x-forwarded-proto")
                .is_some_and(|name| name.eq_ignore_ascii_case("https"));
        }
        request.peer.is_loopback()
    }

    /// Returns the address whose attempts to sign in are counted.
    pub(crate) fn client(&self, request: &Request) -> IpAddr {
        let reported = request.header("x-forwarded-for").filter(|_| self.is_proxy(request.peer));
        // The last address was added by the proxy; earlier ones are the client's own claims.
        let reported = reported.and_then(|list| list.rsplit(',').next()?.trim().parse().ok());
        reported.unwrap_or(request.peer)
    }

    pub(crate) fn secret<'a>(&self, request: &'a Request) -> Option<&'a str> {
        request.cookie(self.cookie_name())
    }

    /// Whether the client may see private data: a signed-in browser, or a program with the key. The error is
    /// the reply after too many attempts.
    pub(crate) fn is_trusted(&self, request: &Request) -> Result<bool, Reply> {
        if let Some(text) = request.header("authorization").and_then(|text| text.strip_prefix("Bearer ")) {
            if !self.is_confidential(request) {
                return Err(in_clear());
            }
            let known = self.guard.is_key(text.trim(), self.client(request), now());
            return known.ok_or_else(too_many);
        }
        let is_signed_in = |secret| self.guard.is_signed_in(secret, now());
        Ok(self.is_confidential(request) && self.secret(request).is_some_and(is_signed_in))
    }

    /// Protects against DNS rebinding: a foreign page whose name resolves to this server must not read its
    /// data.
    fn is_own_name(&self, host: &str) -> bool {
        let name = host.rsplit_once(':').filter(|(_, port)| port.bytes().all(|byte| byte.is_ascii_digit()));
        let name = name.map_or(host, |(name, _)| name).trim_start_matches('[').trim_end_matches(']');
        let is_named = |own: &String| own.eq_ignore_ascii_case(name);
        name.parse::<IpAddr>().is_ok()
            || name.eq_ignore_ascii_case("localhost")
            || self.settings.names.iter().any(is_named)
    }

    fn refusal(&self, request: &Request) -> Option<Reply> {
        let host = request.header("host").unwrap_or_default();
        if !self.is_own_name(host) {
            let words = "This server does not recognise the host name of the request; add it to `names` in \
                [web].\n";
            return Some(Reply::text("421 Misdirected Request", words));
        }
        // Other pages and forms cannot send this header.
        let is_change = request.method == Method::Post;
        let foreign = request.header("origin").is_some_and(|origin| !is_same(origin, host));
        if is_change && (foreign || request.header("x-cellar").is_none()) {
            return Some(Reply::text("403 Forbidden", "only the page itself may send this request\n"));
        }
        None
    }
}

impl Handler for Site {
    fn is_shared(&self, peer: IpAddr) -> bool {
        let peer = peer.to_canonical();
        peer.is_loopback() || self.is_proxy(peer)
    }

    fn answer(&self, request: &Request) -> Reply {
        let reply = self.refusal(request).unwrap_or_else(|| match assets::find(&request.path) {
            Some(_) if request.method == Method::Post => Reply::text("405 Method Not Allowed", "only GET\n"),
            Some(file) => file,
            None => self.api(request),
        });
        let common = [
            ("Content-Security-Policy", POLICY),
            ("Referrer-Policy", "no-referrer"),
            ("X-Frame-Options", "DENY"),
            ("Cross-Origin-Opener-Policy", "same-origin"),
            ("Cross-Origin-Resource-Policy", "same-origin"),
            ("Permissions-Policy", "camera=(), microphone=(), geolocation=()"),
        ];
        common.into_iter().fold(reply, |reply, (name, value)| reply.with(name, value))
    }
}

/// Whether an origin matches the host.
fn is_same(origin: &str, host: &str) -> bool {
    let name = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
    name.is_some_and(|name| name.eq_ignore_ascii_case(host))
}

/// Returns the reply after too many attempts.
pub(crate) fn too_many() -> Reply {
    Reply::text("429 Too Many Requests", "too many attempts; wait a minute\n").with("Retry-After", "60")
}

/// Returns the reply to a key or a code sent over an unprotected connection.
pub(crate) fn in_clear() -> Reply {
    Reply::text(
        "403 Forbidden",
        "Keys and codes are not accepted from another machine without TLS: use `ssh -L`, or a TLS proxy \
        listed in `tls_proxies` in [web]. What was sent could be read in transit: if it was the key, remove \
        the key file and restart the server.\n",
    )
}

/// Returns the time since 1970.
pub(crate) fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

#[cfg(test)]
pub(crate) mod fake;
#[cfg(test)]
mod tests;
