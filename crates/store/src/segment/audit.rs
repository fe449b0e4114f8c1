//! Segments as they lie on the disk, for whoever checks them; nothing is changed.

use super::accounts::{self, Accounts};
use super::files::Files;
use super::header::HEADER_BYTES;
use super::reading;
use crate::{ChunkAddress, KeyRing, MetaStore, StoreError};
use disk::Disk;
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

/// Segment files kept open while checking.
const OPEN_FILES_MAX: usize = 64;

/// The account of a segment, as stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentAccount {
    /// Nothing was to be appended any more.
    pub sealed: bool,
    /// Offset behind the last record reserved when the account was written.
    pub end: u64,
    /// Bytes of records that nobody names.
    pub dead: u64,
}

/// What there is of one segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SegmentFacts {
    /// Length of its file; `None` without one.
    pub file_bytes: Option<u64>,
    /// Its account; `None` without one, as after a crash soon after it was begun.
    pub account: Option<SegmentAccount>,
}

impl SegmentFacts {
    /// Bytes behind the header up to the end, which is the account's or the file's if that is longer.
    pub fn record_bytes(&self) -> u64 {
        let end = self.account.map_or(0, |account| account.end).max(self.file_bytes.unwrap_or(0));
        end.saturating_sub(HEADER_BYTES)
    }
}

/// The segments of a partition. While somebody writes to it they may grow and be deleted: what is wrong
/// with a chunk counts only if a record names it still afterwards.
pub struct SegmentAudit {
    files: Files,
    segments: BTreeMap<u64, SegmentFacts>,
    damaged_accounts: Vec<Vec<u8>>,
    was_closed: bool,
}

impl SegmentAudit {
    /// Looks at the segments in `folder` and at their accounts in `meta`. Of encrypted chunks only the
    /// checksum is verified.
    ///
    /// # Errors
    /// What the disk or the metadata says.
    pub fn open(
        disk: Arc<dyn Disk>,
        folder: &Path,
        meta: &dyn MetaStore,
    ) -> Result<SegmentAudit, StoreError> {
        SegmentAudit::open_encrypted(disk, folder, meta, None)
    }

    /// Likewise; what is encrypted is decrypted with `keys`.
    ///
    /// # Errors
    /// What the disk or the metadata says.
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
                // Deleted since the folder was read.
                Err(StoreError::Io { source, .. }) if source.kind() == ErrorKind::NotFound => {}
                length => segments.entry(id).or_default().file_bytes = Some(length?),
            }
        }
        let (rows, damaged_accounts) = Accounts::load(meta)?;
        for (id, account) in rows {
            segments.entry(id).or_default().account = Some(account.facts());
        }
        Ok(SegmentAudit { files, segments, damaged_accounts, was_closed: accounts::is_closed(meta)? })
    }

    /// All segments that have a file or an account.
    pub fn segments(&self) -> &BTreeMap<u64, SegmentFacts> {
        &self.segments
    }

    /// Keys of accounts that cannot be read.
    pub fn damaged_accounts(&self) -> &[Vec<u8>] {
        &self.damaged_accounts
    }

    /// Whether the last run ended in order, so that the accounts must be exact.
    pub fn was_closed(&self) -> bool {
        self.was_closed
    }

    /// Reads a chunk from its file and verifies it; answers how many bytes it has before encoding.
    ///
    /// # Errors
    /// `Damaged` saying which file, offset and check.
    pub fn verify(&self, address: ChunkAddress) -> Result<u32, StoreError> {
        reading::verify(&self.files, address)
    }

    /// Whether the segment's file is there now.
    pub fn is_there(&self, id: u64) -> bool {
        self.files.length(id).is_ok()
    }

    /// Whether the segment's header is good.
    ///
    /// # Errors
    /// `Damaged`.
    pub fn check_header(&self, id: u64) -> Result<(), StoreError> {
        self.files.check_header(id)
    }

    /// The segment's file, for messages.
    pub fn place(&self, id: u64) -> String {
        self.files.path(id).display().to_string()
    }
}
