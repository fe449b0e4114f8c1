//! The volume servers of a simulated history.

use super::history::{Cell, DUMP, Extent, Open, SIZE_KIB, State, VOLUME, Volume, restored_files};
use afs_idl::CallStream;
use afs_idl::vol::{self, VolintInfo, VolserStatus, attach_mode, volume_flags, volume_state, volume_type};
use base::{AbortCode, CallContext};
use std::net::Ipv4Addr;
use std::sync::Arc;

const ENOENT: AbortCode = AbortCode(2);
const ENODEV: AbortCode = AbortCode(19);

/// Number of partitions of each server.
const PARTITIONS: i32 = 2;

pub(super) struct Server {
    pub(super) cell: Arc<Cell>,
    pub(super) address: Ipv4Addr,
}

fn check_partition(partition: i32) -> Result<(), AbortCode> {
    if partition < PARTITIONS { Ok(()) } else { Err(AbortCode::VOLSERILLEGAL_PARTITION) }
}

impl Server {
    /// Runs `work` on an open volume.
    fn with<T>(
        &self,
        transaction: i32,
        work: impl FnOnce(&mut Volume, &Open, u32) -> T,
    ) -> Result<T, AbortCode> {
        let mut state = self.cell.state.lock();
        let now = state.now;
        let host = state.hosts.get_mut(&self.address).unwrap();
        let open = host.open.get_mut(&transaction).ok_or(ENOENT)?;
        open.used = now;
        let volume = host.volumes.get_mut(&(open.volume, open.partition)).ok_or(ENOENT)?;
        Ok(work(volume, open, now))
    }

    fn open(&self, volume: u32, partition: i32, attach: i32) -> Result<i32, AbortCode> {
        let mut state = self.cell.state.lock();
        let now = state.now;
        let host = state.hosts.get_mut(&self.address).unwrap();
        if host.open.values().any(|open| (open.volume, open.partition) == (volume, partition)) {
            return Err(AbortCode::VOLSERVOLBUSY);
        }
        host.next += 1;
        let id = host.next;
        host.open.insert(id, Open { volume, partition, attach, used: now, has_moved: false });
        Ok(id)
    }

    fn put(&self, id: u32, volume: Volume) {
        let place = (id, volume.partition);
        self.cell.state.lock().hosts.get_mut(&self.address).unwrap().volumes.insert(place, volume);
    }

    /// Returns the volume with this id on the partition of a transaction.
    fn beside(&self, transaction: i32, id: u32) -> Result<Option<Volume>, AbortCode> {
        let partition = self.with(transaction, |volume, _, _| volume.partition)?;
        Ok(self.cell.state.lock().hosts[&self.address].volumes.get(&(id, partition)).cloned())
    }

    fn has(&self, id: u32, partition: i32) -> bool {
        self.cell.state.lock().hosts[&self.address].volumes.contains_key(&(id, partition))
    }

    /// Rejects all callers while the server refuses changes.
    fn administer(&self) -> Result<(), AbortCode> {
        let state = self.cell.state.lock();
        if state.now < state.hosts[&self.address].refuses_until {
            Err(AbortCode::VOLSERBAD_ACCESS)
        } else {
            Ok(())
        }
    }

    /// Dates a clone, and returns the date. On a Cellar server it is not before the dates of the volume and
    /// its earlier clones.
    fn date_clone(&self, transaction: i32) -> Result<u32, AbortCode> {
        let wall = self.cell.state.lock().wall();
        let is_cellar = self.cell.state.lock().hosts[&self.address].is_cellar;
        self.with(transaction, |volume, _, _| {
            volume.dated = if is_cellar { wall.max(volume.updated).max(volume.dated) } else { wall };
            volume.dated
        })
    }

    /// Rejects cloning a volume that is out of service.
    fn check_in_service(&self, transaction: i32) -> Result<(), AbortCode> {
        let is_in_service = self.with(transaction, |volume, _, _| volume.in_service && !volume.is_doomed)?;
        if is_in_service { Ok(()) } else { Err(AbortCode::VOFFLINE) }
    }

    /// Returns whether another partition of a Cellar server has a volume with the id of an open one.
    fn holds_apart(&self, transaction: i32) -> bool {
        let state = self.cell.state.lock();
        let host = &state.hosts[&self.address];
        let Some(open) = host.open.get(&transaction) else { return false };
        let is_other = |&(id, partition): &(u32, i32)| id == open.volume && partition != open.partition;
        host.is_cellar && host.volumes.keys().any(is_other)
    }

    /// Sends a volume and restores it on another server.
    fn send(&self, transaction: i32, since: u32, to: &vol::DestServer, id: i32) -> Result<(), AbortCode> {
        let source = self.with(transaction, |volume, _, _| volume.clone())?;
        let address = Ipv4Addr::from(to.host);
        self.cell.state.lock().forwards += 1;
        if !self.cell.is_up(address) {
            return Err(AbortCode::RX_CALL_DEAD);
        }
        let target = Server { cell: self.cell.clone(), address };
        let is_apart = target.holds_apart(id);
        target.with(id, |volume, _, _| {
            if since == 0 {
                volume.files.clear();
            }
            for (file, (value, changed)) in &source.files {
                assert!(
                    *changed >= since || volume.files.get(file) == Some(&(*value, *changed)),
                    "a change from before is not there"
                );
                volume.files.insert(*file, (*value, *changed));
            }
            volume.created = source.created;
            volume.updated = source.updated;
            volume.changes = 0;
            volume.family = [0; 2];
            // A parked volume on a Cellar server stays incomplete until SetFlags changes that.
            if !is_apart {
                volume.in_service = source.in_service;
                volume.is_doomed = false;
            }
        })
    }
}

impl vol::Server for Server {
    fn trans_create(
        &self,
        _: &CallContext<'_>,
        r: vol::TransCreateRequest,
    ) -> Result<vol::TransCreateReply, AbortCode> {
        self.administer()?;
        if !self.has(r.volume_id, r.partition) {
            return Err(AbortCode::VNOVOL);
        }
        Ok(vol::TransCreateReply { transaction: self.open(r.volume_id, r.partition, r.flags)? })
    }

    fn end_trans(
        &self,
        _: &CallContext<'_>,
        r: vol::EndTransRequest,
    ) -> Result<vol::EndTransReply, AbortCode> {
        self.administer()?;
        let mut state = self.cell.state.lock();
        let host = state.hosts.get_mut(&self.address).unwrap();
        host.open.remove(&r.transaction).ok_or(ENOENT)?;
        Ok(vol::EndTransReply { code: 0 })
    }

    fn monitor(&self, _: &CallContext<'_>, _: vol::MonitorRequest) -> Result<vol::MonitorReply, AbortCode> {
        let state = self.cell.state.lock();
        let info = |(id, open): (&i32, &Open)| vol::TransDebugInfo {
            transaction: *id,
            volume_id: open.volume,
            partition: open.partition,
            ..vol::TransDebugInfo::default()
        };
        Ok(vol::MonitorReply { transactions: state.hosts[&self.address].open.iter().map(info).collect() })
    }

    fn create_volume(
        &self,
        _: &CallContext<'_>,
        r: vol::CreateVolumeRequest,
    ) -> Result<vol::CreateVolumeReply, AbortCode> {
        self.administer()?;
        if self.has(r.volume_id, r.partition) {
            return Err(AbortCode::VVOLEXISTS);
        }
        let transaction = self.open(r.volume_id, r.partition, attach_mode::CREATE)?;
        let volume =
            Volume { partition: r.partition, kind: r.volume_type, is_doomed: true, ..Volume::default() };
        self.put(r.volume_id, volume);
        Ok(vol::CreateVolumeReply { volume_id: r.volume_id, transaction })
    }

    fn delete_volume(
        &self,
        _: &CallContext<'_>,
        r: vol::DeleteVolumeRequest,
    ) -> Result<vol::DeleteVolumeReply, AbortCode> {
        let mut state = self.cell.state.lock();
        let host = state.hosts.get_mut(&self.address).unwrap();
        let open = host.open.get(&r.transaction).ok_or(ENOENT)?;
        host.volumes.remove(&(open.volume, open.partition)).ok_or(ENOENT)?;
        Ok(vol::DeleteVolumeReply)
    }

    fn set_flags(
        &self,
        _: &CallContext<'_>,
        r: vol::SetFlagsRequest,
    ) -> Result<vol::SetFlagsReply, AbortCode> {
        self.with(r.transaction, |volume, _, _| {
            volume.is_doomed = r.flags & volume_flags::DELETE_ON_SALVAGE != 0;
            volume.in_service = r.flags & volume_flags::OUT_OF_SERVICE == 0;
        })?;
        Ok(vol::SetFlagsReply)
    }

    fn get_status(
        &self,
        _: &CallContext<'_>,
        r: vol::GetStatusRequest,
    ) -> Result<vol::GetStatusReply, AbortCode> {
        let status = self.with(r.transaction, |volume, open, _| VolserStatus {
            volume_id: open.volume,
            creation_date: volume.created,
            update_date: volume.updated,
            next_unique: if volume.is_split_off { 9 } else { 2 },
            ..VolserStatus::default()
        })?;
        Ok(vol::GetStatusReply { status })
    }

    fn list_one_volume(
        &self,
        _: &CallContext<'_>,
        r: vol::ListOneVolumeRequest,
    ) -> Result<vol::ListOneVolumeReply, AbortCode> {
        check_partition(r.partition)?;
        let mut state = self.cell.state.lock();
        let State { hosts, busy_listings, .. } = &mut *state;
        let host = &hosts[&self.address];
        let volume = host.volumes.get(&(r.volume_id, r.partition)).ok_or(ENODEV)?;
        if !host.is_cellar && *busy_listings > 0 {
            *busy_listings -= 1;
            let info =
                VolintInfo { volume_id: r.volume_id, status: volume_state::BUSY, ..VolintInfo::default() };
            return Ok(vol::ListOneVolumeReply { entries: vec![info] });
        }
        let info = VolintInfo {
            volume_id: r.volume_id,
            creation_date: volume.created,
            update_date: volume.updated,
            status: volume_state::OK,
            in_use: u32::from(volume.in_service),
            size: SIZE_KIB,
            spare2: volume.changes as i32,
            ..VolintInfo::default()
        };
        Ok(vol::ListOneVolumeReply { entries: vec![info] })
    }

    fn partition_info64(
        &self,
        _: &CallContext<'_>,
        r: vol::PartitionInfo64Request,
    ) -> Result<vol::PartitionInfo64Reply, AbortCode> {
        let partition: base::PartitionId = r.name.to_string().parse().unwrap();
        check_partition(partition.index() as i32)?;
        let free = self.cell.state.lock().hosts[&self.address].free_kib;
        let partition = vol::DiskPartition64 { free, ..vol::DiskPartition64::default() };
        Ok(vol::PartitionInfo64Reply { partition })
    }

    fn clone_volume(
        &self,
        _: &CallContext<'_>,
        r: vol::CloneVolumeRequest,
    ) -> Result<vol::CloneVolumeReply, AbortCode> {
        self.check_in_service(r.transaction)?;
        if self.beside(r.transaction, r.new_volume_id)?.is_some() {
            return Err(AbortCode::VVOLEXISTS);
        }
        let created = self.date_clone(r.transaction)?;
        let clone = self.with(r.transaction, |volume, _, _| Volume {
            kind: r.new_type,
            created,
            is_doomed: true,
            in_service: false,
            ..volume.clone()
        })?;
        self.put(r.new_volume_id, clone);
        if r.new_type == volume_type::READ_ONLY {
            self.with(r.transaction, |volume, _, _| volume.family[0] = r.new_volume_id)?;
        }
        Ok(vol::CloneVolumeReply { new_volume_id: r.new_volume_id })
    }

    fn re_clone(&self, _: &CallContext<'_>, r: vol::ReCloneRequest) -> Result<vol::ReCloneReply, AbortCode> {
        self.check_in_service(r.transaction)?;
        let kind = self.beside(r.transaction, r.clone_id)?.ok_or(AbortCode::VNOVOL)?.kind;
        assert_ne!(kind, volume_type::READ_WRITE);
        let created = self.date_clone(r.transaction)?;
        let clone = self.with(r.transaction, |volume, _, _| Volume { kind, created, ..volume.clone() })?;
        self.put(r.clone_id, clone);
        Ok(vol::ReCloneReply)
    }

    fn set_ids_types(
        &self,
        _: &CallContext<'_>,
        r: vol::SetIdsTypesRequest,
    ) -> Result<vol::SetIdsTypesReply, AbortCode> {
        self.with(r.transaction, |volume, _, _| volume.family = [r.clone_id, r.backup_id])?;
        Ok(vol::SetIdsTypesReply)
    }

    fn set_info(&self, _: &CallContext<'_>, r: vol::SetInfoRequest) -> Result<vol::SetInfoReply, AbortCode> {
        assert_eq!((r.info.creation_date, r.info.update_date), (u32::MAX, u32::MAX), "dates are not touched");
        self.with(r.transaction, |volume, _, _| volume.changes = r.info.spare2 as u32)?;
        Ok(vol::SetInfoReply)
    }

    fn set_forwarding(
        &self,
        _: &CallContext<'_>,
        r: vol::SetForwardingRequest,
    ) -> Result<vol::SetForwardingReply, AbortCode> {
        let mut state = self.cell.state.lock();
        let host = state.hosts.get_mut(&self.address).unwrap();
        host.open.get_mut(&r.transaction).ok_or(ENOENT)?.has_moved = true;
        Ok(vol::SetForwardingReply)
    }

    fn nuke_volume(
        &self,
        _: &CallContext<'_>,
        r: vol::NukeVolumeRequest,
    ) -> Result<vol::NukeVolumeReply, AbortCode> {
        let mut state = self.cell.state.lock();
        state
            .hosts
            .get_mut(&self.address)
            .unwrap()
            .volumes
            .remove(&(r.volume_id, r.partition))
            .ok_or(ENOENT)?;
        Ok(vol::NukeVolumeReply)
    }

    fn restore(
        &self,
        _: &CallContext<'_>,
        r: vol::RestoreRequest,
        stream: &mut dyn CallStream,
    ) -> Result<vol::RestoreReply, AbortCode> {
        assert_eq!(stream.read_chunk(1000)?, DUMP);
        let mut state = self.cell.state.lock();
        state.restores += 1;
        if let Some(code) = state.refusal {
            return Err(code);
        }
        drop(state);
        let is_over = self.with(r.transaction, |volume, open, _| {
            (volume.files, volume.created) = (restored_files(), 1);
            volume.family = [0; 2];
            open.volume == VOLUME
        })?;
        if is_over {
            self.cell.state.lock().acknowledged.clear();
        }
        Ok(vol::RestoreReply)
    }

    fn set_date(&self, _: &CallContext<'_>, r: vol::SetDateRequest) -> Result<vol::SetDateReply, AbortCode> {
        self.with(r.transaction, |volume, _, _| volume.created = r.new_date)?;
        Ok(vol::SetDateReply)
    }

    fn split_volume(
        &self,
        _: &CallContext<'_>,
        r: vol::SplitVolumeRequest,
        stream: &mut dyn CallStream,
    ) -> Result<vol::SplitVolumeReply, AbortCode> {
        let mut state = self.cell.state.lock();
        let host = state.hosts.get_mut(&self.address).unwrap();
        let both = [r.volume_id, r.new_volume_id];
        if host.open.values().any(|open| both.contains(&open.volume)) {
            return Err(AbortCode::VOLSERVOLBUSY);
        }
        let new = host.volumes.get_mut(&(r.new_volume_id, 0)).ok_or(AbortCode::VNOVOL)?;
        if std::mem::replace(&mut new.is_split_off, true) {
            return Err(AbortCode(22));
        }
        host.volumes.get_mut(&(r.volume_id, 0)).ok_or(AbortCode::VNOVOL)?.split_off += 1;
        drop(state);
        stream.write(bytes::Bytes::from_static(b"Finished!\n\0\0\0\0"))?;
        Ok(vol::SplitVolumeReply)
    }

    fn forward(&self, _: &CallContext<'_>, r: vol::ForwardRequest) -> Result<vol::ForwardReply, AbortCode> {
        self.send(r.transaction, r.from_date, &r.destination, r.destination_transaction)?;
        Ok(vol::ForwardReply)
    }

    fn forward_multiple(
        &self,
        _: &CallContext<'_>,
        r: vol::ForwardMultipleRequest,
    ) -> Result<vol::ForwardMultipleReply, AbortCode> {
        let extent = if r.from_date == 0 { Extent::Everything } else { Extent::Changes };
        self.cell.state.lock().reads.push((extent, r.destinations.len()));
        let send = |to: &vol::Replica| self.send(r.transaction, r.from_date, &to.server, to.transaction);
        let results = r.destinations.iter().map(|to| send(to).err().map_or(0, |code| code.0)).collect();
        Ok(vol::ForwardMultipleReply { results })
    }
}
