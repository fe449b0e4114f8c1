//! Releases a volume to its read-only sites.
//!
//! All sites get the same clone of the read-write volume, so that they have the contents of one moment. If a
//! site is on the partition of the read-write volume, its read-only volume is that clone. Sites that have it
//! are marked in the entry immediately, and clients then use no others.

use crate::calls::{Run, Step, failed, keep};
use crate::job::{Lock, Transaction};
use crate::sites::{Dates, Site, State, batches, state};
use crate::{Control, JobError, Operation, Place, Stage, World, entry};
use afs_idl::vl::{NVldbEntry, entry_flags, site_flags};
use afs_idl::vol::{RestoreCookie, attach_mode, volume_type};
use base::AbortCode;

/// Suffix of a read-only volume's name.
pub(crate) const ENDING: &str = ".readonly";
/// Maximum length of a volume name on a volume server (VOLSER_OLDMAXVOLNAME, which includes the NUL).
const VOLUME_NAME_BYTES_MAX: usize = 31;

/// Rejects a volume that cannot be released.
pub(crate) fn check(entry: &NVldbEntry) -> Step {
    let name = entry.name.to_string();
    if entry::read_only_sites(entry).is_empty() {
        return Err(JobError::Refused(format!("{name} has no read-only sites (`vos addsite` makes them)")));
    }
    if name.len() + ENDING.len() > VOLUME_NAME_BYTES_MAX {
        return Err(JobError::Refused(format!("the name {name} is too long for a read-only volume")));
    }
    Ok(())
}

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

impl<W: World> Run<'_, W> {
    pub(crate) fn release(&mut self, all: bool) -> Step {
        let mut entry = self.locked_entry()?;
        check(&entry)?;
        if entry.volume_id[entry::READ_ONLY] == 0 {
            entry.volume_id[entry::READ_ONLY] = self.new_ids(1)?;
            self.replace_entry(&entry)?;
        }
        let source = self.source_dates()?;
        let sites = self.sites(&entry, source, all)?;
        let missing = sites.iter().filter(|site| site.state != State::Current).count();
        if missing == 0 {
            self.note(format!("nothing has changed; {} sites have it", sites.len()));
            return self.all_have_it(entry);
        }
        self.note(format!("{missing} of {} sites get the volume", sites.len()));
        self.send_to(entry, source, sites)
    }

    fn source_dates(&mut self) -> Step<Dates> {
        let open = self.open(self.job.from, self.job.volume, attach_mode::BUSY)?;
        let status = self.status(open)?;
        self.end(open)?;
        let changes = self.look(self.job.from, self.job.volume)?.map_or(0, |info| info.spare2 as u32);
        Ok(Dates { changes, ..Dates::from(&status) })
    }

    /// Returns whether update counters at a site are comparable with those of the read-write volume. Only
    /// Cellar servers preserve them in transfers.
    fn counts_at(&self, place: Place) -> bool {
        [place, self.job.from].iter().all(|place| self.world.restores_at_once(place.server))
    }

    /// Returns the update counter of a clone that was made after `source` was read; 0 if the volume was
    /// changed in between.
    fn changes_of_clone(&self, source: Dates) -> Step<u32> {
        let now = self.look(self.job.from, self.job.volume)?.map(|info| info.spare2 as u32);
        Ok(if now == Some(source.changes) { source.changes } else { 0 })
    }

    /// Determines the state of each site.
    pub(crate) fn sites(&self, entry: &NVldbEntry, source: Dates, all: bool) -> Step<Vec<Site>> {
        let numbers = entry::read_only_sites(entry);
        let was_cut_off = numbers.iter().any(|&site| entry.server_flags[site] & site_flags::NEW_REPLICA != 0);
        let volume = entry.volume_id[entry::READ_ONLY];
        let mut sites = Vec::new();
        for number in numbers {
            let place = entry::place(entry, number);
            let is_unused = entry.server_flags[number] & site_flags::DO_NOT_USE != 0;
            let is_trusted = !all && !is_unused && (!was_cut_off || entry::is_new(entry, number));
            let state = match self.look(place, volume) {
                Ok(info) => {
                    let changes = if self.counts_at(place) { source.changes } else { 0 };
                    state(info.as_ref(), Dates { changes, ..source }, is_trusted)
                }
                Err(trouble) if trouble.is_silence() && place != self.job.from => State::Unreachable,
                Err(trouble) => return Err(trouble),
            };
            sites.push(Site { number, place, state });
        }
        Ok(sites)
    }

    fn send_to(&mut self, mut entry: NVldbEntry, source: Dates, mut sites: Vec<Site>) -> Step {
        self.forget_marks(&mut entry, &sites)?;
        let volume = entry.volume_id[entry::READ_ONLY];
        let beside = self.beside(&sites);
        let clone = match beside {
            Some(site) if site.state == State::Current => volume,
            Some(site) => {
                self.note("cloning beside the read-write volume");
                self.clone_beside(volume, site)?;
                self.look_again(source, &mut sites)?;
                volume
            }
            None => {
                self.note("cloning");
                self.make_clone("readonly-clone-temp")?;
                self.look_again(source, &mut sites)?;
                self.job.clone
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
    pub(crate) fn beside(&self, sites: &[Site]) -> Option<Site> {
        sites.iter().find(|site| site.place == self.job.from).copied()
    }

    /// Marks in the entry which sites have the clone. Returns those that do not.
    pub(crate) fn mark(&self, entry: &mut NVldbEntry, sites: &[Site]) -> Vec<Site> {
        let mut left = Vec::new();
        for site in sites {
            if site.state == State::Current || site.place == self.job.from {
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
    fn look_again(&mut self, source: Dates, sites: &mut [Site]) -> Step {
        if sites.iter().any(|site| site.state == State::Current) && self.source_dates()? != source {
            for site in sites {
                site.becomes_old(source);
            }
        }
        Ok(())
    }

    /// Removes the marks of an earlier attempt, which refer to another clone, before a new one is made.
    fn forget_marks(&mut self, entry: &mut NVldbEntry, sites: &[Site]) -> Step {
        let before = entry.clone();
        for site in sites.iter().filter(|site| site.state != State::Current) {
            entry.server_flags[site.number] &= !site_flags::NEW_REPLICA;
        }
        if *entry == before { Ok(()) } else { self.replace_entry(entry) }
    }

    /// Creates or updates the read-only volume on the partition of the read-write volume.
    fn clone_beside(&mut self, volume: u32, site: Site) -> Step {
        let name = format!("{}{ENDING}", self.job.name);
        if site.state != State::Nothing {
            // A server may still be sending it for a client that was killed.
            let open = self.open(site.place, volume, attach_mode::OFFLINE)?;
            self.end(open)?;
        }
        let source = self.open(self.job.from, self.job.volume, attach_mode::BUSY)?;
        if site.state == State::Nothing {
            self.clone_volume(source, &name, volume_type::READ_ONLY, volume)?;
        } else {
            self.reclone(source, volume)?;
        }
        self.end(source)?;
        self.put_online(self.job.from, volume, attach_mode::OFFLINE)
    }

    /// Sends a volume to these sites, as many as one call can serve at a time; to the first one alone if
    /// clients would otherwise have no site while the others are offline.
    fn send_all(&mut self, entry: NVldbEntry, source: (Place, u32), changes: u32, sites: &[Site]) -> Step {
        let volume = entry.volume_id[entry::READ_ONLY];
        let cookie = RestoreCookie {
            name: format!("{}{ENDING}", self.job.name).as_str().into(),
            volume_type: volume_type::READ_ONLY,
            clone_id: 0,
            parent_id: self.job.volume,
        };
        let open = self.open(source.0, source.1, attach_mode::BUSY)?;
        let mut round = Round { entry, volume, cookie, source: open, changes };
        let mut outcome = Ok(());
        for batch in &self.batches(&round.entry, source.0, sites) {
            keep(&mut outcome, self.send_batch(&mut round, batch));
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
            Err(trouble) if !has_one => Err(trouble),
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
        let stays_online = |site: &Site| self.world.restores_at_once(site.place.server);
        let keeps_others = sites.iter().all(|site| site.state == State::Unreachable || stays_online(site))
            || sites.iter().any(|site| site.date() > 0 && stays_online(site));
        let (first, others) = sites.split_at(usize::from(!has_one && !keeps_others).min(sites.len()));
        let asks_what_it_lacks = self.world.restores_at_once(source.server);
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
                Err(trouble) => self.site_failed(&mut outcome, site, trouble)?,
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
                Err(trouble) => self.site_failed(&mut outcome, site, trouble)?,
            }
        }
        if opened.iter().any(|(site, _)| entry::is_new(&round.entry, site.number)) {
            self.replace_entry(&round.entry)?;
        }
        outcome
    }

    fn site_failed(&mut self, outcome: &mut Step, site: &Site, trouble: JobError) -> Step {
        if matches!(trouble, JobError::Stopped(_) | JobError::Cancelled) {
            return Err(trouble);
        }
        self.note(format!("{}: {trouble}", site.place));
        keep(outcome, Err(trouble));
        Ok(())
    }

    fn open_site(&mut self, round: &Round, site: &Site) -> Step<Transaction> {
        let name = round.cookie.name.to_string();
        let (place, volume, parent) = (site.place, round.volume, self.job.volume);
        let mode =
            if self.world.restores_at_once(place.server) { attach_mode::BUSY } else { attach_mode::OFFLINE };
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
        self.set_ids(open, &round.cookie.name.to_string(), volume_type::READ_ONLY, self.job.volume)?;
        if self.counts_at(place) {
            self.set_changes(open, round.changes)?;
        }
        self.set_flags(open, 0)?;
        self.end(open)
    }

    /// Removes the marks from the entry when all sites have the volume, and proceeds to clean up.
    fn all_have_it(&mut self, mut entry: NVldbEntry) -> Step {
        let before = entry.clone();
        entry::set_all_equal(&mut entry);
        entry.clone_id = 0;
        if entry != before {
            self.replace_entry(&entry)?;
        }
        self.enter(Stage::Cleaning)
    }

    fn wait_for_others(&mut self) -> Step {
        self.note("some sites do not have it yet; they get it when they can be reached");
        self.enter(Stage::CatchingUp)
    }

    /// Returns whether some sites have it and some do not: then the job is completed later instead of undone.
    pub(crate) fn is_half_released(&mut self) -> Step<bool> {
        if !matches!(self.job.operation, Operation::Release { .. }) || self.job.lock == Lock::Free {
            return Ok(false);
        }
        let Some(entry) = self.locked_entry_if_any()? else { return Ok(false) };
        let sites = entry::read_only_sites(&entry);
        let have = sites.iter().filter(|&&site| entry::is_new(&entry, site)).count();
        if have == 0 {
            return Ok(false);
        }
        self.job.trouble = None;
        self.job.code = None;
        self.enter(Stage::CatchingUp)?;
        Ok(true)
    }

    /// Sends to the remaining sites from one that has the volume, so that all have the contents of one
    /// moment.
    pub(crate) fn catch_up(&mut self) -> Step {
        let outcome = self.catch_up_locked();
        if self.job.stage != Stage::CatchingUp || matches!(outcome, Err(JobError::Stopped(_))) {
            return outcome;
        }
        // The lock is not held while a server is down. Transactions left open there time out.
        if let Err(trouble) = self.end_all() {
            self.note(trouble.to_string());
        }
        let mut cleared = self.remove_clone();
        keep(&mut cleared, self.unlock());
        self.job.waits += 1;
        self.save()?;
        if cleared.is_ok() && self.world.wish() == Control::Cancel {
            self.job.trouble = Some("cancelled while some sites did not have it".into());
            return self.enter(Stage::Failed);
        }
        cleared.and(outcome)
    }

    fn catch_up_locked(&mut self) -> Step {
        if self.world.wish() == Control::Cancel {
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
            return self.enter(Stage::Cleaning);
        }
        let volume = entry.volume_id[entry::READ_ONLY];
        let mut left = Vec::new();
        for number in lack {
            let place = entry::place(&entry, number);
            match self.look(place, volume) {
                Ok(_) => left.push(Site { number, place, state: State::Nothing }),
                Err(trouble) => self.note(format!("{place}: {trouble}")),
            }
        }
        if left.is_empty() {
            return Ok(());
        }
        let source = have.into_iter().map(|site| entry::place(&entry, site));
        for place in source {
            if let Ok(Some(info)) = self.look(place, volume) {
                return self.send_all(entry, (place, volume), info.spare2 as u32, &left);
            }
        }
        Ok(())
    }
}
