//! Records as JSON, one object a line.

use crate::argument::{Argument, Value};
use crate::form::{Entry, Notice, Times};
use crate::record::Record;
use afs_idl::common::Fid;
use base::{LocalAuthority, Principal, SecurityLevel};
use events::catalogue::OUTCOMES;
use events::current::Privileges;
use jiff::Timestamp;
use serde::ser::{Serialize, SerializeMap, SerializeSeq, Serializer};
use std::fmt;
use std::time::Duration;

/// Appends a line. Nothing of it is put together in memory first: a busy server writes very many.
pub(crate) fn add(
    out: &mut Vec<u8>,
    entry: &Entry<'_>,
    now: Duration,
    authority: &dyn LocalAuthority,
    times: &mut Times,
) {
    let at = match entry {
        Entry::Call(record) => record.facts.at,
        Entry::Trail(_) => now,
    };
    let time = Time { second: times.of(at.as_secs(), second), microseconds: at.subsec_micros() };
    // A vector takes everything.
    let _ = match entry {
        Entry::Call(record) => serde_json::to_writer(&mut *out, &Call { record, time, authority }),
        Entry::Trail(notice) => serde_json::to_writer(&mut *out, &Said { notice: *notice, time }),
    };
    out.push(b'\n');
}

fn second(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%S").to_string()
}

/// To the microsecond, in UTC.
struct Time<'a> {
    second: &'a str,
    microseconds: u32,
}

impl fmt::Display for Time<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:06}Z", self.second, self.microseconds)
    }
}

/// What is written as its text is.
struct Text<T>(T);

impl<T: fmt::Display> Serialize for Text<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

/// What the trail says of itself.
struct Said<'a> {
    notice: Notice,
    time: Time<'a>,
}

impl Serialize for Said<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("time", &Text(&self.time))?;
        map.serialize_entry("event", self.notice.name())?;
        if let Some(count) = self.notice.lost() {
            map.serialize_entry("lost", &count)?;
        }
        map.end()
    }
}

/// A call.
struct Call<'a> {
    record: &'a Record,
    time: Time<'a>,
    authority: &'a dyn LocalAuthority,
}

impl Serialize for Call<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let record = self.record;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("time", &Text(&self.time))?;
        map.serialize_entry("event", &*record.event_name())?;
        map.serialize_entry("class", &Text(record.class()))?;
        map.serialize_entry("service", record.service)?;
        map.serialize_entry("procedure", record.procedure)?;
        map.serialize_entry("outcome", OUTCOMES[record.outcome() as usize])?;
        map.serialize_entry("code", &record.code())?;
        self.add_caller(&mut map)?;
        map.serialize_entry("took_us", &(record.facts.took_ns / 1000))?;
        let arguments = record.arguments();
        map.serialize_entry("cut_off", &arguments.is_none())?;
        map.serialize_entry("arguments", &Arguments(arguments.unwrap_or_default()))?;
        if record.facts.user != 0 {
            map.serialize_entry("user_id", &record.facts.user)?;
        }
        if record.facts.privileges != Privileges::default() {
            map.serialize_entry("privileges", &Used(record.facts.privileges))?;
        }
        map.end()
    }
}

impl Call<'_> {
    fn add_caller<M: SerializeMap>(&self, map: &mut M) -> Result<(), M::Error> {
        let (record, principal) = (self.record, self.record.principal());
        let is_local = |who: &Principal| self.authority.is_local_realm(who);
        map.serialize_entry("user", &principal.as_ref().map(Text))?;
        map.serialize_entry("local_user", &principal.as_ref().is_some_and(is_local))?;
        map.serialize_entry("host", &Text(record.peer.ip()))?;
        map.serialize_entry("port", &record.peer.port())?;
        map.serialize_entry("level", level(record.level))?;
        map.serialize_entry("connection", &record.connection)
    }
}

fn level(level: SecurityLevel) -> &'static str {
    match level {
        SecurityLevel::Clear => "clear",
        SecurityLevel::Authenticated => "authenticated",
        SecurityLevel::Encrypted => "encrypted",
    }
}

/// Names of privileges.
struct Used(Privileges);

impl Serialize for Used {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.used().map(|(_, name)| name))
    }
}

/// An object of them.
struct Arguments(Vec<Argument>);

impl Serialize for Arguments {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|argument| (argument.name, OfArgument(&argument.value))))
    }
}

struct OfArgument<'a>(&'a Value);

impl Serialize for OfArgument<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Value::Text(text) | Value::Acl(text) => serializer.serialize_str(&String::from_utf8_lossy(text)),
            Value::Long(number) | Value::Int(number) | Value::Id(number) => serializer.serialize_i32(*number),
            Value::Number(number) => serializer.serialize_i64(*number),
            Value::Host(address) => serializer.collect_str(address),
            Value::Fid(fid) => OfFid(*fid).serialize(serializer),
            Value::Fids(fids) => serializer.collect_seq(fids.iter().copied().map(OfFid)),
            Value::Found { pairs, .. } => {
                let mut list = serializer.serialize_seq(Some(pairs.len()))?;
                for (name, id) in pairs {
                    list.serialize_element(&Found { name, id: *id })?;
                }
                list.end()
            }
        }
    }
}

/// As people write it.
struct OfFid(Fid);

impl Serialize for OfFid {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Fid { volume, vnode, unique } = self.0;
        serializer.collect_str(&format_args!("{volume}.{vnode}.{unique}"))
    }
}

/// A name with its number.
struct Found<'a> {
    name: &'a [u8],
    id: i32,
}

impl Serialize for Found<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(2))?;
        map.serialize_entry("name", &*String::from_utf8_lossy(self.name))?;
        map.serialize_entry("id", &self.id)?;
        map.end()
    }
}
