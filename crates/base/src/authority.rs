//! What a cell's configuration says about callers: who is trusted whatever the databases say.

use crate::{Caller, Principal};

/// Questions that every service asks of the server's configuration (UserList, krb.conf). The
/// program answers them; services and databases only ask.
pub trait LocalAuthority: Send + Sync {
    /// Whether the caller may administer this server: its principal is in UserList, or it holds a
    /// ticket made with the cell's own key (`-localauth`).
    fn is_superuser(&self, caller: &Caller) -> bool;

    /// Whether the principal's realm counts as this cell, so that its name alone identifies it.
    /// An empty realm always does. The whole principal is given, since krb.excl excepts single
    /// names of a local realm.
    fn is_local_realm(&self, principal: &Principal) -> bool;
}
