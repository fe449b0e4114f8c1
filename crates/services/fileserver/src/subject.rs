//! Callers as seen by access lists: users and their groups.

use base::{AbortCode, Caller, Identity, LocalAuthority, Monotonic, UserId};
use parking_lot::Mutex;
use ptdb::{Protection, ProtectionError};
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::time::Duration;

/// A caller with its groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject {
    /// The user; `anonymous` for callers without a token or a database entry.
    pub user: UserId,
    /// The ids that the user acts as (CPS): itself, its groups, system:anyuser.
    pub groups: Vec<UserId>,
    /// Groups that contain the caller's address.
    pub host_groups: Vec<UserId>,
    /// Whether the user is a member of system:administrators.
    pub administrator: bool,
    /// Whether the user administers this server (UserList, `-localauth`).
    pub superuser: bool,
    /// Whether some groups could not be determined and are missing, so that the query should be repeated
    /// soon.
    pub is_partial: bool,
}

impl Subject {
    /// Whether the caller is `id`, or a member of it.
    pub fn is(&self, id: UserId) -> bool {
        self.groups.contains(&id)
    }
}

/// The queries of the protection database that the file service makes.
pub trait Membership: Send + Sync {
    /// Returns the user and groups of a caller. An error refuses the call: a caller with a name is never
    /// treated as another user because the database does not answer.
    fn subject(&self, caller: &Caller) -> Result<Subject, AbortCode>;

    /// Returns the name of each id in an access list, or its decimal number if it has none.
    fn names(&self, ids: &[UserId]) -> Result<Vec<Vec<u8>>, AbortCode>;

    /// Returns the id of each name in an access list.
    fn ids(&self, names: &[&[u8]]) -> Result<Vec<Option<UserId>>, AbortCode>;

    /// Drops cached groups of hosts (RXAFS_FlushCPS).
    fn forget_hosts(&self) {}
}

/// Queries the protection database of this process.
pub struct LocalMembership {
    protection: Arc<Protection>,
    authority: Arc<dyn LocalAuthority>,
}

impl LocalMembership {
    /// Creates an instance that queries `protection`; `authority` knows the users trusted by configuration.
    pub fn new(protection: Arc<Protection>, authority: Arc<dyn LocalAuthority>) -> LocalMembership {
        LocalMembership { protection, authority }
    }
}

/// Returns the code for a database that cannot be read at present, after which clients retry.
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

/// Time after which a failed or partial query is repeated.
const RETRY: Duration = Duration::from_secs(5);

/// Cached subjects of callers. A subject is attached to the caller's connection, is dropped with it, and is
/// reused for a while by the instance that attached it, for the same identity at the same address. A
/// connection's caller never changes, but its groups may.
pub(crate) struct Subjects {
    membership: Arc<dyn Membership>,
    lifetime: Duration,
    shared: Arc<Shared>,
}

/// State shared by the subjects of all connections.
#[derive(Default)]
struct Shared {
    /// Number of connections with an attached subject.
    attached: AtomicUsize,
    /// Number of invalidations.
    forgotten: AtomicU64,
    /// The latest invalidations. The mutex guards only this table, and is taken only after an invalidation.
    log: Mutex<Forgotten>,
}

/// The latest invalidation of all users and of each user, as values of [`Shared::forgotten`].
#[derive(Default)]
struct Forgotten {
    all: u64,
    users: HashMap<UserId, u64>,
}

/// Maximum number of users that are invalidated individually; beyond it all are.
const FORGOTTEN_USERS_MAX: usize = 4096;

/// A subject attached to a connection.
struct Attached {
    subject: Arc<Subject>,
    /// Identity that the subject was determined for.
    identity: Identity,
    peer: SocketAddr,
    until: Monotonic,
    /// Value of [`Shared::forgotten`] before the subject was determined.
    since: u64,
    shared: Arc<Shared>,
}

impl Drop for Attached {
    fn drop(&mut self) {
        self.shared.attached.fetch_sub(1, Relaxed);
    }
}

impl Shared {
    /// Invalidates these users, or all if `None`.
    fn forget(&self, users: Option<&[UserId]>) {
        let mut log = self.log.lock();
        let count = self.forgotten.load(Relaxed) + 1;
        match users {
            Some(users) if log.users.len() + users.len() <= FORGOTTEN_USERS_MAX => {
                log.users.extend(users.iter().map(|user| (*user, count)));
            }
            _ => *log = Forgotten { all: count, users: HashMap::new() },
        }
        self.forgotten.store(count, Release);
    }

    /// Whether a user was invalidated after `since`.
    fn has_forgotten(&self, user: UserId, since: u64) -> bool {
        if self.forgotten.load(Acquire) == since {
            return false;
        }
        let log = self.log.lock();
        log.all > since || log.users.get(&user).is_some_and(|at| *at > since)
    }
}

impl Subjects {
    pub(crate) fn new(membership: Arc<dyn Membership>, lifetime: Duration) -> Subjects {
        Subjects { membership, lifetime, shared: Arc::default() }
    }

    /// Returns the subject attached to the caller's connection, expired or not, if it belongs to this caller
    /// and has not been invalidated.
    fn attached(&self, caller: &Caller) -> Option<Arc<Attached>> {
        let attached: Arc<Attached> = caller.connection.attached()?;
        let is_own = Arc::ptr_eq(&attached.shared, &self.shared);
        let is_caller = attached.peer == caller.peer && attached.identity == caller.identity;
        let is_known = !self.shared.has_forgotten(attached.subject.user, attached.since);
        (is_own && is_caller && is_known).then_some(attached)
    }

    /// Returns the caller's subject if it is cached and has not expired.
    pub(crate) fn fresh(&self, caller: &Caller, now: Monotonic) -> Option<Arc<Subject>> {
        let attached = self.attached(caller)?;
        (now < attached.until).then(|| Arc::clone(&attached.subject))
    }

    /// Prefetches the cached subjects of these callers; see
    /// [`FileServer::prefetch`](crate::FileServer::prefetch).
    pub(crate) fn prefetch<'a>(callers: impl Iterator<Item = &'a Caller>) -> u64 {
        // Each step follows pointers read in the previous one, so it is done for all callers before the next.
        let found: Vec<Arc<Attached>> = callers.filter_map(|caller| caller.connection.attached()).collect();
        let users = found.iter().fold(0, |seen, attached| seen ^ attached.subject.user.0);
        let groups = found.iter().filter_map(|attached| attached.subject.groups.first());
        groups.fold(users as u64, |seen, id| seen ^ id.0 as u64)
    }

    /// Returns the caller's subject. As in OpenAFS, a connection's caller keeps its previous groups while the
    /// current ones cannot be determined.
    pub(crate) fn of(&self, caller: &Caller, now: Monotonic) -> Result<Arc<Subject>, AbortCode> {
        let known = self.attached(caller);
        if let Some(attached) = known.as_ref().filter(|attached| now < attached.until) {
            return Ok(Arc::clone(&attached.subject));
        }
        let since = self.shared.forgotten.load(Acquire);
        let (subject, lifetime) = match (self.membership.subject(caller), known) {
            (Ok(subject), _) if subject.is_partial => (Arc::new(subject), RETRY),
            (Ok(subject), _) => (Arc::new(subject), self.lifetime),
            (Err(_), Some(stale)) => (Arc::clone(&stale.subject), RETRY),
            (Err(code), None) => return Err(code),
        };
        self.attach(caller, Arc::clone(&subject), now + lifetime.min(self.lifetime), since);
        Ok(subject)
    }

    fn attach(&self, caller: &Caller, subject: Arc<Subject>, until: Monotonic, since: u64) {
        self.shared.attached.fetch_add(1, Relaxed);
        caller.connection.attach(Arc::new(Attached {
            subject,
            identity: caller.identity.clone(),
            peer: caller.peer,
            until,
            since,
            shared: Arc::clone(&self.shared),
        }));
    }

    /// Invalidates the subjects of users (RXAFS_FlushCPS).
    pub(crate) fn forget_users(&self, users: &[UserId]) {
        if !users.is_empty() {
            self.shared.forget(Some(users));
        }
    }

    /// Invalidates all subjects, since host groups are not tracked individually.
    pub(crate) fn forget_all(&self) {
        self.membership.forget_hosts();
        self.shared.forget(None);
    }

    /// Returns the number of connections with a subject.
    pub(crate) fn len(&self) -> usize {
        self.shared.attached.load(Relaxed)
    }

    pub(crate) fn membership(&self) -> &dyn Membership {
        &*self.membership
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::{Connection, Principal, SecurityLevel};
    use std::net::Ipv4Addr;
    use std::sync::atomic::AtomicBool;

    /// A database in which a user's name is its id in decimal.
    #[derive(Default)]
    struct Digits {
        is_down: AtomicBool,
    }

    impl Membership for Digits {
        fn subject(&self, caller: &Caller) -> Result<Subject, AbortCode> {
            if self.is_down.load(Relaxed) {
                return Err(AbortCode::VBUSY);
            }
            Ok(Subject {
                user: user_of(caller),
                groups: vec![user_of(caller)],
                host_groups: Vec::new(),
                administrator: false,
                superuser: false,
                is_partial: false,
            })
        }

        fn names(&self, _: &[UserId]) -> Result<Vec<Vec<u8>>, AbortCode> {
            Ok(Vec::new())
        }

        fn ids(&self, _: &[&[u8]]) -> Result<Vec<Option<UserId>>, AbortCode> {
            Ok(Vec::new())
        }
    }

    fn user_of(caller: &Caller) -> UserId {
        match &caller.identity {
            Identity::Anonymous => UserId::ANONYMOUS,
            Identity::Known(principal) => UserId(principal.name.parse().unwrap()),
        }
    }

    fn caller(user: i32, host: u8) -> Caller {
        let name = user.to_string();
        Caller {
            identity: Identity::Known(Principal { name, instance: String::new(), realm: String::new() }),
            level: SecurityLevel::Clear,
            peer: SocketAddr::from(([10, 0, 0, host], 7001)),
            local: Ipv4Addr::LOCALHOST.into(),
            connection: Connection::new(),
        }
    }

    fn subjects() -> (Subjects, Arc<Digits>) {
        let digits = Arc::new(Digits::default());
        (Subjects::new(Arc::clone(&digits) as Arc<dyn Membership>, Duration::from_secs(60)), digits)
    }

    const NOW: Monotonic = Monotonic(0);

    #[test]
    fn a_subject_is_used_for_its_identity_and_peer_only() {
        let (subjects, _) = subjects();
        let ann = caller(1, 1);
        assert_eq!(subjects.of(&ann, NOW).unwrap().user, UserId(1));
        assert_eq!(subjects.fresh(&ann, NOW).unwrap().user, UserId(1));
        let others = [
            Caller { identity: Identity::Anonymous, ..ann.clone() },
            Caller { identity: caller(2, 1).identity, ..ann.clone() },
            Caller { peer: caller(1, 2).peer, ..ann.clone() },
            Caller { connection: Connection::new(), ..ann.clone() },
        ];
        for other in others {
            assert!(subjects.fresh(&other, NOW).is_none(), "{other:?}");
            assert_eq!(subjects.of(&other, NOW).unwrap().user, user_of(&other), "{other:?}");
        }
    }

    #[test]
    fn a_subject_goes_with_its_connection() {
        let (subjects, _) = subjects();
        let callers: Vec<Caller> = (0..10).map(|user| caller(user, 1)).collect();
        for caller in callers.iter().chain(&callers) {
            subjects.of(caller, NOW).unwrap();
        }
        assert_eq!(subjects.len(), 10);
        drop(callers);
        assert_eq!(subjects.len(), 0);
    }

    #[test]
    fn subjects_of_another_server_are_not_believed() {
        let ((first, _), (second, _)) = (subjects(), subjects());
        let ann = caller(1, 1);
        first.of(&ann, NOW).unwrap();
        assert!(second.fresh(&ann, NOW).is_none());
    }

    #[test]
    fn flushed_users_are_looked_up_again() {
        let (subjects, digits) = subjects();
        let (ann, bob) = (caller(1, 1), caller(2, 1));
        let learn = || [&ann, &bob].map(|caller| subjects.of(caller, NOW).is_ok());
        assert_eq!(learn(), [true; 2]);
        digits.is_down.store(true, Relaxed);
        subjects.forget_users(&[UserId(1)]);
        assert_eq!(learn(), [false, true], "nothing stale is used of a flushed user");
        subjects.forget_all();
        assert_eq!(learn(), [false; 2]);
        digits.is_down.store(false, Relaxed);
        assert_eq!(learn(), [true; 2]);
        let many: Vec<UserId> = (10..).take(FORGOTTEN_USERS_MAX).map(UserId).collect();
        subjects.forget_users(&many);
        assert!(subjects.fresh(&ann, NOW).is_some());
        subjects.forget_users(&[UserId(9)]);
        assert!(subjects.fresh(&ann, NOW).is_none(), "too many to remember: everybody is flushed");
    }

    #[test]
    fn stale_groups_are_kept_while_the_database_is_down() {
        let (subjects, digits) = subjects();
        let ann = caller(1, 1);
        subjects.of(&ann, NOW).unwrap();
        digits.is_down.store(true, Relaxed);
        let later = NOW + Duration::from_secs(61);
        assert!(subjects.fresh(&ann, later).is_none());
        assert_eq!(subjects.of(&ann, later).unwrap().user, UserId(1));
        assert!(subjects.of(&caller(2, 1), later).is_err());
    }
}
