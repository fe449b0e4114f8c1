//! Restore.
//!
//! The new contents are built separately and replace the old ones at the end of a valid dump; until then, and
//! after any error, the volume is unchanged. OpenAFS overwrites the volume while reading.

use crate::creating::{kind, volume_name};
use crate::dumping::refused;
use crate::references::{FileData, References};
use crate::server::VolumeServer;
use crate::transactions::Use;
use afs_format::dump::{DumpError, DumpVolume, DumpedVnode, Item, Reader, VnodeAttributes};
use afs_idl::CallStream;
use afs_idl::vol::{self, RestoreCookie};
use base::{AbortCode, CallContext, UnixTime, UserId, VnodeId, VolumeId, VolumeName, VolumeType};
use bytes::Bytes;
use std::sync::Arc;
use tracing::{info, warn};
use volume::{FileKind, Restoration, VnodeStatus, Volume, VolumeError, VolumeHeader};

/// Checked properties of the restored volume.
struct Wanted {
    name: VolumeName,
    kind: VolumeType,
    clone: VolumeId,
}

impl VolumeServer {
    /// Restore. The dump itself shows whether it is incremental: a vnode that the dump lists by number only is
    /// kept, a vnode that it does not list is deleted.
    pub(crate) fn restore(
        &self,
        caller: &CallContext<'_>,
        request: vol::RestoreRequest,
        stream: &mut dyn CallStream,
    ) -> Result<vol::RestoreReply, AbortCode> {
        let (used, volume) = self.change(caller, request.transaction, "Restore")?;
        let restoration = self.volumes().restore(volume.id()).map_err(|error| refused(&error))?;
        let parts = (stream, &References::default());
        restore_parts(self, &used, restoration, &request.cookie, parts).map_err(|(code, _)| code)?;
        Ok(vol::RestoreReply)
    }
}

/// Restores a volume from a dump, in which data may be references; if the stream fails, the error includes what has been
/// built.
pub(crate) fn restore_parts(
    server: &VolumeServer,
    used: &Use<'_>,
    restoration: Restoration,
    cookie: &RestoreCookie,
    (stream, references): (&mut dyn CallStream, &References),
) -> Result<(), (AbortCode, Option<Box<Restoration>>)> {
    let whole = |code| (code, None);
    let wanted = Wanted {
        name: volume_name(&cookie.name).map_err(whole)?,
        kind: kind(cookie.volume_type).map_err(whole)?,
        clone: VolumeId(cookie.clone_id),
    };
    let id = restoration.target().id();
    let mut restoration = Box::new(restoration);
    let dumped = match read(&mut restoration, stream, references) {
        Ok(dumped) => dumped,
        Err(failure) => {
            let was_cut_off = matches!(failure, Failure::Dump(DumpError::Source(_)));
            return Err((failure.report(id), was_cut_off.then_some(restoration)));
        }
    };
    let header = header(dumped, &restoration.target().header(), wanted);
    let restored = restoration.finish(server.volumes(), header, server.now());
    let restored: Arc<Volume> = restored.map_err(|error| whole(Failure::Volume(error, 0).report(id)))?;
    used.attach(&restored);
    info!(volume = %used.volume_id(), "a volume is restored");
    server.file_service().volume_changed(used.volume_id());
    Ok(())
}

/// Why a dump was rejected.
enum Failure {
    Dump(DumpError<AbortCode>),
    /// An error of the volume at this offset in the dump.
    Volume(VolumeError, u64),
}

impl From<DumpError<AbortCode>> for Failure {
    fn from(error: DumpError<AbortCode>) -> Failure {
        Failure::Dump(error)
    }
}

impl Failure {
    fn report(self, volume: VolumeId) -> AbortCode {
        match self {
            Failure::Dump(error) => {
                warn!(%volume, %error, "a dump is refused; the volume stays as it was");
                match error {
                    DumpError::Source(code) => code,
                    _ => AbortCode::VOLSERREAD_DUMPERROR,
                }
            }
            Failure::Volume(error, offset) => {
                warn!(%volume, %error, offset, "a dump is refused; the volume stays as it was");
                refused(&error)
            }
        }
    }
}

/// Reads a whole dump; returns the volume's header.
fn read(
    restoration: &mut Restoration,
    stream: &mut dyn CallStream,
    references: &References,
) -> Result<DumpVolume, Failure> {
    let (mut reader, _) = Reader::open(|most| stream.read_chunk(most))?;
    let mut header = None;
    loop {
        match reader.next_item()? {
            Item::Volume(volume) => header = Some(*volume),
            Item::Vnode(vnode) if header.is_some() => put(restoration, &vnode, &mut reader, references)?,
            Item::End if header.is_some() && references.is_empty() => break,
            Item::Vnode(_) | Item::End => return Err(reader.damaged("a volume header first").into()),
        }
    }
    let more = reader.damaged("the end of the transfer");
    if references.has_end && !stream.read_chunk(1).map_err(DumpError::Source)?.is_empty() {
        return Err(more.into());
    }
    Ok(header.unwrap_or_default())
}

fn put<F: FnMut(usize) -> Result<Bytes, AbortCode>>(
    restoration: &mut Restoration,
    vnode: &DumpedVnode,
    reader: &mut Reader<F>,
    references: &References,
) -> Result<(), Failure> {
    let offset = reader.offset();
    let failed = |error| Failure::Volume(error, offset);
    let Some(attributes) = &vnode.attributes else {
        return restoration.keep(VnodeId(vnode.vnode), vnode.unique).map_err(failed);
    };
    let status = status(vnode, attributes).ok_or_else(|| reader.damaged("a vnode of a known type"))?;
    if !status.is_directory() {
        let mut data = FileData::new(reader, references);
        let stored = restoration.file(status, &mut data);
        return match data.failure {
            Some(error) => Err(error.into()),
            None => stored.map_err(failed),
        };
    }
    let acl = attributes.acl.clone().ok_or_else(|| reader.damaged("a directory's access list"))?;
    let blob = reader.directory(vnode)?;
    restoration.directory(status, acl, &blob).map_err(failed)
}

fn status(vnode: &DumpedVnode, a: &VnodeAttributes) -> Option<VnodeStatus> {
    Some(VnodeStatus {
        vnode: VnodeId(vnode.vnode),
        unique: vnode.unique,
        kind: FileKind::from_wire(a.kind)?,
        mode: a.mode & 0o7777,
        owner: UserId(a.owner as i32),
        group: a.group as i32,
        links: a.links.into(),
        length: a.length.unwrap_or(0),
        data_version: a.data_version.into(),
        client_modified: a.client_modified,
        server_modified: a.server_modified,
        author: UserId(a.author as i32),
        parent: VnodeId(a.parent),
        parent_unique: 0,
    })
}

/// Returns the new header: that of the dump, except for the fields of this copy of the volume: its id and
/// parent, the creation of the copy, and its use.
fn header(dumped: DumpVolume, old: &VolumeHeader, wanted: Wanted) -> VolumeHeader {
    // A parked volume stays incomplete until SetFlags changes that, because it may soon take another volume's
    // place.
    let is_apart = old.number() != old.id;
    let none = VolumeId(0);
    let (clone, backup) =
        if wanted.kind == VolumeType::ReadWrite { (old.clone, old.backup) } else { (none, none) };
    VolumeHeader {
        id: old.id,
        name: wanted.name,
        kind: wanted.kind,
        parent: old.parent,
        clone: if wanted.clone == none { clone } else { wanted.clone },
        backup,
        restored_from: none,
        owner: dumped.owner as i32,
        account: dumped.account,
        in_service: dumped.in_service != 0 && !is_apart,
        blessed: dumped.blessed != 0,
        destroy_me: if is_apart { old.destroy_me } else { 0 },
        quota_max_kib: dumped.quota_max_kib.into(),
        quota_min_kib: dumped.quota_min_kib.into(),
        created: dumped.created,
        accessed: dumped.accessed,
        updated: dumped.updated,
        expires: dumped.expires,
        backed_up: dumped.backed_up,
        copied: old.copied,
        file_count: 0,
        directory_count: 0,
        used_kib: 0,
        next_unique: dumped.next_unique,
        update_counter: 0,
        day_use: old.day_use,
        day_use_date: UnixTime(old.day_use_date.0),
        week_use: old.week_use,
        offline_message: dumped.offline_message,
        message_of_the_day: dumped.message_of_the_day,
        compression: old.compression,
        deduplicates: old.deduplicates,
        snapshot: None,
        stands_for: old.stands_for,
        unseen: old.unseen,
        // A move first sends a clone, which has a date no earlier than any previous clone.
        dated: old.dated.max(dumped.created),
        restored_at: None,
    }
}
