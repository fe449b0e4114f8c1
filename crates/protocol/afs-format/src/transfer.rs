//! The stream that two Cellar servers use in place of a volume dump: the same dump, in which a chunk of a
//! file that the target already has is a reference with its digest (`docs/reference/formats/transfer.md`).
//!
//! Every chunk of data is checked against its digest before it is returned, and the end mark against
//! everything before it.

use bytes::Bytes;
use thiserror::Error;

/// Bytes of a file that one digest covers; fewer at the end of the file.
pub const CHUNK_BYTES: usize = 256 << 10;
/// Length of a digest in bytes.
pub const DIGEST_BYTES: usize = 32;

/// Start of a stream.
const MAGIC: &[u8; 8] = b"CellarT1";
const TAG_RAW: u8 = b'r';
const TAG_DATA: u8 = b'd';
const TAG_ZEROS: u8 = b'z';
const TAG_KNOWN: u8 = b'k';
const TAG_STORED: u8 = b's';
const TAG_END: u8 = b'e';

/// Zeros, as many as a chunk has bytes.
pub static ZEROS: [u8; CHUNK_BYTES] = [0; CHUNK_BYTES];

/// BLAKE3 of a chunk's bytes.
pub type Digest = [u8; DIGEST_BYTES];

/// Returns the digest of bytes that are given in pieces.
pub fn digest(pieces: &[Bytes]) -> Digest {
    let mut hasher = blake3::Hasher::new();
    for piece in pieces {
        hasher.update(piece);
    }
    hasher.finalize().into()
}

/// A reference to a chunk that the target has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known {
    /// Vnode of the file in the target's volume.
    pub vnode: u32,
    /// Uniquifier of the file.
    pub unique: u32,
    /// Index of the chunk in the file.
    pub index: u64,
    /// Length of the chunk in bytes.
    pub length: u32,
    /// Expected digest.
    pub digest: Digest,
}

/// A reference to a chunk in an object of the source's partition, which the target takes over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stored {
    /// Length of the chunk in bytes.
    pub length: u32,
    /// Id of the object.
    pub object: u64,
    /// Offset of the chunk's record in the object.
    pub offset: u64,
    /// Length of the record in bytes.
    pub record_bytes: u32,
    /// Id in the record: that of the object, or another one if the object is a copy.
    pub origin: u64,
}

/// A part of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// Bytes of the dump, at most [`CHUNK_BYTES`].
    Bytes(Vec<Bytes>),
    /// Reference to bytes of the dump that the target has.
    Known(Known),
    /// Reference to bytes of the dump that are in the source's bucket.
    Stored(Stored),
    /// The end, which has been verified.
    End,
}

/// Why a stream was rejected; `E` is the source's error.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TransferError<E> {
    /// The stream is malformed or damaged.
    #[error("byte {offset} of the transfer: expected {expected}")]
    Damaged {
        /// Offset in the stream, in bytes.
        offset: u64,
        /// What was expected there.
        expected: &'static str,
    },
    /// The source failed.
    #[error("reading the transfer: {0}")]
    Source(E),
}

/// Writes a stream. The bytes that each method appends to `out` are sent in that order, with the bytes of a
/// chunk after those of [`Writer::data`].
pub struct Writer {
    transcript: blake3::Hasher,
}

impl Writer {
    /// Starts a stream.
    pub fn begin(out: &mut Vec<u8>) -> Writer {
        out.extend_from_slice(MAGIC);
        let mut transcript = blake3::Hasher::new();
        transcript.update(MAGIC);
        Writer { transcript }
    }

    /// Appends bytes of the dump literally.
    pub fn raw(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        for part in bytes.chunks(CHUNK_BYTES) {
            let at = out.len();
            out.push(TAG_RAW);
            out.extend_from_slice(&(part.len() as u32).to_be_bytes());
            out.extend_from_slice(part);
            self.transcript.update(&out[at..]);
        }
    }

    /// Announces a chunk of `length` bytes (1 to [`CHUNK_BYTES`]) with this digest, which follows.
    pub fn data(&mut self, length: u32, digest: &Digest, out: &mut Vec<u8>) {
        let at = out.len();
        out.push(TAG_DATA);
        out.extend_from_slice(&length.to_be_bytes());
        out.extend_from_slice(digest);
        self.transcript.update(&out[at..]);
    }

    /// Appends a chunk of `length` zeros (1 to [`CHUNK_BYTES`]).
    pub fn zeros(&mut self, length: u32, out: &mut Vec<u8>) {
        let at = out.len();
        out.push(TAG_ZEROS);
        out.extend_from_slice(&length.to_be_bytes());
        self.transcript.update(&out[at..]);
    }

    /// Appends a reference to a chunk that the target has.
    pub fn known(&mut self, known: &Known, out: &mut Vec<u8>) {
        let at = out.len();
        out.push(TAG_KNOWN);
        out.extend_from_slice(&known.vnode.to_be_bytes());
        out.extend_from_slice(&known.unique.to_be_bytes());
        out.extend_from_slice(&known.index.to_be_bytes());
        out.extend_from_slice(&known.length.to_be_bytes());
        out.extend_from_slice(&known.digest);
        self.transcript.update(&out[at..]);
    }

    /// Appends a reference to a chunk in an object of the source's partition.
    pub fn stored(&mut self, stored: &Stored, out: &mut Vec<u8>) {
        let at = out.len();
        out.push(TAG_STORED);
        out.extend_from_slice(&stored.length.to_be_bytes());
        out.extend_from_slice(&stored.object.to_be_bytes());
        out.extend_from_slice(&stored.offset.to_be_bytes());
        out.extend_from_slice(&stored.record_bytes.to_be_bytes());
        out.extend_from_slice(&stored.origin.to_be_bytes());
        self.transcript.update(&out[at..]);
    }

    /// Ends the stream.
    pub fn end(self, out: &mut Vec<u8>) {
        out.push(TAG_END);
        out.extend_from_slice(self.transcript.finalize().as_bytes());
    }
}

/// Parses a stream. `source` is called with the maximum number of bytes and returns at least one, or none at
/// the end. No method may be called after [`Frame::End`] or an error.
pub struct Reader<F> {
    source: F,
    ahead: Bytes,
    offset: u64,
    transcript: blake3::Hasher,
}

type Outcome<T, E> = Result<T, TransferError<E>>;

impl<E, F: FnMut(usize) -> Result<Bytes, E>> Reader<F> {
    /// Reads the start of a stream.
    ///
    /// # Errors
    /// The stream is malformed or the source failed; this applies to all methods here.
    pub fn open(source: F) -> Outcome<Reader<F>, E> {
        const WHAT: &str = "the beginning of a transfer";
        let transcript = blake3::Hasher::new();
        let mut reader = Reader { source, ahead: Bytes::new(), offset: 0, transcript };
        if &reader.array::<8>(WHAT)? != MAGIC {
            return Err(TransferError::Damaged { offset: 0, expected: WHAT });
        }
        Ok(reader)
    }

    /// Returns the number of bytes read from the stream.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Returns the next frame, verified.
    pub fn next_frame(&mut self) -> Outcome<Frame, E> {
        let so_far = self.transcript.clone();
        match self.array("a frame")? {
            [TAG_RAW] => {
                let length = self.length()?;
                let pieces = self.pieces(length)?;
                for piece in &pieces {
                    self.transcript.update(piece);
                }
                Ok(Frame::Bytes(pieces))
            }
            [TAG_DATA] => self.data().map(Frame::Bytes),
            [TAG_ZEROS] => {
                let length = self.length()?;
                Ok(Frame::Bytes(vec![Bytes::from_static(&ZEROS[..length])]))
            }
            [TAG_KNOWN] => self.known().map(Frame::Known),
            [TAG_STORED] => self.stored().map(Frame::Stored),
            [TAG_END] => self.end(&so_far).map(|()| Frame::End),
            _ => Err(self.before(1, "a frame of a known kind")),
        }
    }

    fn before(&self, bytes: u64, expected: &'static str) -> TransferError<E> {
        TransferError::Damaged { offset: self.offset.saturating_sub(bytes), expected }
    }

    fn length(&mut self) -> Outcome<usize, E> {
        const WHAT: &str = "a length from 1 byte to 256 KiB";
        let length = u32::from_be_bytes(self.array(WHAT)?) as usize;
        if (1..=CHUNK_BYTES).contains(&length) { Ok(length) } else { Err(self.before(4, WHAT)) }
    }

    fn data(&mut self) -> Outcome<Vec<Bytes>, E> {
        let length = self.length()?;
        let wanted: Digest = self.array("a digest")?;
        let pieces = self.pieces(length)?;
        if digest(&pieces) == wanted {
            Ok(pieces)
        } else {
            Err(self.before(length as u64, "the chunk as sent"))
        }
    }

    fn known(&mut self) -> Outcome<Known, E> {
        const WHAT: &str = "a reference to a chunk";
        let vnode = u32::from_be_bytes(self.array(WHAT)?);
        let unique = u32::from_be_bytes(self.array(WHAT)?);
        let index = u64::from_be_bytes(self.array(WHAT)?);
        let length = self.length()? as u32;
        Ok(Known { vnode, unique, index, length, digest: self.array(WHAT)? })
    }

    fn stored(&mut self) -> Outcome<Stored, E> {
        const WHAT: &str = "a reference to a stored chunk";
        let length = self.length()? as u32;
        let object = u64::from_be_bytes(self.array(WHAT)?);
        let offset = u64::from_be_bytes(self.array(WHAT)?);
        let record_bytes = u32::from_be_bytes(self.array(WHAT)?);
        Ok(Stored { length, object, offset, record_bytes, origin: u64::from_be_bytes(self.array(WHAT)?) })
    }

    fn end(&mut self, so_far: &blake3::Hasher) -> Outcome<(), E> {
        const WHAT: &str = "the digest of all that came";
        let wanted: Digest = self.array(WHAT)?;
        if so_far.finalize() != wanted {
            return Err(self.before(DIGEST_BYTES as u64, WHAT));
        }
        if self.ahead.is_empty() {
            self.ahead = (self.source)(1).map_err(TransferError::Source)?;
        }
        if self.ahead.is_empty() { Ok(()) } else { Err(self.before(0, "nothing behind the end")) }
    }

    fn fill(&mut self, expected: &'static str) -> Outcome<(), E> {
        if self.ahead.is_empty() {
            self.ahead = (self.source)(CHUNK_BYTES).map_err(TransferError::Source)?;
        }
        if self.ahead.is_empty() { Err(self.before(0, expected)) } else { Ok(()) }
    }

    /// Reads some bytes of a header and adds them to the transcript.
    fn array<const N: usize>(&mut self, expected: &'static str) -> Outcome<[u8; N], E> {
        let mut out = [0; N];
        let mut at = 0;
        while at < N {
            self.fill(expected)?;
            let piece = self.ahead.split_to(self.ahead.len().min(N - at));
            out[at..at + piece.len()].copy_from_slice(&piece);
            at += piece.len();
            self.offset += piece.len() as u64;
        }
        self.transcript.update(&out);
        Ok(out)
    }

    fn pieces(&mut self, length: usize) -> Outcome<Vec<Bytes>, E> {
        let (mut pieces, mut left) = (Vec::new(), length);
        while left > 0 {
            self.fill("bytes of the dump")?;
            let piece = self.ahead.split_to(self.ahead.len().min(left));
            left -= piece.len();
            self.offset += piece.len() as u64;
            pieces.push(piece);
        }
        Ok(pieces)
    }
}

#[cfg(test)]
mod tests;
