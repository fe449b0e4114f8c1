//! The page's requests, answered as JSON. All are read-only except signing in and out, and profiles.

use crate::guard::Attempt;
use crate::history::History;
use crate::http::Reply;
use crate::profiles;
use crate::request::{Method, Request};
use crate::site::{Site, in_clear, now, too_many};
use crate::source::Source;
use crate::tables;
use events::parts::PARTS;
use observe::{SlowCall, Table};
use serde_json::{Value, json};

/// Why a request was refused.
const SIGN_IN: &str = "Sign in first: `cellar web login` on the server prints an address to open.\n";

impl Site {
    /// Answers a request for anything other than the page's files.
    pub(crate) fn api(&self, request: &Request) -> Reply {
        let nothing = || Reply::text("404 Not Found", "there is nothing here\n");
        let Some(path) = request.path.strip_prefix("/api/") else { return nothing() };
        match (path, request.method) {
            ("login", Method::Post) => return self.login(request),
            ("logout", Method::Post) => return self.logout(request),
            ("login" | "logout", _) => return Reply::text("405 Method Not Allowed", "only POST\n"),
            (_, Method::Post) if !profiles::is_own(path) => {
                return Reply::text("405 Method Not Allowed", "only GET\n");
            }
            _ => {}
        }
        let is_trusted = match self.is_trusted(request) {
            Ok(is_trusted) => is_trusted,
            Err(refusal) => return refusal,
        };
        if profiles::is_own(path) {
            let answer = is_trusted.then(|| profiles::answer(path, request));
            return answer.unwrap_or_else(|| Some(unauthorized())).unwrap_or_else(nothing);
        }
        let Some(source) = self.source() else {
            return Reply::text("503 Service Unavailable", "the server is starting\n");
        };
        self.public(path, request, &**source, is_trusted).unwrap_or_else(|| {
            let known = private(path, request, &**source, is_trusted);
            known.unwrap_or_else(nothing)
        })
    }

    fn public(&self, path: &str, request: &Request, source: &dyn Source, is_trusted: bool) -> Option<Reply> {
        Some(match path {
            "about" => json_reply(&about(source, is_trusted)),
            "history" => json_reply(&self.history.lock().after(request.number("after").unwrap_or(0))),
            _ => {
                let table = Table::of_name(path.strip_prefix("tables/")?)?;
                table_reply(table, request, source, is_trusted)
            }
        })
    }

    fn login(&self, request: &Request) -> Reply {
        if !self.is_confidential(request) {
            return in_clear();
        }
        let code = String::from_utf8_lossy(&request.body);
        match self.guard.sign_in(code.trim(), self.client(request), now()) {
            Attempt::Fine(secret) => {
                json_reply(&json!({})).with("Set-Cookie", self.cookie(request, Some(&secret)))
            }
            Attempt::Wrong => Reply::text(
                "401 Unauthorized",
                "This address was already used, or has expired. `cellar web login` prints a new one.\n",
            ),
            Attempt::TooMany => too_many(),
        }
    }

    fn logout(&self, request: &Request) -> Reply {
        if let Some(secret) = self.secret(request) {
            self.guard.sign_out(secret);
        }
        json_reply(&json!({})).with("Set-Cookie", self.cookie(request, None))
    }
}

fn private(path: &str, request: &Request, source: &dyn Source, is_trusted: bool) -> Option<Reply> {
    if !matches!(path, "slow" | "volumes" | "jobs" | "probes") && !path.starts_with("volumes/") {
        return None;
    }
    if !is_trusted {
        return Some(unauthorized());
    }
    Some(match path {
        "slow" => json_reply(&slow(source)),
        "volumes" => json_reply(&source.volumes(request.number("from").unwrap_or(0) as u32)),
        "jobs" => reply_with(source.jobs()),
        "probes" => reply_with(source.probes()),
        _ => json_reply(&source.volume(path.strip_prefix("volumes/")?.parse().ok()?)?),
    })
}

fn table_reply(table: Table, request: &Request, source: &dyn Source, is_trusted: bool) -> Reply {
    if table.is_private() && !is_trusted {
        return unauthorized();
    }
    let volume = request.number("volume").unwrap_or(0) as u32;
    let rows = tables::rows(table, source, volume);
    json_reply(&json!({ "now_ms": now().as_millis() as u64, "rows": rows }))
}

fn unauthorized() -> Reply {
    Reply::text("401 Unauthorized", SIGN_IN)
}

fn reply_with(what: Result<Value, String>) -> Reply {
    match what {
        Ok(value) => json_reply(&value),
        Err(why) => Reply::text("500 Internal Server Error", &why),
    }
}

pub(crate) fn json_reply(value: &Value) -> Reply {
    Reply::new("200 OK", "application/json", value.to_string())
}

fn about(source: &dyn Source, is_trusted: bool) -> Value {
    let about = source.about();
    let process = source.observed().process();
    let started_ns = process.rows.first().map_or(0, |row| row.figures.started);
    json!({
        "cell": about.cell,
        "server": about.server,
        "version": about.version,
        "now_ms": now().as_millis() as u64,
        "started_ms": started_ns / 1_000_000,
        "signed_in": is_trusted,
        "has_probes": source.has_probes(),
        "tables": shown_tables(source).map(tables::describe).collect::<Vec<_>>(),
        "history": History::describe(),
    })
}

/// Returns the tables that the page shows.
fn shown_tables(source: &dyn Source) -> impl Iterator<Item = Table> {
    let is_node = source.observed().is_node();
    Table::ALL.iter().copied().filter(move |table| is_node || !table.is_of_cluster())
}

fn slow(source: &dyn Source) -> Value {
    let (from_ns, calls) = source.observed().slow();
    let calls: Vec<Value> =
        calls.iter().rev().map(|(number, call)| slow_call(*number, call, source)).collect();
    json!({ "from_ns": from_ns, "parts": PARTS, "calls": calls })
}

fn slow_call(number: u64, call: &SlowCall, source: &dyn Source) -> Value {
    let [host, user] = call.client.labels();
    json!({
        "number": number,
        "ended": call.ended.0,
        "service": call.procedure.service,
        "procedure": call.procedure.name,
        "host": host,
        "user": user,
        "volume": call.volume,
        "volume_name": source.volume_name(call.volume),
        "code": call.result.err().map(|code| code.0),
        "received": call.received,
        "sent": call.sent,
        "total_ns": call.total_ns,
        "cause": call.cause().0,
        "parts_ns": call.parts_ns,
    })
}
