//! Totals of directories.

use crate::AdminServer;
use afs_idl::cellar::{
    DirectoryTotals, GetDirectoryTotalsReply, GetDirectoryTotalsRequest, ListSubdirectoriesReply,
    ListSubdirectoriesRequest, SUBDIRECTORIES_MAX, Subdirectory,
};
use base::{AbortCode, CallContext, Fid, VnodeId, VolumeId};
use volume::Totals;

/// A subdirectory: its name, its FID, and its totals or the error for this caller.
pub type Below = (Vec<u8>, Fid, Result<Totals, AbortCode>);

/// Totals of directories, subject to the caller's rights; implemented by the file server.
pub trait DirectoryUsage: Send + Sync {
    /// Returns the totals of a directory, including everything below it.
    ///
    /// # Errors
    /// The code to return to the caller.
    fn totals(&self, caller: &CallContext<'_>, directory: Fid) -> Result<Totals, AbortCode>;

    /// Returns up to `most` subdirectories of a directory whose names come after `after`, and whether there
    /// are more.
    ///
    /// # Errors
    /// The code to return to the caller.
    fn below(
        &self,
        caller: &CallContext<'_>,
        directory: Fid,
        after: &[u8],
        most: usize,
    ) -> Result<(Vec<Below>, bool), AbortCode>;
}

fn fid(volume: u32, vnode: u32, unique: u32) -> Fid {
    Fid { volume: VolumeId(volume), vnode: VnodeId(vnode), unique }
}

fn wire(totals: &Totals) -> DirectoryTotals {
    let Totals { bytes, kib, files, directories } = *totals;
    DirectoryTotals { bytes, kib, files, directories }
}

impl AdminServer {
    /// GetDirectoryTotals (opcode 200).
    pub(crate) fn get_directory_totals(
        &self,
        caller: &CallContext<'_>,
        request: GetDirectoryTotalsRequest,
    ) -> Result<GetDirectoryTotalsReply, AbortCode> {
        let directory = fid(request.volume, request.vnode, request.unique);
        let totals = self.parts.usage.totals(caller, directory)?;
        Ok(GetDirectoryTotalsReply { totals: wire(&totals) })
    }

    /// ListSubdirectories (opcode 201).
    pub(crate) fn list_subdirectories(
        &self,
        caller: &CallContext<'_>,
        request: ListSubdirectoriesRequest,
    ) -> Result<ListSubdirectoriesReply, AbortCode> {
        let directory = fid(request.volume, request.vnode, request.unique);
        let (below, more) = self.parts.usage.below(caller, directory, &request.after, SUBDIRECTORIES_MAX)?;
        let subdirectory = |(name, fid, totals): Below| Subdirectory {
            name,
            vnode: fid.vnode.0,
            unique: fid.unique,
            code: totals.as_ref().err().map_or(0, |code| code.0),
            totals: totals.as_ref().map(wire).unwrap_or_default(),
        };
        let subdirectories = below.into_iter().map(subdirectory).collect();
        Ok(ListSubdirectoriesReply { subdirectories, more: more.into() })
    }
}
