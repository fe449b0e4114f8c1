//! What is known about a volume's promotions, and all that the journal keeps of them.

use crate::SignedManifest;
use jobs::Place;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Manifests that are kept, besides those of versions that some cell has.
const MANIFESTS_KEPT: usize = 20;
/// Times of taking a version into use that are kept of each cell.
const ARRIVALS_KEPT: usize = 50;

/// A clone of a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    /// Where it is.
    pub place: Place,
    /// Its number.
    pub volume: u32,
}

/// Where a promoted volume lives in a cell.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Home {
    /// The number of the staging volume, which is the family's read-write volume.
    pub volume: u32,
    /// The number of the read-only volumes.
    pub read_only: u32,
    /// Where the read-only volumes are; at the first place the staging volume is, too. Never empty.
    pub sites: Vec<Place>,
}

/// What is to be done next in a cell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// To find out where the volume lives, or will.
    #[default]
    Beginning,
    /// To make the staging volume and the entry.
    Making,
    /// To send the version into the staging volume.
    Sending,
    /// To clone the staging volume.
    Freezing,
    /// To compare the clone with the manifest.
    Verifying,
    /// To take it into use at the first site.
    Publishing,
    /// To send it to the other sites, and to look for further ones if there are too few.
    Copying,
    /// To remove clones that are not needed any more.
    Pruning,
    /// Nothing.
    Settled,
}

/// Why nothing is done in a cell before the next `resume`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Halt {
    /// Somebody who is needed does not answer.
    Behind(String),
    /// It cannot, or must not, be done.
    Refused(String),
}

/// A version was taken into use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Arrival {
    /// The version.
    pub version: u32,
    /// When: seconds since 1970.
    pub at: u32,
}

/// A cell.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CellRecord {
    /// The version that it is to have; 0 before there is one.
    pub wanted: u32,
    /// What comes next.
    pub stage: Stage,
    /// Why it does not.
    pub halt: Option<Halt>,
    /// Where the volume lives, as soon as that is decided.
    pub home: Option<Home>,
    /// The versions that were taken into use, the one in use last. Going back takes the later ones away.
    pub history: Vec<Arrival>,
    /// Verified clones of versions, by version.
    pub holds: BTreeMap<u32, Held>,
    /// The cell that the wanted version comes from.
    pub from: Option<String>,
    /// Bytes that were sent to it for the wanted version.
    pub bytes: u64,
    /// The sites that do not have the version in use yet.
    pub lacking: Vec<Place>,
    /// Read-only sites that it is to have, as far as it has servers. Programs of before did not note it.
    #[serde(default)]
    pub copies: usize,
    /// Why it has fewer.
    #[serde(default)]
    pub scarce: Option<String>,
    /// Further sites were looked for in this run.
    #[serde(default)]
    pub(crate) looked: bool,
    /// What further sites are to get was verified long ago, and is verified again.
    #[serde(default)]
    pub(crate) doubted: bool,
    /// What the staging volume holds; 0 if that is not certain.
    pub(crate) staged: u32,
    /// The clone that is being made; 0 if there is none.
    pub(crate) clone: u32,
    /// Clones that are to be removed.
    pub(crate) garbage: Vec<Held>,
    /// Cells that it is not to get the version from, because that went wrong.
    pub(crate) avoid: Vec<String>,
    /// The next transfer sends everything.
    pub(crate) everything: bool,
    /// Times that the next step was tried in vain.
    pub(crate) tries: u32,
    /// Times that the contents were wrong.
    pub(crate) wrongs: u32,
}

impl CellRecord {
    /// The version in use; 0 if there is none.
    pub fn in_use(&self) -> u32 {
        self.history.last().map_or(0, |arrival| arrival.version)
    }

    /// The version that was in use before, if it can be gone back to.
    pub fn former(&self) -> Option<u32> {
        let former = self.history.iter().rev().nth(1)?.version;
        self.holds.contains_key(&former).then_some(former)
    }

    /// Whether every site has the wanted version.
    pub fn is_current(&self) -> bool {
        self.wanted != 0 && self.in_use() == self.wanted && self.lacking.is_empty()
    }

    /// Whether it has fewer sites than it is to have.
    pub fn is_short(&self) -> bool {
        self.home.as_ref().is_some_and(|home| home.sites.len() < self.copies)
    }

    /// What stands in the way, in words.
    pub fn trouble(&self) -> Option<&str> {
        match self.halt.as_ref()? {
            Halt::Behind(why) | Halt::Refused(why) => Some(why),
        }
    }

    /// Whether it waits for somebody who did not answer.
    pub fn is_behind(&self) -> bool {
        matches!(self.halt, Some(Halt::Behind(_)))
    }

    /// Whether it was refused.
    pub fn is_refused(&self) -> bool {
        matches!(self.halt, Some(Halt::Refused(_)))
    }

    /// Lets the cell have another version.
    pub(crate) fn want(&mut self, version: u32) {
        self.drop_clone();
        let (home, history, holds) =
            (self.home.take(), std::mem::take(&mut self.history), std::mem::take(&mut self.holds));
        let (garbage, staged) = (std::mem::take(&mut self.garbage), self.staged);
        let everything = self.everything;
        let (wanted, copies) = (version, self.copies);
        *self = CellRecord {
            wanted,
            home,
            history,
            holds,
            copies,
            staged,
            garbage,
            everything,
            ..CellRecord::default()
        };
    }

    /// Further sites were looked for.
    pub(crate) fn widen(&mut self, sites: Vec<Place>, scarce: Option<String>) {
        (self.looked, self.tries, self.scarce) = (true, 0, scarce);
        let Some(home) = &mut self.home else { return };
        for site in sites {
            if !home.sites.contains(&site) {
                home.sites.push(site);
                self.lacking.push(site);
                self.doubted = true;
            }
        }
    }

    /// The clone of the wanted version is not what it was: it is to be sent anew. What is in use stays in use.
    pub(crate) fn lose_clone(&mut self) {
        let damaged = self.holds.remove(&self.wanted);
        self.garbage.extend(damaged);
        (self.staged, self.everything, self.doubted, self.stage) = (0, true, false, Stage::Sending);
    }

    /// Gives up the clone that is being made.
    pub(crate) fn drop_clone(&mut self) {
        if let (Some(home), true) = (&self.home, self.clone != 0) {
            self.garbage.push(Held { place: home.sites[0], volume: self.clone });
        }
        self.clone = 0;
    }

    pub(crate) fn arrive(&mut self, at: u32) {
        let version = self.wanted;
        match self.history.iter().position(|arrival| arrival.version == version) {
            Some(place) => self.history.truncate(place + 1),
            None => self.history.push(Arrival { version, at }),
        }
        if self.history.len() > ARRIVALS_KEPT {
            self.history.remove(0);
        }
    }
}

/// A volume and its promotions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Its name.
    pub volume: String,
    /// The cell that it comes from.
    pub cell: String,
    /// Its number there.
    pub volume_id: u32,
    /// The manifests, by version.
    pub versions: BTreeMap<u32, SignedManifest>,
    /// The last version that was given a number.
    pub latest: u32,
    /// The clones in the source cell.
    pub holds: BTreeMap<u32, Held>,
    /// A clone there that has no manifest yet, or is to be removed.
    pub loose: Vec<Held>,
    /// The cells, in the order of the tree.
    pub order: Vec<String>,
    /// What is known about each.
    pub cells: BTreeMap<String, CellRecord>,
}

impl Record {
    /// Of a volume that was never promoted.
    pub fn new(volume: &str, cell: &str, volume_id: u32) -> Record {
        Record {
            volume: volume.into(),
            cell: cell.into(),
            volume_id,
            versions: BTreeMap::new(),
            latest: 0,
            holds: BTreeMap::new(),
            loose: Vec::new(),
            order: Vec::new(),
            cells: BTreeMap::new(),
        }
    }

    /// Adds a version that has been signed, of which the source cell has this clone.
    pub fn add_version(&mut self, signed: SignedManifest, held: Held) {
        let version = signed.manifest.version;
        self.latest = self.latest.max(version);
        self.holds.insert(version, held);
        self.versions.insert(version, signed);
        self.loose.retain(|loose| *loose != held);
    }

    /// Lets these cells have a version. Those that have it already stay as they are.
    pub fn want(&mut self, version: u32, cells: &[String]) {
        self.order = cells.to_vec();
        for name in cells {
            let cell = self.cells.entry(name.clone()).or_default();
            if cell.wanted != version {
                cell.want(version);
            }
        }
    }

    /// Lets a cell have so many read-only sites, from its next run on. What it has more stays.
    pub fn want_copies(&mut self, cell: &str, copies: usize) {
        self.cells.entry(cell.into()).or_default().copies = copies;
    }

    /// Lets a cell go back to the version before; its number.
    pub fn roll_back(&mut self, cell: &str) -> Option<u32> {
        let record = self.cells.get_mut(cell)?;
        let former = record.former()?;
        record.want(former);
        Some(former)
    }

    /// Lets everything go on that stands still.
    pub fn resume(&mut self) {
        for cell in self.cells.values_mut() {
            cell.halt = None;
            (cell.tries, cell.wrongs) = (0, 0);
            cell.avoid.clear();
            cell.looked = false;
            if cell.stage == Stage::Settled && cell.is_short() {
                cell.stage = Stage::Copying;
            }
        }
    }

    /// Forgets what nobody needs: clones in the source cell but for the last `keep` and those that somebody
    /// still waits for, and old manifests. What is to be removed is in `loose` then.
    pub fn forget(&mut self, keep: usize) {
        let is_waited_for =
            |version: u32| self.cells.values().any(|cell| cell.wanted == version && !cell.is_current());
        let old: Vec<u32> = self.holds.keys().rev().skip(keep + 1).copied().collect();
        let old: Vec<u32> = old.into_iter().filter(|&version| !is_waited_for(version)).collect();
        self.loose.extend(old.iter().filter_map(|version| self.holds.remove(version)));
        let is_held = |version: u32| {
            self.holds.contains_key(&version)
                || self.cells.values().any(|cell| cell.wanted == version || cell.holds.contains_key(&version))
        };
        let unused: Vec<u32> = self.versions.keys().copied().filter(|&version| !is_held(version)).collect();
        let surplus = unused.len().saturating_sub(MANIFESTS_KEPT);
        unused.iter().take(surplus).for_each(|version| drop(self.versions.remove(version)));
    }
}
