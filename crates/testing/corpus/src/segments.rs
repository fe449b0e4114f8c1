//! Segment files of chunks.

use crate::frames::{Fields, frames};
use crc_fast::{CrcAlgorithm, checksum};
use disk::{Disk, FaultyDisk, File, Garbling};
use std::io::IoSlice;
use std::path::Path;
use std::sync::Arc;
use store::segment::walk;
use store::{
    ChunkAddress, ChunkStore, FileData, MemoryMeta, Reserve, SegmentConfig, SegmentStore, StoreError,
};

const FOLDER: &str = "/segments";
const FILE: &str = "/segments/0000000000000001.seg";
const SEGMENT: u64 = 1;
const CHUNK_BYTES_MAX: usize = 1 << 20;

/// Exercises a segment file. If the first byte is 0, the rest is the complete file. Otherwise the pieces of
/// the rest are records, which get correct checksums: one byte for the codec, four for the decoded length,
/// then the data.
pub fn segment(data: &[u8]) {
    let Some((raw, rest)) = data.split_first() else { return };
    let contents = if *raw == 0 { rest.to_vec() } else { sealed(rest) };
    let disk = Arc::new(FaultyDisk::new(1, Garbling::default()));
    let file = write(&disk, &contents).expect("a disk without faults");
    let mut found = Vec::new();
    if let Ok(end) = walk(&*file, SEGMENT, |address| found.push(address)) {
        assert!(end.offset <= contents.len().max(32) as u64);
    }
    let mut fields = Fields(rest);
    let [segment, offset] = [fields.byte(), fields.byte()].map(u64::from);
    found.push(ChunkAddress { segment, offset, stored_bytes: fields.word() });
    let store = open(disk).expect("opening succeeds whatever the segments contain");
    for address in found {
        if let Ok(chunk) = store.read(address) {
            assert!(chunk.len() <= CHUNK_BYTES_MAX);
        }
    }
    store.maintain().expect("a disk without faults");
}

fn write(disk: &FaultyDisk, contents: &[u8]) -> std::io::Result<Arc<dyn File>> {
    disk.create_dir(Path::new(FOLDER))?;
    let file = disk.create(Path::new(FILE))?;
    file.write_all_at(&mut [IoSlice::new(contents)], 0)?;
    file.sync_all()?;
    Ok(file)
}

fn open(disk: Arc<FaultyDisk>) -> Result<SegmentStore, StoreError> {
    let config = SegmentConfig {
        segment_bytes: 1 << 20,
        cache_bytes: 1 << 20,
        open_files_max: 4,
        reserve: Reserve { bytes: 0, permille: 0 },
        unsynced_bytes_max: 1 << 20,
        aligned_bytes_min: 64 << 10,
    };
    SegmentStore::open(disk, Path::new(FOLDER), Arc::new(MemoryMeta::new()), config)
}

/// Returns the checksum that ends the formats of partitions.
pub(crate) fn crc(bytes: &[u8]) -> [u8; 4] {
    (checksum(CrcAlgorithm::Crc32Iscsi, bytes) as u32).to_be_bytes()
}

/// Builds a segment with valid headers; format: docs/reference/formats/segment.md.
fn sealed(data: &[u8]) -> Vec<u8> {
    let mut file = [&b"CELLSEGM"[..], &1u32.to_be_bytes(), &[0; 4], &SEGMENT.to_be_bytes(), &[0; 4]].concat();
    file.extend(crc(&file));
    for frame in frames(data) {
        let mut fields = Fields(frame);
        let (codec, raw_bytes) = (fields.byte(), fields.word());
        let stored = fields.0;
        let mut head = [b"CHNK", &[codec, 0, 0, 0][..], &raw_bytes.to_be_bytes()].concat();
        head.extend((stored.len() as u32).to_be_bytes());
        head.extend(SEGMENT.to_be_bytes());
        head.extend(crc(stored));
        let place = (file.len() as u64).to_be_bytes();
        let check = crc(&[&head[..], &place].concat());
        head.extend(check);
        file.extend(head);
        file.extend_from_slice(stored);
    }
    file
}
