//! The remote calls that jobs consist of, with the state recorded for them.

use crate::entry;
use crate::job::{Asked, Lock, Transaction};
use crate::world::is_silence;
use crate::{Control, Job, JobError, Operation, Place, Stage, World};
use afs_idl::ClientConnection;
use afs_idl::vl::{self, NVldbEntry, entry_flags, lock_release};
use afs_idl::vol::{
    self, RestoreCookie, TransDebugInfo, VolintInfo, VolserStatus, attach_mode, volume_flags, volume_type,
};
use base::AbortCode;
use std::cell::Cell;
use std::net::Ipv4Addr;
use std::sync::Arc;

/// Number of tries for a busy volume, and the seconds between them.
const BUSY_TRIES: u32 = 30;
const BUSY_SECONDS: u32 = 2;

/// Value in SetInfo that leaves a field unchanged.
const UNCHANGED: i32 = -1;

/// Port of volume servers.
const VOLUME_PORT: i32 = 7005;
/// Security index for connections between volume servers. The servers choose the actual class (rxkad); the
/// value only means "with authentication".
const SECURITY_INDEX: i32 = 1;

/// ReleaseLock: releases all parts of the lock.
pub(crate) const WHOLE_LOCK: i32 = lock_release::TIMESTAMP | lock_release::OPCODE | lock_release::AFSID;

/// errno value that volume servers return for an unknown transaction.
pub const ENOENT: AbortCode = AbortCode(2);
/// errno value that volume servers return for a volume that they cannot list.
pub const ENODEV: AbortCode = AbortCode(19);

/// Flags of a volume under construction: out of service, and deleted at a restart.
pub(crate) const DOOMED: i32 = volume_flags::DELETE_ON_SALVAGE | volume_flags::OUT_OF_SERVICE;

/// Seconds subtracted from dates, because a change in the same second may have happened later.
pub(crate) const CLOCK_SLACK_SECONDS: u32 = 2;

/// Description of the call that fails for callers without the right to allocate ids.
pub(crate) const GETTING_IDS: &str = "get a volume number";

pub(crate) type Step<T = ()> = Result<T, JobError>;

/// A running job.
pub(crate) struct Run<'a, W: World> {
    pub(crate) job: &'a mut Job,
    pub(crate) world: &'a W,
}

/// Why a lock could not be taken.
struct Unlocked {
    code: AbortCode,
    /// Whether the lock may be set nevertheless: a server did not respond, or was restarted during the call.
    may_have_it: bool,
}

pub(crate) fn failed(doing: impl Into<String>) -> impl FnOnce(AbortCode) -> JobError {
    move |code| JobError::Call { doing: doing.into(), code }
}

/// Keeps the first of two errors.
pub(crate) fn keep(first: &mut Step, then: Step) {
    if first.is_ok() {
        *first = then;
    }
}

impl<W: World> Run<'_, W> {
    pub(crate) fn save(&self) -> Step {
        self.world.record(self.job).map_err(JobError::Stopped)
    }

    pub(crate) fn note(&mut self, what: impl Into<String>) {
        self.job.note(self.world.now().0, what.into());
    }

    /// Enters another stage and saves the job.
    pub(crate) fn enter(&mut self, stage: Stage) -> Step {
        self.job.stage = stage;
        self.save()
    }

    /// Fails if the program is terminating, or if the operator cancelled the job and it can still be undone.
    pub(crate) fn check_control(&self) -> Step {
        let may_be_undone = matches!(self.job.stage, Stage::Beginning | Stage::Working);
        match self.world.wish() {
            Control::Suspend => Err(JobError::Stopped("the program ends".into())),
            Control::Cancel if may_be_undone => Err(JobError::Cancelled),
            Control::Cancel | Control::Continue => Ok(()),
        }
    }

    fn volumes(&self, server: Ipv4Addr) -> Arc<dyn ClientConnection> {
        self.world.volumes(server)
    }
}

// Calls to the location database.
impl<W: World> Run<'_, W> {
    pub(crate) fn entry(&self) -> Step<NVldbEntry> {
        let request = vl::GetEntryByIDNRequest { volume_id: self.job.volume, volume_type: 0 };
        let reply = self.world.newest_locations(|vl| vl::get_entry_by_idn(vl, &request));
        reply.map(|reply| reply.entry).map_err(failed(format!("look {} up", self.job.name)))
    }

    pub(crate) fn replace_entry(&self, new_entry: &NVldbEntry) -> Step {
        let (volume_id, new_entry) = (self.job.volume, new_entry.clone());
        let request = vl::ReplaceEntryNRequest { volume_id, volume_type: 0, new_entry, release_type: 0 };
        let reply = self.world.locations(|vl| vl::replace_entry_n(vl, &request));
        reply.map(drop).map_err(failed(format!("change the entry of {}", self.job.name)))
    }

    pub(crate) fn new_ids(&self, bump_count: u32) -> Step<u32> {
        let request = vl::GetNewVolumeIdRequest { bump_count };
        let reply = self.world.locations(|vl| vl::get_new_volume_id(vl, &request));
        reply.map(|reply| reply.new_volume_id).map_err(failed(GETTING_IDS))
    }

    /// Returns the lock that the operation needs; 0 if it needs none.
    pub(crate) fn lock_wanted(&self) -> i32 {
        match self.job.operation {
            Operation::Move { .. } => entry_flags::MOVE,
            Operation::Backup => entry_flags::BACKUP,
            // OpenAFS uses this flag for restores too.
            Operation::Overwrite { .. } => entry_flags::DUMP,
            // The server itself locks a volume that it splits against other operations.
            Operation::Copy { .. } | Operation::Split { .. } => 0,
            // A new volume is not known to others, unless it is sent to further sites.
            Operation::Restore { ref also, .. } if also.is_empty() => 0,
            Operation::Release { .. } | Operation::Restore { .. } => entry_flags::RELEASE,
        }
    }

    /// Takes the job's lock unless it is already held, and returns the entry.
    pub(crate) fn locked_entry(&mut self) -> Step<NVldbEntry> {
        let (wanted, entry) = (self.lock_wanted(), self.entry()?);
        let locked = entry::operation(&entry);
        if wanted == 0 {
            return Ok(entry);
        }
        match self.job.lock {
            Lock::Held | Lock::Asked if locked == wanted => {
                self.job.lock = Lock::Held;
                Ok(entry)
            }
            _ => {
                self.lock(wanted, locked)?;
                self.entry()
            }
        }
    }

    /// Like [`Run::locked_entry`], but returns `None` if the volume was removed meanwhile.
    pub(crate) fn locked_entry_if_any(&mut self) -> Step<Option<NVldbEntry>> {
        match self.locked_entry() {
            Err(JobError::Call { code: AbortCode::VL_NOENT, .. }) => {
                self.job.lock = Lock::Free;
                Ok(None)
            }
            entry => entry.map(Some),
        }
    }

    fn lock(&mut self, operation: i32, locked: i32) -> Step {
        self.job.lock = if locked == 0 { Lock::Asked } else { Lock::Free };
        self.save()?;
        match self.set_lock(operation) {
            Ok(()) => self.job.lock = Lock::Held,
            // An abandoned release left its mark, but no operation is in progress.
            Err(Unlocked { code: AbortCode::VL_RERELEASE, .. }) => {
                self.release_lock()?;
                self.job.lock = Lock::Asked;
                self.save()?;
                self.set_lock(operation).map_err(|refused| self.not_locked(0, refused.code))?;
                self.job.lock = Lock::Held;
            }
            Err(Unlocked { code, may_have_it }) => {
                let is_asked = may_have_it && code == AbortCode::VL_ENTRYLOCKED;
                let has = if is_asked { entry::operation(&self.entry()?) } else { 0 };
                if has != operation {
                    if !may_have_it || has != 0 {
                        self.job.lock = Lock::Free;
                    }
                    self.save()?;
                    return Err(self.not_locked(locked, code));
                }
                self.job.lock = Lock::Held;
            }
        }
        self.save()
    }

    /// Returns the error for a failed lock; `locked` are the operation flags of the current entry.
    pub(crate) fn not_locked(&self, locked: i32, code: AbortCode) -> JobError {
        let why = entry::describe_lock(locked).filter(|_| code == AbortCode::VL_ENTRYLOCKED);
        let why = why.map(|why| format!(", which is locked for a {why}")).unwrap_or_default();
        failed(format!("lock the entry of {}{why}", self.job.name))(code)
    }

    /// Sets the lock. A server that does not respond may have set it, or may set it later; the next server
    /// then reports that the entry is locked, by this job. The same can happen if the server restarted during
    /// the call: the transport sends the call again, and the new server executes it as a new call.
    fn set_lock(&self, operation: i32) -> Result<(), Unlocked> {
        let request = vl::SetLockRequest { volume_id: self.job.volume, volume_type: 0, operation };
        let not_asked = |code| Unlocked { code, may_have_it: false };
        let began = self.locations_began().map_err(not_asked)?;
        let is_silent = Cell::new(false);
        let answer = self.world.locations(|vl| {
            let answer = vl::set_lock(vl, &request);
            is_silent.set(is_silent.get() || answer.as_ref().is_err_and(|code| is_silence(*code)));
            answer
        });
        answer.map(drop).map_err(|code| {
            let is_restarted = || self.locations_began() != Ok(began);
            Unlocked { code, may_have_it: is_silent.get() || is_restarted() }
        })
    }

    /// Returns the start time of the location server that accepts changes.
    fn locations_began(&self) -> Result<u32, AbortCode> {
        let reply = self.world.newest_locations(|vl| vl::get_stats(vl, &vl::GetStatsRequest))?;
        Ok(reply.stats.start_time)
    }

    fn release_lock(&self) -> Step {
        let request =
            vl::ReleaseLockRequest { volume_id: self.job.volume, volume_type: 0, release_type: WHOLE_LOCK };
        match self.world.locations(|vl| vl::release_lock(vl, &request)) {
            Ok(_) | Err(AbortCode::VL_NOENT) => Ok(()),
            Err(code) => Err(failed(format!("unlock the entry of {}", self.job.name))(code)),
        }
    }

    /// Releases the lock, if the job holds it or may hold it.
    pub(crate) fn unlock(&mut self) -> Step {
        if self.job.lock == Lock::Free {
            return Ok(());
        }
        let locked = match self.entry() {
            Ok(entry) => entry::operation(&entry),
            Err(JobError::Call { code: AbortCode::VL_NOENT, .. }) => 0,
            Err(trouble) => return Err(trouble),
        };
        // A lock of another kind belongs to another operation.
        if locked == self.lock_wanted() {
            self.release_lock()?;
        }
        self.job.lock = Lock::Free;
        self.save()
    }
}

// Transactions.
impl<W: World> Run<'_, W> {
    /// Opens a volume. First ends the transactions on it that this job has, or may have, from an interrupted
    /// step. Waits for a while if another client has it open.
    pub(crate) fn open(&mut self, place: Place, volume: u32, flags: i32) -> Step<Transaction> {
        let request = vol::TransCreateRequest { volume_id: volume, partition: place.partition, flags };
        let doing = || opening(place, volume);
        for _ in 0..BUSY_TRIES {
            self.check_control()?;
            let there = self.open_on(place, volume)?;
            let ended = self.end_ours(place.server, &there)?;
            self.forget(place, volume)?;
            if ended == there.len() {
                self.ask(place, volume)?;
                match vol::trans_create(&*self.volumes(place.server), &request) {
                    Ok(reply) => return self.opened(place, volume, reply.transaction),
                    Err(AbortCode::VOLSERVOLBUSY | AbortCode::VBUSY) => self.not_opened(place, volume),
                    Err(code) => {
                        if !is_silence(code) {
                            self.not_opened(place, volume);
                        }
                        return Err(failed(doing())(code));
                    }
                }
            }
            self.world.pause(BUSY_SECONDS);
        }
        Err(failed(doing())(AbortCode::VOLSERVOLBUSY))
    }

    /// Returns the transactions open on a volume, of any client. A volume that moves within a server is on
    /// two partitions for a while.
    pub(crate) fn open_on(&self, place: Place, volume: u32) -> Step<Vec<TransDebugInfo>> {
        let is_it = |open: &TransDebugInfo| open.volume_id == volume && open.partition == place.partition;
        let mut there = self.monitor(place.server, &opening(place, volume))?;
        there.retain(is_it);
        Ok(there)
    }

    /// Records, before the request, that there may be a transaction.
    fn ask(&mut self, place: Place, volume: u32) -> Step {
        self.job.asked.push(Asked { place, volume });
        self.save()
    }

    fn not_opened(&mut self, place: Place, volume: u32) {
        self.job.asked.retain(|asked| *asked != Asked { place, volume });
    }

    fn opened(&mut self, place: Place, volume: u32, id: i32) -> Step<Transaction> {
        let transaction = Transaction { server: place.server, id, volume, partition: Some(place.partition) };
        self.not_opened(place, volume);
        self.job.transactions.push(transaction);
        self.save()?;
        Ok(transaction)
    }

    /// Creates a volume, marked for deletion until [`set_flags`](Run::set_flags) clears the mark, and opens
    /// it.
    pub(crate) fn create(
        &mut self,
        place: Place,
        name: &str,
        volume: u32,
        volume_type: i32,
        parent_id: u32,
    ) -> Step<Transaction> {
        self.ask(place, volume)?;
        let request = vol::CreateVolumeRequest {
            partition: place.partition,
            name: name.into(),
            volume_type,
            parent_id,
            volume_id: volume,
        };
        match vol::create_volume(&*self.volumes(place.server), &request) {
            Ok(reply) => {
                let transaction = self.opened(place, volume, reply.transaction)?;
                self.set_flags(transaction, DOOMED)?;
                Ok(transaction)
            }
            Err(code) => {
                if !is_silence(code) {
                    self.not_opened(place, volume);
                }
                if code == AbortCode::VOLSERBAD_ACCESS {
                    // Rights are checked before anything is created. Undoing would also be rejected as long
                    // as they are missing.
                    self.job.new_begun = false;
                    self.save()?;
                }
                Err(failed(format!("make the volume {volume} on {place}"))(code))
            }
        }
    }

    /// Ends a transaction.
    pub(crate) fn end(&mut self, transaction: Transaction) -> Step {
        let request = vol::EndTransRequest { transaction: transaction.id };
        let code = match vol::end_trans(&*self.volumes(transaction.server), &request) {
            Ok(reply) if reply.code == 0 => None,
            Ok(reply) => Some(AbortCode(reply.code)),
            Err(code) => Some(code),
        };
        match code {
            None => {
                self.job.transactions.retain(|other| *other != transaction);
                self.save()
            }
            Some(code) => {
                Err(failed(format!("end the transaction on the volume {}", transaction.volume))(code))
            }
        }
    }

    fn monitor(&self, server: Ipv4Addr, doing: &str) -> Step<Vec<TransDebugInfo>> {
        let reply = vol::monitor(&*self.volumes(server), &vol::MonitorRequest);
        reply.map(|reply| reply.transactions).map_err(failed(doing))
    }

    /// Returns the time of day at the server of a transaction that was just used; 0 if the server does not
    /// list it.
    pub(crate) fn time_at(&self, open: Transaction) -> Step<u32> {
        let all = self.monitor(open.server, &format!("list the transactions of {}", open.server))?;
        Ok(all.iter().find(|info| info.transaction == open.id).map_or(0, |info| info.time))
    }

    /// Ends the transactions that an earlier step left open, on all servers that respond.
    pub(crate) fn end_all(&mut self) -> Step {
        let mut servers: Vec<Ipv4Addr> = self.job.transactions.iter().map(|open| open.server).collect();
        servers.extend(self.job.asked.iter().map(|asked| asked.place.server));
        servers.sort_unstable();
        servers.dedup();
        let mut outcome = Ok(());
        for server in servers {
            keep(&mut outcome, self.end_all_on(server));
        }
        outcome
    }

    fn end_all_on(&mut self, server: Ipv4Addr) -> Step {
        let there = self.monitor(server, &format!("list the transactions of {server}"))?;
        self.end_ours(server, &there)?;
        self.job.transactions.retain(|open| open.server != server);
        self.job.asked.retain(|asked| asked.place.server != server);
        self.save()
    }

    /// Forgets recorded transactions on a volume on which this job has none open.
    fn forget(&mut self, place: Place, volume: u32) -> Step {
        let known = self.job.transactions.len() + self.job.asked.len();
        self.job.transactions.retain(|open| !open.is_on(place, volume));
        self.not_opened(place, volume);
        if self.job.transactions.len() + self.job.asked.len() < known {
            self.save()?;
        }
        Ok(())
    }

    /// Ends those of a server's transactions that belong to this job, and returns their number.
    fn end_ours(&self, server: Ipv4Addr, there: &[TransDebugInfo]) -> Step<usize> {
        let mut ended = 0;
        for info in there.iter().filter(|info| self.is_ours(server, info)) {
            let request = vol::EndTransRequest { transaction: info.transaction };
            match vol::end_trans(&*self.volumes(server), &request) {
                Ok(_) | Err(ENOENT) => ended += 1,
                Err(code) => {
                    let doing = format!("end the transaction on the volume {}", info.volume_id);
                    return Err(failed(doing)(code));
                }
            }
        }
        Ok(ended)
    }

    fn is_ours(&self, server: Ipv4Addr, info: &TransDebugInfo) -> bool {
        // After a restart the number may belong to another client; comparing the volume detects that.
        let is_known = |open: &Transaction| {
            open.server == server && open.id == info.transaction && open.volume == info.volume_id
        };
        let place = Place { server, partition: info.partition };
        let was_asked = self.job.asked.contains(&Asked { place, volume: info.volume_id });
        self.job.transactions.iter().any(is_known) || was_asked
    }
}

// Calls to the volume servers.
impl<W: World> Run<'_, W> {
    pub(crate) fn status(&self, open: Transaction) -> Step<VolserStatus> {
        let request = vol::GetStatusRequest { transaction: open.id };
        let reply = vol::get_status(&*self.volumes(open.server), &request);
        reply.map(|reply| reply.status).map_err(failed(format!("examine the volume {}", open.volume)))
    }

    pub(crate) fn set_flags(&self, open: Transaction, flags: i32) -> Step {
        let request = vol::SetFlagsRequest { transaction: open.id, flags };
        let reply = vol::set_flags(&*self.volumes(open.server), &request);
        reply.map(drop).map_err(failed(format!("set the flags of the volume {}", open.volume)))
    }

    pub(crate) fn set_ids(&self, open: Transaction, name: &str, kind: i32, parent_id: u32) -> Step {
        let request = vol::SetIdsTypesRequest {
            transaction: open.id,
            name: name.into(),
            volume_type: kind,
            parent_id,
            clone_id: 0,
            backup_id: 0,
        };
        let reply = vol::set_ids_types(&*self.volumes(open.server), &request);
        reply.map(drop).map_err(failed(format!("name the volume {}", open.volume)))
    }

    /// Sets the ids of the read-only and backup volumes in the header of an open read-write volume to those
    /// of its entry, as clones and restores change them.
    pub(crate) fn set_family(&self, open: Transaction, entry: &NVldbEntry) -> Step {
        let request = vol::SetIdsTypesRequest {
            transaction: open.id,
            name: self.job.name.as_str().into(),
            volume_type: volume_type::READ_WRITE,
            parent_id: self.job.volume,
            clone_id: entry.volume_id[entry::READ_ONLY],
            backup_id: entry.volume_id[entry::BACKUP],
        };
        let reply = vol::set_ids_types(&*self.volumes(open.server), &request);
        reply
            .map(drop)
            .map_err(failed(format!("set the numbers of the clones of the volume {}", open.volume)))
    }

    /// Sets the update counter of an open volume to that of the contents it received.
    pub(crate) fn set_changes(&self, open: Transaction, changes: u32) -> Step {
        let info = VolintInfo {
            max_quota: UNCHANGED,
            day_use: UNCHANGED,
            creation_date: UNCHANGED as u32,
            update_date: UNCHANGED as u32,
            spare2: changes as i32,
            ..VolintInfo::default()
        };
        let request = vol::SetInfoRequest { transaction: open.id, info };
        let reply = vol::set_info(&*self.volumes(open.server), &request);
        reply.map(drop).map_err(failed(format!("set the update counter of the volume {}", open.volume)))
    }

    /// Clones an open volume.
    pub(crate) fn clone_volume(&self, open: Transaction, name: &str, kind: i32, new: u32) -> Step {
        let request = vol::CloneVolumeRequest {
            transaction: open.id,
            purge_volume_id: 0,
            new_type: kind,
            new_name: name.into(),
            new_volume_id: new,
        };
        let reply = vol::clone_volume(&*self.volumes(open.server), &request);
        reply.map(drop).map_err(failed(format!("clone the volume {}", open.volume)))
    }

    pub(crate) fn reclone(&self, open: Transaction, clone_id: u32) -> Step {
        let request = vol::ReCloneRequest { transaction: open.id, clone_id };
        let reply = vol::re_clone(&*self.volumes(open.server), &request);
        reply.map(drop).map_err(failed(format!("clone the volume {} again", open.volume)))
    }

    /// Sends an open volume, or its changes since `from_date`, to another server.
    pub(crate) fn forward(
        &mut self,
        from: Transaction,
        from_date: u32,
        to: Transaction,
        cookie: &RestoreCookie,
    ) -> Step {
        let request = vol::ForwardRequest {
            transaction: from.id,
            from_date,
            destination: destination(to.server),
            destination_transaction: to.id,
            cookie: cookie.clone(),
        };
        let reply = vol::forward(&*self.volumes(from.server), &request);
        self.count_sent(from)?;
        reply.map(drop).map_err(failed(format!("send the volume {} to {}", from.volume, to.server)))
    }

    /// Sends a volume to several servers with one read; returns a code for each.
    pub(crate) fn forward_all(
        &mut self,
        from: Transaction,
        from_date: u32,
        to: &[Transaction],
        cookie: &RestoreCookie,
    ) -> Step<Vec<i32>> {
        let replica = |to: &Transaction| vol::Replica { transaction: to.id, server: destination(to.server) };
        let request = vol::ForwardMultipleRequest {
            transaction: from.id,
            from_date,
            destinations: to.iter().map(replica).collect(),
            spare: 0,
            cookie: cookie.clone(),
        };
        let reply = vol::forward_multiple(&*self.volumes(from.server), &request);
        let results = reply.map(|reply| reply.results);
        self.count_sent(from)?;
        results.map_err(failed(format!("send the volume {} to its sites", from.volume)))
    }

    /// Returns a server's listing of a volume without opening it; `None` if the partition has no volume with
    /// this id. Id 0 is never used and serves to check that the partition exists.
    pub(crate) fn look(&self, place: Place, volume: u32) -> Step<Option<VolintInfo>> {
        let request = vol::ListOneVolumeRequest { partition: place.partition, volume_id: volume };
        match vol::list_one_volume(&*self.volumes(place.server), &request) {
            Ok(reply) => Ok(reply.entries.into_iter().next()),
            Err(ENODEV | AbortCode::VNOVOL) => Ok(None),
            Err(code) if volume == 0 => Err(failed(format!("look at {place}"))(code)),
            Err(code) => Err(failed(format!("look at the volume {volume} on {place}"))(code)),
        }
    }

    /// Deletes the volume of an open transaction, and ends it. If the volume has moved to `moved_to`, clients
    /// are made to look it up again.
    pub(crate) fn delete_open(&mut self, open: Transaction, moved_to: Option<Ipv4Addr>) -> Step {
        let server = self.volumes(open.server);
        let doing = || format!("delete the volume {}", open.volume);
        if let Some(address) = moved_to {
            let new_site = address.into();
            let request = vol::SetForwardingRequest { transaction: open.id, new_site };
            vol::set_forwarding(&*server, &request).map_err(failed(doing()))?;
        }
        match vol::delete_volume(&*server, &vol::DeleteVolumeRequest { transaction: open.id }) {
            Ok(_) => self.end(open),
            Err(code) => Err(failed(doing())(code)),
        }
    }

    /// Deletes a volume if it exists.
    pub(crate) fn delete(&mut self, place: Place, volume: u32, moved_to: Option<Ipv4Addr>) -> Step {
        match self.open(place, volume, attach_mode::OFFLINE) {
            Ok(open) => {
                self.set_flags(open, DOOMED)?;
                self.delete_open(open, moved_to)
            }
            Err(JobError::Call { code: AbortCode::VNOVOL, .. }) => Ok(()),
            // It cannot be attached because its creation was interrupted.
            Err(JobError::Call { code: AbortCode::VSALVAGE | AbortCode::VOFFLINE, .. }) => {
                self.nuke(place, volume)
            }
            Err(trouble) => Err(trouble),
        }
    }

    fn nuke(&self, place: Place, volume_id: u32) -> Step {
        let request = vol::NukeVolumeRequest { partition: place.partition, volume_id };
        match vol::nuke_volume(&*self.volumes(place.server), &request) {
            Ok(_) | Err(ENOENT | ENODEV | AbortCode::VNOVOL) => Ok(()),
            Err(code) => Err(failed(format!("remove the volume {volume_id} on {place}"))(code)),
        }
    }

    /// Puts a volume into service.
    pub(crate) fn put_online(&mut self, place: Place, volume: u32, mode: i32) -> Step {
        let open = self.open(place, volume, mode)?;
        self.set_flags(open, 0)?;
        self.end(open)
    }
}

/// Describes the opening of a volume for errors.
pub(crate) fn opening(place: Place, volume: u32) -> String {
    format!("open the volume {volume} on {place}")
}

fn destination(server: Ipv4Addr) -> vol::DestServer {
    vol::DestServer { host: server.into(), port: VOLUME_PORT, security_index: SECURITY_INDEX }
}
