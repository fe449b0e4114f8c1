//! What a partition finds in a bucket, and in the copies of it on the local disk.

use crate::frames::{Fields, frames};
use crate::segments::crc;
use bytes::Bytes;
use cluster_proto::{ClusterRecord, NodeName, NodeRecord, OwnerRecord, ReachRecord, ServiceAddresses};
use disk::{Disk, FaultyDisk, File, Garbling};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::io::IoSlice;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use store::{
    Bucket, BucketError, ChunkAddress, ChunkStore, DiskCache, DiskCacheConfig, FileData, MemoryMeta,
    ObjectChunks, ObjectConfig, ObjectPart, StoreError, VisitObject,
};

/// The epoch of the process before.
const EPOCH: u64 = 1;
const CACHE: &str = "/cache";
const OWNER: [u8; 16] = [1; 16];
const RECORD: &str = "a record that was accepted is encoded as it was";

/// Exercises the leases, reached nodes, owners, lists of partitions and of addresses of a cluster. If the first byte is 0, the rest is
/// the object; otherwise its last line, with the checksum, is added.
pub fn cluster_records(data: &[u8]) {
    let Some((raw, rest)) = data.split_first() else { return };
    let line = u32::from_be_bytes(crc(rest));
    let object =
        if *raw == 0 { rest.to_vec() } else { [rest, format!("crc32c: {line:08x}\n").as_bytes()].concat() };
    let name: NodeName = "a.example".parse().expect("the name is valid");
    if let Ok(record) = NodeRecord::decode(&name, &object) {
        assert_eq!(NodeRecord::decode(&name, &record.encode()).as_ref(), Ok(&record), "{RECORD}");
    }
    if let Ok(record) = OwnerRecord::decode(&object) {
        assert_eq!(OwnerRecord::decode(&record.encode()).as_ref(), Ok(&record), "{RECORD}");
    }
    if let Ok(record) = ClusterRecord::decode(&object) {
        assert_eq!(ClusterRecord::decode(&record.encode()).as_ref(), Ok(&record), "{RECORD}");
    }
    if let Ok(record) = ReachRecord::decode(&name, &object) {
        assert_eq!(ReachRecord::decode(&name, &record.encode()).as_ref(), Ok(&record), "{RECORD}");
    }
    if let Ok(record) = ServiceAddresses::decode(&object) {
        assert_eq!(ServiceAddresses::decode(&record.encode()).as_ref(), Ok(&record), "{RECORD}");
    }
}

/// Objects in memory.
#[derive(Default)]
struct Objects {
    /// Guards the objects, by name.
    objects: Mutex<BTreeMap<String, Bytes>>,
}

impl Bucket for Objects {
    fn begin(&self, name: &str, contents: &Bytes) {
        self.objects.lock().entry(name.to_owned()).or_insert_with(|| contents.clone());
    }

    fn finish(&self, _names: &[String]) -> Result<(), BucketError> {
        Ok(())
    }

    fn read(&self, name: &str, range: Range<u64>) -> Result<ObjectPart, BucketError> {
        let missing = || BucketError::Missing { name: name.to_owned() };
        let object = self.objects.lock().get(name).cloned().ok_or_else(missing)?;
        let end = range.end.min(object.len() as u64);
        let part = range.start.min(end) as usize..end as usize;
        Ok(ObjectPart { bytes: object.slice(part), object_bytes: object.len() as u64 })
    }

    fn read_other(&self, from: &str, range: Range<u64>) -> Result<ObjectPart, BucketError> {
        self.read(from, range)
    }

    fn copy(&self, from: &str, name: &str) -> Result<u64, BucketError> {
        let ObjectPart { bytes, object_bytes } = self.read(from, 0..u64::MAX)?;
        self.begin(name, &bytes);
        Ok(object_bytes)
    }

    fn remove(&self, names: &[String]) -> Result<(), BucketError> {
        self.objects.lock().retain(|name, _| !names.contains(name));
        Ok(())
    }

    fn list(&self, after: &str, visit: VisitObject<'_>) -> Result<(), BucketError> {
        let all: Vec<_> =
            self.objects.lock().iter().map(|(name, object)| (name.clone(), object.len())).collect();
        for (name, length) in all.iter().filter(|(name, _)| name.as_str() > after) {
            if visit(name, *length as u64).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn place(&self) -> String {
        "memory".into()
    }
}

/// Exercises objects of chunks, records of loans, and copies on the local disk, as the next owner of a partition finds them.
/// The first byte of each piece decides what the rest is: an object of chunks; one of any name, which ends with a line feed;
/// the record of a loan, or a file of copies, which get correct checksums.
pub fn bucket_objects(data: &[u8]) {
    let (bucket, mut copies, mut addresses) = (Arc::<Objects>::default(), Vec::new(), Vec::new());
    for (number, frame) in frames(data).enumerate() {
        let Some((kind, rest)) = frame.split_first() else { continue };
        let id = EPOCH << 36 | number as u64;
        let (name, contents) = match kind % 4 {
            0 => {
                let mut fields = Fields(rest);
                let stored_bytes = fields.word();
                addresses.extend([0, 32].map(|offset| ChunkAddress { segment: id, offset, stored_bytes }));
                addresses.push(ChunkAddress { segment: id, offset: 32, stored_bytes: rest.len() as u32 });
                (format!("{EPOCH:07x}-{number:09x}.seg"), rest.to_vec())
            }
            1 => {
                let end = rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len());
                let (name, contents) = rest.split_at(end);
                (String::from_utf8_lossy(name).into_owned(), contents.to_vec())
            }
            2 => (format!("loan-{id:016x}"), [rest, &crc(rest)].concat()),
            _ => {
                copies.push(copied(rest, &mut addresses));
                continue;
            }
        };
        bucket.objects.lock().insert(name, contents.into());
    }
    next_owner(&bucket, &copies, &addresses).expect("an open succeeds whatever is in the bucket");
}

/// Builds a file of copies: for each piece an address and the record.
fn copied(data: &[u8], addresses: &mut Vec<ChunkAddress>) -> Vec<u8> {
    let head = [&b"CELLCACH"[..], &1u32.to_be_bytes(), &OWNER].concat();
    let mut file = [&head[..], &crc(&head)].concat();
    for frame in frames(data) {
        let mut fields = Fields(frame);
        let address: [u8; 20] = fields.array();
        let head = [&b"CCHE"[..], &address, &crc(fields.0)].concat();
        file.extend_from_slice(&[&head[..], &crc(&head), fields.0].concat());
        addresses.extend(ChunkAddress::from_bytes(&address));
    }
    file
}

fn next_owner(
    bucket: &Arc<Objects>,
    copies: &[Vec<u8>],
    addresses: &[ChunkAddress],
) -> Result<(), StoreError> {
    let disk = FaultyDisk::new(1, Garbling::default());
    disk.create_dir(Path::new(CACHE)).expect("a disk without faults");
    for (number, contents) in copies.iter().enumerate() {
        let file = disk.create(&Path::new(CACHE).join(format!("{number:016x}.cache")));
        let file: Arc<dyn File> = file.expect("a disk without faults");
        file.write_all_at(&mut [IoSlice::new(contents)], 0).expect("a disk without faults");
    }
    let config =
        DiskCacheConfig { folder: CACHE.into(), bytes_max: 1 << 20, entries_max: 1000, owner: OWNER };
    let cache = DiskCache::open(Arc::new(disk), config)?;
    let config = ObjectConfig { cache_bytes: 0, ..ObjectConfig::default() };
    let chunks = ObjectChunks::open(Arc::clone(bucket) as _, Arc::new(MemoryMeta::new()), config, None)?;
    let chunks = chunks.with_disk_cache(cache);
    for address in addresses {
        _ = chunks.read(*address);
        _ = chunks.records(address.segment, 0, usize::MAX);
    }
    _ = chunks.lent(true);
    chunks.sweep(&mut || true)?;
    chunks.maintain().map(drop)
}
