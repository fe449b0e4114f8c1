//! Reads file data.

use crate::core::read_ahead::{Ahead, BEYOND_CHUNKS, Held};
use crate::interface::error::damage;
use crate::{VnodeStatus, Volume, VolumeError};
use afs_format::directory::DirectoryBlob;
use base::Fid;
use bytes::Bytes;
use std::collections::VecDeque;
use std::ops::{ControlFlow, Range};
use std::sync::Arc;
use store::{ChunkPlace, ChunkStore};
use volume_records::codec::{Extent, Vnode};
use volume_records::{epochs, families, keys};

/// Contents of holes.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// Chunks whose addresses a reader looks up in one scan.
const WINDOW_CHUNKS: u64 = 4096;

/// Maximum bytes of one [`Volume::read`].
const READ_BYTES_MAX: usize = 16 << 20;

/// Appends `length` zeros.
pub(crate) fn push_zeros(out: &mut Vec<Bytes>, mut length: usize) {
    while length > 0 {
        let now = length.min(ZEROS.len());
        out.push(Bytes::from_static(&ZEROS[..now]));
        length -= now;
    }
}

/// Returns the contents of an extent. Chunks stay cached for a while, accounted to the group.
pub(crate) fn read_extent(
    extent: &Extent,
    chunks: &dyn ChunkStore,
    group: u64,
) -> Result<Bytes, VolumeError> {
    match extent {
        Extent::Inline(bytes) => Ok(bytes.clone()),
        Extent::Sealed(_) => Err(VolumeError::Invalid("contents that are not decrypted")),
        Extent::Shared { row, .. } => {
            Err(damage(families::EXTENTS, &keys::row(*row), "the row of a shared chunk"))
        }
        Extent::Chunk { address, .. } => Ok(cut(extent, chunks.read_for(group, *address)?)),
    }
}

/// Truncates a chunk's contents to the extent's length.
fn cut(extent: &Extent, bytes: Bytes) -> Bytes {
    match extent {
        Extent::Chunk { length, .. } => bytes.slice(..bytes.len().min(*length as usize)),
        _ => bytes,
    }
}

/// Reads one state of a file, link or directory piece by piece, whatever is written meanwhile. While the
/// reader exists, overwritten chunks are not released.
pub struct FileReader {
    status: VnodeStatus,
    at: u64,
    end: u64,
    source: Source,
}

/// A part of a file's contents, and where it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// The contents themselves.
    Here(Bytes),
    /// This many zeros.
    Hole(u64),
    /// In a chunk that other processes can read in a bucket, as long as it is there.
    Shared {
        /// Identity of the partition.
        partition: [u8; 16],
        /// The chunk.
        chunk: ChunkPlace,
        /// Bytes of the chunk before the part.
        skipped: u32,
        /// Length of the part.
        length: u32,
    },
}

impl Place {
    /// Returns the length of the part in bytes.
    pub fn length(&self) -> u64 {
        match self {
            Place::Here(bytes) => bytes.len() as u64,
            Place::Hole(length) => *length,
            Place::Shared { length, .. } => (*length).into(),
        }
    }
}

enum Source {
    /// A directory; all of its pages.
    Pages(VecDeque<Bytes>),
    File(FileSource),
}

struct FileSource {
    volume: Arc<Volume>,
    vnode: Vnode,
    /// Keeps every chunk that `extents` names.
    held: Held,
    extents: VecDeque<(u64, Extent)>,
    /// Index after the last chunk that `extents` covers.
    known_to: u64,
    /// Chunks being read ahead.
    ahead: Ahead,
}

impl FileReader {
    /// Creates a reader of a whole file of at most one chunk, whose extent this is if the file has any data.
    pub(crate) fn of_one_chunk(
        volume: &Arc<Volume>,
        vnode: Vnode,
        held: Held,
        extent: Option<Extent>,
    ) -> FileReader {
        let (status, volume, ahead) = (vnode.status, Arc::clone(volume), Ahead::default());
        let extents = extent.map(|extent| (0, extent)).into_iter().collect();
        let source = Source::File(FileSource { volume, vnode, held, extents, known_to: 1, ahead });
        FileReader { status, at: 0, end: status.length, source }
    }

    /// Returns the status that belongs to the data.
    pub fn status(&self) -> &VnodeStatus {
        &self.status
    }

    /// Returns the bytes left to read: the requested length, limited by the end of the file.
    pub fn remaining(&self) -> u64 {
        self.end - self.at
    }

    /// Returns the next bytes, shared with the chunk cache: at most `bytes_max` (but at least 1), and at
    /// least one until the end is reached; then none.
    pub fn next(&mut self, bytes_max: usize) -> Result<Vec<Bytes>, VolumeError> {
        let stop = self.end.min(self.at.saturating_add(bytes_max.max(1) as u64));
        let mut out = Vec::new();
        while self.at < stop {
            let got = match &mut self.source {
                Source::Pages(pages) => next_page(pages, stop - self.at, &mut out),
                Source::File(file) => file.next(self.at, stop, self.end, &mut out)?,
            };
            self.at += got;
        }
        Ok(out)
    }

    /// Returns where the next bytes are, in at most `places_max` places. Those that are [`Place::Here`] have at most `bytes_max`
    /// bytes in total. Returns at least one place until the end is reached, unless a limit is 0; then none. Chunks in a bucket are
    /// named only if `is_shared`; all of them are in one partition.
    ///
    /// # Errors
    /// Those of [`FileReader::next`].
    pub fn next_places(
        &mut self,
        (places_max, bytes_max): (usize, usize),
        is_shared: bool,
    ) -> Result<Vec<Place>, VolumeError> {
        let (mut places, mut bytes_left, mut named) = (Vec::new(), bytes_max as u64, None);
        while self.at < self.end && places.len() < places_max {
            let shared = match &mut self.source {
                Source::File(file) if is_shared => file.place(self.at, self.end)?,
                _ => None,
            };
            if let Some(place) = shared {
                if let Place::Shared { partition, .. } = place
                    && *named.get_or_insert(partition) != partition
                {
                    break;
                }
                self.at += place.length();
                places.push(place);
                continue;
            }
            if bytes_left == 0 {
                break;
            }
            let (mut out, stop) = (Vec::new(), self.end.min(self.at + bytes_left));
            let got = match &mut self.source {
                Source::Pages(pages) => next_page(pages, stop - self.at, &mut out),
                Source::File(file) => file.next(self.at, stop, self.end, &mut out)?,
            };
            self.at += got;
            bytes_left -= got;
            places.extend(out.into_iter().map(Place::Here));
        }
        Ok(places)
    }

    /// Returns the entries of the directory that is read.
    ///
    /// # Errors
    /// `Directory` if it is not a directory or is damaged, `Store`.
    pub fn directory(&mut self) -> Result<DirectoryBlob, VolumeError> {
        let pages = self.next(usize::MAX)?.concat().into();
        let directory = self.status.vnode;
        DirectoryBlob::parse(&pages).map_err(|error| VolumeError::Directory { directory, error })
    }
}

fn next_page(pages: &mut VecDeque<Bytes>, most: u64, out: &mut Vec<Bytes>) -> u64 {
    let Some(mut page) = pages.pop_front() else { return most };
    if page.len() as u64 > most {
        let rest = page.split_off(most as usize);
        pages.push_front(rest);
    }
    let got = page.len() as u64;
    out.push(page);
    got
}

impl FileSource {
    /// Looks up the chunk at `at`. Returns its index, and the part of it from there to `stop`.
    fn find(&mut self, at: u64, stop: u64, end: u64) -> Result<(u64, Range<usize>), VolumeError> {
        let shift = self.vnode.chunk_shift;
        let index = at >> shift;
        if index >= self.known_to {
            self.look_up(index, (end - 1) >> shift)?;
        }
        while self.extents.front().is_some_and(|(first, _)| *first < index) {
            self.extents.pop_front();
        }
        let begin = (at - (index << shift)) as usize;
        let length = (stop - at).min((1 << shift) - begin as u64) as usize;
        Ok((index, begin..begin + length))
    }

    /// Returns where bytes from `at` on are, within one chunk; `None` if they are not in a bucket.
    fn place(&mut self, at: u64, end: u64) -> Result<Option<Place>, VolumeError> {
        let (index, part) = self.find(at, end, end)?;
        let extent = self.extents.front().filter(|(first, _)| *first == index).map(|(_, extent)| extent);
        let Some(extent) = extent else { return Ok(Some(Place::Hole(part.len() as u64))) };
        let &Extent::Chunk { address, length: used } = extent else { return Ok(None) };
        if part.start >= used as usize {
            return Ok(Some(Place::Hole(part.len() as u64)));
        }
        let chunks = &self.volume.home.handle.chunks;
        Ok(chunks.shared_at(address).map(|(partition, chunk)| {
            let length = part.len().min(used as usize - part.start) as u32;
            Place::Shared { partition, chunk, skipped: part.start as u32, length }
        }))
    }

    /// Appends bytes from `at` on, within one chunk and before `stop`; returns their number.
    fn next(&mut self, at: u64, stop: u64, end: u64, out: &mut Vec<Bytes>) -> Result<u64, VolumeError> {
        let (index, part) = self.find(at, stop, end)?;
        let (begin, length) = (part.start, part.len());
        let contents = self.contents(index)?;
        let stored = contents.slice(begin.min(contents.len())..(begin + length).min(contents.len()));
        let zeros = length - stored.len();
        if !stored.is_empty() {
            out.push(stored);
        }
        push_zeros(out, zeros);
        Ok(length as u64)
    }

    /// Returns the contents of a chunk, and starts reading the following ones ahead.
    fn contents(&mut self, index: u64) -> Result<Bytes, VolumeError> {
        let Some((_, extent)) = self.extents.front().filter(|(first, _)| *first == index) else {
            return Ok(Bytes::new());
        };
        let (chunks, group) = (&self.volume.home.handle.chunks, self.volume.group.id);
        self.ahead.begin(&self.volume.shared.read_ahead, chunks, &self.held, self.extents.iter().skip(1));
        match self.ahead.take(index) {
            Some(read) => Ok(cut(extent, read?)),
            None => read_extent(extent, &**chunks, group),
        }
    }

    /// Looks up the addresses of the chunks from `first` on, if the file is unchanged.
    fn look_up(&mut self, first: u64, last: u64) -> Result<(), VolumeError> {
        let volume = Arc::clone(&self.volume);
        let _publish = volume.group.publish.read();
        let status = self.vnode.status;
        let now = volume.vnode(status.fid(self.volume.id()))?;
        if now.status.data_version != status.data_version {
            return Err(VolumeError::Busy(self.volume.id()));
        }
        self.held.pins.0 = self.volume.group.pins.pin();
        self.find_extents(first, last)
    }

    /// Looks up the addresses of the chunks from `first` to `last`, and of some following ones if the
    /// preceding chunk was read lately.
    fn find_around(&mut self, first: u64, last: u64) -> Result<(), VolumeError> {
        let around = self.find_extents(first.saturating_sub(1), last.saturating_add(BEYOND_CHUNKS));
        // Damage outside the requested range does not concern this reader.
        around.or_else(|_| self.find_extents(first, last))?;
        let chunks = &self.volume.home.handle.chunks;
        let is_before = |(index, extent): &(u64, Extent)| {
            *index < first && extent.address().is_some_and(|address| chunks.is_at_hand(address))
        };
        if !self.extents.front().is_some_and(is_before) {
            self.extents.retain(|(index, _)| *index <= last);
        }
        Ok(())
    }

    fn find_extents(&mut self, first: u64, last: u64) -> Result<(), VolumeError> {
        self.known_to = last.saturating_add(1).min(first.saturating_add(WINDOW_CHUNKS));
        let mut found = self.volume.extents(&self.vnode, first, self.known_to - 1, WINDOW_CHUNKS as usize)?;
        self.held.pins.1 = self.volume.home.resolve(&mut found)?;
        if found.iter().any(|(_, extent)| matches!(extent, Extent::Shared { .. })) {
            // The volume's records may already be purged.
            self.volume.check_is_there()?;
        }
        self.extents = found.into();
        Ok(())
    }
}

impl Volume {
    /// Returns a reader of `length` bytes from `offset`; of a directory it reads the blob, of a symbolic link
    /// the target path.
    pub fn reader(self: &Arc<Self>, fid: Fid, offset: u64, length: u64) -> Result<FileReader, VolumeError> {
        let _publish = self.group.publish.read();
        let vnode = self.vnode(fid)?;
        let status = vnode.status;
        let end = status.length.min(offset.saturating_add(length));
        let at = offset.min(end);
        let source = if status.is_directory() {
            let blob = self.directory(&vnode)?;
            let pages = blob.read().slice(at, end - at);
            Source::Pages(pages.into())
        } else {
            let held = Held { group: Arc::clone(&self.group), pins: (self.group.pins.pin(), None) };
            let (volume, ahead, extents) = (Arc::clone(self), Ahead::default(), VecDeque::new());
            let mut file = FileSource { volume, vnode, held, extents, known_to: 0, ahead };
            if at < end {
                let shift = file.vnode.chunk_shift;
                file.find_around(at >> shift, (end - 1) >> shift)?;
            }
            Source::File(file)
        };
        Ok(FileReader { status, at, end, source })
    }

    /// Reads everything that [`Volume::reader`] would return, but at most 16 MiB; meant for short reads.
    pub fn read(
        self: &Arc<Self>,
        fid: Fid,
        offset: u64,
        length: u64,
    ) -> Result<(VnodeStatus, Vec<Bytes>), VolumeError> {
        let mut reader = self.reader(fid, offset, length)?;
        let data = reader.next(READ_BYTES_MAX)?;
        Ok((reader.status, data))
    }

    pub(crate) fn file_key(&self, vnode: &Vnode) -> keys::FileKey {
        let VnodeStatus { vnode, unique, .. } = vnode.status;
        keys::FileKey { group: self.group.id, vnode, unique }
    }

    /// Returns the extents of a file from chunk `first` to `last`, at most `most` of them. A single one is looked up,
    /// which costs a tenth of a scan in a volume that was never cloned.
    pub(crate) fn extents(
        &self,
        vnode: &Vnode,
        first: u64,
        last: u64,
        most: usize,
    ) -> Result<Vec<(u64, Extent)>, VolumeError> {
        let mut found = Vec::new();
        let Some(last_byte) = vnode.status.length.checked_sub(1) else { return Ok(found) };
        let last = last.min(last_byte >> vnode.chunk_shift);
        let (key, read_view) = (self.file_key(vnode), self.view().read_view);
        if first == last {
            let prefix = key.extent(first);
            if let Some((_, value)) = epochs::get(self.meta(), families::EXTENTS, &prefix, &read_view)? {
                found.push((first, self.home.extent(&prefix, &value)?));
            }
            return Ok(found);
        }
        let (from, to) = key.extents(first, last);
        let mut damaged = None;
        epochs::scan(self.meta(), families::EXTENTS, (&from, &to), &read_view, &mut |prefix, value| {
            let index = keys::index_of(prefix).ok_or_else(|| damage(families::EXTENTS, prefix, "the key"));
            match index.and_then(|index| Ok((index, self.home.extent(prefix, value)?))) {
                Ok(extent) => found.push(extent),
                Err(error) => damaged = Some(error),
            }
            if found.len() < most && damaged.is_none() {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            }
        })?;
        damaged.map_or(Ok(found), Err)
    }
}
