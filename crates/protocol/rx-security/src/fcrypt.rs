//! fcrypt, rxkad's block cipher: 64-bit blocks, 56-bit keys, 16 Feistel rounds.
//!
//! It is weak by any modern measure, but every rxkad peer uses it. A block is stored as a big-endian `u64`
//! with its left half on top.
//!
//! The round function uses one table per byte. Each table holds an S-box's output already shifted to its
//! position and rotated, so that a round is four loads and a few exclusive-ors. Each round depends on the
//! previous one, so a processor is best utilised when several blocks are processed in parallel. The block
//! decryptions of PCBC are independent, so [`Fcrypt::pcbc_decrypt`] processes several blocks of a message
//! together. Encryption is a chain, so [`Fcrypt::pcbc_encrypt_all`] processes a block of each of several
//! messages.

mod sboxes;

use zeroize::ZeroizeOnDrop;

/// Bytes per block.
pub(crate) const BLOCK_BYTES: usize = 8;
const ROUNDS: usize = 16;
/// Number of blocks processed in parallel.
const LANES: usize = 4;

/// A key schedule.
#[derive(Clone, ZeroizeOnDrop)]
pub(crate) struct Fcrypt {
    rounds: [u32; ROUNDS],
}

impl Fcrypt {
    /// Computes the schedule of a key. The lowest bit of each byte (DES parity) is ignored.
    pub(crate) fn new(key: [u8; 8]) -> Fcrypt {
        let mut bits = key.iter().fold(0u64, |bits, byte| bits << 7 | u64::from(byte >> 1));
        let mut rounds = [0; ROUNDS];
        for round in &mut rounds {
            *round = bits as u32;
            bits = bits >> 11 | (bits & 0x7ff) << (56 - 11);
        }
        Fcrypt { rounds }
    }

    /// Encrypts one block.
    pub(crate) fn encrypt_block(&self, block: u64) -> u64 {
        self.encrypt_lanes([block])[0]
    }

    /// Encrypts independent blocks.
    pub(crate) fn encrypt_blocks(&self, blocks: &mut [u64]) {
        let mut groups = blocks.chunks_exact_mut(LANES);
        for group in &mut groups {
            if let Ok(group) = <&mut [u64; LANES]>::try_from(group) {
                *group = self.encrypt_lanes(*group);
            }
        }
        for block in groups.into_remainder() {
            *block = self.encrypt_block(*block);
        }
    }

    #[inline]
    fn encrypt_lanes<const N: usize>(&self, blocks: [u64; N]) -> [u64; N] {
        let mut left = blocks.map(|block| (block >> 32) as u32);
        let mut right = blocks.map(|block| block as u32);
        for pair in self.rounds.chunks_exact(2) {
            for lane in 0..N {
                left[lane] ^= substitute(right[lane] ^ pair[0]);
            }
            for lane in 0..N {
                right[lane] ^= substitute(left[lane] ^ pair[1]);
            }
        }
        std::array::from_fn(|lane| u64::from(left[lane]) << 32 | u64::from(right[lane]))
    }

    /// Decrypts one block.
    pub(crate) fn decrypt_block(&self, block: u64) -> u64 {
        self.decrypt_lanes([block])[0]
    }

    #[inline]
    fn decrypt_lanes<const N: usize>(&self, blocks: [u64; N]) -> [u64; N] {
        let mut left = blocks.map(|block| (block >> 32) as u32);
        let mut right = blocks.map(|block| block as u32);
        for pair in self.rounds.chunks_exact(2).rev() {
            for lane in 0..N {
                right[lane] ^= substitute(left[lane] ^ pair[1]);
            }
            for lane in 0..N {
                left[lane] ^= substitute(right[lane] ^ pair[0]);
            }
        }
        std::array::from_fn(|lane| u64::from(left[lane]) << 32 | u64::from(right[lane]))
    }

    /// Encrypts whole blocks in place in PCBC mode: each block is mixed with the plaintext and ciphertext of
    /// the previous one. The length of `data` must be a multiple of the block length.
    pub(crate) fn pcbc_encrypt(&self, iv: u64, data: &mut [u8]) {
        self.pcbc_encrypt_lanes(iv, [data]);
    }

    /// Encrypts several messages like [`Fcrypt::pcbc_encrypt`], in less time.
    pub(crate) fn pcbc_encrypt_all(&self, iv: u64, messages: &mut [impl AsMut<[u8]>]) {
        for group in messages.chunks_mut(LANES) {
            match group {
                [a, b, c, d] => self.pcbc_encrypt_lanes(iv, [a, b, c, d].map(AsMut::as_mut)),
                [a, b, c] => self.pcbc_encrypt_lanes(iv, [a, b, c].map(AsMut::as_mut)),
                [a, b] => self.pcbc_encrypt_lanes(iv, [a, b].map(AsMut::as_mut)),
                few => {
                    for one in few {
                        self.pcbc_encrypt(iv, one.as_mut());
                    }
                }
            }
        }
    }

    /// Encrypts in parallel up to the length of the shortest message, and the remainders one after the other.
    fn pcbc_encrypt_lanes<const N: usize>(&self, iv: u64, messages: [&mut [u8]; N]) {
        debug_assert!(messages.iter().all(|message| message.len().is_multiple_of(BLOCK_BYTES)));
        let shortest = messages.iter().map(|message| message.len()).min().unwrap_or(0);
        let mut chain = [iv; N];
        for at in (0..shortest).step_by(BLOCK_BYTES) {
            let plain: [u64; N] = std::array::from_fn(|lane| load(&messages[lane][at..]));
            let sealed: [u64; N] = self.encrypt_lanes(std::array::from_fn(|lane| plain[lane] ^ chain[lane]));
            for lane in 0..N {
                messages[lane][at..at + BLOCK_BYTES].copy_from_slice(&sealed[lane].to_be_bytes());
                chain[lane] = plain[lane] ^ sealed[lane];
            }
        }
        for (message, chain) in messages.into_iter().zip(chain) {
            if message.len() > shortest {
                self.pcbc_encrypt(chain, &mut message[shortest..]);
            }
        }
    }

    /// Reverses [`Fcrypt::pcbc_encrypt`].
    pub(crate) fn pcbc_decrypt(&self, iv: u64, data: &mut [u8]) {
        debug_assert!(data.len().is_multiple_of(BLOCK_BYTES));
        let mut groups = data.chunks_exact_mut(BLOCK_BYTES * LANES);
        let mut chain = iv;
        for group in &mut groups {
            chain = self.pcbc_decrypt_group::<LANES>(chain, group);
        }
        for block in groups.into_remainder().chunks_exact_mut(BLOCK_BYTES) {
            chain = self.pcbc_decrypt_group::<1>(chain, block);
        }
    }

    #[inline]
    fn pcbc_decrypt_group<const N: usize>(&self, mut chain: u64, group: &mut [u8]) -> u64 {
        let sealed: [u64; N] = std::array::from_fn(|lane| load(&group[lane * BLOCK_BYTES..]));
        let opened = self.decrypt_lanes(sealed);
        for (lane, block) in group.chunks_exact_mut(BLOCK_BYTES).enumerate() {
            let plain = opened[lane] ^ chain;
            block.copy_from_slice(&plain.to_be_bytes());
            chain = plain ^ sealed[lane];
        }
        chain
    }
}

/// Returns the first block of `bytes`.
pub(crate) fn load(bytes: &[u8]) -> u64 {
    let mut block = [0; BLOCK_BYTES];
    block.copy_from_slice(&bytes[..BLOCK_BYTES]);
    u64::from_be_bytes(block)
}

#[inline]
fn substitute(word: u32) -> u32 {
    let [a, b, c, d] = word.to_be_bytes();
    TABLES[0][usize::from(a)]
        ^ TABLES[1][usize::from(b)]
        ^ TABLES[2][usize::from(c)]
        ^ TABLES[3][usize::from(d)]
}

/// Contribution of each byte of a round's input to its output, by position of the byte.
static TABLES: [[u32; 256]; 4] = [
    placed(&sboxes::SBOX0, 8),
    placed(&sboxes::SBOX1, 0),
    placed(&sboxes::SBOX2, 16),
    placed(&sboxes::SBOX3, 24),
];

/// Returns an S-box shifted left by `shift` and then rotated right by 5.
const fn placed(sbox: &[u8; 256], shift: u32) -> [u32; 256] {
    let mut table = [0; 256];
    let mut index = 0;
    while index < 256 {
        table[index] = ((sbox[index] as u32) << shift).rotate_right(5);
        index += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::hex;

    const TEXT: &[u8; 48] = b"The quick brown fox jumps over the lazy dogs.\0\0\0";

    fn check(key: &str, iv: &str, plain: &[u8], sealed: &str) {
        let key = hex(key).try_into().unwrap();
        let iv = u64::from_be_bytes(hex(iv).try_into().unwrap());
        let cipher = Fcrypt::new(key);
        let mut data = plain.to_vec();
        cipher.pcbc_encrypt(iv, &mut data);
        assert_eq!(data, hex(sealed));
        cipher.pcbc_decrypt(iv, &mut data);
        assert_eq!(data, plain);
    }

    /// The vectors that Arla, OpenAFS and Linux publish.
    #[test]
    fn published_vectors() {
        check("0000000000000000", "0000000000000000", &[0; 8], "0e0900c73ef7ed41");
        let plain = hex("123456789abcdef0");
        check("114477aadd003366", "0000000000000000", &plain, "d8ed787477ec0680");
        check(
            "f0e1d2c3b4a59687",
            "fedcba9876543210",
            TEXT,
            "00f00e1175e62382eeac98624451e484c359d8aa6460aef7\
             d2d9137972a3450323b562d70cf527d1f8913cac442292ef",
        );
        check(
            "fedcba9876543210",
            "f0e1d2c3b4a59687",
            TEXT,
            "ca90f59dcbd4d23c01887f3e316e629dd8e057a3063a4258\
             2a28fe72522fdde01989091c2a8e8c94fcc768e488aade0f",
        );
    }

    #[test]
    fn several_messages_are_encrypted_as_each_alone() {
        let cipher = Fcrypt::new(*b"\x12\x34\x56\x78\x9a\xbc\xde\xf0");
        for lengths in [&[][..], &[8], &[16, 8], &[8, 0, 24], &[8, 80, 16, 40], &[24; 9]] {
            let message = |length: &usize| (0..*length).map(|byte| byte as u8).collect::<Vec<_>>();
            let mut together: Vec<_> = lengths.iter().map(message).collect();
            let mut alone = together.clone();
            cipher.pcbc_encrypt_all(7, &mut together);
            for one in &mut alone {
                cipher.pcbc_encrypt(7, one);
            }
            assert_eq!(together, alone);
        }
    }

    #[test]
    fn single_blocks_and_every_length_come_back() {
        let cipher = Fcrypt::new(*b"\x12\x34\x56\x78\x9a\xbc\xde\xf0");
        for blocks in 0..20 {
            let plain: Vec<u8> = (0..blocks * 8).map(|byte| (byte * 7) as u8).collect();
            let mut data = plain.clone();
            cipher.pcbc_encrypt(99, &mut data);
            cipher.pcbc_decrypt(99, &mut data);
            assert_eq!(data, plain);
            let block = blocks as u64 * 0x0123_4567_89ab;
            assert_eq!(cipher.decrypt_block(cipher.encrypt_block(block)), block);
        }
    }

    #[test]
    fn several_blocks_are_encrypted_as_each_alone() {
        let cipher = Fcrypt::new(*b"\x12\x34\x56\x78\x9a\xbc\xde\xf0");
        for count in 0..10 {
            let plain: Vec<u64> = (0..count).map(|n| n * 0x0123_4567_89ab).collect();
            let mut together = plain.clone();
            cipher.encrypt_blocks(&mut together);
            let alone: Vec<u64> = plain.into_iter().map(|block| cipher.encrypt_block(block)).collect();
            assert_eq!(together, alone);
        }
    }
}
