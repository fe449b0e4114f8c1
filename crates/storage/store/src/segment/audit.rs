//! A read-only view of the segments on disk, for checks.

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
}

/// What exists of one segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SegmentFacts {
    /// Length of its file; `None` if there is no file.
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

/// The segments of a partition. While the partition is written they may grow and be deleted: a damaged chunk
/// counts only if a record still references it afterwards.
pub struct SegmentAudit {
    files: Files,
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
        let (rows, damaged_accounts) = Accounts::load(meta)?;
        for (id, account) in rows {
            segments.entry(id).or_default().account = Some(account.facts());
        }
        Ok(SegmentAudit { files, segments, damaged_accounts, was_closed: accounts::is_closed(meta)? })
    }

    /// Returns all segments that have a file or an account.
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

    /// Reads a chunk from its file and verifies it; returns its length before encoding.
    ///
    /// # Errors
    /// `Damaged` with the file, the offset and the failed check.
    pub fn verify(&self, address: ChunkAddress) -> Result<u32, StoreError> {
        reading::verify(&self.files, address)
    }

    /// Whether the segment's file currently exists.
    pub fn is_there(&self, id: u64) -> bool {
        self.files.length(id).is_ok()
    }

    /// Checks the segment's header.
    ///
    /// # Errors
    /// `Damaged`.
    pub fn check_header(&self, id: u64) -> Result<(), StoreError> {
        self.files.check_header(id)
    }

    /// Returns the path of the segment's file, for messages.
    pub fn place(&self, id: u64) -> String {
        self.files.path(id).display().to_string()
    }
}
