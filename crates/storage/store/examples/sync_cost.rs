//! Measures what it costs to make a small record of a log durable, by the way in which the log's file was
//! prepared.
//!
//! `cargo run --release -p store --example sync_cost [folder [records]]`. The folder selects the disk to
//! measure (default: the current directory); a file is created in it and removed afterwards. The ways take
//! turns, a hundred records each, so that changes of the machine's speed affect all alike.

use rustix::fs::{FallocateFlags, OFlags, fallocate};
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

/// Bytes of a record: the metadata of creating a small file.
const RECORD_BYTES: usize = 700;
const BLOCK_BYTES: usize = 4096;
/// Space that is prepared at a time.
const STEP_BYTES: u64 = 256 << 10;
const FILE_BYTES: u64 = 16 << 20;
const TURN: usize = 100;

/// How the file is prepared, and how a record becomes durable.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Growing,
    ReservedBeyondEnd,
    Reserved,
    ZerosAhead,
    Zeros,
    Old,
    DirectSync,
    DirectThenSync,
    NothingDirty,
}

impl Way {
    const ALL: [(Way, &str); 9] = [
        (Way::Growing, "appended to a growing file, fdatasync"),
        (Way::ReservedBeyondEnd, "the same, blocks reserved beyond the end (fallocate, KEEP_SIZE)"),
        (Way::Reserved, "into reserved blocks within the file (fallocate), fdatasync"),
        (Way::ZerosAhead, "over zeros appended 256 KiB at a time, fdatasync (appending included)"),
        (Way::Zeros, "over zeros written and synced long before, fdatasync"),
        (Way::Old, "over older records (a recycled file), fdatasync"),
        (Way::DirectSync, "over older records, whole blocks, O_DIRECT and O_DSYNC"),
        (Way::DirectThenSync, "over older records, whole blocks, O_DIRECT, fdatasync"),
        (Way::NothingDirty, "fdatasync with nothing to write"),
    ];

    fn flags(self) -> OFlags {
        match self {
            Way::DirectSync => OFlags::DIRECT | OFlags::DSYNC,
            Way::DirectThenSync => OFlags::DIRECT,
            _ => OFlags::empty(),
        }
    }

    fn first_bytes(self) -> Option<u8> {
        match self {
            Way::Zeros => Some(0),
            Way::Old | Way::DirectSync | Way::DirectThenSync => Some(0xa5),
            _ => None,
        }
    }
}

/// A log that is written in one of the ways.
struct Log {
    way: Way,
    file: File,
    zeros: File,
    end: u64,
    prepared: u64,
    block: Vec<u8>,
    /// Where aligned memory begins in `block`.
    aligned: usize,
    times: Vec<Duration>,
}

impl Log {
    fn create(way: Way, path: &Path) -> io::Result<Log> {
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create_new(true).open(path)?;
        if let Some(byte) = way.first_bytes() {
            for offset in (0..FILE_BYTES).step_by(1 << 20) {
                file.write_all_at(&vec![byte; 1 << 20], offset)?;
            }
        }
        match way {
            Way::ReservedBeyondEnd => fallocate(&file, FallocateFlags::KEEP_SIZE, 0, FILE_BYTES)?,
            Way::Reserved => fallocate(&file, FallocateFlags::empty(), 0, FILE_BYTES)?,
            _ => {}
        }
        file.sync_all()?;
        let flags = way.flags().bits().cast_signed();
        let file = OpenOptions::new().read(true).write(true).custom_flags(flags).open(path)?;
        let zeros = OpenOptions::new().append(true).open(path)?;
        let block = vec![0x5a; 2 * BLOCK_BYTES];
        let aligned = block.as_ptr().align_offset(BLOCK_BYTES);
        Ok(Log { way, file, zeros, end: 0, prepared: 0, block, aligned, times: Vec::new() })
    }

    /// Makes one more record durable.
    fn append(&mut self) -> io::Result<()> {
        let begun = Instant::now();
        let record = &self.block[self.aligned..][..RECORD_BYTES];
        match self.way {
            Way::NothingDirty => {}
            Way::DirectSync | Way::DirectThenSync => {
                // A block is written again until it is full.
                let block = &self.block[self.aligned..][..BLOCK_BYTES];
                self.file.write_all_at(block, self.end / BLOCK_BYTES as u64 * BLOCK_BYTES as u64)?;
            }
            _ => self.file.write_all_at(record, self.end)?,
        }
        if self.way == Way::ZerosAhead && self.end + STEP_BYTES / 2 > self.prepared {
            self.zeros.write_all(&vec![0; STEP_BYTES as usize])?;
            self.prepared = self.zeros.metadata()?.len();
        }
        if self.way != Way::DirectSync {
            self.file.sync_data()?;
        }
        self.times.push(begun.elapsed());
        self.end = (self.end + RECORD_BYTES as u64) % (FILE_BYTES - BLOCK_BYTES as u64);
        Ok(())
    }

    fn report(&mut self, name: &str) {
        self.times.sort_unstable();
        let at = |percent: usize| self.times[(self.times.len() - 1) * percent / 100].as_micros();
        let mean = self.times.iter().sum::<Duration>() / self.times.len() as u32;
        println!("{:5} {:5} {:5} {:5}  {name}", mean.as_micros(), at(50), at(90), at(99));
    }
}

fn main() -> io::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let parent = arguments.first().map_or(".", String::as_str);
    let records = arguments.get(1).and_then(|text| text.parse().ok()).unwrap_or(3000);
    let folder = Path::new(parent).canonicalize()?.join("sync-cost");
    std::fs::create_dir(&folder)?;
    let outcome = measure(&folder, records);
    std::fs::remove_dir_all(&folder)?;
    outcome
}

fn measure(folder: &Path, records: usize) -> io::Result<()> {
    let create = |(way, name): (Way, &str)| Log::create(way, &folder.join(name.replace('/', " ")));
    let mut logs: Vec<Log> = Way::ALL.map(create).into_iter().collect::<io::Result<_>>()?;
    for _ in 0..records.div_ceil(TURN) {
        for log in &mut logs {
            (0..TURN).try_for_each(|_| log.append())?;
        }
    }
    println!("microseconds of a record of {RECORD_BYTES} bytes, {records} each");
    println!(" mean  half  90 %  99 %");
    for (log, (_, name)) in logs.iter_mut().zip(Way::ALL) {
        log.report(name);
    }
    Ok(())
}
