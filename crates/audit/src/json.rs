//! Records as JSON, one object a line. A busy server writes very many of them, so they are put together here,
//! piece by piece, at the end of what is written next; what is said of a caller or a procedure is kept as one piece.

use crate::argument::{Argument, Value};
use crate::form::{Entry, Memory, Notice, ProcedureKey, Times, Writing};
use crate::put;
use crate::record::{Record, Who};
use crate::sink::Batch;
use afs_idl::common::Fid;
use base::{LocalAuthority, Principal, SecurityLevel};
use events::catalogue::OUTCOMES;
use events::current::Privileges;
use jiff::Timestamp;
use std::time::Duration;

/// Appends a line.
pub(crate) fn add(batch: &mut Batch, entry: &Entry<'_>, now: Duration, by: &mut Writing<'_>) {
    let out = batch.bytes();
    match entry {
        Entry::Call(record) => call(out, record, by),
        Entry::Trail(notice) => said(out, *notice, now, by),
    }
    batch.end_line();
}

/// To the microsecond, in UTC, as the first key of an object; what comes next closes it.
fn begin(out: &mut Vec<u8>, at: Duration, times: &mut Times) {
    plain(out, times.of(at.as_secs(), second));
    put::microseconds(out, at.subsec_micros());
}

fn second(time: Timestamp) -> String {
    time.strftime("{\"time\":\"%Y-%m-%dT%H:%M:%S.").to_string()
}

/// What the trail says of itself.
fn said(out: &mut Vec<u8>, notice: Notice, now: Duration, by: &mut Writing<'_>) {
    begin(out, now, by.times);
    pieces(out, ["Z\",\"event\":\"", notice.name(), "\""]);
    if let Some(count) = notice.lost() {
        number(out, ",\"lost\":", count);
    }
    out.push(b'}');
}

fn call(out: &mut Vec<u8>, record: &Record, by: &mut Writing<'_>) {
    let Memory { who, arguments: found, callers, procedures } = &mut *by.memory;
    begin(out, record.facts.at, by.times);
    let key = ProcedureKey::of(record);
    out.extend_from_slice(procedures.of(
        key.hint(),
        |known| *known == key,
        |piece| {
            procedure(piece, record);
            key
        },
    ));
    outcome(out, record);
    out.extend_from_slice(callers.of(
        record.connection,
        |known| record.is_of(known),
        |piece| {
            caller(piece, record, by.authority, who);
            record.caller()
        },
    ));
    put::number(out, record.facts.took_ns / 1000);
    let is_cut_off = record.arguments(found).is_none();
    plain(
        out,
        if is_cut_off { ",\"cut_off\":true,\"arguments\":" } else { ",\"cut_off\":false,\"arguments\":" },
    );
    arguments(out, found);
    if record.facts.user != 0 {
        number(out, ",\"user_id\":", record.facts.user);
    }
    if record.facts.privileges != Privileges::default() {
        plain(out, ",\"privileges\":");
        list(out, record.facts.privileges.used(), |out, (_, name)| pieces(out, ["\"", name, "\""]));
    }
    out.push(b'}');
}

/// What a line says between its time and its outcome: words of our own, in which nothing has to be escaped.
fn procedure(out: &mut Vec<u8>, record: &Record) {
    pieces(
        out,
        [
            "Z\",\"event\":\"",
            &record.event_name(),
            "\",\"class\":\"",
            record.class().name(),
            "\",\"service\":\"",
            record.service,
            "\",\"procedure\":\"",
            record.procedure,
            "\",\"outcome\":\"",
        ],
    );
}

fn outcome(out: &mut Vec<u8>, record: &Record) {
    pieces(out, [OUTCOMES[record.outcome() as usize], "\",\"code\":"]);
    put::number(out, record.code());
}

fn caller(out: &mut Vec<u8>, record: &Record, authority: &dyn LocalAuthority, who: &mut Who) {
    plain(out, ",\"user\":");
    let who = record.principal(who);
    match &who {
        Some(who) => principal(out, who),
        None => plain(out, "null"),
    }
    let is_local = who.is_some_and(|who| authority.is_local_realm(who));
    pieces(out, [",\"local_user\":", truth(is_local), ",\"host\":\""]);
    put::address(out, record.peer.ip());
    number(out, "\",\"port\":", record.peer.port());
    pieces(out, [",\"level\":\"", level(record.level), "\",\"connection\":"]);
    put::number(out, record.connection);
    plain(out, ",\"took_us\":");
}

/// As the principal's own text is.
fn principal(out: &mut Vec<u8>, who: &Principal) {
    out.push(b'"');
    for (before, part) in [("", &who.name), (".", &who.instance), ("@", &who.realm)] {
        if before.is_empty() || !part.is_empty() {
            plain(out, before);
            escaped(out, part);
        }
    }
    out.push(b'"');
}

fn level(level: SecurityLevel) -> &'static str {
    match level {
        SecurityLevel::Clear => "clear",
        SecurityLevel::Authenticated => "authenticated",
        SecurityLevel::Encrypted => "encrypted",
    }
}

/// An object of them.
fn arguments(out: &mut Vec<u8>, arguments: &[Argument]) {
    for (place, argument) in arguments.iter().enumerate() {
        pieces(out, [if place == 0 { "{\"" } else { ",\"" }, argument.name, "\":"]);
        value(out, &argument.value);
    }
    plain(out, if arguments.is_empty() { "{}" } else { "}" });
}

fn value(out: &mut Vec<u8>, value: &Value) {
    match value {
        Value::Text(text) | Value::Acl(text) => string(out, text),
        Value::Long(number) | Value::Int(number) | Value::Id(number) => put::number(out, *number),
        Value::Number(number) => put::number(out, *number),
        Value::Host(address) => {
            out.push(b'"');
            put::ipv4(out, *address);
            out.push(b'"');
        }
        Value::Fid(of) => fid(out, *of),
        Value::Fids(fids) => list(out, fids, |out, of| fid(out, *of)),
        Value::Found { pairs, .. } => list(out, pairs, |out, (name, id)| {
            plain(out, "{\"name\":");
            string(out, name);
            number(out, ",\"id\":", *id);
            out.push(b'}');
        }),
    }
}

/// As people write it.
fn fid(out: &mut Vec<u8>, fid: Fid) {
    out.push(b'"');
    put::numbers(out, [fid.volume, fid.vnode, fid.unique], b'.');
    out.push(b'"');
}

fn list<T>(out: &mut Vec<u8>, items: impl IntoIterator<Item = T>, mut put: impl FnMut(&mut Vec<u8>, T)) {
    out.push(b'[');
    for (place, item) in items.into_iter().enumerate() {
        if place > 0 {
            out.push(b',');
        }
        put(out, item);
    }
    out.push(b']');
}

/// One behind the other, as they are.
fn pieces<const N: usize>(out: &mut Vec<u8>, pieces: [&str; N]) {
    out.reserve(pieces.iter().map(|piece| piece.len()).sum());
    for piece in pieces {
        plain(out, piece);
    }
}

fn plain(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(text.as_bytes());
}

fn number(out: &mut Vec<u8>, before: &str, number: impl itoa::Integer) {
    plain(out, before);
    put::number(out, number);
}

fn truth(is_so: bool) -> &'static str {
    if is_so { "true" } else { "false" }
}

/// A text of somebody else's, with replacement characters where it is not UTF-8.
fn string(out: &mut Vec<u8>, bytes: &[u8]) {
    out.push(b'"');
    for chunk in bytes.utf8_chunks() {
        escaped(out, chunk.valid());
        if !chunk.invalid().is_empty() {
            out.extend_from_slice("\u{fffd}".as_bytes());
        }
    }
    out.push(b'"');
}

/// Most texts have nothing in them that would have to be escaped.
fn escaped(out: &mut Vec<u8>, text: &str) {
    let is_plain = |byte: &u8| !matches!(byte, 0..0x20 | b'"' | b'\\');
    let mut rest = text.as_bytes();
    while let Some(place) = rest.iter().position(|byte| !is_plain(byte)) {
        out.extend_from_slice(&rest[..place]);
        escape(out, rest[place]);
        rest = &rest[place + 1..];
    }
    out.extend_from_slice(rest);
}

fn escape(out: &mut Vec<u8>, byte: u8) {
    let hexadecimal = |digit: u8| b"0123456789abcdef"[usize::from(digit)];
    match byte {
        b'"' | b'\\' => out.extend_from_slice(&[b'\\', byte]),
        b'\n' => plain(out, "\\n"),
        b'\t' => plain(out, "\\t"),
        b'\r' => plain(out, "\\r"),
        0x08 => plain(out, "\\b"),
        0x0c => plain(out, "\\f"),
        _ => {
            plain(out, "\\u00");
            out.extend_from_slice(&[hexadecimal(byte >> 4), hexadecimal(byte & 15)]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn written(bytes: &[u8]) -> String {
        let mut out = Vec::new();
        string(&mut out, bytes);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn every_character_that_must_is_escaped() {
        let all: String = (0..=0x7f_u8).map(char::from).collect();
        assert_eq!(written(all.as_bytes()), serde_json::to_string(&all).unwrap());
    }

    proptest! {
        /// Whatever its bytes are, a text is what the usual crate for JSON makes of it.
        #[test]
        fn a_text_is_a_string(bytes in prop::collection::vec(any::<u8>(), 0..80), text: String) {
            for bytes in [&bytes[..], text.as_bytes()] {
                let expected = serde_json::to_string(&String::from_utf8_lossy(bytes)).unwrap();
                prop_assert_eq!(written(bytes), expected);
            }
        }
    }
}
