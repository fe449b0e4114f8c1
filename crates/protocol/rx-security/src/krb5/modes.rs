//! Block cipher modes, in place, over any block cipher: CBC, CBC with ciphertext stealing, PCBC.

use aes::cipher::{BlockDecrypt, BlockEncrypt, BlockSizeUser, generic_array::GenericArray};

/// Encrypts whole blocks in CBC mode with an initialisation vector of one block.
pub(crate) fn cbc_encrypt<C: BlockEncrypt>(cipher: &C, iv: &[u8], data: &mut [u8]) {
    let mut chain = iv.to_vec();
    for block in data.chunks_exact_mut(block_bytes::<C>()) {
        mix(block, &chain);
        cipher.encrypt_block(GenericArray::from_mut_slice(block));
        chain.copy_from_slice(block);
    }
}

/// Reverses [`cbc_encrypt`].
pub(crate) fn cbc_decrypt<C: BlockDecrypt>(cipher: &C, iv: &[u8], data: &mut [u8]) {
    let mut chain = iv.to_vec();
    for block in data.chunks_exact_mut(block_bytes::<C>()) {
        let sealed = block.to_vec();
        cipher.decrypt_block(GenericArray::from_mut_slice(block));
        mix(block, &chain);
        chain = sealed;
    }
}

/// Encrypts in CBC mode with ciphertext stealing and a zero vector (RFC 3962, 5): any length of at least one
/// block; the last two blocks are swapped if there is more than one.
pub(crate) fn cts_encrypt<C: BlockEncrypt>(cipher: &C, data: &mut Vec<u8>) {
    let (block, length) = (block_bytes::<C>(), data.len());
    data.resize(length.next_multiple_of(block), 0);
    cbc_encrypt(cipher, &vec![0; block], data);
    swap_last_two(block, data);
    data.truncate(length);
}

/// Reverses [`cts_encrypt`].
pub(crate) fn cts_decrypt<C: BlockDecrypt>(cipher: &C, data: &mut Vec<u8>) {
    let (block, length) = (block_bytes::<C>(), data.len());
    if length > block {
        let whole = length.next_multiple_of(block);
        let mut last_but_one = data[whole - 2 * block..whole - block].to_vec();
        cipher.decrypt_block(GenericArray::from_mut_slice(&mut last_but_one));
        data.extend_from_slice(&last_but_one[block - (whole - length)..]);
    }
    swap_last_two(block, data);
    cbc_decrypt(cipher, &vec![0; block], data);
    data.truncate(length);
}

/// Encrypts whole blocks in PCBC mode: each block is mixed with the plaintext and ciphertext of the previous
/// one.
pub(crate) fn pcbc_encrypt<C: BlockEncrypt>(cipher: &C, iv: &[u8], data: &mut [u8]) {
    let mut chain = iv.to_vec();
    for block in data.chunks_exact_mut(block_bytes::<C>()) {
        let plain = block.to_vec();
        mix(block, &chain);
        cipher.encrypt_block(GenericArray::from_mut_slice(block));
        chain.copy_from_slice(block);
        mix(&mut chain, &plain);
    }
}

/// Reverses [`pcbc_encrypt`].
pub(crate) fn pcbc_decrypt<C: BlockDecrypt>(cipher: &C, iv: &[u8], data: &mut [u8]) {
    let mut chain = iv.to_vec();
    for block in data.chunks_exact_mut(block_bytes::<C>()) {
        let sealed = block.to_vec();
        cipher.decrypt_block(GenericArray::from_mut_slice(block));
        mix(block, &chain);
        chain = sealed;
        mix(&mut chain, block);
    }
}

fn block_bytes<C: BlockSizeUser>() -> usize {
    C::block_size()
}

fn mix(block: &mut [u8], with: &[u8]) {
    for (byte, other) in block.iter_mut().zip(with) {
        *byte ^= other;
    }
}

fn swap_last_two(block: usize, data: &mut [u8]) {
    if let Some(start) = data.len().checked_sub(2 * block) {
        data[start..].rotate_left(block);
    }
}

#[cfg(test)]
mod tests {
    use aes::Aes128;
    use aes::cipher::KeyInit;

    use super::*;
    use crate::test_support::hex;

    /// RFC 3962, appendix B: CBC with ciphertext stealing.
    #[test]
    fn ciphertext_stealing_vectors() {
        let cipher = Aes128::new_from_slice(b"chicken teriyaki").unwrap();
        let text = b"I would like the General Gau's Chicken, please, and wonton soup.";
        for (length, sealed) in [
            (17, "c6353568f2bf8cb4d8a580362da7ff7f97"),
            (31, "fc00783e0efdb2c1d445d4c8eff7ed2297687268d6ecccc0c07b25e25ecfe5"),
            (32, "39312523a78662d5be7fcbcc98ebf5a897687268d6ecccc0c07b25e25ecfe584"),
            (
                47,
                "97687268d6ecccc0c07b25e25ecfe584b3fffd940c16a18c1b5549d2f838029e\
                 39312523a78662d5be7fcbcc98ebf5",
            ),
            (
                48,
                "97687268d6ecccc0c07b25e25ecfe5849dad8bbb96c4cdc03bc103e1a194bbd8\
                 39312523a78662d5be7fcbcc98ebf5a8",
            ),
            (
                64,
                "97687268d6ecccc0c07b25e25ecfe58439312523a78662d5be7fcbcc98ebf5a8\
                 4807efe836ee89a526730dbc2f7bc8409dad8bbb96c4cdc03bc103e1a194bbd8",
            ),
        ] {
            let mut data = text[..length].to_vec();
            cts_encrypt(&cipher, &mut data);
            assert_eq!(data, hex(sealed), "{length} bytes");
            cts_decrypt(&cipher, &mut data);
            assert_eq!(data, text[..length]);
        }
    }

    #[test]
    fn one_block_is_not_swapped() {
        let cipher = Aes128::new_from_slice(b"chicken teriyaki").unwrap();
        let mut stolen = b"sixteen bytes...".to_vec();
        let mut plain = stolen.clone();
        cts_encrypt(&cipher, &mut stolen);
        cbc_encrypt(&cipher, &[0; 16], &mut plain);
        assert_eq!(stolen, plain);
        cts_decrypt(&cipher, &mut stolen);
        assert_eq!(stolen, b"sixteen bytes...");
    }
}
