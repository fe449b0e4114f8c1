//! Copies on the local disk.

use crate::support::{bucket, config, get, opener_with, put};
use bucket::faulty::FaultyBucket;
use bucket_partition::{BucketConfig, LocalCache};
use disk::faulty::{FaultyDisk, Garbling};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use store::{MetaConfig, Partition, PartitionConfig, SegmentConfig, StoreError};

fn options(folder: &Path) -> BucketConfig {
    let cache = LocalCache { folder: folder.to_owned(), bytes_max: 64 << 20 };
    BucketConfig { cache: Some(cache), ..BucketConfig::default() }
}

/// Nothing is cached in memory.
fn open(bucket: &FaultyBucket, folder: &Path) -> Result<Partition, StoreError> {
    let meta = MetaConfig { cache_bytes: 0, ..MetaConfig::small() };
    let segments = SegmentConfig { cache_bytes: 0, ..SegmentConfig::default() };
    opener_with(bucket, &options(folder)).open(&PartitionConfig { meta, segments, ..config() }, None)
}

/// Returns all files below a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

#[test]
fn copies_are_warm_after_a_restart_and_of_one_partition_only() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("deep/cache");
    let (one, other) = (bucket(), bucket());
    let partition = open(&one, &path).unwrap();
    (0..20).for_each(|number| _ = put(&partition, &format!("k{number}"), &[number; 500]).unwrap());
    let error = open(&other, &path).err().unwrap().to_string();
    assert!(error.contains("LOCK") && error.contains("each partition needs its own"), "{error}");
    drop(partition);
    let read_all = || {
        let partition = open(&one, &path).unwrap();
        let before = one.met().requests;
        for number in 0..20 {
            let found = get(&partition, &format!("k{number}")).unwrap().unwrap();
            assert_eq!(found, [number; 500][..]);
        }
        println!("{} requests to read 20 chunks with their records", one.met().requests - before);
        partition
    };
    drop(read_all());
    let partition = read_all();
    let copies = partition.disk_cache_statistics().unwrap();
    assert_eq!((copies.hits, copies.misses), (20, 0));
    drop(partition);
    // Those of another partition are never found, whatever they are called.
    let partition = open(&other, &path).unwrap();
    assert_eq!(get(&partition, "k0").unwrap(), None);
    assert_eq!(partition.disk_cache_statistics().unwrap().entries, 0);
}

#[test]
fn damaged_copies_are_read_from_the_bucket_again() {
    let folder = tempfile::tempdir().unwrap();
    let bucket = bucket();
    let partition = open(&bucket, folder.path()).unwrap();
    (0..20).for_each(|number| _ = put(&partition, &format!("k{number}"), &[number; 500]).unwrap());
    drop(partition);
    let check = |damage: &dyn Fn(&mut Vec<u8>)| {
        let mut damaged = 0;
        for file in files(folder.path()) {
            let mut contents = fs::read(&file).unwrap();
            if contents.is_empty() {
                continue;
            }
            damage(&mut contents);
            fs::write(&file, contents).unwrap();
            damaged += 1;
        }
        let partition = open(&bucket, folder.path()).unwrap();
        for number in 0..20 {
            assert_eq!(get(&partition, &format!("k{number}")).unwrap().unwrap(), [number; 500][..]);
        }
        damaged
    };
    assert!(check(&|contents| contents.iter_mut().step_by(37).for_each(|byte| *byte ^= 0x55)) > 1);
    assert!(check(&|contents| contents.fill(0)) > 1, "as after a loss of power");
    check(&|contents| contents.truncate(contents.len() / 2));
}

#[test]
fn it_opens_without_its_copies() {
    let folder = tempfile::tempdir().unwrap();
    let bucket = bucket();
    let partition = open(&bucket, folder.path()).unwrap();
    put(&partition, "k", b"hello").unwrap();
    drop(partition);
    fs::remove_dir_all(folder.path()).unwrap();
    let partition = open(&bucket, folder.path()).unwrap();
    assert_eq!(get(&partition, "k").unwrap().unwrap(), "hello");
}

#[test]
fn a_folder_that_cannot_be_used_is_done_without() {
    let folder = tempfile::tempdir().unwrap();
    let bucket = bucket();
    for (path, blocked) in
        [("a", "a"), ("b/below", "b"), ("c", "c/chunks"), ("d", "d/tables"), ("e", "e/LOCK")]
    {
        let blocked = folder.path().join(blocked);
        fs::create_dir_all(blocked.parent().unwrap()).unwrap();
        // `LOCK` should be a file, and all others folders.
        if blocked.ends_with("LOCK") { fs::create_dir(&blocked) } else { fs::write(&blocked, "") }.unwrap();
        let partition = open(&bucket, &folder.path().join(path)).unwrap();
        assert_eq!(partition.disk_cache_statistics(), None, "{path}");
        put(&partition, "k", path.as_bytes()).unwrap();
        assert_eq!(get(&partition, "k").unwrap().unwrap(), path);
    }
}

/// Each access to the local disk fails once while the partition is opened.
#[test]
fn no_error_of_the_local_disk_prevents_an_open() {
    let bucket = bucket();
    for operation in 0.. {
        let folder = tempfile::tempdir().unwrap();
        let disk = FaultyDisk::new(1, Garbling::default());
        disk.fail_at(operation, std::io::ErrorKind::ReadOnlyFilesystem);
        let options = BucketConfig { disk: Arc::new(disk.clone()), ..options(&folder.path().join("cache")) };
        let partition = opener_with(&bucket, &options).open(&config(), None).unwrap();
        let opened = disk.operations();
        put(&partition, "k", b"hello").unwrap();
        assert_eq!(get(&partition, "k").unwrap().unwrap(), "hello");
        if opened <= operation {
            assert!(partition.disk_cache_statistics().is_some());
            assert!(operation > 5, "it has accessed the disk only {opened} times");
            return;
        }
    }
}
