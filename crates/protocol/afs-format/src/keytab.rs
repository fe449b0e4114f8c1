//! Kerberos keytab files, such as rxkad.keytab.
//!
//! ```text
//! file:   5, version (1 or 2), records until the end
//! record: length (32 bits, signed), then that many bytes; a negative length is a hole of that size,
//!         length 0 ends the file
//! entry:  number of name components (16 bits; in version 1 the realm is included),
//!         realm, components (each: 16 bits length, bytes),
//!         name type (32 bits, not in version 1), time of writing (32 bits),
//!         key version modulo 256 (8 bits), encryption type (16 bits), key (16 bits length, bytes),
//!         [key version (32 bits)], [more]
//! ```
//!
//! Version 2 is big-endian. Version 1 has the byte order of the machine that wrote it, which is inferred from
//! the first record's length.

use base::UnixTime;
use zeroize::Zeroizing;

pub use crate::keyfile::{KeyFileError, Secret};

/// An entry of a keytab.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeytabEntry {
    /// Components of the principal's name.
    pub components: Vec<String>,
    /// Realm of the principal.
    pub realm: String,
    /// Type of the name; 1 is an ordinary principal.
    pub name_type: u32,
    /// Time at which the key was added to the file.
    pub written: UnixTime,
    /// Key version number.
    pub kvno: u32,
    /// Kerberos encryption type.
    pub enctype: i32,
    /// Key bytes.
    pub secret: Secret,
}

impl KeytabEntry {
    /// Returns the principal as text, `afs/cell@REALM`.
    pub fn principal(&self) -> String {
        format!("{}@{}", self.components.join("/"), self.realm)
    }
}

/// Parses a keytab of version 1 or 2.
pub fn parse(bytes: &[u8]) -> Result<Vec<KeytabEntry>, KeyFileError> {
    let format = match bytes {
        [5, 1, ..] => Format { version: 1, big_endian: version_1_is_big_endian(bytes) },
        [5, 2, ..] => Format { version: 2, big_endian: true },
        _ => return Err(KeyFileError { offset: 0, what: "not a keytab of version 1 or 2" }),
    };
    let mut reader = Reader { bytes, offset: 2, format };
    let mut entries = Vec::new();
    while reader.offset < bytes.len() {
        let start = reader.offset;
        match reader.number::<4>("record's length is cut off")? as i32 {
            0 => break,
            hole if hole < 0 => {
                reader.take(hole.unsigned_abs() as usize, "hole is cut off")?;
            }
            length => {
                let what = "record is cut off";
                let end = start + 4 + reader.take(length as usize, what)?.len();
                let mut record = Reader { bytes: &bytes[..end], offset: start + 4, format };
                entries.push(record.entry()?);
            }
        }
    }
    Ok(entries)
}

/// Writes a keytab of version 2. Returns `None` if a name, a key, or the number of components is 65,536 or
/// more, or the encryption type does not fit 16 bits.
pub fn write(entries: &[KeytabEntry]) -> Option<Zeroizing<Vec<u8>>> {
    let mut out = Zeroizing::new(vec![5, 2]);
    for entry in entries {
        let record = encode(entry)?;
        out.extend_from_slice(&i32::try_from(record.len()).ok()?.to_be_bytes());
        out.extend_from_slice(&record);
    }
    Some(out)
}

fn encode(entry: &KeytabEntry) -> Option<Zeroizing<Vec<u8>>> {
    let mut out = Zeroizing::new(u16::try_from(entry.components.len()).ok()?.to_be_bytes().to_vec());
    put(&mut out, entry.realm.as_bytes())?;
    for component in &entry.components {
        put(&mut out, component.as_bytes())?;
    }
    out.extend_from_slice(&entry.name_type.to_be_bytes());
    out.extend_from_slice(&entry.written.0.to_be_bytes());
    out.push(entry.kvno as u8);
    out.extend_from_slice(&i16::try_from(entry.enctype).ok()?.to_be_bytes());
    put(&mut out, entry.secret.expose())?;
    out.extend_from_slice(&entry.kvno.to_be_bytes());
    Some(out)
}

fn put(out: &mut Vec<u8>, bytes: &[u8]) -> Option<()> {
    out.extend_from_slice(&u16::try_from(bytes.len()).ok()?.to_be_bytes());
    out.extend_from_slice(bytes);
    Some(())
}

/// Returns whether the first record's length is plausible in big-endian order.
fn version_1_is_big_endian(bytes: &[u8]) -> bool {
    bytes.get(2..6).is_some_and(|length| {
        let length = u32::from_be_bytes([length[0], length[1], length[2], length[3]]);
        length as usize <= bytes.len() - 6
    })
}

#[derive(Clone, Copy)]
struct Format {
    version: u8,
    big_endian: bool,
}

/// Reads from a byte slice and keeps track of the offset.
struct Reader<'a> {
    bytes: &'a [u8],
    offset: usize,
    format: Format,
}

impl<'a> Reader<'a> {
    fn take(&mut self, length: usize, what: &'static str) -> Result<&'a [u8], KeyFileError> {
        let error = KeyFileError { offset: self.offset, what };
        let taken = self.bytes[self.offset..].get(..length).ok_or(error)?;
        self.offset += length;
        Ok(taken)
    }

    /// Reads an integer of `N` bytes, at most 4.
    fn number<const N: usize>(&mut self, what: &'static str) -> Result<u32, KeyFileError> {
        let bytes = self.take(N, what)?;
        let add = |value, byte: &u8| value << 8 | u32::from(*byte);
        Ok(if self.format.big_endian { bytes.iter().fold(0, add) } else { bytes.iter().rev().fold(0, add) })
    }

    fn data(&mut self, what: &'static str) -> Result<&'a [u8], KeyFileError> {
        let length = self.number::<2>(what)? as usize;
        self.take(length, what)
    }

    fn text(&mut self, what: &'static str) -> Result<String, KeyFileError> {
        let offset = self.offset;
        let bytes = self.data(what)?;
        let what = "name is not text";
        String::from_utf8(bytes.to_vec()).map_err(|_| KeyFileError { offset, what })
    }

    fn entry(&mut self) -> Result<KeytabEntry, KeyFileError> {
        let offset = self.offset;
        let mut count = self.number::<2>("number of name components is cut off")?;
        if self.format.version == 1 {
            let what = "no realm in the name";
            count = count.checked_sub(1).ok_or(KeyFileError { offset, what })?;
        }
        let realm = self.text("realm is cut off")?;
        let components = (0..count).map(|_| self.text("name is cut off")).collect::<Result<_, _>>()?;
        let name_type = match self.format.version {
            1 => NAME_TYPE_PRINCIPAL,
            _ => self.number::<4>("name type is cut off")?,
        };
        let written = UnixTime(self.number::<4>("time is cut off")?);
        let short_kvno = self.number::<1>("key's version is cut off")?;
        let enctype = i32::from(self.number::<2>("encryption type is cut off")? as u16 as i16);
        let secret = Secret::new(self.data("key is cut off")?);
        let kvno = self.long_kvno().unwrap_or(short_kvno);
        Ok(KeytabEntry { components, realm, name_type, written, kvno, enctype, secret })
    }

    /// Reads the 32-bit key version if the record has one. Zero also means that it is missing.
    fn long_kvno(&mut self) -> Option<u32> {
        self.number::<4>("").ok().filter(|kvno| *kvno != 0)
    }
}

const NAME_TYPE_PRINCIPAL: u32 = 1;

#[cfg(test)]
mod tests;
