//! Files written by earlier versions, which every version must read.

use bytes::Bytes;
use disk::{Disk, RealDisk};
use std::fs;
use std::io::Write;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use store::segment::walk;
use store::{
    ChunkAddress, ChunkOwner, ChunkStore, Codec, Database, Family, KeyRange, KeyRing, MasterKey, MemoryMeta,
    SegmentConfig, SegmentStore, StoreError,
};
use uuid::Uuid;

const SEGMENT: u64 = 2;
const OWNER: ChunkOwner = ChunkOwner(*b"group 01node 2unique 3at");
const FILE_NAME: &str = "0000000000000002.seg";

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name)
}

/// Returns the contents of the golden segments, in order.
fn chunks() -> Vec<(Codec, Bytes)> {
    let text = Bytes::from("All that is gold does not glitter. ".repeat(100));
    let squares: Bytes = (0..700u32).map(|n| ((n * n) >> 3) as u8).collect();
    vec![
        (Codec::Raw, Bytes::from_static(b"raw")),
        (Codec::Lz4, text.clone()),
        (Codec::Zstd(3), text),
        (Codec::Lz4, squares),
        (Codec::Raw, Bytes::new()),
        (Codec::Zstd(-1), vec![0; 1 << 20].into()),
    ]
}

fn open(folder: &Path) -> Result<SegmentStore, StoreError> {
    let meta = Arc::new(MemoryMeta::new());
    SegmentStore::open(Arc::new(RealDisk), folder, meta, SegmentConfig::default())
}

/// Rewrites the golden file. Only for a new version of the format, into a new file.
#[test]
#[ignore = "writes into the source tree"]
fn write_the_golden_segment() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path()).unwrap();
    for (codec, chunk) in chunks() {
        assert_eq!(store.append_for(OWNER, &[chunk], codec).unwrap().segment, SEGMENT);
    }
    drop(store);
    fs::copy(folder.path().join(FILE_NAME), golden("segment-v2.seg")).unwrap();
}

#[test]
fn the_segments_of_all_versions_are_read() {
    read_golden("segment-v1.seg", 35);
    read_golden("segment-v2.seg", 67);
}

fn read_golden(name: &str, first_bytes: u8) {
    let folder = tempfile::tempdir().unwrap();
    fs::copy(golden(name), folder.path().join(FILE_NAME)).unwrap();
    let mut addresses: Vec<ChunkAddress> = Vec::new();
    let file = RealDisk.open(&folder.path().join(FILE_NAME)).unwrap();
    let end = walk(&*file, SEGMENT, |address| addresses.push(address)).unwrap();
    assert_eq!((end.offset, end.why), (file.length().unwrap(), None));
    let store = open(folder.path()).unwrap();
    let expected = chunks();
    assert_eq!(addresses.len(), expected.len());
    for (address, (_, chunk)) in addresses.iter().zip(&expected) {
        assert_eq!(store.read(*address).unwrap(), chunk);
    }
    // The address of the first chunk as stored in metadata.
    let bytes = [0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 32, 0, 0, 0, first_bytes];
    assert_eq!(ChunkAddress::from_bytes(&bytes), Some(addresses[0]));
}

/// The partition of `encrypted-v2.seg`; its key ring is `encrypted-v2.keys`.
const PARTITION: Uuid = Uuid::from_u128(0x0123_4567_89ab_cdef_0011_2233_4455_6677);

fn open_encrypted(folder: &Path) -> SegmentStore {
    let master = MasterKey::parse(&[0x5a; 32]).unwrap();
    let keys = KeyRing::open(&RealDisk, folder, PARTITION, Some(&master)).unwrap().map(Arc::new);
    let (disk, meta) = (Arc::new(RealDisk), Arc::new(MemoryMeta::new()));
    SegmentStore::open_encrypted(disk, folder, meta, SegmentConfig::default(), keys).unwrap()
}

/// Rewrites the golden files. Only for a new version of the format, into new files.
#[test]
#[ignore = "writes into the source tree"]
fn write_the_golden_encrypted_segment() {
    let folder = tempfile::tempdir().unwrap();
    let store = open_encrypted(folder.path());
    for (codec, chunk) in chunks() {
        assert_eq!(store.append(&[chunk], codec).unwrap().segment, SEGMENT);
    }
    drop(store);
    fs::copy(folder.path().join(FILE_NAME), golden("encrypted-v2.seg")).unwrap();
    fs::copy(folder.path().join("KEYS"), golden("encrypted-v2.keys")).unwrap();
}

#[test]
fn the_encrypted_segment_of_version_2_is_read_with_its_key() {
    let folder = tempfile::tempdir().unwrap();
    fs::copy(golden("encrypted-v2.seg"), folder.path().join(FILE_NAME)).unwrap();
    fs::copy(golden("encrypted-v2.keys"), folder.path().join("KEYS")).unwrap();
    let mut addresses: Vec<ChunkAddress> = Vec::new();
    let file = RealDisk.open(&folder.path().join(FILE_NAME)).unwrap();
    let end = walk(&*file, SEGMENT, |address| addresses.push(address)).unwrap();
    assert_eq!((end.offset, end.why), (file.length().unwrap(), None));
    let (with, without) = (open_encrypted(folder.path()), open(folder.path()).unwrap());
    let expected = chunks();
    assert_eq!(addresses.len(), expected.len());
    for (address, (_, chunk)) in addresses.iter().zip(&expected) {
        assert_eq!(with.read(*address).unwrap(), chunk);
        let error = without.read(*address).unwrap_err().to_string();
        assert!(error.contains("no key is given"), "{error}");
    }
    let bytes = fs::read(golden("encrypted-v2.seg")).unwrap();
    assert!(!bytes.windows(8).any(|window| window == b"All that"), "nothing is in clear");
}

/// Copies the database of a cell whose server was killed before anything was in tables: all is in the log,
/// which a program wrote that did not write zeros ahead.
fn killed_database() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("meta")).unwrap();
    for name in ["VERSION", "meta/000004.log", "meta/CURRENT", "meta/IDENTITY", "meta/MANIFEST-000005"] {
        fs::copy(golden("database-killed").join(name), folder.path().join(name)).unwrap();
    }
    folder
}

const LOCATIONS: Family = Family::new(6, "locations");
const PROTECTION: Family = Family::new(7, "protection");

/// The families of that database besides the store's own.
const FAMILIES: [Family; 7] = [
    Family::new(1, "volumes"),
    Family::new(2, "vnodes"),
    Family::new(3, "entries"),
    Family::new(4, "extents"),
    LOCATIONS,
    PROTECTION,
    Family::new(8, "totals"),
];

/// Opens a database and returns all keys and values of both families of a cell.
fn contents(folder: &Path) -> Vec<(Vec<u8>, Vec<u8>)> {
    let database = Database::open(folder, &FAMILIES).unwrap();
    let mut found = Vec::new();
    for family in [LOCATIONS, PROTECTION] {
        let mut visit = |key: &[u8], value: &[u8]| {
            found.push((key.to_vec(), value.to_vec()));
            ControlFlow::Continue(())
        };
        database.meta().scan(family, KeyRange::ascending(b"", &[0xff; 16]), &mut visit).unwrap();
    }
    found
}

#[test]
fn a_log_is_read_with_and_without_zeros_at_its_end() {
    let folder = killed_database();
    let found = contents(folder.path());
    let has = |name: &[u8]| {
        let holds = |bytes: &[u8]| bytes.windows(name.len()).any(|window| window == name);
        found.iter().any(|(key, value)| holds(key) || holds(value))
    };
    assert!(has(b"root.afs") && has(b"root.cell"), "{found:?}");
    assert!(has(b"user.admin"), "the last commit");
    assert_eq!(contents(folder.path()), found, "after an orderly close");
    let padded = killed_database();
    let log = padded.path().join("meta/000004.log");
    fs::File::options().append(true).open(log).unwrap().write_all(&vec![0; 512 << 10]).unwrap();
    assert_eq!(contents(padded.path()), found);
}
