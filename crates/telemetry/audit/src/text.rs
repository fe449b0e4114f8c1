//! The format of OpenAFS's servers (printbuf of src/audit/audit.c): words, each followed by a space. Unlike
//! there, a record is always one line: control characters in names and access lists are escaped, so that a
//! client cannot forge lines.

use crate::argument::{Argument, Forward, Value};
use crate::form::{Entry, Notice, Writing};
use crate::kept::{Kept, Pieces};
use crate::put::{self, Backwards};
use crate::record::{Found, Record};
use crate::sink::{Batch, Kind};
use afs_idl::common::Fid;
use base::{AbortCode, LocalAuthority, Principal, Privilege, UserId};
use jiff::Timestamp;
use jiff::tz::TimeZone;

/// OpenAFS's name for a client without a token.
const ANONYMOUS: &str = "--UnAuth--";
/// Event that OpenAFS records before each call of such a client.
const ANONYMOUS_EVENT: &str = "AFS_Aud_Unauth";
/// Number of the anonymous user in the protection database.
const ANONYMOUS_ID: i32 = UserId::ANONYMOUS.0;
/// Services whose lines include a thread number: OpenAFS's file and volume servers set one
/// (`SetLogThreadNumProgram`), its location and protection servers and its overseer do not.
const NUMBERED: [&str; 3] = ["AFS", "AFSVol", "CELLAR"];

/// Data for the start of a line.
#[derive(Clone, Copy)]
struct Stamp<'a> {
    time: &'a str,
    thread: Option<u32>,
}

pub(crate) fn add(batch: &mut Batch, entry: &Entry<'_>, at_ns: u64, by: &mut Writing<'_>) {
    let (time, _) = by.memory.times.of(at_ns, time);
    match entry {
        Entry::Call(record) => {
            let thread = NUMBERED.contains(&record.outline.service).then_some(record.thread);
            let stamp = Stamp { time, thread };
            add_call(batch, record, by.authority, stamp, &mut by.memory.found, &mut by.memory.kept);
        }
        Entry::Trail(notice) => add_notice(batch, *notice, Stamp { time, thread: None }),
    }
}

fn add_notice(batch: &mut Batch, notice: Notice, stamp: Stamp<'_>) {
    let out = begin(batch, stamp, notice.name(), 0);
    if let Some(count) = notice.lost() {
        number(out, "LONG ", count);
    }
    batch.end_line(Kind::Notice);
}

fn add_call(
    batch: &mut Batch,
    record: &Record<'_>,
    authority: &dyn LocalAuthority,
    stamp: Stamp<'_>,
    found: &mut Found,
    kept: &mut Kept,
) {
    let fid = record.fid();
    let arguments = if fid.is_some() { &[] } else { record.arguments(found).unwrap_or_default() };
    let is_denied = record.is_denied();
    add_privileges(batch, stamp, record);
    add_found(batch, stamp, record, arguments);
    if let [Argument { value: first, .. }, Argument { value: Value::Forwards(forwards), .. }] = arguments {
        return add_forwards(batch, stamp, record, authority, (first, forwards));
    }
    let (warning, call) =
        kept.of(record.hint(), record.common(), |pieces| common(pieces, record, authority)).both();
    if !warning.is_empty() {
        add_piece(batch, stamp, warning);
        batch.end_line(Kind::Part { is_denied });
    }
    let out = add_piece(batch, stamp, call);
    if let Some(of) = fid {
        self::fid(out, of);
    }
    arguments.iter().filter(|argument| !argument.is_own).for_each(|argument| value(out, &argument.value));
    batch.end_line(Kind::Record { is_denied });
}

fn add_piece<'a>(batch: &'a mut Batch, stamp: Stamp<'_>, piece: &[u8]) -> &'a mut Vec<u8> {
    let out = stamped(batch, stamp);
    out.extend_from_slice(piece);
    out
}

/// Writes the common parts: the event that precedes a call without a token, and the head of any call.
fn common(pieces: &mut Pieces, record: &Record<'_>, authority: &dyn LocalAuthority) {
    warn_of_anonymous(pieces.text(), record);
    pieces.end_first();
    head(pieces.text(), record, authority, record.code());
}

fn warn_of_anonymous(out: &mut Vec<u8>, record: &Record<'_>) {
    if !record.is_known() {
        event(out, ANONYMOUS_EVENT, -1);
        string(out, "STR ", record.event_name().as_bytes());
    }
}

/// Writes event, code, caller and host.
fn head(out: &mut Vec<u8>, record: &Record<'_>, authority: &dyn LocalAuthority, code: i32) {
    event(out, &record.event_name(), code);
    match record.principal() {
        Some(who) => principal(out, &who, authority.is_local_realm(&who)),
        None => string(out, "NAME ", ANONYMOUS.as_bytes()),
    }
    plain(out, "HOST ");
    put::address(out, record.address());
    out.push(b' ');
    if record.outline.service == "AFS" {
        number(out, "ID ", user(record));
    }
}

/// Returns the caller's number. OpenAFS has no special number for holders of the cell's key.
fn user(record: &Record<'_>) -> i32 {
    match UserId(record.user()) {
        UserId::ADMINISTRATORS => ANONYMOUS_ID,
        user => user.0,
    }
}

/// Writes a principal in its usual text form, without the realm if it is local.
fn principal(out: &mut Vec<u8>, who: &Principal, is_local: bool) {
    plain(out, "NAME ");
    let realm = if is_local { "" } else { &who.realm[..] };
    for (before, part) in [("", &who.name[..]), (".", &who.instance), ("@", realm)] {
        if before.is_empty() || !part.is_empty() {
            plain(out, before);
            escaped(out, part.as_bytes());
        }
    }
    out.push(b' ');
}

/// Adds a line for each use of an administrator's privileges; the number is the purpose (CHK_... of
/// src/viced/afsfileprocs.c).
fn add_privileges(batch: &mut Batch, stamp: Stamp<'_>, record: &Record<'_>) {
    for (privilege, _) in record.privileges().used() {
        let (event, purpose) = match privilege {
            Privilege::StoreData => ("AFS_Priv", 0x00),
            Privilege::StoreAcl => ("AFS_Priv", 0x01),
            Privilege::StoreStatus => ("AFS_Priv", 0x02),
            Privilege::FetchAcl => ("AFS_Priv", 0x11),
            Privilege::FetchStatus => ("AFS_Priv", 0x12),
            Privilege::SetModeOfData => ("AFS_PrivSet", 0x00),
            Privilege::SetMode => ("AFS_PrivSet", 0x02),
        };
        let out = begin(batch, stamp, event, 0);
        number(out, "ID ", user(record));
        number(out, "INT ", purpose);
        batch.end_line(Kind::Part { is_denied: record.is_denied() });
    }
}

/// Adds a line for each name or number that was looked up.
fn add_found(batch: &mut Batch, stamp: Stamp<'_>, record: &Record<'_>, arguments: &[Argument]) {
    let found = arguments.iter().find_map(|argument| match &argument.value {
        Value::Found { pairs, number_first } => Some((pairs, *number_first)),
        _ => None,
    });
    let Some((pairs, number_first)) = found else { return };
    for (name, id) in pairs {
        let out = begin(batch, stamp, &record.event_name(), code_of(name, *id));
        if number_first {
            number(out, "ID ", *id);
        }
        string(out, "STR ", name);
        if !number_first {
            number(out, "ID ", *id);
        }
        batch.end_line(Kind::Part { is_denied: record.is_denied() });
    }
}

/// Adds a whole call for each destination, the last one first; nothing if there is no destination.
fn add_forwards(
    batch: &mut Batch,
    stamp: Stamp<'_>,
    record: &Record<'_>,
    authority: &dyn LocalAuthority,
    (transaction, forwards): (&Value, &[Forward]),
) {
    let is_denied = record.is_denied();
    for (place, forward) in forwards.iter().enumerate().rev() {
        if !record.is_known() {
            warn_of_anonymous(stamped(batch, stamp), record);
            batch.end_line(Kind::Part { is_denied });
        }
        let out = stamped(batch, stamp);
        let code = if record.code() == 0 { forward.code } else { record.code() };
        head(out, record, authority, code);
        value(out, transaction);
        value(out, &Value::Host(forward.to));
        value(out, &Value::Long(forward.transaction));
        batch.end_line(if place == 0 { Kind::Record { is_denied } } else { Kind::Part { is_denied } });
    }
}

/// Returns OpenAFS's code for a pair: for what does not exist, OpenAFS returns the anonymous id, or the
/// digits as a name.
fn code_of(name: &[u8], number: i32) -> i32 {
    let is_missing = number == ANONYMOUS_ID && name != b"anonymous" || number.to_string().as_bytes() == name;
    if is_missing { AbortCode::PRNOENT.0 } else { 0 }
}

/// Formats a time in the machine's time zone, as OpenAFS does.
fn time(second: Timestamp) -> String {
    second.to_zoned(TimeZone::system()).strftime("%a %b %d %H:%M:%S %Y").to_string()
}

/// Starts a line.
fn begin<'a>(batch: &'a mut Batch, stamp: Stamp<'_>, name: &str, code: i32) -> &'a mut Vec<u8> {
    let out = stamped(batch, stamp);
    event(out, name, code);
    out
}

fn stamped<'a>(batch: &'a mut Batch, stamp: Stamp<'_>) -> &'a mut Vec<u8> {
    let out = batch.bytes();
    plain(out, stamp.time);
    if let Some(thread) = stamp.thread {
        plain(out, " [");
        put::number(out, thread);
        out.push(b']');
    }
    out
}

fn event(out: &mut Vec<u8>, name: &str, code: i32) {
    plain(out, " EVENT ");
    plain(out, name);
    number(out, " CODE ", code);
}

fn value(out: &mut Vec<u8>, value: &Value) {
    match value {
        Value::Text(text) => string(out, "STR ", text),
        Value::Acl(text) => string(out, "ACL ", text),
        Value::Long(long) => number(out, "LONG ", *long),
        Value::Int(int) => number(out, "INT ", *int),
        Value::Id(id) => number(out, "ID ", *id),
        Value::Host(address) => {
            plain(out, "HOST ");
            put::ipv4(out, *address);
            out.push(b' ');
        }
        Value::Fid(of) => fid(out, *of),
        Value::Fids(fids) => {
            number(out, "FIDS ", fids.len());
            // OpenAFS has no representation of an empty list and shows a FID of zeros instead.
            if fids.is_empty() {
                fid(out, Fid::default());
            }
            for of in fids {
                fid(out, *of);
            }
        }
        Value::Number(_) | Value::Found { .. } | Value::Forwards(_) => {}
    }
}

fn fid(out: &mut Vec<u8>, fid: Fid) {
    let mut text = Backwards::default();
    text.put(b" ");
    text.fid(fid, b':');
    text.put(b"FID ");
    out.extend_from_slice(text.text());
}

fn plain(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(text.as_bytes());
}

fn number(out: &mut Vec<u8>, before: &str, number: impl itoa::Integer) {
    plain(out, before);
    put::number(out, number);
    out.push(b' ');
}

fn string(out: &mut Vec<u8>, kind: &str, text: &[u8]) {
    plain(out, kind);
    escaped(out, text);
    out.push(b' ');
}

fn escaped(out: &mut Vec<u8>, text: &[u8]) {
    for byte in text {
        match byte {
            0..0x20 | 0x7f | b'\\' => out.extend(byte.escape_ascii()),
            _ => out.push(*byte),
        }
    }
}
