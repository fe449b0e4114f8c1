use super::*;
use std::collections::BTreeSet;

const ROUNDS: u64 = 300;

fn disk(seed: u64) -> FaultyDisk {
    FaultyDisk::new(seed, Garbling::default())
}

fn put(file: &dyn File, bytes: &[u8], offset: u64) -> io::Result<()> {
    file.write_all_at(&mut [IoSlice::new(bytes)], offset)
}

fn contents(disk: &FaultyDisk, path: &str) -> Option<Vec<u8>> {
    let file = disk.open(Path::new(path)).ok()?;
    let mut bytes = vec![0; file.length().unwrap() as usize];
    file.read_exact_at(&mut bytes, 0).unwrap();
    Some(bytes)
}

/// Returns a file whose name is durable.
fn durable_file(disk: &FaultyDisk) -> Arc<dyn File> {
    let file = disk.create(Path::new("/a")).unwrap();
    disk.sync_dir(Path::new("/")).unwrap();
    file
}

fn over_crashes<T: Ord>(mut look: impl FnMut(u64) -> T) -> BTreeSet<T> {
    (0..ROUNDS).map(&mut look).collect()
}

#[test]
fn synced_data_survives_every_crash() {
    for seed in 0..ROUNDS {
        let disk = FaultyDisk::new(seed, Garbling { torn: Torn::Byte, noise: true, short: true });
        let file = durable_file(&disk);
        put(&*file, &[7; 3000], 0).unwrap();
        file.sync_data().unwrap();
        put(&*file, &[8; 512], 3000).unwrap();
        let found = contents(&disk.crash(), "/a").unwrap();
        assert_eq!(found[..3000], [7; 3000], "seed {seed}");
    }
}

#[test]
fn unsynced_sectors_are_kept_and_lost_in_every_combination() {
    let seen = over_crashes(|seed| {
        let disk = disk(seed);
        let file = durable_file(&disk);
        put(&*file, &[0; 1024], 0).unwrap();
        file.sync_all().unwrap();
        put(&*file, &[1; 512], 0).unwrap();
        put(&*file, &[1; 512], 512).unwrap();
        let found = contents(&disk.crash(), "/a").unwrap();
        assert!(found.chunks(512).all(|sector| sector.iter().all(|byte| *byte == sector[0])));
        (found[0], found[512])
    });
    assert_eq!(seen.len(), 4);
}

#[test]
fn bytes_are_torn_when_asked_for() {
    let seen = over_crashes(|seed| {
        let disk = FaultyDisk::new(seed, Garbling { torn: Torn::Byte, ..Garbling::default() });
        let file = durable_file(&disk);
        put(&*file, &[0; 512], 0).unwrap();
        file.sync_all().unwrap();
        put(&*file, &[1; 512], 0).unwrap();
        contents(&disk.crash(), "/a").unwrap().iter().map(|byte| usize::from(*byte)).sum::<usize>()
    });
    assert!(seen.len() > 10, "{seen:?}");
}

#[test]
fn a_synced_later_write_is_never_undone_by_an_earlier_one() {
    let disk = disk(1);
    let file = durable_file(&disk);
    put(&*file, &[1; 600], 0).unwrap();
    put(&*file, &[2; 600], 0).unwrap();
    file.set_len(550).unwrap();
    file.sync_all().unwrap();
    assert_eq!(contents(&disk.crash(), "/a").unwrap(), [2; 550]);
}

#[test]
fn a_name_is_durable_only_after_its_folder_was_synced() {
    let seen = over_crashes(|seed| {
        let disk = disk(seed);
        let file = disk.create(Path::new("/a")).unwrap();
        put(&*file, b"x", 0).unwrap();
        file.sync_all().unwrap();
        contents(&disk.crash(), "/a")
    });
    assert_eq!(seen, BTreeSet::from([None, Some(b"x".to_vec())]));
}

#[test]
fn a_rename_is_whole_or_not_there() {
    let seen = over_crashes(|seed| {
        let disk = disk(seed);
        let file = durable_file(&disk);
        put(&*file, b"old", 0).unwrap();
        file.sync_all().unwrap();
        let new = disk.create(Path::new("/b")).unwrap();
        put(&*new, b"new", 0).unwrap();
        new.sync_all().unwrap();
        disk.sync_dir(Path::new("/")).unwrap();
        disk.rename(Path::new("/b"), Path::new("/a")).unwrap();
        contents(&disk.crash(), "/a").unwrap()
    });
    assert_eq!(seen, BTreeSet::from([b"new".to_vec(), b"old".to_vec()]));
}

#[test]
fn a_removed_file_may_come_back_and_open_handles_keep_working() {
    let seen = over_crashes(|seed| {
        let disk = disk(seed);
        let file = durable_file(&disk);
        disk.remove(Path::new("/a")).unwrap();
        put(&*file, b"x", 0).unwrap();
        disk.crash().exists(Path::new("/a")).unwrap()
    });
    assert_eq!(seen.len(), 2);
}

#[test]
fn a_failed_sync_is_not_repaired_by_a_later_one() {
    let seen = over_crashes(|seed| {
        let disk = disk(seed);
        let file = durable_file(&disk);
        put(&*file, &[1; 512], 0).unwrap();
        disk.fail_at(disk.operations(), io::ErrorKind::Other);
        file.sync_data().unwrap_err();
        file.sync_data().unwrap();
        assert_eq!(contents(&disk, "/a").unwrap(), [1; 512]);
        contents(&disk.crash(), "/a").unwrap() == [1; 512]
    });
    assert_eq!(seen.len(), 2);
}

#[test]
fn the_chosen_operation_fails_and_only_that_one() {
    let disk = disk(3);
    let file = durable_file(&disk);
    disk.fail_at(disk.operations() + 1, io::ErrorKind::Other);
    put(&*file, b"a", 0).unwrap();
    put(&*file, b"b", 1).unwrap_err();
    put(&*file, b"c", 2).unwrap();
    disk.cut_power_at(disk.operations());
    file.sync_all().unwrap_err();
    assert!(disk.list(Path::new("/")).is_err());
    // Nothing has an effect after a power cut.
    put(&*file, &[9; 5000], 0).unwrap_err();
    file.sync_all().unwrap_err();
    assert!(contents(&disk.crash(), "/a").unwrap().len() <= 3);
}

#[test]
fn a_full_disk_takes_no_more_until_something_is_removed() {
    let disk = disk(4);
    disk.set_capacity(1000);
    let file = durable_file(&disk);
    put(&*file, &[0; 900], 0).unwrap();
    assert_eq!(put(&*file, &[0; 200], 900).unwrap_err().kind(), io::ErrorKind::StorageFull);
    assert_eq!(disk.space(Path::new("/")).unwrap(), Space { total_bytes: 1000, free_bytes: 100 });
    disk.remove(Path::new("/a")).unwrap();
    assert_eq!(disk.space(Path::new("/")).unwrap().free_bytes, 1000);
}

#[test]
fn short_transfers_are_finished_by_the_helpers() {
    let disk = FaultyDisk::new(5, Garbling { short: true, ..Garbling::default() });
    let file = durable_file(&disk);
    let bytes: Vec<u8> = (0..10_000u32).map(|n| n as u8).collect();
    for round in 0..50 {
        put(&*file, &bytes, round).unwrap();
        let mut back = vec![0; bytes.len()];
        file.read_exact_at(&mut back, round).unwrap();
        assert_eq!(back, bytes);
    }
}

#[test]
fn locks_exclude_and_do_not_survive_a_crash() {
    let disk = disk(6);
    let held = disk.lock(Path::new("/LOCK")).unwrap();
    assert_eq!(disk.lock(Path::new("/LOCK")).err().unwrap().kind(), io::ErrorKind::WouldBlock);
    disk.crash().lock(Path::new("/LOCK")).unwrap();
    drop(held);
    disk.lock(Path::new("/LOCK")).unwrap();
}

#[test]
fn the_same_seed_gives_the_same_disk() {
    let history = |seed| {
        let disk = disk(seed);
        let file = durable_file(&disk);
        (0..20).for_each(|n| put(&*file, &[n as u8; 700], n * 300).unwrap());
        contents(&disk.crash(), "/a")
    };
    assert_eq!(history(9), history(9));
    assert_ne!(history(9), history(10));
}

#[test]
fn a_flipped_bit_is_seen() {
    let disk = disk(7);
    let file = durable_file(&disk);
    put(&*file, &[0; 4], 0).unwrap();
    disk.flip_bit(Path::new("/a"), 2, 3).unwrap();
    assert_eq!(contents(&disk, "/a").unwrap(), [0, 0, 8, 0]);
    assert!(disk.flip_bit(Path::new("/a"), 4, 0).is_err());
}
