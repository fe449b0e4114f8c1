//! sysid: the file that stores the UUID under which a file server is registered.
//!
//! Layout: magic u32, version u32, the UUID (16 bytes in network order, as in RFC 4122), number of addresses
//! u32, and as many IPv4 addresses in network order. The other fields have the byte order of the machine that
//! wrote the file: little-endian here. Source: `WriteSysIdFile` of OpenAFS's viced, which calls
//! `afs_htonuuid` first.

use base::HostUuid;
use std::net::Ipv4Addr;
use thiserror::Error;

const MAGIC: u32 = 0x88aa_bbcc;
const VERSION: u32 = 1;
/// Maximum number of addresses that are read; servers have far fewer.
const ADDRESSES_MAX: usize = 1024;

/// A file server's identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SysId {
    /// UUID of the server.
    pub uuid: HostUuid,
    /// Addresses at the last registration.
    pub addresses: Vec<Ipv4Addr>,
}

/// Why a file is not a sysid file of this kind of machine.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SysIdError {
    /// The file ends too early.
    #[error("the file ends after {got} bytes; {needed} are needed")]
    Short {
        /// Size of the file in bytes.
        got: usize,
        /// Required size in bytes.
        needed: usize,
    },
    /// A field has an invalid value.
    #[error("{field} at offset {offset} is {got:#x} instead of {wanted}")]
    Field {
        /// Name of the field.
        field: &'static str,
        /// Offset of the field in bytes.
        offset: usize,
        /// Value of the field.
        got: u32,
        /// Expected value.
        wanted: &'static str,
    },
}

fn word(bytes: &[u8], offset: usize) -> Result<u32, SysIdError> {
    let short = SysIdError::Short { got: bytes.len(), needed: offset + 4 };
    let field = bytes.get(offset..offset + 4).ok_or(short)?;
    Ok(u32::from_le_bytes([field[0], field[1], field[2], field[3]]))
}

impl SysId {
    /// Parses the file.
    pub fn parse(bytes: &[u8]) -> Result<SysId, SysIdError> {
        let field = |field, offset, got, wanted| Err(SysIdError::Field { field, offset, got, wanted });
        match (word(bytes, 0)?, word(bytes, 4)?) {
            (MAGIC, VERSION) => {}
            (MAGIC, version) => return field("the version", 4, version, "1"),
            (magic, _) => return field("the magic number", 0, magic, "0x88aabbcc"),
        }
        let count = word(bytes, 24)?;
        if count as usize > ADDRESSES_MAX {
            return field("the number of addresses", 24, count, "at most 1024");
        }
        let needed = 28 + 4 * count as usize;
        if bytes.len() < needed {
            return Err(SysIdError::Short { got: bytes.len(), needed });
        }
        let mut uuid = [0; 16];
        uuid.copy_from_slice(&bytes[8..24]);
        let address = |quad: &[u8]| Ipv4Addr::new(quad[0], quad[1], quad[2], quad[3]);
        Ok(SysId {
            uuid: HostUuid(uuid),
            addresses: bytes[28..needed].chunks_exact(4).map(address).collect(),
        })
    }

    /// Returns the bytes of the file.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.extend_from_slice(&MAGIC.to_le_bytes());
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&self.uuid.0);
        out.extend_from_slice(&(self.addresses.len() as u32).to_le_bytes());
        self.addresses.iter().for_each(|address| out.extend_from_slice(&address.octets()));
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Written by an OpenAFS 1.8.9 file server on an x86-64 machine.
    const REAL: [u8; 32] = [
        0xcc, 0xbb, 0xaa, 0x88, 1, 0, 0, 0, 0x00, 0x79, 0x31, 0x3c, 0x87, 0xd9, 0x1b, 0x01, 0x8f, 0xe3, 0x09,
        0x00, 0x63, 0x0a, 0xaa, 0x77, 1, 0, 0, 0, 10, 99, 0, 9,
    ];

    #[test]
    fn a_real_file_is_read_and_written_back() {
        let sysid = SysId::parse(&REAL).unwrap();
        assert_eq!(sysid.uuid.to_string(), "0079313c-87d9-1b01-8fe3-0900630aaa77");
        assert_eq!(sysid.addresses, [Ipv4Addr::new(10, 99, 0, 9)]);
        assert_eq!(sysid.to_bytes(), REAL);
    }

    #[test]
    fn damage_is_named() {
        assert!(matches!(SysId::parse(&REAL[..20]), Err(SysIdError::Short { got: 20, .. })));
        let mut bad = REAL;
        bad[0] = 0;
        assert!(matches!(SysId::parse(&bad), Err(SysIdError::Field { offset: 0, .. })));
        let mut many = REAL;
        many[27] = 0xff;
        assert!(matches!(SysId::parse(&many), Err(SysIdError::Field { offset: 24, .. })));
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            let _ = SysId::parse(&bytes);
        }
    }
}
