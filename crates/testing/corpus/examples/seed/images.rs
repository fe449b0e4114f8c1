//! Images of databases and of a partition.

use crate::{Seed, seed};
use base::{HostUuid, UnixTime, UserId, VolumeId, VolumeType};
use bytes::Bytes;
use corpus::records::{NOW, dump, new_volume, options, partition};
use corpus::services::protection;
use ptdb::{Actor as Person, Kind, NewEntry};
use std::error::Error;
use std::sync::Arc;
use store::{MemoryChunks, MemoryMeta};
use vldb::{EntryForm, Locations, NewLocation, NewSite};
use volume::{
    Actor, CloneVolume, Kept, NewSnapshot, Period, Policy, ScrubPolicy, SetStatus, StoreRequest, Volume,
    Volumes,
};

pub(crate) fn seeds() -> Vec<Seed> {
    vec![
        seed("location_records", "three_volumes", locations().expect("good entries")),
        seed("protection_records", "nested_groups", people().expect("good entries")),
        seed("volume_records", "tree_and_clone", volumes().expect("good changes")),
        seed("volume_records", "new", new().expect("good changes")),
        seed("upkeep_records", "snapshots", snapshots().expect("good changes")),
        seed("upkeep_records", "damaged", damaged().expect("good changes")),
    ]
}

fn locations() -> Result<Vec<u8>, Box<dyn Error>> {
    let meta = Arc::new(MemoryMeta::new());
    let locations = Locations::open(meta.clone())?;
    locations.register(HostUuid([7; 16]), &[[10, 0, 0, 1].into(), [10, 0, 1, 1].into()])?;
    let site = |address: [u8; 4], flags| NewSite { address: address.into(), partition: 1, flags };
    for (number, name) in ["root.afs", "root.cell", "user.alice"].into_iter().enumerate() {
        let id = 536_870_912 + 3 * number as u32;
        let sites = vec![site([10, 0, 0, 1], 4), site([10, 0, 0, 2], 2)];
        let ids = [VolumeId(id), VolumeId(id + 1), VolumeId(id + 2)];
        let name = name.as_bytes().to_vec();
        locations.create(&NewLocation {
            name,
            ids,
            clone: VolumeId(0),
            flags: 0x3000,
            sites,
            form: EntryForm::Current,
        })?;
    }
    locations.lock(VolumeId(536_870_912), Some(VolumeType::ReadWrite), 0x10, NOW)?;
    Ok(dump(&*meta))
}

fn people() -> Result<Vec<u8>, Box<dyn Error>> {
    let meta = Arc::new(MemoryMeta::new());
    let people = protection(meta.clone());
    let cell = Person::cell();
    let group = |name: &str, owner, id| NewEntry {
        name: name.as_bytes().to_vec(),
        kind: Kind::Group,
        owner,
        id: Some(UserId(id)),
    };
    people.create(&cell, &group("alice:inner", UserId(100), -301), NOW)?;
    people.create(&cell, &group("system:authuser@other.example", UserId::ADMINISTRATORS, -302), NOW)?;
    people.add_to_group(&cell, UserId(100), UserId(-301), NOW)?;
    people.add_to_group(&cell, UserId(-301), UserId(-300), NOW)?;
    people.add_to_group(&cell, UserId(1), UserId::ADMINISTRATORS, NOW)?;
    Ok(dump(&*meta))
}

fn new() -> Result<Vec<u8>, Box<dyn Error>> {
    let meta = Arc::new(MemoryMeta::new());
    let partition = partition(meta.clone(), Arc::new(MemoryChunks::new()));
    let volumes = Volumes::open(vec![partition.clone()], options())?;
    volumes.create(partition.id, &new_volume(VolumeId(5), "home".parse()?))?;
    Ok(dump(&*meta))
}

fn volumes() -> Result<Vec<u8>, Box<dyn Error>> {
    let meta = Arc::new(MemoryMeta::new());
    let partition = partition(meta.clone(), Arc::new(MemoryChunks::new()));
    let volumes = Volumes::open(vec![partition.clone()], options())?;
    let volume = volumes.create(partition.id, &new_volume(VolumeId(5), "home".parse()?))?;
    fill(&volume)?;
    let clone = |id, name: &str, kind| -> Result<CloneVolume, Box<dyn Error>> {
        Ok(CloneVolume { id: VolumeId(id), name: name.parse()?, kind, now: NOW })
    };
    volumes.clone_volume(volume.id(), &clone(6, "home.readonly", VolumeType::ReadOnly)?)?;
    let actor = Actor { user: UserId(100), privileged: true, in_transaction: false, call: None, now: NOW };
    volume.remove_file(&actor, volume.root(), b"link")?;
    volumes.clone_volume(volume.id(), &clone(7, "home.backup", VolumeType::Backup)?)?;
    volumes.delete(VolumeId(7))?;
    Ok(dump(&*meta))
}

fn snapshots() -> Result<Vec<u8>, Box<dyn Error>> {
    let meta = Arc::new(MemoryMeta::new());
    let partition = partition(meta.clone(), Arc::new(MemoryChunks::new()));
    let volumes = Volumes::open(vec![partition.clone()], options())?;
    let volume = volumes.create(partition.id, &new_volume(VolumeId(5), "home".parse()?))?;
    volumes.set_policy(volume.id(), Some(Policy { hourly: 24, daily: 7, weekly: 4, monthly: 0 }))?;
    for (number, name, period) in
        [(0, "by-hand", None), (1, "hour", Some(Period::Hour)), (2, "day", Some(Period::Day))]
    {
        let (id, parent) = (VolumeId(10 + number), VolumeId(20 + number));
        let volume_name = format!("home.snap.{name}").parse()?;
        let kept = period.map_or_else(Kept::default, |period| Kept::default().with(period));
        let expires = if period.is_none() { UnixTime(NOW.0 - 1) } else { UnixTime(0) };
        let name = name.parse()?;
        let now = UnixTime(NOW.0 - 7200 + number);
        volumes.snapshot(volume.id(), &NewSnapshot { id, parent, volume_name, name, kept, expires, now })?;
        fill_again(&volume, number)?;
    }
    volumes.roll_back(volume.id(), VolumeId(11), NOW)?;
    Ok(dump(&*meta))
}

fn fill_again(volume: &Volume, number: u32) -> Result<(), Box<dyn Error>> {
    let actor = Actor { user: UserId(100), privileged: true, in_transaction: false, call: None, now: NOW };
    let name = format!("file{number}");
    volume.create_file(&actor, volume.root(), name.as_bytes(), &SetStatus::default())?;
    Ok(())
}

/// Returns an image whose chunks are missing, after a pass of the scrubber.
fn damaged() -> Result<Vec<u8>, Box<dyn Error>> {
    let meta = Arc::new(MemoryMeta::new());
    let whole = partition(meta.clone(), Arc::new(MemoryChunks::new()));
    let volumes = Volumes::open(vec![whole.clone()], options())?;
    fill(&*volumes.create(whole.id, &new_volume(VolumeId(5), "home".parse()?))?)?;
    drop(volumes);
    let emptied = partition(meta.clone(), Arc::new(MemoryChunks::new()));
    let volumes = Volumes::open(vec![emptied.clone()], options())?;
    while !volumes.scrub_step(emptied.id, ScrubPolicy::default(), NOW)?.is_idle {}
    assert!(!volumes.quarantine(emptied.id)?.is_empty(), "the damage is found");
    Ok(dump(&*meta))
}

fn fill(volume: &Volume) -> Result<(), Box<dyn Error>> {
    let actor = Actor { user: UserId(100), privileged: true, in_transaction: false, call: None, now: NOW };
    let (root, set) = (volume.root(), SetStatus::default());
    let file = volume.create_file(&actor, root, b"file", &set)?.status.fid(volume.id());
    let small = volume.create_file(&actor, root, b"small", &set)?.status.fid(volume.id());
    volume.make_directory(&actor, root, b"directory", &set)?;
    volume.create_symlink(&actor, root, b"symlink", b"#root.cell.", &set)?;
    volume.link(&actor, root, b"link", file)?;
    for (fid, length) in [(file, 5000), (small, 20)] {
        let request = StoreRequest { offset: 0, length, file_length: length, set };
        volume.store(&actor, fid, &request, &mut |most: usize| Ok(Bytes::from(vec![b'x'; most])))?;
    }
    Ok(())
}
