//! KeyFileExt and KeyFile: the server's keys as written by OpenAFS's `asetkey`.
//!
//! All integers are 32 bits, big-endian and unaligned.
//!
//! ```text
//! KeyFileExt: number of keys, then for each key
//!     length of the key's description (16, or more in later versions, this field included),
//!     type, version, subtype, [more],
//!     length of the key, the key
//! KeyFile:    number of keys (at most 8), then for each key
//!     version, 8 bytes of DES key
//! ```
//!
//! A KeyFile of OpenAFS before 1.8 always has space for 8 keys; unused space is ignored.

use std::collections::BTreeMap;
use std::fmt;

use zeroize::Zeroizing;

/// Secret bytes: wiped when dropped, never printed, compared in constant time.
#[derive(Clone)]
pub struct Secret(Zeroizing<Vec<u8>>);

impl Secret {
    /// Creates a secret from these bytes.
    pub fn new(bytes: &[u8]) -> Secret {
        Secret(Zeroizing::new(bytes.to_vec()))
    }

    /// Returns the bytes.
    pub fn expose(&self) -> &[u8] {
        &self.0
    }
}

impl PartialEq for Secret {
    fn eq(&self, other: &Secret) -> bool {
        let difference = self.0.iter().zip(other.0.iter()).fold(0, |all, (a, b)| all | (a ^ b));
        self.0.len() == other.0.len() && std::hint::black_box(difference) == 0
    }
}

impl Eq for Secret {}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secret({} bytes)", self.0.len())
    }
}

/// An error in a key file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("damaged at byte {offset}: {what}")]
pub struct KeyFileError {
    /// Offset in bytes from the start of the file.
    pub offset: usize,
    /// What is wrong.
    pub what: &'static str,
}

/// The purpose of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum KeyType {
    /// 0: rxkad with DES. OpenAFS keeps these keys in KeyFile.
    Rxkad,
    /// 1: rxgk.
    Rxgk,
    /// 2: rxkad with Kerberos 5; the subtype is the Kerberos encryption type.
    RxkadKerberos5,
    /// An unknown type, from a later version.
    Other(u32),
}

impl KeyType {
    /// Returns the type with this number.
    pub fn from_number(number: u32) -> KeyType {
        match number {
            0 => KeyType::Rxkad,
            1 => KeyType::Rxgk,
            2 => KeyType::RxkadKerberos5,
            other => KeyType::Other(other),
        }
    }

    /// Returns the number of the type.
    pub fn number(self) -> u32 {
        match self {
            KeyType::Rxkad => 0,
            KeyType::Rxgk => 1,
            KeyType::RxkadKerberos5 => 2,
            KeyType::Other(number) => number,
        }
    }
}

/// A key of KeyFileExt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TypedKey {
    /// Purpose of the key.
    pub key_type: KeyType,
    /// Key version number.
    pub kvno: u32,
    /// Kind within the type; the Kerberos encryption type for [`KeyType::RxkadKerberos5`].
    pub subtype: u32,
    /// Key bytes.
    pub secret: Secret,
}

/// A key of KeyFile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DesKey {
    /// Key version number.
    pub kvno: u32,
    /// The eight bytes of the key.
    pub secret: Secret,
}

/// Size in bytes of a key's description in KeyFileExt, as far as it is known.
const DESCRIPTION_BYTES: usize = 16;
/// Maximum number of keys in a KeyFile.
const DES_KEYS_MAX: usize = 8;
/// Size of a key in a KeyFile, including its version.
const DES_KEY_BYTES: usize = 12;

/// Parses a KeyFileExt. If keys have the same type, version and subtype, the last one is used. Unknown types
/// are kept, but not the fields that later versions add after the subtype.
pub fn parse_extended(bytes: &[u8]) -> Result<Vec<TypedKey>, KeyFileError> {
    let mut reader = Reader { bytes, offset: 0 };
    let count = reader.word("number of keys is cut off")?;
    let mut keys = BTreeMap::new();
    for _ in 0..count {
        let key = typed_key(&mut reader)?;
        keys.insert((key.key_type.number(), key.kvno, key.subtype), key);
    }
    if reader.offset != bytes.len() {
        return Err(reader.error("more follows the last key"));
    }
    Ok(keys.into_values().collect())
}

/// Writes a KeyFileExt, with the keys in the order of `asetkey`.
pub fn write_extended(keys: &[TypedKey]) -> Zeroizing<Vec<u8>> {
    let mut sorted: Vec<_> = keys.iter().collect();
    sorted.sort_by_key(|key| (key.key_type.number(), key.kvno, key.subtype));
    let mut out = Zeroizing::new((keys.len() as u32).to_be_bytes().to_vec());
    for key in sorted {
        let secret = key.secret.expose();
        let fields =
            [DESCRIPTION_BYTES as u32, key.key_type.number(), key.kvno, key.subtype, secret.len() as u32];
        for field in fields {
            out.extend_from_slice(&field.to_be_bytes());
        }
        out.extend_from_slice(secret);
    }
    out
}

/// Parses a KeyFile.
pub fn parse_des(bytes: &[u8]) -> Result<Vec<DesKey>, KeyFileError> {
    let mut reader = Reader { bytes, offset: 0 };
    let count = reader.word("number of keys is cut off")? as usize;
    if count > DES_KEYS_MAX {
        return Err(KeyFileError { offset: 0, what: "more than 8 keys" });
    }
    let used = 4 + count * DES_KEY_BYTES;
    if bytes.len() > used && bytes.len() != 4 + DES_KEYS_MAX * DES_KEY_BYTES {
        return Err(KeyFileError { offset: used, what: "more follows the last key" });
    }
    (0..count).map(|_| des_key(&mut reader)).collect()
}

/// Writes a KeyFile. Returns `None` if there are more than 8 keys, or one is not 8 bytes long.
pub fn write_des(keys: &[DesKey]) -> Option<Zeroizing<Vec<u8>>> {
    if keys.len() > DES_KEYS_MAX || keys.iter().any(|key| key.secret.expose().len() != 8) {
        return None;
    }
    let mut sorted: Vec<_> = keys.iter().collect();
    sorted.sort_by_key(|key| key.kvno);
    let mut out = Zeroizing::new((keys.len() as u32).to_be_bytes().to_vec());
    for key in sorted {
        out.extend_from_slice(&key.kvno.to_be_bytes());
        out.extend_from_slice(key.secret.expose());
    }
    Some(out)
}

fn typed_key(reader: &mut Reader<'_>) -> Result<TypedKey, KeyFileError> {
    let start = reader.offset;
    let description = reader.word("key's description is cut off")? as usize;
    if description < DESCRIPTION_BYTES {
        let what = "key's description is shorter than 16 bytes";
        return Err(KeyFileError { offset: start, what });
    }
    let key_type = KeyType::from_number(reader.word("key's type is cut off")?);
    let kvno = reader.word("key's version is cut off")?;
    let subtype = reader.word("key's subtype is cut off")?;
    reader.take(description - DESCRIPTION_BYTES, "key's description is cut off")?;
    let length = reader.word("key's length is cut off")? as usize;
    let secret = Secret::new(reader.take(length, "key is cut off")?);
    Ok(TypedKey { key_type, kvno, subtype, secret })
}

fn des_key(reader: &mut Reader<'_>) -> Result<DesKey, KeyFileError> {
    let kvno = reader.word("key's version is cut off")?;
    Ok(DesKey { kvno, secret: Secret::new(reader.take(8, "key is cut off")?) })
}

/// Reads from a byte slice and keeps track of the offset.
struct Reader<'a> {
    bytes: &'a [u8],
    offset: usize,
}

impl<'a> Reader<'a> {
    fn error(&self, what: &'static str) -> KeyFileError {
        KeyFileError { offset: self.offset, what }
    }

    fn take(&mut self, length: usize, what: &'static str) -> Result<&'a [u8], KeyFileError> {
        let taken = self.bytes[self.offset..].get(..length).ok_or(self.error(what))?;
        self.offset += length;
        Ok(taken)
    }

    fn word(&mut self, what: &'static str) -> Result<u32, KeyFileError> {
        let bytes = self.take(4, what)?;
        Ok(u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }
}

#[cfg(test)]
mod tests;
