//! What a call was about in particular.

use afs_idl::common::Fid;
use std::net::Ipv4Addr;
use xdr::XdrString;

/// One argument, or something that was answered.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Argument {
    /// Its name in JSON.
    pub(crate) name: &'static str,
    pub(crate) value: Value,
    /// OpenAFS does not tell it, and its form has no place for it.
    pub(crate) is_own: bool,
}

/// Values by what OpenAFS's form calls them.
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
    /// A number that only JSON shows.
    Number(i64),
    /// Names and numbers that were asked for; a line for each in OpenAFS's form, number first if so.
    Found { pairs: Vec<(Vec<u8>, i32)>, number_first: bool },
    /// Where a volume was forwarded to; a line for each in OpenAFS's form, `HOST` and `LONG`.
    Forwards(Vec<Forward>),
}

/// A destination of a volume that is sent to several servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Forward {
    pub(crate) to: Ipv4Addr,
    /// The transaction there.
    pub(crate) transaction: i32,
    /// How it ended there; 0 is success.
    pub(crate) code: i32,
}

fn argument(name: &'static str, value: Value) -> Argument {
    Argument { name, value, is_own: false }
}

pub(crate) fn text(name: &'static str, text: &XdrString) -> Argument {
    argument(name, Value::Text(text.0.clone()))
}

/// Without the zero byte that lists end with on the network.
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

pub(crate) fn found(pairs: Vec<(Vec<u8>, i32)>, number_first: bool) -> Argument {
    argument("found", Value::Found { pairs, number_first })
}

pub(crate) fn forwards(name: &'static str, forwards: Vec<Forward>) -> Argument {
    argument(name, Value::Forwards(forwards))
}

/// A number that OpenAFS does not tell.
pub(crate) fn own(name: &'static str, number: impl Into<i64>) -> Argument {
    Argument { name, value: Value::Number(number.into()), is_own: true }
}

/// A text that OpenAFS does not tell.
pub(crate) fn own_text(name: &'static str, text: &XdrString) -> Argument {
    Argument { name, value: Value::Text(text.0.clone()), is_own: true }
}

/// An address that OpenAFS does not tell.
pub(crate) fn own_host(name: &'static str, address: u32) -> Argument {
    Argument { name, value: Value::Host(address.into()), is_own: true }
}

/// Numbers of 32 bits, which OpenAFS shows with a sign.
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
