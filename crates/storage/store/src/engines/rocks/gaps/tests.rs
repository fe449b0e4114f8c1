use super::*;
use disk::{FaultyDisk, Garbling};
use proptest::prelude::*;
use std::sync::Arc;

/// Returns the bytes that RocksDB appends at `position` for a record that contains a number and `length`
/// other bytes.
pub(in super::super) fn record(position: usize, number: u64, length: usize) -> Vec<u8> {
    let payload = [&number.to_be_bytes()[..], &vec![number as u8 | 1; length]].concat();
    let (mut bytes, mut rest, mut is_first) = (Vec::new(), &payload[..], true);
    loop {
        let room = BLOCK_BYTES - (position + bytes.len()) % BLOCK_BYTES;
        if room < HEADER_BYTES {
            bytes.resize(bytes.len() + room, 0);
            continue;
        }
        let (part, beyond) = rest.split_at(rest.len().min(room - HEADER_BYTES));
        let kind = match (is_first, beyond.is_empty()) {
            (true, true) => 1,
            (true, false) => 2,
            (false, false) => 3,
            (false, true) => 4,
        };
        let covered = [&[kind], part].concat();
        bytes.extend(masked(crc32c(&covered)).to_le_bytes());
        bytes.extend((part.len() as u16).to_le_bytes());
        bytes.extend(covered);
        (rest, is_first) = (beyond, false);
        if beyond.is_empty() {
            return bytes;
        }
    }
}

/// Returns the numbers of the records that RocksDB 7.8 replays from a log in point-in-time recovery.
pub(in super::super) fn replay(log: &[u8]) -> Vec<u64> {
    let (mut numbers, mut partial) = (Vec::new(), None::<Vec<u8>>);
    for block in log.chunks(BLOCK_BYTES) {
        let mut rest = block;
        while let Some((header, body)) = rest.split_first_chunk::<HEADER_BYTES>() {
            let length = usize::from(u16::from_le_bytes([header[4], header[5]]));
            let is_skipped = header[6] == 0 && length == 0;
            if is_skipped && partial.is_none() {
                break;
            }
            if is_skipped || body.len() < length || !is_intact(&rest[..HEADER_BYTES + length]) {
                return numbers;
            }
            let (part, beyond) = body.split_at(length);
            rest = beyond;
            partial = match (header[6], partial) {
                (1 | 2, None) => Some(part.to_vec()),
                (3 | 4, Some(before)) => Some([&before, part].concat()),
                _ => return numbers,
            };
            if let 1 | 4 = header[6] {
                let number = partial.take().and_then(|record| record.first_chunk().copied());
                numbers.extend(number.map(u64::from_be_bytes));
            }
        }
    }
    numbers
}

const FOLDER: &str = "/meta";

fn disk_with(log: &[u8]) -> (FaultyDisk, Arc<dyn File>) {
    let disk = FaultyDisk::new(1, Garbling::default());
    disk.create_dir(Path::new(FOLDER)).unwrap();
    disk.sync_dir(Path::new("/")).unwrap();
    let file = disk.create(&Path::new(FOLDER).join("000007.log")).unwrap();
    file.write_all_at(&mut [IoSlice::new(log)], 0).unwrap();
    file.sync_all().unwrap();
    disk.sync_dir(Path::new(FOLDER)).unwrap();
    (disk, file)
}

fn offsets(log: &[u8]) -> Vec<u64> {
    let (disk, _) = disk_with(log);
    find(&disk, Path::new(FOLDER)).unwrap().into_iter().map(|gap| gap.offset).collect()
}

/// Returns a log of records with these numbers of bytes besides their number.
fn log(lengths: &[usize]) -> Vec<u8> {
    let mut log = Vec::new();
    for (number, length) in (0..).zip(lengths) {
        log.extend(record(log.len(), number, *length));
    }
    log
}

/// The length of a record that fills the rest of a block after one of 100.
const FILLING: usize = BLOCK_BYTES - 115 - 15;

#[test]
fn a_lost_block_is_a_gap_and_recovery_ends_there() {
    let mut bytes = log(&[100, FILLING, 50]);
    assert_eq!((offsets(&bytes), replay(&bytes)), (vec![], vec![0, 1, 2]));
    bytes[115..BLOCK_BYTES].fill(0);
    assert_eq!((offsets(&bytes), replay(&bytes)), (vec![115], vec![0, 2]));
    let (disk, file) = disk_with(&bytes);
    close(&disk, Path::new(FOLDER)).unwrap();
    let mut marked = bytes.clone();
    file.read_exact_at(&mut marked, 0).unwrap();
    assert_eq!(replay(&marked), [0]);
    bytes[115..][..HEADER_BYTES].copy_from_slice(&MARK);
    assert_eq!(marked, bytes, "nothing else changed");
    assert_eq!(find(&disk, Path::new(FOLDER)).unwrap(), []);
}

#[test]
fn a_lost_first_sector_of_a_record_is_a_gap() {
    let mut bytes = log(&[100, 5000, 50]);
    bytes[115..512].fill(0);
    assert_eq!(offsets(&bytes), [115]);
}

#[test]
fn zeros_at_the_end_and_other_damage_are_no_gaps() {
    let whole = log(&[100, 40_000, 50]);
    for zeros in [0, 3, 7, 512, BLOCK_BYTES, 10 * BLOCK_BYTES] {
        let mut bytes = whole.clone();
        bytes.resize(bytes.len() + zeros, 0);
        assert_eq!((offsets(&bytes), replay(&bytes)), (vec![], vec![0, 1, 2]), "{zeros}");
    }
    // A record of the wrong checksum, one that is cut off, and a type that is unknown.
    let mut damaged = whole.clone();
    damaged[120] ^= 1;
    assert_eq!((offsets(&damaged), replay(&damaged)), (vec![], vec![0]));
    assert_eq!((offsets(&whole[..200]), replay(&whole[..200])), (vec![], vec![0]));
    let mut unknown = whole;
    unknown[6] = 11;
    assert_eq!(offsets(&unknown), []);
}

#[test]
fn other_files_and_a_missing_folder_are_ignored() {
    let (disk, _) = disk_with(b"");
    for name in ["x.log", "000009.sst", "LOG"] {
        let file = disk.create(&Path::new(FOLDER).join(name)).unwrap();
        file.write_all_at(&mut [IoSlice::new(b"\0\0\0\0\0\0\0\0\0\0x")], 0).unwrap();
    }
    assert_eq!(find(&disk, Path::new(FOLDER)).unwrap(), []);
    close(&disk, Path::new("/missing")).unwrap();
}

#[test]
fn a_gap_that_cannot_be_marked_is_an_error() {
    let mut failures = 0;
    for operation in 0..20 {
        let mut bytes = log(&[100, FILLING, 50]);
        bytes[115..BLOCK_BYTES].fill(0);
        let (disk, _) = disk_with(&bytes);
        disk.fail_at(disk.operations() + operation, ErrorKind::Other);
        if let Err(error) = close(&disk, Path::new(FOLDER)) {
            assert!(error.to_string().contains(FOLDER), "{error}");
            failures += 1;
        }
    }
    assert!(failures >= 4, "{failures}");
}

proptest! {
    /// Whatever a log contains, closing its gap leaves what RocksDB replays up to there, and no gap.
    #[test]
    fn any_bytes_can_be_read(lengths in prop::collection::vec(0..50_000usize, 0..4),
                             garbage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 1..60_000usize), 0..4)) {
        let mut bytes = log(&lengths);
        for (at, byte, count) in garbage {
            if !bytes.is_empty() {
                let at = at.index(bytes.len());
                let end = bytes.len().min(at + count);
                bytes[at..end].fill(byte);
            }
        }
        let (disk, file) = disk_with(&bytes);
        let before = replay(&bytes);
        close(&disk, Path::new(FOLDER)).unwrap();
        let mut after = bytes.clone();
        file.read_exact_at(&mut after, 0).unwrap();
        let replayed = replay(&after);
        prop_assert!(before.starts_with(&replayed));
        prop_assert!(replayed.iter().copied().eq(0..replayed.len() as u64));
        prop_assert_eq!(find(&disk, Path::new(FOLDER)).unwrap(), []);
    }
}
