//! Formats records as JSON, one object per line. A busy server writes very many of them, so they are built
//! piece by piece at the end of the output buffer; the text for a procedure and its caller is cached.

use crate::argument::{Argument, Value};
use crate::form::{Entry, Memory, Notice, Times, Writing};
use crate::kept::Pieces;
use crate::put::{self, Backwards};
use crate::record::Record;
use crate::sink::{Batch, Kind};
use afs_idl::common::Fid;
use base::{LocalAuthority, Principal, Privileges, SecurityLevel};
use events::catalogue::OUTCOMES;
use jiff::Timestamp;

/// Appends a line.
pub(crate) fn add(batch: &mut Batch, entry: &Entry<'_>, at_ns: u64, by: &mut Writing<'_>) {
    let out = batch.bytes();
    begin(out, at_ns, &mut by.memory.times);
    let kind = match entry {
        Entry::Call(record) => {
            call(out, record, by);
            Kind::Record { is_denied: record.is_denied() }
        }
        Entry::Trail(notice) => {
            said(out, *notice);
            Kind::Notice
        }
    };
    batch.end_line(kind);
}

/// Writes the time, in UTC with microseconds, as the first key of an object; the next piece closes its
/// string.
fn begin(out: &mut Vec<u8>, at_ns: u64, times: &mut Times) {
    let (text, microseconds) = times.of(at_ns, second);
    plain(out, text);
    put::microseconds(out, microseconds);
}

fn second(time: Timestamp) -> String {
    time.strftime("{\"time\":\"%Y-%m-%dT%H:%M:%S.").to_string()
}

/// Writes a message of the audit about itself.
fn said(out: &mut Vec<u8>, notice: Notice) {
    pieces(out, ["Z\",\"event\":\"", notice.name(), "\""]);
    if let Some(count) = notice.lost() {
        number(out, ",\"lost\":", count);
    }
    out.push(b'}');
}

fn call(out: &mut Vec<u8>, record: &Record<'_>, by: &mut Writing<'_>) {
    let Memory { found, kept, .. } = &mut *by.memory;
    let make = |pieces: &mut Pieces| common(pieces, record, by.authority);
    let (before, behind) = kept.of(record.hint(), record.common(), make).both();
    out.extend_from_slice(before);
    let mut text = Backwards::default();
    let took_us = record.took_ns() / 1000;
    if let Some(fid) = record.fid() {
        text.put(b"\"}");
        text.fid(fid, b'.');
        text.put(b",\"cut_off\":false,\"arguments\":{\"fid\":\"");
        text.number(took_us);
        out.extend_from_slice(text.text());
    } else {
        text.number(took_us);
        out.extend_from_slice(text.text());
        other_arguments(out, record.arguments(found));
    }
    out.extend_from_slice(behind);
}

fn other_arguments(out: &mut Vec<u8>, found: Option<&[Argument]>) {
    match found {
        Some(found) => {
            plain(out, ",\"cut_off\":false,\"arguments\":");
            arguments(out, found);
        }
        None => plain(out, ",\"cut_off\":true,\"arguments\":{}"),
    }
}

/// Writes the common parts of a line: the one between time and duration, and the one after the arguments.
fn common(both: &mut Pieces, record: &Record<'_>, authority: &dyn LocalAuthority) {
    let out = both.text();
    procedure(out, record);
    outcome(out, record);
    caller(out, record, authority);
    both.end_first();
    let out = both.text();
    if record.user() != 0 {
        number(out, ",\"user_id\":", record.user());
    }
    if record.privileges() != Privileges::default() {
        plain(out, ",\"privileges\":");
        list(out, record.privileges().used(), |out, (_, name)| pieces(out, ["\"", name, "\""]));
    }
    out.push(b'}');
}

/// Writes names that need no escaping.
fn procedure(out: &mut Vec<u8>, record: &Record<'_>) {
    pieces(
        out,
        [
            "Z\",\"event\":\"",
            &record.event_name(),
            "\",\"class\":\"",
            record.class().name(),
            "\",\"service\":\"",
            record.outline.service,
            "\",\"procedure\":\"",
            record.outline.procedure,
            "\",\"outcome\":\"",
        ],
    );
}

fn outcome(out: &mut Vec<u8>, record: &Record<'_>) {
    pieces(out, [OUTCOMES[record.outcome() as usize], "\",\"code\":"]);
    put::number(out, record.code());
}

fn caller(out: &mut Vec<u8>, record: &Record<'_>, authority: &dyn LocalAuthority) {
    plain(out, ",\"user\":");
    let who = record.principal();
    match &who {
        Some(who) => principal(out, who),
        None => plain(out, "null"),
    }
    let is_local = who.is_some_and(|who| authority.is_local_realm(&who));
    pieces(out, [",\"local_user\":", truth(is_local), ",\"host\":\""]);
    put::address(out, record.address());
    number(out, "\",\"port\":", record.port());
    pieces(out, [",\"level\":\"", level(record.level()), "\",\"connection\":"]);
    put::number(out, record.connection());
    plain(out, ",\"took_us\":");
}

/// Writes a principal in its usual text form.
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

/// Writes the arguments as an object.
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
        Value::Forwards(forwards) => list(out, forwards, |out, forward| {
            plain(out, "{\"to\":\"");
            put::ipv4(out, forward.to);
            number(out, "\",\"to_transaction\":", forward.transaction);
            number(out, ",\"code\":", forward.code);
            out.push(b'}');
        }),
        Value::Found { pairs, .. } => list(out, pairs, |out, (name, id)| {
            plain(out, "{\"name\":");
            string(out, name);
            number(out, ",\"id\":", *id);
            out.push(b'}');
        }),
    }
}

/// Writes a FID in its usual text form.
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

/// Writes the pieces in order, without escaping.
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

/// Writes text from a peer, with replacement characters where it is not UTF-8.
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

/// Most text contains nothing to escape.
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
        /// For any bytes, the string is the one that `serde_json` writes.
        #[test]
        fn a_text_is_a_string(bytes in prop::collection::vec(any::<u8>(), 0..80), text: String) {
            for bytes in [&bytes[..], text.as_bytes()] {
                let expected = serde_json::to_string(&String::from_utf8_lossy(bytes)).unwrap();
                prop_assert_eq!(written(bytes), expected);
            }
        }
    }
}
