//! Who calls, as access lists see it.

use base::{AbortCode, Caller, LocalAuthority, Monotonic, UserId};
use parking_lot::RwLock;
use ptdb::{Protection, ProtectionError};
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// A caller, as access lists see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject {
    /// The user; `anonymous` for everybody without a token or an entry.
    pub user: UserId,
    /// All that the user is (CPS): itself, its groups, system:anyuser.
    pub groups: Vec<UserId>,
    /// Groups that the caller's address is in.
    pub host_groups: Vec<UserId>,
    /// Member of system:administrators.
    pub administrator: bool,
    /// Administers this server (UserList, `-localauth`).
    pub superuser: bool,
}

impl Subject {
    /// Whether the caller is `id`, or a member of it.
    pub fn is(&self, id: UserId) -> bool {
        self.groups.contains(&id)
    }
}

/// The protection database as the file service needs it.
pub trait Membership: Send + Sync {
    /// Who a caller is.
    fn subject(&self, caller: &Caller) -> Result<Subject, AbortCode>;

    /// The name for an id in an access list; its decimal number if it has none.
    fn name(&self, id: UserId) -> Result<Vec<u8>, AbortCode>;

    /// The id of a name in an access list.
    fn id(&self, name: &[u8]) -> Result<Option<UserId>, AbortCode>;
}

/// The protection database of this process.
pub struct LocalMembership {
    protection: Arc<Protection>,
    authority: Arc<dyn LocalAuthority>,
}

impl LocalMembership {
    /// Answers from `protection`; `authority` says who is trusted by configuration.
    pub fn new(protection: Arc<Protection>, authority: Arc<dyn LocalAuthority>) -> LocalMembership {
        LocalMembership { protection, authority }
    }
}

/// A database that cannot be read now: clients wait and try again.
fn unreadable(error: &ProtectionError) -> AbortCode {
    tracing::error!(%error, "the protection database cannot be read");
    AbortCode::VBUSY
}

impl Membership for LocalMembership {
    fn subject(&self, caller: &Caller) -> Result<Subject, AbortCode> {
        let actor = self.protection.identify(caller, &*self.authority).map_err(|error| unreadable(&error))?;
        let groups = match self.protection.protection_set(actor.id) {
            Err(ProtectionError::NoEntry(_)) => vec![actor.id, UserId::ANYUSER],
            groups => groups.map_err(|error| unreadable(&error))?,
        };
        let host_groups = match caller.peer.ip() {
            IpAddr::V4(host) => {
                self.protection.host_protection_set(host).map_err(|error| unreadable(&error))?
            }
            IpAddr::V6(_) => Vec::new(),
        };
        let administrator = groups.contains(&UserId::ADMINISTRATORS);
        Ok(Subject { user: actor.id, groups, host_groups, administrator, superuser: actor.superuser })
    }

    fn name(&self, id: UserId) -> Result<Vec<u8>, AbortCode> {
        let name = self.protection.name_of_id(id).map_err(|error| unreadable(&error))?;
        Ok(name.unwrap_or_else(|| id.0.to_string().into_bytes()))
    }

    fn id(&self, name: &[u8]) -> Result<Option<UserId>, AbortCode> {
        self.protection.id_of_name(&name.to_ascii_lowercase()).map_err(|error| unreadable(&error))
    }
}

/// Subjects of connections, remembered for a while. A connection's caller never changes, but its
/// groups may.
pub(crate) struct Subjects {
    membership: Arc<dyn Membership>,
    lifetime: Duration,
    connections_max: usize,
    /// Guards the table only; nothing waits under it.
    known: RwLock<HashMap<u64, (Arc<Subject>, Monotonic)>>,
}

impl Subjects {
    pub(crate) fn new(
        membership: Arc<dyn Membership>,
        lifetime: Duration,
        connections_max: usize,
    ) -> Subjects {
        Subjects { membership, lifetime, connections_max, known: RwLock::default() }
    }

    /// Who is calling.
    pub(crate) fn of(&self, caller: &Caller, now: Monotonic) -> Result<Arc<Subject>, AbortCode> {
        if let Some((subject, until)) = self.known.read().get(&caller.connection)
            && now < *until
        {
            return Ok(subject.clone());
        }
        let subject = Arc::new(self.membership.subject(caller)?);
        self.remember(caller.connection, subject.clone(), now);
        Ok(subject)
    }

    fn remember(&self, connection: u64, subject: Arc<Subject>, now: Monotonic) {
        let mut known = self.known.write();
        if known.len() >= self.connections_max {
            known.retain(|_, (_, until)| now < *until);
        }
        if known.len() >= self.connections_max {
            known.clear();
        }
        known.insert(connection, (subject, now + self.lifetime));
    }

    /// Forgets what is known about users (RXAFS_FlushCPS).
    pub(crate) fn forget_users(&self, users: &[UserId]) {
        self.known.write().retain(|_, (subject, _)| !users.contains(&subject.user));
    }

    /// Forgets everything; host groups are not kept apart.
    pub(crate) fn forget_all(&self) {
        self.known.write().clear();
    }

    /// How many connections are remembered.
    pub(crate) fn len(&self) -> usize {
        self.known.read().len()
    }

    pub(crate) fn membership(&self) -> &dyn Membership {
        &*self.membership
    }
}
