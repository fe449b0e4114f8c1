//! Sends a volume to its read-only sites.
//!
//! Sites that have the contents are marked in the entry immediately, and clients then use no others. Sites that
//! cannot be reached get them later, from one of those that have them.

use crate::engine::Run;
use crate::job::Failure;
use crate::procedure::Procedure;
use crate::rpc::{Step, failed, keep_first};
use crate::sites::{Site, SiteState, batches};
use crate::state::StateEvent;
use crate::transaction::Transaction;
use crate::{Control, JobError, Place, Stage, World, entry};
use afs_idl::vl::NVldbEntry;
use afs_idl::vol::{RestoreCookie, attach_mode, volume_type};
use base::AbortCode;

/// Suffix of a read-only volume's name.
pub(crate) const SUFFIX: &str = ".readonly";

/// State of one round of sending.
struct Round {
    entry: NVldbEntry,
    /// Id of the read-only volumes.
    volume: u32,
    cookie: RestoreCookie,
    source: Transaction,
    /// Update counter of `source`; 0 if unknown.
    changes: u32,
}

impl<P: Procedure, W: World> Run<'_, P, W> {
    /// Sends a volume to these sites, as many as one call can serve at a time; to the first one alone if
    /// clients would otherwise have no site while the others are offline.
    pub(crate) fn send_all(
        &mut self,
        entry: NVldbEntry,
        source: (Place, u32),
        changes: u32,
        sites: &[Site],
    ) -> Step {
        let volume = entry.volume_id[entry::READ_ONLY];
        let cookie = RestoreCookie {
            name: format!("{}{SUFFIX}", self.job.name).as_str().into(),
            volume_type: volume_type::READ_ONLY,
            clone_id: 0,
            parent_id: self.volume(),
        };
        let open = self.open(source.0, source.1, attach_mode::BUSY)?;
        let mut round = Round { entry, volume, cookie, source: open, changes };
        let mut outcome = Ok(());
        for batch in &self.batches(&round.entry, source.0, sites) {
            keep_first(&mut outcome, self.send_batch(&mut round, batch));
            if matches!(outcome, Err(JobError::Stopped(_) | JobError::Cancelled)) {
                return outcome;
            }
        }
        self.end(open)?;
        let entry = round.entry;
        if entry::read_only_sites(&entry).iter().all(|&site| entry::is_new(&entry, site)) {
            return self.all_have_it(entry);
        }
        let has_one = entry::read_only_sites(&entry).iter().any(|&site| entry::is_new(&entry, site));
        match outcome {
            Err(error) if !has_one => Err(error),
            _ => {
                // Repeated in case a server missed it: these marks identify the remaining sites.
                self.replace_entry(&entry)?;
                self.wait_for_others()
            }
        }
    }

    /// Splits the sites into batches that are sent to at the same time.
    pub(crate) fn batches(&self, entry: &NVldbEntry, source: Place, sites: &[Site]) -> Vec<Vec<Site>> {
        let has_one = entry::read_only_sites(entry).iter().any(|&site| entry::is_new(entry, site));
        let stays_online = |site: &Site| self.cell.world.restores_atomically(site.place.server);
        let keeps_others =
            sites.iter().all(|site| site.state == SiteState::Unreachable || stays_online(site))
                || sites.iter().any(|site| site.date() > 0 && stays_online(site));
        let (first, others) = sites.split_at(usize::from(!has_one && !keeps_others).min(sites.len()));
        let asks_what_it_lacks = self.cell.world.restores_atomically(source.server);
        let mut all = batches(first, |_| true);
        all.extend(batches(others, |site| asks_what_it_lacks && stays_online(site)));
        all
    }

    /// Sends to some sites with one call. An error of a site is recorded and does not prevent the others from
    /// getting the volume.
    fn send_batch(&mut self, round: &mut Round, sites: &[Site]) -> Step {
        self.check_control()?;
        let mut outcome = Ok(());
        let mut opened = Vec::new();
        for site in sites {
            match self.open_site(round, site) {
                Ok(open) => opened.push((*site, open)),
                Err(error) => self.site_failed(&mut outcome, site, error)?,
            }
        }
        if opened.is_empty() {
            return outcome;
        }
        let from_date = opened.iter().map(|(site, _)| site.date()).min().unwrap_or(0);
        let to: Vec<Transaction> = opened.iter().map(|(_, open)| *open).collect();
        let names: Vec<String> = opened.iter().map(|(site, _)| site.place.server.to_string()).collect();
        let what = if from_date == 0 { "everything" } else { "what changed" };
        self.note(format!("sending {what} to {}", names.join(", ")));
        let results = self.forward_to(round, from_date, &to)?;
        for (place, (site, open)) in opened.iter().enumerate() {
            let taken = match results.get(place) {
                Some(0) => self.take_into_use(round, site.place, *open),
                other => Err(failed(format!("send the volume to {}", site.place))(AbortCode(
                    other.copied().unwrap_or(AbortCode::RXGEN_OPCODE.0),
                ))),
            };
            match taken {
                Ok(()) => entry::set_new(&mut round.entry, site.number),
                Err(error) => self.site_failed(&mut outcome, site, error)?,
            }
        }
        if opened.iter().any(|(site, _)| entry::is_new(&round.entry, site.number)) {
            self.replace_entry(&round.entry)?;
        }
        outcome
    }

    fn site_failed(&mut self, outcome: &mut Step, site: &Site, error: JobError) -> Step {
        if matches!(error, JobError::Stopped(_) | JobError::Cancelled) {
            return Err(error);
        }
        self.note(format!("{}: {error}", site.place));
        keep_first(outcome, Err(error));
        Ok(())
    }

    fn open_site(&mut self, round: &Round, site: &Site) -> Step<Transaction> {
        let name = round.cookie.name.to_string();
        let (place, volume, parent) = (site.place, round.volume, self.volume());
        let mode = if self.cell.world.restores_atomically(place.server) {
            attach_mode::BUSY
        } else {
            attach_mode::OFFLINE
        };
        match self.open(place, volume, mode) {
            Err(JobError::Call { code: AbortCode::VNOVOL, .. }) => {
                self.create(place, &name, volume, volume_type::READ_ONLY, parent)
            }
            opened => opened,
        }
    }

    fn forward_to(&mut self, round: &Round, from_date: u32, to: &[Transaction]) -> Step<Vec<i32>> {
        match self.forward_all(round.source, from_date, to, &round.cookie) {
            // The server does not support ForwardMultiple.
            Err(JobError::Call { code: AbortCode::RXGEN_OPCODE, .. }) => {
                let one = |to: &Transaction| match self.forward(round.source, from_date, *to, &round.cookie) {
                    Err(JobError::Call { code, .. }) => code.0,
                    _ => 0,
                };
                Ok(to.iter().map(one).collect())
            }
            results => results,
        }
    }

    fn take_into_use(&mut self, round: &Round, place: Place, open: Transaction) -> Step {
        self.cell.set_ids(open, &round.cookie.name.to_string(), volume_type::READ_ONLY, self.volume())?;
        if self.counts_at(place) {
            self.cell.set_changes(open, round.changes)?;
        }
        self.cell.set_flags(open, 0)?;
        self.end(open)
    }

    /// Returns whether update counters at a site are comparable with those of the read-write volume. Only
    /// Cellar servers preserve them in transfers.
    pub(crate) fn counts_at(&self, place: Place) -> bool {
        [place, self.job.from].iter().all(|place| self.cell.world.restores_atomically(place.server))
    }

    /// Removes the marks from the entry when all sites have the volume, and proceeds to clean up.
    pub(crate) fn all_have_it(&mut self, mut entry: NVldbEntry) -> Step {
        let before = entry.clone();
        entry::set_all_equal(&mut entry);
        entry.clone_id = 0;
        if entry != before {
            self.replace_entry(&entry)?;
        }
        self.record(StateEvent::SitesCurrent)
    }

    fn wait_for_others(&mut self) -> Step {
        self.note("some sites do not have it yet; they get it when they can be reached");
        self.record(StateEvent::SitesLeft)
    }

    /// Sends to the remaining sites from one that has the volume, so that all have the contents of one
    /// moment.
    pub(crate) fn catch_up(&mut self) -> Step {
        let outcome = self.catch_up_locked();
        if self.stage() != Stage::CatchingUp || matches!(outcome, Err(JobError::Stopped(_))) {
            return outcome;
        }
        // The lock is not held while a server is down. Transactions left open there time out.
        if let Err(error) = self.end_all() {
            self.note(error.to_string());
        }
        let mut cleared = self.remove_clone();
        keep_first(&mut cleared, self.unlock());
        self.job.waits += 1;
        self.save()?;
        if cleared.is_ok() && self.cell.world.control() == Control::Cancel {
            let description = "cancelled while some sites did not have it".into();
            self.job.failure = Some(Failure { description, code: None });
            return self.record(StateEvent::Abandoned);
        }
        cleared.and(outcome)
    }

    fn catch_up_locked(&mut self) -> Step {
        if self.cell.world.control() == Control::Cancel {
            return Ok(());
        }
        let _ = self.end_all();
        self.remove_clone()?;
        let entry = self.locked_entry()?;
        let sites = entry::read_only_sites(&entry);
        let (have, lack): (Vec<usize>, Vec<usize>) =
            sites.into_iter().partition(|&site| entry::is_new(&entry, site));
        if lack.is_empty() {
            return self.all_have_it(entry);
        }
        if have.is_empty() {
            // Another release happened meanwhile.
            return self.record(StateEvent::SitesCurrent);
        }
        let volume = entry.volume_id[entry::READ_ONLY];
        let mut left = Vec::new();
        for number in lack {
            let place = entry::place(&entry, number);
            match self.cell.list_volume(place, volume) {
                Ok(_) => left.push(Site { number, place, state: SiteState::Nothing }),
                Err(error) => self.note(format!("{place}: {error}")),
            }
        }
        if left.is_empty() {
            return Ok(());
        }
        let source = have.into_iter().map(|site| entry::place(&entry, site));
        for place in source {
            if let Ok(Some(info)) = self.cell.list_idle_volume(place, volume) {
                return self.send_all(entry, (place, volume), info.spare2 as u32, &left);
            }
        }
        Ok(())
    }
}
