//! `cellar store check` from the command line: on a sound partition, on a damaged one, and on one in use.

use base::{Fid, PartitionId, UnixTime, UserId, VolumeId, VolumeType};
use bytes::Bytes;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;
use store::{MasterKey, Partition, PartitionConfig};
use volume::{Actor, NewVolume, PartitionHandle, SetStatus, Space, StoreRequest, VolumeOptions, Volumes};

fn open(folder: &Path) -> (Partition, Volumes) {
    open_with(folder, None)
}

fn open_with(folder: &Path, key: Option<&MasterKey>) -> (Partition, Volumes) {
    let config = PartitionConfig { families: &cellar_server::FAMILIES, ..PartitionConfig::default() };
    let partition = Partition::open_encrypted(folder, &config, key).unwrap();
    let handle = PartitionHandle {
        id: PartitionId::from_index(0).unwrap(),
        meta: partition.meta(),
        chunks: partition.chunks(),
        space: Arc::new(|| Space { total_kib: 1 << 40, free_kib: 1 << 40 }),
    };
    let volumes = Volumes::open(vec![handle], VolumeOptions::default()).unwrap();
    (partition, volumes)
}

/// Creates a file of noise in a volume, so that its bytes are stored uncompressed in the segment.
fn fill(volumes: &Volumes) -> Fid {
    let new = NewVolume {
        id: VolumeId(536_870_912),
        name: "root.cell".parse().unwrap(),
        kind: VolumeType::ReadWrite,
        parent: VolumeId(0),
        quota_max_kib: 0,
        with_root: true,
        in_service: true,
        destroy_me: 0,
        now: UnixTime(1),
    };
    let volume = volumes.create(PartitionId::from_index(0).unwrap(), &new).unwrap();
    let actor =
        Actor { user: UserId(1), privileged: true, in_transaction: false, call: None, now: UnixTime(2) };
    let set = SetStatus { mode: None, owner: None, group: None, client_modified: None };
    let fid = volume.create_file(&actor, volume.root(), b"file", &set).unwrap().status.fid(new.id);
    let mut noise = Bytes::from(
        (0..100_000u32)
            .map(|n| (n.wrapping_mul(0x9e37_79b9) >> 13 ^ n.wrapping_mul(0x85eb_ca6b) >> 21) as u8)
            .collect::<Vec<u8>>(),
    );
    let request = StoreRequest { offset: 0, length: 100_000, file_length: 100_000, set };
    volume
        .store(&actor, fid, &request, &mut |most: usize| Ok(noise.split_to(noise.len().min(most))))
        .unwrap();
    fid
}

fn check(folder: &Path, options: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cellar"));
    command.args(["store", "check"]).arg(folder).args(options).output().unwrap()
}

fn rekey(folder: &Path, old: &Path, new: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cellar"));
    command.args(["store", "rekey", "--new-data-key", "--json"]).arg(folder);
    command.arg("--key-file").arg(old).arg("--new-key-file").arg(new).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Returns the segment with the only chunk.
fn segment(folder: &Path) -> PathBuf {
    let names = fs::read_dir(folder.join("cellar/segments")).unwrap();
    names.map(|entry| entry.unwrap().path()).max().unwrap()
}

#[test]
fn a_flipped_byte_is_found_and_a_partition_in_use_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let (partition, volumes) = open(folder);
    let fid = fill(&volumes);
    let in_use = check(folder, &[]);
    assert!(!in_use.status.success() && text(&in_use.stderr).contains("already open"), "{in_use:?}");
    drop((volumes, partition));

    let sound = check(folder, &["--data", "--json"]);
    assert!(sound.status.success(), "{sound:?}");
    let sound: Value = serde_json::from_slice(&sound.stdout).unwrap();
    assert_eq!((&sound[0]["volumes"], &sound[0]["vnodes"]), (&1.into(), &2.into()));
    assert_eq!((&sound[0]["chunks_read"], &sound[0]["damage_count"]), (&1.into(), &0.into()));

    let mut bytes = fs::read(segment(folder)).unwrap();
    bytes[5000] ^= 1;
    fs::write(segment(folder), bytes).unwrap();
    let damaged = check(folder, &["--data"]);
    assert_eq!(damaged.status.code(), Some(1));
    let (out, error) = (text(&damaged.stdout), text(&damaged.stderr));
    let expected =
        format!("group 1, vnode {}.{}, chunk 0, epoch 1: damaged data in ", fid.vnode.0, fid.unique);
    assert!(out.contains(&expected), "{out}");
    assert!(error.contains("1 damages in 1 partitions"), "{error}");
    assert!(check(folder, &[]).status.success(), "without --data only places are looked at");
}

#[test]
fn an_encrypted_partition_is_checked_and_rekeyed() {
    let folder = tempfile::tempdir().unwrap();
    let keys = tempfile::tempdir().unwrap();
    let (folder, old, new) = (folder.path(), keys.path().join("old"), keys.path().join("new"));
    fs::write(&old, "01".repeat(32)).unwrap();
    fs::write(&new, [2; 32]).unwrap();
    for key in [&old, &new] {
        fs::set_permissions(key, fs::Permissions::from_mode(0o600)).unwrap();
    }
    let (partition, volumes) = open_with(folder, Some(&MasterKey::parse(&[1; 32]).unwrap()));
    fill(&volumes);
    drop((volumes, partition));
    let with = |key: &Path| check(folder, &["--data", "--json", "--key-file", key.to_str().unwrap()]);
    for sound in [check(folder, &["--data", "--json"]), with(&old)] {
        assert!(sound.status.success(), "{sound:?}");
        let sound: Value = serde_json::from_slice(&sound.stdout).unwrap();
        assert_eq!((&sound[0]["chunks_read"], &sound[0]["damage_count"]), (&1.into(), &0.into()));
    }
    let refused = with(&new);
    assert!(!refused.status.success() && text(&refused.stderr).contains("not the one"), "{refused:?}");
    let refused = rekey(folder, &new, &old);
    assert!(!refused.status.success() && text(&refused.stderr).contains("not the one"), "{refused:?}");
    let done = rekey(folder, &old, &new);
    assert!(done.status.success(), "{done:?}");
    let done: Value = serde_json::from_slice(&done.stdout).unwrap();
    assert_eq!(done["data_keys"], 2);
    assert!(with(&new).status.success() && !with(&old).status.success());
    // Damage is found even without the key.
    let mut bytes = fs::read(segment(folder)).unwrap();
    bytes[5000] ^= 1;
    fs::write(segment(folder), bytes).unwrap();
    assert_eq!(check(folder, &["--data"]).status.code(), Some(1));
}

/// Replaces a partition's metadata by what a kill would have left of it, with damage in the third record of the log.
fn rot(folder: &Path, killed: &Path) {
    let meta = folder.join("cellar/meta");
    fs::remove_dir_all(&meta).unwrap();
    fs::rename(killed, &meta).unwrap();
    let logs = fs::read_dir(&meta).unwrap().map(|entry| entry.unwrap().path());
    let log = logs.filter(|path| path.extension().is_some_and(|ext| ext == "log")).max().unwrap();
    let mut bytes = fs::read(&log).unwrap();
    let next = |at: usize| at + 7 + usize::from(u16::from_le_bytes([bytes[at + 4], bytes[at + 5]]));
    let third = next(next(0));
    bytes[third + 20] ^= 1;
    fs::write(log, bytes).unwrap();
}

#[test]
fn a_loss_in_the_log_is_reported_until_it_is_accepted() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let (partition, volumes) = open(folder);
    fill(&volumes);
    let killed = folder.join("killed");
    fs::create_dir(&killed).unwrap();
    for entry in fs::read_dir(folder.join("cellar/meta")).unwrap() {
        let path = entry.unwrap().path();
        fs::copy(&path, killed.join(path.file_name().unwrap())).unwrap();
    }
    drop((volumes, partition));
    let accept = |options: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cellar"));
        command.args(["store", "accept-loss"]).arg(folder).args(options).output().unwrap()
    };
    assert!(text(&accept(&[]).stdout).contains("nothing is known to be lost"));
    rot(folder, &killed);
    for _ in 0..2 {
        let refused = check(folder, &[]);
        let error = text(&refused.stderr);
        assert!(!refused.status.success() && error.contains("`cellar store accept-loss`"), "{refused:?}");
        let shown = accept(&["--dry-run", "--json"]);
        let shown: Value = serde_json::from_slice(&shown.stdout).unwrap();
        assert!(shown["loss"].as_str().unwrap().contains("were durable"), "{shown}");
    }
    let done = accept(&[]);
    assert!(done.status.success() && text(&done.stdout).contains("given up"), "{done:?}");
    let checked = check(folder, &[]);
    assert!(checked.status.success(), "{checked:?}");
    drop(open(folder));
}
