//! Strings and opaque bytes.

use std::borrow::Cow;
use std::fmt;

/// A string as used by AFS: bytes in no particular character set.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct XdrString(pub Vec<u8>);

impl XdrString {
    /// Returns the bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns the text, if it is UTF-8.
    pub fn as_str(&self) -> Option<&str> {
        std::str::from_utf8(&self.0).ok()
    }

    /// Returns the text, with replacement characters for invalid UTF-8.
    pub fn to_text(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.0)
    }
}

impl fmt::Debug for XdrString {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.0.escape_ascii())
    }
}

impl fmt::Display for XdrString {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.to_text().fmt(f)
    }
}

impl From<&str> for XdrString {
    fn from(text: &str) -> XdrString {
        XdrString(text.as_bytes().to_vec())
    }
}

impl From<String> for XdrString {
    fn from(text: String) -> XdrString {
        XdrString(text.into_bytes())
    }
}

impl From<&[u8]> for XdrString {
    fn from(bytes: &[u8]) -> XdrString {
        XdrString(bytes.to_vec())
    }
}

impl From<Vec<u8>> for XdrString {
    fn from(bytes: Vec<u8>) -> XdrString {
        XdrString(bytes)
    }
}

impl PartialEq<str> for XdrString {
    fn eq(&self, text: &str) -> bool {
        self.0 == text.as_bytes()
    }
}

impl PartialEq<&str> for XdrString {
    fn eq(&self, text: &&str) -> bool {
        self.0 == text.as_bytes()
    }
}

/// Counted bytes, padded to whole words: XDR's `opaque<>` and `string<>`.
pub mod opaque {
    use crate::{Decode, Encode, Source, XdrError};

    /// Number of bytes by which the buffer grows beyond those that have arrived.
    const STEP_BYTES: usize = 4096;

    /// Appends the number of `bytes`, and the bytes.
    pub fn encode(bytes: &[u8], out: &mut Vec<u8>) {
        (bytes.len() as u32).encode(out);
        super::fixed::encode(bytes, out);
    }

    /// Decodes at most `most` bytes.
    pub fn decode<S: Source + ?Sized>(source: &mut S, most: usize) -> Result<Vec<u8>, XdrError> {
        let got = u32::decode(source)? as usize;
        if got > most {
            return Err(XdrError::TooLong { got, most });
        }
        let mut bytes = Vec::new();
        while bytes.len() < got {
            let start = bytes.len();
            bytes.resize(got.min(start + STEP_BYTES), 0);
            source.read_exact(&mut bytes[start..])?;
        }
        super::fixed::skip_padding(source, got)?;
        Ok(bytes)
    }
}

/// Bytes of a length that the interface fixes, padded to whole words: XDR's `opaque[N]`.
pub mod fixed {
    use crate::{Source, XdrError};

    /// Appends `bytes` and their padding.
    pub fn encode(bytes: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(bytes);
        out.extend_from_slice(&[0; 3][..padding(bytes.len())]);
    }

    /// Decodes `N` bytes and skips their padding.
    pub fn decode<const N: usize, S: Source + ?Sized>(source: &mut S) -> Result<[u8; N], XdrError> {
        let mut bytes = [0; N];
        source.read_exact(&mut bytes)?;
        skip_padding(source, N)?;
        Ok(bytes)
    }

    /// Skips the padding after `length` bytes, whatever its value.
    pub(super) fn skip_padding<S: Source + ?Sized>(source: &mut S, length: usize) -> Result<(), XdrError> {
        source.read_exact(&mut [0; 3][..padding(length)])
    }

    fn padding(length: usize) -> usize {
        length.wrapping_neg() & 3
    }
}

/// Bytes in a C array of `char`: one word each.
pub mod octets {
    use crate::{Decode, Encode, Source, XdrError};

    /// Appends one word per byte.
    pub fn encode(bytes: &[u8], out: &mut Vec<u8>) {
        for &byte in bytes {
            u32::from(byte).encode(out);
        }
    }

    /// Decodes `N` words and keeps their low bytes (a peer with signed characters extends the sign).
    pub fn decode<const N: usize, S: Source + ?Sized>(source: &mut S) -> Result<[u8; N], XdrError> {
        let mut bytes = [0; N];
        for byte in &mut bytes {
            *byte = u32::decode(source)? as u8;
        }
        Ok(bytes)
    }
}

/// A C `char name[N]`: N words of one character each; everything after the first NUL is ignored.
pub mod chars {
    use super::XdrString;
    use crate::{Decode, Encode, Source, XdrError};

    /// Appends `length` words; the last one is always NUL, so a string that is too long is truncated.
    pub fn encode(text: &XdrString, out: &mut Vec<u8>, length: usize) {
        let kept = &text.0[..text.0.len().min(length.saturating_sub(1))];
        for &byte in kept {
            u32::from(byte).encode(out);
        }
        out.resize(out.len() + 4 * (length - kept.len()), 0);
    }

    /// Decodes `length` words (the interface's length, not the peer's). Returns the characters before the
    /// first NUL; if there is none, all but the last, as if the last were NUL.
    pub fn decode<S: Source + ?Sized>(source: &mut S, length: usize) -> Result<XdrString, XdrError> {
        let mut bytes = Vec::with_capacity(length);
        for _ in 0..length {
            bytes.push(u32::decode(source)? as u8);
        }
        bytes.truncate(bytes.iter().position(|&byte| byte == 0).unwrap_or(length.saturating_sub(1)));
        Ok(XdrString(bytes))
    }
}
