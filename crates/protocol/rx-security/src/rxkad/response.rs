//! The bodies of challenge and response packets, version 2. All integers are big-endian.
//!
//! ```text
//! challenge: version=2, nonce, least level, spare=0
//! response:  version=2, spare=0,
//!            sealed { epoch, connection id, checksum, security index,
//!                     call number of channels 0 to 3, nonce + 1, level },
//!            kvno, ticket length, ticket
//! ```
//!
//! The sealed part is encrypted in PCBC mode under the session key, with the key as initialisation vector.
//! The checksum covers the whole response except the ticket, in plaintext and with the checksum set to 0.

use subtle::ConstantTimeEq;

use super::packet::endpoint;
use super::{SessionKey, TICKET_BYTES_MAX, TICKET_BYTES_MIN};
use crate::fcrypt::Fcrypt;
use crate::{ConnectionFacts, SecurityError};

const VERSION: u32 = 2;
const CHALLENGE_BYTES: usize = 16;
/// Length of a response before the ticket, in bytes.
const RESPONSE_BYTES: usize = 56;
/// Offsets of the sealed part and of its fields.
const SEALED: std::ops::Range<usize> = 8..48;
const ENDPOINT: std::ops::Range<usize> = 8..24;
const CHECKSUM: std::ops::Range<usize> = 16..20;
const CALL_NUMBERS: usize = 24;
const NONCE: usize = 40;
const LEVEL: usize = 44;
const KVNO: usize = 48;
const TICKET_LENGTH: usize = 52;

/// A challenge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Challenge {
    pub(super) nonce: u32,
    /// Minimum level that the server accepts.
    pub(super) level: u32,
}

impl Challenge {
    pub(super) fn encode(self) -> Vec<u8> {
        [VERSION, self.nonce, self.level, 0].iter().flat_map(|word| word.to_be_bytes()).collect()
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Challenge, SecurityError> {
        check_length("challenge", bytes, CHALLENGE_BYTES)?;
        if word(bytes, 0) != VERSION {
            return Err(SecurityError::Inconsistent("challenge is not of version 2"));
        }
        Ok(Challenge { nonce: word(bytes, 4), level: word(bytes, 8) })
    }
}

/// The contents of the sealed part of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Claims {
    pub(super) call_numbers: [u32; 4],
    /// The challenge's nonce plus one.
    pub(super) nonce: u32,
    pub(super) level: u32,
}

/// Encodes a response.
pub(super) fn encode(
    connection: ConnectionFacts,
    claims: Claims,
    session_key: &SessionKey,
    kvno: u32,
    ticket: &[u8],
) -> Vec<u8> {
    let mut bytes = vec![0; RESPONSE_BYTES];
    put(&mut bytes, 0, VERSION);
    bytes[ENDPOINT].copy_from_slice(&endpoint(connection, 0));
    for (channel, number) in claims.call_numbers.into_iter().enumerate() {
        put(&mut bytes, CALL_NUMBERS + 4 * channel, number);
    }
    put(&mut bytes, NONCE, claims.nonce);
    put(&mut bytes, LEVEL, claims.level);
    put(&mut bytes, KVNO, kvno);
    put(&mut bytes, TICKET_LENGTH, ticket.len() as u32);
    let checksum = checksum(&bytes);
    bytes[CHECKSUM].copy_from_slice(&checksum.to_be_bytes());
    Fcrypt::new(session_key.0).pcbc_encrypt(iv(session_key), &mut bytes[SEALED]);
    bytes.extend_from_slice(ticket);
    bytes
}

/// A response whose sealed part is not decrypted yet.
#[derive(Debug)]
pub(super) struct Response<'a> {
    front: [u8; RESPONSE_BYTES],
    pub(super) kvno: u32,
    pub(super) ticket: &'a [u8],
}

impl<'a> Response<'a> {
    /// Decodes the plaintext parts. Bytes after the ticket are ignored.
    pub(super) fn decode(bytes: &'a [u8]) -> Result<Response<'a>, SecurityError> {
        check_length("response", bytes, RESPONSE_BYTES)?;
        let mut front = [0; RESPONSE_BYTES];
        front.copy_from_slice(&bytes[..RESPONSE_BYTES]);
        if word(&front, 0) != VERSION {
            return Err(SecurityError::Inconsistent("response is not of version 2"));
        }
        let length = word(&front, TICKET_LENGTH) as usize;
        if !(TICKET_BYTES_MIN..=TICKET_BYTES_MAX).contains(&length) {
            let (min, max) = (TICKET_BYTES_MIN, TICKET_BYTES_MAX);
            return Err(SecurityError::TicketLength { min, max, got: length });
        }
        check_length("response with ticket", bytes, RESPONSE_BYTES + length)?;
        let ticket = &bytes[RESPONSE_BYTES..RESPONSE_BYTES + length];
        Ok(Response { front, kvno: word(&front, KVNO), ticket })
    }

    /// Decrypts the sealed part, which must have been made for this connection.
    pub(super) fn open(
        mut self,
        connection: ConnectionFacts,
        session_key: &SessionKey,
    ) -> Result<Claims, SecurityError> {
        Fcrypt::new(session_key.0).pcbc_decrypt(iv(session_key), &mut self.front[SEALED]);
        let claimed = self.front;
        self.front[CHECKSUM].fill(0);
        let expected = checksum(&self.front).to_be_bytes();
        if !bool::from(expected.ct_eq(&claimed[CHECKSUM])) {
            return Err(SecurityError::SealedInconsistent("response's checksum is wrong"));
        }
        if !bool::from(endpoint(connection, 0).ct_eq(&self.front[ENDPOINT])) {
            return Err(SecurityError::SealedInconsistent("response is for another connection"));
        }
        self.claims()
    }

    fn claims(&self) -> Result<Claims, SecurityError> {
        let call_numbers = std::array::from_fn(|channel| word(&self.front, CALL_NUMBERS + 4 * channel));
        if call_numbers.iter().any(|number| *number > i32::MAX as u32) {
            return Err(SecurityError::SealedInconsistent("call number is negative"));
        }
        Ok(Claims { call_numbers, nonce: word(&self.front, NONCE), level: word(&self.front, LEVEL) })
    }
}

/// Computes the polynomial hash that responses carry.
fn checksum(bytes: &[u8]) -> u32 {
    bytes
        .iter()
        .fold(1_000_003, |hash: u32, byte| hash.wrapping_mul(0x1020_4081).wrapping_add(u32::from(*byte)))
}

fn iv(session_key: &SessionKey) -> u64 {
    u64::from_be_bytes(session_key.0)
}

fn check_length(what: &'static str, bytes: &[u8], expected: usize) -> Result<(), SecurityError> {
    let got = bytes.len();
    if got < expected { Err(SecurityError::PacketShort { what, expected, got }) } else { Ok(()) }
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn put(bytes: &mut [u8], at: usize, word: u32) {
    bytes[at..at + 4].copy_from_slice(&word.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONNECTION: ConnectionFacts =
        ConnectionFacts { epoch: 0x8123_4567, connection_id: 0x89ab_cdec, service_id: 1, security_index: 2 };
    const CLAIMS: Claims = Claims { call_numbers: [1, 2, 3, 4], nonce: 77, level: 2 };

    fn key() -> SessionKey {
        SessionKey(*b"\x12\x34\x56\x78\x9a\xbc\xde\xf0")
    }

    /// Expected value computed from the definition by an independent program.
    #[test]
    fn checksum_vector() {
        assert_eq!(checksum(&(0..56).collect::<Vec<u8>>()), 0x8332_4047);
    }

    #[test]
    fn responses_go_both_ways() {
        let bytes = encode(CONNECTION, CLAIMS, &key(), 213, &[9; 40]);
        let response = Response::decode(&bytes).unwrap();
        assert_eq!((response.kvno, response.ticket), (213, &[9; 40][..]));
        assert_eq!(response.open(CONNECTION, &key()), Ok(CLAIMS));
    }

    #[test]
    fn every_damaged_byte_is_noticed() {
        let bytes = encode(CONNECTION, CLAIMS, &key(), 213, &[9; 40]);
        for at in 0..RESPONSE_BYTES {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x41;
            let opened = Response::decode(&damaged).and_then(|it| it.open(CONNECTION, &key()));
            assert!(opened.is_err(), "byte {at}");
        }
        for length in 0..bytes.len() {
            assert!(Response::decode(&bytes[..length]).is_err());
        }
    }

    #[test]
    fn other_connections_are_refused() {
        let bytes = encode(CONNECTION, CLAIMS, &key(), 213, &[9; 40]);
        for other in [
            ConnectionFacts { epoch: 1, ..CONNECTION },
            ConnectionFacts { connection_id: 8, ..CONNECTION },
            ConnectionFacts { security_index: 3, ..CONNECTION },
        ] {
            assert!(Response::decode(&bytes).unwrap().open(other, &key()).is_err());
        }
    }

    #[test]
    fn challenges_go_both_ways() {
        let challenge = Challenge { nonce: 5, level: 1 };
        assert_eq!(Challenge::decode(&challenge.encode()), Ok(challenge));
        assert!(Challenge::decode(&challenge.encode()[..15]).is_err());
        assert!(Challenge::decode(&[0; 16]).is_err());
    }
}
