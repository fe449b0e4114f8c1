//! Recognises read-only volumes on other servers that already have the contents of a release.
//!
//! `vos release` sends every site the changes since the site's last update, even if there are none. The dump then
//! still has a record for each vnode, and the site compares each with what it has. If the dates prove that the site's
//! contents are those of the release, its creation date is set, and nothing is sent: the cost does not depend on
//! the number of files.
//!
//! # Proof
//! The read-write volume is on this server and was changed here. So its update date is that of its last change, which
//! is not before the date of any clone made before it, whatever the clock says (`VolumeHeader::dated`). The site's
//! contents were cloned from it after the update date that they have, so any change that they lack would have given the
//! release another update date.
//!
//! Contents that were restored or moved here have dates that another server assigned, and may have been exchanged for
//! others with the same date. They are always sent.

use crate::listing;
use crate::server::VolumeServer;
use afs_idl::ClientConnection;
use afs_idl::vol::{self, RestoreCookie, VolserStatus, volume_type};
use base::{AbortCode, UnixTime, VolumeType};
use volume::{Volume, VolumeHeader};

/// Minimum time from the last change to the clone, in seconds. Dates of OpenAFS's servers may differ by one from the
/// order of events.
const SLACK_SECONDS: u32 = 2;

/// Brings a site's volume to the release `source` if only its creation date differs; returns whether that was so.
/// `vnodes` is the number of files and directories that the site reported.
pub(crate) fn is_brought_up_to_date(
    server: &VolumeServer,
    source: &Volume,
    cookie: &RestoreCookie,
    site: (&dyn ClientConnection, i32),
    vnodes: u64,
) -> Result<bool, AbortCode> {
    let (header, (way, transaction)) = (source.header(), site);
    let is_release = header.kind == VolumeType::ReadOnly && cookie.volume_type == volume_type::READ_ONLY;
    if !is_release || vnodes == 0 || vnodes != header.file_count || !is_dated_here(server, &header) {
        return Ok(false);
    }
    let status = vol::get_status(way, &vol::GetStatusRequest { transaction })?.status;
    let name = vol::get_name(way, &vol::GetNameRequest { transaction })?.name;
    if name != cookie.name || !has_contents(&header, &status, cookie.clone_id) {
        return Ok(false);
    }
    vol::set_date(way, &vol::SetDateRequest { transaction, new_date: header.created.0 })?;
    Ok(true)
}

/// Returns whether the update date of a clone was assigned by this server, to a change of the read-write volume.
fn is_dated_here(server: &VolumeServer, clone: &VolumeHeader) -> bool {
    let Ok(volume) = server.volumes().get_any_state(clone.parent) else { return false };
    let header = volume.header();
    // Restores raise this number, and so does each change.
    let is_restored = header.restored_at == Some(volume.changes());
    header.kind == VolumeType::ReadWrite && header.updated == clone.updated && !is_restored
}

/// Returns whether a site has the contents of the release with this header, and a header that differs only in dates
/// that do not describe contents.
fn has_contents(release: &VolumeHeader, site: &VolserStatus, clone_id: u32) -> bool {
    let wanted = listing::status(release);
    let after = |date: UnixTime| date.0.saturating_add(SLACK_SECONDS);
    let is_cloned_later = (after(release.updated) + 1..=release.created.0).contains(&site.creation_date);
    let facts = |status: &VolserStatus| {
        (status.update_date, status.next_unique, status.max_quota, status.min_quota, status.owner)
    };
    is_cloned_later
        && site.volume_type == volume_type::READ_ONLY
        && site.clone_id == clone_id
        && site.expiration_date == wanted.expiration_date
        && facts(site) == facts(&wanted)
}
