//! Whether the caller may change something, asked without changing anything. Who may do one thing of a kind may do
//! the others of it, too.

use super::{CellClient, Interface};
use afs_idl::{cellar, pr};
use base::AbortCode;
use jobs::rights;
use std::net::Ipv4Addr;

/// PRUSERS, by which ListEntries gives users.
pub const LIST_USERS: i32 = 1;

impl CellClient {
    /// Whether the location servers take changes from the caller.
    pub fn check_changes_locations(&self) -> Result<(), AbortCode> {
        self.database(Interface::Locations, rights::check_changes_locations)
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
