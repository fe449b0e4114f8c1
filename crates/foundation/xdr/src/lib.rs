//! A bounded codec for XDR (RFC 4506) as used by Rx services.
//!
//! Input is not trusted: every string, opaque and list is decoded with a bound, and memory grows only as
//! bytes arrive, whatever length the peer claims. Two peculiarities of Rx services are covered as well: a C
//! `char name[N]` is sent as N words of one character each ([`chars`]), and a linked list as a chain of "one
//! more" flags ([`chain`]).

mod collection;
mod error;
mod primitive;
mod source;
mod string;

pub use collection::{array, chain, list, long_array};
pub use error::XdrError;
pub use source::{SliceSource, Source};
pub use string::{XdrString, chars, fixed, octets, opaque};

/// A value with an XDR form.
pub trait Encode {
    /// Appends the value to `out`. The caller is responsible for the bounds of strings and lists.
    fn encode(&self, out: &mut Vec<u8>);
}

/// A value that can be decoded from its XDR form.
pub trait Decode: Sized {
    /// Decodes one value from `source`, and reads no further.
    fn decode<S: Source + ?Sized>(source: &mut S) -> Result<Self, XdrError>;
}

/// Initial capacity for a message, large enough for most of them.
const MESSAGE_BYTES: usize = 320;

/// Encodes `value`.
pub fn to_vec<T: Encode + ?Sized>(value: &T) -> Vec<u8> {
    let mut out = Vec::with_capacity(MESSAGE_BYTES);
    value.encode(&mut out);
    out
}

/// Decodes a value whose XDR form is all of `bytes`.
pub fn from_slice<T: Decode>(bytes: &[u8]) -> Result<T, XdrError> {
    let mut source = SliceSource::new(bytes);
    let value = T::decode(&mut source)?;
    match source.remaining() {
        0 => Ok(value),
        got => Err(XdrError::Trailing { got }),
    }
}

#[cfg(test)]
mod tests;
