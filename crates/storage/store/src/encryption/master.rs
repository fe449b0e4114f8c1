//! The key that wraps a partition's data keys.

use std::fmt;
use thiserror::Error;
use zeroize::Zeroizing;

/// Length of a master key in bytes.
pub const MASTER_KEY_BYTES: usize = 32;

/// The bytes are not a valid master key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error(
    "a master key is {MASTER_KEY_BYTES} bytes or 64 hexadecimal digits (`openssl rand -hex 32` makes one); these are {got} bytes"
)]
pub struct KeyError {
    /// Number of bytes given.
    pub got: usize,
}

/// The key that wraps a partition's data keys. Wiped when dropped, never printed.
#[derive(Clone)]
pub struct MasterKey(Zeroizing<[u8; MASTER_KEY_BYTES]>);

impl MasterKey {
    /// Parses 32 bytes, or 64 hexadecimal digits with optional white space around them.
    ///
    /// # Errors
    /// Describes the valid forms; never contains the input.
    pub fn parse(bytes: &[u8]) -> Result<MasterKey, KeyError> {
        let mut key = Zeroizing::new([0; MASTER_KEY_BYTES]);
        if bytes.len() == MASTER_KEY_BYTES {
            key.copy_from_slice(bytes);
            return Ok(MasterKey(key));
        }
        let refusal = KeyError { got: bytes.len() };
        let digits = bytes.trim_ascii();
        if digits.len() != 2 * MASTER_KEY_BYTES {
            return Err(refusal);
        }
        for (byte, digits) in key.iter_mut().zip(digits.chunks_exact(2)) {
            let digit = |digit: u8| char::from(digit).to_digit(16).ok_or(refusal);
            *byte = (digit(digits[0])? << 4 | digit(digits[1])?) as u8;
        }
        Ok(MasterKey(key))
    }

    pub(super) fn bytes(&self) -> &[u8; MASTER_KEY_BYTES] {
        &self.0
    }
}

impl fmt::Debug for MasterKey {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("MasterKey")
    }
}
