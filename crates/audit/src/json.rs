//! Records as JSON, one object a line.

use crate::argument::Value as Argument;
use crate::form::{Entry, Notice};
use crate::record::Record;
use afs_idl::common::Fid;
use base::{LocalAuthority, SecurityLevel};
use events::catalogue::OUTCOMES;
use jiff::Timestamp;
use serde_json::{Map, Value, json};
use std::time::Duration;

pub(crate) fn add(out: &mut Vec<u8>, entry: &Entry<'_>, now: Duration, authority: &dyn LocalAuthority) {
    let value = match entry {
        Entry::Call(record) => call(record, authority),
        Entry::Trail(notice) => of_notice(*notice, now),
    };
    // A vector takes everything.
    let _ = serde_json::to_writer(&mut *out, &value);
    out.push(b'\n');
}

fn of_notice(notice: Notice, now: Duration) -> Value {
    let mut object = Map::new();
    object.insert("time".into(), time(now).into());
    object.insert("event".into(), notice.name().into());
    if let Some(count) = notice.lost() {
        object.insert("lost".into(), count.into());
    }
    Value::Object(object)
}

fn call(record: &Record, authority: &dyn LocalAuthority) -> Value {
    let principal = record.principal();
    let is_local = principal.as_ref().is_some_and(|who| authority.is_local_realm(who));
    let arguments = record.arguments();
    let mut value = json!({
        "time": time(record.facts.at),
        "event": record.event_name(),
        "class": record.class().to_string(),
        "service": record.service,
        "procedure": record.procedure,
        "outcome": OUTCOMES[record.outcome() as usize],
        "code": record.code(),
        "user": principal.as_ref().map(ToString::to_string),
        "local_user": is_local,
        "host": record.peer.ip().to_string(),
        "port": record.peer.port(),
        "level": level(record.level),
        "connection": record.connection,
        "took_us": record.facts.took_ns / 1000,
        "cut_off": arguments.is_none(),
        "arguments": arguments.unwrap_or_default().into_iter()
            .map(|argument| (argument.name.to_owned(), of_argument(argument.value)))
            .collect::<Map<_, _>>(),
    });
    if record.facts.user != 0 {
        value["user_id"] = record.facts.user.into();
    }
    value
}

/// To the microsecond, in UTC.
fn time(since_1970: Duration) -> String {
    let time = Timestamp::from_microsecond(since_1970.as_micros() as i64).unwrap_or_default();
    format!("{time:.6}")
}

fn level(level: SecurityLevel) -> &'static str {
    match level {
        SecurityLevel::Clear => "clear",
        SecurityLevel::Authenticated => "authenticated",
        SecurityLevel::Encrypted => "encrypted",
    }
}

fn of_argument(value: Argument) -> Value {
    match value {
        Argument::Text(text) | Argument::Acl(text) => text_of(&text),
        Argument::Long(number) | Argument::Int(number) | Argument::Id(number) => number.into(),
        Argument::Number(number) => number.into(),
        Argument::Host(address) => address.to_string().into(),
        Argument::Fid(fid) => of_fid(fid),
        Argument::Fids(fids) => fids.into_iter().map(of_fid).collect(),
        Argument::Found { pairs, .. } => {
            pairs.iter().map(|(name, id)| json!({ "name": text_of(name), "id": id })).collect()
        }
    }
}

/// As people write it.
fn of_fid(fid: Fid) -> Value {
    format!("{}.{}.{}", fid.volume, fid.vnode, fid.unique).into()
}

fn text_of(text: &[u8]) -> Value {
    String::from_utf8_lossy(text).into()
}
