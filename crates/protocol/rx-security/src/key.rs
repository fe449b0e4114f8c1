//! Service keys, which encrypt a cell's tickets.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use zeroize::Zeroizing;

/// A Kerberos encryption type supported for tickets. The numbers are those of Kerberos, of keytabs, and of
/// the subtype in KeyFileExt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Enctype {
    /// Single DES with a CRC (RFC 3961, 6.2.3). Also represents single DES keys of any kind.
    DesCbcCrc = 1,
    /// Single DES with MD5 (RFC 3961, 6.2.1).
    DesCbcMd5 = 3,
    /// Triple DES with HMAC-SHA1 (RFC 3961, 6.3).
    Des3CbcHmacSha1 = 16,
    /// AES-128 with HMAC-SHA1 (RFC 3962).
    Aes128CtsHmacSha1 = 17,
    /// AES-256 with HMAC-SHA1 (RFC 3962).
    Aes256CtsHmacSha1 = 18,
    /// AES-128 with HMAC-SHA256 (RFC 8009).
    Aes128CtsHmacSha256 = 19,
    /// AES-256 with HMAC-SHA384 (RFC 8009).
    Aes256CtsHmacSha384 = 20,
    /// RC4 with HMAC-MD5 (RFC 4757).
    Rc4Hmac = 23,
}

impl Enctype {
    /// All types in order of preference for sealing tickets: those that OpenAFS 1.8 can open (18, 17) before
    /// those that it cannot (20, 19), and broken ones last.
    pub const ALL: [Enctype; 8] = [
        Enctype::Aes256CtsHmacSha1,
        Enctype::Aes128CtsHmacSha1,
        Enctype::Aes256CtsHmacSha384,
        Enctype::Aes128CtsHmacSha256,
        Enctype::Des3CbcHmacSha1,
        Enctype::Rc4Hmac,
        Enctype::DesCbcMd5,
        Enctype::DesCbcCrc,
    ];

    /// Returns the type with this number, if it is supported.
    pub fn from_number(number: i32) -> Option<Enctype> {
        Self::ALL.into_iter().find(|enctype| enctype.number() == number)
    }

    /// Returns the number of the type.
    pub fn number(self) -> i32 {
        self as i32
    }

    /// Returns the length of the type's keys in bytes.
    pub fn key_bytes(self) -> usize {
        match self {
            Enctype::DesCbcCrc | Enctype::DesCbcMd5 => 8,
            Enctype::Des3CbcHmacSha1 => 24,
            Enctype::Aes128CtsHmacSha1 | Enctype::Aes128CtsHmacSha256 | Enctype::Rc4Hmac => 16,
            Enctype::Aes256CtsHmacSha1 | Enctype::Aes256CtsHmacSha384 => 32,
        }
    }

    /// Whether the type is broken: single and triple DES, and RC4 (RFC 6649, RFC 8429).
    pub fn is_weak(self) -> bool {
        match self {
            Enctype::DesCbcCrc | Enctype::DesCbcMd5 | Enctype::Des3CbcHmacSha1 | Enctype::Rc4Hmac => true,
            Enctype::Aes128CtsHmacSha1
            | Enctype::Aes256CtsHmacSha1
            | Enctype::Aes128CtsHmacSha256
            | Enctype::Aes256CtsHmacSha384 => false,
        }
    }

    /// Returns the name of the type in krb5.conf.
    pub fn name(self) -> &'static str {
        match self {
            Enctype::DesCbcCrc => "des-cbc-crc",
            Enctype::DesCbcMd5 => "des-cbc-md5",
            Enctype::Des3CbcHmacSha1 => "des3-cbc-sha1",
            Enctype::Aes128CtsHmacSha1 => "aes128-cts-hmac-sha1-96",
            Enctype::Aes256CtsHmacSha1 => "aes256-cts-hmac-sha1-96",
            Enctype::Aes128CtsHmacSha256 => "aes128-cts-hmac-sha256-128",
            Enctype::Aes256CtsHmacSha384 => "aes256-cts-hmac-sha384-192",
            Enctype::Rc4Hmac => "arcfour-hmac",
        }
    }

    /// Returns the type under which keys are stored: the same one for all of single DES, whose keys are
    /// identical.
    fn family(self) -> Enctype {
        match self {
            Enctype::DesCbcMd5 => Enctype::DesCbcCrc,
            other => other,
        }
    }
}

/// The reason why a key was rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// The encryption type is not supported.
    #[error("encryption type {got} is not supported")]
    UnsupportedType {
        /// Number of the type.
        got: i32,
    },
    /// The key is too long or too short for its type.
    #[error("key of {got} bytes for encryption type {enctype}, which has keys of {expected}")]
    WrongLength {
        /// Number of the type.
        enctype: i32,
        /// Length of the type's keys in bytes.
        expected: usize,
        /// Length of the given key in bytes.
        got: usize,
    },
}

/// A service key. Cheap to clone; the bytes are wiped with the last clone and never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct ServiceKey {
    enctype: Enctype,
    bytes: Arc<Zeroizing<Vec<u8>>>,
}

impl ServiceKey {
    /// Creates a key of an encryption type given by number (2, DES with MD4, counts as single DES).
    pub fn new(enctype: i32, bytes: &[u8]) -> Result<ServiceKey, KeyError> {
        let number = if enctype == 2 { 1 } else { enctype };
        let enctype = Enctype::from_number(number).ok_or(KeyError::UnsupportedType { got: enctype })?;
        let (expected, got) = (enctype.key_bytes(), bytes.len());
        if got != expected {
            return Err(KeyError::WrongLength { enctype: enctype.number(), expected, got });
        }
        Ok(ServiceKey { enctype, bytes: Arc::new(Zeroizing::new(bytes.to_vec())) })
    }

    /// Returns the type of the key.
    pub fn enctype(&self) -> Enctype {
        self.enctype
    }

    /// Returns the secret bytes of the key.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the first eight bytes, which are the whole key for single DES.
    pub(crate) fn des_bytes(&self) -> [u8; 8] {
        std::array::from_fn(|index| self.bytes[index])
    }
}

impl fmt::Debug for ServiceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ServiceKey({:?}, secret)", self.enctype)
    }
}

/// A source of the keys that tickets name. It is queried for each handshake, so changed keys take effect
/// immediately.
pub trait KeySource: Send + Sync {
    /// Returns the key with this version and type. All of single DES is one type.
    fn key(&self, kvno: u32, enctype: Enctype) -> Option<ServiceKey>;

    /// Returns this key with a lease that ends when the key is no longer trusted.
    fn leased(&self, kvno: u32, enctype: Enctype) -> Option<(ServiceKey, KeyLease)>;
}

/// Records whether a key that opened a ticket is still trusted. Clones share the same lease.
#[derive(Clone, Debug, Default)]
pub struct KeyLease {
    is_revoked: Arc<AtomicBool>,
}

impl KeyLease {
    /// Whether the key was removed or replaced, which invalidates everything proved with it.
    pub fn is_revoked(&self) -> bool {
        self.is_revoked.load(Relaxed)
    }

    fn revoke(&self) {
        self.is_revoked.store(true, Relaxed);
    }
}

/// Keys by version and type. Several versions may be valid at the same time, while a new one is being
/// distributed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeySet {
    keys: BTreeMap<(Enctype, u32), ServiceKey>,
}

impl KeySet {
    /// Creates an empty set.
    pub fn new() -> KeySet {
        KeySet::default()
    }

    /// Removes the keys of types that `is_allowed` rejects, and returns their versions and types.
    pub fn remove_unless(&mut self, is_allowed: impl Fn(Enctype) -> bool) -> Vec<(u32, Enctype)> {
        let refused = self.versions().filter(|(_, enctype)| !is_allowed(*enctype)).collect();
        self.keys.retain(|(enctype, _), _| is_allowed(*enctype));
        refused
    }

    /// Adds a key, replacing one with the same version and type.
    pub fn insert(&mut self, kvno: u32, key: ServiceKey) {
        self.keys.insert((key.enctype.family(), kvno), key);
    }

    /// Returns the number of keys.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Returns the versions and types of the keys.
    pub fn versions(&self) -> impl Iterator<Item = (u32, Enctype)> + '_ {
        self.keys.keys().map(|(enctype, kvno)| (*kvno, *enctype))
    }

    /// Returns the key of a type with the highest version.
    pub fn newest(&self, enctype: Enctype) -> Option<(u32, &ServiceKey)> {
        let family = enctype.family();
        let (key, value) = self.keys.range((family, 0)..=(family, u32::MAX)).next_back()?;
        Some((key.1, value))
    }

    /// Returns the key for sealing new tickets: the newest one of the first type in [`Enctype::ALL`] that has
    /// a key.
    pub fn preferred(&self) -> Option<(u32, &ServiceKey)> {
        Enctype::ALL.into_iter().find_map(|enctype| self.newest(enctype))
    }
}

impl KeySource for KeySet {
    fn key(&self, kvno: u32, enctype: Enctype) -> Option<ServiceKey> {
        self.keys.get(&(enctype.family(), kvno)).cloned()
    }

    /// Sets are immutable, so their leases never end.
    fn leased(&self, kvno: u32, enctype: Enctype) -> Option<(ServiceKey, KeyLease)> {
        self.key(kvno, enctype).map(|key| (key, KeyLease::default()))
    }
}

/// A set of keys that can be replaced while servers use it (after the key files have changed).
#[derive(Debug, Default)]
pub struct KeyRing {
    /// The lock guards only the pointer and is held just to copy or set it.
    keys: RwLock<Arc<KeySet>>,
    /// Leases of the keys in the ring.
    leases: Mutex<HashMap<(u32, Enctype), KeyLease>>,
}

impl KeyRing {
    /// Creates a ring with these keys.
    pub fn new(keys: KeySet) -> KeyRing {
        KeyRing { keys: RwLock::new(Arc::new(keys)), leases: Mutex::default() }
    }

    /// Replaces the keys. Connections that were authenticated with a removed key can start no more calls.
    pub fn replace(&self, keys: KeySet) {
        let new = Arc::new(keys);
        let mut leases = self.leases.lock().unwrap_or_else(PoisonError::into_inner);
        let old = std::mem::replace(
            &mut *self.keys.write().unwrap_or_else(PoisonError::into_inner),
            Arc::clone(&new),
        );
        leases.retain(|(kvno, enctype), lease| {
            let stays = old.key(*kvno, *enctype) == new.key(*kvno, *enctype);
            if !stays {
                lease.revoke();
            }
            stays
        });
    }

    /// Returns the current keys.
    pub fn current(&self) -> Arc<KeySet> {
        Arc::clone(&self.keys.read().unwrap_or_else(PoisonError::into_inner))
    }
}

impl KeySource for KeyRing {
    fn key(&self, kvno: u32, enctype: Enctype) -> Option<ServiceKey> {
        self.current().key(kvno, enctype)
    }

    fn leased(&self, kvno: u32, enctype: Enctype) -> Option<(ServiceKey, KeyLease)> {
        // Keys are replaced under the same lock, so the lease belongs to this key.
        let mut leases = self.leases.lock().unwrap_or_else(PoisonError::into_inner);
        let key = self.key(kvno, enctype)?;
        Some((key, leases.entry((kvno, enctype)).or_default().clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_found_by_version_and_type() {
        let mut keys = KeySet::new();
        keys.insert(3, ServiceKey::new(18, &[3; 32]).unwrap());
        keys.insert(4, ServiceKey::new(18, &[4; 32]).unwrap());
        keys.insert(9, ServiceKey::new(1, &[9; 8]).unwrap());
        assert_eq!(keys.key(3, Enctype::Aes256CtsHmacSha1).unwrap().bytes(), [3; 32]);
        assert!(keys.key(3, Enctype::Aes128CtsHmacSha1).is_none());
        assert!(keys.key(5, Enctype::Aes256CtsHmacSha1).is_none());
        assert_eq!(keys.key(9, Enctype::DesCbcMd5).unwrap().bytes(), [9; 8]);
        assert_eq!(keys.newest(Enctype::Aes256CtsHmacSha1).unwrap().0, 4);
        assert_eq!(keys.preferred().unwrap().0, 4);
        let ring = KeyRing::new(keys);
        ring.replace(KeySet::new());
        assert!(ring.key(4, Enctype::Aes256CtsHmacSha1).is_none());
    }

    #[test]
    fn leases_end_with_their_keys() {
        let set = |keys: &[(u32, u8)]| {
            let mut set = KeySet::new();
            for (kvno, byte) in keys {
                set.insert(*kvno, ServiceKey::new(18, &[*byte; 32]).unwrap());
            }
            set
        };
        let ring = KeyRing::new(set(&[(3, 3), (4, 4), (5, 5)]));
        let lease = |kvno| ring.leased(kvno, Enctype::Aes256CtsHmacSha1).map(|(_, lease)| lease);
        assert!(lease(6).is_none());
        let leases = [3, 4, 5].map(|kvno| lease(kvno).unwrap());
        ring.replace(set(&[(3, 3), (5, 9), (6, 6)]));
        assert_eq!(leases.each_ref().map(KeyLease::is_revoked), [false, true, true]);
        ring.replace(set(&[(6, 6)]));
        assert!(leases[0].is_revoked());
        assert!(!lease(6).unwrap().is_revoked());
    }

    #[test]
    fn bad_keys_are_refused_and_good_ones_not_printed() {
        let wrong = ServiceKey::new(18, &[0; 16]).unwrap_err();
        assert_eq!(wrong, KeyError::WrongLength { enctype: 18, expected: 32, got: 16 });
        assert_eq!(ServiceKey::new(99, &[]).unwrap_err(), KeyError::UnsupportedType { got: 99 });
        let shown = format!("{:?}", ServiceKey::new(17, &[0xab; 16]).unwrap());
        assert_eq!(shown, "ServiceKey(Aes128CtsHmacSha1, secret)");
    }
}
