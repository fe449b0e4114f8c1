//! The state of a volume's promotions, as kept in the journal.

use crate::SignedManifest;
use jobs::Place;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Number of manifests kept in addition to those of versions that some cell has.
const MANIFESTS_KEPT: usize = 20;
/// Number of arrivals kept for each cell.
const ARRIVALS_KEPT: usize = 50;

/// A clone of a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    /// Site of the clone.
    pub place: Place,
    /// Id of the clone.
    pub volume: u32,
}

/// Location of a promoted volume in a cell.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Home {
    /// Id of the staging volume, which is the family's read-write volume.
    pub volume: u32,
    /// Id of the read-only volumes.
    pub read_only: u32,
    /// Sites of the read-only volumes; the first one also has the staging volume. Never empty.
    pub sites: Vec<Place>,
}

/// The next step in a cell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// Determine the location of the volume.
    #[default]
    Beginning,
    /// Create the staging volume and the entry.
    Making,
    /// Send the version to the staging volume.
    Sending,
    /// Clone the staging volume.
    Freezing,
    /// Compare the clone with the manifest.
    Verifying,
    /// Take the version into use at the first site.
    Publishing,
    /// Send it to the other sites, and choose further sites if there are too few.
    Copying,
    /// Remove clones that are no longer needed.
    Pruning,
    /// There is nothing to do.
    Settled,
}

/// Why no more is done in a cell until the next `resume`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Halt {
    /// A required server does not respond.
    Behind(String),
    /// Impossible or not permitted.
    Refused(String),
}

/// A version taken into use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Arrival {
    /// The version.
    pub version: u32,
    /// Time in seconds since 1970.
    pub at: u32,
}

/// State of a cell.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CellRecord {
    /// The version that the cell should have; 0 if there is none yet.
    pub wanted: u32,
    /// Next step.
    pub stage: Stage,
    /// Why the cell has halted.
    pub halt: Option<Halt>,
    /// Location of the volume, once chosen.
    pub home: Option<Home>,
    /// Versions taken into use, the current one last. A rollback removes the later ones.
    pub history: Vec<Arrival>,
    /// Verified clones of versions, by version.
    pub holds: BTreeMap<u32, Held>,
    /// Cell that the wanted version comes from.
    pub from: Option<String>,
    /// Bytes sent to the cell for the wanted version.
    pub bytes: u64,
    /// Sites at which the version is not in use yet.
    pub lacking: Vec<Place>,
    /// Number of read-only sites wanted, if the cell has enough servers. Missing in journals of older
    /// versions.
    #[serde(default)]
    pub copies: usize,
    /// Why there are fewer sites.
    #[serde(default)]
    pub scarce: Option<String>,
    /// Whether this run has already looked for further sites.
    #[serde(default)]
    pub(crate) looked: bool,
    /// Whether the clone for further sites, which was verified earlier, must be verified again.
    #[serde(default)]
    pub(crate) doubted: bool,
    /// Version in the staging volume; 0 if uncertain.
    pub(crate) staged: u32,
    /// Id of the clone being made; 0 if there is none.
    pub(crate) clone: u32,
    /// Clones to remove.
    pub(crate) garbage: Vec<Held>,
    /// Cells to avoid as a source, after failed transfers.
    pub(crate) avoid: Vec<String>,
    /// Whether the next transfer must be full.
    pub(crate) everything: bool,
    /// Number of failed tries of the next step.
    pub(crate) tries: u32,
    /// Number of times that the contents were wrong.
    pub(crate) wrongs: u32,
}

impl CellRecord {
    /// Returns the version in use; 0 if there is none.
    pub fn in_use(&self) -> u32 {
        self.history.last().map_or(0, |arrival| arrival.version)
    }

    /// Returns the version that was in use before, if a rollback to it is possible.
    pub fn former(&self) -> Option<u32> {
        let former = self.history.iter().rev().nth(1)?.version;
        self.holds.contains_key(&former).then_some(former)
    }

    /// Returns whether every site has the wanted version.
    pub fn is_current(&self) -> bool {
        self.wanted != 0 && self.in_use() == self.wanted && self.lacking.is_empty()
    }

    /// Returns whether the cell has fewer sites than wanted.
    pub fn is_short(&self) -> bool {
        self.home.as_ref().is_some_and(|home| home.sites.len() < self.copies)
    }

    /// Returns the reason for a halt.
    pub fn trouble(&self) -> Option<&str> {
        match self.halt.as_ref()? {
            Halt::Behind(why) | Halt::Refused(why) => Some(why),
        }
    }

    /// Returns whether the cell waits for a server that did not respond.
    pub fn is_behind(&self) -> bool {
        matches!(self.halt, Some(Halt::Behind(_)))
    }

    /// Returns whether the version was refused.
    pub fn is_refused(&self) -> bool {
        matches!(self.halt, Some(Halt::Refused(_)))
    }

    /// Sets the wanted version.
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

    /// Adds the result of looking for further sites.
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

    /// Discards the damaged clone of the wanted version, which is then sent again. The version in use is not
    /// affected.
    pub(crate) fn lose_clone(&mut self) {
        let damaged = self.holds.remove(&self.wanted);
        self.garbage.extend(damaged);
        (self.staged, self.everything, self.doubted, self.stage) = (0, true, false, Stage::Sending);
    }

    /// Discards the clone that is being made.
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
    /// Name of the volume.
    pub volume: String,
    /// Cell of the source volume.
    pub cell: String,
    /// Id of the volume in that cell.
    pub volume_id: u32,
    /// Manifests by version.
    pub versions: BTreeMap<u32, SignedManifest>,
    /// Highest version number allocated.
    pub latest: u32,
    /// Clones in the source cell, by version.
    pub holds: BTreeMap<u32, Held>,
    /// Clones in the source cell that have no manifest yet, or are to be removed.
    pub loose: Vec<Held>,
    /// Cells in the order of the tree.
    pub order: Vec<String>,
    /// State of each cell.
    pub cells: BTreeMap<String, CellRecord>,
}

impl Record {
    /// Creates the record of a volume that has not been promoted.
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

    /// Adds a signed version, with its clone in the source cell.
    pub fn add_version(&mut self, signed: SignedManifest, held: Held) {
        let version = signed.manifest.version;
        self.latest = self.latest.max(version);
        self.holds.insert(version, held);
        self.versions.insert(version, signed);
        self.loose.retain(|loose| *loose != held);
    }

    /// Sets the version that these cells should have. Cells that already want it are unchanged.
    pub fn want(&mut self, version: u32, cells: &[String]) {
        self.order = cells.to_vec();
        for name in cells {
            let cell = self.cells.entry(name.clone()).or_default();
            if cell.wanted != version {
                cell.want(version);
            }
        }
    }

    /// Sets the number of read-only sites in a cell, from its next run on. Excess sites are kept.
    pub fn want_copies(&mut self, cell: &str, copies: usize) {
        self.cells.entry(cell.into()).or_default().copies = copies;
    }

    /// Rolls a cell back to the previous version, and returns that version.
    pub fn roll_back(&mut self, cell: &str) -> Option<u32> {
        let record = self.cells.get_mut(cell)?;
        let former = record.former()?;
        record.want(former);
        Some(former)
    }

    /// Clears all halts so that the cells continue.
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

    /// Drops clones in the source cell except the last `keep` and those that a cell still waits for, and old
    /// manifests. Clones to remove are then in `loose`.
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
