//! Dry run: determines what a job would do and what would prevent it, with calls that change nothing.
//!
//! Checks are made in the order in which the job would make them, with the job's own decisions, so that a
//! problem found here is the one that would make the job fail.

use crate::engine::Run;
use crate::procedure::Procedure;
use crate::rpc::{GETTING_IDS, Step, failed, opening};
use crate::traffic::size;
use crate::{Job, JobError, Place, World, entry, rights};
use afs_idl::vl::{NVldbEntry, entry_flags};
use afs_idl::vol::{VolintInfo, volume_state};
use base::AbortCode;
use serde::Serialize;

/// Result of a dry run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Outlook {
    /// The source volume, if it exists already and its server reports it.
    pub source: Option<VolumeSummary>,
    /// Partitions on which volumes would be created.
    #[serde(rename = "rooms")]
    pub partitions: Vec<PartitionSpace>,
    /// Read-only sites of a release.
    pub sites: Vec<SiteOutlook>,
    /// The backup volume, which a backup updates and a move removes.
    pub backup: Option<VolumeSummary>,
    /// Reasons why the job may have to wait or may fail after all.
    pub cautions: Vec<String>,
    /// Steps of the job, in order.
    pub steps: Vec<String>,
}

/// A volume as listed by its server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct VolumeSummary {
    /// Volume id.
    pub volume: u32,
    /// Size in KiB.
    pub size_kib: u64,
    /// Number of files.
    pub files: u64,
    /// Creation time, in seconds since 1970.
    pub made: u32,
    /// Time of the last change, in seconds since 1970.
    pub changed: u32,
}

/// Free space of a partition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PartitionSpace {
    /// The partition.
    pub place: Place,
    /// Free space in KiB.
    pub free_kib: u64,
}

/// A read-only site of a release.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SiteOutlook {
    /// Location of the site.
    pub place: Place,
    /// What the site gets.
    pub gets: Gets,
    /// Number of the transfer that includes it, from 1; one read of the volume serves all sites of a
    /// transfer.
    pub transfer: Option<usize>,
}

/// What a site gets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Gets {
    /// Nothing: it already has the read-write volume's contents.
    Nothing,
    /// A clone, because it is on the partition of the read-write volume.
    Clone,
    /// Changes since this time, in seconds since 1970.
    ChangesSince(u32),
    /// The whole volume.
    Everything,
    /// The same as the others, but later; the text says why it cannot be sent now.
    Later(String),
}

/// Determines what would become of a job that has not started. Nothing is changed, locked or recorded.
///
/// # Errors
/// Why the job would be refused.
pub fn preflight<W: World>(job: &Job, world: &W) -> Result<Outlook, JobError> {
    let mut job = job.clone();
    job.execution.clone().preflight(&mut job, world)
}

impl From<&VolintInfo> for VolumeSummary {
    fn from(info: &VolintInfo) -> VolumeSummary {
        VolumeSummary {
            volume: info.volume_id,
            size_kib: size_kib(info),
            files: u64::try_from(info.file_count).unwrap_or(0),
            made: info.creation_date,
            changed: info.update_date,
        }
    }
}

impl<P: Procedure, W: World> Run<'_, P, W> {
    pub(crate) fn preflight(self) -> Result<Outlook, JobError> {
        let mut outlook = Outlook::default();
        P::preflight(&self, &mut outlook)?;
        outlook.steps = self.request().plan(self.job, &outlook);
        Ok(outlook)
    }

    /// Returns the entry, if it permits the operation and could be locked.
    pub(crate) fn checked_entry(&self, outlook: &mut Outlook) -> Step<NVldbEntry> {
        let entry = self.entry()?;
        self.check_entry(&entry)?;
        self.check_lock(outlook, &entry)?;
        Ok(entry)
    }

    /// Checks whether the entry could be locked.
    fn check_lock(&self, outlook: &mut Outlook, entry: &NVldbEntry) -> Step {
        if self.request().lock() == 0 {
            return Ok(());
        }
        self.check_changes_locations().map_err(|code| self.lock_refused(0, code))?;
        let locked = entry::operation(entry);
        if locked & entry_flags::RELEASE != 0 {
            // Only SetLock could distinguish the two.
            outlook.cautions.push(format!(
                "a release works on {}, or was given up; if one works on it this is refused",
                self.job.name
            ));
        } else if locked != 0 {
            return Err(self.lock_refused(locked, AbortCode::VL_ENTRYLOCKED));
        }
        Ok(())
    }

    fn check_changes_locations(&self) -> Result<(), AbortCode> {
        self.cell.world.locations(rights::check_changes_locations)
    }

    /// Checks that a name is free and ids can be allocated for a new volume.
    pub(crate) fn check_can_number(&self, name: &str) -> Step {
        self.check_name_is_free(name)?;
        self.check_changes_locations().map_err(failed(GETTING_IDS))
    }

    /// Checks that the read-write volume can be opened. Returns whether it is in service, according to its
    /// server.
    pub(crate) fn check_source(&self, outlook: &mut Outlook) -> Step<bool> {
        let info = self.check_can_open(outlook, self.job.from, self.volume())?;
        outlook.source = info.as_ref().map(VolumeSummary::from);
        Ok(info.is_none_or(|info| info.in_use != 0))
    }

    /// Checks that the read-write volume can be opened and cloned.
    pub(crate) fn check_can_clone(&self, outlook: &mut Outlook) -> Step {
        let is_in_service = self.check_source(outlook)?;
        self.check_cloned(is_in_service)
    }

    /// Checks that a volume can be cloned. Clone and ReClone of a volume that is out of service fail with
    /// VOFFLINE (OpenAFS's `VolClone` and `VolReClone` in volprocs.c, and Cellar's).
    pub(crate) fn check_cloned(&self, is_in_service: bool) -> Step {
        if is_in_service {
            return Ok(());
        }
        Err(failed(format!("clone the volume {}", self.volume()))(AbortCode::VOFFLINE))
    }

    /// Checks that a volume can be opened. Returns its listing, if the server provides figures.
    pub(crate) fn check_can_open(
        &self,
        outlook: &mut Outlook,
        place: Place,
        volume: u32,
    ) -> Step<Option<VolintInfo>> {
        let is_open = !self.cell.transactions_on(place, volume)?.is_empty();
        self.check_changes_volumes(place, &opening(place, volume))?;
        let info = if is_open {
            self.cell.list_volume(place, volume)?
        } else {
            self.cell.list_idle_volume(place, volume)?
        };
        let info = info.ok_or(AbortCode::VNOVOL).map_err(failed(opening(place, volume)))?;
        if is_open {
            outlook
                .cautions
                .push(format!("another operation has the volume {volume} on {place}: it is waited for"));
        } else if info.in_use == 0 {
            outlook.cautions.push(format!("the volume {volume} on {place} is not in service"));
        }
        Ok(Some(info).filter(has_figures))
    }

    pub(crate) fn check_changes_volumes(&self, place: Place, doing: &str) -> Step {
        rights::check_changes_volumes(&*self.cell.world.volumes(place.server)).map_err(failed(doing))
    }

    /// Checks that a volume can be created.
    pub(crate) fn check_can_create(&self, place: Place, name: &str) -> Step {
        self.check_changes_volumes(place, &format!("make the volume {name} on {place}"))
    }

    /// Records the free space of a partition, with a caution if the volume may not fit.
    pub(crate) fn add_partition(&self, outlook: &mut Outlook, place: Place, free_kib: u64) {
        outlook.partitions.push(PartitionSpace { place, free_kib });
        let Some(source) = &outlook.source else { return };
        if free_kib < source.size_kib {
            let (free, needed) = (size(free_kib << 10), size(source.size_kib << 10));
            let name = &self.job.name;
            outlook.cautions.push(format!(
                "{place} has {free} free, and {name} has {needed}: it fits if enough of it is there already, or compressed"
            ));
        }
    }

    /// Rejects a partition with less free space than the volume's size, and returns the free KiB. On a Cellar
    /// server the space needed depends on compression and existing data, so the server itself reports when it
    /// is full; other servers would report that only after hours.
    pub(crate) fn check_space(&self, to: Place) -> Step<u64> {
        let free_kib = self.cell.free_kib(to)?;
        let (from, name) = (self.job.from, &self.job.name);
        let size_kib = match self.cell.list_idle_volume(from, self.volume())? {
            Some(info) if has_figures(&info) => size_kib(&info),
            _ => 0,
        };
        if free_kib >= size_kib || self.cell.world.restores_atomically(to.server) {
            return Ok(free_kib);
        }
        let (free, needed) = (size(free_kib << 10), size(size_kib << 10));
        Err(JobError::Refused(format!("{to} has {free} free, and {name} has {needed}")))
    }

    /// Returns the backup volume, if there is one.
    pub(crate) fn backup(&self, entry: &NVldbEntry) -> Step<Option<VolumeSummary>> {
        match entry.volume_id[entry::BACKUP] {
            0 => Ok(None),
            backup => Ok(self.cell.list_volume(self.job.from, backup)?.as_ref().map(VolumeSummary::from)),
        }
    }

    /// Checks that a volume can be created at a further read-only site.
    pub(crate) fn check_further_site(&self, place: Place, name: &str) -> Step<PartitionSpace> {
        self.check_can_create(place, name)?;
        Ok(PartitionSpace { place, free_kib: self.cell.free_kib(place)? })
    }
}

/// Returns whether a listing has more than the volume's existence.
fn has_figures(info: &VolintInfo) -> bool {
    info.status == volume_state::OK
}

/// Returns the size of a volume in KiB.
fn size_kib(info: &VolintInfo) -> u64 {
    u64::try_from(info.size).unwrap_or(0)
}
