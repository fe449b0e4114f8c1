//! SplitVolume: a directory becomes the root of another volume, and a mount point replaces it.
//!
//! 1. The plan is recorded durably.
//! 2. Everything below the directory is copied to the new volume, and taken into use there atomically.
//! 3. One change of the old volume gives the directory's name to the mount point, and another name to the
//!    directory.
//! 4. The directory is removed, some names at a time; then the record is deleted.
//!
//! After an interruption, at the next start or half a minute later, the old volume shows whether the third
//! step was done. If so the fourth is continued, a limited number of names at a time; otherwise the new
//! volume is emptied again. So all files are always reachable under their names. The reply is text for
//! display, followed by zeros (`split_volume` of OpenAFS's `volser/vol_split.c`).

use crate::codes::{self, EINVAL, ENOENT, EPERM};
use crate::creating::begin;
use crate::server::{VolumeServer, note_volume};
use crate::transactions::Use;
use afs_idl::CallStream;
use afs_idl::vol::{self, attach_mode};
use base::{AbortCode, CallContext, Fid, PartitionId, UserId, VnodeId, VolumeId, VolumeType};
use bytes::Bytes;
use std::sync::Arc;
use tracing::{info, warn};
use volume::{Actor, FileKind, Split, Splitting, VnodeStatus, Volume, VolumeError, VolumeHeader};

/// Next uniquifier of a volume in which no vnode was ever created.
const FIRST_UNIQUE: u32 = 2;

/// Names of a leftover directory removed in one round.
pub(crate) const STEP_NAMES: usize = 20_000;

/// The directory to split off, and its location.
#[derive(Clone)]
pub(crate) struct Plan {
    pub(crate) volume: Arc<Volume>,
    pub(crate) new: Arc<Volume>,
    /// Status of the directory.
    pub(crate) directory: VnodeStatus,
    pub(crate) parent: Fid,
    pub(crate) name: Vec<u8>,
}

/// Reports progress to the caller.
struct Report<'a> {
    stream: &'a mut dyn CallStream,
    is_verbose: bool,
}

impl Report<'_> {
    fn say(&mut self, text: &str) -> Result<(), AbortCode> {
        self.stream.write(Bytes::from(format!("{text}\n")))
    }

    fn step(&mut self, text: &str) -> Result<(), AbortCode> {
        if self.is_verbose { self.say(text) } else { Ok(()) }
    }

    /// Reports why nothing is done.
    fn refuse(&mut self, why: &str, code: AbortCode) -> AbortCode {
        let said = self.say(&format!("{why}, aborted."));
        let ended = said.and_then(|()| self.stream.write(Bytes::from_static(&[0])));
        ended.err().unwrap_or(code)
    }
}

impl VolumeServer {
    /// SplitVolume: splits a directory off into another volume.
    pub(crate) fn split_volume(
        &self,
        caller: &CallContext<'_>,
        request: vol::SplitVolumeRequest,
        stream: &mut dyn CallStream,
    ) -> Result<vol::SplitVolumeReply, AbortCode> {
        self.administer(caller, "SplitVolume").map_err(|_| EPERM)?;
        let find = |id| self.volumes().get_any_state(VolumeId(id)).map_err(|error| codes::of(&error));
        let (volume, new) = (find(request.volume_id)?, find(request.new_volume_id)?);
        let mut report = Report { stream, is_verbose: request.verbose != 0 };
        check(&volume, &new).map_err(|why| report.refuse(&why, EINVAL))?;
        let open = |volume: &Arc<Volume>| {
            let used = begin(self, volume.id(), volume.partition(), attach_mode::BUSY, "SplitVolume")?;
            used.attach(volume);
            Ok(used)
        };
        note_volume(caller, volume.id());
        let first = open(&volume).map_err(|code| report.refuse("The volume is in use", code))?;
        let second = match open(&new) {
            Ok(second) => second,
            Err(code) => {
                first.end();
                return Err(report.refuse("The new volume is in use", code));
            }
        };
        let done = split_open(self, &volume, &second, VnodeId(request.vnode), &mut report);
        first.end();
        second.end();
        self.file_service().volume_changed(volume.id());
        self.file_service().volume_changed(new.id());
        done.map(|()| vol::SplitVolumeReply)
    }
}

/// Checks that the volumes are suitable; the error says why not.
fn check(volume: &Volume, new: &Volume) -> Result<(), String> {
    let (one, other) = (volume.id(), new.id());
    if volume.partition() != new.partition() {
        return Err(format!("Volumes {one} and {other} are not on the same partition"));
    }
    if volume.kind() != VolumeType::ReadWrite || new.kind() != VolumeType::ReadWrite {
        return Err(format!("Volumes {one} and {other} are not both read-write"));
    }
    if one == other || new.header().next_unique != FIRST_UNIQUE {
        return Err(format!("Volume {other} is not freshly created"));
    }
    Ok(())
}

fn split_open(
    server: &VolumeServer,
    volume: &Arc<Volume>,
    used: &Use<'_>,
    vnode: VnodeId,
    report: &mut Report<'_>,
) -> Result<(), AbortCode> {
    let new = used.volume().ok_or(ENOENT)?;
    let Some(plan) = plan(volume, &new, vnode)? else {
        return Err(report.refuse(&format!("There is no directory {} below another one", vnode.0), ENOENT));
    };
    let noted = note(server, &plan)?;
    let done = split_noted(server, &plan, used, &noted, report);
    if done.is_err() {
        // The remaining work is the same as after a restart.
        settle(server, &noted, volume.partition(), usize::MAX);
        if let Ok(new) = server.volumes().get_any_state(noted.new) {
            used.attach(&new);
        }
    }
    done
}

fn split_noted(
    server: &VolumeServer,
    plan: &Plan,
    used: &Use<'_>,
    noted: &Splitting,
    report: &mut Report<'_>,
) -> Result<(), AbortCode> {
    let (volume, new) = (&plan.volume, &plan.new);
    let name = base::text::escape(&plan.name);
    report.step(&format!("copying \"{name}\" and what lies below it"))?;
    used.attach(&copy(server, plan)?);
    report.step(&format!("putting a mount point in the place of \"{name}\""))?;
    replace(server, plan, noted)?;
    report.step("removing what was copied")?;
    clear(server, volume, noted, usize::MAX)?;
    server.volumes().forget_splitting(noted, volume.partition()).map_err(|error| codes::of(&error))?;
    info!(volume = %volume.id(), new = %new.id(), name, "a directory is split off into a volume");
    report.say("Finished!")?;
    report.stream.write(Bytes::from_static(&[0; 4]))
}

/// Returns the plan for a directory; `None` if the vnode is not a directory or is the root.
pub(crate) fn plan(
    volume: &Arc<Volume>,
    new: &Arc<Volume>,
    vnode: VnodeId,
) -> Result<Option<Plan>, AbortCode> {
    let code = |error| codes::of(&error);
    let mut found = None;
    volume
        .vnodes(vnode, &mut |status| {
            found = Some(*status).filter(|status| status.vnode == vnode);
            false
        })
        .map_err(code)?;
    let Some(directory) = found.filter(|found| found.kind == FileKind::Directory) else { return Ok(None) };
    let parent = Fid { volume: volume.id(), vnode: directory.parent, unique: directory.parent_unique };
    if vnode == VnodeId::ROOT || parent.vnode == VnodeId(0) {
        return Ok(None);
    }
    let mut name = None;
    volume
        .entries(parent, &mut |entry, target| {
            if target.vnode == vnode && !matches!(entry, b"." | b"..") {
                name = Some(entry.to_vec());
            }
        })
        .map_err(code)?;
    let (volume, new) = (Arc::clone(volume), Arc::clone(new));
    Ok(name.map(|name| Plan { volume, new, directory, parent, name }))
}

fn actor(server: &VolumeServer, owner: UserId) -> Actor {
    Actor { user: owner, privileged: true, in_transaction: true, call: None, now: server.now() }
}

/// Performs the first step.
pub(crate) fn note(server: &VolumeServer, plan: &Plan) -> Result<Splitting, AbortCode> {
    let directory = plan.directory.fid(plan.volume.id());
    let owner = plan.directory.owner;
    let noted = plan.new.split_of(directory, plan.parent, plan.name.clone(), owner);
    server.volumes().note_splitting(&noted).map_err(|error| codes::of(&error))?;
    Ok(noted)
}

/// Performs the second step.
pub(crate) fn copy(server: &VolumeServer, plan: &Plan) -> Result<Arc<Volume>, AbortCode> {
    let code = |error| codes::of(&error);
    let volumes = server.volumes();
    let mut copy = volumes.restore(plan.new.id()).map_err(code)?;
    copy.take_over_tree(&plan.volume, plan.directory.fid(plan.volume.id())).map_err(code)?;
    let (old, new) = (plan.volume.header(), plan.new.header());
    let header = VolumeHeader {
        next_unique: old.next_unique,
        quota_max_kib: old.quota_max_kib,
        updated: server.now(),
        ..new
    };
    copy.finish(volumes, header, server.now()).map_err(code)
}

/// Performs the third step.
pub(crate) fn replace(server: &VolumeServer, plan: &Plan, noted: &Splitting) -> Result<(), AbortCode> {
    let text = format!("#{}.", plan.new.header().name);
    let (actor, aside) = (actor(server, noted.owner), noted.aside());
    let mounted = plan.volume.mount_over(&actor, plan.parent, &plan.name, &aside, text.as_bytes());
    mounted.map(drop).map_err(|error| codes::of(&error))
}

/// Performs the last step, or part of it; returns whether nothing is left. The replacement is durable before
/// anything is removed.
pub(crate) fn clear(
    server: &VolumeServer,
    volume: &Volume,
    noted: &Splitting,
    most: usize,
) -> Result<bool, AbortCode> {
    let (actor, aside) = (actor(server, noted.owner), noted.aside());
    server.volumes().note_replaced(noted).map_err(|error| codes::of(&error))?;
    volume.remove_tree(&actor, noted.parent, &aside, most).map_err(|error| codes::of(&error))
}

/// Completes or undoes recorded splits that are not in progress, removing at most about `most` names.
pub(crate) fn go_on(server: &VolumeServer, most: usize) {
    for partition in server.volumes().partitions() {
        match server.volumes().splittings(partition) {
            Ok(noted) => noted.iter().for_each(|noted| go_on_with(server, noted, partition, most)),
            Err(error) => warn!(%partition, %error, "cannot read the list of splits"),
        }
    }
}

fn go_on_with(server: &VolumeServer, noted: &Splitting, partition: PartitionId, most: usize) {
    // A split in progress has a transaction on the volume.
    let Ok(used) = begin(server, noted.volume, partition, 0, "SplitVolume") else { return };
    settle(server, noted, partition, most);
    used.end();
}

fn settle(server: &VolumeServer, noted: &Splitting, partition: PartitionId, most: usize) {
    match finish_or_undo(server, noted, partition, most) {
        Ok(true) => {
            info!(volume = %noted.volume, new = %noted.new, "an interrupted split was completed or undone");
            server.file_service().volume_changed(noted.volume);
        }
        Ok(false) => {}
        Err(code) => {
            warn!(volume = %noted.volume, %code, "an interrupted split is left for later");
        }
    }
}

/// Completes or undoes a split; returns whether nothing is left to do.
fn finish_or_undo(
    server: &VolumeServer,
    noted: &Splitting,
    partition: PartitionId,
    most: usize,
) -> Result<bool, AbortCode> {
    let code = |error| codes::of(&error);
    let volumes = server.volumes();
    match volumes.get_any_state(noted.volume) {
        // The volume was deleted, or has moved to another server.
        Err(VolumeError::NoVolume(_)) => {}
        Ok(volume) if volume.partition() != partition => {}
        Err(error) => return Err(code(error)),
        Ok(volume) => match volume.split_state(noted).map_err(code)? {
            Split::Replaced => {
                if !clear(server, &volume, noted, most)? {
                    return Ok(false);
                }
            }
            Split::InPlace => {
                volumes.undo_copy(noted).map_err(code)?;
                server.file_service().volume_changed(noted.new);
            }
            Split::Gone => {}
        },
    }
    volumes.forget_splitting(noted, partition).map_err(code)?;
    Ok(true)
}
