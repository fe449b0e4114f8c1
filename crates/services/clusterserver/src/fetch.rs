//! Fetches whose data the front reads from the bucket itself.
//!
//! The owner answers everything but the data: the caller's rights, the status, a promise, and where the data is (`Fetch` in
//! `idl/cluster.idl`). What an object of the bucket contains never changes, so the bytes that the front reads are those of
//! the status. A chunk that is not there any more, or is not what it should be, is sent by the owner, like everything after
//! it.

use crate::counters::{Tally, add, count};
use crate::environment::Data;
use crate::outgoing::{PIECE_BYTES, Trouble};
use crate::pieces::{Answer, MALFORMED, Piece};
use crate::scope;
use afs_idl::cluster::NAMED_BYTES_MIN;
use afs_idl::{CallStream, fs};
use base::AbortCode;
use bytes::Bytes;
use cluster_proto::{Epoch, PartitionName};
use std::ops::Range;
use store::{ChunkPlace, StoreError};

/// Number of chunks that are announced beyond the one that is read.
const AHEAD_MAX: usize = 8;

static ZEROS: [u8; PIECE_BYTES] = [0; PIECE_BYTES];

/// A client's fetch that is long enough, and what it has got of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fetch {
    pub(crate) fid: fs::Fid,
    position: u64,
    length: u64,
    /// Whether the length of the data has two words in the reply.
    is_long: bool,
    begun: Option<Begun>,
    sent: u64,
    has_read: bool,
    /// Whether the data in the bucket cannot be read here.
    is_unreadable: bool,
}

/// The file as the owner has described it first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Begun {
    epoch: Epoch,
    version: u64,
    /// Number of bytes that the client gets.
    length: u64,
}

/// What the next question asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) position: u64,
    pub(crate) length: u64,
    /// Whether chunks may be named.
    pub(crate) names: bool,
}

impl Fetch {
    /// Returns the fetch that a request is, if it is one of many bytes; `None` for everything else.
    pub(crate) fn of(request: &[u8]) -> Option<Fetch> {
        let opcode = scope::opcode(request);
        let is_long = opcode == fs::FETCH_DATA64;
        let arguments = request.get(4..)?;
        let (fid, position, length) = if is_long {
            let fs::FetchData64Request { fid, position, length } = xdr::from_slice(arguments).ok()?;
            (fid, position, length)
        } else if opcode == fs::FETCH_DATA {
            let fs::FetchDataRequest { fid, position, length } = xdr::from_slice(arguments).ok()?;
            (fid, position.into(), length.into())
        } else {
            return None;
        };
        let (position, length) = (u64::try_from(position).ok()?, u64::try_from(length).ok()?);
        let is_big = length >= NAMED_BYTES_MIN as u64;
        is_big.then_some(Fetch {
            fid,
            position,
            length,
            is_long,
            begun: None,
            sent: 0,
            has_read: false,
            is_unreadable: false,
        })
    }

    /// Maximum size of a request that may be a fetch.
    pub(crate) fn request_bytes(opcode: u32) -> Option<usize> {
        match opcode {
            fs::FETCH_DATA => Some(24),
            fs::FETCH_DATA64 => Some(32),
            _ => None,
        }
    }

    /// Whether the client has got a part of the reply.
    pub(crate) fn has_begun(&self) -> bool {
        self.begun.is_some()
    }

    /// Returns what to ask for next.
    pub(crate) fn part(&self) -> Part {
        let length = self.begun.map_or(self.length, |begun| begun.length) - self.sent;
        Part { position: self.position.saturating_add(self.sent), length, names: !self.is_unreadable }
    }

    fn count_read(&mut self, bytes: usize, tally: &Tally) {
        add(&tally.read_bytes, bytes);
        if !self.has_read {
            self.has_read = true;
            count(&tally.reads);
        }
    }

    /// Sends the client what an answer describes. Returns whether that was everything.
    ///
    /// # Errors
    /// VRESTARTING if the file has changed since the first answer, or has another owner: the client begins anew.
    pub(crate) fn answered(
        &mut self,
        (partition, epoch): (&PartitionName, Epoch),
        answer: &Answer,
        (data, tally): (&dyn Data, &Tally),
        stream: &mut dyn CallStream,
    ) -> Result<bool, Trouble> {
        let client = Trouble::Client;
        let now = Begun { epoch, version: answer.version(), length: self.sent.saturating_add(answer.length) };
        match self.begun {
            Some(before) if before != now => return Err(client(AbortCode::VRESTARTING)),
            Some(_) => {}
            None => {
                self.begun = Some(now);
                let length = answer.length.to_be_bytes();
                let length = if self.is_long { &length[..] } else { &length[4..] };
                stream.write(Bytes::copy_from_slice(length)).map_err(client)?;
            }
        }
        let mut ahead = Ahead::of(&answer.pieces);
        for piece in &answer.pieces {
            let sent = match piece {
                Piece::Bytes(bytes) => {
                    add(&tally.relayed_bytes, bytes.len());
                    send(bytes, stream)
                }
                Piece::Hole(length) => send_zeros(*length, stream),
                &Piece::Chunk { place, skipped, length } => {
                    data.expect(partition, answer.identity, ahead.next());
                    let chunk = data.read(partition, answer.identity, place);
                    match part_of(chunk, skipped..skipped + length) {
                        Ok(bytes) => {
                            self.count_read(bytes.len(), tally);
                            send(&bytes, stream)
                        }
                        Err(why) => {
                            tracing::info!(%partition, ?place, why, "the owner sends the rest of a file: a chunk \
                                of it cannot be read in the bucket");
                            count(&tally.reads_failed);
                            self.is_unreadable = true;
                            return Ok(false);
                        }
                    }
                }
            };
            self.sent += sent.map_err(client)?;
        }
        if self.sent < now.length {
            return Ok(false);
        }
        stream.write(answer.results()).map_err(client)?;
        Ok(true)
    }
}

/// The chunks of an answer, which are announced before they are read.
struct Ahead {
    chunks: Vec<ChunkPlace>,
    /// Number of chunks that were announced, or need not be.
    announced: usize,
    read: usize,
}

impl Ahead {
    fn of(pieces: &[Piece]) -> Ahead {
        let place = |piece: &Piece| match piece {
            Piece::Chunk { place, .. } => Some(*place),
            Piece::Bytes(_) | Piece::Hole(_) => None,
        };
        Ahead { chunks: pieces.iter().filter_map(place).collect(), announced: 1, read: 0 }
    }

    /// Returns the chunks to announce when the next one is read: those up to [`AHEAD_MAX`] after it that were not yet.
    fn next(&mut self) -> &[ChunkPlace] {
        self.read += 1;
        let until = self.chunks.len().min(self.read + AHEAD_MAX);
        let begin = self.announced.min(until);
        self.announced = until.max(self.announced);
        &self.chunks[begin..until]
    }
}

/// Returns a part of a chunk that was read, or why there is none.
fn part_of(chunk: Result<Bytes, StoreError>, part: Range<usize>) -> Result<Bytes, String> {
    let chunk = chunk.map_err(|error| error.to_string())?;
    if part.end > chunk.len() {
        return Err(format!("the chunk has {} bytes instead of {}", chunk.len(), part.end));
    }
    Ok(chunk.slice(part))
}

/// Sends bytes; returns their number.
fn send(bytes: &Bytes, stream: &mut dyn CallStream) -> Result<u64, AbortCode> {
    let mut rest = bytes.clone();
    while !rest.is_empty() {
        stream.write(rest.split_to(rest.len().min(PIECE_BYTES)))?;
    }
    Ok(bytes.len() as u64)
}

fn send_zeros(length: u64, stream: &mut dyn CallStream) -> Result<u64, AbortCode> {
    let mut left = length;
    while left > 0 {
        let now = left.min(ZEROS.len() as u64);
        stream.write(Bytes::from_static(&ZEROS[..now as usize]))?;
        left -= now;
    }
    Ok(length)
}

/// Returns an answer that makes sense.
///
/// # Errors
/// The error of the client's call.
pub(crate) fn parse(reply: afs_idl::cluster::FetchReply, part: Part) -> Result<Answer, Trouble> {
    Answer::parse(reply, part.length, part.names).map_err(|why| {
        tracing::warn!(why, "the owner of a file has answered a question about its data with nonsense");
        Trouble::Client(MALFORMED)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use store::ChunkAddress;

    #[test]
    fn each_chunk_is_announced_once_before_it_is_read() {
        let place = |segment| {
            let address = ChunkAddress { segment, offset: 0, stored_bytes: 9 };
            ChunkPlace { address, origin: segment + 1 }
        };
        for number in [0, 1, 2, 8, 9, 10, 30] {
            let chunk = |segment| Piece::Chunk { place: place(segment), skipped: 0, length: 9 };
            let chunks = (0..number).flat_map(|segment| [Piece::Hole(7), chunk(segment)]);
            let mut ahead = Ahead::of(&chunks.collect::<Vec<Piece>>());
            let mut announced = vec![place(0)];
            for read in 0..number {
                announced.extend_from_slice(ahead.next());
                let until = number.min(read + 1 + AHEAD_MAX as u64);
                assert_eq!(announced, (0..until).map(place).collect::<Vec<_>>(), "{read} of {number}");
            }
            assert!(ahead.next().is_empty());
        }
    }

    const FID: fs::Fid = fs::Fid { volume: 1, vnode: 2, unique: 3 };

    fn request(opcode: u32, message: &impl xdr::Encode) -> Vec<u8> {
        [xdr::to_vec(&opcode), xdr::to_vec(message)].concat()
    }

    #[test]
    fn only_long_fetches_are_read_here() {
        let of = |position, length| {
            Fetch::of(&request(fs::FETCH_DATA64, &fs::FetchData64Request { fid: FID, position, length }))
        };
        let least = NAMED_BYTES_MIN as i64;
        for (position, length, is_read) in [
            (0, least, true),
            (i64::MAX, i64::MAX, true),
            (0, least - 1, false),
            (0, 0, false),
            (-1, least, false),
            (0, -1, false),
            (0, i64::MIN, false),
        ] {
            assert_eq!(of(position, length).is_some(), is_read, "{position} {length}");
        }
        let short = |length| request(fs::FETCH_DATA, &fs::FetchDataRequest { fid: FID, position: 5, length });
        assert!(Fetch::of(&short(least as i32)).is_some() && Fetch::of(&short(-1)).is_none());
        let status = request(fs::FETCH_STATUS, &fs::FetchStatusRequest { fid: FID });
        assert!(Fetch::of(&status).is_none());
        let whole =
            request(fs::FETCH_DATA64, &fs::FetchData64Request { fid: FID, position: 0, length: least });
        for length in 0..whole.len() {
            assert!(Fetch::of(&whole[..length]).is_none(), "{length}");
        }
        assert!(Fetch::of(&[&whole[..], &[0]].concat()).is_none(), "longer than a fetch");
        let bytes = |opcode| Fetch::request_bytes(opcode);
        assert_eq!((bytes(fs::FETCH_DATA64), bytes(fs::FETCH_DATA)), (Some(whole.len()), Some(24)));
        assert_eq!((short(1).len(), bytes(fs::STORE_DATA64)), (24, None));
    }
}
