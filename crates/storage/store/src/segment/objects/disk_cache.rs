//! Copies of chunks on the local disk. Format: docs/reference/formats/objects.md.
//!
//! The cache is a few files that are filled one after the other. When the last is full, the oldest is removed with
//! everything in it; a chunk that is read from one of the oldest files is copied to the newest. Nothing is synced: each
//! entry has a checksum, and one that a crash has damaged is dropped. No error of the disk reaches a reader, who then
//! reads from the bucket.

use super::super::record::{RECORD_AND_STORED_BYTES_MAX, crc32c, crc32c_of};
use crate::home::failed;
use crate::{ChunkAddress, StoreError};
use bytes::Bytes;
use disk::{Disk, File};
use parking_lot::Mutex;
use std::collections::{HashMap, VecDeque};
use std::io::{self, ErrorKind, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

const MAGIC: &[u8; 8] = b"CELLCACH";
const VERSION: u32 = 1;
/// Magic, version, owner, checksum.
const FILE_HEADER_BYTES: usize = 8 + 4 + 16 + 4;
const ENTRY_MAGIC: &[u8; 4] = b"CCHE";
/// Magic, address, checksum of the contents, checksum of this header.
const ENTRY_HEADER_BYTES: usize = 4 + 20 + 4 + 4;
const SUFFIX: &str = ".cache";

/// Number of files. One that is removed takes this part of the cache with it.
const FILES: u64 = 16;

/// An entry in one of this many oldest files is copied to the newest when it is read.
const OLDEST: u64 = 4;

/// Where and how large a cache is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskCacheConfig {
    /// Its folder, which must exist and be used by nothing else.
    pub folder: PathBuf,
    /// Maximum size of its files together, in bytes.
    pub bytes_max: u64,
    /// Maximum number of entries, which bounds the memory for their addresses: about 50 bytes each.
    pub entries_max: usize,
    /// Identity of the partition. Files of another one are removed.
    pub owner: [u8; 16],
}

/// Statistics of a cache since the open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskCacheStatistics {
    /// Reads that found the chunk.
    pub hits: u64,
    /// Reads that did not.
    pub misses: u64,
    /// Entries that were damaged and have been dropped.
    pub damaged: u64,
    /// Errors of the disk.
    pub failures: u64,
    /// Entries now.
    pub entries: u64,
    /// Bytes of the files now.
    pub bytes: u64,
}

/// A cache on the local disk.
pub struct DiskCache {
    disk: Arc<dyn Disk>,
    config: DiskCacheConfig,
    /// Held while space for an entry is reserved, including the creation and removal of files, and for lookups.
    state: Mutex<State>,
    hits: AtomicU64,
    misses: AtomicU64,
    damaged: AtomicU64,
    failures: AtomicU64,
    /// Whether the first error was logged.
    is_failing: AtomicBool,
}

#[derive(Default)]
struct State {
    entries: HashMap<ChunkAddress, Position>,
    /// Oldest first.
    files: VecDeque<CacheFile>,
    next_number: u64,
    is_closed: bool,
}

struct CacheFile {
    number: u64,
    file: Arc<dyn File>,
    end: u64,
    /// Chunks that were put there; each may since have been removed or be elsewhere.
    addresses: Vec<ChunkAddress>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Position {
    number: u64,
    offset: u64,
}

impl DiskCache {
    /// Opens a cache with the entries that an earlier run has left.
    ///
    /// # Errors
    /// `Io` if its folder cannot be listed. Files that cannot be read are removed.
    pub fn open(disk: Arc<dyn Disk>, config: DiskCacheConfig) -> Result<DiskCache, StoreError> {
        let names = disk.list(&config.folder).map_err(|error| failed("list", &config.folder, error))?;
        let cache = DiskCache {
            disk,
            config,
            state: Mutex::default(),
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
            damaged: AtomicU64::new(0),
            failures: AtomicU64::new(0),
            is_failing: AtomicBool::new(false),
        };
        let mut numbers: Vec<u64> = names.iter().filter_map(|name| parse_name(name)).collect();
        numbers.sort_unstable();
        for number in numbers {
            cache.take_over(number);
        }
        Ok(cache)
    }

    /// Returns a chunk's record, verified.
    pub(super) fn get(&self, address: ChunkAddress) -> Option<Bytes> {
        let found = self.state.lock().find(address);
        let Some((position, file, is_old)) = found else {
            self.misses.fetch_add(1, Relaxed);
            return None;
        };
        match read_entry(&*file, position.offset, address) {
            Ok(Ok(contents)) => {
                self.hits.fetch_add(1, Relaxed);
                if is_old {
                    self.state.lock().entries.remove(&address);
                    self.insert(address, &contents);
                }
                return Some(contents);
            }
            Ok(Err(what)) => self.reject(address, &what),
            Err(error) => {
                self.state.lock().entries.remove(&address);
                self.fail("read", &self.path(position.number), &error);
            }
        }
        self.misses.fetch_add(1, Relaxed);
        None
    }

    /// Adds a chunk's record, unless it is there.
    pub(super) fn insert(&self, address: ChunkAddress, contents: &[u8]) {
        let bytes = (ENTRY_HEADER_BYTES + contents.len()) as u64;
        if contents.len() != address.stored_bytes as usize
            || FILE_HEADER_BYTES as u64 + bytes > self.file_bytes()
        {
            return;
        }
        let reserved = {
            let mut state = self.state.lock();
            if state.is_closed || state.entries.contains_key(&address) {
                return;
            }
            self.reserve(&mut state, bytes)
        };
        let Some((position, file)) = reserved else { return };
        let header = entry_header(address, contents);
        if let Err(error) =
            file.write_all_at(&mut [IoSlice::new(&header), IoSlice::new(contents)], position.offset)
        {
            return self.fail("write", &self.path(position.number), &error);
        }
        let mut state = self.state.lock();
        if let Some(file) = state.files.iter_mut().find(|file| file.number == position.number) {
            file.addresses.push(address);
            state.entries.insert(address, position);
        }
    }

    /// Removes a chunk. Its space becomes free with that of its file.
    pub(super) fn remove(&self, address: ChunkAddress) {
        self.state.lock().entries.remove(&address);
    }

    /// Removes a chunk whose contents are not what they should be.
    pub(super) fn reject(&self, address: ChunkAddress, what: &str) {
        self.damaged.fetch_add(1, Relaxed);
        let removed = self.state.lock().entries.remove(&address);
        let path = removed.map(|position| self.path(position.number).display().to_string());
        tracing::warn!(?address, what, path, "dropping a damaged copy of a chunk");
    }

    /// Uses the files no more, so that another cache can open them. Every later read finds nothing.
    pub(super) fn close(&self) {
        let mut state = self.state.lock();
        state.is_closed = true;
        state.entries.clear();
        state.files.clear();
    }

    /// Returns the statistics.
    pub fn statistics(&self) -> DiskCacheStatistics {
        let (entries, bytes) = {
            let state = self.state.lock();
            (state.entries.len() as u64, state.files.iter().map(|file| file.end).sum())
        };
        let counted = |counter: &AtomicU64| counter.load(Relaxed);
        DiskCacheStatistics {
            hits: counted(&self.hits),
            misses: counted(&self.misses),
            damaged: counted(&self.damaged),
            failures: counted(&self.failures),
            entries,
            bytes,
        }
    }

    /// Returns the size of a file at which the next one is begun.
    fn file_bytes(&self) -> u64 {
        self.config.bytes_max / FILES
    }

    fn path(&self, number: u64) -> PathBuf {
        self.config.folder.join(file_name(number))
    }

    /// Counts an error of the disk, and logs the first.
    fn fail(&self, doing: &str, path: &Path, error: &io::Error) {
        self.failures.fetch_add(1, Relaxed);
        if !self.is_failing.swap(true, Relaxed) {
            tracing::warn!(doing, path = %path.display(), %error,
                "an error of the disk with copies of chunks; they are read from the bucket");
        }
    }

    /// Reserves space for an entry, making room as needed; `None` if the disk fails.
    fn reserve(&self, state: &mut State, bytes: u64) -> Option<(Position, Arc<dyn File>)> {
        while state.entries.len() >= self.config.entries_max && !state.files.is_empty() {
            self.remove_oldest(state);
        }
        let has_room = |file: &CacheFile| file.end + bytes <= self.file_bytes();
        if !state.files.back().is_some_and(has_room) {
            while state.files.len() as u64 >= FILES {
                self.remove_oldest(state);
            }
            let (number, path) = (state.next_number, self.path(state.next_number));
            state.next_number += 1;
            match self.begin(&path) {
                Ok(file) => {
                    let end = FILE_HEADER_BYTES as u64;
                    state.files.push_back(CacheFile { number, file, end, addresses: Vec::new() });
                }
                Err(error) => {
                    self.fail("create", &path, &error);
                    // A full disk may have room again then.
                    self.remove_oldest(state);
                    return None;
                }
            }
        }
        let file = state.files.back_mut()?;
        let position = Position { number: file.number, offset: file.end };
        file.end += bytes;
        Some((position, Arc::clone(&file.file)))
    }

    fn begin(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        let file = self.disk.create(path)?;
        let header = file_header(&self.config.owner);
        match file.write_all_at(&mut [IoSlice::new(&header)], 0) {
            Ok(()) => Ok(file),
            Err(error) => {
                _ = self.disk.remove(path);
                Err(error)
            }
        }
    }

    fn remove_oldest(&self, state: &mut State) {
        let Some(CacheFile { number, addresses, .. }) = state.files.pop_front() else { return };
        for address in addresses {
            if state.entries.get(&address).is_some_and(|position| position.number == number) {
                state.entries.remove(&address);
            }
        }
        self.remove_file(number);
    }

    fn remove_file(&self, number: u64) {
        let path = self.path(number);
        match self.disk.remove(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => self.fail("remove", &path, &error),
            _ => {}
        }
    }

    /// Takes the entries of an earlier run's file.
    fn take_over(&self, number: u64) {
        let mut state = self.state.lock();
        state.next_number = state.next_number.max(number.saturating_add(1));
        let path = self.path(number);
        let opened = self.disk.open(&path).and_then(|file| Ok((file.length()?, file)));
        let (length, file) = match opened {
            Ok(opened) => opened,
            Err(error) => {
                self.fail("open", &path, &error);
                return self.remove_file(number);
            }
        };
        let mut header = [0; FILE_HEADER_BYTES];
        let is_good = file.read_exact_at(&mut header, 0).is_ok() && header == file_header(&self.config.owner);
        if !is_good || length > self.file_bytes() {
            return self.remove_file(number);
        }
        let (mut end, mut addresses) = (FILE_HEADER_BYTES as u64, Vec::new());
        while let Some((address, next)) = entry_at(&*file, end, length) {
            if state.entries.len() >= self.config.entries_max {
                break;
            }
            state.entries.insert(address, Position { number, offset: end });
            addresses.push(address);
            end = next;
        }
        state.files.push_back(CacheFile { number, file, end, addresses });
        while state.files.len() as u64 > FILES {
            self.remove_oldest(&mut state);
        }
    }
}

impl State {
    /// Returns where a chunk is, and whether that is one of the oldest files of a full cache.
    fn find(&self, address: ChunkAddress) -> Option<(Position, Arc<dyn File>, bool)> {
        let position = *self.entries.get(&address)?;
        let index = self.files.iter().position(|file| file.number == position.number)?;
        let is_old = self.files.len() as u64 == FILES && (index as u64) < OLDEST;
        Some((position, Arc::clone(&self.files[index].file), is_old))
    }
}

fn file_name(number: u64) -> String {
    format!("{number:016x}{SUFFIX}")
}

fn parse_name(name: &str) -> Option<u64> {
    let number = u64::from_str_radix(name.strip_suffix(SUFFIX)?, 16).ok()?;
    (file_name(number) == name).then_some(number)
}

fn file_header(owner: &[u8; 16]) -> [u8; FILE_HEADER_BYTES] {
    let mut header = [0; FILE_HEADER_BYTES];
    header[..8].copy_from_slice(MAGIC);
    header[8..12].copy_from_slice(&VERSION.to_be_bytes());
    header[12..28].copy_from_slice(owner);
    let crc = crc32c(&header[..28]);
    header[28..].copy_from_slice(&crc.to_be_bytes());
    header
}

fn entry_header(address: ChunkAddress, contents: &[u8]) -> [u8; ENTRY_HEADER_BYTES] {
    let mut header = [0; ENTRY_HEADER_BYTES];
    header[..4].copy_from_slice(ENTRY_MAGIC);
    header[4..24].copy_from_slice(&address.to_bytes());
    header[24..28].copy_from_slice(&crc32c(contents).to_be_bytes());
    let crc = crc32c(&header[..28]);
    header[28..].copy_from_slice(&crc.to_be_bytes());
    header
}

/// Returns the address and the checksum in an entry's header.
fn parse_entry(header: &[u8; ENTRY_HEADER_BYTES]) -> Option<(ChunkAddress, u32)> {
    let word = |at: usize| u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
    let is_good = &header[..4] == ENTRY_MAGIC && word(28) == crc32c(&header[..28]);
    let address = ChunkAddress::from_bytes(&header[4..24]).filter(|_| is_good)?;
    (address.stored_bytes as usize <= RECORD_AND_STORED_BYTES_MAX).then_some((address, word(24)))
}

/// Returns the chunk of the entry at this offset, and the offset behind it; `None` if there is no entry.
fn entry_at(file: &dyn File, offset: u64, length: u64) -> Option<(ChunkAddress, u64)> {
    let mut header = [0; ENTRY_HEADER_BYTES];
    file.read_exact_at(&mut header, offset).ok()?;
    let (address, _) = parse_entry(&header)?;
    let end = offset + ENTRY_HEADER_BYTES as u64 + u64::from(address.stored_bytes);
    (end <= length).then_some((address, end))
}

/// Reads an entry; the inner error describes what is wrong with it.
fn read_entry(file: &dyn File, offset: u64, address: ChunkAddress) -> io::Result<Result<Bytes, String>> {
    let mut bytes = vec![0; ENTRY_HEADER_BYTES + address.stored_bytes as usize];
    match file.read_exact_at(&mut bytes, offset) {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(Err("it is cut off".into())),
        Err(error) => return Err(error),
    }
    let (header, contents) = bytes.split_at(ENTRY_HEADER_BYTES);
    let parsed = header.try_into().ok().and_then(parse_entry);
    let checked = match parsed {
        None => Err("its header is damaged".to_owned()),
        Some((found, _)) if found != address => Err(format!("it is of {found:?}")),
        Some((_, expected)) => {
            let got = crc32c_of(&[contents]);
            if got == expected {
                Ok(())
            } else {
                Err(format!("checksum: expected {expected:08x}, got {got:08x}"))
            }
        }
    };
    Ok(checked.map(|()| Bytes::from(bytes).slice(ENTRY_HEADER_BYTES..)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use disk::{FaultyDisk, Garbling};

    const FOLDER: &str = "/cache";
    const OWNER: [u8; 16] = [7; 16];

    fn disk() -> FaultyDisk {
        let disk = FaultyDisk::new(1, Garbling::default());
        disk.create_dir(Path::new(FOLDER)).unwrap();
        disk.sync_dir(Path::new("/")).unwrap();
        disk
    }

    fn config(bytes_max: u64) -> DiskCacheConfig {
        DiskCacheConfig { folder: FOLDER.into(), bytes_max, entries_max: 1000, owner: OWNER }
    }

    fn open(disk: &FaultyDisk, config: DiskCacheConfig) -> DiskCache {
        DiskCache::open(Arc::new(disk.clone()), config).unwrap()
    }

    fn entry(number: u64) -> (ChunkAddress, Vec<u8>) {
        let contents = vec![number as u8; 100];
        (ChunkAddress { segment: 1 << 36 | number, offset: 32, stored_bytes: 100 }, contents)
    }

    fn put(cache: &DiskCache, numbers: std::ops::Range<u64>) {
        numbers.map(entry).for_each(|(address, contents)| cache.insert(address, &contents));
    }

    fn has(cache: &DiskCache, number: u64) -> bool {
        let (address, contents) = entry(number);
        let found = cache.get(address);
        assert!(found.as_ref().is_none_or(|found| *found == contents), "{number}");
        found.is_some()
    }

    fn count(cache: &DiskCache, numbers: std::ops::Range<u64>) -> usize {
        numbers.filter(|number| has(cache, *number)).count()
    }

    fn bytes_on(disk: &FaultyDisk) -> u64 {
        let names = disk.list(Path::new(FOLDER)).unwrap();
        names.iter().map(|name| disk.open(&Path::new(FOLDER).join(name)).unwrap().length().unwrap()).sum()
    }

    #[test]
    fn it_is_warm_after_a_restart() {
        let disk = disk();
        let cache = open(&disk, config(100_000));
        put(&cache, 0..60);
        assert_eq!(count(&cache, 0..70), 60);
        let (gone, _) = entry(3);
        cache.remove(gone);
        assert!(!has(&cache, 3));
        drop(cache);
        let cache = open(&disk, config(100_000));
        assert_eq!(count(&cache, 0..70), 60, "a removed entry is only forgotten");
        put(&cache, 60..65);
        assert_eq!((count(&cache, 0..70), cache.statistics().damaged), (65, 0));
        // Another partition's copies must never be found.
        let cache = open(&disk, DiskCacheConfig { owner: [8; 16], ..config(100_000) });
        assert_eq!((count(&cache, 0..70), disk.list(Path::new(FOLDER)).unwrap().len()), (0, 0));
    }

    #[test]
    fn its_size_is_bounded_and_the_newest_and_used_stay() {
        let disk = disk();
        let cache = open(&disk, config(16 * 1000));
        for number in 0..1000 {
            put(&cache, number..number + 1);
            // One that is used all the time.
            assert!(has(&cache, 0), "after {number}");
            assert!(bytes_on(&disk) <= 16 * 1000);
        }
        assert_eq!((count(&cache, 950..1000), count(&cache, 1..500)), (50, 0));
        drop(cache);
        let cache = open(&disk, config(16 * 100));
        assert_eq!(
            (cache.statistics().bytes, bytes_on(&disk)),
            (0, 0),
            "its files were longer than they may be now"
        );
        let few = open(&disk, DiskCacheConfig { entries_max: 10, ..config(16 * 1000) });
        put(&few, 0..100);
        assert!(few.statistics().entries <= 10 && has(&few, 99));
        few.insert(entry(200).0, &[1; 99]);
        assert!(!has(&few, 200), "it is not of this length");
        let long = ChunkAddress { stored_bytes: 5000, ..entry(201).0 };
        few.insert(long, &[1; 5000]);
        assert!(few.get(long).is_none(), "longer than a file");
    }

    #[test]
    fn a_damaged_entry_is_dropped_wherever_the_damage_is() {
        let middle = FILE_HEADER_BYTES + ENTRY_HEADER_BYTES + 100;
        for offset in middle..middle + ENTRY_HEADER_BYTES + 100 {
            let disk = disk();
            let before = open(&disk, config(100_000));
            put(&before, 0..3);
            disk.flip_bit(&before.path(0), offset as u64, offset as u8).unwrap();
            // An open after the damage finds what is before it, and no wrong copy.
            let after = open(&disk, config(100_000));
            assert!(has(&after, 0) && !has(&after, 1), "{offset}");
            assert!(!has(&before, 1) && before.statistics().damaged == 1, "{offset}");
            assert!(has(&before, 0) && has(&before, 2) && !has(&before, 1));
            put(&before, 1..2);
            assert!(has(&before, 1), "it can be added again");
        }
        let disk = disk();
        let cache = open(&disk, config(100_000));
        put(&cache, 0..3);
        disk.flip_bit(&cache.path(0), 3, 1).unwrap();
        assert_eq!(count(&open(&disk, config(100_000)), 0..3), 0);
    }

    #[test]
    fn a_crash_leaves_no_wrong_copy() {
        for seed in 0..200 {
            let garbling = Garbling { noise: seed % 2 == 0, short: seed % 3 == 0, ..Garbling::default() };
            let disk = FaultyDisk::new(seed, garbling);
            disk.create_dir(Path::new(FOLDER)).unwrap();
            disk.sync_dir(Path::new("/")).unwrap();
            let cache = open(&disk, config(16 * 4000));
            put(&cache, 0..50);
            disk.sync_dir(Path::new(FOLDER)).unwrap();
            put(&cache, 50..80);
            let disk = disk.crash();
            let cache = open(&disk, config(16 * 4000));
            // `has` checks the contents of each that is found.
            count(&cache, 0..80);
            put(&cache, 0..80);
            assert_eq!(count(&cache, 0..80), 80, "{seed}");
        }
    }

    #[test]
    fn errors_of_the_disk_are_misses() {
        let disk = disk();
        let cache = open(&disk, config(16 * 1000));
        for number in 0..300 {
            if number % 3 == 0 {
                disk.fail_at(disk.operations() + number % 5, ErrorKind::StorageFull);
            }
            put(&cache, number..number + 1);
            has(&cache, number);
        }
        assert!(cache.statistics().failures > 20, "{:?}", cache.statistics());
        // What is left of the last one, if anything.
        put(&cache, 300..320);
        put(&cache, 400..420);
        assert_eq!(count(&cache, 400..420), 20);
    }
}
