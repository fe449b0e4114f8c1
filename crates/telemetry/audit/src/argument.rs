//! Arguments and results of a call.

use afs_idl::common::Fid;
use afs_idl::{pr, vol};
use std::net::Ipv4Addr;
use xdr::XdrString;

/// One argument or one result.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Argument {
    /// Name in JSON.
    pub(crate) name: &'static str,
    pub(crate) value: Value,
    /// Whether it is Cellar's own addition: OpenAFS does not record it, and its format has no place for it.
    pub(crate) is_own: bool,
}

/// Values, named after their types in OpenAFS's format.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    /// `STR`
    Text(Vec<u8>),
    /// `ACL`
    Acl(Vec<u8>),
    /// `LONG`
    Long(i32),
    /// `INT`
    Int(i32),
    /// `ID`
    Id(i32),
    /// `HOST`
    Host(Ipv4Addr),
    /// `FID`
    Fid(Fid),
    /// `FIDS`
    Fids(Vec<Fid>),
    /// A number that only JSON includes.
    Number(i64),
    /// Names and numbers that were looked up; one line for each in OpenAFS's format, with the number first if
    /// `number_first`.
    Found { pairs: Vec<(Vec<u8>, i32)>, number_first: bool },
    /// Destinations of a forwarded volume; one line for each in OpenAFS's format, with `HOST` and `LONG`.
    Forwards(Vec<Forward>),
}

/// A destination of a volume that is sent to several servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Forward {
    pub(crate) to: Ipv4Addr,
    /// Transaction on that server.
    pub(crate) transaction: i32,
    /// Result on that server; 0 is success.
    pub(crate) code: i32,
}

fn argument(name: &'static str, value: Value) -> Argument {
    Argument { name, value, is_own: false }
}

pub(crate) fn text(name: &'static str, text: &XdrString) -> Argument {
    argument(name, Value::Text(text.0.clone()))
}

/// Builds an access list, without the zero byte that terminates it on the network.
pub(crate) fn acl(name: &'static str, text: &[u8]) -> Argument {
    let length = text.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    argument(name, Value::Acl(text[..length].to_vec()))
}

pub(crate) fn long(name: &'static str, number: impl Bits) -> Argument {
    argument(name, Value::Long(number.bits()))
}

pub(crate) fn int(name: &'static str, number: i32) -> Argument {
    argument(name, Value::Int(number))
}

pub(crate) fn id(name: &'static str, number: i32) -> Argument {
    argument(name, Value::Id(number))
}

pub(crate) fn host(name: &'static str, address: u32) -> Argument {
    argument(name, Value::Host(address.into()))
}

pub(crate) fn fid(name: &'static str, fid: Fid) -> Argument {
    argument(name, Value::Fid(fid))
}

pub(crate) fn fids(name: &'static str, fids: &[Fid]) -> Argument {
    argument(name, Value::Fids(fids.to_vec()))
}

/// Builds the names that were looked up, with the ids found.
pub(crate) fn name_to_id(request: &pr::NameToIDRequest, reply: &pr::NameToIDReply) -> Argument {
    argument("found", Value::Found { pairs: pairs(&request.names, &reply.ids), number_first: false })
}

/// Builds the ids that were looked up, with the names found.
pub(crate) fn id_to_name(request: &pr::IDToNameRequest, reply: &pr::IDToNameReply) -> Argument {
    argument("found", Value::Found { pairs: pairs(&reply.names, &request.ids), number_first: true })
}

/// Pairs names with ids, up to the length of the shorter list.
fn pairs(names: &[XdrString], ids: &[i32]) -> Vec<(Vec<u8>, i32)> {
    names.iter().map(|name| name.0.clone()).zip(ids.iter().copied()).collect()
}

/// Builds each destination with its result; the reply of a call that failed as a whole has no results.
pub(crate) fn forwards(request: &vol::ForwardMultipleRequest, reply: &vol::ForwardMultipleReply) -> Argument {
    let results = reply.results.iter().copied().chain(std::iter::repeat(0));
    let forward = |(replica, code): (&vol::Replica, i32)| Forward {
        to: replica.server.host.into(),
        transaction: replica.transaction,
        code,
    };
    let forwards = request.destinations.iter().zip(results).map(forward).collect();
    argument("destinations", Value::Forwards(forwards))
}

/// Builds a number that OpenAFS does not record.
pub(crate) fn own(name: &'static str, number: impl Into<i64>) -> Argument {
    Argument { name, value: Value::Number(number.into()), is_own: true }
}

/// Builds a text that OpenAFS does not record.
pub(crate) fn own_text(name: &'static str, text: &XdrString) -> Argument {
    Argument { name, value: Value::Text(text.0.clone()), is_own: true }
}

/// Builds an address that OpenAFS does not record.
pub(crate) fn own_host(name: &'static str, address: u32) -> Argument {
    Argument { name, value: Value::Host(address.into()), is_own: true }
}

/// Converts 32-bit numbers, which OpenAFS shows as signed.
pub(crate) trait Bits {
    fn bits(self) -> i32;
}

impl Bits for i32 {
    fn bits(self) -> i32 {
        self
    }
}

impl Bits for u32 {
    fn bits(self) -> i32 {
        self as i32
    }
}
