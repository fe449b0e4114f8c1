use super::*;
use disk::{FaultyDisk, Garbling};
use std::fmt::Write as _;

fn root() -> &'static Path {
    Path::new("/vicepa/cellar")
}

fn disk_with_version(text: &str) -> FaultyDisk {
    let disk = FaultyDisk::new(1, Garbling::default());
    ensure_dir(&disk, root()).unwrap();
    let file = disk.create(&root().join(VERSION)).unwrap();
    file.write_all_at(&mut [IoSlice::new(text.as_bytes())], 0).unwrap();
    disk
}

fn open(disk: &FaultyDisk, create: bool) -> Result<Home, StoreError> {
    let home = Home::open(disk, root(), Kind::Partition, create)?;
    if home.is_new {
        let inside = disk.create(&root().join("segments"));
        inside
            .or_else(|_| disk.open(&root().join("segments")))
            .map_err(|error| failed("create", root(), error))?;
    }
    home.finish(disk)?;
    Ok(home)
}

fn complaint(disk: &FaultyDisk) -> String {
    open(disk, true).err().expect("should refuse").to_string()
}

#[test]
fn the_id_stays() {
    let disk = FaultyDisk::new(1, Garbling::default());
    let uuid = open(&disk, true).unwrap().uuid;
    assert_eq!(open(&disk, false).unwrap().uuid, uuid);
    assert_eq!(open(&disk.crash(), false).unwrap().uuid, uuid);
}

#[test]
fn nothing_is_created_unasked() {
    let disk = FaultyDisk::new(1, Garbling::default());
    assert!(open(&disk, false).is_err());
    ensure_dir(&disk, root()).unwrap();
    let error = open(&disk, false).err().unwrap().to_string();
    assert!(error.contains("there is no partition yet"), "{error}");
}

#[test]
fn only_one_can_have_it_open() {
    let disk = FaultyDisk::new(1, Garbling::default());
    let _home = open(&disk, true).unwrap();
    assert!(complaint(&disk).contains("already open"));
}

#[test]
fn newer_or_foreign_formats_are_refused() {
    let uuid = "uuid 67e55044-10b1-426f-9247-bb680e5fe0c8\n";
    let cases = [
        (
            "cellar partition\nformat 3\nwhatever\n".to_owned(),
            "it has format 3; this program knows formats up to 2",
        ),
        (format!("cellar database\nformat 1\n{uuid}"), "expected \"cellar partition\""),
        (format!("cellar partition\nformat 0\n{uuid}"), "expected a format number"),
        (format!("cellar partition\nformat x\n{uuid}"), "expected a format number"),
        ("cellar partition\nformat 1\nuuid 1\n".to_owned(), "no uuid"),
        (String::new(), "first line"),
        ("\u{0}".repeat(5000), "first line"),
    ];
    for (text, expected) in cases {
        let error = complaint(&disk_with_version(&text));
        assert!(error.contains(expected), "{text:?}: {error}");
    }
}

#[test]
fn data_without_a_version_is_not_taken_for_an_empty_folder() {
    let disk = FaultyDisk::new(1, Garbling::default());
    ensure_dir(&disk, &root().join("segments")).unwrap();
    assert!(complaint(&disk).contains("there is segments, but no VERSION file"));
}

#[test]
fn power_cuts_while_creating_leave_something_that_opens() {
    for seed in 0..400 {
        let disk = FaultyDisk::new(seed, Garbling::default());
        disk.cut_power_at(seed % 24);
        let first = open(&disk, true).map(|home| home.uuid).ok();
        let found = open(&disk.crash(), true).map(|home| home.uuid);
        let mut story = String::new();
        write!(story, "seed {seed}: {first:?} then {found:?}").unwrap();
        assert!(first.is_none_or(|first| found.is_ok_and(|found| found == first)), "{story}");
    }
}

/// The creator died before the folder's name was durable; everything below it is durable since.
#[test]
fn a_folder_that_was_found_is_as_durable_as_one_that_was_made() {
    for seed in 0..20 {
        let disk = FaultyDisk::new(seed, Garbling::default());
        disk.create_dir(Path::new("/vicepa")).unwrap();
        disk.sync_dir(Path::new("/")).unwrap();
        disk.create_dir(root()).unwrap();
        let uuid = open(&disk, true).unwrap().uuid;
        assert_eq!(open(&disk.crash(), false).unwrap().uuid, uuid);
    }
}

#[test]
fn a_power_cut_leaves_the_old_or_the_new_format() {
    let mut seen = [0, 0];
    for seed in 0..200 {
        let disk = FaultyDisk::new(seed, Garbling::default());
        let uuid = open(&disk, true).unwrap().uuid;
        disk.cut_power_at(disk.operations() + seed % 12);
        let is_done = begin_sharing(&disk, root(), uuid).is_ok();
        let disk = disk.crash();
        let home = open(&disk, false).unwrap();
        assert_eq!(home.uuid, uuid, "seed {seed}");
        assert!(!is_done || !home.is_before_sharing(), "seed {seed}");
        seen[usize::from(home.is_before_sharing())] += 1;
        drop(home);
        // Leftovers of the crashed first attempt do no harm.
        begin_sharing(&disk, root(), uuid).unwrap();
        assert!(!open(&disk.crash(), false).unwrap().is_before_sharing());
    }
    assert!(seen.iter().all(|&count| count > 10), "{seen:?}");
}

#[test]
fn partition_records_match_golden_files() {
    let uuid = "67e55044-10b1-426f-9247-bb680e5fe0c8".parse().unwrap();
    for (format, golden) in [(FORMAT, "format-1"), (FORMAT_SHARED, "format-2")] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(golden);
        let text = std::fs::read_to_string(path).unwrap();
        assert_eq!(version_text(Kind::Partition, Version { format, uuid }), text);
        let home = open(&disk_with_version(&text), false).unwrap();
        assert_eq!((home.uuid, home.is_before_sharing()), (uuid, format == FORMAT));
    }
}

#[test]
fn a_bucket_has_the_version_of_a_folder() {
    let place = Path::new("s3://cellar/a/VERSION");
    let version = BucketVersion::random();
    assert_eq!(BucketVersion::parse(version.contents().as_bytes(), place).unwrap(), version);
    let golden = include_str!("../../tests/golden/format-2");
    let uuid = "67e55044-10b1-426f-9247-bb680e5fe0c8".parse().unwrap();
    assert_eq!(BucketVersion { uuid }.contents(), golden);
    let padded = |bytes: usize| format!("{golden}{}", " ".repeat(bytes - golden.len())).into_bytes();
    assert!(BucketVersion::parse(&padded(BucketVersion::BYTES_MAX), place).is_ok());
    for (contents, expected) in [
        (padded(BucketVersion::BYTES_MAX + 1), "at most 1024 bytes"),
        (golden.replace("format 2", "format 1").into_bytes(), "partitions in buckets begin with 2"),
        (golden.replace("format 2", "format 3").into_bytes(), "this program knows formats up to 2"),
        (golden.replace("partition", "database").into_bytes(), "expected \"cellar partition\""),
        (vec![0xff; 100], "first line"),
        (vec![], "first line"),
    ] {
        let error = BucketVersion::parse(&contents, place).unwrap_err().to_string();
        assert!(error.contains(expected) && error.contains("s3://cellar/a/VERSION"), "{error}");
    }
}
