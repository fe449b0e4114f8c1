//! The check of a partition in a bucket, offline and while it is served: it finds planted damage, and nothing else.

use crate::support::{Raw, bucket, config, opener, volumes};
use crate::writers::{Writer, create, partition_id, volume};
use bucket::faulty::FaultyBucket;
use store::{Batch, Family};
use volume_check::{Check, CheckOptions, CheckReport, Checkpoint, check};

/// Damages some object; returns its name.
type Plant = fn(&Raw) -> String;

/// Creates a partition with files in several objects, and leaves it in order.
fn filled() -> FaultyBucket {
    let bucket = bucket();
    let partition = opener(&bucket).open(&config(), None).unwrap();
    let volumes = volumes(&partition);
    let mut writer = Writer::new(0);
    let volume = volume(&volumes, 0).unwrap();
    (0..40).for_each(|_| writer.next(&volume).unwrap());
    create(&volume, "last", &[7; 10_000]).unwrap();
    drop((volume, volumes));
    (0..2).for_each(|_| _ = partition.maintain().unwrap());
    drop(partition);
    bucket
}

fn check_offline(bucket: &FaultyBucket, data: bool) -> CheckReport {
    let inspection = opener(bucket).inspect(None).unwrap();
    check(inspection.meta(), Some(inspection.segments()), CheckOptions { data }, &mut |_| {})
}

fn check_online(bucket: &FaultyBucket, data: bool) -> CheckReport {
    let partition = opener(bucket).open(&config(), None).unwrap();
    let volumes = volumes(&partition);
    let reader = volumes.partition_reader(partition_id()).unwrap();
    let check = Check::new(CheckOptions { data }, 100, Checkpoint::default());
    check.run(&reader, &|state| reader.audit(state)).unwrap().unwrap()
}

/// Returns the name of the last object, which has the chunk that was stored last, and its contents.
fn last(raw: &Raw) -> (String, Vec<u8>) {
    let name = format!("chunks/{}", raw.list("chunks").last().unwrap().0);
    let contents = raw.get(&name).unwrap().to_vec();
    (name, contents)
}

#[test]
fn a_partition_without_damage_is_clean() {
    let bucket = filled();
    for data in [false, true] {
        for report in [check_offline(&bucket, data), check_online(&bucket, data)] {
            assert!(report.is_clean(), "{report:#?}");
            assert!(report.chunks > 10 && (!data || report.chunks_read == report.chunks), "{report:?}");
        }
    }
    // Objects of no account are not damage, but dead space; the running server removes them.
    let raw = Raw(bucket.clone());
    let before = check_offline(&bucket, false).dead_bytes;
    let (_, contents) = last(&raw);
    raw.put("chunks/0000001-0000fffff.seg", contents.clone());
    raw.put("chunks/another name", contents.clone());
    let report = check_offline(&bucket, true);
    assert!(report.is_clean() && report.dead_bytes == before + contents.len() as u64 - 32, "{report:?}");
    assert!(check_online(&bucket, true).is_clean());
    let partition = opener(&bucket).open(&config(), None).unwrap();
    assert_eq!(partition.sweep().unwrap(), 1);
}

#[test]
fn planted_damage_is_found() {
    let missing: Plant = |raw| {
        let (name, _) = last(raw);
        raw.delete(&name);
        name
    };
    let cut: Plant = |raw| {
        let (name, contents) = last(raw);
        raw.put(&name, contents[..contents.len() - 1].to_vec());
        name
    };
    let header: Plant = |raw| {
        let (name, mut contents) = last(raw);
        contents[0] ^= 1;
        raw.put(&name, contents);
        name
    };
    let flipped: Plant = |raw| {
        let (name, mut contents) = last(raw);
        let end = contents.len() - 1;
        contents[end] ^= 1;
        raw.put(&name, contents);
        name
    };
    for (plant, what, needs_data) in [
        (missing, "no such segment", false),
        (cut, "before the chunk does", false),
        (header, "the header is not that of object", false),
        (flipped, "checksum", true),
    ] {
        let bucket = filled();
        let name = plant(&Raw(bucket.clone()));
        assert_eq!(check_offline(&bucket, false).is_clean(), needs_data, "{what}");
        for report in [check_offline(&bucket, true), check_online(&bucket, true)] {
            let damages: Vec<String> =
                report.damages.iter().map(|damage| format!("{} {}", damage.place, damage.what)).collect();
            let is_found = damages.iter().any(|damage| damage.contains(what) && damage.contains(&name));
            assert!(is_found, "{what} in {name}: {damages:#?}");
        }
    }
}

#[test]
fn wrong_accounts_are_found() {
    let bucket = filled();
    let partition = opener(&bucket).open(&config(), None).unwrap();
    let meta = partition.meta();
    let mut accounts = Vec::new();
    let range = store::KeyRange::ascending(&[], &[0xff; 9]);
    meta.scan(Family::SEGMENTS, range, &mut |key, value| {
        accounts.push((key.to_vec(), value.to_vec()));
        std::ops::ControlFlow::Continue(())
    })
    .unwrap();
    let (key, mut row) = accounts.pop().unwrap();
    // Everything in it is counted as dead.
    let end = u64::from_be_bytes(row[2..10].try_into().unwrap());
    row[10..].copy_from_slice(&(end - 32).to_be_bytes());
    let mut batch = Batch::new();
    batch.put(Family::SEGMENTS, key, row);
    meta.sync(meta.commit(batch).unwrap()).unwrap();
    let report = check_offline(&bucket, false);
    assert!(report.damages.iter().any(|damage| damage.what.contains("are counted as dead")), "{report:#?}");
}
