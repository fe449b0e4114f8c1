//! What a cell's configuration says about callers: who is trusted whatever the databases say.

use crate::{Caller, Identity, Principal};

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

/// Who may make calls of some kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Access {
    /// All callers, anonymous ones as well.
    #[default]
    Anyone,
    /// Callers whose identity the security class has verified.
    Authenticated,
    /// Callers that may administer the server.
    Administrators,
}

impl Access {
    /// Whether the caller is one of them.
    pub fn allows(self, caller: &Caller, authority: &dyn LocalAuthority) -> bool {
        match self {
            Access::Anyone => true,
            Access::Authenticated => matches!(caller.identity, Identity::Known(_)),
            Access::Administrators => authority.is_superuser(caller),
        }
    }
}
