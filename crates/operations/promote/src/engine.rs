//! Decides the next task in each cell, and processes the results.

use crate::manifest::{Disbelief, PublicKey};
use crate::record::{CellRecord, Halt, Held, Home, Record, Stage};
use crate::{Digest, Tree};
use jobs::Place;
use std::collections::{BTreeMap, BTreeSet};

/// Number of tries of a step before the cell is left behind.
const TRIES_MAX: u32 = 3;
/// Number of retransfers of wrong contents before the cell refuses the version.
const WRONGS_MAX: u32 = 3;
/// Incremental transfers start this much before the clone that they build on: what changed in the same second
/// may have changed after the clone was made.
const CLOCK_SLACK_SECONDS: u32 = 2;

/// Options of promotions.
#[derive(Clone, Debug)]
pub struct Options {
    /// Maximum number of cells that one cell serves.
    pub fanout: usize,
    /// Number of former versions kept in each cell.
    pub keep: usize,
    /// Keys that each cell trusts, by cell name and key name.
    pub trusted: BTreeMap<String, BTreeMap<String, PublicKey>>,
}

/// A task in a cell. Tasks are idempotent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    /// Cell of the task.
    pub cell: String,
    /// Step to perform.
    pub step: Step,
    /// Number of failed tries.
    pub tries: u32,
}

/// A step of a promotion in a cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Check that no volume of this name exists, and choose sites and ids: [`Done::Home`].
    Look,
    /// Create the staging volume, out of service, and the entry, unless they exist.
    Make(Home),
    /// Restore a dump of `from` into the staging volume: changes since `since` (seconds since 1970), or
    /// everything if that is 0; [`Done::Sent`].
    Send {
        /// The cell that has the version; may be the receiving cell.
        source: String,
        /// Clone of the version in that cell.
        from: Held,
        /// Destination.
        home: Home,
        /// Start of the changes, in seconds since 1970.
        since: u32,
    },
    /// Get an id for a clone: [`Done::Number`].
    Number,
    /// Clone the staging volume under this id; the staging volume stays out of service.
    Freeze {
        /// Location of the staging volume.
        home: Home,
        /// Id of the clone.
        clone: u32,
    },
    /// Compute the digest of a clone: [`Done::Digest`].
    Digest(Held),
    /// Bring the read-only volume at the first site to the contents of the staging volume, and make clients
    /// use no other site before it has the same.
    Publish {
        /// Location of the volume.
        home: Home,
        /// The clone that was verified; if the staging volume has changed since, the result is
        /// [`PromotionError::Changed`].
        verified: Held,
    },
    /// Send a clone to the read-only volume at another site, and make that available to clients again.
    Copy {
        /// Location of the volume.
        home: Home,
        /// Clone to send.
        from: Held,
        /// Destination.
        to: Place,
    },
    /// Choose further sites up to the wanted number and add them to the entry, not yet available to clients:
    /// [`Done::Sites`].
    Widen {
        /// Location of the volume.
        home: Home,
        /// Number of sites wanted.
        copies: usize,
    },
    /// Remove a clone if it exists.
    Drop(Held),
}

/// Result of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Done {
    /// The task is done and has no result.
    Well,
    /// Chosen location of the volume.
    Home(Home),
    /// Further sites, and the reason if there are not enough.
    Sites(Vec<Place>, Option<String>),
    /// Number of bytes sent.
    Sent(u64),
    /// Allocated id.
    Number(u32),
    /// Digest of the clone.
    Digest(Digest),
}

/// Why a task failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PromotionError {
    /// A later retry may succeed.
    Passing(String),
    /// A retry will not succeed.
    Lasting(String),
    /// The staging volume no longer has the verified contents, and they must be sent again.
    Changed(String),
}

/// Outcome of a task.
pub type Outcome = Result<Done, PromotionError>;

/// A promotion in progress. Call [`next_task`](Promotion::next_task) for as many tasks as can run
/// concurrently, write [`record`](Promotion::record) to the journal before starting any of them, and call
/// [`finish`](Promotion::finish) with each one when it has ended. The promotion is complete when `next_task`
/// returns `None` and no task is running.
#[derive(Debug)]
pub struct Promotion {
    record: Record,
    options: Options,
    busy: BTreeSet<String>,
    /// Cells, with the versions whose manifests they have accepted.
    believed: BTreeSet<(String, u32)>,
}

impl Promotion {
    /// Resumes from a record.
    pub fn new(record: Record, options: Options) -> Promotion {
        Promotion { record, options, busy: BTreeSet::new(), believed: BTreeSet::new() }
    }

    /// Returns the current record.
    pub fn record(&self) -> &Record {
        &self.record
    }

    /// Returns the final record.
    pub fn into_record(self) -> Record {
        self.record
    }

    /// Returns the next task that can start, if any.
    pub fn next_task(&mut self) -> Option<Task> {
        let mut names = self.record.order.clone();
        names.extend(self.record.cells.keys().filter(|name| !self.record.order.contains(name)).cloned());
        for name in names {
            if self.busy.contains(&name) || self.cell(&name).halt.is_some() {
                continue;
            }
            if let Err(disbelief) = self.believe(&name) {
                self.cell_mut(&name).halt = Some(Halt::Refused(disbelief));
                continue;
            }
            if let Some(step) = self.step(&name) {
                self.busy.insert(name.clone());
                let tries = self.cell(&name).tries;
                return Some(Task { cell: name, step, tries });
            }
        }
        None
    }

    fn cell(&self, name: &str) -> &CellRecord {
        &self.record.cells[name]
    }

    fn cell_mut(&mut self, name: &str) -> &mut CellRecord {
        self.record.cells.entry(name.into()).or_default()
    }

    /// Checks that a cell accepts the manifest; otherwise nothing that changes the cell's contents is done.
    fn believe(&mut self, name: &str) -> Result<(), String> {
        let cell = self.cell(name);
        if matches!(cell.stage, Stage::Settled | Stage::Pruning | Stage::Copying) {
            return Ok(());
        }
        let version = cell.wanted;
        let belief = (name.to_owned(), version);
        if self.believed.contains(&belief) {
            return Ok(());
        }
        let Some(signed) = self.record.versions.get(&version) else {
            return Err(format!("there is no manifest of version {version}"));
        };
        let trusted = self.options.trusted.get(name).into_iter().flatten();
        let believed: Result<(), Disbelief> = signed
            .verify(name, trusted.map(|(signer, key)| (signer.as_str(), key)))
            .and_then(|()| signed.is_of(&self.record.volume, &self.record.cell, version));
        believed.map_err(|disbelief| disbelief.to_string())?;
        self.believed.insert(belief);
        Ok(())
    }

    /// Returns the next step in a cell.
    fn step(&mut self, name: &str) -> Option<Step> {
        loop {
            let cell = self.cell(name);
            let home = cell.home.clone();
            match (cell.stage, home) {
                (Stage::Settled, _) => return None,
                (Stage::Beginning, Some(_)) => self.cell_mut(name).stage = Stage::Making,
                (Stage::Beginning, None) => return Some(Step::Look),
                // A record without a home starts again.
                (_, None) => self.cell_mut(name).stage = Stage::Beginning,
                (Stage::Making, Some(home)) => return Some(Step::Make(home)),
                (Stage::Sending, Some(home)) => return self.send(name, home),
                (Stage::Freezing, Some(_)) if cell.clone == 0 => return Some(Step::Number),
                (Stage::Freezing, Some(home)) => return Some(Step::Freeze { home, clone: cell.clone }),
                (Stage::Verifying, Some(home)) => {
                    return Some(Step::Digest(Held { place: home.sites[0], volume: cell.clone }));
                }
                (Stage::Publishing, Some(home)) => match cell.holds.get(&cell.wanted).copied() {
                    Some(verified) => return Some(Step::Publish { home, verified }),
                    None => self.cell_mut(name).stage = Stage::Sending,
                },
                (Stage::Copying, Some(home)) => match self.copy(name, home) {
                    Some(step) => return Some(step),
                    None => self.tidy(name),
                },
                (Stage::Pruning, Some(_)) => match cell.garbage.first() {
                    Some(held) => return Some(Step::Drop(*held)),
                    None => self.cell_mut(name).stage = Stage::Settled,
                },
            }
        }
    }

    fn copy(&self, name: &str, home: Home) -> Option<Step> {
        let cell = self.cell(name);
        let from = *cell.holds.get(&cell.wanted)?;
        match cell.lacking.first() {
            Some(_) if cell.doubted => Some(Step::Digest(from)),
            Some(&to) => Some(Step::Copy { home, from, to }),
            None if cell.is_short() && !cell.looked => Some(Step::Widen { home, copies: cell.copies }),
            None => None,
        }
    }

    /// Decides which clones the cell no longer needs.
    fn tidy(&mut self, name: &str) {
        let wanted: BTreeSet<u32> = self.record.cells.values().map(|cell| cell.wanted).collect();
        let keep = self.options.keep + 1;
        let cell = self.cell_mut(name);
        let kept: BTreeSet<u32> =
            cell.history.iter().rev().take(keep).map(|arrival| arrival.version).collect();
        let is_needed = |version: &u32| kept.contains(version) || wanted.contains(version);
        let old: Vec<u32> = cell.holds.keys().copied().filter(|version| !is_needed(version)).collect();
        let old: Vec<Held> = old.iter().filter_map(|version| cell.holds.remove(version)).collect();
        cell.garbage.extend(old);
        cell.stage = Stage::Pruning;
    }

    fn send(&mut self, name: &str, home: Home) -> Option<Step> {
        let version = self.cell(name).wanted;
        let source = self.source(name, version)?;
        let from = self.held(&source, version)?;
        let since = if source == name { 0 } else { self.since(name) };
        let cell = self.cell_mut(name);
        // The contents are undefined while the volume receives data.
        cell.staged = 0;
        cell.everything = since == 0;
        cell.from = Some(source.clone());
        Some(Step::Send { source, from, home, since })
    }

    /// Returns the time since when the staging volume lacks changes; 0 if it needs everything.
    fn since(&self, name: &str) -> u32 {
        let cell = self.cell(name);
        let date = |version: u32| Some(self.record.versions.get(&version)?.manifest.cloned_at);
        match (date(cell.staged), date(cell.wanted)) {
            (Some(has), Some(wanted)) if !cell.everything && cell.staged < cell.wanted && has <= wanted => {
                has.saturating_sub(CLOCK_SLACK_SECONDS).max(1)
            }
            _ => 0,
        }
    }

    fn held(&self, cell: &str, version: u32) -> Option<Held> {
        let own = self.record.cells.get(cell).and_then(|cell| cell.holds.get(&version));
        let source = || self.record.holds.get(&version).filter(|_| cell == self.record.cell);
        own.or_else(source).copied()
    }

    /// Returns the cell from which this one gets a version; `None` if that cell does not have it yet, or if
    /// no cell has it, which halts this cell.
    fn source(&mut self, name: &str, version: u32) -> Option<String> {
        if self.held(name, version).is_some() {
            return Some(name.to_owned());
        }
        match self.ancestor(name, version) {
            Ancestor::Comes => return None,
            Ancestor::Has(planned) if self.has_room(&planned, name, version) => return Some(planned),
            Ancestor::Has(_) | Ancestor::None => {}
        }
        let holders = self.holders(name, version);
        let free = holders.iter().find(|holder| self.has_room(holder, name, version));
        let any = free.or_else(|| {
            holders.iter().find(|holder| !self.cell(name).avoid.contains(holder)).or(holders.first())
        });
        if any.is_none() {
            let why = format!("no cell has version {version} any longer; promote the volume again");
            self.cell_mut(name).halt = Some(Halt::Refused(why));
        }
        any.cloned()
    }

    /// Returns all cells that have a version, the source first.
    fn holders(&self, but: &str, version: u32) -> Vec<String> {
        let source = std::iter::once(&self.record.cell);
        let all = source.chain(&self.record.order).chain(self.record.cells.keys());
        let mut holders: Vec<String> = Vec::new();
        for cell in all {
            if cell != but && !holders.contains(cell) && self.held(cell, version).is_some() {
                holders.push(cell.clone());
            }
        }
        holders
    }

    /// Returns whether a cell may serve another one, and this one in particular.
    fn has_room(&self, holder: &str, receiver: &str, version: u32) -> bool {
        let serves = |(name, cell): &(&String, &CellRecord)| {
            name.as_str() != receiver
                && name.as_str() != holder
                && cell.wanted == version
                && cell.from.as_deref() == Some(holder)
        };
        let served = self.record.cells.iter().filter(serves).count();
        let is_halted = self.record.cells.get(holder).is_some_and(CellRecord::is_behind);
        let is_avoided = self.cell(receiver).avoid.iter().any(|avoided| avoided == holder);
        served < self.options.fanout.max(1) && !is_avoided && !is_halted
    }

    /// Returns the nearest ancestor in the tree that has the version or will have it.
    fn ancestor(&self, name: &str, version: u32) -> Ancestor {
        let order = &self.record.order;
        let Some(place) = order.iter().position(|other| other == name) else { return Ancestor::None };
        let tree = Tree::new(order.len(), self.options.fanout);
        let mut above = tree.parent(place);
        while let Some(place) = above {
            let parent = &order[place];
            let cell = self.cell(parent);
            if self.held(parent, version).is_some() {
                return Ancestor::Has(parent.clone());
            }
            if cell.wanted == version && cell.halt.is_none() {
                return Ancestor::Comes;
            }
            above = tree.parent(place);
        }
        match self.held(&self.record.cell, version) {
            Some(_) => Ancestor::Has(self.record.cell.clone()),
            None => Ancestor::None,
        }
    }

    /// Processes the outcome of a task; `now` is in seconds since 1970.
    pub fn finish(&mut self, task: &Task, outcome: Outcome, now: u32) {
        self.busy.remove(&task.cell);
        match outcome {
            Ok(done) => self.done(task, done, now),
            Err(trouble) => self.failed(task, trouble),
        }
    }

    fn done(&mut self, task: &Task, done: Done, now: u32) {
        let expected = self.expected(&task.cell);
        let cell = self.cell_mut(&task.cell);
        cell.tries = 0;
        match (&task.step, done) {
            (Step::Look, Done::Home(home)) if !home.sites.is_empty() => {
                cell.home = Some(home);
                cell.stage = Stage::Making;
            }
            (Step::Make(_), _) => cell.stage = cell.after_making(),
            (Step::Send { .. }, Done::Sent(bytes)) => {
                cell.drop_clone();
                cell.bytes += bytes;
                cell.stage = Stage::Freezing;
            }
            (Step::Number, Done::Number(clone)) => cell.clone = clone,
            (Step::Freeze { .. }, _) => cell.stage = Stage::Verifying,
            (Step::Digest(_), Done::Digest(digest)) if cell.stage == Stage::Copying => {
                cell.doubted = false;
                if Some(digest) != expected {
                    cell.lose_clone();
                }
            }
            (Step::Digest(held), Done::Digest(digest)) if Some(digest) == expected => cell.verified(*held),
            (Step::Digest(_), Done::Digest(digest)) => self.wrong(&task.cell, digest, expected),
            (Step::Publish { home, .. }, _) => {
                cell.arrive(now);
                cell.lacking = home.sites[1..].to_vec();
                cell.stage = Stage::Copying;
            }
            (Step::Copy { to, .. }, _) => cell.lacking.retain(|site| site != to),
            (Step::Widen { .. }, Done::Sites(sites, scarce)) => cell.widen(sites, scarce),
            (Step::Drop(held), _) => cell.garbage.retain(|garbage| garbage != held),
            (step, done) => {
                cell.halt = Some(Halt::Refused(format!("{step:?} was answered with {done:?}")));
            }
        }
    }

    fn expected(&self, name: &str) -> Option<Digest> {
        Some(self.record.versions.get(&self.cell(name).wanted)?.manifest.contents)
    }

    /// Handles contents that do not match the manifest: they are sent again completely, from another cell if
    /// possible. The version in use is not affected.
    fn wrong(&mut self, name: &str, got: Digest, expected: Option<Digest>) {
        let source = self.record.cell.clone();
        let cell = self.cell_mut(name);
        cell.drop_clone();
        cell.staged = 0;
        cell.wrongs += 1;
        cell.stage = Stage::Sending;
        let was_everything = std::mem::replace(&mut cell.everything, true);
        let from = cell.from.take().unwrap_or_default();
        if was_everything && from == name {
            // The cell's own clone is damaged.
            let own = cell.holds.remove(&cell.wanted);
            cell.garbage.extend(own);
        } else if was_everything && from != source {
            cell.avoid.push(from.clone());
        }
        if cell.wrongs >= WRONGS_MAX || (was_everything && from == source) {
            let expected = expected.map_or_else(|| "none".into(), describe);
            let why = format!(
                "the contents that arrived from {from} are not those of the manifest: {} where it says \
                {expected}",
                describe(got)
            );
            cell.halt = Some(Halt::Refused(why));
        }
    }

    fn failed(&mut self, task: &Task, trouble: PromotionError) {
        let cell = self.cell_mut(&task.cell);
        let why = match trouble {
            // All existing sites have the version; the next run looks for further ones.
            PromotionError::Lasting(why) | PromotionError::Passing(why) | PromotionError::Changed(why)
                if matches!(task.step, Step::Widen { .. }) =>
            {
                return cell.widen(Vec::new(), Some(why));
            }
            PromotionError::Lasting(why) => {
                cell.halt = Some(Halt::Refused(why));
                return;
            }
            PromotionError::Changed(why) => {
                (cell.staged, cell.everything, cell.stage) = (0, true, Stage::Sending);
                why
            }
            PromotionError::Passing(why) => why,
        };
        cell.tries += 1;
        let mut most = TRIES_MAX;
        match &task.step {
            Step::Send { source, .. } if *source != task.cell => {
                // It is unknown which side failed.
                cell.avoid.push(source.clone());
                cell.from = None;
            }
            Step::Freeze { .. } => cell.drop_clone(),
            Step::Copy { .. } => {
                most *= cell.lacking.len() as u32;
                cell.lacking.rotate_left(1);
            }
            // Retried with the next version.
            Step::Drop(_) => {
                cell.stage = Stage::Settled;
                cell.tries = 0;
                return;
            }
            _ => {}
        }
        if cell.tries >= most {
            cell.halt = Some(Halt::Behind(why));
        }
    }
}

enum Ancestor {
    Has(String),
    /// It does not have the version yet.
    Comes,
    None,
}

fn describe(digest: Digest) -> String {
    let hash = crate::manifest::hexadecimal::encode(&digest.hash[..8]);
    format!("{hash}... ({} vnodes, {} bytes)", digest.vnodes, digest.bytes)
}

impl CellRecord {
    /// Returns the stage after the volume was created: a cell that already has the version needs no transfer.
    fn after_making(&self) -> Stage {
        let is_staged = self.staged == self.wanted;
        if is_staged && self.holds.contains_key(&self.wanted) { Stage::Publishing } else { Stage::Sending }
    }

    fn verified(&mut self, held: Held) {
        let former = self.holds.insert(self.wanted, held);
        self.garbage.extend(former.filter(|former| *former != held));
        self.clone = 0;
        self.wrongs = 0;
        self.staged = self.wanted;
        self.everything = false;
        self.stage = Stage::Publishing;
    }
}
