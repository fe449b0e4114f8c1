//! A bounded codec for XDR (RFC 4506) as Rx services use it.
//!
//! What arrives is not trusted: every string, opaque and list is decoded with a bound, and memory
//! grows only as the bytes really arrive, whatever length the peer claimed. Two peculiarities of Rx
//! services are here as well: a C `char name[N]` travels as N words of one character each
//! ([`chars`]), and a linked list as a chain of "one more" flags ([`chain`]).

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
    /// Appends the value to `out`. The bounds of strings and lists are the caller's business.
    fn encode(&self, out: &mut Vec<u8>);
}

/// A value that can be had from its XDR form.
pub trait Decode: Sized {
    /// Takes one value from `source`, and not a byte more.
    fn decode<S: Source + ?Sized>(source: &mut S) -> Result<Self, XdrError>;
}

/// As long as most messages are, so that they grow in one piece.
const MESSAGE_BYTES: usize = 320;

/// The XDR form of `value`.
pub fn to_vec<T: Encode + ?Sized>(value: &T) -> Vec<u8> {
    let mut out = Vec::with_capacity(MESSAGE_BYTES);
    value.encode(&mut out);
    out
}

/// The value whose XDR form is the whole of `bytes`.
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
