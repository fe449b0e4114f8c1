//! The data keys of a partition and the file that holds them.

use super::file::{KeyFile, KeysOnDisk};
use super::master::MasterKey;
use super::sealing::{Cipher, KEY_BYTES, SEAL_BYTES};
use crate::StoreError;
use crate::digest::digest_key;
use crate::segment::crc32c;
use bytes::Bytes;
use disk::Disk;
use rand::RngCore;
use std::collections::BTreeMap;
use std::path::Path;
use uuid::Uuid;
use zeroize::Zeroizing;

/// Name of the file, for messages.
const FILE: &str = "KEYS";

const MAGIC: &[u8; 8] = b"CELLKEYS";
const VERSION: u32 = 1;
/// Magic, version, number of keys, and the partition's UUID.
const HEADER_BYTES: usize = 8 + 4 + 4 + 16;
/// Key id, algorithm, and the wrapped key.
const ENTRY_BYTES: usize = 4 + 4 + KEY_BYTES + SEAL_BYTES;
pub(super) const CRC_BYTES: usize = 4;
const XCHACHA20_POLY1305: u32 = 1;

/// Maximum number of data keys in a ring.
const KEYS_MAX: usize = 4096;

const RING_BYTES_MAX: usize = HEADER_BYTES + KEYS_MAX * ENTRY_BYTES + CRC_BYTES;

type DataKey = Zeroizing<[u8; KEY_BYTES]>;

/// The unwrapped data keys of an open partition.
pub struct KeyRing {
    ciphers: BTreeMap<u32, Cipher>,
    newest: u32,
    digest_key: Zeroizing<[u8; KEY_BYTES]>,
}

impl KeyRing {
    /// Opens the ring in a partition's folder. With a master key but no ring, creates one: data written from
    /// then on is encrypted, existing data stays unchanged. `None` if the partition is not encrypted.
    ///
    /// # Errors
    /// `Key` if the master key is missing or wrong; `Damaged`, `Io`.
    pub fn open(
        disk: &dyn Disk,
        folder: &Path,
        uuid: Uuid,
        master: Option<&MasterKey>,
    ) -> Result<Option<KeyRing>, StoreError> {
        KeyRing::open_in(&KeysOnDisk { disk, folder }, uuid, master)
    }

    /// [`KeyRing::open`] for a ring that is kept elsewhere.
    ///
    /// # Errors
    /// Those of [`KeyRing::open`], and those of `file`.
    pub fn open_in(
        file: &dyn KeyFile,
        uuid: Uuid,
        master: Option<&MasterKey>,
    ) -> Result<Option<KeyRing>, StoreError> {
        let folder = file.folder();
        let mut stored = file.read(RING_BYTES_MAX)?;
        if let (None, Some(master)) = (&stored, master) {
            let keys = BTreeMap::from([(1, new_key())]);
            if file.replace(None, &wrap(&keys, uuid, master)?)? {
                return Ok(Some(KeyRing::new(&keys)));
            }
            // Another process has just created one.
            stored = file.read(RING_BYTES_MAX)?;
        }
        match (stored, master) {
            (None, None) => Ok(None),
            (Some(bytes), Some(master)) => Ok(Some(KeyRing::new(&unwrap(&bytes, folder, uuid, master)?))),
            (Some(_), None) => Err(key_error(
                folder,
                "the partition is encrypted, and the configuration names no master key for it",
            )),
            (None, Some(_)) => Err(key_error(folder, "its ring of keys exists, but cannot be found")),
        }
    }

    /// Opens the ring only if both a ring and a key exist; for checks, which work without one.
    pub(crate) fn look(
        disk: &dyn Disk,
        folder: &Path,
        uuid: Uuid,
        master: Option<&MasterKey>,
    ) -> Result<Option<KeyRing>, StoreError> {
        KeyRing::look_in(&KeysOnDisk { disk, folder }, uuid, master)
    }

    /// Opens the ring only if both a ring and a key exist; for checks, which work without one.
    ///
    /// # Errors
    /// `Key` if the master key is wrong; `Damaged`; those of `file`.
    pub fn look_in(
        file: &dyn KeyFile,
        uuid: Uuid,
        master: Option<&MasterKey>,
    ) -> Result<Option<KeyRing>, StoreError> {
        let (Some(bytes), Some(master)) = (file.read(RING_BYTES_MAX)?, master) else { return Ok(None) };
        Ok(Some(KeyRing::new(&unwrap(&bytes, file.folder(), uuid, master)?)))
    }

    /// Wraps the data keys with another master key and, with `adds_key`, adds a data key for new data. Nothing else
    /// is rewritten. Returns the number of data keys.
    ///
    /// # Errors
    /// `Key` if there is no ring, the old key is wrong, or another process has changed the ring meanwhile; `Damaged`;
    /// those of `file`. The ring is unchanged then, except perhaps after an error of `file`.
    pub fn rewrap_in(
        file: &dyn KeyFile,
        uuid: Uuid,
        (old, new): (&MasterKey, &MasterKey),
        adds_key: bool,
    ) -> Result<usize, StoreError> {
        let folder = file.folder();
        let stored =
            file.read(RING_BYTES_MAX)?.ok_or_else(|| key_error(folder, "the partition is not encrypted"))?;
        let mut keys = unwrap(&stored, folder, uuid, old)?;
        if adds_key {
            let id = keys.last_key_value().map_or(1, |(id, _)| id.saturating_add(1));
            keys.insert(id, new_key());
        }
        if !file.replace(Some(&stored), &wrap(&keys, uuid, new)?)? {
            return Err(key_error(folder, "another process has just changed the keys; try again"));
        }
        Ok(keys.len())
    }

    /// Creates a ring with one random key, for tests and stores in memory.
    pub fn random() -> KeyRing {
        KeyRing::new(&BTreeMap::from([(1, new_key())]))
    }

    fn new(keys: &BTreeMap<u32, DataKey>) -> KeyRing {
        let ciphers = keys.iter().map(|(id, key)| (*id, Cipher::new(key))).collect();
        let digest_key = digest_key(keys.first_key_value().map_or(&[0; KEY_BYTES], |(_, key)| key));
        KeyRing { ciphers, newest: keys.last_key_value().map_or(0, |(id, _)| *id), digest_key }
    }

    /// Returns the key for chunk digests. It is derived from the oldest data key, so that changing the master
    /// key or adding a data key does not affect it.
    pub(crate) fn digest_key(&self) -> &[u8; KEY_BYTES] {
        &self.digest_key
    }

    /// Returns the id of the key that encrypts new data.
    pub fn newest(&self) -> u32 {
        self.newest
    }

    /// Returns the number of keys.
    pub fn len(&self) -> usize {
        self.ciphers.len()
    }

    /// Whether the ring is empty; always false.
    pub fn is_empty(&self) -> bool {
        self.ciphers.is_empty()
    }

    /// Encrypts with the newest key; returns its id as well.
    pub(crate) fn seal<T: AsRef<[u8]>>(
        &self,
        context: &[u8],
        pieces: &[T],
    ) -> Result<(u32, Vec<u8>), StoreError> {
        let sealed = self.ciphers.get(&self.newest).and_then(|cipher| cipher.seal(context, pieces));
        let sealed = sealed.ok_or_else(|| key_error(Path::new(FILE), "these bytes cannot be encrypted"))?;
        Ok((self.newest, sealed))
    }

    /// Encrypts the contents of a metadata record, prefixed with the key's id.
    pub(crate) fn seal_value(&self, context: &[u8], contents: &[u8]) -> Result<Vec<u8>, StoreError> {
        let (key, sealed) = self.seal(context, &[contents])?;
        Ok([&key.to_be_bytes()[..], &sealed].concat())
    }

    /// Reverses [`KeyRing::seal_value`].
    pub(crate) fn unseal_value(&self, context: &[u8], sealed: &[u8]) -> Result<Bytes, String> {
        let (key, sealed) = sealed.split_first_chunk().ok_or("too short for encrypted data")?;
        self.unseal(u32::from_be_bytes(*key), context, sealed)
    }

    /// Decrypts, or returns a description of what is wrong.
    pub(crate) fn unseal(&self, key: u32, context: &[u8], sealed: &[u8]) -> Result<Bytes, String> {
        let cipher =
            self.ciphers.get(&key).ok_or_else(|| format!("encrypted with key {key}, which is missing"))?;
        let opened = cipher.open(context, sealed).map(Bytes::from);
        opened.ok_or_else(|| format!("does not decrypt with key {key}"))
    }
}

/// [`KeyRing::rewrap_in`] for the partition in `folder`.
pub(crate) fn rewrap(
    disk: &dyn Disk,
    folder: &Path,
    uuid: Uuid,
    masters: (&MasterKey, &MasterKey),
    adds_key: bool,
) -> Result<usize, StoreError> {
    KeyRing::rewrap_in(&KeysOnDisk { disk, folder }, uuid, masters, adds_key)
}

fn new_key() -> DataKey {
    let mut key = Zeroizing::new([0; KEY_BYTES]);
    rand::rng().fill_bytes(&mut *key);
    key
}

fn key_error(folder: &Path, what: &str) -> StoreError {
    StoreError::Key { place: folder.display().to_string(), what: what.to_owned() }
}

/// Returns the authenticated context of a wrapped key, so that the key of another partition or id is
/// rejected.
pub(super) fn context(uuid: Uuid, id: u32) -> Vec<u8> {
    [&MAGIC[..], &VERSION.to_be_bytes(), uuid.as_bytes(), &id.to_be_bytes()].concat()
}

pub(super) fn wrap(
    keys: &BTreeMap<u32, DataKey>,
    uuid: Uuid,
    master: &MasterKey,
) -> Result<Vec<u8>, StoreError> {
    if keys.len() > KEYS_MAX {
        return Err(key_error(Path::new(FILE), &format!("a ring has at most {KEYS_MAX} keys")));
    }
    let cipher = Cipher::new(master.bytes());
    let count = keys.len() as u32;
    let mut out = [&MAGIC[..], &VERSION.to_be_bytes(), &count.to_be_bytes(), uuid.as_bytes()].concat();
    for (&id, key) in keys {
        let wrapped = cipher.seal(&context(uuid, id), &[&key[..]]);
        let wrapped = wrapped.ok_or_else(|| key_error(Path::new(FILE), "a key cannot be wrapped"))?;
        out.extend_from_slice(&id.to_be_bytes());
        out.extend_from_slice(&XCHACHA20_POLY1305.to_be_bytes());
        out.extend_from_slice(&wrapped);
    }
    let crc = crc32c(&out);
    out.extend_from_slice(&crc.to_be_bytes());
    Ok(out)
}

pub(super) fn unwrap(
    bytes: &[u8],
    folder: &Path,
    uuid: Uuid,
    master: &MasterKey,
) -> Result<BTreeMap<u32, DataKey>, StoreError> {
    let place = folder.join(FILE).display().to_string();
    let damaged = |what: &str| StoreError::Damaged { place: place.clone(), what: what.to_owned() };
    let entries = parse(bytes, uuid).map_err(|what| damaged(&what))?;
    let cipher = Cipher::new(master.bytes());
    let mut keys = BTreeMap::new();
    for (id, wrapped) in entries {
        // The file's checksum is right, so these are the bytes that were written.
        let key = cipher.open(&context(uuid, id), wrapped).map(Zeroizing::new).ok_or_else(|| {
            key_error(folder, "the master key is not the one that the partition was encrypted with")
        })?;
        let key: [u8; KEY_BYTES] = key[..].try_into().map_err(|_| damaged("a key of the wrong length"))?;
        keys.insert(id, Zeroizing::new(key));
    }
    Ok(keys)
}

/// Parses ids and wrapped keys, ascending by id; the error describes what is wrong.
pub(super) fn parse(bytes: &[u8], uuid: Uuid) -> Result<Vec<(u32, &[u8])>, String> {
    let word = |bytes: &[u8], at: usize| {
        bytes.get(at..at + 4).and_then(|word| word.try_into().ok()).map(u32::from_be_bytes)
    };
    let body = bytes.split_at_checked(bytes.len().wrapping_sub(CRC_BYTES)).ok_or("too short")?;
    let (body, crc) = (body.0, word(body.1, 0));
    if body.get(..8) != Some(MAGIC) {
        return Err("not a key ring".into());
    }
    if crc != Some(crc32c(body)) {
        return Err("its checksum is wrong".into());
    }
    let version = word(body, 8).unwrap_or_default();
    if version != VERSION {
        return Err(format!("expected version {VERSION}, got {version}"));
    }
    if body.get(16..32) != Some(&uuid.as_bytes()[..]) {
        return Err("it belongs to another partition".into());
    }
    let entries = body.get(HEADER_BYTES..).unwrap_or_default();
    let count = word(body, 12).unwrap_or_default() as usize;
    if count == 0 || count > KEYS_MAX || entries.len() != count * ENTRY_BYTES {
        return Err(format!("{count} keys do not fit {} bytes", entries.len()));
    }
    let mut found: Vec<(u32, &[u8])> = Vec::with_capacity(count);
    for entry in entries.chunks_exact(ENTRY_BYTES) {
        let (id, algorithm) = (word(entry, 0).unwrap_or_default(), word(entry, 4).unwrap_or_default());
        if algorithm != XCHACHA20_POLY1305 {
            return Err(format!("key {id} has the unknown algorithm {algorithm}"));
        }
        if id <= found.last().map_or(0, |last| last.0) {
            return Err(format!("key {id} is out of order"));
        }
        found.push((id, &entry[8..]));
    }
    Ok(found)
}
