//! Trust in callers according to the cell's configuration, independent of the databases.

use crate::{Caller, Identity, Principal};

/// Questions that every service asks about the server's configuration (UserList, krb.conf). The program
/// implements them; services and databases only call them.
pub trait LocalAuthority: Send + Sync {
    /// Whether the caller may administer this server: its principal is in UserList, or it holds a ticket made
    /// with the cell's own key (`-localauth`).
    fn is_superuser(&self, caller: &Caller) -> bool;

    /// Whether the principal's realm counts as this cell, so that its name alone identifies it. An empty
    /// realm always does. The parameter is the whole principal, since krb.excl excludes single names of a
    /// local realm.
    fn is_local_realm(&self, principal: &Principal) -> bool;
}

/// Restricts the callers of some kind of call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Access {
    /// All callers, including anonymous ones.
    #[default]
    Anyone,
    /// Callers whose identity the security class has verified.
    Authenticated,
    /// Callers that may administer the server.
    Administrators,
}

impl Access {
    /// Whether the caller is allowed.
    pub fn allows(self, caller: &Caller, authority: &dyn LocalAuthority) -> bool {
        match self {
            Access::Anyone => true,
            Access::Authenticated => matches!(caller.identity, Identity::Known(_)),
            Access::Administrators => authority.is_superuser(caller),
        }
    }
}
