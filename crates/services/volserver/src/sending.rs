//! The source's side of a transfer to a Cellar server: a dump in which chunks that the target has are
//! references. Chunks in objects of a bucket that the target shares are references, too.
//!
//! Before a file is sent, the target is queried for what it has of this and the following files, some dozens
//! of MiB at a time, in a separate call while the stream waits. So neither side keeps more than that in
//! memory.

use crate::dumping::{self, Upcoming};
use crate::lending::{Lent, Place};
use crate::reading::{Data, Opened, Piece, Source};
use crate::transfers::Transfer;
use afs_format::transfer::{CHUNK_BYTES, Digest, Known, Stored, Writer};
use afs_idl::cellar::{self, CHUNK_DIGESTS_MAX, CHUNK_RANGES_MAX, ChunkRange, GetChunkDigestsRequest};
use afs_idl::{CallStream, ClientConnection};
use base::AbortCode;
use std::collections::HashMap;
use volume::{ChunkAddress, ChunkPlace, VnodeStatus};

/// Minimum length of files for which the target is queried.
const COMPARED_BYTES_MIN: u64 = 2048;
/// Bytes of headers gathered before they are written.
const GATHERED_BYTES: usize = 64 << 10;

/// A chunk of a file by vnode, uniquifier and index.
type Chunk = (u32, u32, u64);

/// A transfer in progress.
pub(crate) struct Sending<'a> {
    stream: &'a mut dyn CallStream,
    writer: Option<Writer>,
    gathered: Vec<u8>,
    progress: &'a Transfer,
    target: Target<'a>,
    /// Set if the target takes over data in objects.
    lent: Option<Lent>,
}

/// The target's existing data.
struct Target<'a> {
    way: &'a dyn ClientConnection,
    transaction: i32,
    /// Whether it has any data and all queries so far succeeded.
    is_worth_asking: bool,
    /// Chunks of the last query, with the target's digests.
    known: HashMap<Chunk, Option<Digest>>,
}

impl<'a> Sending<'a> {
    /// Starts the stream of TakeVolume to a target that has `vnodes` to compare with and answers queries on
    /// `way`. Data that is lent is not sent.
    pub(crate) fn begin(
        stream: &'a mut dyn CallStream,
        way: &'a dyn ClientConnection,
        transaction: i32,
        vnodes: u64,
        progress: &'a Transfer,
        lent: Option<Lent>,
    ) -> Sending<'a> {
        let mut gathered = Vec::new();
        let writer = Some(Writer::begin(&mut gathered));
        let target = Target { way, transaction, is_worth_asking: vnodes > 0, known: HashMap::new() };
        Sending { stream, writer, gathered, progress, target, lent }
    }

    /// Returns whether the target is queried for a vnode.
    pub(crate) fn is_compared(status: &VnodeStatus) -> bool {
        !status.is_directory() && status.length >= COMPARED_BYTES_MIN
    }

    /// Writes bytes of the dump literally.
    pub(crate) fn raw(&mut self, bytes: &[u8]) -> Result<(), AbortCode> {
        if let Some(writer) = &mut self.writer {
            writer.raw(bytes, &mut self.gathered);
        }
        self.write_if_full()
    }

    /// Sends the data of a file, the first of `upcoming`.
    pub(crate) fn file(
        &mut self,
        source: &mut Source,
        opened: &Opened,
        upcoming: Upcoming<'_>,
    ) -> Result<(), AbortCode> {
        let (mut at, mut index) = (0, 0);
        while at < opened.length {
            let length = (opened.length - at).min(CHUNK_BYTES as u64);
            if !self.refer(&opened.status, index, length as u32)? {
                let read = source.data(opened, at)?;
                let Piece::Data(data) = &*read else { return Err(dumping::out_of_step()) };
                self.chunk(data, &opened.status, index, upcoming)?;
            }
            self.progress.add_done(length);
            at += length;
            index += 1;
        }
        Ok(())
    }

    /// Sends a chunk without its data, if that is lent or the chunk is a hole; returns whether it was sent.
    fn refer(&mut self, status: &VnodeStatus, index: u64, length: u32) -> Result<bool, AbortCode> {
        let (Some(lent), Some(writer)) = (&mut self.lent, &mut self.writer) else { return Ok(false) };
        match lent.place(status, index)? {
            Place::Hole => writer.zeros(length, &mut self.gathered),
            Place::Chunk(ChunkPlace { address, origin }, bytes) if bytes == length => {
                lent.named(ChunkPlace { address, origin });
                let ChunkAddress { segment: object, offset, stored_bytes: record_bytes } = address;
                let stored = Stored { length, object, offset, record_bytes, origin };
                writer.stored(&stored, &mut self.gathered);
            }
            Place::Chunk(..) | Place::Elsewhere => return Ok(false),
        }
        self.write_if_full()?;
        Ok(true)
    }

    fn chunk(
        &mut self,
        data: &Data,
        status: &VnodeStatus,
        index: u64,
        upcoming: Upcoming<'_>,
    ) -> Result<(), AbortCode> {
        let (vnode, unique, length) = (status.vnode.0, status.unique, data.length as u32);
        let Some(writer) = &mut self.writer else { return Ok(()) };
        if data.pieces.iter().all(|piece| piece.iter().all(|byte| *byte == 0)) {
            writer.zeros(length, &mut self.gathered);
            return self.write_if_full();
        }
        let digest = data.digest();
        if self.target.digest_of((vnode, unique, index), status, upcoming) == Some(digest) {
            writer.known(&Known { vnode, unique, index, length, digest }, &mut self.gathered);
        } else {
            writer.data(length, &digest, &mut self.gathered);
            self.write()?;
            data.pieces.iter().try_for_each(|piece| self.put(piece.clone()))?;
        }
        self.write_if_full()
    }

    /// Ends the stream.
    pub(crate) fn end(&mut self) -> Result<(), AbortCode> {
        // The target uses the objects only after the end.
        self.lent.as_ref().map_or(Ok(()), Lent::keep)?;
        if let Some(writer) = self.writer.take() {
            writer.end(&mut self.gathered);
        }
        self.write()
    }

    fn write_if_full(&mut self) -> Result<(), AbortCode> {
        if self.gathered.len() < GATHERED_BYTES { Ok(()) } else { self.write() }
    }

    fn write(&mut self) -> Result<(), AbortCode> {
        let gathered = std::mem::take(&mut self.gathered);
        if gathered.is_empty() { Ok(()) } else { self.put(gathered.into()) }
    }

    fn put(&mut self, bytes: bytes::Bytes) -> Result<(), AbortCode> {
        let length = bytes.len() as u64;
        self.stream.write(bytes)?;
        self.progress.add_sent(length);
        Ok(())
    }
}

impl Target<'_> {
    /// Returns the digest that the target has for a chunk of the file `status`, the first of `upcoming`.
    fn digest_of(&mut self, chunk: Chunk, status: &VnodeStatus, upcoming: Upcoming<'_>) -> Option<Digest> {
        if !self.is_worth_asking {
            return None;
        }
        if !self.known.contains_key(&chunk) {
            self.ask(&ranges(chunk, status, upcoming));
        }
        self.known.get(&chunk).copied().flatten()
    }

    fn ask(&mut self, ranges: &[ChunkRange]) {
        self.known.clear();
        let request = GetChunkDigestsRequest { transaction: self.transaction, ranges: ranges.to_vec() };
        match cellar::get_chunk_digests(self.way, &request) {
            Ok(reply) => {
                let chunks = ranges.iter().flat_map(|range| {
                    let numbers = range.first..range.first.saturating_add(range.count.into());
                    numbers.map(|index| (range.vnode, range.unique, index))
                });
                let answers =
                    reply.digests.iter().map(|answer| (answer.is_known != 0).then_some(answer.digest));
                self.known.extend(chunks.zip(answers));
            }
            // If the connection has failed, the stream reports it.
            Err(_) => self.is_worth_asking = false,
        }
    }
}

/// Returns the ranges to query along with a chunk: the rest of its file and the next files, up to the limits
/// of one call.
fn ranges(chunk: Chunk, status: &VnodeStatus, upcoming: Upcoming<'_>) -> Vec<ChunkRange> {
    let mut left = CHUNK_DIGESTS_MAX as u64;
    let mut ranges = Vec::new();
    let mut add = |vnode, unique, first: u64, length: u64| {
        let count = length.div_ceil(CHUNK_BYTES as u64).saturating_sub(first).min(left);
        left -= count;
        if count > 0 {
            ranges.push(ChunkRange { vnode, unique, first, count: count as u32 });
        }
        left > 0 && ranges.len() < CHUNK_RANGES_MAX
    };
    let (vnode, unique, first) = chunk;
    let mut has_room = add(vnode, unique, first, status.length);
    for next in upcoming.vnodes.iter().skip(1) {
        if !has_room {
            break;
        }
        if Sending::is_compared(next) && upcoming.extract.has(next) {
            has_room = add(next.vnode.0, next.unique, 0, next.length);
        }
    }
    ranges
}
