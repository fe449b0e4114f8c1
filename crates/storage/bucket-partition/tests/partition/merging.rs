//! Small objects become larger ones.

use crate::support::{Raw, bucket, config, opener, volumes};
use crate::writers::{contents, create, partition_id, volume};
use base::UnixTime;
use store::Partition;
use volume::{CompactionPolicy, CompactionStatistics, Volumes};
use volume_check::{CheckOptions, check};

/// Compacts until there is nothing to do, and removes dead objects.
fn compact(volumes: &Volumes, partition: &Partition) -> CompactionStatistics {
    let step = || volumes.compact_step(partition_id(), CompactionPolicy::default(), UnixTime(1)).unwrap();
    assert!((0..10_000).any(|_| step().is_idle), "compaction comes to no end");
    (0..2).for_each(|_| _ = partition.maintain().unwrap());
    volumes.compaction_statistics(partition_id()).unwrap()
}

#[test]
fn objects_of_single_chunks_become_few() {
    let bucket = bucket();
    let raw = Raw(bucket.clone());
    let partition = opener(&bucket).open(&config(), None).unwrap();
    let volumes = volumes(&partition);
    let volume = volume(&volumes, 1).unwrap();
    let data = |number: u32| number.to_le_bytes().repeat(1 + 300 * (number as usize % 4));
    for number in 0..31 {
        create(&volume, &format!("file-{number}"), &[data(number), vec![7; 3000]].concat()).unwrap();
    }
    let before = raw.list("chunks").len();
    let few = compact(&volumes, &partition);
    assert_eq!((raw.list("chunks").len(), few.merged_segments), (before, 0), "too few to be worth it");
    for number in 31..200 {
        create(&volume, &format!("file-{number}"), &[data(number), vec![7; 3000]].concat()).unwrap();
    }
    let (before, requests) = (raw.list("chunks"), bucket.met().requests);
    let found = contents(&volume);
    let bytes: u64 = before.iter().map(|(_, bytes)| bytes).sum();
    let many = compact(&volumes, &partition);
    let after = raw.list("chunks");
    println!(
        "{} objects of {bytes} bytes became {} by {} requests: {many:?}",
        before.len(),
        after.len(),
        bucket.met().requests - requests
    );
    assert!(before.len() >= 200 && after.len() < 40, "{} objects became {}", before.len(), after.len());
    assert!(many.merged_bytes <= bytes && many.copied_bytes == 0, "{many:?}");
    assert_eq!(contents(&volume), found);
    let again = compact(&volumes, &partition);
    assert_eq!((again, raw.list("chunks")), (many, after), "it comes to rest");
    drop((volume, volumes, partition));
    let inspection = opener(&bucket).inspect(None).unwrap();
    let (meta, segments) = (inspection.meta(), inspection.segments());
    let report = check(meta, Some(segments), CheckOptions { data: true }, &mut |_| {});
    assert!(report.is_clean() && report.chunks_read >= 200, "{report:#?}");
}
