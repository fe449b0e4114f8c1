//! A bucket that denies for a while that objects exist. A store that is consistent, as the probe requires, does not do that:
//! what is denied is reported as damage of these objects. It is no reason to remove anything or to stop serving.

use crate::support::{bucket, config, opener, volumes};
use crate::writers::{create, named, partition_id, read, volume};
use base::UnixTime;
use bucket::faulty::Away;
use store::StoreError;
use volume::{Quarantined, ScrubPolicy, Volumes};
use volume_check::{CheckOptions, check};

const FILES: u8 = 6;
const FILE_BYTES: usize = 10_000;

/// Scrubs the whole partition, and returns what is known to be damaged.
fn scrubbed(volumes: &Volumes, now: u32) -> Vec<Quarantined> {
    let policy = ScrubPolicy { period_seconds: 0 };
    (0..40).for_each(|step| _ = volumes.scrub_step(partition_id(), policy, UnixTime(now + step)).unwrap());
    volumes.quarantine(partition_id()).unwrap()
}

#[test]
fn objects_that_are_denied_for_a_while_are_not_lost() {
    let bucket = bucket();
    let partition = opener(&bucket).open(&config(), None).unwrap();
    let volumes = volumes(&partition);
    let volume = volume(&volumes, 0).unwrap();
    let contents = |file: u8| vec![file; FILE_BYTES];
    let fids: Vec<_> = (0..FILES)
        .map(|file| {
            let fid = create(&volume, &format!("file{file}"), &contents(file)).unwrap();
            volumes.sync().unwrap();
            fid
        })
        .collect();
    (0..2).for_each(|_| _ = partition.maintain().unwrap());
    bucket.set_away(Some(Away::Hiding));
    let mut denied = 0;
    for address in named(&*partition.meta()) {
        match partition.chunks().read(address) {
            Ok(_) => {}
            Err(error @ StoreError::Damaged { .. }) => {
                let said = error.to_string();
                assert!(said.contains("/chunks/0000001-") && said.contains("no such object"), "{said}");
                denied += 1;
            }
            Err(other) => panic!("{other}"),
        }
    }
    assert!(denied > 1, "they are all in memory");
    let found = scrubbed(&volumes, 100);
    assert!(!found.is_empty() && found.iter().all(|damage| damage.fid.is_some()), "{found:?}");
    (0..3).for_each(|_| _ = partition.maintain().unwrap());
    assert_eq!(partition.sweep().unwrap(), 0);
    assert_eq!(partition.failure(), None);
    create(&volume, "while", &contents(FILES)).unwrap();
    bucket.set_away(None);
    for (file, fid) in (0..).zip(&fids) {
        assert_eq!(read(&volume, *fid), contents(file));
    }
    assert_eq!(scrubbed(&volumes, 1000), []);
    drop((volume, volumes, partition));
    let inspection = opener(&bucket).inspect(None).unwrap();
    let options = CheckOptions { data: true };
    let report = check(inspection.meta(), Some(inspection.segments()), options, &mut |_| {});
    assert!(report.is_clean(), "{report:#?}");
}
