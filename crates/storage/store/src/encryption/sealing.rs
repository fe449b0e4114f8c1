//! Encryption with one key: XChaCha20-Poly1305. Its nonces are long enough to be chosen at random without
//! collisions, whatever happens to a machine's clock, counters or snapshots.

use chacha20poly1305::{AeadInPlace, KeyInit, Tag, XChaCha20Poly1305, XNonce};
use rand::RngCore;

pub(super) const KEY_BYTES: usize = 32;
pub(super) const NONCE_BYTES: usize = 24;
const TAG_BYTES: usize = 16;

/// Overhead of sealed bytes: nonce and tag.
pub(crate) const SEAL_BYTES: usize = NONCE_BYTES + TAG_BYTES;

/// A key prepared for use.
pub(super) struct Cipher(XChaCha20Poly1305);

impl Cipher {
    pub(super) fn new(key: &[u8; KEY_BYTES]) -> Cipher {
        Cipher(XChaCha20Poly1305::new(key.into()))
    }

    /// Returns nonce, ciphertext and tag. Opening requires the same `context`. `None` for input beyond the
    /// algorithm's limit of 256 GiB.
    pub(super) fn seal<T: AsRef<[u8]>>(&self, context: &[u8], pieces: &[T]) -> Option<Vec<u8>> {
        let length: usize = pieces.iter().map(|piece| piece.as_ref().len()).sum();
        let mut nonce = [0; NONCE_BYTES];
        rand::rng().fill_bytes(&mut nonce);
        let mut out = Vec::with_capacity(length + SEAL_BYTES);
        out.extend_from_slice(&nonce);
        for piece in pieces {
            out.extend_from_slice(piece.as_ref());
        }
        let nonce = XNonce::from_slice(&nonce);
        let tag = self.0.encrypt_in_place_detached(nonce, context, &mut out[NONCE_BYTES..]).ok()?;
        out.extend_from_slice(&tag);
        Some(out)
    }

    /// Decrypts; `None` if the sealed bytes, the context or the key differ in any bit.
    pub(super) fn open(&self, context: &[u8], sealed: &[u8]) -> Option<Vec<u8>> {
        let (nonce, rest) = sealed.split_at_checked(NONCE_BYTES)?;
        let (data, tag) = rest.split_at_checked(rest.len().checked_sub(TAG_BYTES)?)?;
        let mut out = data.to_vec();
        let (nonce, tag) = (XNonce::from_slice(nonce), Tag::from_slice(tag));
        self.0.decrypt_in_place_detached(nonce, context, &mut out, tag).ok()?;
        Some(out)
    }
}
