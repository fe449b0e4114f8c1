//! The steps from the present state of a cell to the declared one. Pure: see [`plan`].

use super::declared::{Declared, Given, Grants, Group, Mount, User, Volume};
use super::observed::{AccessList, Entry, Observed, Place, Policy};
use base::{PartitionId, Rights};
use ptdb::EntryFlags;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::Ipv4Addr;

/// Group whose entry in an access list is never pruned.
const ADMINISTRATORS: &str = "system:administrators";

/// One change of the cell.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "operation", rename_all = "kebab-case")]
pub(super) enum Step {
    CreateUser { name: String, id: Option<i32> },
    CreateGroup { name: String, owner: Option<String> },
    SetGroupOwner { name: String, owner: String },
    SetAccess { name: String, bits: u32 },
    AddMember { group: String, member: String },
    DropMember { group: String, member: String },
    CreateVolume { name: String, server: Ipv4Addr, partition: Option<String>, quota_kib: i32 },
    SetQuota { volume: String, from_kib: i32, quota_kib: i32 },
    SetCompression { volume: String, compression: String },
    SetDeduplication { volume: String, is_on: bool },
    SetSnapshots { volume: String, counts: [u32; 4] },
    SetRootOwner { volume: String, owner: String },
    SetAcl { volume: String, granted: BTreeMap<String, String>, denied: BTreeMap<String, String> },
    MakeMountPoint { place: String, volume: String, is_read_write: bool },
    AddSite { volume: String, server: Ipv4Addr, partition: Option<String> },
    Release { volume: String },
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Step::CreateUser { name, id: Some(id) } => write!(f, "create the user {name} with number {id}"),
            Step::CreateUser { name, id: None } => write!(f, "create the user {name}"),
            Step::CreateGroup { name, owner: Some(owner) } => write!(f, "create the group {name} of {owner}"),
            Step::CreateGroup { name, owner: None } => write!(f, "create the group {name}"),
            Step::SetGroupOwner { name, owner } => write!(f, "give the group {name} to {owner}"),
            Step::SetAccess { name, bits } => write!(f, "set the access of {name} to {}", access_text(*bits)),
            Step::AddMember { group, member } => write!(f, "add {member} to {group}"),
            Step::DropMember { group, member } => write!(f, "remove {member} from {group}"),
            Step::MakeMountPoint { place, volume, is_read_write: false } => {
                write!(f, "mount {volume} at {place}")
            }
            Step::MakeMountPoint { place, volume, is_read_write: true } => {
                write!(f, "mount {volume} at {place}, always to the read-write volume")
            }
            Step::AddSite { volume, server, partition } => {
                write!(f, "add the read-only site {server}{} of {volume}", on(partition.as_ref()))
            }
            Step::Release { volume } => write!(f, "release {volume}"),
            step => f.write_str(&step.describe_volume()),
        }
    }
}

impl Step {
    /// Describes a step that creates a volume or changes its settings.
    fn describe_volume(&self) -> String {
        match self {
            Step::CreateVolume { name, server, partition, quota_kib } => {
                let (on, quota) = (on(partition.as_ref()), quota(*quota_kib));
                format!("create the volume {name} on {server}{on} with {quota}")
            }
            Step::SetQuota { volume, from_kib, quota_kib } => {
                format!("give {volume} {} instead of {}", quota(*quota_kib), quota(*from_kib))
            }
            Step::SetCompression { volume, compression } if compression.is_empty() => {
                format!("compress new data of {volume} as the server does by default")
            }
            Step::SetCompression { volume, compression } => {
                format!("compress new data of {volume} with {compression}")
            }
            Step::SetDeduplication { volume, is_on } => {
                format!("turn deduplication of new data of {volume} {}", if *is_on { "on" } else { "off" })
            }
            Step::SetSnapshots { volume, counts: [hourly, daily, weekly, monthly] } => format!(
                "keep {hourly} hourly, {daily} daily, {weekly} weekly and {monthly} monthly snapshots of {volume}"
            ),
            Step::SetRootOwner { volume, owner } => format!("give the root of {volume} to {owner}"),
            Step::SetAcl { volume, granted, denied } => {
                let denied =
                    if denied.is_empty() { String::new() } else { format!("; denied: {}", listed(denied)) };
                format!("set the ACL of the root of {volume} to {}{denied}", listed(granted))
            }
            _ => String::new(),
        }
    }
}

fn on(partition: Option<&String>) -> String {
    partition.map(|partition| format!(" {partition}")).unwrap_or_default()
}

fn listed(rights: &BTreeMap<String, String>) -> String {
    rights.iter().map(|(who, rights)| format!("{who}={rights}")).collect::<Vec<_>>().join(", ")
}

fn quota(kib: i32) -> String {
    crate::commands::volume::quota_in_words(kib)
}

/// Formats access bits like `pts examine`.
fn access_text(bits: u32) -> String {
    EntryFlags(bits << EntryFlags::ACCESS_SHIFT).access_text()
}

/// A declaration that cannot be applied by changes that are safe.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Conflict {
    /// Line of the declaration.
    pub(super) line: usize,
    /// Key of the declaration.
    pub(super) key: String,
    /// What contradicts it, and what to do.
    pub(super) what: String,
}

/// Plans the changes, in an order in which they can be made. With `prune`, members of declared groups and
/// entries of declared access lists that are not declared are removed; nothing else is ever removed.
///
/// # Errors
/// All declarations that contradict the present state.
pub(super) fn plan(
    declared: &Declared,
    observed: &Observed,
    prune: bool,
) -> Result<Vec<Step>, Vec<Conflict>> {
    let mut planner = Planner { declared, observed, prune, steps: Vec::new(), conflicts: Vec::new() };
    planner.users();
    planner.groups();
    let changed: BTreeSet<&str> =
        declared.volumes.iter().filter(|volume| planner.volume(volume)).map(|volume| &*volume.name).collect();
    let mounted = planner.mounts();
    for volume in &declared.volumes {
        planner.sites(volume, changed.contains(&*volume.name) || mounted.contains(&*volume.name));
    }
    if planner.conflicts.is_empty() { Ok(planner.steps) } else { Err(planner.conflicts) }
}

struct Planner<'a> {
    declared: &'a Declared,
    observed: &'a Observed,
    prune: bool,
    steps: Vec<Step>,
    conflicts: Vec<Conflict>,
}

impl<'a> Planner<'a> {
    fn conflict(&mut self, line: usize, key: String, what: String) {
        self.conflicts.push(Conflict { line, key, what });
    }

    /// Returns whether a user or group exists or is declared.
    fn will_exist(&self, name: &str) -> bool {
        self.observed.entries.contains_key(name)
            || self.declared.users.iter().any(|user| user.name == name)
            || self.declared.groups.iter().any(|group| group.name == name)
    }

    /// Reports a name that neither exists nor is declared.
    fn check_name(&mut self, given: &Given<String>, key: String) {
        let name = &given.value;
        if !self.will_exist(name) {
            let what = format!("there is no user or group {name}; declare it, or create it first");
            self.conflict(given.line, key, what);
        }
    }

    fn users(&mut self) {
        for User { name, line, id, access } in &self.declared.users {
            match (self.observed.entries.get(name), id) {
                (None, id) => {
                    let id = id.as_ref().map(|id| id.value);
                    self.steps.push(Step::CreateUser { name: name.clone(), id });
                }
                (Some(entry), _) if entry.id < 0 => {
                    self.conflict(*line, format!("users.{name}"), format!("{name} is a group"));
                }
                (Some(entry), Some(id)) if entry.id != id.value => {
                    let what = format!("the user has number {}, which is never changed", entry.id);
                    self.conflict(id.line, format!("users.{name}.id"), what);
                }
                _ => {}
            }
            self.access(name, *access);
        }
    }

    fn access(&mut self, name: &str, wanted: Option<u32>) {
        let present = self.observed.entries.get(name).map(|entry| entry.access);
        if let Some(bits) = wanted.filter(|bits| present != Some(*bits)) {
            self.steps.push(Step::SetAccess { name: name.to_owned(), bits });
        }
    }

    fn groups(&mut self) {
        for group in &self.declared.groups {
            let key = |of: &str| format!("groups.{}{of}", group.name);
            if self.observed.entries.get(&group.name).is_some_and(|entry| entry.id > 0) {
                self.conflict(group.line, key(""), format!("{} is a user", group.name));
            }
            if let Some(owner) = &group.owner {
                self.check_name(owner, key(".owner"));
            }
            for member in group.members.iter().flatten() {
                self.check_name(member, key(".members"));
            }
        }
        self.create_groups();
        for group in &self.declared.groups {
            self.group_owner(group);
            self.access(&group.name, group.access);
        }
        self.declared.groups.iter().for_each(|group| self.members(group));
    }

    /// Creates missing groups, each after its owner. The owner of a group that owns itself, directly or
    /// through others, is set afterwards.
    fn create_groups(&mut self) {
        let is_missing = |group: &&Group| !self.observed.entries.contains_key(&group.name);
        let mut left: Vec<&Group> = self.declared.groups.iter().filter(is_missing).collect();
        while !left.is_empty() {
            let is_awaited = |name: &str| left.iter().any(|group| group.name == name);
            let next = left
                .iter()
                .position(|group| group.owner.as_ref().is_none_or(|owner| !is_awaited(&owner.value)));
            let group = left.remove(next.unwrap_or(0));
            let owner = group.owner.as_ref().filter(|_| next.is_some()).map(|owner| owner.value.clone());
            self.steps.push(Step::CreateGroup { name: group.name.clone(), owner });
        }
    }

    fn group_owner(&mut self, group: &Group) {
        let Some(owner) = &group.owner else { return };
        let created = Step::CreateGroup { name: group.name.clone(), owner: Some(owner.value.clone()) };
        let present = self.observed.entries.get(&group.name).map(|entry| &entry.owner);
        if present != Some(&owner.value) && !self.steps.contains(&created) {
            self.steps.push(Step::SetGroupOwner { name: group.name.clone(), owner: owner.value.clone() });
        }
    }

    fn members(&mut self, group: &Group) {
        let Some(wanted) = &group.members else { return };
        let none = Entry::default();
        let present = &self.observed.entries.get(&group.name).unwrap_or(&none).members;
        let wanted: BTreeSet<&String> = wanted.iter().map(|member| &member.value).collect();
        let name = || group.name.clone();
        for &member in wanted.iter().filter(|member| !present.contains(**member)) {
            self.steps.push(Step::AddMember { group: name(), member: member.clone() });
        }
        for member in present.iter().filter(|member| self.prune && !wanted.contains(member)) {
            self.steps.push(Step::DropMember { group: name(), member: member.clone() });
        }
    }

    /// Plans a volume, and returns whether its root will differ from what a released copy shows.
    fn volume(&mut self, wanted: &Volume) -> bool {
        let key = |of: &str| format!("volumes.{}{of}", wanted.name);
        for (names, of) in [(&wanted.acl, ".acl"), (&wanted.denied, ".denied")] {
            for (who, rights) in names.iter().flatten() {
                let given = Given { value: who.clone(), line: rights.line };
                self.check_name(&given, key(&format!("{of}.{who}")));
            }
        }
        if let Some(owner) = &wanted.owner {
            self.check_name(owner, key(".owner"));
        }
        let present = self.observed.volumes.get(&wanted.name);
        match present {
            Some(present) => self.place(wanted, present),
            None => self.create_volume(wanted),
        }
        self.policies(wanted, present);
        self.root(wanted, present)
    }

    /// Reports a volume that is not where it is declared: a move is never made unasked.
    fn place(&mut self, wanted: &Volume, present: &super::observed::Volume) {
        let name = &wanted.name;
        let (server, partition) = (present.server, present.partition);
        if let Some(on) = &wanted.server
            && !self.is_same_server(on.value, server)
        {
            let what =
                format!("the volume is on {server}; `cellar volume move {name} --to {}` moves it", on.value);
            self.conflict(on.line, format!("volumes.{name}.server"), what);
        } else if let Some(at) = &wanted.partition
            && at.value != partition
        {
            let what = format!(
                "the volume is on {partition}; `cellar volume move {name} --to {server} --partition {}` moves it",
                at.value.letters()
            );
            self.conflict(at.line, format!("volumes.{name}.partition"), what);
        }
        if let Some(quota_kib) = wanted.quota_kib.filter(|kib| *kib != present.quota_kib) {
            let from_kib = present.quota_kib;
            self.steps.push(Step::SetQuota { volume: name.clone(), from_kib, quota_kib });
        }
    }

    fn create_volume(&mut self, wanted: &Volume) {
        let server = wanted.server.as_ref().map(|server| server.value).or(self.observed.default_server);
        let Some(server) = server else {
            let what = "there is no default server; declare one".to_owned();
            return self.conflict(wanted.line, format!("volumes.{}.server", wanted.name), what);
        };
        self.steps.push(Step::CreateVolume {
            name: wanted.name.clone(),
            server,
            partition: wanted.partition.as_ref().map(|partition| partition.value.to_string()),
            quota_kib: wanted.quota_kib.unwrap_or(crate::commands::volume::QUOTA_KIB),
        });
    }

    /// Plans how data is stored and which snapshots are kept.
    fn policies(&mut self, wanted: &Volume, present: Option<&super::observed::Volume>) {
        let new = Policy { compression: String::new(), deduplication: false, snapshots: [0; 4] };
        let is_declared =
            wanted.compression.is_some() || wanted.deduplication.is_some() || wanted.snapshots.is_some();
        let present = match present.map(|present| &present.policy) {
            None => &new,
            Some(Some(present)) => present,
            Some(None) if !is_declared => return,
            Some(None) => {
                let what =
                    "the volume's server is not a Cellar server: it has no `compression`, `deduplication` \
                            and `snapshots`"
                        .to_owned();
                return self.conflict(wanted.line, format!("volumes.{}", wanted.name), what);
            }
        };
        let volume = || wanted.name.clone();
        if let Some(compression) = &wanted.compression
            && compression.value != present.compression
        {
            let compression = compression.value.clone();
            self.steps.push(Step::SetCompression { volume: volume(), compression });
        }
        if let Some(is_on) = wanted.deduplication.filter(|is_on| *is_on != present.deduplication) {
            self.steps.push(Step::SetDeduplication { volume: volume(), is_on });
        }
        if let Some(counts) = wanted.snapshots.filter(|counts| *counts != present.snapshots) {
            self.steps.push(Step::SetSnapshots { volume: volume(), counts });
        }
    }

    /// Plans owner and access list of a root directory; returns whether a released copy shows others.
    fn root(&mut self, wanted: &Volume, present: Option<&super::observed::Volume>) -> bool {
        let mut new = AccessList::default();
        new.granted.insert(ADMINISTRATORS.into(), Rights::ALL);
        let mut is_stale = false;
        if let Some(owner) = &wanted.owner {
            let id = self.observed.entries.get(&owner.value).map(|entry| entry.id);
            if present.is_none_or(|present| Some(present.owner) != id) {
                let owner = owner.value.clone();
                self.steps.push(Step::SetRootOwner { volume: wanted.name.clone(), owner });
            }
            let published = present.and_then(|present| present.published.as_ref());
            is_stale |= published.is_some_and(|published| Some(published.owner) != id);
        }
        let list = present.map_or(&new, |present| &present.acl);
        let target = AccessList {
            granted: self.merged(&list.granted, wanted.acl.as_ref()),
            denied: self.merged(&list.denied, wanted.denied.as_ref()),
        };
        if target != *list {
            let texts = |all: &BTreeMap<String, Rights>| {
                all.iter().map(|(who, rights)| (who.clone(), rights.to_string())).collect()
            };
            let (granted, denied) = (texts(&target.granted), texts(&target.denied));
            self.steps.push(Step::SetAcl { volume: wanted.name.clone(), granted, denied });
        }
        let is_declared = wanted.acl.is_some() || wanted.denied.is_some();
        let published = present.and_then(|present| present.published.as_ref());
        is_stale || is_declared && published.is_some_and(|published| published.acl != target)
    }

    /// Returns an access list with the declared entries; one without rights is left out.
    fn merged(
        &self,
        present: &BTreeMap<String, Rights>,
        wanted: Option<&Grants>,
    ) -> BTreeMap<String, Rights> {
        let Some(wanted) = wanted else { return present.clone() };
        let is_kept = |who: &String| !self.prune || wanted.contains_key(who) || who == ADMINISTRATORS;
        let mut all: BTreeMap<String, Rights> = present
            .iter()
            .filter(|(who, _)| is_kept(who))
            .map(|(who, rights)| (who.clone(), *rights))
            .collect();
        all.extend(wanted.iter().map(|(who, rights)| (who.clone(), rights.value)));
        all.retain(|_, rights| *rights != Rights::NONE);
        all
    }

    /// Plans the mount points, and returns the volumes whose released copies lack one.
    fn mounts(&mut self) -> BTreeSet<&'a str> {
        let declared = self.declared;
        let stale = |mount: &&'a Mount| self.mount(mount);
        declared.mounts.iter().filter(stale).map(|mount| &*mount.place.volume).collect()
    }

    /// Plans a mount point; returns whether a released copy of its volume lacks it.
    fn mount(&mut self, mount: &Mount) -> bool {
        let place = mount.place_text();
        match self.mount_state(mount, &place) {
            Ok(Some(is_published)) => !is_published,
            Ok(None) => {
                let (volume, is_read_write) = (mount.volume.clone(), mount.read_write);
                self.steps.push(Step::MakeMountPoint { place, volume, is_read_write });
                true
            }
            Err(what) => {
                self.conflict(mount.line, format!("mounts.{place}"), what);
                false
            }
        }
    }

    /// Returns whether released copies have the mount point, or `None` if it can be made.
    ///
    /// # Errors
    /// Why it cannot be made.
    fn mount_state(&self, mount: &Mount, place: &str) -> Result<Option<bool>, String> {
        let volume = &mount.place.volume;
        let is_declared = self.declared.volumes.iter().any(|declared| declared.name == *volume);
        let wanted = format!("{}{}", if mount.read_write { '%' } else { '#' }, mount.volume);
        match self.observed.mounts.get(place).unwrap_or(&Place::NoVolume) {
            Place::Free => Ok(None),
            // A new volume has no directories yet.
            Place::NoVolume if is_declared && mount.place.components.len() == 1 => Ok(None),
            Place::NoVolume if !is_declared => {
                Err(format!("there is no volume {volume}; declare it, or create it first"))
            }
            Place::NoVolume | Place::NoDirectory => Err(
                "the directory does not exist; create it first, or, if it is the root of a volume, name the place \
                 from that volume"
                    .into(),
            ),
            Place::Mount { contents, is_published } if *contents == wanted => Ok(Some(*is_published)),
            Place::Mount { contents, .. } => {
                Err(format!("the mount point there is `{contents}`; `cellar volume unmount {place}` removes it"))
            }
            Place::Occupied => Err("something other than a mount point is there".into()),
        }
    }

    /// Plans the read-only sites, and a release if a site is new or `is_stale` says that copies lack
    /// something that is declared.
    fn sites(&mut self, wanted: &Volume, is_stale: bool) {
        let present = self.observed.volumes.get(&wanted.name);
        let mut is_released = present.is_some_and(|present| present.published.is_some());
        for Given { value: (server, partition), line } in &wanted.read_only {
            let sites = present.map_or(&[][..], |present| &present.sites);
            match (sites.iter().find(|site| self.is_same_server(site.server, *server)), partition) {
                (None, _) => {
                    let partition = partition.map(|partition| partition.to_string());
                    let volume = wanted.name.clone();
                    self.steps.push(Step::AddSite { volume, server: *server, partition });
                    is_released = false;
                }
                (Some(site), Some(partition)) if site.partition != *partition => {
                    let what = format!("the site on {server} is on {}", site.partition);
                    self.conflict(*line, format!("volumes.{}.read_only", wanted.name), what);
                }
                _ => {}
            }
        }
        if !wanted.read_only.is_empty() && (is_stale || !is_released) {
            self.steps.push(Step::Release { volume: wanted.name.clone() });
        }
    }

    /// Returns whether two addresses belong to the same server.
    fn is_same_server(&self, one: Ipv4Addr, other: Ipv4Addr) -> bool {
        let has_both = |addresses: &Vec<Ipv4Addr>| addresses.contains(&one) && addresses.contains(&other);
        one == other || self.observed.servers.iter().any(has_both)
    }
}

/// Parses the partition of a step.
pub(super) fn partition_of(text: Option<&String>) -> anyhow::Result<Option<PartitionId>> {
    text.map(|text| text.parse().map_err(anyhow::Error::msg)).transpose()
}
