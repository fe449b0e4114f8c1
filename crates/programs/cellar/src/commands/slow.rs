//! `cellar slow`: slow calls and the causes of their latency.

use super::Context;
use super::stat::figures::time;
use crate::output::{Format, line};
use afs_idl::ClientConnection;
use afs_idl::cellar::{self, GetSlowCallsReply, GetSlowCallsRequest, SlowCallInfo};
use anyhow::Result;
use base::AbortCode;
use cell_client::Interface;
use cell_client::describe::failed;
use clap::Args;
use serde_json::{Value, json};
use std::net::Ipv4Addr;
use std::thread;
use std::time::Duration;

/// Polling interval of `--follow`.
const FOLLOW_EVERY: Duration = Duration::from_secs(1);

/// Show the latest slow calls and where their time went. For superusers.
#[derive(Args)]
pub struct Telling {
    /// File server to query; defaults to the one in this machine's configuration, or else the first database
    /// server.
    #[arg(long)]
    on: Option<Ipv4Addr>,
    /// Continue with new slow calls as they occur.
    #[arg(long, conflicts_with = "json")]
    follow: bool,
}

/// Runs the command.
pub fn run(context: &Context, slow: &Telling) -> Result<()> {
    let client = context.client()?;
    let server = slow.on.unwrap_or_else(|| context.default_server(&client));
    let connection = client.connection(server, Interface::Cellar);
    let mut reply = ask(&*connection, server, 0)?;
    if context.format == Format::Json {
        let calls: Vec<Value> = reply.calls.iter().map(json_of).collect();
        return context.format.done(&calls, "");
    }
    line(opening(&reply))?;
    let mut last = 0;
    loop {
        for call in &reply.calls {
            line(sentence(call))?;
            last = call.number;
        }
        if !slow.follow {
            return Ok(());
        }
        thread::sleep(FOLLOW_EVERY);
        reply = ask(&*connection, server, last)?;
    }
}

pub(super) fn ask(
    connection: &dyn ClientConnection,
    server: Ipv4Addr,
    after: u64,
) -> Result<GetSlowCallsReply> {
    cellar::get_slow_calls(connection, &GetSlowCallsRequest { after }).map_err(failed(format!(
        "get slow calls of {server} (only from Cellar servers, and only as a superuser)"
    )))
}

fn opening(reply: &GetSlowCallsReply) -> String {
    match (reply.from_ns, reply.calls.len()) {
        (0, _) => "Slow calls are not recorded (observe.slow_call_ms is 0).".to_owned(),
        (from, 0) => format!("No call took {} or more.", time(from)),
        (from, count) => format!("Calls that took {} or more, {count} of the last:", time(from)),
    }
}

/// Describes a call in one line: time, procedure, caller, duration and cause.
fn sentence(call: &SlowCallInfo) -> String {
    let when =
        jiff::Timestamp::from_second(call.ended.into()).map(|when| when.to_string()).unwrap_or_default();
    let volume = if call.volume == 0 { String::new() } else { format!(" volume {}", call.volume) };
    let ended =
        if call.code == 0 { String::new() } else { format!(", failed: {}", AbortCode(call.code as i32)) };
    let total = time(call.total_ns);
    format!(
        "{when} {} {}{volume} by {} at {}: {total}{ended}; {}",
        call.service,
        call.procedure,
        call.user,
        call.host,
        why(call)
    )
}

/// Describes the dominant cause and all significant parts of the time.
fn why(call: &SlowCallInfo) -> String {
    let cause = match call.cause.to_string().as_str() {
        "queue" => "it waited for a worker",
        "lock" => "it waited for another change of the volume",
        "disk" => "it waited for the disk",
        "callback" => "it waited for clients to answer their callbacks",
        "client" => "it waited for its own client to send or receive data",
        "load" => "it waited for its volume to be loaded",
        _ => "it was running, or waited for something that is not measured",
    };
    let parts = call.parts.iter().filter(|part| part.ns.saturating_mul(100) >= call.total_ns);
    let parts: Vec<String> = parts.map(|part| format!("{} {}", part.name, time(part.ns))).collect();
    if parts.is_empty() { cause.to_owned() } else { format!("{cause} ({})", parts.join(", ")) }
}

fn json_of(call: &SlowCallInfo) -> Value {
    let parts: serde_json::Map<String, Value> =
        call.parts.iter().map(|part| (part.name.to_string(), json!(part.ns))).collect();
    json!({
        "number": call.number,
        "ended": call.ended,
        "service": call.service.to_string(),
        "procedure": call.procedure.to_string(),
        "host": call.host.to_string(),
        "user": call.user.to_string(),
        "volume": call.volume,
        "code": call.code as i32,
        "received_bytes": call.received,
        "sent_bytes": call.sent,
        "total_ns": call.total_ns,
        "cause": call.cause.to_string(),
        "parts_ns": parts,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use afs_idl::cellar::SlowPart;

    #[test]
    fn a_line_names_the_cause() {
        let part = |name: &str, ns| SlowPart { name: name.into(), ns };
        let call = SlowCallInfo {
            ended: 1_000_000_000,
            service: "AFS".into(),
            procedure: "StoreData64".into(),
            host: "10.0.0.1".into(),
            user: "ann".into(),
            volume: 7,
            total_ns: 2_000_000_000,
            cause: "callback".into(),
            parts: vec![part("disk", 30_000_000), part("callback", 1_900_000_000), part("lock", 5)],
            ..SlowCallInfo::default()
        };
        assert_eq!(
            sentence(&call),
            "2001-09-09T01:46:40Z AFS StoreData64 volume 7 by ann at 10.0.0.1: 2.00 s; it waited for \
            clients to answer their callbacks (disk 30.0 ms, callback 1.90 s)"
        );
        assert_eq!(json_of(&call)["parts_ns"]["disk"], 30_000_000);
        let reply = |from_ns, calls: &[SlowCallInfo]| GetSlowCallsReply { from_ns, calls: calls.to_vec() };
        assert_eq!(opening(&reply(500_000_000, &[])), "No call took 500 ms or more.");
        assert!(opening(&reply(0, &[])).contains("slow_call_ms"));
        assert!(opening(&reply(1_000, &[call])).contains("1 of the last"));
    }
}
