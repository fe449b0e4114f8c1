//! What a job would do, and what would keep it from being done: asked of servers by calls that change nothing.
//!
//! Everything is looked at in the order in which the job would meet it, with the job's own decisions, so that
//! what is refused here is what the job would be refused for.

use crate::calls::{GETTING_IDS, Run, Step, failed, opening};
use crate::room::{has_figures, size_kib};
use crate::sites::{Dates, Site, State};
use crate::traffic::size;
use crate::{Job, Operation, Place, Trouble, World, entry, plan, rights};
use afs_idl::vl::{NVldbEntry, entry_flags};
use afs_idl::vol::VolintInfo;
use base::AbortCode;
use serde::Serialize;

/// What servers say of a job that has not begun.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Outlook {
    /// The volume that it is done with, if there is one already and its server tells of it.
    pub source: Option<Told>,
    /// Partitions on which volumes are made.
    pub rooms: Vec<Room>,
    /// The read-only sites of a release.
    pub sites: Vec<SiteOutlook>,
    /// The backup volume, which a backup brings up to date and a move removes.
    pub backup: Option<Told>,
    /// What may keep it waiting, or go wrong after all.
    pub cautions: Vec<String>,
    /// What would be done, in its order.
    pub steps: Vec<String>,
}

/// A volume as its server tells of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Told {
    /// Its number.
    pub volume: u32,
    /// What it has.
    pub size_kib: u64,
    /// Likewise.
    pub files: u64,
    /// When it was made, in seconds since 1970.
    pub made: u32,
    /// When it was changed last.
    pub changed: u32,
}

/// A partition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Room {
    /// Which.
    pub place: Place,
    /// What is free there.
    pub free_kib: u64,
}

/// A read-only site.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SiteOutlook {
    /// Where.
    pub place: Place,
    /// What becomes of it.
    pub gets: Gets,
    /// In which of the transfers it is, from 1; those of one transfer get it from one read of the volume.
    pub transfer: Option<usize>,
}

/// What a site gets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Gets {
    /// It has what the read-write volume has.
    Nothing,
    /// A clone: it is where the read-write volume is.
    Clone,
    /// What changed since this time, in seconds since 1970.
    ChangesSince(u32),
    /// All of the volume.
    Everything,
    /// What the others have, when it can be sent to it. It cannot now, for this reason.
    Later(String),
}

/// What would become of a job that has not begun. Nothing is changed, locked or recorded.
///
/// # Errors
/// Why it would be refused.
pub fn foretell<W: World>(job: &Job, world: &W) -> Result<Outlook, Trouble> {
    let mut job = job.clone();
    let run = Run { job: &mut job, world };
    let mut outlook = Outlook::default();
    run.foretell(&mut outlook)?;
    outlook.steps = plan::steps(run.job, &outlook);
    Ok(outlook)
}

impl From<&VolintInfo> for Told {
    fn from(info: &VolintInfo) -> Told {
        Told {
            volume: info.volume_id,
            size_kib: size_kib(info),
            files: u64::try_from(info.file_count).unwrap_or(0),
            made: info.creation_date,
            changed: info.update_date,
        }
    }
}

impl<W: World> Run<'_, W> {
    fn foretell(&self, outlook: &mut Outlook) -> Step {
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

    /// Whether the entry would be locked.
    fn check_lock(&self, outlook: &mut Outlook, entry: &NVldbEntry) -> Step {
        if self.lock_wanted() == 0 {
            return Ok(());
        }
        self.check_changes_locations().map_err(|code| self.not_locked(0, code))?;
        let locked = entry::operation(entry);
        if locked & entry_flags::RELEASE != 0 {
            // Only SetLock would tell one from the other.
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

    /// Whether a name and numbers would be there for a new volume.
    fn check_new(&self, name: &str) -> Step {
        self.check_name_is_free(name)?;
        self.check_changes_locations().map_err(failed(GETTING_IDS))
    }

    /// Whether the read-write volume would be opened. Returns whether it is in service, as far as its server tells.
    fn check_source(&self, outlook: &mut Outlook) -> Step<bool> {
        let info = self.check_opens(outlook, self.job.from, self.job.volume)?;
        outlook.source = info.as_ref().map(Told::from);
        Ok(info.is_none_or(|info| info.in_use != 0))
    }

    /// Whether the read-write volume would be opened and cloned.
    fn check_clones(&self, outlook: &mut Outlook) -> Step {
        let is_in_service = self.check_source(outlook)?;
        self.check_is_cloned(is_in_service)
    }

    /// Clone and ReClone of a volume that is out of service end with VOFFLINE (OpenAFS's `VolClone` and `VolReClone` in
    /// volprocs.c, and Cellar's).
    fn check_is_cloned(&self, is_in_service: bool) -> Step {
        if is_in_service {
            return Ok(());
        }
        Err(failed(format!("clone the volume {}", self.job.volume))(AbortCode::VOFFLINE))
    }

    /// Whether a volume would be opened. Returns what its server tells of it, if it tells anything.
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

    /// Whether a volume would be made.
    fn check_makes(&self, place: Place, name: &str) -> Step {
        self.check_changes_volumes(place, &format!("make the volume {name} on {place}"))
    }

    /// Where there is no room for all of it.
    fn add_room(&self, outlook: &mut Outlook, place: Place, free_kib: u64) {
        outlook.rooms.push(Room { place, free_kib });
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
        // What it would be numbered is not known.
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

    fn backup(&self, entry: &NVldbEntry) -> Step<Option<Told>> {
        match entry.volume_id[entry::BACKUP] {
            0 => Ok(None),
            backup => Ok(self.look(self.job.from, backup)?.as_ref().map(Told::from)),
        }
    }

    fn foretell_restore(&self, outlook: &mut Outlook, name: &str, to: Place, also: &[Place]) -> Step {
        self.check_new(name)?;
        self.look(to, 0)?;
        self.check_makes(to, name)?;
        outlook.rooms.push(Room { place: to, free_kib: self.free_kib(to)? });
        for &place in also {
            match self.foretell_site(place, name) {
                Ok(room) => outlook.rooms.push(room),
                Err(trouble) => outlook.cautions.push(format!("{place} gets it later: {trouble}")),
            }
        }
        Ok(())
    }

    fn foretell_site(&self, place: Place, name: &str) -> Step<Room> {
        self.check_makes(place, name)?;
        Ok(Room { place, free_kib: self.free_kib(place)? })
    }

    fn foretell_overwriting(&self, outlook: &mut Outlook, entry: &NVldbEntry) -> Step {
        let kind = if self.job.is_read_only() { entry::READ_ONLY } else { entry::READ_WRITE };
        let info = self.check_opens(outlook, self.job.from, entry.volume_id[kind])?;
        outlook.source = info.as_ref().map(Told::from);
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

// Releases.
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
        // When nobody has it in the end it is no release.
        let is_nobody = outlook.sites.iter().all(|site| matches!(site.gets, Gets::Later(_)));
        refused.filter(|_| is_nobody).map_or(Ok(()), Err)
    }

    /// Whether a site's volume would be opened, or made.
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

/// A site to which nothing need be sent.
fn nothing_sent(site: &Site) -> SiteOutlook {
    let gets = if is_current(site) { Gets::Nothing } else { Gets::Clone };
    SiteOutlook { place: site.place, gets, transfer: None }
}
