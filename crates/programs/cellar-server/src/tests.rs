//! Start-up with a broken partition, which keeps only its own volumes offline.

mod waiting;

use super::{FaultInjection, handle};
use crate::stores::{meters_of, open_partitions};
use afs_format::keyfile::{KeyType, Secret, TypedKey, write_extended};
use base::{PartitionId, UnixTime, VolumeId, VolumeType};
use cellar_config::Settings;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use store::{Partition, PartitionConfig};
use volume::{Actor, NewVolume, SetStatus, VolumeOptions, Volumes};

const LETTERS: [&str; 3] = ["a", "b", "c"];

fn place(letter: usize) -> PartitionId {
    PartitionId::from_index(letter as u32).unwrap()
}

fn settings(folder: &Path) -> anyhow::Result<Settings> {
    settings_with(folder, "")
}

/// Returns settings with three partitions and further sections.
fn settings_with(folder: &Path, sections: &str) -> anyhow::Result<Settings> {
    let secret = Secret::new(&[7; 32]);
    let key = TypedKey { key_type: KeyType::RxkadKerberos5, kvno: 1, subtype: 18, secret };
    cellar_config::files::replace(&folder.join("KeyFileExt"), &write_extended(&[key]))?;
    let lines: Vec<String> = LETTERS.iter().map(|letter| format!("{letter} = \"{letter}\"")).collect();
    let text = format!(
        "[cell]\nname = \"t.example\"\nkeyfile = \"KeyFileExt\"\n[partitions]\n{}\n{sections}",
        lines.join("\n")
    );
    fs::write(folder.join("cellar.toml"), text)?;
    cellar_config::file::load(&folder.join("cellar.toml"))
}

fn open_all(settings: &Settings) -> anyhow::Result<Vec<(PartitionId, Arc<Partition>)>> {
    open_partitions(settings, &meters_of(settings), &FaultInjection::default().disk)
}

fn id(letter: usize) -> VolumeId {
    VolumeId(100 + letter as u32)
}

/// A cleanly stopped cell with a volume on each partition.
fn prepared() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for letter in LETTERS {
        fs::create_dir(folder.path().join(letter)).unwrap();
    }
    let partitions = open_all(&settings(folder.path()).unwrap()).unwrap();
    let handles = partitions.iter().map(|(id, partition)| handle(*id, partition)).collect();
    let volumes = Volumes::open(handles, VolumeOptions::default()).unwrap();
    for letter in 0..LETTERS.len() {
        let new = NewVolume {
            id: id(letter),
            name: format!("volume.{letter}").parse().unwrap(),
            kind: VolumeType::ReadWrite,
            parent: id(letter),
            quota_max_kib: 0,
            with_root: true,
            in_service: true,
            destroy_me: 0,
            now: UnixTime(1),
        };
        volumes.create(place(letter), &new).unwrap();
    }
    folder
}

/// Name of a defect, a function that causes it in a directory, and a word of the error message.
type Damage = (&'static str, fn(&Path), &'static str);

const DAMAGES: [Damage; 8] = [
    ("no folder", |path| fs::remove_dir_all(path).unwrap(), "no such directory"),
    ("CURRENT is gone", |path| fs::remove_file(path.join("cellar/meta/CURRENT")).unwrap(), "CURRENT"),
    ("the MANIFEST is damaged", |path| spoil(&path.join("cellar/meta"), "MANIFEST"), "orruption"),
    (
        "the MANIFEST is gone",
        |path| each(&path.join("cellar/meta"), "MANIFEST", |file| fs::remove_file(file).unwrap()),
        "MANIFEST",
    ),
    (
        "VERSION is of another program",
        |path| fs::write(path.join("cellar/VERSION"), "hello\n").unwrap(),
        "VERSION",
    ),
    ("VERSION is gone", |path| fs::remove_file(path.join("cellar/VERSION")).unwrap(), "VERSION"),
    ("the segments are gone", |path| fs::remove_dir_all(path.join("cellar/segments")).unwrap(), "segments"),
    ("a file lies where the folder belongs", in_the_way, "cellar"),
];

fn in_the_way(path: &Path) {
    fs::remove_dir_all(path.join("cellar")).unwrap();
    fs::write(path.join("cellar"), "").unwrap();
}

/// Applies a function to every file whose name has a prefix.
fn each(folder: &Path, beginning: &str, act: impl Fn(&Path)) {
    let mut found = 0;
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        if entry.file_name().to_string_lossy().starts_with(beginning) {
            act(&entry.path());
            found += 1;
        }
    }
    assert!(found > 0, "{beginning} in {}", folder.display());
}

fn spoil(folder: &Path, beginning: &str) {
    each(folder, beginning, |file| {
        let mut bytes = fs::read(file).unwrap();
        for byte in &mut bytes {
            *byte ^= 0x5a;
        }
        fs::write(file, bytes).unwrap();
    });
}

/// Checks that the volumes of the first and the last partition can be read and written, and the others are
/// offline.
fn check_that_two_serve(folder: &Path) {
    let partitions = open_all(&settings(folder).unwrap()).unwrap();
    let handles = partitions.iter().map(|(id, partition)| handle(*id, partition)).collect();
    let volumes = Volumes::open(handles, VolumeOptions::default()).unwrap();
    assert_eq!(volumes.partitions(), [place(0), place(2)]);
    assert!(volumes.get(id(1)).is_err());
    for letter in [0, 2] {
        let volume = volumes.get(id(letter)).unwrap();
        let actor = Actor {
            user: base::UserId(1),
            privileged: true,
            in_transaction: false,
            call: None,
            now: UnixTime(2),
        };
        volume.create_file(&actor, volume.root(), b"file", &SetStatus::default()).unwrap();
        assert_eq!(volumes.list(place(letter)).len(), 1);
    }
}

#[test]
fn a_broken_partition_keeps_only_its_own_volumes_offline() {
    for (name, damage, word) in DAMAGES {
        println!("{name}");
        let folder = prepared();
        let broken = folder.path().join("b");
        damage(&broken);
        let config = PartitionConfig { families: &crate::FAMILIES, ..PartitionConfig::default() };
        let message = Partition::open(&broken, &config).err().unwrap().to_string();
        assert!(message.contains(word) && message.contains(&*broken.to_string_lossy()), "{name}: {message}");
        check_that_two_serve(folder.path());
    }
}

/// The partition opens, because its tables are read later, but its volumes cannot be found.
#[test]
fn damaged_tables_take_only_their_own_volumes_offline() {
    let folder = prepared();
    for entry in fs::read_dir(folder.path().join("b/cellar/meta")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "sst") {
            let length = fs::metadata(&path).unwrap().len() as usize;
            fs::write(&path, vec![0x5a; length]).unwrap();
        }
    }
    check_that_two_serve(folder.path());
}

#[test]
fn without_any_partition_there_is_nothing_to_serve() {
    let folder = prepared();
    for letter in LETTERS {
        fs::remove_file(folder.path().join(letter).join("cellar/meta/CURRENT")).unwrap();
    }
    let settings_found = settings(folder.path()).unwrap();
    let error = open_all(&settings_found).err().unwrap().to_string();
    assert!(error.contains("no partition could be opened"), "{error}");
    for letter in LETTERS {
        fs::remove_dir_all(folder.path().join(letter)).unwrap();
    }
    let error = settings(folder.path()).err().unwrap().to_string();
    assert!(error.contains("line 5") && error.contains("partitions.a"), "{error}");
}
