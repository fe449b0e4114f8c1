//! Service keys: what a cell's tickets are sealed with.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use zeroize::Zeroizing;

/// A Kerberos encryption type that tickets here may be sealed with. The numbers are those of
/// Kerberos, of keytabs, and of the subtype in KeyFileExt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Enctype {
    /// Single DES with a CRC (RFC 3961, 6.2.3). Also stands for single DES keys of any kind.
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
    /// All, those preferred for sealing tickets first: what OpenAFS 1.8 can open (18, 17) before
    /// what it cannot (20, 19), and what is broken last.
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

    /// The type with this number, if it is known here.
    pub fn from_number(number: i32) -> Option<Enctype> {
        Self::ALL.into_iter().find(|enctype| enctype.number() == number)
    }

    /// The type's number.
    pub fn number(self) -> i32 {
        self as i32
    }

    /// Bytes in a key of the type.
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

    /// The type's name in krb5.conf.
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

    /// The type under which keys are kept: one for all of single DES, whose keys are alike.
    fn family(self) -> Enctype {
        match self {
            Enctype::DesCbcMd5 => Enctype::DesCbcCrc,
            other => other,
        }
    }
}

/// Why a key was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// The encryption type is not known here.
    #[error("encryption type {got} is not supported")]
    UnsupportedType {
        /// Its number.
        got: i32,
    },
    /// The key is too long or too short for its type.
    #[error("key of {got} bytes for encryption type {enctype}, which has keys of {expected}")]
    WrongLength {
        /// The type's number.
        enctype: i32,
        /// Bytes that keys of the type have.
        expected: usize,
        /// Bytes given.
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
    /// A key of an encryption type given by number (2, DES with MD4, counts as single DES).
    pub fn new(enctype: i32, bytes: &[u8]) -> Result<ServiceKey, KeyError> {
        let number = if enctype == 2 { 1 } else { enctype };
        let enctype = Enctype::from_number(number).ok_or(KeyError::UnsupportedType { got: enctype })?;
        let (expected, got) = (enctype.key_bytes(), bytes.len());
        if got != expected {
            return Err(KeyError::WrongLength { enctype: enctype.number(), expected, got });
        }
        Ok(ServiceKey { enctype, bytes: Arc::new(Zeroizing::new(bytes.to_vec())) })
    }

    /// The key's type.
    pub fn enctype(&self) -> Enctype {
        self.enctype
    }

    /// The key's bytes; keep them secret.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The key's first eight bytes: all of a single DES key.
    pub(crate) fn des_bytes(&self) -> [u8; 8] {
        std::array::from_fn(|index| self.bytes[index])
    }
}

impl fmt::Debug for ServiceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ServiceKey({:?}, secret)", self.enctype)
    }
}

/// Where a server finds the key that a ticket names. Asked for each handshake, so an
/// implementation that changes its keys takes effect at once.
pub trait KeySource: Send + Sync {
    /// The key with that version and type. All of single DES is one type.
    fn key(&self, kvno: u32, enctype: Enctype) -> Option<ServiceKey>;

    /// That key, and a lease that says when it is not trusted any more.
    fn leased(&self, kvno: u32, enctype: Enctype) -> Option<(ServiceKey, KeyLease)>;
}

/// Says whether a key that opened a ticket is still trusted. Clones are the same lease.
#[derive(Clone, Debug, Default)]
pub struct KeyLease {
    is_revoked: Arc<AtomicBool>,
}

impl KeyLease {
    /// Whether the key was removed or replaced. What was proved with it counts no more.
    pub fn is_revoked(&self) -> bool {
        self.is_revoked.load(Relaxed)
    }

    fn revoke(&self) {
        self.is_revoked.store(true, Relaxed);
    }
}

/// Keys by version and type. Several versions may be in use at once, while a new one spreads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeySet {
    keys: BTreeMap<(Enctype, u32), ServiceKey>,
}

impl KeySet {
    /// No keys.
    pub fn new() -> KeySet {
        KeySet::default()
    }

    /// Takes the keys of types that `is_allowed` refuses out of the set and returns their versions and types.
    pub fn remove_unless(&mut self, is_allowed: impl Fn(Enctype) -> bool) -> Vec<(u32, Enctype)> {
        let refused = self.versions().filter(|(_, enctype)| !is_allowed(*enctype)).collect();
        self.keys.retain(|(enctype, _), _| is_allowed(*enctype));
        refused
    }

    /// Adds a key, in place of one with the same version and type.
    pub fn insert(&mut self, kvno: u32, key: ServiceKey) {
        self.keys.insert((key.enctype.family(), kvno), key);
    }

    /// How many keys there are.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether there is no key.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// The versions and types of the keys.
    pub fn versions(&self) -> impl Iterator<Item = (u32, Enctype)> + '_ {
        self.keys.keys().map(|(enctype, kvno)| (*kvno, *enctype))
    }

    /// The key of a type with the highest version.
    pub fn newest(&self, enctype: Enctype) -> Option<(u32, &ServiceKey)> {
        let family = enctype.family();
        let (key, value) = self.keys.range((family, 0)..=(family, u32::MAX)).next_back()?;
        Some((key.1, value))
    }

    /// The key to seal new tickets with: the newest of the first type in [`Enctype::ALL`] that
    /// there is a key of.
    pub fn preferred(&self) -> Option<(u32, &ServiceKey)> {
        Enctype::ALL.into_iter().find_map(|enctype| self.newest(enctype))
    }
}

impl KeySource for KeySet {
    fn key(&self, kvno: u32, enctype: Enctype) -> Option<ServiceKey> {
        self.keys.get(&(enctype.family(), kvno)).cloned()
    }

    /// A set does not change: its leases last.
    fn leased(&self, kvno: u32, enctype: Enctype) -> Option<(ServiceKey, KeyLease)> {
        self.key(kvno, enctype).map(|key| (key, KeyLease::default()))
    }
}

/// A set of keys that can be exchanged while servers use it (after the key files have changed).
#[derive(Debug, Default)]
pub struct KeyRing {
    /// Guards nothing but the pointer; held for no longer than it takes to copy or set it.
    keys: RwLock<Arc<KeySet>>,
    /// Leases on keys that are in the ring.
    leases: Mutex<HashMap<(u32, Enctype), KeyLease>>,
}

impl KeyRing {
    /// A ring with these keys.
    pub fn new(keys: KeySet) -> KeyRing {
        KeyRing { keys: RwLock::new(Arc::new(keys)), leases: Mutex::default() }
    }

    /// Uses these keys from now on. Connections whose keys are not among them begin no more calls.
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

    /// The keys now in use.
    pub fn current(&self) -> Arc<KeySet> {
        Arc::clone(&self.keys.read().unwrap_or_else(PoisonError::into_inner))
    }
}

impl KeySource for KeyRing {
    fn key(&self, kvno: u32, enctype: Enctype) -> Option<ServiceKey> {
        self.current().key(kvno, enctype)
    }

    fn leased(&self, kvno: u32, enctype: Enctype) -> Option<(ServiceKey, KeyLease)> {
        // Keys are replaced under the same lock: the lease is that of this key.
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
