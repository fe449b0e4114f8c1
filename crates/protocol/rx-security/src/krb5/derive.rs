//! Derivation of Kerberos keys: n-fold and DK of RFC 3961, 5.1, and the KDF of RFC 8009, 3.

use aes::cipher::{BlockEncrypt, generic_array::GenericArray};
use hmac::digest::KeyInit;
use hmac::{Hmac, Mac};
use sha2::{Sha256, Sha384};
use zeroize::Zeroizing;

/// Returns the constant of a derived key: its usage number and its purpose.
pub(crate) fn constant(usage: u32, purpose: u8) -> [u8; 5] {
    let [a, b, c, d] = usage.to_be_bytes();
    [a, b, c, d, purpose]
}

/// Purpose of encryption keys.
pub(crate) const FOR_ENCRYPTION: u8 = 0xaa;
/// Purpose of integrity keys.
pub(crate) const FOR_INTEGRITY: u8 = 0x55;

/// DR of RFC 3961, 5.1: `bytes` pseudo-random bytes from a cipher keyed with the base key.
pub(crate) fn derive<C: BlockEncrypt>(cipher: &C, constant: &[u8], bytes: usize) -> Zeroizing<Vec<u8>> {
    let mut block = nfold(constant, C::block_size());
    let mut out = Zeroizing::new(Vec::with_capacity(bytes + block.len()));
    while out.len() < bytes {
        cipher.encrypt_block(GenericArray::from_mut_slice(&mut block));
        out.extend_from_slice(&block);
    }
    out.truncate(bytes);
    out
}

/// KDF-HMAC-SHA2 of RFC 8009, 3 with HMAC-SHA256.
pub(crate) fn kdf_sha256(key: &[u8], label: &[u8], bytes: usize) -> Zeroizing<Vec<u8>> {
    kdf::<Hmac<Sha256>>(key, label, bytes)
}

/// KDF-HMAC-SHA2 of RFC 8009, 3 with HMAC-SHA384.
pub(crate) fn kdf_sha384(key: &[u8], label: &[u8], bytes: usize) -> Zeroizing<Vec<u8>> {
    kdf::<Hmac<Sha384>>(key, label, bytes)
}

/// One round suffices: no key derived here is longer than the hash.
fn kdf<M: Mac + KeyInit>(key: &[u8], label: &[u8], bytes: usize) -> Zeroizing<Vec<u8>> {
    let mut mac = <M as Mac>::new_from_slice(key).expect("HMAC takes keys of any length");
    mac.update(&1u32.to_be_bytes());
    mac.update(label);
    mac.update(&[0]);
    mac.update(&(bytes as u32 * 8).to_be_bytes());
    Zeroizing::new(mac.finalize().into_bytes()[..bytes].to_vec())
}

/// Stretches or shrinks bytes so that every bit of the input has an effect (RFC 3961, 5.1): copies of the
/// input, each rotated right by 13 more bits than the previous, are added in pieces with end-around carry.
pub(crate) fn nfold(input: &[u8], bytes: usize) -> Vec<u8> {
    let copies = least_common_multiple(input.len(), bytes) / input.len();
    let text: Vec<u8> = (0..copies).flat_map(|copy| rotated_right(input, 13 * copy)).collect();
    text.chunks_exact(bytes).fold(vec![0; bytes], |sum, piece| add_around(&sum, piece))
}

fn least_common_multiple(a: usize, b: usize) -> usize {
    let (mut x, mut y) = (a, b);
    while y != 0 {
        (x, y) = (y, x % y);
    }
    a / x * b
}

fn rotated_right(bytes: &[u8], bits: usize) -> Vec<u8> {
    let (length, shift) = (bytes.len(), bits % 8);
    let byte = |index: usize| u16::from(bytes[(index + length - bits / 8 % length) % length]);
    (0..length).map(|index| ((byte(index + length - 1) << 8 | byte(index)) >> shift) as u8).collect()
}

fn add_around(a: &[u8], b: &[u8]) -> Vec<u8> {
    let mut sum = a.to_vec();
    let mut carry = add_into(&mut sum, b.iter().copied());
    while carry != 0 {
        let zeros = std::iter::repeat_n(0, b.len() - 1);
        carry = add_into(&mut sum, zeros.chain([carry]));
    }
    sum
}

/// Adds a big-endian number to `sum`. Returns the carry out of the top.
fn add_into(sum: &mut [u8], add: impl DoubleEndedIterator<Item = u8>) -> u8 {
    let mut carry = 0u16;
    for (byte, other) in sum.iter_mut().rev().zip(add.rev()) {
        carry += u16::from(*byte) + u16::from(other);
        *byte = carry as u8;
        carry >>= 8;
    }
    carry as u8
}

#[cfg(test)]
mod tests {
    use aes::cipher::KeyInit as _;
    use aes::{Aes128, Aes256};
    use des::TdesEde3;

    use super::super::des_key;
    use super::*;
    use crate::test_support::hex;

    /// RFC 3961, appendix A.1.
    #[test]
    fn nfold_vectors() {
        for (input, bits, folded) in [
            ("012345", 64, "be072631276b1955"),
            ("password", 56, "78a07b6caf85fa"),
            ("Rough Consensus, and Running Code", 64, "bb6ed30870b7f0e0"),
            ("password", 168, "59e4a8ca7c0385c3c37b3f6d2000247cb6e6bd5b3e"),
            (
                "MASSACHVSETTS INSTITVTE OF TECHNOLOGY",
                192,
                "db3b0d8f0b061e603282b308a50841229ad798fab9540c1b",
            ),
            ("Q", 168, "518a54a2 15a8452a 518a54a2 15a8452a 518a54a2 15"),
            ("ba", 168, "fb25d531 ae897449 9f52fd92 ea9857c4 ba24cf29 7e"),
            ("kerberos", 64, "6b65726265726f73"),
            ("kerberos", 128, "6b65726265726f737b9b5b2b93132b93"),
            ("kerberos", 168, "8372c236344e5f1550cd0747e15d62ca7a5a3bcea4"),
            ("kerberos", 256, "6b65726265726f737b9b5b2b93132b935c9bdcdad95c9899c4cae4dee6d6cae4"),
        ] {
            assert_eq!(nfold(input.as_bytes(), bits / 8), hex(folded), "{input} to {bits}");
        }
    }

    /// MIT Kerberos's test vectors, for key usage 2.
    #[test]
    fn derived_key_vectors() {
        let aes128 = Aes128::new_from_slice(&hex("42263c6e89f4fc28b8df68ee09799f15")).unwrap();
        for (purpose, key) in [
            (0x99, "34280a382bc92769b2da2f9ef066854b"),
            (FOR_ENCRYPTION, "5b14fc4e250e14ddf9dccf1af6674f53"),
            (FOR_INTEGRITY, "4ed31063621684f09ae8d89991af3e8f"),
        ] {
            assert_eq!(*derive(&aes128, &constant(2, purpose), 16), hex(key));
        }
        let base = "fe697b52bc0d3ce14432ba036a92e65bbb52280990a2fa27883998d72af30161";
        let aes256 = Aes256::new_from_slice(&hex(base)).unwrap();
        for (purpose, key) in [
            (0x99, "bfab388bdcb238e9f9c98d6a878304f04d30c82556375ac507a7a852790f4674"),
            (FOR_ENCRYPTION, "c7cfd9cd75fe793a586a542d87e0d1396f1134a104bb1a9190b8c90ada3ddf37"),
            (FOR_INTEGRITY, "97151b4c76945063e2eb0529dc067d97d7bba90776d8126d91f34f3101aea8ba"),
        ] {
            assert_eq!(*derive(&aes256, &constant(2, purpose), 32), hex(key));
        }
        let base = hex("850bb51358548cd05e86768c313e3bfef7511937dcf72c3e");
        let des3 = TdesEde3::new_from_slice(&base).unwrap();
        for (purpose, key) in [
            (0x99, "f78c496d16e6c2dae0e0b6c24057a84c0426aeef26fd6dce"),
            (FOR_ENCRYPTION, "5b5723d0b634cb684c3eba5264e9a70d52e683231ad3c4ce"),
            (FOR_INTEGRITY, "a77c94980e9b7345a81525c423a737ce67f4cd91b6b3da45"),
        ] {
            let random = derive(&des3, &constant(2, purpose), 21);
            assert_eq!(des_key::triple_from_random(&random), hex(key));
        }
    }

    /// RFC 8009, appendix A: sample results for key derivation with key usage 2.
    #[test]
    fn sha2_key_vectors() {
        let base = hex("3705d96080c17728a0e800eab6e0d23c");
        let ke = kdf_sha256(&base, &constant(2, FOR_ENCRYPTION), 16);
        assert_eq!(*ke, hex("9b197dd1e8c5609d6e67c3e37c62c72e"));
        let ki = kdf_sha256(&base, &constant(2, FOR_INTEGRITY), 16);
        assert_eq!(*ki, hex("9fda0e56ab2d85e1569a688696c26a6c"));
        let base = hex("6d404d37faf79f9df0d33568d320669800eb4836472ea8a026d16b7182460c52");
        let ke = kdf_sha384(&base, &constant(2, FOR_ENCRYPTION), 32);
        assert_eq!(*ke, hex("56ab22bee63d82d7bc5227f6773f8ea7a5eb1c825160c38312980c442e5c7e49"));
        let ki = kdf_sha384(&base, &constant(2, FOR_INTEGRITY), 24);
        assert_eq!(*ki, hex("69b16514e3cd8e56b82010d5c73012b622c4d00ffc23ed1f"));
    }
}
