//! Who calls, as access lists see it.

use ahash::RandomState;
use base::{AbortCode, Caller, LocalAuthority, Monotonic, UserId};
use events::current;
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
    /// Something could not be learned and was taken to be nothing: ask again soon.
    pub is_partial: bool,
}

impl Subject {
    /// Whether the caller is `id`, or a member of it.
    pub fn is(&self, id: UserId) -> bool {
        self.groups.contains(&id)
    }
}

/// The protection database as the file service needs it.
pub trait Membership: Send + Sync {
    /// Who a caller is. An error refuses the call: a caller that is known by name is never taken for
    /// somebody else because the database does not answer.
    fn subject(&self, caller: &Caller) -> Result<Subject, AbortCode>;

    /// The names for ids in an access list, one for each; the decimal number where there is none.
    fn names(&self, ids: &[UserId]) -> Result<Vec<Vec<u8>>, AbortCode>;

    /// The ids of names in an access list, one for each.
    fn ids(&self, names: &[&[u8]]) -> Result<Vec<Option<UserId>>, AbortCode>;

    /// Forgets what was remembered about the groups of hosts (RXAFS_FlushCPS).
    fn forget_hosts(&self) {}
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
        let superuser = actor.superuser;
        Ok(Subject { user: actor.id, groups, host_groups, administrator, superuser, is_partial: false })
    }

    fn names(&self, ids: &[UserId]) -> Result<Vec<Vec<u8>>, AbortCode> {
        let name = |id: &UserId| {
            let name = self.protection.name_of_id(*id).map_err(|error| unreadable(&error))?;
            Ok(name.unwrap_or_else(|| id.0.to_string().into_bytes()))
        };
        ids.iter().map(name).collect()
    }

    fn ids(&self, names: &[&[u8]]) -> Result<Vec<Option<UserId>>, AbortCode> {
        let id = |name: &&[u8]| self.protection.id_of_name(&name.to_ascii_lowercase());
        names.iter().map(|name| id(name).map_err(|error| unreadable(&error))).collect()
    }
}

/// What could not be asked, or not all of it, is asked again after this time.
const RETRY: Duration = Duration::from_secs(5);

/// Subjects of connections, remembered for a while. A connection's caller never changes, but its
/// groups may.
pub(crate) struct Subjects {
    membership: Arc<dyn Membership>,
    lifetime: Duration,
    connections_max: usize,
    /// Guards the table only; nothing waits under it.
    known: RwLock<HashMap<u64, (Arc<Subject>, Monotonic), RandomState>>,
}

/// Tells the audit who it is.
fn noted(subject: Arc<Subject>) -> Arc<Subject> {
    current::user(subject.user.0);
    subject
}

impl Subjects {
    pub(crate) fn new(
        membership: Arc<dyn Membership>,
        lifetime: Duration,
        connections_max: usize,
    ) -> Subjects {
        Subjects { membership, lifetime, connections_max, known: RwLock::default() }
    }

    /// Who is calling, if it is remembered well enough.
    pub(crate) fn fresh(&self, caller: &Caller, now: Monotonic) -> Option<Arc<Subject>> {
        let known = self.known.read();
        let (subject, until) = known.get(&caller.connection)?;
        (now < *until).then(|| noted(Arc::clone(subject)))
    }

    /// Reads a little of what is remembered of each of these: see [`FileServer::look_ahead`](crate::FileServer::look_ahead).
    pub(crate) fn look_ahead<'a>(&self, callers: impl Iterator<Item = &'a Caller>) -> u64 {
        let known = self.known.read();
        // Each step leads to memory that the one before it tells of: all of one step, then all of the next.
        let found: Vec<_> = callers.filter_map(|caller| known.get(&caller.connection)).collect();
        let users = found
            .iter()
            .fold(0, |seen, (subject, _)| seen ^ subject.user.0 ^ subject.host_groups.len() as i32);
        let groups = found.iter().filter_map(|(subject, _)| subject.groups.first());
        groups.fold(users as u64, |seen, id| seen ^ id.0 as u64)
    }

    /// Who is calling. As in OpenAFS a connection's caller keeps the groups that it had while nobody
    /// can say what they are now.
    pub(crate) fn of(&self, caller: &Caller, now: Monotonic) -> Result<Arc<Subject>, AbortCode> {
        let known = self.known.read().get(&caller.connection).cloned();
        if let Some((subject, until)) = &known
            && now < *until
        {
            return Ok(noted(subject.clone()));
        }
        let (subject, lifetime) = match (self.membership.subject(caller), known) {
            (Ok(subject), _) if subject.is_partial => (Arc::new(subject), RETRY),
            (Ok(subject), _) => (Arc::new(subject), self.lifetime),
            (Err(_), Some((stale, _))) => (stale, RETRY),
            (Err(code), None) => return Err(code),
        };
        self.remember(caller.connection, subject.clone(), now, lifetime.min(self.lifetime));
        Ok(noted(subject))
    }

    fn remember(&self, connection: u64, subject: Arc<Subject>, now: Monotonic, lifetime: Duration) {
        let mut known = self.known.write();
        if known.len() >= self.connections_max {
            known.retain(|_, (_, until)| now < *until);
        }
        if known.len() >= self.connections_max {
            known.clear();
        }
        known.insert(connection, (subject, now + lifetime));
    }

    /// Forgets what is known about users (RXAFS_FlushCPS).
    pub(crate) fn forget_users(&self, users: &[UserId]) {
        self.known.write().retain(|_, (subject, _)| !users.contains(&subject.user));
    }

    /// Forgets everything; host groups are not kept apart.
    pub(crate) fn forget_all(&self) {
        self.membership.forget_hosts();
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
