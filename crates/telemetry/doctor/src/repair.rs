//! Plans the steps that make the location database agree with the volumes again.
//!
//! [`plan`] is a function of the observed state. A step never deletes the data of a read-write volume: entries are
//! changed to what the servers have, and clones are deleted only if [`Options::removes_clones`] asks for it. Whatever
//! needs a decision, or depends on a server that does not answer, is listed in [`Plan::left`] with the reason.

use crate::cell::{Cell, Entry, Header, Held, Index, SUFFIXES, Site};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::net::Ipv4Addr;

/// What to plan for.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Whether clones that operations left behind are deleted.
    pub removes_clones: bool,
    /// Read-write ids of volumes with an unfinished job; they are left to that job.
    pub jobs: HashSet<u32>,
    /// Whether some server answered and its volumes could not be listed, so that a volume that was not found may
    /// be there.
    pub is_incomplete: bool,
}

/// Steps, in the order of execution, and problems that no step solves.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// The steps.
    pub steps: Vec<Step>,
    /// Problems that are left, each with the reason.
    pub left: Vec<Left>,
}

/// A step, with the volume that it belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// Name of the read-write volume, according to its entry if there is one.
    pub volume: String,
    /// What to do.
    pub action: Action,
}

/// A problem that is left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Left {
    /// Name of the read-write volume.
    pub volume: String,
    /// The problem, and what would solve it.
    pub reason: String,
}

/// A place on a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spot {
    /// Address of the server.
    pub server: Ipv4Addr,
    /// Letters of the partition.
    pub partition: String,
}

/// A change of the location database or of a volume's header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Unlocks the entry with this id.
    Unlock {
        /// An id of the entry.
        id: u32,
    },
    /// Gives a volume the name of its entry.
    Rename {
        /// Place of the volume.
        at: Spot,
        /// Id of the volume.
        id: u32,
        /// Its name.
        from: String,
        /// The name that its entry has for it.
        to: String,
    },
    /// Makes an entry for volumes that have none.
    Register {
        /// Ids of the read-write, read-only and backup volume; 0 for none.
        ids: [u32; 3],
        /// Whether each of these volumes was found.
        exists: [bool; 3],
        /// Sites of the volumes.
        sites: Vec<Site>,
    },
    /// Changes the site of the read-write volume in the entry to where the volume is.
    MoveSite {
        /// An id of the entry.
        id: u32,
        /// Site that does not have the volume.
        from: Spot,
        /// Site that has it.
        to: Spot,
    },
    /// Removes the site of a read-only volume that is not there.
    RemoveSite {
        /// An id of the entry.
        id: u32,
        /// The site.
        at: Spot,
    },
    /// Removes the mark that a backup volume exists.
    ForgetBackup {
        /// An id of the entry.
        id: u32,
    },
    /// Removes the entry of volumes that no server has.
    RemoveEntry {
        /// An id of the entry.
        id: u32,
    },
    /// Deletes a clone that an operation left behind.
    RemoveClone {
        /// Place of the clone.
        at: Spot,
        /// Id of the clone.
        id: u32,
        /// Id of the read-write volume.
        parent: u32,
    },
}

impl Action {
    /// Returns the action's name in JSON.
    pub fn name(&self) -> &'static str {
        match self {
            Action::Unlock { .. } => "unlock",
            Action::Rename { .. } => "rename",
            Action::Register { .. } => "register",
            Action::MoveSite { .. } => "move-site",
            Action::RemoveSite { .. } => "remove-site",
            Action::ForgetBackup { .. } => "forget-backup",
            Action::RemoveEntry { .. } => "remove-entry",
            Action::RemoveClone { .. } => "remove-clone",
        }
    }
}

impl fmt::Display for Spot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} /vicep{}", self.server, self.partition)
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let volume = &self.volume;
        match &self.action {
            Action::Unlock { .. } => write!(f, "unlock the entry {volume}"),
            Action::Rename { at, id, from, to } => write!(f, "rename {from} ({id}) on {at} to {to}"),
            Action::Register { ids, exists, sites } => {
                let found = SUFFIXES.iter().zip(ids).zip(exists).filter(|(_, exists)| **exists);
                let names: Vec<String> =
                    found.map(|((end, id), _)| format!("{volume}{end} ({id})")).collect();
                let sites: Vec<String> = sites.iter().map(|site| spot_of(site).to_string()).collect();
                write!(f, "make an entry for {} on {}", names.join(", "), sites.join(", "))
            }
            Action::MoveSite { from, to, .. } => {
                write!(f, "change the site of {volume} from {from}, which does not have it, to {to}")
            }
            Action::RemoveSite { at, .. } => {
                write!(f, "remove the site {at} of {volume}.readonly, which is not there")
            }
            Action::ForgetBackup { .. } => {
                write!(f, "remove {volume}.backup from the entry, no server has it")
            }
            Action::RemoveEntry { .. } => write!(f, "remove the entry {volume}, no server has its volumes"),
            Action::RemoveClone { at, id, .. } => write!(f, "delete the clone {id} of {volume} on {at}"),
        }
    }
}

/// Plans the repair of a cell.
pub fn plan(cell: &Cell, options: &Options) -> Plan {
    let planner = Planner::new(cell, options);
    let mut plan = Plan::default();
    for entry in &cell.entries {
        let mut of_entry = Plan::default();
        planner.entry(entry, &mut of_entry);
        planner.keep(&entry.name, &entry.ids, of_entry, &mut plan);
    }
    planner.orphans(&mut plan);
    plan
}

fn spot_of(site: &Site) -> Spot {
    Spot { server: site.server, partition: site.partition.clone() }
}

impl Held<'_> {
    fn spot(&self) -> Spot {
        Spot { server: self.server.address(), partition: self.header.partition.clone() }
    }
}

/// What is known of the volume that a site should have.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Presence {
    Present,
    /// The server serves the partition and does not have the volume.
    Absent,
    /// The server does not answer, or does not serve the partition.
    Unknown,
}

struct Planner<'a> {
    cell: &'a Cell,
    index: Index<'a>,
    options: &'a Options,
    /// Volumes with an open transaction, however long unused.
    open: HashSet<u32>,
    /// All places of each volume, and of the volumes with each parent.
    places: HashMap<u32, Vec<Held<'a>>>,
    children: HashMap<u32, Vec<Held<'a>>>,
}

impl<'a> Planner<'a> {
    fn new(cell: &'a Cell, options: &'a Options) -> Planner<'a> {
        let index = Index::new(cell);
        let transactions = cell.servers.iter().flat_map(|server| &server.transactions);
        let open = transactions.map(|transaction| transaction.volume).collect();
        let mut places: HashMap<u32, Vec<Held<'a>>> = HashMap::new();
        let mut children: HashMap<u32, Vec<Held<'a>>> = HashMap::new();
        for held in index.volumes() {
            places.entry(held.header.id).or_default().push(held);
            // A volume that cannot be read has no parent.
            if held.header.parent != 0 {
                children.entry(held.header.parent).or_default().push(held);
            }
        }
        Planner { cell, index, options, open, places, children }
    }

    /// Adds the steps for a volume, unless an operation works on it.
    fn keep(&self, volume: &str, ids: &[u32], new: Plan, plan: &mut Plan) {
        let working = if ids.iter().any(|id| self.open.contains(id)) {
            "a transaction on it is open; `vos status` lists transactions"
        } else if ids.iter().any(|id| self.options.jobs.contains(id)) {
            "a job works on it; `cellar volume jobs` lists jobs"
        } else {
            plan.steps.extend(new.steps);
            plan.left.extend(new.left);
            return;
        };
        if !new.steps.is_empty() || !new.left.is_empty() {
            plan.left.push(Left { volume: volume.to_owned(), reason: working.to_owned() });
        }
    }

    fn presence(&self, site: &Site, id: u32) -> Presence {
        let server = self.index.server(site.server).filter(|server| server.failure.is_none());
        match server.filter(|server| server.partitions.contains(&site.partition)) {
            None => Presence::Unknown,
            Some(server) => {
                let is_there = |held: &Held<'_>| {
                    held.server.address() == server.address() && held.header.partition == site.partition
                };
                if self.places(id).iter().any(is_there) { Presence::Present } else { Presence::Absent }
            }
        }
    }

    /// Whether any server might have a volume that was not found.
    fn may_be_elsewhere(&self) -> bool {
        self.options.is_incomplete || self.cell.servers.iter().any(|server| server.failure.is_some())
    }

    /// Returns all places of a volume.
    fn places(&self, id: u32) -> &[Held<'a>] {
        self.places.get(&id).map_or(&[], Vec::as_slice)
    }

    fn entry(&self, entry: &'a Entry, plan: &mut Plan) {
        let Some(id) = entry.ids.into_iter().find(|id| *id != 0) else { return };
        let mut steps = Vec::new();
        let mut left = Vec::new();
        if entry.is_locked {
            let silent = entry.sites.iter().find(|site| self.is_silent(site.server));
            match silent {
                None => steps.push(Action::Unlock { id }),
                Some(site) => left.push(format!(
                    "the entry is locked, and {} does not answer: an operation may work there",
                    site.server
                )),
            }
        }
        let sites = self.sites(entry, id, &mut left);
        // An entry that is removed needs no other change.
        if sites.first().is_some_and(|action| matches!(action, Action::RemoveEntry { .. })) {
            steps.extend(sites);
        } else {
            self.names(entry, &mut steps);
            steps.extend(sites);
            self.clones(entry, &mut steps, &mut left);
        }
        let volume = || entry.name.clone();
        plan.steps.extend(steps.into_iter().map(|action| Step { volume: volume(), action }));
        plan.left.extend(left.into_iter().map(|reason| Left { volume: volume(), reason }));
    }

    fn is_silent(&self, address: Ipv4Addr) -> bool {
        self.index.server(address).is_none_or(|server| server.failure.is_some())
    }

    /// Renames volumes that have another name than their entry says.
    fn names(&self, entry: &Entry, steps: &mut Vec<Action>) {
        for (kind, id) in entry.ids.into_iter().enumerate().filter(|(_, id)| *id != 0) {
            let to = entry.name_of(kind);
            for held in self.places(id).iter().filter(|held| held.is_at_site(entry, kind)) {
                if let Some(from) = held.header.name.clone().filter(|from| *from != to) {
                    steps.push(Action::Rename { at: held.spot(), id, from, to: to.clone() });
                }
            }
        }
    }

    /// Corrects the sites of an entry, or removes it if no server has any of its volumes.
    fn sites(&self, entry: &Entry, id: u32, left: &mut Vec<String>) -> Vec<Action> {
        if !entry.sites.is_empty() && self.is_gone(entry) {
            return vec![Action::RemoveEntry { id }];
        }
        let mut actions = Vec::new();
        let read_write = entry.sites.iter().find(|site| site.is_read_write);
        let presence = read_write.map(|site| self.presence(site, entry.ids[0]));
        let places = self.places(entry.ids[0]);
        if let Some(site) = read_write.filter(|_| entry.exists[0]) {
            match (presence, places) {
                (Some(Presence::Absent), []) => left.push(format!(
                    "{} does not have the volume, and another server or a copy may: restore it (`vos restore`), make it of \
                     a copy (`vos convertROtoRW`), or remove the entry (`vos delentry -id {}`)",
                    spot_of(site),
                    entry.name
                )),
                (Some(Presence::Absent), [held]) => {
                    actions.push(Action::MoveSite { id, from: spot_of(site), to: held.spot() });
                }
                (_, held) if held.len() > 1 => {
                    let spots: Vec<String> = held.iter().map(|held| held.spot().to_string()).collect();
                    left.push(format!(
                        "the volume is on {}: compare them with `vos examine`, and delete the older with `vos zap -id {}`",
                        spots.join(" and on "),
                        entry.ids[0]
                    ));
                }
                _ => {}
            }
        }
        for site in entry.sites.iter().filter(|site| !site.is_read_write && !site.is_empty && entry.exists[1])
        {
            if self.presence(site, entry.ids[1]) == Presence::Absent {
                actions.push(Action::RemoveSite { id, at: spot_of(site) });
            }
        }
        let has_read_write = presence == Some(Presence::Present) || places.len() == 1;
        if entry.exists[2] && entry.ids[2] != 0 && has_read_write && self.index.find(entry.ids[2]).is_none() {
            actions.push(Action::ForgetBackup { id });
        }
        actions
    }

    /// Whether certainly no server has any volume of this entry.
    fn is_gone(&self, entry: &Entry) -> bool {
        let is_absent = |site: &Site| {
            let ids = entry.ids.into_iter().filter(|id| *id != 0);
            ids.map(|id| self.presence(site, id)).all(|presence| presence == Presence::Absent)
        };
        let ids = entry.ids.into_iter().filter(|id| *id != 0);
        !self.may_be_elsewhere()
            && entry.sites.iter().all(is_absent)
            && ids.into_iter().all(|id| self.index.find(id).is_none())
            // Clones may hold the data.
            && !entry.ids.iter().any(|id| self.children.contains_key(id))
    }

    /// Deletes clones of a volume that no entry has, if that is wanted.
    fn clones(&self, entry: &Entry, steps: &mut Vec<Action>, left: &mut Vec<String>) {
        let parent = entry.ids[0];
        let children = self.children.get(&parent).into_iter().flatten();
        for held in children.filter(|held| self.index.entry_of(held.header.id).is_none()) {
            let (id, at) = (held.header.id, held.spot());
            let name = held.header.name.as_deref().unwrap_or_default();
            let may_go = held.header.is_clone
                && !name.is_empty()
                && !SUFFIXES[1..].iter().any(|end| name.ends_with(end));
            if !may_go {
                left.push(format!(
                    "{name} ({id}) on {at} is not in the entry: `vos zap -id {id}` deletes it"
                ));
            } else if self.open.contains(&id) {
                left.push(format!("a transaction on the clone {id} on {at} is open"));
            } else if self.options.removes_clones {
                steps.push(Action::RemoveClone { at, id, parent });
            } else {
                left.push(format!("the clone {id} on {at} was left behind: --remove-clones deletes it"));
            }
        }
    }

    /// Makes entries for volumes that have none.
    fn orphans(&self, plan: &mut Plan) {
        let mut groups: BTreeMap<u32, Vec<Held<'a>>> = BTreeMap::new();
        for held in self.index.volumes() {
            let Header { id, parent, .. } = *held.header;
            let has_entry = [id, parent].iter().any(|id| self.index.entry_of(*id).is_some());
            if !has_entry && held.header.name.is_some() {
                groups.entry(parent).or_default().push(held);
            }
        }
        let groups: Vec<(String, u32, Vec<Held<'a>>)> =
            groups.into_iter().map(|(parent, group)| (name_of(&group), parent, group)).collect();
        let mut uses: HashMap<&str, usize> = HashMap::new();
        let entries = self.cell.entries.iter().map(|entry| &entry.name);
        for name in entries.chain(groups.iter().map(|(name, ..)| name)) {
            *uses.entry(name).or_default() += 1;
        }
        for (name, parent, group) in &groups {
            let action = if uses.get(&name[..]).is_some_and(|uses| *uses > 1) {
                Err("another volume has this name".to_owned())
            } else {
                registration(*parent, group)
            };
            let volume = name.clone();
            let new = match action {
                Ok(action) => Plan { steps: vec![Step { volume, action }], left: vec![] },
                Err(reason) => {
                    let spots: Vec<String> =
                        group.iter().map(|held| format!("{} on {}", held.header.id, held.spot())).collect();
                    let reason = format!("without an entry ({}): {reason}", spots.join(", "));
                    Plan { steps: vec![], left: vec![Left { volume, reason }] }
                }
            };
            let ids: Vec<u32> = group.iter().flat_map(|held| [held.header.id, held.header.parent]).collect();
            self.keep(name, &ids, new, plan);
        }
    }
}

/// Returns the kind of a volume without an entry: its index in the ids of an entry.
fn kind_of(header: &Header) -> Option<usize> {
    if header.id == header.parent {
        return Some(0);
    }
    let name = header.name.as_deref().unwrap_or_default();
    (1..SUFFIXES.len()).find(|kind| name.ends_with(SUFFIXES[*kind]))
}

/// Returns the name of the read-write volume of volumes with the same parent.
fn name_of(group: &[Held<'_>]) -> String {
    let first = group.iter().min_by_key(|held| kind_of(held.header).unwrap_or(SUFFIXES.len()));
    let name = first.and_then(|held| held.header.name.as_deref()).unwrap_or_default();
    let cut = SUFFIXES[1..].iter().find_map(|end| name.strip_suffix(end));
    cut.unwrap_or(name).to_owned()
}

/// Returns the entry for volumes with the same parent, or why they cannot have one.
fn registration(parent: u32, group: &[Held<'_>]) -> Result<Action, String> {
    let mut ids = [parent, 0, 0];
    let mut exists = [false; 3];
    let mut sites = Vec::new();
    for held in group {
        let Some(kind) = kind_of(held.header) else { continue };
        let id = held.header.id;
        if exists[kind] && (kind != 1 || ids[kind] != id) {
            return Err("several volumes could be in the entry: delete all but one with `vos zap`".into());
        }
        (ids[kind], exists[kind]) = (id, true);
        if kind != 2 {
            let Spot { server, partition } = held.spot();
            sites.push(Site { server, partition, is_read_write: kind == 0, is_empty: false });
        }
    }
    if !exists[0] && !exists[1] {
        return Err("neither a read-write nor a read-only volume was found: `vos zap` deletes it".into());
    }
    let backup = group.iter().find(|held| kind_of(held.header) == Some(2));
    let is_apart =
        |backup: &Held<'_>| !sites.iter().any(|site| site.is_read_write && spot_of(site) == backup.spot());
    if backup.is_some_and(is_apart) {
        return Err(
            "the backup volume is not where the read-write volume is: delete it with `vos zap`".into()
        );
    }
    sites.sort_by_key(|site| !site.is_read_write);
    Ok(Action::Register { ids, exists, sites })
}
