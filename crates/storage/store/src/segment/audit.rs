//! A read-only view of segments, for checks.

use super::accounts::{self, Account, Accounts};
use super::files::Files;
use super::header::HEADER_BYTES;
use super::objects::{self, Bucket};
use super::reading;
use crate::{ChunkAddress, KeyRing, MetaStore, StoreError};
use disk::Disk;
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

/// Maximum number of segment files kept open while checking.
const OPEN_FILES_MAX: usize = 64;

/// A segment's account as stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentAccount {
    /// Whether appending to the segment had ended.
    pub sealed: bool,
    /// End offset of the last record reserved when the account was written.
    pub end: u64,
    /// Bytes of records that no metadata references.
    pub dead: u64,
    /// For a copy of another partition's object, the id in its records.
    pub origin: Option<u64>,
}

/// What exists of one segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SegmentFacts {
    /// Length of its file or object; `None` if there is none.
    pub file_bytes: Option<u64>,
    /// Its account; `None` if there is none, for example after a crash soon after the segment was created.
    pub account: Option<SegmentAccount>,
}

impl SegmentFacts {
    /// Returns the bytes between the header and the end, which is the account's end or the file's if that is
    /// longer.
    pub fn record_bytes(&self) -> u64 {
        let end = self.account.map_or(0, |account| account.end).max(self.file_bytes.unwrap_or(0));
        end.saturating_sub(HEADER_BYTES)
    }
}

/// Reading of segments, wherever they are.
pub(super) trait Medium: Send + Sync {
    /// Reads a chunk and verifies it; returns its length before encoding.
    fn verify(&self, address: ChunkAddress) -> Result<u32, StoreError>;

    /// Whether the segment exists now.
    fn is_there(&self, id: u64) -> bool;

    /// Checks the segment's header.
    fn check_header(&self, id: u64) -> Result<(), StoreError>;

    /// Returns the path or the address of the segment, for messages.
    fn place(&self, id: u64) -> String;
}

impl Medium for Files {
    fn verify(&self, address: ChunkAddress) -> Result<u32, StoreError> {
        reading::verify(self, address)
    }

    fn is_there(&self, id: u64) -> bool {
        self.length(id).is_ok()
    }

    fn check_header(&self, id: u64) -> Result<(), StoreError> {
        Files::check_header(self, id)
    }

    fn place(&self, id: u64) -> String {
        self.path(id).display().to_string()
    }
}

/// The segments of a partition. While the partition is written they may grow and be deleted: a damaged chunk
/// counts only if a record still references it afterwards.
pub struct SegmentAudit {
    medium: Box<dyn Medium>,
    segments: BTreeMap<u64, SegmentFacts>,
    damaged_accounts: Vec<Vec<u8>>,
    was_closed: bool,
}

impl SegmentAudit {
    /// Reads the segments in `folder` and their accounts in `meta`. Of encrypted chunks only the checksum is
    /// verified.
    ///
    /// # Errors
    /// Errors of the disk or the metadata.
    pub fn open(
        disk: Arc<dyn Disk>,
        folder: &Path,
        meta: &dyn MetaStore,
    ) -> Result<SegmentAudit, StoreError> {
        SegmentAudit::open_encrypted(disk, folder, meta, None)
    }

    /// Reads the segments as [`SegmentAudit::open`] does, and decrypts encrypted chunks with `keys`.
    ///
    /// # Errors
    /// Errors of the disk or the metadata.
    pub fn open_encrypted(
        disk: Arc<dyn Disk>,
        folder: &Path,
        meta: &dyn MetaStore,
        keys: Option<Arc<KeyRing>>,
    ) -> Result<SegmentAudit, StoreError> {
        let files = Files::new(disk, folder, keys, OPEN_FILES_MAX);
        let mut segments: BTreeMap<u64, SegmentFacts> = BTreeMap::new();
        for id in files.list()? {
            match files.length(id) {
                // Deleted since the folder was listed.
                Err(StoreError::Io { source, .. }) if source.kind() == ErrorKind::NotFound => {}
                length => segments.entry(id).or_default().file_bytes = Some(length?),
            }
        }
        SegmentAudit::with_accounts(Box::new(files), segments, meta)
    }

    /// Reads the segments that are objects of a bucket, and their accounts in `meta`. Encrypted chunks are decrypted
    /// with `keys`; without, only their checksums are verified.
    ///
    /// # Errors
    /// `Unavailable`; errors of the metadata.
    pub fn of_bucket(
        bucket: Arc<dyn Bucket>,
        meta: &dyn MetaStore,
        keys: Option<Arc<KeyRing>>,
    ) -> Result<SegmentAudit, StoreError> {
        let rows = Accounts::load(meta)?;
        let (bucket, borrowed) = objects::located(bucket, meta, &rows)?;
        let lengths = objects::lengths(&*bucket, &borrowed)?;
        let facts =
            |(id, length): (&u64, &u64)| (*id, SegmentFacts { file_bytes: Some(*length), account: None });
        let segments = lengths.iter().map(facts).collect();
        let origin = |(id, account): (&u64, &Account)| Some((*id, account.facts().origin?));
        let origins = rows.0.iter().filter_map(origin).collect();
        let reader = objects::ObjectReader::new(bucket, keys, lengths, origins);
        SegmentAudit::with_accounts(Box::new(reader), segments, meta)
    }

    fn with_accounts(
        medium: Box<dyn Medium>,
        mut segments: BTreeMap<u64, SegmentFacts>,
        meta: &dyn MetaStore,
    ) -> Result<SegmentAudit, StoreError> {
        let (rows, damaged_accounts) = Accounts::load(meta)?;
        for (id, account) in rows {
            segments.entry(id).or_default().account = Some(account.facts());
        }
        Ok(SegmentAudit { medium, segments, damaged_accounts, was_closed: accounts::is_closed(meta)? })
    }

    /// Returns all segments that have a file, an object or an account.
    pub fn segments(&self) -> &BTreeMap<u64, SegmentFacts> {
        &self.segments
    }

    /// Returns the keys of accounts that cannot be read.
    pub fn damaged_accounts(&self) -> &[Vec<u8>] {
        &self.damaged_accounts
    }

    /// Whether the last run ended cleanly, so that the accounts must be exact.
    pub fn was_closed(&self) -> bool {
        self.was_closed
    }

    /// Reads a chunk from its segment and verifies it; returns its length before encoding.
    ///
    /// # Errors
    /// `Damaged` with the segment, the offset and the failed check; `Io`, `Unavailable`.
    pub fn verify(&self, address: ChunkAddress) -> Result<u32, StoreError> {
        self.medium.verify(address)
    }

    /// Whether the segment currently exists.
    pub fn is_there(&self, id: u64) -> bool {
        self.medium.is_there(id)
    }

    /// Checks the segment's header.
    ///
    /// # Errors
    /// `Damaged`.
    pub fn check_header(&self, id: u64) -> Result<(), StoreError> {
        self.medium.check_header(id)
    }

    /// Returns the path or the address of the segment, for messages.
    pub fn place(&self, id: u64) -> String {
        self.medium.place(id)
    }
}
