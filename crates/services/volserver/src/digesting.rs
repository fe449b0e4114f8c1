//! DigestContents: computes a 32-byte digest of a volume's contents on its own server.
//!
//! One call processes a limited number of bytes and vnodes, so that it neither occupies a worker for long nor
//! approaches a time limit; the progress is kept in the transaction.

use crate::dumping::{dumped, failed};
use crate::server::VolumeServer;
use afs_format::contents::{Contents, VnodeContents};
use afs_idl::cellar;
use base::{AbortCode, CallContext, Fid, VnodeId};
use parking_lot::Mutex;
use std::sync::Arc;
use volume::{VnodeStatus, Volume, VolumeError};

/// Bytes of data that one call reads.
const STEP_BYTES: u64 = 128 << 20;
/// Vnodes that one call processes.
const STEP_VNODES: usize = 5000;
/// Size of the pieces in which data is read.
const PIECE_BYTES: usize = 256 << 10;

/// A digest in progress.
pub(crate) struct Digesting(Mutex<State>);

struct State {
    volume: Arc<Volume>,
    changes: u32,
    contents: Contents,
    /// The next vnode to process; `None` when all have been.
    next: Option<VnodeId>,
    file: Option<File>,
}

/// A partly processed file.
struct File {
    fid: Fid,
    data_version: u64,
    at: u64,
    contents: VnodeContents,
}

/// Remaining budget of a call.
struct Left {
    bytes: u64,
    vnodes: usize,
}

impl VolumeServer {
    /// DigestContents (414). Called repeatedly until the digest is complete.
    pub(crate) fn digest_contents(
        &self,
        caller: &CallContext<'_>,
        request: cellar::DigestContentsRequest,
    ) -> Result<cellar::DigestContentsReply, AbortCode> {
        let (used, volume) = self.change_quietly(caller, request.transaction, "Dump")?;
        let digesting = used.digesting(|| Digesting(Mutex::new(State::begin(&volume))));
        let mut state = digesting.0.lock();
        if !Arc::ptr_eq(&state.volume, &volume) || state.changes != volume.header().update_counter {
            *state = State::begin(&volume);
        }
        let mut left = Left { bytes: STEP_BYTES, vnodes: STEP_VNODES };
        while state.next.is_some() && left.has_any() {
            if let Err(code) = state.step(&mut left) {
                // A partly digested file cannot be resumed after an error.
                *state = State::begin(&volume);
                return Err(code);
            }
        }
        let sum = state.contents.sum();
        let done = u32::from(state.next.is_none());
        Ok(cellar::DigestContentsReply { done, vnodes: sum.vnodes, bytes: sum.bytes, digest: sum.hash })
    }
}

impl Left {
    fn has_any(&self) -> bool {
        self.bytes > 0 && self.vnodes > 0
    }
}

impl State {
    fn begin(volume: &Arc<Volume>) -> State {
        let changes = volume.header().update_counter;
        let (contents, next) = (Contents::default(), Some(VnodeId(0)));
        State { volume: Arc::clone(volume), changes, contents, next, file: None }
    }

    /// Continues with the current file, or with the next vnodes.
    fn step(&mut self, left: &mut Left) -> Result<(), AbortCode> {
        if let Some(file) = self.file.take() {
            return self.data(file, left);
        }
        let Some(from) = self.next else { return Ok(()) };
        let mut found: Vec<VnodeStatus> = Vec::new();
        let most = left.vnodes;
        let listed = self.volume.vnodes(from, &mut |status| {
            found.push(*status);
            found.len() < most
        });
        listed.map_err(|error| failed(&error))?;
        let is_last = found.len() < most;
        for status in found {
            self.next = status.vnode.0.checked_add(1).map(VnodeId);
            left.vnodes = left.vnodes.saturating_sub(1);
            self.vnode(&status, left)?;
            if self.file.is_some() || !left.has_any() {
                return Ok(());
            }
        }
        if is_last {
            self.next = None;
        }
        Ok(())
    }

    fn vnode(&mut self, status: &VnodeStatus, left: &mut Left) -> Result<(), AbortCode> {
        let fid = status.fid(self.volume.id());
        let mut reader = self.volume.reader(fid, 0, u64::MAX).map_err(|error| failed(&error))?;
        let vnode = dumped(&self.volume, fid, &reader)?;
        let begun = VnodeContents::begin(&vnode);
        let mut contents = begun.ok_or_else(|| failed(&VolumeError::Invalid("a vnode without a status")))?;
        if !contents.is_directory() {
            let data_version = reader.status().data_version;
            return self.data(File { fid, data_version, at: 0, contents }, left);
        }
        let blob = reader.directory().map_err(|error| failed(&error))?;
        left.bytes = left.bytes.saturating_sub(blob.length_bytes());
        contents.directory(&blob);
        self.contents.add(&contents.hash(), contents.length());
        Ok(())
    }

    /// Processes data of a file, as much as the budget permits.
    fn data(&mut self, mut file: File, left: &mut Left) -> Result<(), AbortCode> {
        let mut reader = self.volume.reader(file.fid, file.at, u64::MAX).map_err(|error| failed(&error))?;
        if reader.status().data_version != file.data_version {
            return Err(failed(&VolumeError::Busy(self.volume.id())));
        }
        while file.at < file.contents.length() {
            if left.bytes == 0 {
                self.file = Some(file);
                return Ok(());
            }
            let pieces = reader.next(PIECE_BYTES).map_err(|error| failed(&error))?;
            let length: usize = pieces.iter().map(bytes::Bytes::len).sum();
            if length == 0 {
                return Err(failed(&VolumeError::Busy(self.volume.id())));
            }
            for piece in &pieces {
                file.contents.data(piece);
            }
            file.at += length as u64;
            left.bytes = left.bytes.saturating_sub(length as u64);
        }
        self.contents.add(&file.contents.hash(), file.contents.length());
        Ok(())
    }
}
