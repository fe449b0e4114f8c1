//! Protection of data packets at rxkad's three levels.
//!
//! Every packet's Rx header carries 16 bits of an encrypted block that combines call number, channel and
//! sequence number with a block that depends on the connection. At the levels above "clear" the body starts
//! with a sealed word: 16 bits that combine sequence and call number above 16 bits of the payload's length.
//! "auth" encrypts the body's first 8 bytes. "crypt" adds 4 zero bytes after the word, pads the body to a
//! multiple of 8 and encrypts all of it.

use base::SecurityLevel;
use bytes::{Buf, Bytes, BytesMut};
use zeroize::ZeroizeOnDrop;

use super::SessionKey;
use crate::fcrypt::{BLOCK_BYTES, Fcrypt, load};
use crate::{ConnectionFacts, Overhead, PacketFacts, PacketProtection, Protected, SecurityError};

/// Length of the sealed word in bytes.
const WORD_BYTES: usize = 4;
/// Bytes before the payload at level "crypt": the sealed word and zeros.
const CRYPT_HEADER_BYTES: usize = 8;
/// Number of headers whose checksums are computed together.
const BLOCKS: usize = 16;
/// The longest payload that a sealed length can express.
const PAYLOAD_BYTES_MAX: usize = 0xffff;

/// One connection's protection, the same at both ends.
#[derive(Clone, ZeroizeOnDrop)]
pub(super) struct RxkadProtection {
    cipher: Fcrypt,
    /// The session key as a block, used as the initialisation vector of bodies.
    iv: u64,
    /// Block that is combined with a packet's properties for the checksum.
    header_iv: u64,
    #[zeroize(skip)]
    level: SecurityLevel,
}

impl RxkadProtection {
    pub(super) fn new(
        connection: ConnectionFacts,
        session_key: &SessionKey,
        level: SecurityLevel,
    ) -> RxkadProtection {
        let cipher = Fcrypt::new(session_key.0);
        let iv = u64::from_be_bytes(session_key.0);
        let mut endpoint = endpoint(connection, 0);
        cipher.pcbc_encrypt(iv, &mut endpoint);
        let header_iv = load(&endpoint[BLOCK_BYTES..]);
        RxkadProtection { cipher, iv, header_iv, level }
    }

    /// Returns the checksum of a packet's header.
    fn checksum(&self, packet: PacketFacts) -> u16 {
        checksum_of(self.cipher.encrypt_block(self.header_block(packet)))
    }

    /// Returns the plaintext block whose encryption yields a packet's checksum.
    fn header_block(&self, packet: PacketFacts) -> u64 {
        let place = u32::from(packet.channel & 3) << 30 | packet.sequence & 0x3fff_ffff;
        (u64::from(packet.call_number) << 32 | u64::from(place)) ^ self.header_iv
    }

    fn protect_auth(&self, word: u32, payload: &[Bytes]) -> Vec<Bytes> {
        let mut pieces = Vec::with_capacity(payload.len() + 1);
        let mut block = [0; BLOCK_BYTES];
        block[..WORD_BYTES].copy_from_slice(&word.to_be_bytes());
        let mut filled = WORD_BYTES;
        pieces.push(Bytes::new());
        for piece in payload {
            let take = piece.len().min(BLOCK_BYTES - filled);
            block[filled..filled + take].copy_from_slice(&piece[..take]);
            filled += take;
            if take < piece.len() {
                pieces.push(piece.slice(take..));
            }
        }
        let sealed = self.cipher.encrypt_block(u64::from_be_bytes(block));
        pieces[0] = Bytes::copy_from_slice(&sealed.to_be_bytes());
        pieces
    }

    /// Builds a body at level "crypt" before encryption.
    fn crypt_body(word: u32, payload: &[Bytes]) -> BytesMut {
        let length = CRYPT_HEADER_BYTES + payload_bytes(payload);
        let whole = length.next_multiple_of(BLOCK_BYTES);
        let mut body = BytesMut::with_capacity(whole);
        body.extend_from_slice(&word.to_be_bytes());
        body.extend_from_slice(&[0; CRYPT_HEADER_BYTES - WORD_BYTES]);
        for piece in payload {
            body.extend_from_slice(piece);
        }
        body.resize(whole, 0);
        body
    }

    /// Builds the bodies at level "crypt".
    fn protect_crypt(&self, packets: &[(PacketFacts, &[Bytes])]) -> Result<Vec<Protected>, SecurityError> {
        let mut bodies = packets
            .iter()
            .map(|(packet, payload)| Ok(Self::crypt_body(sealed_word(*packet, payload)?, payload)))
            .collect::<Result<Vec<_>, SecurityError>>()?;
        self.cipher.pcbc_encrypt_all(self.iv, &mut bodies);
        let sealed = |((packet, _), body): (&(PacketFacts, _), BytesMut)| Protected {
            checksum: self.checksum(*packet),
            pieces: vec![body.freeze()],
        };
        Ok(packets.iter().zip(bodies).map(sealed).collect())
    }

    /// Decrypts a body: in place if its buffer has no other owner, otherwise in a copy.
    fn open(&self, body: Bytes) -> BytesMut {
        let mut body = body.try_into_mut().unwrap_or_else(|shared| BytesMut::from(&shared[..]));
        if self.level == SecurityLevel::Encrypted {
            self.cipher.pcbc_decrypt(self.iv, &mut body);
        } else if let Some(first) = body.first_chunk_mut() {
            *first = self.cipher.decrypt_block(u64::from_be_bytes(*first)).to_be_bytes();
        }
        body
    }

    /// Checks the length of a body before decryption.
    fn check_length(&self, length: usize) -> Result<(), SecurityError> {
        if length < BLOCK_BYTES {
            let what = "sealed packet";
            return Err(SecurityError::PacketShort { what, expected: BLOCK_BYTES, got: length });
        }
        if self.level == SecurityLevel::Encrypted && !length.is_multiple_of(BLOCK_BYTES) {
            return Err(SecurityError::SealedInconsistent("packet is not made of whole blocks"));
        }
        Ok(())
    }
}

impl PacketProtection for RxkadProtection {
    fn overhead(&self) -> Overhead {
        match self.level {
            SecurityLevel::Clear => Overhead::NONE,
            SecurityLevel::Authenticated => Overhead { header_bytes: WORD_BYTES, block_bytes: 1 },
            SecurityLevel::Encrypted => {
                Overhead { header_bytes: CRYPT_HEADER_BYTES, block_bytes: BLOCK_BYTES }
            }
        }
    }

    fn protect(&mut self, packet: PacketFacts, payload: &[Bytes]) -> Result<Protected, SecurityError> {
        let word = sealed_word(packet, payload)?;
        let pieces = match self.level {
            SecurityLevel::Clear => payload.to_vec(),
            SecurityLevel::Authenticated => self.protect_auth(word, payload),
            SecurityLevel::Encrypted => {
                let mut body = Self::crypt_body(word, payload);
                self.cipher.pcbc_encrypt(self.iv, &mut body);
                vec![body.freeze()]
            }
        };
        Ok(Protected { checksum: self.checksum(packet), pieces })
    }

    fn protect_all(&mut self, packets: &[(PacketFacts, &[Bytes])]) -> Result<Vec<Protected>, SecurityError> {
        if self.level == SecurityLevel::Encrypted {
            return self.protect_crypt(packets);
        }
        packets.iter().map(|(packet, payload)| self.protect(*packet, payload)).collect()
    }

    fn checksums(&mut self, first: PacketFacts, checksums: &mut [u16]) {
        let mut blocks = [0; BLOCKS];
        let mut sequence = first.sequence;
        for checksums in checksums.chunks_mut(BLOCKS) {
            let blocks = &mut blocks[..checksums.len()];
            for block in &mut *blocks {
                *block = self.header_block(PacketFacts { sequence, ..first });
                sequence = sequence.wrapping_add(1);
            }
            self.cipher.encrypt_blocks(blocks);
            for (checksum, block) in checksums.iter_mut().zip(blocks) {
                *checksum = checksum_of(*block);
            }
        }
    }

    fn unprotect(
        &mut self,
        packet: PacketFacts,
        checksum: u16,
        payload: Bytes,
    ) -> Result<Bytes, SecurityError> {
        if checksum != self.checksum(packet) {
            return Err(SecurityError::SealedInconsistent("packet header's checksum is wrong"));
        }
        if self.level == SecurityLevel::Clear {
            return Ok(payload);
        }
        self.check_length(payload.len())?;
        let mut body = self.open(payload).freeze();
        let word = body.slice(..WORD_BYTES).get_u32();
        if word >> 16 != tag(packet) {
            return Err(SecurityError::SealedInconsistent("packet's sealed tag is wrong"));
        }
        body.advance(self.overhead().header_bytes);
        let (claimed, available) = ((word & 0xffff) as usize, body.len());
        if claimed > available {
            return Err(SecurityError::DataLength { claimed, available });
        }
        body.truncate(claimed);
        Ok(body)
    }
}

/// Returns the checksum in an encrypted block; never 0, which used to mean "no checksum".
fn checksum_of(sealed: u64) -> u16 {
    ((sealed >> 16) as u16).max(1)
}

fn payload_bytes(payload: &[Bytes]) -> usize {
    payload.iter().map(Bytes::len).sum()
}

/// Returns the plaintext of the word before a payload.
fn sealed_word(packet: PacketFacts, payload: &[Bytes]) -> Result<u32, SecurityError> {
    let (max, got) = (PAYLOAD_BYTES_MAX, payload_bytes(payload));
    if got > max {
        return Err(SecurityError::PayloadLong { max, got });
    }
    Ok(tag(packet) << 16 | got as u32)
}

/// Returns the upper half of the sealed word.
fn tag(packet: PacketFacts) -> u32 {
    (packet.sequence ^ packet.call_number) & 0xffff
}

/// Returns a connection's identification as contained in responses and in the header's initialisation vector.
pub(super) fn endpoint(connection: ConnectionFacts, checksum: u32) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..4].copy_from_slice(&connection.epoch.to_be_bytes());
    bytes[4..8].copy_from_slice(&(connection.connection_id & !3).to_be_bytes());
    bytes[8..12].copy_from_slice(&checksum.to_be_bytes());
    bytes[12..].copy_from_slice(&u32::from(connection.security_index).to_be_bytes());
    bytes
}

#[cfg(test)]
mod tests;
