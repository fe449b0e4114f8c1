//! rxkad-kdf: a DES key for rxkad from a Kerberos session key of any type.

use hmac::{Hmac, Mac};
use md5::Md5;
use zeroize::Zeroizing;

use super::SessionKey;
use crate::SecurityError;
use crate::krb5::des_key;

/// Derives or adopts a session key, depending on its Kerberos encryption type.
pub(super) fn session_key(enctype: i32, key: &[u8]) -> Result<SessionKey, SecurityError> {
    match enctype {
        1..=3 => match key.try_into() {
            Ok(key) => Ok(SessionKey(key)),
            Err(_) => Err(SecurityError::BadTicket("DES session key is not 8 bytes long")),
        },
        // Triple DES keys contain 7 random bits per byte.
        5 | 7 | 16 => match des_key::random_from_triple(key) {
            Some(random) => derive(&Zeroizing::new(random)),
            None => Err(SecurityError::BadTicket("triple DES session key has no whole blocks")),
        },
        // Not symmetric keys, or not usable as a key.
        i32::MIN..=0 | 4 | 6 | 8..=15 => {
            Err(SecurityError::BadTicket("session key has an encryption type without keys"))
        }
        _ => derive(key),
    }
}

/// Derives a key with NIST SP 800-108 in counter mode with HMAC-MD5, label "rxkad", no context, 64 bits.
/// Outputs that are weak DES keys are skipped.
fn derive(key: &[u8]) -> Result<SessionKey, SecurityError> {
    if key.len() < 7 {
        return Err(SecurityError::BadTicket("session key is too short"));
    }
    (1..=255)
        .map(|counter| candidate(key, counter))
        .find(|candidate| !des_key::is_weak(*candidate))
        .map(SessionKey)
        .ok_or(SecurityError::BadKey("every derived session key is weak"))
}

fn candidate(key: &[u8], counter: u8) -> [u8; 8] {
    let mut mac = Hmac::<Md5>::new_from_slice(key).expect("HMAC takes keys of any length");
    mac.update(&[counter]);
    mac.update(b"rxkad\0");
    mac.update(&64u32.to_be_bytes());
    let digest = mac.finalize().into_bytes();
    des_key::with_odd_parity(std::array::from_fn(|index| digest[index]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::hex;

    #[test]
    fn des_keys_stay_and_others_are_derived() {
        assert_eq!(session_key(1, &[3; 8]).unwrap().0, [3; 8]);
        // Expected value computed from the definition by an independent program.
        let aes = session_key(18, &(0..32).collect::<Vec<u8>>()).unwrap();
        assert_eq!(aes.0.to_vec(), hex("b60db5e30b266b16"));
        let des3: Vec<u8> = hex("850bb51358548cd05e86768c313e3bfef7511937dcf72c3e");
        assert_eq!(session_key(16, &des3).unwrap().0.to_vec(), hex("07f2340443cd5b54"));
    }

    #[test]
    fn types_without_keys_are_refused() {
        for enctype in [-1, 0, 4, 6, 8, 15] {
            assert!(session_key(enctype, &[1; 16]).is_err(), "{enctype}");
        }
        assert!(session_key(1, &[1; 7]).is_err());
        assert!(session_key(16, &[1; 23]).is_err());
        assert!(session_key(18, &[1; 6]).is_err());
    }
}
