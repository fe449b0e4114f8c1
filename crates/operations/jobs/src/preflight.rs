//! Dry run: determines what a job would do and what would prevent it, with calls that change nothing.
//!
//! Checks are made in the order in which the job would make them, with the job's own decisions, so that a
//! problem found here is the one that would make the job fail.

use crate::calls::{GETTING_IDS, Run, Step, failed, opening};
use crate::room::{has_figures, size_kib};
use crate::sites::{Dates, Site, State};
use crate::traffic::size;
use crate::{Job, JobError, Operation, Place, World, entry, plan, rights};
use afs_idl::vl::{NVldbEntry, entry_flags};
use afs_idl::vol::VolintInfo;
use base::AbortCode;
use serde::Serialize;

/// Result of a dry run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Outlook {
    /// The source volume, if it exists already and its server reports it.
    pub source: Option<VolumeSummary>,
    /// Partitions on which volumes would be created.
    pub rooms: Vec<PartitionSpace>,
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
    let run = Run { job: &mut job, world };
    let mut outlook = Outlook::default();
    run.preflight(&mut outlook)?;
    outlook.steps = plan::steps(run.job, &outlook);
    Ok(outlook)
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

impl<W: World> Run<'_, W> {
    fn preflight(&self, outlook: &mut Outlook) -> Step {
        let operation = &self.job.operation;
        if let Operation::Restore { name, to, also, .. } = operation {
            return self.foretell_restore(outlook, name, *to, also);
        }
        let entry = self.entry()?;
        self.check(&entry)?;
        self.check_lock(outlook, &entry)?;
        match operation {
            Operation::Move { to } => self.foretell_move(outlook, &entry, *to),
            Operation::Copy { name, to } => self.foretell_copy(outlook, name, *to),
            Operation::Release { all } => self.foretell_release(outlook, &entry, *all),
            Operation::Backup => self.foretell_backup(outlook, &entry),
            Operation::Split { name, .. } => self.foretell_split(outlook, name),
            Operation::Overwrite { .. } => self.foretell_overwriting(outlook, &entry),
            Operation::Restore { .. } => Ok(()),
        }
    }

    /// Checks whether the entry could be locked.
    fn check_lock(&self, outlook: &mut Outlook, entry: &NVldbEntry) -> Step {
        if self.lock_wanted() == 0 {
            return Ok(());
        }
        self.check_changes_locations().map_err(|code| self.not_locked(0, code))?;
        let locked = entry::operation(entry);
        if locked & entry_flags::RELEASE != 0 {
            // Only SetLock could distinguish the two.
            outlook.cautions.push(format!(
                "a release works on {}, or was given up; if one works on it this is refused",
                self.job.name
            ));
        } else if locked != 0 {
            return Err(self.not_locked(locked, AbortCode::VL_ENTRYLOCKED));
        }
        Ok(())
    }

    fn check_changes_locations(&self) -> Result<(), AbortCode> {
        self.world.locations(rights::check_changes_locations)
    }

    /// Checks that a name is free and ids can be allocated for a new volume.
    fn check_new(&self, name: &str) -> Step {
        self.check_name_is_free(name)?;
        self.check_changes_locations().map_err(failed(GETTING_IDS))
    }

    /// Checks that the read-write volume can be opened. Returns whether it is in service, according to its
    /// server.
    fn check_source(&self, outlook: &mut Outlook) -> Step<bool> {
        let info = self.check_opens(outlook, self.job.from, self.job.volume)?;
        outlook.source = info.as_ref().map(VolumeSummary::from);
        Ok(info.is_none_or(|info| info.in_use != 0))
    }

    /// Checks that the read-write volume can be opened and cloned.
    fn check_clones(&self, outlook: &mut Outlook) -> Step {
        let is_in_service = self.check_source(outlook)?;
        self.check_is_cloned(is_in_service)
    }

    /// Checks that a volume can be cloned. Clone and ReClone of a volume that is out of service fail with
    /// VOFFLINE (OpenAFS's `VolClone` and `VolReClone` in volprocs.c, and Cellar's).
    fn check_is_cloned(&self, is_in_service: bool) -> Step {
        if is_in_service {
            return Ok(());
        }
        Err(failed(format!("clone the volume {}", self.job.volume))(AbortCode::VOFFLINE))
    }

    /// Checks that a volume can be opened. Returns its listing, if the server provides figures.
    fn check_opens(&self, outlook: &mut Outlook, place: Place, volume: u32) -> Step<Option<VolintInfo>> {
        let is_open = !self.open_on(place, volume)?.is_empty();
        self.check_changes_volumes(place, &opening(place, volume))?;
        let info = self.look(place, volume)?;
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

    fn check_changes_volumes(&self, place: Place, doing: &str) -> Step {
        rights::check_changes_volumes(&*self.world.volumes(place.server)).map_err(failed(doing))
    }

    /// Checks that a volume can be created.
    fn check_makes(&self, place: Place, name: &str) -> Step {
        self.check_changes_volumes(place, &format!("make the volume {name} on {place}"))
    }

    /// Records the free space of a partition, with a caution if the volume may not fit.
    fn add_room(&self, outlook: &mut Outlook, place: Place, free_kib: u64) {
        outlook.rooms.push(PartitionSpace { place, free_kib });
        let Some(source) = &outlook.source else { return };
        if free_kib < source.size_kib {
            let (free, needed) = (size(free_kib << 10), size(source.size_kib << 10));
            let name = &self.job.name;
            outlook.cautions.push(format!(
                "{place} has {free} free, and {name} has {needed}: it fits if enough of it is there already, or compressed"
            ));
        }
    }

    fn foretell_move(&self, outlook: &mut Outlook, entry: &NVldbEntry, to: Place) -> Step {
        self.check_is_free(to, self.job.volume)?;
        let free_kib = self.check_room(to)?;
        self.check_clones(outlook)?;
        self.check_makes(to, &self.job.name)?;
        self.add_room(outlook, to, free_kib);
        outlook.backup = self.backup(entry)?;
        Ok(())
    }

    fn foretell_copy(&self, outlook: &mut Outlook, name: &str, to: Place) -> Step {
        self.check_new(name)?;
        // The id of the new volume is unknown, so only the partition is checked.
        self.look(to, 0)?;
        let free_kib = self.check_room(to)?;
        self.check_clones(outlook)?;
        self.check_makes(to, name)?;
        self.add_room(outlook, to, free_kib);
        Ok(())
    }

    fn foretell_split(&self, outlook: &mut Outlook, name: &str) -> Step {
        self.check_splits()?;
        self.check_new(name)?;
        self.check_makes(self.job.from, name)?;
        self.check_source(outlook).map(drop)
    }

    fn foretell_backup(&self, outlook: &mut Outlook, entry: &NVldbEntry) -> Step {
        outlook.backup = self.backup(entry)?;
        self.check_clones(outlook)
    }

    fn backup(&self, entry: &NVldbEntry) -> Step<Option<VolumeSummary>> {
        match entry.volume_id[entry::BACKUP] {
            0 => Ok(None),
            backup => Ok(self.look(self.job.from, backup)?.as_ref().map(VolumeSummary::from)),
        }
    }

    fn foretell_restore(&self, outlook: &mut Outlook, name: &str, to: Place, also: &[Place]) -> Step {
        self.check_new(name)?;
        self.look(to, 0)?;
        self.check_makes(to, name)?;
        outlook.rooms.push(PartitionSpace { place: to, free_kib: self.free_kib(to)? });
        for &place in also {
            match self.foretell_site(place, name) {
                Ok(room) => outlook.rooms.push(room),
                Err(trouble) => outlook.cautions.push(format!("{place} gets it later: {trouble}")),
            }
        }
        Ok(())
    }

    fn foretell_site(&self, place: Place, name: &str) -> Step<PartitionSpace> {
        self.check_makes(place, name)?;
        Ok(PartitionSpace { place, free_kib: self.free_kib(place)? })
    }

    fn foretell_overwriting(&self, outlook: &mut Outlook, entry: &NVldbEntry) -> Step {
        let kind = if self.job.is_read_only() { entry::READ_ONLY } else { entry::READ_WRITE };
        let info = self.check_opens(outlook, self.job.from, entry.volume_id[kind])?;
        outlook.source = info.as_ref().map(VolumeSummary::from);
        if !self.job.is_read_only() {
            return Ok(());
        }
        for site in entry::read_only_sites(entry) {
            let place = entry::place(entry, site);
            if place == self.job.from {
                continue;
            }
            if let Err(trouble) = self.foretell_site(place, &self.job.name) {
                outlook.cautions.push(format!("{place} gets it later: {trouble}"));
            }
        }
        Ok(())
    }
}

// Dry run of releases.
impl<W: World> Run<'_, W> {
    fn foretell_release(&self, outlook: &mut Outlook, entry: &NVldbEntry, all: bool) -> Step {
        let is_in_service = self.check_source(outlook)?;
        let source = outlook.source.as_ref();
        let source = source
            .map(|told| Dates { made: told.made, changed: told.changed, changes: 0 })
            .unwrap_or_default();
        let sites = self.sites(entry, source, all)?;
        let is_cloned_already =
            self.beside(&sites).map_or_else(|| sites.iter().all(is_current), |site| is_current(&site));
        if !is_cloned_already {
            self.check_is_cloned(is_in_service)?;
        }
        let mut marked = entry.clone();
        let left = self.mark(&mut marked, &sites);
        let volume = entry.volume_id[entry::READ_ONLY];
        outlook.sites = sites.iter().filter(|site| !left.contains(site)).map(nothing_sent).collect();
        let (mut transfer, mut refused) = (1, None);
        for batch in self.batches(&marked, self.job.from, &left) {
            let before = outlook.sites.len();
            for site in &batch {
                let checked = self.check_site(site.place, volume);
                refused = refused.or(checked.as_ref().err().cloned());
                self.add_site(outlook, site, checked.map(|()| transfer));
            }
            let is_sent = outlook.sites[before..].iter().any(|site| site.transfer.is_some());
            transfer += usize::from(is_sent);
        }
        // If no site gets it, the release fails.
        let is_nobody = outlook.sites.iter().all(|site| matches!(site.gets, Gets::Later(_)));
        refused.filter(|_| is_nobody).map_or(Ok(()), Err)
    }

    /// Checks that a site's volume can be opened or created.
    fn check_site(&self, place: Place, volume: u32) -> Step {
        self.open_on(place, volume)?;
        self.check_changes_volumes(place, &opening(place, volume))
    }

    fn add_site(&self, outlook: &mut Outlook, site: &Site, checked: Step<usize>) {
        let transfer = checked.as_ref().ok().copied();
        let gets = match (checked, site.date()) {
            (Err(trouble), _) => Gets::Later(trouble.to_string()),
            (Ok(_), 0) => Gets::Everything,
            (Ok(_), date) => Gets::ChangesSince(date),
        };
        if let (Gets::Everything, Ok(free_kib)) = (&gets, self.free_kib(site.place)) {
            self.add_room(outlook, site.place, free_kib);
        }
        outlook.sites.push(SiteOutlook { place: site.place, gets, transfer });
    }
}

fn is_current(site: &Site) -> bool {
    site.state == State::Current
}

/// Returns the outlook of a site to which nothing is sent.
fn nothing_sent(site: &Site) -> SiteOutlook {
    let gets = if is_current(site) { Gets::Nothing } else { Gets::Clone };
    SiteOutlook { place: site.place, gets, transfer: None }
}
