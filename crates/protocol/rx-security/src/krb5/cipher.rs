//! Kerberos encryption: confidentiality and integrity of one message under one key.
//!
//! Every type puts a random confounder before the message, so that equal messages have different ciphertexts,
//! and includes a checksum or MAC. If a type pads, [`open`] leaves the padding at the end, since messages
//! contain their own length.

use aes::cipher::{BlockDecrypt, BlockEncrypt, KeyInit};
use aes::{Aes128, Aes256};
use des::{Des, TdesEde3};
use hmac::{Hmac, Mac};
use md5::{Digest, Md5};
use sha1::Sha1;
use sha2::{Sha256, Sha384};
use subtle::ConstantTimeEq;
use zeroize::{Zeroize, Zeroizing};

use super::derive::{FOR_ENCRYPTION, FOR_INTEGRITY, constant, derive, kdf_sha256, kdf_sha384};
use super::{des_key, modes};
use crate::key::{Enctype, ServiceKey};

/// Key usage of the sealed part of tickets (RFC 4120, 7.5.1).
pub(crate) const USAGE_TICKET: u32 = 2;
/// Length of the longest confounder; types with shorter ones use the first bytes.
pub(crate) const CONFOUNDER_BYTES: usize = 16;

/// The message could not be decrypted: the key is wrong, or the message is damaged or forged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OpenError;

type Opened = Result<Zeroizing<Vec<u8>>, OpenError>;

/// Decrypts a message sealed with type `enctype`. The key must be of that type (or its family).
pub(crate) fn open(enctype: Enctype, key: &ServiceKey, usage: u32, sealed: &[u8]) -> Opened {
    let bytes = key.bytes();
    match enctype {
        Enctype::DesCbcCrc | Enctype::DesCbcMd5 => open_des(enctype, key.des_bytes(), sealed),
        Enctype::Des3CbcHmacSha1 => open_des3(bytes, usage, sealed),
        Enctype::Rc4Hmac => open_rc4(bytes, usage, sealed),
        _ => open_aes(&AesKeys::new(enctype, bytes, usage), sealed),
    }
}

/// Seals a message with a key and a random confounder.
pub(crate) fn seal(
    key: &ServiceKey,
    usage: u32,
    confounder: [u8; CONFOUNDER_BYTES],
    message: &[u8],
) -> Vec<u8> {
    let bytes = key.bytes();
    match key.enctype() {
        Enctype::DesCbcCrc | Enctype::DesCbcMd5 => {
            seal_des(key.enctype(), key.des_bytes(), &confounder, message)
        }
        Enctype::Des3CbcHmacSha1 => seal_des3(bytes, usage, &confounder, message),
        Enctype::Rc4Hmac => seal_rc4(bytes, usage, &confounder, message),
        enctype => seal_aes(&AesKeys::new(enctype, bytes, usage), &confounder, message),
    }
}

/// The derived keys of the four AES encryption types, and how they are used.
struct AesKeys {
    encryption: Zeroizing<Vec<u8>>,
    integrity: Zeroizing<Vec<u8>>,
    /// Determines whether the MAC covers the ciphertext (RFC 8009) or the plaintext (RFC 3962).
    hash: AesHash,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum AesHash {
    Sha1,
    Sha256,
    Sha384,
}

impl AesKeys {
    fn new(enctype: Enctype, key: &[u8], usage: u32) -> AesKeys {
        let hash = match enctype {
            Enctype::Aes128CtsHmacSha256 => AesHash::Sha256,
            Enctype::Aes256CtsHmacSha384 => AesHash::Sha384,
            _ => AesHash::Sha1,
        };
        let derived = |purpose, bytes| {
            let constant = constant(usage, purpose);
            match (hash, AesCipher::new(key)) {
                (AesHash::Sha256, _) => kdf_sha256(key, &constant, bytes),
                (AesHash::Sha384, _) => kdf_sha384(key, &constant, bytes),
                (AesHash::Sha1, AesCipher::Short(cipher)) => derive(&*cipher, &constant, bytes),
                (AesHash::Sha1, AesCipher::Long(cipher)) => derive(&*cipher, &constant, bytes),
            }
        };
        let integrity_bytes = if hash == AesHash::Sha384 { 24 } else { key.len() };
        AesKeys {
            encryption: derived(FOR_ENCRYPTION, key.len()),
            integrity: derived(FOR_INTEGRITY, integrity_bytes),
            hash,
        }
    }

    /// Returns the number of MAC bytes in a message.
    fn mac_bytes(&self) -> usize {
        match self.hash {
            AesHash::Sha1 => 12,
            AesHash::Sha256 => 16,
            AesHash::Sha384 => 24,
        }
    }

    /// Computes the MAC over the plaintext or the ciphertext, whichever this type covers.
    fn mac(&self, plain: &[u8], sealed: &[u8]) -> Vec<u8> {
        let zero_vector = [0; 16];
        let mut mac = match self.hash {
            AesHash::Sha1 => hmac::<Hmac<Sha1>>(&self.integrity, &[plain]),
            AesHash::Sha256 => hmac::<Hmac<Sha256>>(&self.integrity, &[&zero_vector, sealed]),
            AesHash::Sha384 => hmac::<Hmac<Sha384>>(&self.integrity, &[&zero_vector, sealed]),
        };
        mac.truncate(self.mac_bytes());
        mac
    }
}

/// AES with either key length, boxed because the key schedules are large.
enum AesCipher {
    Short(Box<Aes128>),
    Long(Box<Aes256>),
}

impl AesCipher {
    fn new(key: &[u8]) -> AesCipher {
        match key.try_into() {
            Ok(key) => {
                let key: [u8; 16] = key;
                AesCipher::Short(Box::new(Aes128::new(&key.into())))
            }
            Err(_) => AesCipher::Long(Box::new(
                Aes256::new_from_slice(key).expect("AES service keys have 16 or 32 bytes"),
            )),
        }
    }
}

fn open_aes(keys: &AesKeys, sealed: &[u8]) -> Opened {
    let length = sealed.len().checked_sub(keys.mac_bytes()).filter(|length| *length >= 16);
    let (body, mac) = sealed.split_at(length.ok_or(OpenError)?);
    let mut plain = Zeroizing::new(body.to_vec());
    match AesCipher::new(&keys.encryption) {
        AesCipher::Short(cipher) => modes::cts_decrypt(&*cipher, &mut plain),
        AesCipher::Long(cipher) => modes::cts_decrypt(&*cipher, &mut plain),
    }
    check(&keys.mac(&plain, body), mac)?;
    Ok(without_front(plain, 16))
}

fn seal_aes(keys: &AesKeys, confounder: &[u8; 16], message: &[u8]) -> Vec<u8> {
    let plain = Zeroizing::new([confounder, message].concat());
    let mut sealed = plain.to_vec();
    match AesCipher::new(&keys.encryption) {
        AesCipher::Short(cipher) => modes::cts_encrypt(&*cipher, &mut sealed),
        AesCipher::Long(cipher) => modes::cts_encrypt(&*cipher, &mut sealed),
    }
    let mac = keys.mac(&plain, &sealed);
    sealed.extend_from_slice(&mac);
    sealed
}

/// Returns triple DES's derived cipher and integrity key.
fn des3_keys(key: &[u8], usage: u32) -> (TdesEde3, Zeroizing<Vec<u8>>) {
    let base = TdesEde3::new_from_slice(key).expect("triple DES service keys have 24 bytes");
    let derived = |purpose| {
        let random = derive(&base, &constant(usage, purpose), 21);
        Zeroizing::new(des_key::triple_from_random(&random))
    };
    let cipher = TdesEde3::new_from_slice(&derived(FOR_ENCRYPTION));
    (cipher.expect("a triple DES key has 24 bytes"), derived(FOR_INTEGRITY))
}

const DES3_MAC_BYTES: usize = 20;

fn open_des3(key: &[u8], usage: u32, sealed: &[u8]) -> Opened {
    let length = sealed.len().checked_sub(DES3_MAC_BYTES).ok_or(OpenError)?;
    let (body, mac) = sealed.split_at(length);
    let (cipher, integrity) = des3_keys(key, usage);
    let plain = open_cbc(&cipher, [0; 8], body)?;
    check(&hmac::<Hmac<Sha1>>(&integrity, &[&plain]), mac)?;
    Ok(without_front(plain, 8))
}

fn seal_des3(key: &[u8], usage: u32, confounder: &[u8; 16], message: &[u8]) -> Vec<u8> {
    let (cipher, integrity) = des3_keys(key, usage);
    let plain = padded(&[&confounder[..8], message]);
    let mac = hmac::<Hmac<Sha1>>(&integrity, &[&plain]);
    let mut sealed = seal_cbc(&cipher, [0; 8], &plain);
    sealed.extend_from_slice(&mac);
    sealed
}

/// Computes the checksum of single DES, which follows the confounder and is computed with its own bytes zero.
fn des_checksum(enctype: Enctype, plain: &[u8]) -> Vec<u8> {
    match enctype {
        Enctype::DesCbcCrc => crc32(plain).to_le_bytes().to_vec(),
        _ => Md5::digest(plain).to_vec(),
    }
}

fn des_checksum_bytes(enctype: Enctype) -> usize {
    if enctype == Enctype::DesCbcCrc { 4 } else { 16 }
}

/// Returns the initialisation vector; with a CRC it is the key (RFC 3961, 6.2.3).
fn des_vector(enctype: Enctype, key: [u8; 8]) -> [u8; 8] {
    if enctype == Enctype::DesCbcCrc { key } else { [0; 8] }
}

fn open_des(enctype: Enctype, key: [u8; 8], sealed: &[u8]) -> Opened {
    let front = 8 + des_checksum_bytes(enctype);
    let mut plain = open_cbc(&Des::new(&key.into()), des_vector(enctype, key), sealed)?;
    let checksum = plain.get(8..front).ok_or(OpenError)?.to_vec();
    plain[8..front].fill(0);
    check(&des_checksum(enctype, &plain), &checksum)?;
    Ok(without_front(plain, front))
}

fn seal_des(enctype: Enctype, key: [u8; 8], confounder: &[u8; 16], message: &[u8]) -> Vec<u8> {
    let front = 8 + des_checksum_bytes(enctype);
    let mut plain = padded(&[&confounder[..8], &[0; 16][..front - 8], message]);
    let checksum = des_checksum(enctype, &plain);
    plain[8..front].copy_from_slice(&checksum);
    seal_cbc(&Des::new(&key.into()), des_vector(enctype, key), &plain)
}

/// Computes the CRC of RFC 3961, 6.1.3: reflected, initial value 0, not inverted.
fn crc32(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| crc >> 1 ^ 0xedb8_8320 & (crc & 1).wrapping_neg())
    })
}

const RC4_MAC_BYTES: usize = 16;

fn rc4_key(key: &[u8], usage: u32) -> Vec<u8> {
    hmac::<Hmac<Md5>>(key, &[&usage.to_le_bytes()])
}

fn open_rc4(key: &[u8], usage: u32, sealed: &[u8]) -> Opened {
    if sealed.len() < RC4_MAC_BYTES + 8 {
        return Err(OpenError);
    }
    let (mac, body) = sealed.split_at(RC4_MAC_BYTES);
    let key = Zeroizing::new(rc4_key(key, usage));
    let mut plain = Zeroizing::new(body.to_vec());
    rc4(&hmac::<Hmac<Md5>>(&key, &[mac]), &mut plain);
    check(&hmac::<Hmac<Md5>>(&key, &[&plain]), mac)?;
    Ok(without_front(plain, 8))
}

fn seal_rc4(key: &[u8], usage: u32, confounder: &[u8; 16], message: &[u8]) -> Vec<u8> {
    let key = Zeroizing::new(rc4_key(key, usage));
    let mut body = [&confounder[..8], message].concat();
    let mac = hmac::<Hmac<Md5>>(&key, &[&body]);
    rc4(&hmac::<Hmac<Md5>>(&key, &[&mac]), &mut body);
    [mac, body].concat()
}

/// Applies RC4 to `data` from the start of the key stream.
fn rc4(key: &[u8], data: &mut [u8]) {
    let mut state: [u8; 256] = std::array::from_fn(|index| index as u8);
    let mut j = 0u8;
    for i in 0..256 {
        j = j.wrapping_add(state[i]).wrapping_add(key[i % key.len()]);
        state.swap(i, usize::from(j));
    }
    let (mut i, mut j) = (0u8, 0u8);
    for byte in data {
        i = i.wrapping_add(1);
        j = j.wrapping_add(state[usize::from(i)]);
        state.swap(usize::from(i), usize::from(j));
        let index = state[usize::from(i)].wrapping_add(state[usize::from(j)]);
        *byte ^= state[usize::from(index)];
    }
    state.zeroize();
}

fn open_cbc<C: BlockDecrypt>(cipher: &C, iv: [u8; 8], sealed: &[u8]) -> Opened {
    if sealed.len() < 8 || !sealed.len().is_multiple_of(8) {
        return Err(OpenError);
    }
    let mut plain = Zeroizing::new(sealed.to_vec());
    modes::cbc_decrypt(cipher, &iv, &mut plain);
    Ok(plain)
}

fn seal_cbc<C: BlockEncrypt>(cipher: &C, iv: [u8; 8], plain: &[u8]) -> Vec<u8> {
    let mut sealed = plain.to_vec();
    modes::cbc_encrypt(cipher, &iv, &mut sealed);
    sealed
}

/// Concatenates the parts and pads with zeros to a multiple of 8.
fn padded(parts: &[&[u8]]) -> Zeroizing<Vec<u8>> {
    let mut all = Zeroizing::new(parts.concat());
    let whole = all.len().next_multiple_of(8);
    all.resize(whole, 0);
    all
}

fn without_front(mut bytes: Zeroizing<Vec<u8>>, front: usize) -> Zeroizing<Vec<u8>> {
    bytes.drain(..front);
    bytes
}

fn hmac<M: Mac + KeyInit>(key: &[u8], parts: &[&[u8]]) -> Vec<u8> {
    let mut mac = <M as Mac>::new_from_slice(key).expect("HMAC takes keys of any length");
    for part in parts {
        mac.update(part);
    }
    mac.finalize().into_bytes().to_vec()
}

fn check(expected: &[u8], got: &[u8]) -> Result<(), OpenError> {
    if bool::from(expected.ct_eq(got)) { Ok(()) } else { Err(OpenError) }
}

#[cfg(test)]
mod tests;
