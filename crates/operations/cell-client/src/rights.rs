//! Checks of the caller's rights that change nothing. Each makes a read-only call that requires the same
//! right as the change.

use super::{CellClient, Interface};
use afs_idl::{cellar, pr};
use base::AbortCode;
use jobs::rights;
use std::net::Ipv4Addr;

/// PRUSERS: the ListEntries flag that selects users.
pub const LIST_USERS: i32 = 1;

impl CellClient {
    /// Checks whether the location servers accept changes from the caller.
    pub fn check_changes_locations(&self) -> Result<(), AbortCode> {
        self.database(Interface::Locations, rights::check_changes_locations)
    }

    /// Checks whether the protection servers treat the caller as an administrator: only administrators may
    /// list all entries (ListEntries).
    pub fn check_changes_users(&self) -> Result<(), AbortCode> {
        let request = pr::ListEntriesRequest { flags: LIST_USERS, start_index: 0 };
        self.database(Interface::Protection, |pr| pr::list_entries(pr, &request)).map(drop)
    }

    /// Checks whether a Cellar server treats the caller as a superuser: only superusers may list slow calls.
    /// Requests none.
    pub fn check_administers(&self, server: Ipv4Addr) -> Result<(), AbortCode> {
        let request = cellar::GetSlowCallsRequest { after: u64::MAX };
        cellar::get_slow_calls(&*self.connection(server, Interface::Cellar), &request).map(drop)
    }
}
