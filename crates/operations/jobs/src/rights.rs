//! Checks, without changing anything, whether the caller may make changes. Permission for one change of a
//! kind implies permission for the others.

use crate::rpc::ENOENT;
use afs_idl::{ClientConnection, vl, vol};
use base::AbortCode;

/// An id that no transaction has; ids start at 1.
const NO_TRANSACTION: i32 = 0;

/// Checks whether a location server accepts changes from the caller. Requesting more volume ids than the
/// server allows in one GetNewVolumeId call fails with VL_BADVOLIDBUMP, or with VL_PERM if the caller has no
/// permission, which is checked first (OpenAFS's `getNewVolumeId` in vlprocs.c, and Cellar's).
///
/// # Errors
/// VL_PERM, or another error of the call.
pub fn check_changes_locations(vl: &dyn ClientConnection) -> Result<(), AbortCode> {
    match vl::get_new_volume_id(vl, &vl::GetNewVolumeIdRequest { bump_count: u32::MAX }) {
        Ok(_) | Err(AbortCode::VL_BADVOLIDBUMP) => Ok(()),
        Err(code) => Err(code),
    }
}

/// Checks whether a volume server accepts changes from the caller. EndTrans of a transaction that never
/// exists fails with ENOENT, or with VOLSERBAD_ACCESS if the caller has no permission, which is checked first
/// (OpenAFS's `VolEndTrans` in volprocs.c, and Cellar's).
///
/// # Errors
/// VOLSERBAD_ACCESS, or another error of the call.
pub fn check_changes_volumes(volumes: &dyn ClientConnection) -> Result<(), AbortCode> {
    match vol::end_trans(volumes, &vol::EndTransRequest { transaction: NO_TRANSACTION }) {
        Ok(_) | Err(ENOENT) => Ok(()),
        Err(code) => Err(code),
    }
}
