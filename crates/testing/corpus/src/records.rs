//! Records of the databases and volumes as they may be on a damaged disk. An input is an image of a metadata
//! store; each piece is one record (family, length of the key, key, value). Code that reads it may report
//! damage and no other error.

use crate::frames::{Fields, frames, push};
use afs_format::acl::Acl;
use base::{Fid, PartitionId, UnixTime, UserId, VnodeId, VolumeId, VolumeType};
use bytes::Bytes;
use ptdb::{Actor as Person, Kind, NewEntry, Policy, Protection, ProtectionError};
use std::ops::ControlFlow;
use std::sync::Arc;
use store::{Batch, ChunkStore, Codec, Family, KeyRange, MemoryChunks, MemoryMeta, MetaStore};
use vldb::{EntryNumber, Filter, Locations, VolumeQuery};
use volume::{
    Actor, CloneVolume, NewVolume, PartitionHandle, SetStatus, Space, StoreRequest, Volume, VolumeError,
    VolumeOptions, Volumes, families,
};

/// Current time.
pub const NOW: UnixTime = UnixTime(1_700_000_000);
/// Lengths of the chunks that images of volumes reference.
pub const CHUNKS: [usize; 2] = [4096, 904];
/// Upper bound of the length of keys.
const KEY_BYTES_MAX: usize = 100;
/// Maximum number of vnodes, entries and similar items that are examined.
const LOOKS: usize = 64;
/// Maximum number of purge steps.
const PURGE_STEPS_MAX: usize = 10_000;

/// The families by number.
const FAMILIES: [Family; 9] = [
    Family::SYSTEM,
    families::VOLUMES,
    families::VNODES,
    families::ENTRIES,
    families::EXTENTS,
    Family::SEGMENTS,
    vldb::FAMILY,
    ptdb::FAMILY,
    families::TOTALS,
];

/// Loads an image into a store.
pub fn load(image: &[u8]) -> Arc<MemoryMeta> {
    let mut batch = Batch::new();
    for frame in frames(image) {
        let mut fields = Fields(frame);
        let family = FAMILIES[usize::from(fields.byte()) % FAMILIES.len()];
        let length = fields.byte().into();
        let key = fields.take(length);
        batch.put(family, key, fields.0);
    }
    let meta = MemoryMeta::new();
    meta.commit(batch).expect("a store in memory");
    Arc::new(meta)
}

/// Returns the image of a store.
pub fn dump(meta: &dyn MetaStore) -> Vec<u8> {
    let mut image = Vec::new();
    for (number, family) in FAMILIES.into_iter().enumerate() {
        let range = KeyRange::ascending(&[], &[0xff; KEY_BYTES_MAX]);
        let scanned = meta.scan(family, range, &mut |key, value| {
            push(&mut image, &[&[number as u8, key.len() as u8], key, value].concat());
            ControlFlow::Continue(())
        });
        scanned.expect("a store in memory");
    }
    image
}

/// Exercises the location database.
pub fn location_records(data: &[u8]) {
    let Ok(locations) = Locations::open(load(data)) else { return };
    let _ = locations.totals();
    let mut number = EntryNumber(0);
    for _ in 0..LOOKS {
        let Ok(Some((next, location, _))) = locations.next(number) else { break };
        assert!(next > number, "the listing does not advance");
        number = next;
        let _ = locations.find(&VolumeQuery::Name(location.name.clone()), None);
        for kind in [VolumeType::ReadWrite, VolumeType::ReadOnly, VolumeType::Backup] {
            let _ = locations.find(&VolumeQuery::Id(location.id(kind)), Some(kind));
        }
    }
    let servers = locations.servers();
    for (number, server) in servers.iter() {
        let _ = locations.is_used(number);
        let filter = Filter { server: Some(server.first_address()), ..Filter::default() };
        let _ = locations.list(&filter);
        let _ = locations.list_matching(&filter, None, EntryNumber(0), 10);
    }
    change_locations(&locations);
}

fn change_locations(locations: &Locations) {
    let found: Vec<_> = locations.list(&Filter::default()).unwrap_or_default();
    for location in found.iter().take(LOOKS) {
        let id = location.id(VolumeType::ReadWrite);
        let _ = locations.lock(id, None, 1, NOW);
        let _ = locations.unlock(id, None, 0);
        let _ = locations.delete(id, None);
    }
    let _ = locations.new_ids(3);
    let _ = locations.register(base::HostUuid([5; 16]), &[[10, 0, 0, 5].into()]);
    let _ = locations.change_address([10, 0, 0, 5].into(), None);
}

/// Exercises the protection database.
pub fn protection_records(data: &[u8]) {
    let Ok(protection) = Protection::open(load(data), Policy::default(), NOW) else { return };
    let cell = Person::cell();
    let mut ids = vec![UserId(1), UserId(-204), UserId::ANYUSER, UserId::ANONYMOUS];
    if let Ok((entries, _)) = protection.list(&cell, 0, LOOKS, &|_| true) {
        ids.extend(entries.iter().map(|entry| entry.id));
    }
    for id in ids {
        let _ = ask(&protection, &cell, id);
        let _ = change(&protection, &cell, id);
    }
    let _ = protection.host_protection_set([10, 0, 0, 1].into());
    let _ = create(&protection, &cell);
    let _ = protection.totals();
}

fn ask(protection: &Protection, cell: &Person, id: UserId) -> Result<(), ProtectionError> {
    let _ = protection.protection_set(id);
    let _ = protection.elements(cell, id);
    let _ = protection.supergroups(cell, id);
    let _ = protection.owned(cell, id, None, LOOKS);
    let _ = protection.is_member(id, UserId::ADMINISTRATORS);
    let position = protection.position(cell, id)?;
    protection.dump(cell, position)?;
    let name = protection.name_of_id(id)?.unwrap_or_default();
    protection.id_of_name(&name).map(drop)
}

fn create(protection: &Protection, cell: &Person) -> Result<(), ProtectionError> {
    let new = |name: &str, kind, owner| NewEntry { name: name.as_bytes().to_vec(), kind, owner, id: None };
    protection.create(cell, &new("new", Kind::User, UserId(0)), NOW)?;
    protection.create(cell, &new("system:new", Kind::Group, UserId::ADMINISTRATORS), NOW).map(drop)
}

fn change(protection: &Protection, cell: &Person, id: UserId) -> Result<(), ProtectionError> {
    let _ = protection.add_to_group(cell, UserId(1), id, NOW);
    let _ = protection.remove_from_group(cell, UserId(1), id, NOW);
    protection.delete(cell, id, NOW)
}

/// Returns the partition that images of volumes belong to.
pub fn partition(meta: Arc<dyn MetaStore>, chunks: Arc<dyn ChunkStore>) -> PartitionHandle {
    PartitionHandle {
        id: PartitionId::from_index(0).expect("index 0 is valid"),
        meta,
        chunks,
        space: Arc::new(|| Space { total_kib: 1 << 30, free_kib: 1 << 29 }),
    }
}

/// Returns options with small caches and chunks.
pub fn options() -> VolumeOptions {
    VolumeOptions {
        chunk_shift: 12,
        inline_bytes_max: 32,
        cached_status_bytes: 30_000,
        cached_directory_bytes: 1 << 20,
        ..VolumeOptions::default()
    }
}

/// Exercises volumes.
pub fn volume_records(data: &[u8]) {
    let chunks = MemoryChunks::new();
    for length in CHUNKS {
        chunks.append(&[Bytes::from(vec![b'x'; length])], Codec::Raw).expect("a store in memory");
    }
    let partition = partition(load(data), Arc::new(chunks));
    let Ok(volumes) = Volumes::open(vec![partition.clone()], options()) else { return };
    let found = volumes.list(partition.id);
    for volume in found.iter().take(LOOKS) {
        let _ = look_through(volume);
        let _ = change_volume(volume);
        let name = "clone".parse().expect("a name");
        let clone = CloneVolume { id: VolumeId(77), name, kind: VolumeType::Backup, now: NOW };
        if let Ok(clone) = volumes.clone_volume(volume.id(), &clone) {
            let _ = look_through(&clone);
            let _ = volumes.delete(clone.id());
        }
        let _ = volumes.delete(volume.id());
    }
    purge(&volumes);
    let name = "new".parse().expect("a name");
    let id = VolumeId(78);
    let _ = volumes.create(partition.id, &new_volume(id, name));
}

/// Returns the parameters of a new read-write volume with a root.
pub fn new_volume(id: VolumeId, name: base::VolumeName) -> NewVolume {
    NewVolume {
        id,
        name,
        kind: VolumeType::ReadWrite,
        parent: id,
        quota_max_kib: 5000,
        with_root: true,
        in_service: true,
        destroy_me: 0,
        now: NOW,
    }
}

fn purge(volumes: &Volumes) {
    for _ in 0..PURGE_STEPS_MAX {
        if !volumes.purge_step().unwrap_or(false) {
            return;
        }
    }
    panic!("the purge does not finish");
}

fn look_through(volume: &Arc<Volume>) -> Result<(), VolumeError> {
    let mut fids = vec![volume.root()];
    volume.vnodes(VnodeId(0), &mut |status| {
        fids.push(status.fid(volume.id()));
        fids.len() < LOOKS
    })?;
    for fid in fids {
        let _ = volume.status_and_acl(fid);
        let mut names = Vec::new();
        let _ = volume.entries(fid, &mut |name, _| names.push(name.to_vec()));
        for name in names.iter().take(LOOKS) {
            let _ = volume.lookup(fid, name);
        }
        let length = volume.status(fid)?.length;
        for offset in [0, length / 2, length.saturating_sub(1)] {
            let mut reader = volume.reader(fid, offset, u64::MAX)?;
            for _ in 0..4 {
                let _ = reader.next(10_000);
            }
        }
    }
    Ok(())
}

fn change_volume(volume: &Volume) -> Result<(), VolumeError> {
    let actor = Actor { user: UserId(7), privileged: true, in_transaction: false, call: None, now: NOW };
    let (root, set) = (volume.root(), SetStatus { mode: Some(0o700), ..SetStatus::default() });
    let _ = volume.set_acl(&actor, root, Acl::administrators());
    let _ = volume.rename(&actor, root, b"file", root, b"other");
    let _ = volume.remove_file(&actor, root, b"other");
    let _ = volume.remove_directory(&actor, root, b"directory");
    let fid = volume.create_file(&actor, root, b"new", &set)?.status.fid(volume.id());
    store(volume, &actor, fid)?;
    volume.link(&actor, root, b"link", fid)?;
    volume.update_header(|header| header.quota_max_kib = 10)?;
    volume.set_status(&actor, root, &set).map(drop)
}

fn store(volume: &Volume, actor: &Actor, fid: Fid) -> Result<(), VolumeError> {
    let request =
        StoreRequest { offset: 100, length: 5000, file_length: u64::MAX, set: SetStatus::default() };
    let stored =
        volume.store(actor, fid, &request, &mut |most: usize| Ok(Bytes::from(vec![b'y'; most.min(1000)])));
    stored.map(drop)
}
