//! Creates the first records of a volume.

use crate::{CloneVolume, FileKind, NewVolume, Unseen, VnodeStatus, VolumeHeader};
use afs_format::acl::Acl;
use afs_format::directory::{DirectoryBlob, EntryTarget};
use base::{Fid, UnixTime, UserId, VnodeId, VolumeId};
use std::sync::Arc;
use store::Batch;
use volume_records::codec::{self, Counters, Entry, StoredHeader, Vnode};
use volume_records::totals::{Totals, Unfolded};
use volume_records::{families, keys};

pub(crate) fn put_volume(batch: &mut Batch, stored: &StoredHeader, counters: &Counters) {
    batch.put(families::VOLUMES, keys::header(stored.header.id), codec::put_header(stored));
    batch.put(families::VOLUMES, keys::counters(stored.header.id), codec::put_counters(counters));
}

pub(crate) fn new_header(new: &NewVolume) -> VolumeHeader {
    let none = VolumeId(0);
    VolumeHeader {
        id: new.id,
        name: new.name.clone(),
        kind: new.kind,
        parent: if new.parent == none { new.id } else { new.parent },
        clone: none,
        backup: none,
        restored_from: none,
        owner: 0,
        account: 0,
        in_service: new.in_service,
        blessed: true,
        destroy_me: new.destroy_me,
        quota_max_kib: new.quota_max_kib,
        quota_min_kib: 0,
        created: new.now,
        accessed: UnixTime(0),
        updated: new.now,
        expires: UnixTime(0),
        backed_up: UnixTime(0),
        copied: new.now,
        file_count: 0,
        directory_count: 0,
        used_kib: 0,
        next_unique: 2,
        update_counter: 0,
        day_use: 0,
        day_use_date: UnixTime(0),
        week_use: [0; 7],
        offline_message: Vec::new(),
        message_of_the_day: Vec::new(),
        compression: None,
        deduplicates: false,
        snapshot: None,
        stands_for: None,
        unseen: (!new.in_service).then_some(Unseen::Arriving),
        dated: UnixTime(0),
        restored_at: None,
    }
}

pub(crate) fn new_counters(new: &NewVolume) -> Counters {
    Counters {
        used_kib: if new.with_root { 2 } else { 0 },
        file_count: 0,
        directory_count: 0,
        next_unique: 2,
        next_file: 2,
        next_directory: 3,
        updated: new.now,
        update_counter: 0,
        accessed: UnixTime(0),
        day_use: 0,
        day_use_date: UnixTime(0),
        week_use: [0; 7],
        changes: 0,
        version_max: 1,
        unfolded: Some(Unfolded::default()),
    }
}

pub(crate) fn with_counters(mut header: VolumeHeader, counters: &Counters) -> VolumeHeader {
    header.used_kib = counters.used_kib;
    header
}

/// Returns the date of a new clone: no change that it contains is later, and no later change has an earlier
/// date.
pub(crate) fn date_of_clone(source: &VolumeHeader, now: UnixTime) -> UnixTime {
    now.max(source.updated).max(source.dated)
}

pub(crate) fn clone_header(source: VolumeHeader, new: &CloneVolume) -> VolumeHeader {
    VolumeHeader {
        id: new.id,
        name: new.name.clone(),
        kind: new.kind,
        in_service: true,
        blessed: true,
        destroy_me: 0,
        created: new.now,
        copied: new.now,
        snapshot: None,
        stands_for: None,
        unseen: None,
        restored_at: None,
        ..source
    }
}

/// Puts the root directory of a new volume (ViceCreateRoot of OpenAFS).
pub(crate) fn put_root(batch: &mut Batch, group: u64, now: UnixTime, chunk_shift: u8) {
    let root = Fid::root(VolumeId(0));
    let target = EntryTarget { vnode: root.vnode, unique: root.unique };
    let blob = DirectoryBlob::new(target, target);
    let status = root_status(now, blob.length_bytes());
    let vnode = Vnode { status, chunk_shift, acl: Some(Arc::new(Acl::administrators())) };
    let version = |prefix: &[u8]| keys::versioned(prefix, keys::FIRST_EPOCH);
    let key = version(&keys::vnode(group, root.vnode));
    batch.put(families::TOTALS, key.clone(), codec::put_totals(&Totals::of(&status)));
    batch.put(families::VNODES, key, codec::put_vnode(&vnode));
    for placed in blob.placed_entries() {
        let entry = Entry { target, slot: placed.slot, sequence: 0 };
        let key = keys::entry(group, root.vnode, &placed.name);
        batch.put(families::ENTRIES, version(&key), codec::put_entry(&entry));
    }
}

/// Returns the status of a new volume's root directory with this length in bytes.
pub(crate) fn root_status(now: UnixTime, length: u64) -> VnodeStatus {
    let root = Fid::root(VolumeId(0));
    VnodeStatus {
        vnode: root.vnode,
        unique: root.unique,
        kind: FileKind::Directory,
        mode: 0o777,
        owner: UserId(0),
        group: 0,
        links: 2,
        length,
        data_version: 1,
        client_modified: now,
        server_modified: now,
        author: UserId(0),
        parent: VnodeId(0),
        parent_unique: 0,
    }
}
