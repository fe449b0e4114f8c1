//! Reads the volumes, groups and purge jobs of a partition.

use crate::CheckReport;
use base::{VnodeId, VolumeId, VolumeType};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use store::{Family, KeyRange, MetaStore};
use volume_records::SnapshotOf;
use volume_records::codec::{self, Counters, Job, StoredHeader};
use volume_records::keys::{self, Registry as Table};
use volume_records::{ReadView, families};

/// Location of a volume's records.
#[derive(Clone)]
pub(crate) struct Known {
    pub(crate) group: u64,
    pub(crate) read_view: ReadView,
    pub(crate) is_read_write: bool,
    /// The snapshot that the volume is, according to its header.
    pub(crate) snapshot: Option<SnapshotOf>,
}

/// Facts about a group.
#[derive(Default)]
pub(crate) struct GroupFacts {
    /// Read views of its volumes.
    pub(crate) readers: Vec<ReadView>,
    pub(crate) newest: u64,
    pub(crate) read_write: Option<VolumeId>,
    /// Whether all of it is to be purged.
    pub(crate) is_doomed: bool,
    /// Whether versions without readers are to be purged.
    pub(crate) is_thinned: bool,
    /// Deleted files whose data is to be purged.
    pub(crate) files: BTreeSet<(VnodeId, u32)>,
}

#[derive(Default)]
pub(crate) struct Registry {
    pub(crate) volumes: BTreeMap<VolumeId, Known>,
    pub(crate) groups: BTreeMap<u64, GroupFacts>,
    /// Snapshot ids by read-write volume and name.
    snapshots: BTreeMap<(VolumeId, Vec<u8>), VolumeId>,
    /// Read-write volumes that have a snapshot policy.
    policies: BTreeSet<VolumeId>,
}

/// Formats a record for messages.
pub(crate) fn show(family: Family, key: &[u8]) -> String {
    let hex = key.iter().fold(String::new(), |hex, byte| hex + &format!("{byte:02x}"));
    format!("record {hex} of family {}", family.name())
}

pub(crate) fn read(meta: &dyn MetaStore, report: &mut CheckReport) -> Registry {
    let mut registry = Registry::default();
    let mut with_counters = BTreeSet::new();
    let result = meta.scan(families::VOLUMES, KeyRange::ascending(&[], &[0xff; 17]), &mut |key, value| {
        if read_record(&mut registry, &mut with_counters, key, value).is_none() {
            report.add(None, show(families::VOLUMES, key), "cannot be read");
        }
        ControlFlow::Continue(())
    });
    report.add_failure(None, "the volumes' headers", result.map_err(Into::into));
    registry.check_groups(report);
    registry.check_snapshots(report);
    for id in registry.volumes.keys().filter(|id| !with_counters.contains(id)) {
        report.add(Some(*id), "its header", "there are no counters with it");
    }
    for id in with_counters.iter().filter(|id| !registry.volumes.contains_key(id)) {
        report.add(Some(*id), "its counters", "there is no header with them");
    }
    check_next_id(meta, &registry, report);
    check_listed_hosts(meta, report);
    check_locks(meta, report);
    check_results(meta, report);
    registry
}

/// Reads one record; returns `None` if it is damaged.
fn read_record(
    registry: &mut Registry,
    with_counters: &mut BTreeSet<VolumeId>,
    key: &[u8],
    value: &[u8],
) -> Option<()> {
    let (place, rest) = key.split_at_checked(9)?;
    let is_table = |table: Table| keys::registry_range(table).0 == place;
    if is_table(Table::Job) {
        let job = codec::get_job(value)?;
        return (rest == value).then(|| registry.add_job(&job));
    }
    if is_table(Table::Snapshot) {
        let (volume, name) = rest.split_at_checked(4)?;
        let volume = VolumeId(u32::from_be_bytes(volume.try_into().ok()?));
        let snapshot = codec::get_snapshot(name, value)?;
        registry.snapshots.insert((volume, name.to_vec()), snapshot.id);
        return Some(());
    }
    if is_table(Table::Received) {
        let (volume, group) = keys::received_of(key)?;
        return codec::get_receipt(volume, group, value).map(drop);
    }
    let id = VolumeId(u32::from_be_bytes(rest.try_into().ok()?));
    if is_table(Table::Splitting) {
        return codec::get_splitting(id, value).map(drop);
    }
    if is_table(Table::Past) {
        return codec::get_past(value).map(drop);
    }
    if is_table(Table::Policy) {
        codec::get_policy(value)?;
        registry.policies.insert(id);
        return Some(());
    }
    if is_table(Table::Counters) {
        codec::get_counters(value)?;
        with_counters.insert(id);
        return Some(());
    }
    let stored = codec::get_header(value, &no_counters()).filter(|stored| stored.header.id == id)?;
    (is_table(Table::Header) && stored.group > 0 && stored.read_view.epoch > 0).then(|| registry.add(&stored))
}

/// Returns the counters of a volume, if they can be read.
pub(crate) fn counters_of(meta: &dyn MetaStore, id: VolumeId) -> Option<Counters> {
    codec::get_counters(&meta.get(families::VOLUMES, &keys::counters(id)).ok().flatten()?)
}

fn no_counters() -> Counters {
    let zero = base::UnixTime(0);
    Counters {
        used_kib: 0,
        file_count: 0,
        directory_count: 0,
        next_unique: 0,
        next_file: 0,
        next_directory: 0,
        updated: zero,
        update_counter: 0,
        accessed: zero,
        day_use: 0,
        day_use_date: zero,
        week_use: [0; 7],
        changes: 0,
        version_max: 0,
        unfolded: None,
    }
}

impl Registry {
    fn add(&mut self, stored: &StoredHeader) {
        let (group, read_view, id) = (stored.group, stored.read_view.clone(), stored.header.id);
        let epoch = read_view.epoch;
        let is_read_write = stored.header.kind == VolumeType::ReadWrite;
        let snapshot = stored.header.snapshot.clone();
        self.volumes.insert(id, Known { group, read_view, is_read_write, snapshot });
        let facts = self.groups.entry(group).or_default();
        facts.readers.push(stored.read_view.clone());
        facts.newest = facts.newest.max(epoch);
    }

    fn add_job(&mut self, job: &Job) {
        let facts = self.groups.entry(job.group()).or_default();
        match *job {
            Job::Group { .. } => facts.is_doomed = true,
            Job::Versions { .. } => facts.is_thinned = true,
            Job::File { vnode, unique, .. } => _ = facts.files.insert((vnode, unique)),
        }
    }

    fn check_groups(&mut self, report: &mut CheckReport) {
        report.volumes = self.volumes.len() as u64;
        report.groups = self.groups.values().filter(|facts| !facts.readers.is_empty()).count() as u64;
        report.jobs = self.groups.values().map(GroupFacts::jobs).sum();
        for (&id, known) in &self.volumes {
            let facts = self.groups.entry(known.group).or_default();
            if facts.is_doomed {
                report.add(Some(id), format!("group {}", known.group), "a purge job is to delete all of it");
            }
            if known.is_read_write
                && let Some(other) = facts.read_write.replace(id)
            {
                report.add(Some(id), format!("group {}", known.group), format!("volume {other} writes too"));
            }
        }
        for (&id, known) in &self.volumes {
            let writer = self.groups.get(&known.group).and_then(|facts| facts.read_write);
            let newest =
                writer.and_then(|writer| self.volumes.get(&writer)).map(|writer| writer.read_view.epoch);
            if let Some(newest) =
                newest.filter(|&newest| !known.is_read_write && known.read_view.epoch >= newest)
            {
                let what = format!("epoch {} is not below {newest}, the writer's", known.read_view.epoch);
                report.add(Some(id), "its header", what);
            }
        }
    }
}

impl Registry {
    /// Checks the list of snapshots against the headers.
    fn check_snapshots(&self, report: &mut CheckReport) {
        let mut listed = BTreeSet::new();
        for ((volume, name), id) in &self.snapshots {
            let is_so =
                self.volumes.get(id).and_then(|known| known.snapshot.as_ref()).is_some_and(|snapshot| {
                    snapshot.volume == *volume && snapshot.name.as_str().as_bytes() == name
                });
            if is_so {
                listed.insert(*id);
            } else {
                let place = format!("its snapshot {}", base::text::escape(name));
                report.add(Some(*volume), place, format!("volume {id} is missing or disagrees"));
            }
        }
        for (&id, known) in &self.volumes {
            if let Some(SnapshotOf { volume, name }) = &known.snapshot
                && !listed.contains(&id)
            {
                let what = format!("the list of snapshots of volume {volume} has no {name}");
                report.add(Some(id), "its header", what);
            }
        }
        for &id in &self.policies {
            if !self.volumes.get(&id).is_some_and(|known| known.is_read_write) {
                report.add(Some(id), "its snapshot policy", "there is no such read-write volume");
            }
        }
    }
}

impl GroupFacts {
    fn jobs(&self) -> u64 {
        u64::from(self.is_doomed) + u64::from(self.is_thinned) + self.files.len() as u64
    }

    /// Returns whether versions without readers are going to be purged.
    pub(crate) fn may_have_unneeded(&self) -> bool {
        self.is_doomed || self.is_thinned
    }
}

fn check_next_id(meta: &dyn MetaStore, registry: &Registry, report: &mut CheckReport) {
    let key = keys::next_id();
    let place = show(Family::SYSTEM, &key);
    let newest = registry.groups.last_key_value().map_or(0, |(group, _)| *group);
    match meta.get(Family::SYSTEM, &key) {
        Ok(None) if newest > 0 => report.add(None, place, "it is missing"),
        Ok(None) => {}
        Ok(Some(value)) => match <[u8; 8]>::try_from(&value[..]).map(u64::from_be_bytes) {
            Ok(next) if next > newest => {}
            Ok(next) => report.add(
                None,
                place,
                format!(
                    "{next} is the next to be assigned, but {newest} is \
                in use"
                ),
            ),
            Err(_) => report.add(None, place, "cannot be read"),
        },
        Err(error) => report.add(None, place, error.to_string()),
    }
}

/// Checks that the hosts that may hold promises can be read.
fn check_listed_hosts(meta: &dyn MetaStore, report: &mut CheckReport) {
    let (from, to) = keys::listed_hosts();
    let result = meta.scan(Family::SYSTEM, KeyRange::ascending(&from, &to), &mut |key, value| {
        if codec::get_listed_host(key, value).is_none() {
            report.add(None, show(Family::SYSTEM, key), "cannot be read");
        }
        ControlFlow::Continue(())
    });
    report.add_failure(None, "the hosts that may hold promises", result.map_err(Into::into));
}

/// Checks that the records of locks can be read.
fn check_locks(meta: &dyn MetaStore, report: &mut CheckReport) {
    let (from, to) = keys::locks();
    let result = meta.scan(Family::SYSTEM, KeyRange::ascending(&from, &to), &mut |key, value| {
        if keys::lock_of(key).is_none() || codec::get_lock(value).is_none() {
            report.add(None, show(Family::SYSTEM, key), "cannot be read");
        }
        ControlFlow::Continue(())
    });
    report.add_failure(None, "the locks of files", result.map_err(Into::into));
}

/// Checks that the results of forwarded calls can be read.
fn check_results(meta: &dyn MetaStore, report: &mut CheckReport) {
    let (from, to) = keys::results();
    let result = meta.scan(Family::SYSTEM, KeyRange::ascending(&from, &to), &mut |key, value| {
        let is_sound = if keys::recorded_call_of(key).is_some() {
            codec::get_recorded_call(value).is_some()
        } else {
            keys::deleted_results_of(key).is_some() && codec::get_deleted_results(value).is_some()
        };
        if !is_sound {
            report.add(None, show(Family::SYSTEM, key), "cannot be read");
        }
        ControlFlow::Continue(())
    });
    report.add_failure(None, "the results of forwarded calls", result.map_err(Into::into));
}
