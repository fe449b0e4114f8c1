use super::super::survey::tests::{key, record, replay};
use super::super::survey::{BLOCK_BYTES, read_all};
use super::*;
use disk::{FaultyDisk, Garbling};
use proptest::prelude::*;
use std::io::ErrorKind;
use std::sync::Arc;

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

fn gaps_on(disk: &FaultyDisk) -> Vec<u64> {
    read_all(disk, Path::new(FOLDER), Some(&key())).unwrap().into_iter().filter_map(|log| log.gap).collect()
}

fn offsets(log: &[u8]) -> Vec<u64> {
    gaps_on(&disk_with(log).0)
}

fn close_all(disk: &FaultyDisk) -> Result<(), StoreError> {
    close(disk, &read_all(disk, Path::new(FOLDER), Some(&key()))?)
}

/// Returns a log of records with these numbers of bytes besides their number.
fn log(lengths: &[usize]) -> Vec<u8> {
    let mut log = Vec::new();
    for (number, length) in (0..).zip(lengths) {
        log.extend(record(log.len(), number, 0, *length));
    }
    log
}

/// Bytes of a record besides its length.
const AROUND: usize = 41;
/// Where a record of 100 at the beginning ends.
const SECOND: usize = AROUND + 100;
/// The length of a record that fills the rest of a block after one of 100.
const FILLING: usize = BLOCK_BYTES - SECOND - AROUND;

#[test]
fn a_lost_block_is_a_gap_and_recovery_ends_there() {
    let mut bytes = log(&[100, FILLING, 50]);
    assert_eq!((offsets(&bytes), replay(&bytes)), (vec![], vec![0, 1, 2]));
    bytes[SECOND..BLOCK_BYTES].fill(0);
    assert_eq!((offsets(&bytes), replay(&bytes)), (vec![SECOND as u64], vec![0, 2]));
    let (disk, file) = disk_with(&bytes);
    close_all(&disk).unwrap();
    let mut marked = bytes.clone();
    file.read_exact_at(&mut marked, 0).unwrap();
    assert_eq!(replay(&marked), [0]);
    bytes[SECOND..][..HEADER_BYTES].copy_from_slice(&MARK);
    assert_eq!(marked, bytes, "nothing else changed");
    assert_eq!(gaps_on(&disk), []);
}

#[test]
fn a_lost_first_sector_of_a_record_is_a_gap() {
    let mut bytes = log(&[100, 5000, 50]);
    bytes[SECOND..512].fill(0);
    assert_eq!(offsets(&bytes), [SECOND as u64]);
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
    damaged[SECOND + 5] ^= 1;
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
    assert_eq!(gaps_on(&disk), []);
    close(&disk, &read_all(&disk, Path::new("/missing"), None).unwrap()).unwrap();
}

#[test]
fn a_gap_that_cannot_be_marked_is_an_error() {
    let mut failures = 0;
    for operation in 0..20 {
        let mut bytes = log(&[100, FILLING, 50]);
        bytes[SECOND..BLOCK_BYTES].fill(0);
        let (disk, _) = disk_with(&bytes);
        disk.fail_at(disk.operations() + operation, ErrorKind::Other);
        if let Err(error) = close_all(&disk) {
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
        close_all(&disk).unwrap();
        let mut after = bytes.clone();
        file.read_exact_at(&mut after, 0).unwrap();
        let replayed = replay(&after);
        prop_assert!(before.starts_with(&replayed));
        prop_assert!(replayed.iter().copied().eq(0..replayed.len() as u64));
        prop_assert_eq!(gaps_on(&disk), []);
    }
}
