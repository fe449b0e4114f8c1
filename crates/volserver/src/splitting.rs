//! SplitVolume: a directory becomes the root of another volume, and a mount point takes its place.
//!
//! 1. Everything below the directory is copied into the new volume, which takes it all into use at once.
//!    If that is cut off the new volume is empty as before, or has what the old one still shows too.
//! 2. In one change of the old volume the mount point gets the directory's name, and the directory another
//!    one beside it.
//! 3. The directory is removed, some names at a time. If that is cut off the rest stays under its new name,
//!    and anybody may remove it.
//!
//! So at every moment all files are to be found under their names. What the caller reads meanwhile is text
//! for people, and ends with zeros (`split_volume` of OpenAFS's `volser/vol_split.c`).

use crate::codes::{self, EINVAL, ENOENT, EPERM};
use crate::creating::begin;
use crate::server::VolumeServer;
use crate::transactions::Use;
use afs_idl::CallStream;
use afs_idl::vol::{SplitVolumeRequest, attach_mode};
use base::{AbortCode, Caller, Fid, UserId, VnodeId, VolumeId, VolumeType};
use bytes::Bytes;
use std::sync::Arc;
use tracing::info;
use volume::{Actor, FileKind, VnodeStatus, Volume, VolumeHeader};

/// The next uniquifier of a volume in which nothing was ever made.
const FIRST_UNIQUE: u32 = 2;

/// What is split off, and from where.
#[derive(Clone)]
pub(crate) struct Split {
    pub(crate) volume: Arc<Volume>,
    pub(crate) new: Arc<Volume>,
    /// The directory, and what it is called where.
    pub(crate) directory: VnodeStatus,
    pub(crate) parent: Fid,
    pub(crate) name: Vec<u8>,
}

/// Tells the caller what goes on.
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

    /// Says why nothing is done.
    fn refuse(&mut self, why: &str, code: AbortCode) -> AbortCode {
        let said = self.say(&format!("{why}, aborted."));
        let ended = said.and_then(|()| self.stream.write(Bytes::from_static(&[0])));
        ended.err().unwrap_or(code)
    }
}

/// AFSVolSplitVolume.
pub(crate) fn split(
    server: &VolumeServer,
    caller: &Caller,
    request: SplitVolumeRequest,
    stream: &mut dyn CallStream,
) -> Result<(), AbortCode> {
    server.administer(caller, "SplitVolume").map_err(|_| EPERM)?;
    let find = |id| server.volumes().get_any_state(VolumeId(id)).map_err(|error| codes::of(&error));
    let (volume, new) = (find(request.volume_id)?, find(request.new_volume_id)?);
    let mut report = Report { stream, is_verbose: request.verbose != 0 };
    check(&volume, &new).map_err(|why| report.refuse(&why, EINVAL))?;
    let open = |volume: &Arc<Volume>| {
        let used = begin(server, volume.id(), volume.partition(), attach_mode::BUSY, "SplitVolume")?;
        used.attach(volume);
        Ok(used)
    };
    let first = open(&volume).map_err(|code| report.refuse("The volume is in use", code))?;
    let second = match open(&new) {
        Ok(second) => second,
        Err(code) => {
            first.end();
            return Err(report.refuse("The new volume is in use", code));
        }
    };
    let done = split_open(server, &volume, &second, VnodeId(request.vnode), &mut report);
    first.end();
    second.end();
    server.file_service().volume_changed(volume.id());
    server.file_service().volume_changed(new.id());
    done
}

/// Why these two volumes are no such pair.
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
    let name = String::from_utf8_lossy(&plan.name).into_owned();
    report.step(&format!("copying \"{name}\" and what lies below it"))?;
    used.attach(&copy(server, &plan)?);
    report.step(&format!("putting a mount point in the place of \"{name}\""))?;
    let aside = replace(server, &plan)?;
    report.step("removing what was copied")?;
    clear(server, &plan, &aside)?;
    info!(volume = %volume.id(), new = %new.id(), name, "a directory becomes a volume of its own");
    report.say("Finished!")?;
    report.stream.write(Bytes::from_static(&[0; 4]))
}

/// `None` if the vnode is no directory, or the root.
pub(crate) fn plan(
    volume: &Arc<Volume>,
    new: &Arc<Volume>,
    vnode: VnodeId,
) -> Result<Option<Split>, AbortCode> {
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
    Ok(name.map(|name| Split { volume, new, directory, parent, name }))
}

fn actor(server: &VolumeServer, owner: UserId) -> Actor {
    Actor { user: owner, privileged: true, in_transaction: true, now: server.now() }
}

/// The first step.
pub(crate) fn copy(server: &VolumeServer, plan: &Split) -> Result<Arc<Volume>, AbortCode> {
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
    copy.finish(volumes, header).map_err(code)
}

/// The second one. Gives the directory's new name.
pub(crate) fn replace(server: &VolumeServer, plan: &Split) -> Result<Vec<u8>, AbortCode> {
    // No name of a vnode that is gone, as numbers are given out again.
    let aside = format!(".split.{}.{}", plan.directory.vnode.0, plan.directory.unique).into_bytes();
    let text = format!("#{}.", plan.new.header().name);
    let actor = actor(server, plan.directory.owner);
    let mounted = plan.volume.mount_over(&actor, plan.parent, &plan.name, &aside, text.as_bytes());
    mounted.map_err(|error| codes::of(&error))?;
    Ok(aside)
}

/// The last one.
pub(crate) fn clear(server: &VolumeServer, plan: &Split, aside: &[u8]) -> Result<(), AbortCode> {
    let actor = actor(server, plan.directory.owner);
    plan.volume.remove_tree(&actor, plan.parent, aside).map_err(|error| codes::of(&error))
}
