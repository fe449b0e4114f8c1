//! Buckets that earlier versions wrote (`tests/golden/bucket-VERSION`): each later version opens them, finds what is in their
//! list, in full, writes, and opens them again. A bucket is a folder with two partitions: a volume with a clone, whose
//! chunks the second partition has borrowed for a copy of the volume. The process of the second one was killed.

use crate::crossing::{HOME, Side, is_clean_by, noise, send};
use crate::writers::{contents, create};
use base::{UnixTime, VolumeId, VolumeType};
use bucket::{Access, open};
use object_store::ObjectStore;
use rand::SeedableRng;
use rand::rngs::SmallRng;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use volume::CloneVolume;

const CLONE: VolumeId = VolumeId(1001);
/// What both partitions have, one line for each file.
const LIST: &str = "list.txt";

fn golden(version: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(format!("bucket-{version}"))
}

fn folder(path: &Path) -> Arc<dyn ObjectStore> {
    open(&format!("file://{}", path.display()).parse().unwrap(), &Access::default()).unwrap()
}

fn side(path: &Path, side: usize, seed: u64) -> Side {
    Side::open_with(Side::opener_of(folder(path), side, seed), side).expect("it opens")
}

/// FNV-1a, which needs no crate and never changes.
fn digest(data: &[u8]) -> u64 {
    data.iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

fn list(sides: &[Side; 2]) -> String {
    let mut text = String::new();
    for (number, volumes) in [(0, &[HOME, CLONE][..]), (1, &[HOME])] {
        for volume in volumes {
            for (name, data) in contents(&sides[number].get(*volume)) {
                let (length, digest) = (data.len(), digest(&data));
                writeln!(text, "{number} {} {name} {length} {digest:016x}", volume.0).unwrap();
            }
        }
    }
    text
}

fn copy(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).unwrap() {
        let (entry, to) = (entry.as_ref().unwrap().path(), to.join(entry.as_ref().unwrap().file_name()));
        if entry.is_dir() {
            fs::create_dir(&to).unwrap();
            copy(&entry, &to);
        } else {
            fs::copy(&entry, &to).unwrap();
        }
    }
}

/// Writes the bucket of this version. Only for a release, before it is changed in any way.
#[test]
#[ignore = "writes into the source tree"]
fn write_the_golden_bucket() {
    let place = golden(env!("CARGO_PKG_VERSION"));
    fs::create_dir(&place).expect("there is none of this version");
    let mut rng = SmallRng::seed_from_u64(1);
    let sides = [0, 1].map(|number| side(&place, number, number as u64));
    let volume = sides[0].volume(HOME, VolumeType::ReadWrite).unwrap();
    for (name, length) in [("empty", 0), ("tiny", 50), ("one", 4096), ("long", 30_000)] {
        create(&volume, name, &noise(&mut rng, length)).unwrap();
    }
    let text = "All that is gold does not glitter. ".repeat(400);
    create(&volume, "text", text.as_bytes()).unwrap();
    let name = "volume.clone".parse().unwrap();
    let clone = CloneVolume { id: CLONE, name, kind: VolumeType::ReadOnly, now: UnixTime(3) };
    sides[0].volumes.clone_volume(HOME, &clone).unwrap();
    create(&volume, "hole", &[vec![0; 20_000], noise(&mut rng, 5000)].concat()).unwrap();
    assert!(send(&sides[0], HOME, &sides[1], HOME, VolumeType::ReadWrite).unwrap() > 8);
    create(&volume, "later", &noise(&mut rng, 5000)).unwrap();
    fs::write(place.join(LIST), list(&sides)).unwrap();
    // All of the first is in tables, what the second has is in the log.
    let [first, second] = sides;
    drop(first);
    second.crash();
}

#[test]
fn the_buckets_of_all_versions_are_read_and_written() {
    for version in ["0.2.0"] {
        let place = tempfile::tempdir().unwrap();
        copy(&golden(version), place.path());
        let expected = fs::read_to_string(place.path().join(LIST)).unwrap();
        fs::remove_file(place.path().join(LIST)).unwrap();
        for number in [0, 1] {
            assert!(is_clean_by(&Side::opener_of(folder(place.path()), number, 7)) > 8, "{version}");
        }
        let sides = [0, 1].map(|number| side(place.path(), number, 10 + number as u64));
        assert_eq!(list(&sides), expected, "{version}");
        assert!(sides[0].partition.chunks().lent(false).iter().any(|lent| !lent.objects.is_empty()));
        // The first partition no longer needs what the second has borrowed, which gets it.
        sides[0].volumes.delete(HOME).unwrap();
        sides[0].volumes.delete(CLONE).unwrap();
        let new = noise(&mut SmallRng::seed_from_u64(2), 10_000);
        create(&sides[1].get(HOME), "new", &new).unwrap();
        for _ in 0..3 {
            sides[0].keep_up();
            sides[0].end_loans(&sides[1]);
            sides[1].keep_up();
        }
        let mut found = contents(&sides[1].get(HOME));
        drop(sides);
        let again = side(place.path(), 1, 20);
        assert_eq!(contents(&again.get(HOME)), found, "{version}");
        assert_eq!(found.remove("new"), Some(new));
        let of_second = expected.lines().filter(|line| line.starts_with('1'));
        assert!(found.len() >= 6 && of_second.count() == found.len(), "{version}");
        drop(again);
        for number in [0, 1] {
            is_clean_by(&Side::opener_of(folder(place.path()), number, 8));
        }
    }
}
