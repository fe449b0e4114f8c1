//! What a batch in the log says about the ones before it: up to which change everything was durable when it was written.
//!
//! RocksDB takes a record whose checksum is wrong for the last write before a crash, and everything before it for the
//! whole log. A later batch that claims more than was read proves otherwise: the medium has lost what was durable. Claims
//! stay true whatever a crash leaves of the batches that contain them. Format: docs/reference/formats/partition.md.

use super::survey::BATCH_HEADER_BYTES;
use crate::StoreError;
use crate::home::failed;
use crate::segment::crc32c;
use rocksdb::WriteBatch;
use std::fs::File;
use std::io::{ErrorKind, Read as _};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::AcqRel, Ordering::Acquire};

/// Bytes of a claim: the key, the number of the change, and the checksum of both.
pub(super) const BYTES: usize = KEY_BYTES + 8 + 4;
/// What precedes a claim in a batch: RocksDB's type of a record that is only for the log, and the claim's length.
pub(super) const TAG: [u8; 2] = [3, BYTES as u8];

const KEY_BYTES: usize = 8;
/// RocksDB's file with the id of the database, which never changes.
const IDENTITY: &str = "IDENTITY";
/// What is read of it; it has 36 bytes.
const IDENTITY_BYTES_MAX: u64 = 1024;
/// Key derivation context, which is also the version of the format.
const CONTEXT: &str = "cellar 2026-11-29 claims in the metadata log";

/// Distinguishes claims from other contents of the log, which users determine in part. No user knows it.
#[derive(Clone, Debug)]
pub(super) struct Key([u8; KEY_BYTES]);

impl Key {
    /// Returns the key of the database in this folder; `None` if it has no id yet.
    pub(super) fn of(folder: &Path) -> Result<Option<Key>, StoreError> {
        let path = folder.join(IDENTITY);
        let mut identity = Vec::new();
        let read =
            File::open(&path).and_then(|file| file.take(IDENTITY_BYTES_MAX).read_to_end(&mut identity));
        match read {
            Ok(_) => Ok(Some(Key::from(&identity))),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(failed("read", &path, error)),
        }
    }

    /// Derives the key from the id of the database.
    pub(super) fn from(identity: &[u8]) -> Key {
        let mut key = [0; KEY_BYTES];
        key.copy_from_slice(&blake3::derive_key(CONTEXT, identity)[..KEY_BYTES]);
        Key(key)
    }

    /// Returns the claim that everything up to the change `durable` is durable.
    pub(super) fn claim(&self, durable: u64) -> [u8; BYTES] {
        let mut claim = [0; BYTES];
        let (covered, sum) = claim.split_at_mut(KEY_BYTES + 8);
        covered[..KEY_BYTES].copy_from_slice(&self.0);
        covered[KEY_BYTES..].copy_from_slice(&durable.to_le_bytes());
        sum.copy_from_slice(&crc32c(covered).to_le_bytes());
        claim
    }

    /// Returns the claims in `bytes`: where they begin, and the change.
    pub(super) fn find(&self, bytes: &[u8]) -> impl Iterator<Item = (usize, u64)> {
        bytes.windows(BYTES).enumerate().filter_map(|(at, window)| {
            let number = window.strip_prefix(&self.0)?.first_chunk().copied()?;
            let durable = u64::from_le_bytes(number);
            (window == self.claim(durable)).then_some((at, durable))
        })
    }
}

/// Puts claims into the batches of an open database.
pub(super) struct Claims {
    key: Option<Key>,
    /// The newest change that is known to be durable. 0 until the first sync.
    durable: AtomicU64,
}

impl Claims {
    pub(super) fn new(key: Option<Key>) -> Claims {
        Claims { key, durable: AtomicU64::new(0) }
    }

    /// Records that everything up to the change `durable` is durable.
    pub(super) fn advance(&self, durable: u64) {
        self.durable.fetch_max(durable, AcqRel);
    }

    /// Returns a batch that contains only a claim.
    pub(super) fn batch(&self) -> WriteBatch {
        let Some(key) = &self.key else { return WriteBatch::default() };
        let mut batch = [0; BATCH_HEADER_BYTES + TAG.len() + BYTES];
        let (tag, claim) = batch[BATCH_HEADER_BYTES..].split_at_mut(TAG.len());
        tag.copy_from_slice(&TAG);
        claim.copy_from_slice(&key.claim(self.durable.load(Acquire)));
        WriteBatch::from_data(&batch)
    }
}
