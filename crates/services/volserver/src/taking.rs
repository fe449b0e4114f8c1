//! The target's side of a transfer from a Cellar server.
//!
//! The stream is a dump in which chunks may be references to data that the volume here already has, or that
//! was received in an earlier, interrupted transfer, or that is in objects of the same bucket. The references are resolved, each checked against its
//! digest, and the dump is restored like any other: built separately, then taken into use atomically.

use crate::codes::{self, E2BIG, ENOENT};
use crate::dumping;
use crate::references::References;
use crate::restoring::restore_parts;
use crate::server::VolumeServer;
use crate::transactions::Use;
use afs_format::transfer::{CHUNK_BYTES, Digest, Frame, Known, Reader, TransferError, ZEROS, digest};
use afs_idl::CallStream;
use afs_idl::cellar::{self, CHUNK_DIGESTS_MAX, ChunkDigest};
use afs_idl::vol::RestoreCookie;
use base::{AbortCode, CallContext, Fid, PartitionId, VnodeId};
use bytes::Bytes;
use std::collections::VecDeque;
use std::sync::Arc;
use tracing::{info, warn};
use volume::{Received, Restoration, Volume, VolumeError};

/// Base-2 logarithm of [`CHUNK_BYTES`].
pub(crate) const CHUNK_SHIFT: u8 = CHUNK_BYTES.trailing_zeros() as u8;

impl VolumeServer {
    /// OfferVolume (411): returns the number of vnodes whose data may not have to be sent.
    pub(crate) fn offer_volume(
        &self,
        caller: &CallContext<'_>,
        request: cellar::OfferVolumeRequest,
    ) -> Result<cellar::OfferVolumeReply, AbortCode> {
        let (used, volume) = self.change(caller, request.transaction, "Restore")?;
        let local = Local::new(self, &used, &volume)?;
        let received = local.received.map_or(0, |received| received.vnodes());
        Ok(cellar::OfferVolumeReply { vnodes: volume.header().file_count + received })
    }

    /// GetChunkDigests (412). Called thousands of times during a transfer, which is audited itself.
    pub(crate) fn get_chunk_digests(
        &self,
        caller: &CallContext<'_>,
        request: cellar::GetChunkDigestsRequest,
    ) -> Result<cellar::GetChunkDigestsReply, AbortCode> {
        let (used, volume) = self.change_quietly(caller, request.transaction, "Restore")?;
        let count: u64 = request.ranges.iter().map(|range| u64::from(range.count)).sum();
        if count > CHUNK_DIGESTS_MAX as u64 {
            return Err(E2BIG);
        }
        let local = Local::new(self, &used, &volume)?;
        let mut digests = Vec::with_capacity(count as usize);
        for range in &request.ranges {
            for index in 0..u64::from(range.count) {
                let chunk = local.any(range.vnode, range.unique, range.first.saturating_add(index));
                let digest = chunk.map(|pieces| digest(&pieces));
                let is_known = u32::from(digest.is_some());
                digests.push(ChunkDigest { is_known, digest: digest.unwrap_or_default() });
            }
        }
        Ok(cellar::GetChunkDigestsReply { digests })
    }

    /// BorrowObjects (416): returns whether the next transfer may name chunks of the caller's partition.
    pub(crate) fn borrow_objects(
        &self,
        caller: &CallContext<'_>,
        request: cellar::BorrowObjectsRequest,
    ) -> Result<cellar::BorrowObjectsReply, AbortCode> {
        let (used, volume) = self.change(caller, request.transaction, "Restore")?;
        let partition = u32::try_from(request.partition).ok().and_then(PartitionId::from_index);
        let owners = self.other_owners();
        let own = used.partition();
        let prefix = owners.zip(partition).and_then(|(owners, from)| owners.prefix_beside(from, own));
        let import = prefix.and_then(|prefix| {
            let import = volume.import_chunks(&prefix, request.uuid, request.loan, CHUNK_SHIFT);
            import
                .inspect_err(|error| {
                    info!(volume = %volume.id(), %error, "the data of a volume has to be sent, not borrowed");
                })
                .ok()
        });
        let identity = self.volumes().chunk_store(own).ok().and_then(|chunks| chunks.identity());
        let import = import.filter(|_| identity.is_some());
        let (accepted, borrower) = (u32::from(import.is_some()), own.index());
        used.set_import(import);
        let borrower_uuid = identity.unwrap_or_default();
        Ok(cellar::BorrowObjectsReply { accepted, borrower, borrower_uuid })
    }

    /// TakeVolume (413).
    pub(crate) fn take_volume(
        &self,
        caller: &CallContext<'_>,
        request: cellar::TakeVolumeRequest,
        stream: &mut dyn CallStream,
    ) -> Result<cellar::TakeVolumeReply, AbortCode> {
        let (used, volume) = self.change(caller, request.transaction, "Restore")?;
        let cookie = RestoreCookie {
            name: request.name,
            volume_type: request.volume_type,
            clone_id: request.clone_id,
            parent_id: volume.header().parent.0,
        };
        let (import, references) = (used.take_import(), References::of_transfer());
        let mut expander = Expander::open(Local::new(self, &used, &volume)?, &references, stream)?;
        let begun = match import {
            // What was borrowed under a loan that does not come about must not be kept for another transfer.
            Some(_) => self.volumes().restore(volume.id()),
            None => self.volumes().receive(volume.id(), used.volume_id(), self.clock()),
        };
        let is_borrowed = import.is_some();
        let restored = begun.map_err(|error| (dumping::refused(&error), None)).and_then(|mut restoration| {
            if let Some(import) = import {
                restoration.set_import(import);
            }
            restore_parts(self, &used, restoration, &cookie, (&mut expander, &references))
        });
        let is_cut_off = expander.is_cut_off;
        // Releases the data received before.
        drop(expander);
        restored.map_err(|(code, left)| {
            if let Some(left) = left.filter(|_| is_cut_off && !is_borrowed) {
                keep(&volume, *left);
            }
            code
        })?;
        if let Err(error) = self.volumes().forget_received(used.volume_id(), used.partition()) {
            warn!(volume = %volume.id(), %error, "received data of former transfers is kept longer than needed");
        }
        Ok(cellar::TakeVolumeReply)
    }
}

/// Keeps the received data for the next transfer.
fn keep(volume: &Volume, restoration: Restoration) {
    let vnodes = restoration.vnodes();
    let kept = restoration.keep_for_later();
    info!(volume = %volume.id(), vnodes, ?kept, "a transfer was interrupted; the received data is kept for \
        the next one");
}

/// Chunks available on this server.
struct Local {
    volume: Arc<Volume>,
    received: Option<Received>,
}

impl Local {
    fn new(server: &VolumeServer, used: &Use<'_>, volume: &Arc<Volume>) -> Result<Local, AbortCode> {
        let received = server.volumes().received(used.volume_id(), used.partition());
        let received = received.map_err(|error| codes::of(&error))?;
        Ok(Local { volume: Arc::clone(volume), received })
    }

    /// Returns the data stored here for a chunk, whether current or not.
    fn any(&self, vnode: u32, unique: u32, index: u64) -> Option<Vec<Bytes>> {
        self.in_received(vnode, unique, index).or_else(|| self.in_volume(vnode, unique, index).ok().flatten())
    }

    /// Returns data received before an interruption.
    fn in_received(&self, vnode: u32, unique: u32, index: u64) -> Option<Vec<Bytes>> {
        let received = self.received.as_ref().filter(|received| received.chunk_shift() == CHUNK_SHIFT)?;
        let chunk = received.chunk(VnodeId(vnode), unique, index).ok().flatten();
        chunk.map(|chunk| vec![chunk])
    }

    fn in_volume(&self, vnode: u32, unique: u32, index: u64) -> Result<Option<Vec<Bytes>>, VolumeError> {
        let fid = Fid { volume: self.volume.id(), vnode: VnodeId(vnode), unique };
        let Some(offset) = index.checked_mul(CHUNK_BYTES as u64) else { return Ok(None) };
        let mut reader = self.volume.reader(fid, offset, CHUNK_BYTES as u64)?;
        if reader.status().is_directory() || reader.remaining() == 0 {
            return Ok(None);
        }
        reader.next(CHUNK_BYTES).map(Some)
    }

    /// Returns the chunk that a reference names, if it is here and matches its digest.
    fn known(&self, known: &Known) -> Option<Vec<Bytes>> {
        let Known { vnode, unique, index, length, digest: wanted } = *known;
        let is_wanted = |pieces: &Vec<Bytes>| is_chunk(pieces, length, &wanted);
        let received = self.in_received(vnode, unique, index).filter(is_wanted);
        received.or_else(|| self.in_volume(vnode, unique, index).ok().flatten().filter(is_wanted))
    }
}

fn is_chunk(pieces: &[Bytes], length: u32, wanted: &Digest) -> bool {
    pieces.iter().map(Bytes::len).sum::<usize>() == length as usize && digest(pieces) == *wanted
}

/// Reads a transfer as the dump that it represents.
struct Expander<F> {
    local: Local,
    reader: Reader<F>,
    pieces: VecDeque<Bytes>,
    /// Bytes of the dump that were put into `pieces`.
    length: u64,
    references: References,
    is_over: bool,
    /// Whether the call itself failed, rather than its contents.
    is_cut_off: bool,
}

impl<'s> Expander<Box<dyn FnMut(usize) -> Result<Bytes, AbortCode> + 's>> {
    fn open(
        local: Local,
        references: &References,
        stream: &'s mut dyn CallStream,
    ) -> Result<Self, AbortCode> {
        let source: Box<dyn FnMut(usize) -> Result<Bytes, AbortCode> + 's> =
            Box::new(move |most| stream.read_chunk(most));
        let reader = Reader::open(source).map_err(|error| refused(&local.volume, &error))?;
        let (length, is_over, is_cut_off) = Default::default();
        let (pieces, references) = (VecDeque::new(), references.clone());
        Ok(Expander { local, reader, pieces, length, references, is_over, is_cut_off })
    }
}

fn refused(volume: &Volume, error: &TransferError<AbortCode>) -> AbortCode {
    warn!(volume = %volume.id(), %error, "a transfer is refused; the volume stays as it was");
    match error {
        TransferError::Source(code) => *code,
        TransferError::Damaged { .. } => AbortCode::VOLSERREAD_DUMPERROR,
    }
}

impl<F: FnMut(usize) -> Result<Bytes, AbortCode>> Expander<F> {
    fn put(&mut self, pieces: Vec<Bytes>) {
        self.length += pieces.iter().map(|piece| piece.len() as u64).sum::<u64>();
        self.pieces.extend(pieces);
    }

    fn fill(&mut self) -> Result<(), AbortCode> {
        match self.reader.next_frame() {
            Ok(Frame::Bytes(pieces)) => self.put(pieces),
            Ok(Frame::Known(known)) => {
                let Some(pieces) = self.local.known(&known) else {
                    let (volume, offset) = (self.local.volume.id(), self.reader.offset());
                    warn!(%volume, offset, ?known, "a transfer names a chunk that is not here");
                    return Err(AbortCode::VOLSERREAD_DUMPERROR);
                };
                self.put(pieces);
            }
            Ok(Frame::Stored(stored)) => {
                self.references.add(self.length, stored);
                // In place of the bytes, which are not read.
                self.put(vec![Bytes::from_static(&ZEROS[..stored.length as usize])]);
            }
            Ok(Frame::End) => self.is_over = true,
            Err(error) => {
                self.is_cut_off = matches!(error, TransferError::Source(_));
                return Err(refused(&self.local.volume, &error));
            }
        }
        Ok(())
    }
}

impl<F: FnMut(usize) -> Result<Bytes, AbortCode>> CallStream for Expander<F> {
    fn read(&mut self, buf: &mut [u8]) -> Result<usize, AbortCode> {
        let piece = self.read_chunk(buf.len())?;
        buf[..piece.len()].copy_from_slice(&piece);
        Ok(piece.len())
    }

    fn read_chunk(&mut self, max: usize) -> Result<Bytes, AbortCode> {
        while self.pieces.is_empty() && !self.is_over {
            self.fill()?;
        }
        let Some(mut piece) = self.pieces.pop_front() else { return Ok(Bytes::new()) };
        if piece.len() > max {
            let rest = piece.split_off(max);
            self.pieces.push_front(rest);
        }
        Ok(piece)
    }

    fn write(&mut self, _: Bytes) -> Result<(), AbortCode> {
        Err(ENOENT)
    }
}
