//! Whether the caller may change something, asked without changing anything. Who may do one thing of a kind may do
//! the others of it, too.

use crate::calls::ENOENT;
use afs_idl::{ClientConnection, vl, vol};
use base::AbortCode;

/// The numbers of transactions begin with 1.
const NO_TRANSACTION: i32 = 0;

/// Whether a location server takes changes from the caller. GetNewVolumeId of more numbers than anybody gets at
/// once ends with VL_BADVOLIDBUMP, but for those who get none with VL_PERM: that comes first (OpenAFS's
/// `getNewVolumeId` in vlprocs.c, and Cellar's).
///
/// # Errors
/// VL_PERM, or how else the call ended.
pub fn check_changes_locations(vl: &dyn ClientConnection) -> Result<(), AbortCode> {
    match vl::get_new_volume_id(vl, &vl::GetNewVolumeIdRequest { bump_count: u32::MAX }) {
        Ok(_) | Err(AbortCode::VL_BADVOLIDBUMP) => Ok(()),
        Err(code) => Err(code),
    }
}

/// Whether a volume server takes changes from the caller. EndTrans of a transaction that there never is ends with
/// ENOENT, but for those who may end none with VOLSERBAD_ACCESS: that comes first (OpenAFS's `VolEndTrans` in
/// volprocs.c, and Cellar's).
///
/// # Errors
/// VOLSERBAD_ACCESS, or how else the call ended.
pub fn check_changes_volumes(volumes: &dyn ClientConnection) -> Result<(), AbortCode> {
    match vol::end_trans(volumes, &vol::EndTransRequest { transaction: NO_TRANSACTION }) {
        Ok(_) | Err(ENOENT) => Ok(()),
        Err(code) => Err(code),
    }
}
