//! Kerberos 4 tickets: DES in PCBC mode with the key as initialisation vector.
//!
//! The plaintext of a ticket is: flags (bit 0: integers are little-endian); name, instance and realm, each
//! terminated by a NUL; 4 bytes address; 8 bytes session key; 1 byte lifetime; 4 bytes start time; the
//! service's name and instance, each terminated by a NUL; zeros up to a multiple of 8.

use base::UnixTime;
use des::Des;
use des::cipher::KeyInit;
use zeroize::Zeroizing;

use super::ticket::Opened;
use super::times::LIFETIME_SECONDS_MAX;
use super::{NEVER, SessionKey, names};
use crate::SecurityError;
use crate::key::{Enctype, KeyLease, KeySource};
use crate::krb5::modes;

/// Length to which old issuers padded every shorter ticket.
const PADDED_BYTES: usize = 56;
/// Lifetime of a ticket that never ends.
const LIFETIME_NEVER: u8 = 0xff;
/// The longest finite lifetime: [`LIFETIME_SECONDS_MAX`].
const LIFETIME_30_DAYS: u8 = 0xbf;

/// Opens a ticket sealed with a version of the cell's DES key.
pub(super) fn open(kvno: u32, ticket: &[u8], keys: &dyn KeySource) -> Result<Opened, SecurityError> {
    let unknown = SecurityError::UnknownKey { kvno, enctype: Enctype::DesCbcCrc.number() };
    let (key, lease) = keys.leased(kvno, Enctype::DesCbcCrc).ok_or(unknown)?;
    let key = key.des_bytes();
    if !ticket.len().is_multiple_of(8) {
        return Err(SecurityError::BadTicket("ticket is not made of whole blocks"));
    }
    let mut plain = Zeroizing::new(ticket.to_vec());
    modes::pcbc_decrypt(&Des::new(&key.into()), &key, &mut plain);
    decode(&plain, lease)
}

/// Seals a ticket without realm for the service `afs`. A ticket with an end starts long in the past: its
/// lifetime is encoded in one byte, and only the end has to be exact.
pub(super) fn seal(key: [u8; 8], name: &str, session_key: &SessionKey, end: UnixTime) -> Vec<u8> {
    let (start, lifetime) = match end.0 {
        NEVER => (0, LIFETIME_NEVER),
        end => (end.saturating_sub(LIFETIME_SECONDS_MAX), LIFETIME_30_DAYS),
    };
    let mut plain = Zeroizing::new(vec![0]);
    plain.extend_from_slice(name.as_bytes());
    plain.extend_from_slice(&[0, 0, 0]);
    plain.extend_from_slice(&[0; 4]);
    plain.extend_from_slice(&session_key.0);
    plain.push(lifetime);
    plain.extend_from_slice(&start.to_be_bytes());
    plain.extend_from_slice(b"afs\0\0");
    let whole = plain.len().next_multiple_of(8);
    plain.resize(whole, 0);
    let mut sealed = plain.to_vec();
    modes::pcbc_encrypt(&Des::new(&key.into()), &key, &mut sealed);
    sealed
}

fn decode(plain: &[u8], lease: KeyLease) -> Result<Opened, SecurityError> {
    let mut fields = Fields { rest: plain };
    let little_endian = fields.take::<1>()?[0] & 1 != 0;
    let name = fields.string(1)?;
    let instance = fields.string(0)?;
    let realm = fields.string(0)?;
    fields.take::<4>()?;
    let session_key = SessionKey(fields.take()?);
    let [lifetime] = fields.take()?;
    let start = fields.take()?;
    let start = if little_endian { u32::from_le_bytes(start) } else { u32::from_be_bytes(start) };
    fields.string(1)?;
    fields.string(0)?;
    let read = plain.len() - fields.rest.len();
    if read.next_multiple_of(8) != plain.len() && plain.len() != PADDED_BYTES {
        return Err(SecurityError::BadTicket("ticket is too long for what it holds"));
    }
    Ok(Opened { name, instance, realm, session_key, start, end: end(start, lifetime), lease })
}

/// Reads the fields of a ticket from the front.
struct Fields<'a> {
    rest: &'a [u8],
}

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], SecurityError> {
        let (field, rest) =
            self.rest.split_first_chunk().ok_or(SecurityError::BadTicket("ticket is cut off"))?;
        self.rest = rest;
        Ok(*field)
    }

    /// Reads a string of at least `bytes_min` bytes that is terminated by a NUL.
    fn string(&mut self, bytes_min: usize) -> Result<String, SecurityError> {
        let end = self.rest.iter().position(|byte| *byte == 0);
        let end = end.ok_or(SecurityError::BadTicket("name does not end"))?;
        if end < bytes_min {
            return Err(SecurityError::BadTicket("name is empty"));
        }
        let string = names::text(&self.rest[..end])?;
        self.rest = &self.rest[end + 1..];
        Ok(string)
    }
}

/// Returns the end of a ticket from its lifetime byte: units of five minutes up to 0x7f, then a table.
fn end(start: u32, lifetime: u8) -> u32 {
    let seconds = match lifetime {
        LIFETIME_NEVER => return NEVER,
        0..0x80 => u32::from(lifetime) * 300,
        0x80..=0xbf => LIFETIMES[usize::from(lifetime) - 0x80],
        _ => LIFETIME_SECONDS_MAX,
    };
    start.saturating_add(seconds)
}

/// Lifetimes in seconds from 10 hours 40 minutes to 30 days, each about 6.9 percent longer than the previous
/// one.
#[rustfmt::skip]
const LIFETIMES: [u32; 64] = [
    38_400, 41_055, 43_894, 46_929, 50_174, 53_643, 57_352, 61_318,
    65_558, 70_091, 74_937, 80_119, 85_658, 91_581, 97_914, 104_684,
    111_922, 119_661, 127_935, 136_781, 146_239, 156_350, 167_161, 178_720,
    191_077, 204_289, 218_415, 233_517, 249_664, 266_926, 285_383, 305_116,
    326_213, 348_769, 372_885, 398_668, 426_234, 455_705, 487_215, 520_904,
    556_921, 595_430, 636_601, 680_618, 727_680, 777_995, 831_789, 889_303,
    950_794, 1_016_537, 1_086_825, 1_161_973, 1_242_318, 1_328_218, 1_420_057, 1_518_247,
    1_623_226, 1_735_464, 1_855_462, 1_983_758, 2_120_925, 2_267_576, 2_424_367, 2_592_000,
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::{KeySet, ServiceKey};

    fn keys() -> KeySet {
        let mut keys = KeySet::new();
        keys.insert(7, ServiceKey::new(1, &[0x13, 0x34, 0x57, 0x79, 0x9b, 0xbc, 0xdf, 0xf1]).unwrap());
        keys
    }

    fn sealed(plain: &[u8]) -> Vec<u8> {
        let key = [0x13, 0x34, 0x57, 0x79, 0x9b, 0xbc, 0xdf, 0xf1];
        let mut data = plain.to_vec();
        data.resize(data.len().next_multiple_of(8), 0);
        modes::pcbc_encrypt(&Des::new(&key.into()), &key, &mut data);
        data
    }

    #[test]
    fn tickets_of_either_byte_order_open() {
        for (flags, start) in [(0u8, 0x6553_f100u32.to_be_bytes()), (1, 0x6553_f100u32.to_le_bytes())] {
            let mut plain = vec![flags];
            plain.extend_from_slice(b"alice\0admin\0TEST\0\x0a\x63\0\x01SESSKEY!\x82");
            plain.extend_from_slice(&start);
            plain.extend_from_slice(b"afs\0test\0");
            let opened = open(7, &sealed(&plain), &keys()).unwrap();
            assert_eq!((opened.name.as_str(), opened.instance.as_str()), ("alice", "admin"));
            assert_eq!((opened.realm.as_str(), &opened.session_key.0), ("TEST", b"SESSKEY!"));
            assert_eq!((opened.start, opened.end), (0x6553_f100, 0x6553_f100 + 43_894));
        }
    }

    #[test]
    fn own_tickets_open_and_end_as_asked() {
        let session = SessionKey(*b"SESSKEY!");
        let key = keys().key(7, Enctype::DesCbcCrc).unwrap().des_bytes();
        for (end, start) in [(NEVER, 0), (1_700_003_600, 1_700_003_600 - LIFETIME_SECONDS_MAX)] {
            let opened = open(7, &seal(key, "afs", &session, UnixTime(end)), &keys()).unwrap();
            assert_eq!((opened.name.as_str(), opened.realm.as_str()), ("afs", ""));
            assert_eq!((opened.start, opened.end), (start, end));
        }
    }

    #[test]
    fn lifetimes() {
        for (lifetime, seconds) in [(0, 0), (1, 300), (0x7f, 38_100), (0x80, 38_400), (0xbf, 2_592_000)] {
            assert_eq!(end(1000, lifetime), 1000 + seconds);
        }
        assert_eq!(end(1000, 0xc0), 1000 + LIFETIME_SECONDS_MAX);
        assert_eq!(end(1000, 0xff), NEVER);
    }

    #[test]
    fn damage_is_refused() {
        let plain = b"\0alice\0\0\0\x0a\x63\0\x01SESSKEY!\x82\x65\x53\xf1\0afs\0\0";
        assert!(open(7, &sealed(plain), &keys()).is_ok());
        assert!(open(8, &sealed(plain), &keys()).is_err());
        assert!(open(7, &sealed(plain)[1..], &keys()).is_err());
        for length in 0..plain.len() {
            assert!(decode(&plain[..length], KeyLease::default()).is_err(), "{length}");
        }
        let long = [&plain[..], &[0; 40]].concat();
        assert!(open(7, &sealed(&long), &keys()).is_err());
    }
}
