//! Whether the caller may change something, asked without changing anything. Who may do one thing of a kind may do
//! the others of it, too.

use super::{CellClient, Interface};
use afs_idl::{cellar, pr, vl};
use base::AbortCode;
use std::net::Ipv4Addr;

/// PRUSERS, by which ListEntries gives users.
pub const LIST_USERS: i32 = 1;

impl CellClient {
    /// Whether the location servers take changes from the caller. GetNewVolumeId of more numbers than anybody gets at
    /// once ends with VL_BADVOLIDBUMP, but for those who get none with VL_PERM: that comes first (OpenAFS's
    /// `getNewVolumeId` in vlprocs.c, and Cellar's).
    pub fn check_changes_locations(&self) -> Result<(), AbortCode> {
        let request = vl::GetNewVolumeIdRequest { bump_count: u32::MAX };
        match self.database(Interface::Locations, |vl| vl::get_new_volume_id(vl, &request)) {
            Ok(_) | Err(AbortCode::VL_BADVOLIDBUMP) => Ok(()),
            Err(code) => Err(code),
        }
    }

    /// Whether the caller is an administrator to the protection servers: those alone see all entries (ListEntries).
    pub fn check_changes_users(&self) -> Result<(), AbortCode> {
        let request = pr::ListEntriesRequest { flags: LIST_USERS, start_index: 0 };
        self.database(Interface::Protection, |pr| pr::list_entries(pr, &request)).map(drop)
    }

    /// Whether the caller is a superuser to one of Cellar's servers: those alone see slow calls. None are asked for.
    pub fn check_administers(&self, server: Ipv4Addr) -> Result<(), AbortCode> {
        let request = cellar::GetSlowCallsRequest { after: u64::MAX };
        cellar::get_slow_calls(&*self.connection(server, Interface::Cellar), &request).map(drop)
    }
}
