//! Digests that identify equal chunks.

use zeroize::Zeroizing;

/// BLAKE3 of a chunk's contents before compression. On an encrypted partition it is keyed, so that somebody
/// who obtains the disk cannot search it for known contents.
pub type Digest = [u8; 32];

/// Key derivation context of the partition's digest key.
const CONTEXT: &str = "cellar 2026-11-22 digests of shared chunks";

/// Derives the digest key. It is stable as long as `data_key` is the oldest key of the partition's ring.
pub(crate) fn digest_key(data_key: &[u8; 32]) -> Zeroizing<[u8; 32]> {
    Zeroizing::new(blake3::derive_key(CONTEXT, data_key))
}

/// Returns the digest of a chunk given in pieces.
pub(crate) fn digest(key: Option<&[u8; 32]>, pieces: &[&[u8]]) -> Digest {
    let mut hasher = key.map_or_else(blake3::Hasher::new, blake3::Hasher::new_keyed);
    for piece in pieces {
        hasher.update(piece);
    }
    *hasher.finalize().as_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_of_the_contents_and_the_key_alone() {
        let whole = digest(None, &[b"abc"]);
        assert_eq!(digest(None, &[b"ab", b"c"]), whole);
        assert_ne!(digest(None, &[b"c", b"ab"]), whole);
        let (one, other) = (digest_key(&[1; 32]), digest_key(&[2; 32]));
        assert_ne!(digest(Some(&*one), &[b"ab", b"c"]), whole);
        assert_ne!(digest(Some(&*one), &[b"ab"]), digest(Some(&*other), &[b"ab"]));
    }
}
