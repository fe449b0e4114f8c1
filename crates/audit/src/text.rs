//! The form of OpenAFS's servers (printbuf of src/audit/audit.c): words, each followed by a blank. Unlike
//! there a record is always one line: control characters in names and access lists are escaped, so that
//! nobody can forge a line.

use crate::argument::{Argument, Value};
use crate::form::{Entry, Notice, Times};
use crate::record::Record;
use base::{AbortCode, LocalAuthority};
use events::current::Privilege;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use std::io::Write as _;
use std::time::Duration;

/// What OpenAFS calls somebody without a token.
const ANONYMOUS: &str = "--UnAuth--";
/// What it says beforehand of each call of such a client.
const ANONYMOUS_EVENT: &str = "AFS_Aud_Unauth";
/// The number of nobody in the protection database.
const ANONYMOUS_ID: i32 = 32766;

pub(crate) fn add(
    out: &mut Vec<u8>,
    entry: &Entry<'_>,
    now: Duration,
    authority: &dyn LocalAuthority,
    times: &mut Times,
) {
    match entry {
        Entry::Call(record) => add_call(out, record, authority, times.of(record.facts.at.as_secs(), time)),
        Entry::Trail(notice) => add_notice(out, *notice, times.of(now.as_secs(), time)),
    }
}

fn add_notice(out: &mut Vec<u8>, notice: Notice, time: &str) {
    begin(out, time, notice.name(), 0);
    if let Some(count) = notice.lost() {
        word(out, format_args!("LONG {count}"));
    }
    out.push(b'\n');
}

fn add_call(out: &mut Vec<u8>, record: &Record, authority: &dyn LocalAuthority, time: &str) {
    let name = record.event_name();
    let arguments = record.arguments().unwrap_or_default();
    add_privileges(out, time, record);
    add_found(out, time, &name, &arguments);
    let who = record.principal().map(|mut who| {
        if authority.is_local_realm(&who) {
            who.realm.clear();
        }
        who.to_string()
    });
    if who.is_none() {
        begin(out, time, ANONYMOUS_EVENT, -1);
        string(out, "STR", name.as_bytes());
        out.push(b'\n');
    }
    begin(out, time, &name, record.code());
    string(out, "NAME", who.as_deref().unwrap_or(ANONYMOUS).as_bytes());
    word(out, format_args!("HOST {}", record.peer.ip()));
    if record.service == "AFS" {
        word(out, format_args!("ID {}", record.facts.user));
    }
    arguments.iter().filter(|argument| !argument.is_own).for_each(|argument| value(out, &argument.value));
    out.push(b'\n');
}

/// A line for each use of an administrator's privileges; the number says for what (CHK_... of
/// src/viced/afsfileprocs.c).
fn add_privileges(out: &mut Vec<u8>, time: &str, record: &Record) {
    for (privilege, _) in record.facts.privileges.used() {
        let (event, number) = match privilege {
            Privilege::StoreData => ("AFS_Priv", 0x00),
            Privilege::StoreAcl => ("AFS_Priv", 0x01),
            Privilege::StoreStatus => ("AFS_Priv", 0x02),
            Privilege::FetchAcl => ("AFS_Priv", 0x11),
            Privilege::FetchStatus => ("AFS_Priv", 0x12),
            Privilege::SetModeOfData => ("AFS_PrivSet", 0x00),
            Privilege::SetMode => ("AFS_PrivSet", 0x02),
        };
        begin(out, time, event, 0);
        word(out, format_args!("ID {}", record.facts.user));
        word(out, format_args!("INT {number}"));
        out.push(b'\n');
    }
}

/// A line for each name or number that was asked for.
fn add_found(out: &mut Vec<u8>, time: &str, event: &str, arguments: &[Argument]) {
    let found = arguments.iter().find_map(|argument| match &argument.value {
        Value::Found { pairs, number_first } => Some((pairs, *number_first)),
        _ => None,
    });
    let Some((pairs, number_first)) = found else { return };
    for (name, number) in pairs {
        begin(out, time, event, code_of(name, *number));
        let text = |out: &mut Vec<u8>| string(out, "STR", name);
        if !number_first {
            text(out);
        }
        word(out, format_args!("ID {number}"));
        if number_first {
            text(out);
        }
        out.push(b'\n');
    }
}

/// What OpenAFS finds of a pair: of what does not exist it answers the number of nobody, or digits.
fn code_of(name: &[u8], number: i32) -> i32 {
    let is_missing = number == ANONYMOUS_ID && name != b"anonymous" || number.to_string().as_bytes() == name;
    if is_missing { AbortCode::PRNOENT.0 } else { 0 }
}

/// In the machine's time zone, as OpenAFS has it.
fn time(second: Timestamp) -> String {
    second.to_zoned(TimeZone::system()).strftime("%a %b %d %H:%M:%S %Y").to_string()
}

fn begin(out: &mut Vec<u8>, time: &str, event: &str, code: i32) {
    out.extend_from_slice(time.as_bytes());
    word(out, format_args!(" EVENT {event} CODE {code}"));
}

fn value(out: &mut Vec<u8>, value: &Value) {
    match value {
        Value::Text(text) => string(out, "STR", text),
        Value::Acl(text) => string(out, "ACL", text),
        Value::Long(number) => word(out, format_args!("LONG {number}")),
        Value::Int(number) => word(out, format_args!("INT {number}")),
        Value::Id(number) => word(out, format_args!("ID {number}")),
        Value::Host(address) => word(out, format_args!("HOST {address}")),
        Value::Fid(fid) => word(out, format_args!("FID {}:{}:{}", fid.volume, fid.vnode, fid.unique)),
        Value::Fids(fids) => {
            word(out, format_args!("FIDS {}", fids.len()));
            for fid in fids {
                word(out, format_args!("FID {}:{}:{}", fid.volume, fid.vnode, fid.unique));
            }
        }
        Value::Number(_) | Value::Found { .. } => {}
    }
}

fn word(out: &mut Vec<u8>, word: std::fmt::Arguments<'_>) {
    // A vector takes everything.
    let _ = write!(out, "{word} ");
}

fn string(out: &mut Vec<u8>, kind: &str, text: &[u8]) {
    out.extend_from_slice(kind.as_bytes());
    out.push(b' ');
    for byte in text {
        match byte {
            0..0x20 | 0x7f | b'\\' => out.extend(byte.escape_ascii()),
            _ => out.push(*byte),
        }
    }
    out.push(b' ');
}
