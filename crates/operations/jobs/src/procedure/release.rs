//! Releases a volume to its read-only sites.
//!
//! All sites get the same clone of the read-write volume, so that they have the contents of one moment. If a
//! site is on the partition of the read-write volume, its read-only volume is that clone.

use super::{Procedure, check_read_write};
use crate::distribution::SUFFIX;
use crate::dump::place_list;
use crate::engine::Run;
use crate::journal::Fields;
use crate::lock::Lock;
use crate::rpc::{Step, opening};
use crate::sites::{Dates, Site, SiteState, state};
use crate::state::{Creation, State, StateEvent};
use crate::{Gets, Job, JobError, Outlook, Place, SiteOutlook, Stage, World, entry};
use afs_idl::vl::{NVldbEntry, entry_flags, site_flags};
use afs_idl::vol::{attach_mode, volume_type};
use serde::{Deserialize, Serialize};

/// Maximum length of a volume name on a volume server (VOLSER_OLDMAXVOLNAME, which includes the NUL).
const VOLUME_NAME_BYTES_MAX: usize = 31;

/// Brings the read-only copies to the read-write volume's contents.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Release {
    /// Whether to send everything to every site, even if the site already has it.
    pub all: bool,
}

/// State of a release, with the temporary clone.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum ReleaseState {
    Beginning,
    /// The clone is being made and sent, or removed before the next attempt.
    Working(Creation),
    /// Some sites have the release, and some do not. It can only go forward.
    CatchingUp(Creation),
    /// All sites have the release.
    Cleaning(Creation),
    /// No site has the release.
    Undoing(Creation),
    Done,
    Failed,
}

impl State for ReleaseState {
    const START: ReleaseState = ReleaseState::Beginning;

    fn stage(self) -> Stage {
        match self {
            ReleaseState::Beginning => Stage::Beginning,
            ReleaseState::Working(_) => Stage::Working,
            ReleaseState::CatchingUp(_) => Stage::CatchingUp,
            ReleaseState::Cleaning(_) => Stage::Cleaning,
            ReleaseState::Undoing(_) => Stage::Undoing,
            ReleaseState::Done => Stage::Done,
            ReleaseState::Failed => Stage::Failed,
        }
    }

    fn after(self, event: StateEvent) -> Option<ReleaseState> {
        use ReleaseState::{Beginning, CatchingUp, Cleaning, Done, Failed, Undoing, Working};
        match (self, event) {
            (Beginning, StateEvent::Begun) => Some(Working(Creation::Unnumbered)),
            (Beginning, StateEvent::GivenUp) => Some(Undoing(Creation::Unnumbered)),

            (Working(clone) | CatchingUp(clone), StateEvent::SitesCurrent) => Some(Cleaning(clone)),
            (Working(clone) | CatchingUp(clone) | Undoing(clone), StateEvent::SitesLeft) => {
                Some(CatchingUp(clone))
            }
            (Working(clone), StateEvent::GivenUp) => Some(Undoing(clone)),
            (Working(clone), event) => clone.after_clone_event(event).map(Working),

            (CatchingUp(clone), StateEvent::Abandoned) | (Undoing(clone), StateEvent::Undone) => {
                clone.begun().is_none().then_some(Failed)
            }
            (CatchingUp(clone), event) => clone.after_clone_removal(event).map(CatchingUp),
            (Undoing(clone), event) => clone.after_clone_removal(event).map(Undoing),

            (Cleaning(clone), StateEvent::Cleaned) => clone.begun().is_none().then_some(Done),
            (Cleaning(clone), event) => clone.after_clone_removal(event).map(Cleaning),
            (Beginning | Done | Failed, _) => None,
        }
    }

    fn decode(fields: Fields) -> Option<ReleaseState> {
        let clone = fields.temporary_clone()?;
        match fields.stage {
            Stage::Beginning => (clone == Creation::Unnumbered).then_some(ReleaseState::Beginning),
            Stage::Working => Some(ReleaseState::Working(clone)),
            Stage::CatchingUp => Some(ReleaseState::CatchingUp(clone)),
            Stage::Cleaning => Some(ReleaseState::Cleaning(clone)),
            Stage::Undoing => Some(ReleaseState::Undoing(clone)),
            Stage::Done => Some(ReleaseState::Done),
            Stage::Failed => Some(ReleaseState::Failed),
            Stage::Switching => None,
        }
    }

    fn encode(self) -> Fields {
        Fields::of(self.stage()).with_clone(self.temporary_clone())
    }

    fn temporary_clone(self) -> Creation {
        match self {
            ReleaseState::Working(clone)
            | ReleaseState::CatchingUp(clone)
            | ReleaseState::Cleaning(clone)
            | ReleaseState::Undoing(clone) => clone,
            ReleaseState::Beginning | ReleaseState::Done | ReleaseState::Failed => Creation::Unnumbered,
        }
    }
}

impl Procedure for Release {
    type State = ReleaseState;

    const VERB: &'static str = "release";

    fn title(&self, job: &Job) -> String {
        format!("release of {}", job.name)
    }

    fn plan(&self, job: &Job, outlook: &Outlook) -> Vec<String> {
        let (name, from, sites) = (&job.name, job.from, &outlook.sites);
        let mut steps = vec![
            format!("lock the entry of {name} in the location database"),
            "ask all read-only sites what they have".into(),
        ];
        if sites.iter().all(|site| site.gets == Gets::Nothing) {
            steps.push("unlock the entry: nothing has changed, and all sites have it".into());
            return steps;
        }
        let beside = sites.iter().find(|site| site.place == from);
        match beside.map(|site| &site.gets) {
            Some(Gets::Nothing) => {}
            Some(_) => steps.push(format!("clone {name} on {from} as its read-only volume there")),
            None => steps.push(format!("clone {name} on {from}, which stays in use")),
        }
        for transfer in 1.. {
            let is_in = |site: &&SiteOutlook| site.transfer == Some(transfer);
            let Some(first) = sites.iter().find(is_in) else { break };
            let further: Vec<Place> = sites.iter().filter(is_in).skip(1).map(|site| site.place).collect();
            let what = if first.gets == Gets::Everything { "everything" } else { "what changed" };
            let to = place_list(first.place, &further);
            steps.push(format!("send {what} to {to}, take it into use there and say so in the entry"));
        }
        if beside.is_none() {
            steps.push("remove the clone".into());
        }
        steps.push("unlock the entry".into());
        let later = sites.iter().filter(|site| matches!(site.gets, Gets::Later(_)));
        steps.extend(later.map(|site| format!("send it to {} when that is possible", site.place)));
        steps
    }

    fn preflight<W: World>(run: &Run<'_, Release, W>, outlook: &mut Outlook) -> Step {
        let entry = run.checked_entry(outlook)?;
        let is_in_service = run.check_source(outlook)?;
        let source = outlook.source.as_ref();
        let source = source
            .map(|listed| Dates { made: listed.made, changed: listed.changed, changes: 0 })
            .unwrap_or_default();
        let sites = run.sites(&entry, source)?;
        let is_cloned_already =
            run.site_beside(&sites).map_or_else(|| sites.iter().all(is_current), |site| is_current(&site));
        if !is_cloned_already {
            run.check_cloned(is_in_service)?;
        }
        let mut marked = entry.clone();
        let left = run.mark(&mut marked, &sites);
        let volume = entry.volume_id[entry::READ_ONLY];
        outlook.sites = sites.iter().filter(|site| !left.contains(site)).map(nothing_sent).collect();
        let (mut transfer, mut refused) = (1, None);
        for batch in run.batches(&marked, run.job.from, &left) {
            let before = outlook.sites.len();
            for site in &batch {
                let checked = run.check_site(site.place, volume);
                refused = refused.or(checked.as_ref().err().cloned());
                run.add_site(outlook, site, checked.map(|()| transfer));
            }
            let is_sent = outlook.sites[before..].iter().any(|site| site.transfer.is_some());
            transfer += usize::from(is_sent);
        }
        // If no site gets it, the release fails.
        let is_useless = outlook.sites.iter().all(|site| matches!(site.gets, Gets::Later(_)));
        refused.filter(|_| is_useless).map_or(Ok(()), Err)
    }

    fn lock(&self) -> i32 {
        entry_flags::RELEASE
    }

    fn check(&self, job: &Job, entry: &NVldbEntry) -> Step {
        check_read_write(job, entry)?;
        check_sites(entry)
    }

    fn work<W: World>(run: &mut Run<'_, Release, W>) -> Step {
        let mut entry = run.locked_entry()?;
        check_sites(&entry)?;
        if entry.volume_id[entry::READ_ONLY] == 0 {
            entry.volume_id[entry::READ_ONLY] = run.cell.new_ids(1)?;
            run.replace_entry(&entry)?;
        }
        let source = run.source_dates()?;
        let sites = run.sites(&entry, source)?;
        let missing = sites.iter().filter(|site| site.state != SiteState::Current).count();
        if missing == 0 {
            run.note(format!("nothing has changed; {} sites have it", sites.len()));
            return run.all_have_it(entry);
        }
        run.note(format!("{missing} of {} sites get the volume", sites.len()));
        run.release_to(entry, source, sites)
    }

    fn revert<W: World>(run: &mut Run<'_, Release, W>) -> Step {
        run.end_all()?;
        run.remove_clone()
    }

    /// If some sites have the release, it is completed later instead of undone.
    fn undo<W: World>(run: &mut Run<'_, Release, W>) -> Step {
        Release::revert(run)?;
        if run.is_half_released()? {
            return run.record(StateEvent::SitesLeft);
        }
        Ok(())
    }
}

/// Rejects a volume that cannot be released.
fn check_sites(entry: &NVldbEntry) -> Step {
    let name = entry.name.to_string();
    if entry::read_only_sites(entry).is_empty() {
        return Err(JobError::Refused(format!("{name} has no read-only sites (`vos addsite` makes them)")));
    }
    if name.len() + SUFFIX.len() > VOLUME_NAME_BYTES_MAX {
        return Err(JobError::Refused(format!("the name {name} is too long for a read-only volume")));
    }
    Ok(())
}

impl<W: World> Run<'_, Release, W> {
    fn source_dates(&mut self) -> Step<Dates> {
        let open = self.open(self.job.from, self.volume(), attach_mode::BUSY)?;
        let status = self.cell.status(open)?;
        self.end(open)?;
        let changes =
            self.cell.list_idle_volume(self.job.from, self.volume())?.map_or(0, |info| info.spare2 as u32);
        Ok(Dates { changes, ..Dates::from(&status) })
    }

    /// Returns the update counter of a clone that was made after `source` was read; 0 if the volume was
    /// changed in between.
    fn changes_of_clone(&self, source: Dates) -> Step<u32> {
        let now = self.cell.list_idle_volume(self.job.from, self.volume())?.map(|info| info.spare2 as u32);
        Ok(if now == Some(source.changes) { source.changes } else { 0 })
    }

    /// Determines the state of each site.
    fn sites(&self, entry: &NVldbEntry, source: Dates) -> Step<Vec<Site>> {
        let numbers = entry::read_only_sites(entry);
        let was_cut_off = numbers.iter().any(|&site| entry.server_flags[site] & site_flags::NEW_REPLICA != 0);
        let volume = entry.volume_id[entry::READ_ONLY];
        let mut sites = Vec::new();
        for number in numbers {
            let place = entry::place(entry, number);
            let is_unused = entry.server_flags[number] & site_flags::DO_NOT_USE != 0;
            let is_trusted =
                !self.request().all && !is_unused && (!was_cut_off || entry::is_new(entry, number));
            let state = match self.cell.list_idle_volume(place, volume) {
                Ok(info) => {
                    let changes = if self.counts_at(place) { source.changes } else { 0 };
                    state(info.as_ref(), Dates { changes, ..source }, is_trusted)
                }
                Err(error) if error.is_silence() && place != self.job.from => SiteState::Unreachable,
                Err(error) => return Err(error),
            };
            sites.push(Site { number, place, state });
        }
        Ok(sites)
    }

    fn release_to(&mut self, mut entry: NVldbEntry, source: Dates, mut sites: Vec<Site>) -> Step {
        self.forget_marks(&mut entry, &sites)?;
        let volume = entry.volume_id[entry::READ_ONLY];
        let beside = self.site_beside(&sites);
        let clone = match beside {
            Some(site) if site.state == SiteState::Current => volume,
            Some(site) => {
                self.note("cloning beside the read-write volume");
                self.clone_beside(volume, site)?;
                self.recheck(source, &mut sites)?;
                volume
            }
            None => {
                self.note("cloning");
                let clone = self.make_clone("readonly-clone-temp")?;
                self.recheck(source, &mut sites)?;
                clone
            }
        };
        self.forget_marks(&mut entry, &sites)?;
        let left = self.mark(&mut entry, &sites);
        entry.server_flags[entry::read_write_site(&entry).unwrap_or(0)] |= site_flags::NEW_REPLICA;
        entry.flags |= entry_flags::READ_ONLY_EXISTS;
        // Clients are directed away from the other sites only once one site has it.
        if sites.iter().any(|site| entry::is_new(&entry, site.number)) {
            self.replace_entry(&entry)?;
        }
        let (place, changes) = (self.job.from, self.changes_of_clone(source)?);
        self.send_all(entry, (place, clone), changes, &left)
    }

    /// Returns the site on the partition of the read-write volume, whose read-only volume is the clone.
    fn site_beside(&self, sites: &[Site]) -> Option<Site> {
        sites.iter().find(|site| site.place == self.job.from).copied()
    }

    /// Marks in the entry which sites have the clone. Returns those that do not.
    fn mark(&self, entry: &mut NVldbEntry, sites: &[Site]) -> Vec<Site> {
        let mut left = Vec::new();
        for site in sites {
            if site.state == SiteState::Current || site.place == self.job.from {
                entry::set_new(entry, site.number);
            } else {
                entry::set_old(entry, site.number);
                left.push(*site);
            }
        }
        left
    }

    /// Marks current sites as old if the volume was changed after they were checked, since the clone then has
    /// newer contents.
    fn recheck(&mut self, source: Dates, sites: &mut [Site]) -> Step {
        if sites.iter().any(|site| site.state == SiteState::Current) && self.source_dates()? != source {
            for site in sites {
                site.becomes_old(source);
            }
        }
        Ok(())
    }

    /// Removes the marks of an earlier attempt, which refer to another clone, before a new one is made.
    fn forget_marks(&mut self, entry: &mut NVldbEntry, sites: &[Site]) -> Step {
        let before = entry.clone();
        for site in sites.iter().filter(|site| site.state != SiteState::Current) {
            entry.server_flags[site.number] &= !site_flags::NEW_REPLICA;
        }
        if *entry == before { Ok(()) } else { self.replace_entry(entry) }
    }

    /// Creates or updates the read-only volume on the partition of the read-write volume.
    fn clone_beside(&mut self, volume: u32, site: Site) -> Step {
        let name = format!("{}{SUFFIX}", self.job.name);
        if site.state != SiteState::Nothing {
            // A server may still be sending it for a client that was killed.
            let open = self.open(site.place, volume, attach_mode::OFFLINE)?;
            self.end(open)?;
        }
        let source = self.open(self.job.from, self.volume(), attach_mode::BUSY)?;
        if site.state == SiteState::Nothing {
            self.cell.clone_volume(source, &name, volume_type::READ_ONLY, volume)?;
        } else {
            self.cell.reclone(source, volume)?;
        }
        self.end(source)?;
        self.put_online(self.job.from, volume, attach_mode::OFFLINE)
    }

    /// Returns whether some sites have the release.
    fn is_half_released(&mut self) -> Step<bool> {
        if self.job.lock == Lock::Free {
            return Ok(false);
        }
        let Some(entry) = self.locked_entry_if_any()? else { return Ok(false) };
        Ok(entry::read_only_sites(&entry).iter().any(|&site| entry::is_new(&entry, site)))
    }

    /// Checks that a site's volume can be opened or created.
    fn check_site(&self, place: Place, volume: u32) -> Step {
        self.cell.transactions_on(place, volume)?;
        self.check_changes_volumes(place, &opening(place, volume))
    }

    fn add_site(&self, outlook: &mut Outlook, site: &Site, checked: Step<usize>) {
        let transfer = checked.as_ref().ok().copied();
        let gets = match (checked, site.date()) {
            (Err(error), _) => Gets::Later(error.to_string()),
            (Ok(_), 0) => Gets::Everything,
            (Ok(_), date) => Gets::ChangesSince(date),
        };
        if let (Gets::Everything, Ok(free_kib)) = (&gets, self.cell.free_kib(site.place)) {
            self.add_partition(outlook, site.place, free_kib);
        }
        outlook.sites.push(SiteOutlook { place: site.place, gets, transfer });
    }
}

fn is_current(site: &Site) -> bool {
    site.state == SiteState::Current
}

/// Returns the outlook of a site to which nothing is sent.
fn nothing_sent(site: &Site) -> SiteOutlook {
    let gets = if is_current(site) { Gets::Nothing } else { Gets::Clone };
    SiteOutlook { place: site.place, gets, transfer: None }
}
