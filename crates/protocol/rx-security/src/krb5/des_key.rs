//! The form of DES keys: odd parity in each byte's lowest bit, and weak keys.

/// Sets the lowest bit of each byte so that the byte has odd parity.
pub(crate) fn with_odd_parity(key: [u8; 8]) -> [u8; 8] {
    key.map(|byte| byte & 0xfe | u8::from((byte >> 1).count_ones().is_multiple_of(2)))
}

/// Whether a key with parity is one of the four weak or twelve semi-weak ones.
pub(crate) fn is_weak(key: [u8; 8]) -> bool {
    WEAK.iter().any(|weak| weak.to_be_bytes() == key)
}

const WEAK: [u64; 16] = [
    0x0101_0101_0101_0101,
    0xfefe_fefe_fefe_fefe,
    0x1f1f_1f1f_0e0e_0e0e,
    0xe0e0_e0e0_f1f1_f1f1,
    0x01fe_01fe_01fe_01fe,
    0xfe01_fe01_fe01_fe01,
    0x1fe0_1fe0_0ef1_0ef1,
    0xe01f_e01f_f10e_f10e,
    0x01e0_01e0_01f1_01f1,
    0xe001_e001_f101_f101,
    0x1ffe_1ffe_0efe_0efe,
    0xfe1f_fe1f_fe0e_fe0e,
    0x011f_011f_010e_010e,
    0x1f01_1f01_0e01_0e01,
    0xe0fe_e0fe_f1fe_f1fe,
    0xfee0_fee0_fef1_fef1,
];

/// Expands 21 random bytes to a triple DES key (RFC 3961, 6.3.1): each group of 7 bytes contributes its
/// lowest bits to an eighth byte.
pub(crate) fn triple_from_random(random: &[u8]) -> Vec<u8> {
    random.chunks_exact(7).flat_map(expand).collect()
}

fn expand(seven: &[u8]) -> [u8; 8] {
    let mut key = [0; 8];
    key[..7].copy_from_slice(seven);
    key[7] = seven.iter().enumerate().fold(0, |last, (index, byte)| last | (byte & 1) << (index + 1));
    with_odd_parity(key)
}

/// The reverse of [`triple_from_random`], for any whole number of DES keys.
pub(crate) fn random_from_triple(key: &[u8]) -> Option<Vec<u8>> {
    let one = |eight: &[u8]| {
        let last = eight[7] >> 1;
        (0..7).map(|index| eight[index] & 0xfe | last >> index & 1).collect::<Vec<_>>()
    };
    key.len().is_multiple_of(8).then(|| key.chunks_exact(8).flat_map(one).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parity_is_odd_and_weak_keys_have_it() {
        for weak in WEAK {
            let key = weak.to_be_bytes();
            assert_eq!(with_odd_parity(key), key);
            assert!(is_weak(key));
        }
        for byte in 0..=255u8 {
            assert_eq!(with_odd_parity([byte; 8])[0].count_ones() % 2, 1);
        }
    }

    #[test]
    fn triple_keys_go_both_ways() {
        let random: Vec<u8> = (0..21).map(|byte: u8| byte.wrapping_mul(37) + 11).collect();
        let key = triple_from_random(&random);
        assert_eq!(key.len(), 24);
        assert_eq!(random_from_triple(&key), Some(random));
        assert_eq!(random_from_triple(&key[1..]), None);
    }
}
