//! Profiles of the running server, for signed-in users: start, query, stop, and download as a picture.

use crate::api::json_reply;
use crate::http::Reply;
use crate::request::{Method, Request};
use profile::{Document, Flavour, Kind, Refusal, Stage};
use serde_json::{Value, json};

/// Samples per second and running thread, as in `cellar profile cpu`.
const HZ: u32 = 99;
/// Longer documents are not sent to browsers.
const DOCUMENT_BYTES_MAX: usize = 32 << 20;

/// Whether a path belongs to this module.
pub(crate) fn is_own(path: &str) -> bool {
    path == "profile" || path.starts_with("profile/")
}

/// Answers an authorised request.
pub(crate) fn answer(path: &str, request: &Request) -> Option<Reply> {
    let mut words = path.split('/').skip(1);
    let id = words.next();
    let what = words.next();
    if words.next().is_some() {
        return None;
    }
    let Some(id) = id else {
        return Some(if request.method == Method::Post { start(&request.body) } else { only_post() });
    };
    let id: u64 = id.parse().ok()?;
    match (what, request.method) {
        (Some("stop"), Method::Post) => Some(reply_with(profile::stop(id).map(|()| json!({})))),
        (Some("stop"), _) => Some(only_post()),
        (None, Method::Get | Method::Head) => Some(state(id)),
        (Some("svg"), Method::Get | Method::Head) => Some(picture(id)),
        _ => None,
    }
}

/// Parses `cpu 10` or `waits 10`: the kind and the number of seconds.
fn start(body: &[u8]) -> Reply {
    let text = String::from_utf8_lossy(body);
    let wanted = text.trim().split_once(' ').and_then(|(kind, seconds)| {
        let kind = match kind {
            "cpu" => Kind::Cpu,
            "waits" => Kind::Waits,
            _ => return None,
        };
        Some(profile::Request { kind, seconds: seconds.parse().ok()?, hz: HZ })
    });
    let Some(wanted) = wanted else {
        return Reply::text(
            "400 Bad Request",
            "expected `cpu` or `waits` and a number of seconds, like `cpu 10`\n",
        );
    };
    // Sent as text, since the number exceeds the integers that JavaScript represents exactly.
    reply_with(profile::start(wanted).map(|id| json!({ "id": id.to_string() })))
}

fn state(id: u64) -> Reply {
    let state = match profile::state(id) {
        Ok(state) => state,
        Err(refusal) => return refused(&refusal),
    };
    let mut value = json!({
        "elapsed_ms": state.elapsed.as_millis() as u64,
        "samples": state.samples,
        "lost": state.lost,
        "is_done": state.stage == Stage::Done,
    });
    if state.stage == Stage::Done {
        for (name, document) in [
            ("stacks", Document::Stacks),
            ("io", Document::Io),
            ("locks", Document::Locks),
            ("latencies", Document::Latencies),
        ] {
            match profile::document(id, document) {
                Ok(text) if text.len() <= DOCUMENT_BYTES_MAX => value[name] = Value::from(&*text),
                Ok(_) => return too_long(),
                Err(refusal) => return refused(&refusal),
            }
        }
    }
    json_reply(&value)
}

/// Returns the picture as a download. It contains scripts, which the page's policy does not allow, so it is
/// saved and not displayed.
fn picture(id: u64) -> Reply {
    let waits = profile::document(id, Document::Latencies).is_ok_and(|text| !text.is_empty());
    let (title, flavour) = if waits {
        ("What calls waited for", Flavour::Waiting)
    } else {
        ("On the processors", Flavour::Running)
    };
    let stacks = match profile::document(id, Document::Stacks) {
        Ok(stacks) if stacks.len() <= DOCUMENT_BYTES_MAX => stacks,
        Ok(_) => return too_long(),
        Err(refusal) => return refused(&refusal),
    };
    match profile::svg(&stacks, title, flavour) {
        Ok(drawn) => Reply::new("200 OK", "image/svg+xml", drawn)
            .with("Content-Disposition", "attachment; filename=\"cellar-profile.svg\""),
        Err(error) => Reply::text("404 Not Found", &format!("{error}\n")),
    }
}

fn reply_with(what: Result<Value, Refusal>) -> Reply {
    what.map_or_else(|refusal| refused(&refusal), |value| json_reply(&value))
}

fn refused(refusal: &Refusal) -> Reply {
    let status = match refusal {
        Refusal::Busy { .. } | Refusal::NotYet => "409 Conflict",
        Refusal::Bounds { .. } => "400 Bad Request",
        Refusal::Unknown(_) => "404 Not Found",
        Refusal::Failed(_) => "500 Internal Server Error",
    };
    Reply::text(status, &format!("{refusal}\n"))
}

fn too_long() -> Reply {
    let words = "The profile is too large for a browser: take a shorter one with `cellar profile`.\n";
    Reply::text("500 Internal Server Error", words)
}

fn only_post() -> Reply {
    Reply::text("405 Method Not Allowed", "only POST\n")
}
