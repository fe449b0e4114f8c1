//! The calls that jobs consist of, without their records: each makes one remote call and describes its error.

use crate::entry;
use crate::lock::WHOLE_LOCK;
use crate::transaction::Transaction;
use crate::world::JobError;
use crate::{Place, World};
use afs_idl::ClientConnection;
use afs_idl::vl::{self, NVldbEntry};
use afs_idl::vol::{
    self, RestoreCookie, TransDebugInfo, VolintInfo, VolserStatus, volume_state, volume_type,
};
use base::{AbortCode, PartitionId};
use std::net::Ipv4Addr;
use std::sync::Arc;

/// Value in SetInfo that leaves a field unchanged.
const UNCHANGED: i32 = -1;

/// Port of volume servers.
const VOLUME_PORT: i32 = 7005;
/// Security index for connections between volume servers. The servers choose the actual class (rxkad); the
/// value only means "with authentication".
const SECURITY_INDEX: i32 = 1;

/// Bytes of the text in a reply to SplitVolume that are read at a time.
const TEXT_BYTES: usize = 4096;

/// Number of listings, a second apart, that may find another call at the volume.
const BUSY_LISTINGS_MAX: u32 = 3;

/// errno value that volume servers return for an unknown transaction.
pub const ENOENT: AbortCode = AbortCode(2);
/// errno value that volume servers return for a volume that they cannot list.
pub const ENODEV: AbortCode = AbortCode(19);

/// Description of the call that fails for callers without the right to allocate ids.
pub(crate) const GETTING_IDS: &str = "get a volume number";

pub(crate) type Step<T = ()> = Result<T, JobError>;

/// The servers of a cell.
pub(crate) struct Cell<'a, W: World> {
    pub(crate) world: &'a W,
}

/// Returns the error of a call, with a description of the attempt.
pub(crate) fn failed(doing: impl Into<String>) -> impl FnOnce(AbortCode) -> JobError {
    move |code| JobError::Call { doing: doing.into(), code }
}

/// Keeps the first of two errors.
pub(crate) fn keep_first(first: &mut Step, then: Step) {
    if first.is_ok() {
        *first = then;
    }
}

/// Describes the opening of a volume for errors.
pub(crate) fn opening(place: Place, volume: u32) -> String {
    format!("open the volume {volume} on {place}")
}

fn destination(server: Ipv4Addr) -> vol::DestServer {
    vol::DestServer { host: server.into(), port: VOLUME_PORT, security_index: SECURITY_INDEX }
}

// Calls to the location database.
impl<W: World> Cell<'_, W> {
    /// Returns the entry of a volume.
    pub(crate) fn entry(&self, volume_id: u32, name: &str) -> Step<NVldbEntry> {
        let request = vl::GetEntryByIDNRequest { volume_id, volume_type: 0 };
        let reply = self.world.newest_locations(|vl| vl::get_entry_by_idn(vl, &request));
        reply.map(|reply| reply.entry).map_err(failed(format!("look {name} up")))
    }

    /// Returns whether a volume has an entry.
    pub(crate) fn has_entry(&self, volume_id: u32) -> Step<bool> {
        let request = vl::GetEntryByIDNRequest { volume_id, volume_type: 0 };
        match self.world.newest_locations(|vl| vl::get_entry_by_idn(vl, &request)) {
            Ok(_) => Ok(true),
            Err(AbortCode::VL_NOENT) => Ok(false),
            Err(code) => Err(failed(format!("look the volume {volume_id} up"))(code)),
        }
    }

    /// Returns the id of the read-write volume with this name, if the name is registered.
    pub(crate) fn id_of(&self, name: &str) -> Step<Option<u32>> {
        let request = vl::GetEntryByNameNRequest { volume_name: name.into() };
        match self.world.newest_locations(|vl| vl::get_entry_by_name_n(vl, &request)) {
            Ok(reply) => Ok(Some(reply.entry.volume_id[entry::READ_WRITE])),
            Err(AbortCode::VL_NOENT) => Ok(None),
            Err(code) => Err(failed(format!("look {name} up"))(code)),
        }
    }

    pub(crate) fn create_entry(&self, new_entry: NVldbEntry) -> Result<(), AbortCode> {
        let request = vl::CreateEntryNRequest { new_entry };
        self.world.locations(|vl| vl::create_entry_n(vl, &request)).map(drop)
    }

    pub(crate) fn replace_entry(&self, volume_id: u32, name: &str, new_entry: &NVldbEntry) -> Step {
        let new_entry = new_entry.clone();
        let request = vl::ReplaceEntryNRequest { volume_id, volume_type: 0, new_entry, release_type: 0 };
        let reply = self.world.locations(|vl| vl::replace_entry_n(vl, &request));
        reply.map(drop).map_err(failed(format!("change the entry of {name}")))
    }

    /// Deletes the entry of a volume if it exists.
    pub(crate) fn delete_entry(&self, volume_id: u32) -> Step {
        let request = vl::DeleteEntryRequest { volume_id, volume_type: 0 };
        match self.world.locations(|vl| vl::delete_entry(vl, &request)) {
            Ok(_) | Err(AbortCode::VL_NOENT) => Ok(()),
            Err(code) => Err(failed(format!("remove the entry of the volume {volume_id}"))(code)),
        }
    }

    /// Allocates consecutive volume ids, and returns the first.
    pub(crate) fn new_ids(&self, bump_count: u32) -> Step<u32> {
        let request = vl::GetNewVolumeIdRequest { bump_count };
        let reply = self.world.locations(|vl| vl::get_new_volume_id(vl, &request));
        match reply.map_err(failed(GETTING_IDS))?.new_volume_id {
            0 => Err(JobError::Refused("the location server allocated the volume number 0".into())),
            id => Ok(id),
        }
    }

    /// Locks an entry. Also returns whether a server did not respond: it may have set the lock.
    pub(crate) fn set_lock(&self, volume_id: u32, operation: i32) -> (Result<(), AbortCode>, bool) {
        let request = vl::SetLockRequest { volume_id, volume_type: 0, operation };
        let is_silent = std::cell::Cell::new(false);
        let answer = self.world.locations(|vl| {
            let answer = vl::set_lock(vl, &request);
            is_silent.set(is_silent.get() || answer.as_ref().is_err_and(|code| code.is_of_rx()));
            answer
        });
        (answer.map(drop), is_silent.get())
    }

    pub(crate) fn release_lock(&self, volume_id: u32, name: &str) -> Step {
        let request = vl::ReleaseLockRequest { volume_id, volume_type: 0, release_type: WHOLE_LOCK };
        match self.world.locations(|vl| vl::release_lock(vl, &request)) {
            Ok(_) | Err(AbortCode::VL_NOENT) => Ok(()),
            Err(code) => Err(failed(format!("unlock the entry of {name}"))(code)),
        }
    }

    /// Returns the start time of the location server that accepts changes.
    pub(crate) fn locations_start_time(&self) -> Result<u32, AbortCode> {
        let reply = self.world.newest_locations(|vl| vl::get_stats(vl, &vl::GetStatsRequest))?;
        Ok(reply.stats.start_time)
    }
}

// Transactions.
impl<W: World> Cell<'_, W> {
    pub(crate) fn volumes(&self, server: Ipv4Addr) -> Arc<dyn ClientConnection> {
        self.world.volumes(server)
    }

    /// Returns the open transactions of a server, of any client.
    pub(crate) fn transactions(&self, server: Ipv4Addr, doing: &str) -> Step<Vec<TransDebugInfo>> {
        let reply = vol::monitor(&*self.volumes(server), &vol::MonitorRequest);
        reply.map(|reply| reply.transactions).map_err(failed(doing))
    }

    /// Returns the transactions open on a volume, of any client. A volume that moves within a server is on
    /// two partitions for a while.
    pub(crate) fn transactions_on(&self, place: Place, volume: u32) -> Step<Vec<TransDebugInfo>> {
        let is_on = |open: &TransDebugInfo| open.volume_id == volume && open.partition == place.partition;
        let mut open = self.transactions(place.server, &opening(place, volume))?;
        open.retain(is_on);
        Ok(open)
    }

    /// Ends a transaction.
    pub(crate) fn end_transaction(&self, transaction: Transaction) -> Step {
        let request = vol::EndTransRequest { transaction: transaction.id };
        let code = match vol::end_trans(&*self.volumes(transaction.server), &request) {
            Ok(reply) if reply.code == 0 => return Ok(()),
            Ok(reply) => AbortCode(reply.code),
            Err(code) => code,
        };
        Err(failed(ending(transaction.volume))(code))
    }

    /// Ends a transaction that may have ended already.
    pub(crate) fn end_listed(&self, server: Ipv4Addr, open: &TransDebugInfo) -> Step {
        let request = vol::EndTransRequest { transaction: open.transaction };
        match vol::end_trans(&*self.volumes(server), &request) {
            Ok(_) | Err(ENOENT) => Ok(()),
            Err(code) => Err(failed(ending(open.volume_id))(code)),
        }
    }

    /// Returns the time of day at the server of a transaction that was just used; 0 if the server does not
    /// list it.
    pub(crate) fn time_at(&self, open: Transaction) -> Step<u32> {
        let all = self.transactions(open.server, &listing(open.server))?;
        Ok(all.iter().find(|info| info.transaction == open.id).map_or(0, |info| info.time))
    }
}

fn ending(volume: u32) -> String {
    format!("end the transaction on the volume {volume}")
}

/// Describes the listing of a server's transactions for errors.
pub(crate) fn listing(server: Ipv4Addr) -> String {
    format!("list the transactions of {server}")
}

// Calls within a transaction.
impl<W: World> Cell<'_, W> {
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
    pub(crate) fn set_family(&self, open: Transaction, name: &str, id: u32, entry: &NVldbEntry) -> Step {
        let request = vol::SetIdsTypesRequest {
            transaction: open.id,
            name: name.into(),
            volume_type: volume_type::READ_WRITE,
            parent_id: id,
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

    /// Sets the creation date of an open volume.
    pub(crate) fn set_date(&self, open: Transaction, new_date: u32) -> Step {
        let request = vol::SetDateRequest { transaction: open.id, new_date };
        let reply = vol::set_date(&*self.volumes(open.server), &request);
        reply.map(drop).map_err(failed(format!("set the date of the volume {}", open.volume)))
    }

    /// Sends an open volume, or its changes since `from_date`, to another server.
    pub(crate) fn forward(
        &self,
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
        reply.map(drop).map_err(failed(format!("send the volume {} to {}", from.volume, to.server)))
    }

    /// Sends a volume to several servers with one read; returns a code for each.
    pub(crate) fn forward_all(
        &self,
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
        reply
            .map(|reply| reply.results)
            .map_err(failed(format!("send the volume {} to its sites", from.volume)))
    }

    /// Deletes the volume of an open transaction. If the volume has moved to `moved_to`, clients are made to
    /// look it up again.
    pub(crate) fn delete_volume(&self, open: Transaction, moved_to: Option<Ipv4Addr>) -> Step {
        let server = self.volumes(open.server);
        let doing = || format!("delete the volume {}", open.volume);
        if let Some(address) = moved_to {
            let new_site = address.into();
            let request = vol::SetForwardingRequest { transaction: open.id, new_site };
            vol::set_forwarding(&*server, &request).map_err(failed(doing()))?;
        }
        let request = vol::DeleteVolumeRequest { transaction: open.id };
        vol::delete_volume(&*server, &request).map(drop).map_err(failed(doing()))
    }
}

// Calls without a transaction.
impl<W: World> Cell<'_, W> {
    /// Returns a server's listing of a volume without opening it; `None` if the partition has no volume with
    /// this id. Id 0 is never used and serves to check that the partition exists.
    pub(crate) fn list_volume(&self, place: Place, volume: u32) -> Step<Option<VolintInfo>> {
        let request = vol::ListOneVolumeRequest { partition: place.partition, volume_id: volume };
        match vol::list_one_volume(&*self.volumes(place.server), &request) {
            Ok(reply) => Ok(reply.entries.into_iter().next()),
            Err(ENODEV | AbortCode::VNOVOL) => Ok(None),
            Err(code) if volume == 0 => Err(failed(format!("read the volumes of {place}"))(code)),
            Err(code) => Err(failed(format!("read the volume {volume} on {place}"))(code)),
        }
    }

    /// Like [`list_volume`](Self::list_volume), for callers that need the figures. OpenAFS's servers list a volume without
    /// them while another call has it, be it a listing: then it is listed again, for some seconds at most.
    pub(crate) fn list_idle_volume(&self, place: Place, volume: u32) -> Step<Option<VolintInfo>> {
        for _ in 0..BUSY_LISTINGS_MAX {
            let info = self.list_volume(place, volume)?;
            if !matches!(&info, Some(info) if info.status == volume_state::BUSY) {
                return Ok(info);
            }
            self.world.pause(1);
        }
        self.list_volume(place, volume)
    }

    /// Fails if a volume already exists where the job is to create one.
    pub(crate) fn check_is_free(&self, place: Place, volume: u32) -> Step {
        match self.list_volume(place, volume)? {
            None => Ok(()),
            Some(_) => Err(failed(format!(
                "use {place}: it has a volume {volume} that the location database does not know of \
                 (`vos zap` removes it)"
            ))(AbortCode::VVOLEXISTS)),
        }
    }

    /// Deletes a volume that cannot be opened, if it exists.
    pub(crate) fn nuke(&self, place: Place, volume_id: u32) -> Step {
        let request = vol::NukeVolumeRequest { partition: place.partition, volume_id };
        match vol::nuke_volume(&*self.volumes(place.server), &request) {
            Ok(_) | Err(ENOENT | ENODEV | AbortCode::VNOVOL) => Ok(()),
            Err(code) => Err(failed(format!("remove the volume {volume_id} on {place}"))(code)),
        }
    }

    /// Splits the directory with this vnode off into an existing, empty volume.
    pub(crate) fn split_volume(
        &self,
        server: Ipv4Addr,
        volume_id: u32,
        new_volume_id: u32,
        vnode: u32,
    ) -> Result<(), AbortCode> {
        let request = vol::SplitVolumeRequest { volume_id, new_volume_id, vnode, verbose: 0 };
        let reply = vol::split_volume(&*self.volumes(server), &request, |text| {
            while !text.read_chunk(TEXT_BYTES)?.is_empty() {}
            Ok(())
        });
        reply.map(drop)
    }

    /// Returns the free KiB of a partition.
    pub(crate) fn free_kib(&self, place: Place) -> Step<u64> {
        let doing = || format!("find out how much room {place} has");
        let partition = u32::try_from(place.partition).ok().and_then(PartitionId::from_index);
        let partition = partition.ok_or(AbortCode::VOLSERILLEGAL_PARTITION).map_err(failed(doing()))?;
        let (name, server) = (partition.to_string(), self.volumes(place.server));
        let request = vol::PartitionInfo64Request { name: name.as_str().into() };
        let free = match vol::partition_info64(&*server, &request) {
            // Servers older than OpenAFS 1.6.
            Err(AbortCode::RXGEN_OPCODE) => {
                let request = vol::PartitionInfoRequest { name: name.as_str().into() };
                vol::partition_info(&*server, &request).map(|reply| reply.partition.free.into())
            }
            wide => wide.map(|reply| reply.partition.free),
        };
        Ok(u64::try_from(free.map_err(failed(doing()))?).unwrap_or(0))
    }
}
