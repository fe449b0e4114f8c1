//! Reads files as they would be stored and applies every policy to every chunk.

use super::walk::{Tree, skip};
use bytes::Bytes;
use flate2::Compression;
use flate2::read::ZlibDecoder;
use flate2::write::ZlibEncoder;
use indicatif::{ProgressBar, ProgressStyle};
use parking_lot::Mutex;
use rustix::time::{ClockId, clock_gettime};
use std::collections::HashSet;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use store::{ChunkOwner, Codec, EncodedChunk};
use volume::VolumeOptions;

/// Name of the comparison in the table.
const GZIP: &str = "gzip-6 128K";
/// Record size of a ZFS file system, and the sector size to which it rounds up.
const GZIP_RECORD_BYTES: usize = 128 << 10;
const SECTOR_BYTES: u64 = 512;

/// A truncated chunk hash.
type Hash = [u8; 16];

/// Totals for one policy.
pub(super) struct Tally {
    pub(super) name: String,
    /// `None` for the comparison with another file system, which has no inline data.
    codec: Option<Codec>,
    /// Bytes of encoded chunks.
    pub(super) stored_bytes: u64,
    /// Of these, bytes in duplicate chunks.
    pub(super) duplicate_bytes: u64,
    pub(super) compressing: Duration,
    pub(super) decompressing: Duration,
}

impl Tally {
    fn new(name: String, codec: Option<Codec>) -> Tally {
        let (compressing, decompressing) = (Duration::ZERO, Duration::ZERO);
        Tally { name, codec, stored_bytes: 0, duplicate_bytes: 0, compressing, decompressing }
    }

    /// Returns whether this is one of Cellar's policies.
    pub(super) fn is_ours(&self) -> bool {
        self.codec.is_some()
    }
}

/// Totals for all files, or for the sample.
#[derive(Default)]
pub(super) struct Measured {
    pub(super) bytes: u64,
    /// Bytes of files short enough to be stored inline in the metadata.
    pub(super) inline_bytes: u64,
    pub(super) chunks: u64,
    pub(super) tallies: Vec<Tally>,
    pub(super) skipped: Vec<String>,
}

impl Measured {
    /// Returns the number of bytes compressed.
    pub(super) fn tried_bytes(&self, tally: &Tally) -> u64 {
        if tally.is_ours() { self.bytes - self.inline_bytes } else { self.bytes }
    }

    fn new(policies: &[Codec]) -> Measured {
        let ours = policies.iter().map(|codec| Tally::new(codec.to_string(), Some(*codec)));
        let tallies = ours.chain([Tally::new(GZIP.to_owned(), None)]).collect();
        Measured { tallies, ..Measured::default() }
    }

    fn add(&mut self, other: Measured) {
        self.bytes += other.bytes;
        self.inline_bytes += other.inline_bytes;
        self.chunks += other.chunks;
        for (sum, more) in self.tallies.iter_mut().zip(other.tallies) {
            sum.stored_bytes += more.stored_bytes;
            sum.duplicate_bytes += more.duplicate_bytes;
            sum.compressing += more.compressing;
            sum.decompressing += more.decompressing;
        }
        for what in other.skipped {
            skip(&mut self.skipped, what);
        }
    }
}

/// State shared by the threads.
struct Work<'a> {
    tree: &'a Tree,
    next: AtomicUsize,
    policies: &'a [Codec],
    sample: Option<u8>,
    options: VolumeOptions,
    seen: Mutex<HashSet<Hash>>,
    bar: ProgressBar,
}

/// Applies all policies to all files.
pub(super) fn measure(tree: &Tree, policies: &[Codec], sample: Option<u8>, threads: usize) -> Measured {
    let bar = ProgressBar::new(tree.bytes);
    let style = ProgressStyle::with_template("{wide_bar} {bytes} of {total_bytes} {bytes_per_sec} {eta}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    let (options, seen) = (VolumeOptions::default(), Mutex::default());
    let work = Work { tree, next: AtomicUsize::new(0), policies, sample, options, seen, bar };
    let mut sum = Measured::new(policies);
    std::thread::scope(|scope| {
        let running: Vec<_> = (0..threads.max(1)).map(|_| scope.spawn(|| work.run())).collect();
        for thread in running {
            match thread.join() {
                Ok(measured) => sum.add(measured),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
    });
    work.bar.finish_and_clear();
    sum
}

impl Work<'_> {
    fn run(&self) -> Measured {
        let mut measured = Measured::new(self.policies);
        while let Some((path, _)) = self.tree.files.get(self.next.fetch_add(1, Ordering::Relaxed)) {
            if let Err(error) = self.file(path, &mut measured) {
                skip(&mut measured.skipped, format!("{}: {error}", path.display()));
            }
        }
        measured
    }

    fn file(&self, path: &Path, measured: &mut Measured) -> io::Result<()> {
        let mut file = File::open(path)?;
        let chunk_bytes = 1u64 << self.options.chunk_shift;
        let length = file.metadata()?.len();
        for index in 0..length.div_ceil(chunk_bytes) {
            let begin = index * chunk_bytes;
            self.bar.inc(chunk_bytes.min(length - begin));
            if !self.is_in_sample(path, index) {
                continue;
            }
            file.seek(SeekFrom::Start(begin))?;
            let mut chunk = Vec::with_capacity(chunk_bytes.min(length - begin) as usize);
            Read::by_ref(&mut file).take(chunk_bytes).read_to_end(&mut chunk)?;
            self.chunk(&chunk.into(), measured).map_err(io::Error::other)?;
        }
        Ok(())
    }

    /// Selects by name and offset, so that the same command gives the same result.
    fn is_in_sample(&self, path: &Path, index: u64) -> bool {
        let Some(percent) = self.sample else { return true };
        let mut hasher = blake3::Hasher::new();
        hasher.update(path.as_os_str().as_encoded_bytes()).update(&index.to_be_bytes());
        u16::from(hasher.finalize().as_bytes()[0]) * 100 < u16::from(percent) * 256
    }

    fn chunk(&self, chunk: &Bytes, measured: &mut Measured) -> Result<(), String> {
        measured.bytes += chunk.len() as u64;
        let is_inline = chunk.len() <= self.options.inline_bytes_max;
        let is_new = is_inline || self.is_new(chunk);
        if is_inline {
            measured.inline_bytes += chunk.len() as u64;
        } else {
            measured.chunks += 1;
        }
        for tally in &mut measured.tallies {
            match tally.codec {
                None => gzip(tally, chunk)?,
                Some(codec) if !is_inline => ours(tally, codec, chunk, is_new)?,
                Some(_) => {}
            }
        }
        Ok(())
    }

    fn is_new(&self, chunk: &Bytes) -> bool {
        let hash = blake3::hash(chunk);
        let (head, _) = hash.as_bytes().split_at(size_of::<Hash>());
        Hash::try_from(head).is_ok_and(|hash| self.seen.lock().insert(hash))
    }
}

/// Returns the processor time of this thread, which excludes the machine's other work.
fn cpu_time() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec as u32)
}

fn ours(tally: &mut Tally, codec: Codec, chunk: &Bytes, is_new: bool) -> Result<(), String> {
    let began = cpu_time();
    let encoded = EncodedChunk::new(ChunkOwner::default(), std::slice::from_ref(chunk), codec)
        .map_err(|error| error.to_string())?;
    tally.compressing += cpu_time().saturating_sub(began);
    tally.stored_bytes += encoded.disk_bytes();
    if !is_new {
        tally.duplicate_bytes += encoded.disk_bytes();
    }
    let began = cpu_time();
    let decoded = encoded.decode()?;
    tally.decompressing += cpu_time().saturating_sub(began);
    if decoded == chunk { Ok(()) } else { Err(format!("{codec} returned different bytes")) }
}

/// Compresses like ZFS with `compression=gzip-6 recordsize=128K`: a record that does not shrink by an eighth
/// stays uncompressed, and sizes are rounded up to sectors.
fn gzip(tally: &mut Tally, chunk: &Bytes) -> Result<(), String> {
    for record in chunk.chunks(GZIP_RECORD_BYTES) {
        let began = cpu_time();
        let mut encoder = ZlibEncoder::new(Vec::with_capacity(record.len()), Compression::new(6));
        let written = encoder.write_all(record).and_then(|()| encoder.finish());
        tally.compressing += cpu_time().saturating_sub(began);
        let stored = written.map_err(|error| error.to_string())?;
        let began = cpu_time();
        let mut raw = Vec::with_capacity(record.len());
        ZlibDecoder::new(&stored[..]).read_to_end(&mut raw).map_err(|error| error.to_string())?;
        tally.decompressing += cpu_time().saturating_sub(began);
        let shrinks = stored.len() <= record.len() - record.len() / 8;
        let bytes = if shrinks { stored.len() } else { record.len() };
        tally.stored_bytes += (bytes as u64).next_multiple_of(SECTOR_BYTES);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::walk::look;
    use super::*;

    fn tree(folder: &Path) -> Tree {
        let text = b"what a tree would take before it is stored. ".repeat(20_000);
        std::fs::create_dir(folder.join("sub")).unwrap();
        std::fs::write(folder.join("one"), &text).unwrap();
        std::fs::write(folder.join("sub/two"), &text).unwrap();
        std::fs::write(folder.join("small"), [7; 4096]).unwrap();
        std::fs::write(folder.join("empty"), []).unwrap();
        std::os::unix::fs::symlink("/etc", folder.join("link")).unwrap();
        look(folder).unwrap()
    }

    #[test]
    fn files_are_counted_as_they_would_be_stored() {
        let folder = tempfile::tempdir().unwrap();
        let tree = tree(folder.path());
        assert_eq!((tree.files.len(), tree.directories, tree.links), (4, 2, 1));
        let policies = [Codec::Raw, Codec::Lz4, Codec::Zstd(3)];
        let measured = measure(&tree, &policies, None, 2);
        assert_eq!(measured.bytes, 2 * 880_000 + 4096);
        assert_eq!((measured.inline_bytes, measured.chunks), (4096, 8));
        let [raw, lz4, zstd, gzip] = measured.tallies.as_slice() else { panic!("four tallies") };
        assert!(raw.stored_bytes > 1_760_000 && raw.duplicate_bytes * 2 == raw.stored_bytes);
        assert!(lz4.stored_bytes < raw.stored_bytes / 50 && zstd.stored_bytes < lz4.stored_bytes);
        assert!(!gzip.is_ours() && gzip.stored_bytes % SECTOR_BYTES == 0 && gzip.duplicate_bytes == 0);
        assert!(measured.skipped.is_empty());
    }

    #[test]
    fn a_file_that_went_away_is_skipped_and_named() {
        let folder = tempfile::tempdir().unwrap();
        let tree = tree(folder.path());
        std::fs::remove_file(folder.path().join("one")).unwrap();
        let measured = measure(&tree, &[Codec::Lz4], None, 1);
        assert!(measured.skipped.len() == 1 && measured.skipped[0].contains("one: No such file"));
        assert_eq!(measured.bytes, 880_000 + 4096);
        assert!(look(&folder.path().join("absent")).is_err());
    }

    #[test]
    fn a_sample_reads_some_of_it() {
        let folder = tempfile::tempdir().unwrap();
        for name in 0..40 {
            std::fs::write(folder.path().join(name.to_string()), vec![name; 600_000]).unwrap();
        }
        let tree = look(folder.path()).unwrap();
        let read = measure(&tree, &[Codec::Raw], Some(50), 2).bytes;
        assert!((tree.bytes / 4..tree.bytes * 3 / 4).contains(&read), "{read} of {}", tree.bytes);
    }
}
