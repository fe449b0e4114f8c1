use super::*;
use crate::Inspection;
use crate::test_families::{self, NAMES};
use crate::{Batch, ChunkAddress, Codec, MemoryEngine};
use bytes::Bytes;
use disk::{FaultyDisk, Garbling};
use std::fs;

fn config() -> PartitionConfig {
    let (families, maintenance) = (&test_families::ALL, Some(Duration::from_millis(1)));
    PartitionConfig { families, maintenance, ..PartitionConfig::default() }
}

#[test]
fn it_opens_again_with_everything_in_it() {
    let folder = tempfile::tempdir().unwrap();
    let partition = Partition::open(folder.path(), &config()).unwrap();
    let (uuid, id) = (partition.uuid(), partition.ids().next().unwrap());
    let (meta, chunks) = (partition.meta(), partition.chunks());
    let address = chunks.append(&[Bytes::from_static(b"hello")], Codec::Lz4).unwrap();
    chunks.sync().unwrap();
    let mut batch = Batch::new();
    batch.put(NAMES, "k", address.to_bytes());
    meta.sync(meta.commit(batch).unwrap()).unwrap();
    let error = Partition::open(folder.path(), &config()).err().unwrap().to_string();
    assert!(error.contains("already open"), "{error}");
    assert!(partition.space().unwrap().total_bytes >= partition.usable_bytes().unwrap());
    assert_eq!(partition.failure(), None);
    drop((meta, chunks, partition));

    let partition = Partition::open(folder.path(), &PartitionConfig { create: false, ..config() }).unwrap();
    assert_eq!(partition.uuid(), uuid);
    assert!(partition.ids().next().unwrap() > id);
    assert_eq!(partition.meta().get(NAMES, b"k").unwrap().unwrap(), &address.to_bytes()[..]);
    assert_eq!(partition.chunks().read(address).unwrap(), "hello");
    assert_eq!(partition.statistics().chunks.segments, 1);
    assert!(partition.statistics().meta.commits > 0);
}

#[test]
fn a_store_is_created_only_on_request_and_on_a_mount() {
    let folder = tempfile::tempdir().unwrap();
    let error = Partition::open(&folder.path().join("vicepz"), &config()).err().unwrap().to_string();
    assert!(error.contains("no such directory"), "{error}");
    let unasked = PartitionConfig { create: false, ..config() };
    assert!(Partition::open(folder.path(), &unasked).is_err());
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn a_newer_format_is_refused_untouched() {
    let folder = tempfile::tempdir().unwrap();
    drop(Partition::open(folder.path(), &config()).unwrap());
    let version = folder.path().join("cellar/VERSION");
    let text = fs::read_to_string(&version).unwrap().replace("format 1", "format 3");
    fs::write(&version, text).unwrap();
    let error = Partition::open(folder.path(), &config()).err().unwrap().to_string();
    assert!(error.contains("it has format 3; this program knows formats up to 2"), "{error}");
}

#[test]
fn lost_parts_are_missed_not_replaced() {
    for part in ["meta", "segments", "VERSION"] {
        let folder = tempfile::tempdir().unwrap();
        drop(Partition::open(folder.path(), &config()).unwrap());
        let lost = folder.path().join("cellar").join(part);
        if part == "VERSION" { fs::remove_file(&lost) } else { fs::remove_dir_all(&lost) }.unwrap();
        assert!(Partition::open(folder.path(), &config()).is_err(), "{part}");
    }
}

#[test]
fn an_interrupted_creation_is_taken_up_again() {
    let folder = tempfile::tempdir().unwrap();
    drop(Partition::open(folder.path(), &config()).unwrap());
    let file = |name: &str| folder.path().join("cellar").join(name);
    fs::rename(file("VERSION"), file("VERSION.new")).unwrap();
    fs::remove_dir_all(file("segments")).unwrap();
    drop(Partition::open(folder.path(), &config()).unwrap());
    assert!(file("VERSION").exists() && !file("VERSION.new").exists());
}

#[test]
fn its_thread_deletes_dead_segments() {
    let folder = tempfile::tempdir().unwrap();
    let segments = SegmentConfig { segment_bytes: 1, ..SegmentConfig::default() };
    let partition = Partition::open(folder.path(), &PartitionConfig { segments, ..config() }).unwrap();
    let chunks = partition.chunks();
    for _ in 0..10 {
        chunks.release(chunks.append(&[Bytes::from_static(b"x")], Codec::Raw).unwrap());
    }
    while partition.statistics().chunks.segments_deleted < 10 {
        thread::yield_now();
    }
    assert_eq!(partition.statistics().chunks.segments, 0);
}

#[allow(clippy::unnecessary_wraps, reason = "it must be a ChunkOf")]
fn chunk_of(_key: &[u8], value: &[u8]) -> Result<Option<ChunkAddress>, StoreError> {
    Ok(ChunkAddress::from_bytes(value))
}

#[test]
fn orphans_are_found_during_the_next_run() {
    let folder = tempfile::tempdir().unwrap();
    let segments = SegmentConfig { segment_bytes: 100, ..SegmentConfig::default() };
    let config =
        PartitionConfig { segments, chunk_names: Some(ChunkNames { family: NAMES, chunk_of }), ..config() };
    let store = |partition: &Partition, key: u64| {
        let (meta, chunks) = (partition.meta(), partition.chunks());
        let address = chunks.append(&[Bytes::from(vec![key as u8; 60])], Codec::Raw).unwrap();
        chunks.sync().unwrap();
        let mut batch = Batch::new();
        batch.put(NAMES, key.to_be_bytes(), address.to_bytes());
        meta.sync(meta.commit(batch).unwrap()).unwrap();
        address
    };
    let partition = Partition::open(folder.path(), &config).unwrap();
    assert!(!partition.needs_recount(), "it is new");
    let kept: Vec<_> = (0..5).map(|key| store(&partition, key)).collect();
    for _ in 0..10 {
        partition.chunks().append(&[Bytes::from(vec![9; 60])], Codec::Raw).unwrap();
    }
    drop(partition);
    // Simulates a run that was not closed cleanly.
    let families = &test_families::ALL;
    let options = MetaOptions { families, create: false, ..MetaOptions::default() };
    let meta = engines::local().open(&folder.path().join("cellar/meta"), &options).unwrap();
    let mut batch = Batch::new();
    batch.delete(Family::SYSTEM, "segments/closed");
    meta.commit(batch).unwrap();
    drop(meta);

    let partition = Partition::open(folder.path(), &config).unwrap();
    let new: Vec<_> = (5..10).map(|key| store(&partition, key)).collect();
    let end = Instant::now() + Duration::from_secs(60);
    while partition.statistics().chunks.segments_deleted < 10 || partition.needs_recount() {
        assert!(Instant::now() < end, "{:?}", partition.statistics().chunks);
        thread::yield_now();
    }
    assert_eq!(partition.statistics().chunks.segments, 10);
    for (key, address) in kept.iter().chain(&new).enumerate() {
        assert_eq!(partition.chunks().read(*address).unwrap(), vec![key as u8; 60]);
    }
}

fn master(byte: u8) -> MasterKey {
    MasterKey::parse(&[byte; 32]).unwrap()
}

#[test]
fn an_encrypted_partition_opens_only_with_its_key() {
    let folder = tempfile::tempdir().unwrap();
    let config = PartitionConfig { maintenance: None, ..config() };
    let open = |key: Option<&MasterKey>| Partition::open_encrypted(folder.path(), &config, key);
    let append = |partition: &Partition, text: &'static [u8]| {
        partition.chunks().append(&[Bytes::from_static(text)], Codec::Raw).unwrap()
    };
    let clear = append(&open(None).unwrap(), b"written in clear");
    let partition = open(Some(&master(1))).unwrap();
    let first = append(&partition, b"secret one");
    assert!(Partition::rekey(folder.path(), &master(1), &master(2), true).is_err(), "it is open");
    drop(partition);
    assert_eq!(Partition::rekey(folder.path(), &master(1), &master(2), true).unwrap(), 2);
    for key in [None, Some(&master(1))] {
        assert!(matches!(open(key).err(), Some(StoreError::Key { .. })));
    }
    let partition = open(Some(&master(2))).unwrap();
    let second = append(&partition, b"secret two");
    let chunks = partition.chunks();
    for (address, text) in
        [(clear, &b"written in clear"[..]), (first, b"secret one"), (second, b"secret two")]
    {
        assert_eq!(chunks.read(address).unwrap(), text);
    }
    drop((chunks, partition));
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder.path().join("cellar/segments")).unwrap() {
        found.extend(std::fs::read(entry.unwrap().path()).unwrap());
    }
    let has = |text: &[u8]| found.windows(text.len()).any(|window| window == text);
    assert!(has(b"written in clear") && !has(b"secret"));
    // The checksums can be verified without the key.
    let inspection = Inspection::open(folder.path()).unwrap();
    assert_eq!(inspection.segments().verify(second).unwrap(), 10);
    drop(inspection);
    assert!(Inspection::open_encrypted(folder.path(), Some(&master(1))).is_err());
    let inspection = Inspection::open_encrypted(folder.path(), Some(&master(2))).unwrap();
    assert_eq!(inspection.segments().verify(first).unwrap(), 10);
}

#[test]
fn the_format_is_raised_with_the_first_shared_chunk() {
    let folder = tempfile::tempdir().unwrap();
    let version = || fs::read_to_string(folder.path().join("cellar/VERSION")).unwrap();
    for _ in 0..2 {
        let partition = Partition::open(folder.path(), &config()).unwrap();
        partition.chunks().append(&[Bytes::from_static(b"hello")], Codec::Lz4).unwrap();
    }
    assert!(version().contains("\nformat 1\n"));
    let partition = Partition::open(folder.path(), &config()).unwrap();
    let uuid = partition.uuid();
    for _ in 0..3 {
        partition.chunks().begin_sharing().unwrap();
        assert_eq!(version(), format!("cellar partition\nformat 2\nuuid {uuid}\n"));
    }
    drop(partition);
    let partition = Partition::open(folder.path(), &config()).unwrap();
    assert_eq!(partition.uuid(), uuid);
    partition.chunks().begin_sharing().unwrap();
    drop(partition);
    Inspection::open(folder.path()).unwrap();
}

#[test]
fn digests_stay_the_same_when_keys_are_rotated() {
    let folder = tempfile::tempdir().unwrap();
    let digest = |key: u8| {
        let partition = Partition::open_encrypted(folder.path(), &config(), Some(&master(key))).unwrap();
        partition.chunks().digest(&[b"hello"])
    };
    let first = digest(1);
    assert_ne!(first, crate::digest::digest(None, &[b"hello"]));
    for key in 1..4 {
        Partition::rekey(folder.path(), &master(key), &master(key + 1), true).unwrap();
        assert_eq!(digest(key + 1), first);
    }
}

/// Metadata of another engine, and file data on a faulty disk.
#[test]
fn a_crashed_partition_in_memory_fences_its_predecessor() {
    let first_disk = FaultyDisk::new(1, Garbling::default());
    let place = Path::new("/vicepa");
    first_disk.create_dir(place).unwrap();
    first_disk.sync_dir(Path::new("/")).unwrap();
    let engine = Arc::new(MemoryEngine::new());
    let config = PartitionConfig { engine: engine.clone(), maintenance: None, ..config() };
    let open = |disk: &FaultyDisk| {
        Partition::open_on(&(Arc::new(disk.clone()) as Arc<dyn Disk>), place, &config).unwrap()
    };
    let store = |partition: &Partition, key: &str| {
        let address = partition.chunks().append(&[Bytes::from_static(b"hello")], Codec::Lz4).unwrap();
        partition.chunks().sync().unwrap();
        let mut batch = Batch::new();
        batch.put(NAMES, key, address.to_bytes());
        (address, partition.meta().commit(batch).unwrap())
    };
    let first = open(&first_disk);
    let id = first.ids().next().unwrap();
    let (address, number) = store(&first, "synced");
    first.meta().sync(number).unwrap();
    store(&first, "unsynced");
    assert!(first.statistics().meta.commits >= 2);

    let second_disk = first_disk.crash();
    engine.crash(0);
    let second = open(&second_disk);
    assert_eq!(second.uuid(), first.uuid());
    assert!(second.ids().next().unwrap() > id);
    assert_eq!(second.meta().get(NAMES, b"unsynced").unwrap(), None);
    assert_eq!(second.meta().get(NAMES, b"synced").unwrap().unwrap(), &address.to_bytes()[..]);
    assert_eq!(second.chunks().read(address).unwrap(), "hello");

    // The predecessor leaves service like a failed partition.
    let mut batch = Batch::new();
    batch.delete(NAMES, "synced");
    assert!(matches!(first.meta().commit(batch), Err(StoreError::Fenced { .. })));
    let late = first.chunks().append(&[Bytes::from_static(b"late")], Codec::Raw);
    assert!(matches!(late, Err(StoreError::Fenced { .. })), "{late:?}");
    assert!(first.failure().unwrap().contains("taken over"));
    assert_eq!(second.failure(), None);
    drop((first, second));
    let inspection = Inspection::open_with(&*engine, Arc::new(second_disk), place, None).unwrap();
    assert!(inspection.meta().get(NAMES, b"synced").unwrap().is_some());
    assert_eq!(inspection.segments().verify(address).unwrap(), 5);
}
