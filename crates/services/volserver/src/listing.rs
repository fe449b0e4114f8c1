//! Lists volumes: ListVolumes, ListOneVolume, and their extended forms.

use crate::codes::ENODEV;
use crate::server::{DESTROY_ME, VolumeServer};
use afs_idl::ReplyWriter;
use afs_idl::server::SMALL_REPLY_BYTES;
use afs_idl::vol::{self, VolintInfo, VolintXInfo, VolserStatus, volume_state};
use base::{AbortCode, Caller, UnixTime, VolumeId};
use std::ops::ControlFlow;
use volume::{Listed, VolumeHeader, VolumeState};
use xdr::{Encode, XdrString};

/// Age after which the daily use count is out of date.
const DAY_SECONDS: u32 = 86_400;

impl VolumeServer {
    /// ListVolumes: lists the volumes of a partition.
    pub(crate) fn list_volumes(
        &self,
        caller: &Caller,
        request: vol::ListVolumesRequest,
        reply: &mut ReplyWriter<'_>,
    ) -> Result<(), AbortCode> {
        self.check_query(caller)?;
        write_all::<VolintInfo>(self, request.partition, request.flags, reply)
    }

    /// XListVolumes: lists the volumes of a partition in the extended form.
    pub(crate) fn x_list_volumes(
        &self,
        caller: &Caller,
        request: vol::XListVolumesRequest,
        reply: &mut ReplyWriter<'_>,
    ) -> Result<(), AbortCode> {
        self.check_query(caller)?;
        write_all::<VolintXInfo>(self, request.partition, request.flags, reply)
    }

    /// ListOneVolume: lists one volume of a partition.
    pub(crate) fn list_one_volume(
        &self,
        caller: &Caller,
        request: vol::ListOneVolumeRequest,
    ) -> Result<vol::ListOneVolumeReply, AbortCode> {
        self.check_query(caller)?;
        Ok(vol::ListOneVolumeReply { entries: one(self, request.partition, request.volume_id)? })
    }

    /// XListOneVolume: lists one volume of a partition in the extended form.
    pub(crate) fn x_list_one_volume(
        &self,
        caller: &Caller,
        request: vol::XListOneVolumeRequest,
    ) -> Result<vol::XListOneVolumeReply, AbortCode> {
        self.check_query(caller)?;
        Ok(vol::XListOneVolumeReply { entries: one(self, request.partition, request.volume_id)? })
    }
}

/// A volume in a listing, in either form.
trait Entry: Default + Encode {
    /// Creates the entry of a usable volume; `in_use` is whether file service uses it.
    fn of(header: &VolumeHeader, in_use: bool, now: UnixTime) -> Self;

    /// Creates an entry with no more than the volume's id and a status.
    fn bare(id: VolumeId, name: XdrString, status: i32) -> Self;
}

impl Entry for VolintInfo {
    fn of(header: &VolumeHeader, in_use: bool, now: UnixTime) -> VolintInfo {
        VolintInfo {
            name: header.name.as_str().into(),
            volume_id: header.id.0,
            volume_type: header.kind as i32,
            backup_id: header.backup.0,
            parent_id: header.parent.0,
            clone_id: header.clone.0,
            status: volume_state::OK,
            copy_date: header.copied.0,
            in_use: u32::from(in_use),
            needs_salvaged: 0,
            destroy_me: u32::from(header.destroy_me),
            creation_date: header.created.0,
            access_date: header.accessed.0,
            update_date: header.updated.0,
            backup_date: header.backed_up.0,
            day_use: day_use(header, now),
            file_count: clamped(header.file_count),
            max_quota: clamped(header.quota_max_kib),
            size: clamped(header.used_kib),
            flags: 0,
            spare0: clamped(header.quota_min_kib),
            spare1: clamped(header.week_use.iter().map(|&day| u64::from(day)).sum()),
            spare2: header.update_counter as i32,
            spare3: 0,
        }
    }

    fn bare(id: VolumeId, name: XdrString, status: i32) -> VolintInfo {
        VolintInfo { name, volume_id: id.0, status, ..VolintInfo::default() }
    }
}

impl Entry for VolintXInfo {
    /// Statistics by network and author are not kept; they are zero, as for a day without use.
    fn of(header: &VolumeHeader, in_use: bool, now: UnixTime) -> VolintXInfo {
        VolintXInfo {
            name: header.name.as_str().into(),
            volume_id: header.id.0,
            volume_type: header.kind as i32,
            backup_id: header.backup.0,
            parent_id: header.parent.0,
            clone_id: header.clone.0,
            status: volume_state::OK,
            copy_date: header.copied.0,
            in_use: u32::from(in_use),
            creation_date: header.created.0,
            access_date: header.accessed.0,
            update_date: header.updated.0,
            backup_date: header.backed_up.0,
            day_use: day_use(header, now),
            file_count: clamped(header.file_count),
            max_quota: clamped(header.quota_max_kib),
            size: clamped(header.used_kib),
            ..VolintXInfo::default()
        }
    }

    fn bare(id: VolumeId, name: XdrString, status: i32) -> VolintXInfo {
        VolintXInfo { name, volume_id: id.0, status, ..VolintXInfo::default() }
    }
}

/// Writes the entries of all volumes of a partition, or only their ids if `flags` is 0. Incomplete volumes
/// left behind by a transaction are skipped. Loads no volumes.
///
/// The number of entries is sent first, so the volumes are selected before the first entry is written. A
/// volume deleted while the client reads the list is shown as one that cannot be attached.
fn write_all<T: Entry>(
    server: &VolumeServer,
    partition: i32,
    flags: i32,
    reply: &mut ReplyWriter<'_>,
) -> Result<(), AbortCode> {
    let partition = server.partition(partition)?;
    let (busy, now) = (server.transactions().attached(), server.now());
    let form = |mut listed: Listed| -> Option<T> {
        let id = listed.header.number();
        listed.header.id = id;
        match () {
            () if flags == 0 => Some(T::bare(id, XdrString::default(), 0)),
            () if busy.contains(&(id, partition)) => Some(busy_entry(id)),
            () => entry(&listed, now),
        }
    };
    let mut chosen = Vec::new();
    server.volumes().list_headers(partition, &mut |listed| {
        let id = listed.header.id;
        chosen.extend(form(listed).map(|_| id));
        ControlFlow::Continue(())
    })?;
    let held = size_of_val(&*chosen);
    if held > SMALL_REPLY_BYTES {
        reply.hold(held)?;
    }
    reply.put(&(chosen.len() as u32))?;
    let mut left = chosen.as_slice();
    let mut outcome = Ok(());
    server.volumes().list_headers(partition, &mut |listed| {
        outcome = write_up_to(&mut left, listed, form, reply);
        if outcome.is_err() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    outcome?;
    left.iter().try_for_each(|&id| reply.put(&gone::<T>(id)))
}

/// Writes the entry of a volume if it is among those `left`, after the entries of deleted volumes before it.
fn write_up_to<T: Entry>(
    left: &mut &[VolumeId],
    listed: Listed,
    form: impl FnOnce(Listed) -> Option<T>,
    reply: &mut ReplyWriter<'_>,
) -> Result<(), AbortCode> {
    let id = listed.header.id;
    while let Some((&next, behind)) = left.split_first()
        && next <= id
    {
        *left = behind;
        if next == id {
            return reply.put(&form(listed).unwrap_or_else(|| gone(id)));
        }
        reply.put(&gone::<T>(next))?;
    }
    Ok(())
}

/// Returns the entry of a volume that was deleted after it was selected.
fn gone<T: Entry>(id: VolumeId) -> T {
    T::bare(id, XdrString::default(), volume_state::NO_VOLUME)
}

/// Returns one volume of a partition. For an incomplete volume, the entry has the name of the header file
/// that OpenAFS would have, and shows that it cannot be attached.
fn one<T: Entry>(server: &VolumeServer, partition: i32, id: u32) -> Result<Vec<T>, AbortCode> {
    let partition = server.partition(partition)?;
    let volume = server.volumes().find_on(VolumeId(id), partition).map_err(|_| ENODEV)?;
    if server.transactions().attached().contains(&(VolumeId(id), partition)) {
        return Ok(vec![busy_entry(VolumeId(id))]);
    }
    let unfinished = || T::bare(VolumeId(id), format!("V{id:010}.vol").into(), 0);
    let header = volume.header();
    let header = VolumeHeader { id: header.number(), ..header };
    let listed = Listed { header, state: volume.state() };
    Ok(vec![entry(&listed, server.now()).unwrap_or_else(unfinished)])
}

fn busy_entry<T: Entry>(id: VolumeId) -> T {
    T::bare(id, XdrString::default(), volume_state::BUSY)
}

/// Returns the full entry of a volume; `None` if it is to be destroyed.
fn entry<T: Entry>(listed: &Listed, now: UnixTime) -> Option<T> {
    let header = &listed.header;
    let in_use = header.in_service && header.blessed && listed.state == VolumeState::Online;
    (header.destroy_me != DESTROY_ME).then(|| T::of(header, in_use, now))
}

/// Returns the status of a transaction's volume (AFSVolGetStatus).
pub(crate) fn status(header: &VolumeHeader) -> VolserStatus {
    VolserStatus {
        volume_id: header.number().0,
        next_unique: header.next_unique as i32,
        volume_type: header.kind as i32,
        parent_id: header.parent.0,
        clone_id: header.clone.0,
        backup_id: header.backup.0,
        restored_from_id: header.restored_from.0,
        max_quota: clamped(header.quota_max_kib),
        min_quota: clamped(header.quota_min_kib),
        owner: header.owner,
        creation_date: header.created.0,
        access_date: header.accessed.0,
        update_date: header.updated.0,
        expiration_date: header.expires.0,
        backup_date: header.backed_up.0,
        copy_date: header.copied.0,
    }
}

fn day_use(header: &VolumeHeader, now: UnixTime) -> i32 {
    let is_over = now.0.saturating_sub(header.day_use_date.0) > DAY_SECONDS;
    if is_over { 0 } else { clamped(u64::from(header.day_use)) }
}

/// Converts to a signed word, saturating.
fn clamped(number: u64) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}
