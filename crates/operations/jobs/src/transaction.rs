//! The job's transactions on volume servers, with the volumes that are created and deleted in them.
//!
//! A transaction is recorded before it is requested, so that a later run can end it.

use crate::engine::Run;
use crate::procedure::Procedure;
use crate::rpc::{Step, failed, keep_first, listing, opening};
use crate::{JobError, Place, World};
use afs_idl::vol::{self, RestoreCookie, TransDebugInfo, attach_mode, volume_flags};
use base::AbortCode;
use serde::{Deserialize, Serialize};
use std::net::Ipv4Addr;

/// Number of tries for a busy volume, and the seconds between them.
const BUSY_TRIES: u32 = 30;
const BUSY_SECONDS: u32 = 2;

/// Flags of a volume under construction: out of service, and deleted at a restart.
const INCOMPLETE: i32 = volume_flags::DELETE_ON_SALVAGE | volume_flags::OUT_OF_SERVICE;

/// A transaction on a volume server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Transaction {
    pub(crate) server: Ipv4Addr,
    pub(crate) id: i32,
    pub(crate) volume: u32,
    /// Missing in journals of older versions.
    #[serde(default)]
    pub(crate) partition: Option<i32>,
}

impl Transaction {
    /// Returns whether it is certainly a transaction on this volume at this site.
    pub(crate) fn is_on(self, place: Place, volume: u32) -> bool {
        self.server == place.server && self.partition == Some(place.partition) && self.volume == volume
    }
}

/// A transaction that was requested on a volume that had none before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Requested {
    pub(crate) place: Place,
    pub(crate) volume: u32,
}

impl<P: Procedure, W: World> Run<'_, P, W> {
    /// Opens a volume. First ends the transactions on it that this job has, or may have, from an interrupted
    /// step. Waits for a while if another client has it open.
    pub(crate) fn open(&mut self, place: Place, volume: u32, flags: i32) -> Step<Transaction> {
        let request = vol::TransCreateRequest { volume_id: volume, partition: place.partition, flags };
        let doing = || opening(place, volume);
        for _ in 0..BUSY_TRIES {
            self.check_control()?;
            let open = self.cell.transactions_on(place, volume)?;
            let ended = self.end_own(place.server, &open)?;
            self.forget(place, volume)?;
            if ended == open.len() {
                self.record_request(place, volume)?;
                match vol::trans_create(&*self.cell.volumes(place.server), &request) {
                    Ok(reply) => return self.opened(place, volume, reply.transaction),
                    Err(AbortCode::VOLSERVOLBUSY | AbortCode::VBUSY) => self.not_opened(place, volume),
                    Err(code) => {
                        if !code.is_of_rx() {
                            self.not_opened(place, volume);
                        }
                        return Err(failed(doing())(code));
                    }
                }
            }
            self.cell.world.pause(BUSY_SECONDS);
        }
        Err(failed(doing())(AbortCode::VOLSERVOLBUSY))
    }

    /// Records, before the request, that there may be a transaction.
    fn record_request(&mut self, place: Place, volume: u32) -> Step {
        self.job.requested.push(Requested { place, volume });
        self.save()
    }

    fn not_opened(&mut self, place: Place, volume: u32) {
        self.job.requested.retain(|requested| *requested != Requested { place, volume });
    }

    fn opened(&mut self, place: Place, volume: u32, id: i32) -> Step<Transaction> {
        let transaction = Transaction { server: place.server, id, volume, partition: Some(place.partition) };
        self.not_opened(place, volume);
        self.job.transactions.push(transaction);
        self.save()?;
        Ok(transaction)
    }

    /// Creates a volume, marked for deletion until `set_flags` clears the mark, and opens it.
    pub(crate) fn create(
        &mut self,
        place: Place,
        name: &str,
        volume: u32,
        volume_type: i32,
        parent_id: u32,
    ) -> Step<Transaction> {
        self.record_request(place, volume)?;
        let request = vol::CreateVolumeRequest {
            partition: place.partition,
            name: name.into(),
            volume_type,
            parent_id,
            volume_id: volume,
        };
        match vol::create_volume(&*self.cell.volumes(place.server), &request) {
            Ok(reply) => {
                let transaction = self.opened(place, volume, reply.transaction)?;
                self.cell.set_flags(transaction, INCOMPLETE)?;
                Ok(transaction)
            }
            Err(code) => {
                if !code.is_of_rx() {
                    self.not_opened(place, volume);
                }
                Err(failed(format!("make the volume {volume} on {place}"))(code))
            }
        }
    }

    /// Ends a transaction.
    pub(crate) fn end(&mut self, transaction: Transaction) -> Step {
        self.cell.end_transaction(transaction)?;
        self.job.transactions.retain(|other| *other != transaction);
        self.save()
    }

    /// Ends the transactions that an earlier step left open, on all servers that respond.
    pub(crate) fn end_all(&mut self) -> Step {
        let mut servers: Vec<Ipv4Addr> = self.job.transactions.iter().map(|open| open.server).collect();
        servers.extend(self.job.requested.iter().map(|requested| requested.place.server));
        servers.sort_unstable();
        servers.dedup();
        let mut outcome = Ok(());
        for server in servers {
            keep_first(&mut outcome, self.end_all_on(server));
        }
        outcome
    }

    fn end_all_on(&mut self, server: Ipv4Addr) -> Step {
        let open = self.cell.transactions(server, &listing(server))?;
        self.end_own(server, &open)?;
        self.job.transactions.retain(|open| open.server != server);
        self.job.requested.retain(|requested| requested.place.server != server);
        self.save()
    }

    /// Forgets recorded transactions on a volume on which this job has none open.
    fn forget(&mut self, place: Place, volume: u32) -> Step {
        let known = self.job.transactions.len() + self.job.requested.len();
        self.job.transactions.retain(|open| !open.is_on(place, volume));
        self.not_opened(place, volume);
        if self.job.transactions.len() + self.job.requested.len() < known {
            self.save()?;
        }
        Ok(())
    }

    /// Ends those of a server's transactions that belong to this job, and returns their number.
    fn end_own(&self, server: Ipv4Addr, open: &[TransDebugInfo]) -> Step<usize> {
        let mut ended = 0;
        for info in open.iter().filter(|info| self.is_own(server, info)) {
            self.cell.end_listed(server, info)?;
            ended += 1;
        }
        Ok(ended)
    }

    fn is_own(&self, server: Ipv4Addr, info: &TransDebugInfo) -> bool {
        // After a restart the number may belong to another client; comparing the volume detects that.
        let is_known = |open: &Transaction| {
            open.server == server && open.id == info.transaction && open.volume == info.volume_id
        };
        let place = Place { server, partition: info.partition };
        let was_requested = self.job.requested.contains(&Requested { place, volume: info.volume_id });
        self.job.transactions.iter().any(is_known) || was_requested
    }

    /// Sends an open volume, or its changes since `from_date`, to another server.
    pub(crate) fn forward(
        &mut self,
        from: Transaction,
        from_date: u32,
        to: Transaction,
        cookie: &RestoreCookie,
    ) -> Step {
        let sent = self.cell.forward(from, from_date, to, cookie);
        self.count_sent(from)?;
        sent
    }

    /// Sends a volume to several servers with one read; returns a code for each.
    pub(crate) fn forward_all(
        &mut self,
        from: Transaction,
        from_date: u32,
        to: &[Transaction],
        cookie: &RestoreCookie,
    ) -> Step<Vec<i32>> {
        let results = self.cell.forward_all(from, from_date, to, cookie);
        self.count_sent(from)?;
        results
    }

    /// Deletes the volume of an open transaction, and ends it. If the volume has moved to `moved_to`, clients
    /// are made to look it up again.
    pub(crate) fn delete_open(&mut self, open: Transaction, moved_to: Option<Ipv4Addr>) -> Step {
        self.cell.delete_volume(open, moved_to)?;
        self.end(open)
    }

    /// Deletes a volume if it exists.
    pub(crate) fn delete(&mut self, place: Place, volume: u32, moved_to: Option<Ipv4Addr>) -> Step {
        match self.open(place, volume, attach_mode::OFFLINE) {
            Ok(open) => {
                self.cell.set_flags(open, INCOMPLETE)?;
                self.delete_open(open, moved_to)
            }
            Err(JobError::Call { code: AbortCode::VNOVOL, .. }) => Ok(()),
            // It cannot be attached because its creation was interrupted.
            Err(JobError::Call { code: AbortCode::VSALVAGE | AbortCode::VOFFLINE, .. }) => {
                self.cell.nuke(place, volume)
            }
            Err(error) => Err(error),
        }
    }

    /// Puts a volume into service.
    pub(crate) fn put_online(&mut self, place: Place, volume: u32, mode: i32) -> Step {
        let open = self.open(place, volume, mode)?;
        self.cell.set_flags(open, 0)?;
        self.end(open)
    }
}
