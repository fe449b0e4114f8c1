//! Reads a volume for sending, step by step, for one target or several together.

use crate::dumping::{Upcoming, dumped, failed};
use crate::together::{Member, Together, Weighed};
use afs_format::dump::DumpedVnode;
use afs_format::transfer::{CHUNK_BYTES, Digest, digest};
use base::{AbortCode, Fid, VnodeId};
use bytes::Bytes;
use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use volume::{FileReader, VnodeStatus, Volume, VolumeError};

/// Vnodes looked up in one step.
pub(crate) const STEP_VNODES: usize = 1000;

/// Maximum length of files that are opened together, and their maximum number.
const SMALL_BYTES_MAX: u64 = 64 << 10;
const SMALL_FILES: usize = 64;

/// Maximum distance between targets that share a read, in bytes; one more piece may be in memory.
const WINDOW_BYTES: usize = 32 << 20;

/// Total time that the other targets wait for a slower one.
const PATIENCE: Duration = Duration::from_secs(5);

/// Result of one step.
pub(crate) enum Piece {
    /// Vnodes of one class, from a number on.
    Vnodes(Vec<VnodeStatus>),
    /// A vnode; `None` if it was deleted.
    Vnode(Option<Box<Opened>>),
    /// Data of a file, link or directory.
    Data(Data),
}

/// A vnode whose data is sent next.
pub(crate) struct Opened {
    /// The vnode as described in a dump.
    pub(crate) vnode: DumpedVnode,
    pub(crate) status: VnodeStatus,
    /// Length of its data in bytes.
    pub(crate) length: u64,
}

/// A chunk of data; all but the last of a file have [`CHUNK_BYTES`].
pub(crate) struct Data {
    pub(crate) pieces: Vec<Bytes>,
    pub(crate) length: usize,
    digest: OnceLock<Digest>,
}

impl Data {
    fn new(pieces: Vec<Bytes>) -> Data {
        let length = pieces.iter().map(Bytes::len).sum();
        Data { pieces, length, digest: OnceLock::new() }
    }

    /// Returns the digest, computing it on first use.
    pub(crate) fn digest(&self) -> Digest {
        *self.digest.get_or_init(|| digest(&self.pieces))
    }
}

impl Weighed for Piece {
    fn weight(&self) -> usize {
        let data = match self {
            Piece::Vnodes(vnodes) => vnodes.len() * size_of::<VnodeStatus>(),
            Piece::Vnode(_) => size_of::<Opened>(),
            Piece::Data(data) => data.length,
        };
        data + size_of::<Piece>()
    }
}

/// Reads a volume for one target, in an order that is the same for all targets.
pub(crate) struct Source {
    reading: Reading,
    member: Option<Member<Piece>>,
}

struct Reading {
    volume: Arc<Volume>,
    /// The current file, and the offset it was read to.
    file: Option<(Fid, u64, FileReader)>,
    /// Files that have been opened together with one before them.
    opened: VecDeque<FileReader>,
}

impl Source {
    /// Creates the source for a single target.
    pub(crate) fn alone(volume: &Arc<Volume>) -> Source {
        let reading = Reading { volume: Arc::clone(volume), file: None, opened: VecDeque::new() };
        Source { reading, member: None }
    }

    /// Creates sources for several targets that share one read.
    pub(crate) fn together(volume: &Arc<Volume>, targets: usize) -> Vec<Source> {
        let members = Together::begin(targets, WINDOW_BYTES, PATIENCE);
        members.into_iter().map(|member| Source { member: Some(member), ..Source::alone(volume) }).collect()
    }

    fn next(
        &mut self,
        read: impl FnOnce(&mut Reading) -> Result<Piece, AbortCode>,
    ) -> Result<Arc<Piece>, AbortCode> {
        let reading = &mut self.reading;
        match &mut self.member {
            Some(member) => member.next(|| read(reading)),
            None => read(reading).map(Arc::new),
        }
    }

    /// Reads the directories, or all other vnodes, from a number on.
    pub(crate) fn vnodes(&mut self, from: VnodeId, directories: bool) -> Result<Arc<Piece>, AbortCode> {
        self.next(|reading| reading.vnodes(from, directories))
    }

    /// Reads the first of the upcoming vnodes.
    pub(crate) fn vnode(&mut self, upcoming: Upcoming<'_>) -> Result<Arc<Piece>, AbortCode> {
        self.next(|reading| reading.vnode(upcoming))
    }

    /// Reads the data of an opened vnode at `at`; fails if it is shorter than the vnode's length.
    pub(crate) fn data(&mut self, opened: &Opened, at: u64) -> Result<Arc<Piece>, AbortCode> {
        self.next(|reading| reading.data(opened, at))
    }
}

impl Reading {
    fn vnodes(&self, from: VnodeId, directories: bool) -> Result<Piece, AbortCode> {
        let mut found: Vec<VnodeStatus> = Vec::new();
        let listed = self.volume.vnodes(from, &mut |status| {
            if status.is_directory() == directories {
                found.push(*status);
            }
            found.len() < STEP_VNODES
        });
        listed.map_err(|error| failed(&error))?;
        Ok(Piece::Vnodes(found))
    }

    fn vnode(&mut self, upcoming: Upcoming<'_>) -> Result<Piece, AbortCode> {
        let fid = upcoming.vnodes[0].fid(self.volume.id());
        let reader = match self.open(fid, upcoming) {
            Ok(reader) => reader,
            // The vnode was removed meanwhile.
            Err(VolumeError::NoVnode(..)) => return Ok(Piece::Vnode(None)),
            Err(error) => return Err(failed(&error)),
        };
        let (status, length) = (*reader.status(), reader.remaining());
        let vnode = dumped(&self.volume, fid, &reader)?;
        self.file = Some((fid, 0, reader));
        Ok(Piece::Vnode(Some(Box::new(Opened { vnode, status, length }))))
    }

    /// Opens a vnode, the first of `upcoming`. If it is a small file, the small files behind it are opened as well.
    fn open(&mut self, fid: Fid, upcoming: Upcoming<'_>) -> Result<FileReader, VolumeError> {
        if let Some(reader) = self.take_opened(fid) {
            return Ok(reader);
        }
        let volume = &self.volume;
        let is_small = |vnode: &&VnodeStatus| !vnode.is_directory() && vnode.length <= SMALL_BYTES_MAX;
        let small = upcoming.vnodes.iter().take(SMALL_FILES).take_while(is_small);
        let small = small.filter(|vnode| upcoming.extract.has(vnode));
        let small: Vec<Fid> = small.map(|vnode| vnode.fid(volume.id())).collect();
        if small.len() > 1 {
            self.opened = volume.small_readers(&small)?.into();
        }
        match self.take_opened(fid) {
            Some(reader) => Ok(reader),
            None => self.volume.reader(fid, 0, u64::MAX),
        }
    }

    /// Returns the reader of a file that has been opened, and drops those of the files before it.
    fn take_opened(&mut self, fid: Fid) -> Option<FileReader> {
        let number = |reader: &FileReader| reader.status().vnode;
        while self.opened.front().is_some_and(|reader| number(reader) < fid.vnode) {
            self.opened.pop_front();
        }
        let is_next = self.opened.front().is_some_and(|reader| reader.status().fid(fid.volume) == fid);
        if is_next { self.opened.pop_front() } else { None }
    }

    fn data(&mut self, opened: &Opened, at: u64) -> Result<Piece, AbortCode> {
        let fid = opened.status.fid(self.volume.id());
        let mut reader = match self.file.take() {
            Some((of, reached, reader)) if of == fid && reached == at => reader,
            _ => self.volume.reader(fid, at, u64::MAX).map_err(|error| failed(&error))?,
        };
        if reader.status().data_version != opened.status.data_version {
            return Err(failed(&VolumeError::Busy(self.volume.id())));
        }
        let pieces = reader.next(CHUNK_BYTES).map_err(|error| failed(&error))?;
        let data = Data::new(pieces);
        if data.length as u64 != (opened.length - at).min(CHUNK_BYTES as u64) {
            return Err(failed(&VolumeError::Busy(self.volume.id())));
        }
        self.file = Some((fid, at + data.length as u64, reader));
        Ok(Piece::Data(data))
    }
}
