//! Who calls, as access lists see it.

use base::{AbortCode, Caller, Identity, LocalAuthority, Monotonic, UserId};
use events::current;
use parking_lot::Mutex;
use ptdb::{Protection, ProtectionError};
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU64, AtomicUsize};
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

/// Who callers are. What was learnt is attached to the caller's connection, dies with it, and is used again for a while
/// if it was learnt here, for the same identity at the same address. A connection's caller never changes, but its
/// groups may.
pub(crate) struct Subjects {
    membership: Arc<dyn Membership>,
    lifetime: Duration,
    shared: Arc<Shared>,
}

/// What the subjects of all connections share.
#[derive(Default)]
struct Shared {
    /// How many connections have a subject attached.
    attached: AtomicUsize,
    /// How often something was forgotten.
    forgotten: AtomicU64,
    /// Guards the table only; taken after something was forgotten.
    log: Mutex<Forgotten>,
}

/// What was forgotten last, by the count of [`Shared::forgotten`] at that time.
#[derive(Default)]
struct Forgotten {
    all: u64,
    users: HashMap<UserId, u64>,
}

/// Users that are forgotten one by one; with more of them everybody is.
const FORGOTTEN_USERS_MAX: usize = 4096;

/// A subject as it is attached to a connection.
struct Attached {
    subject: Arc<Subject>,
    /// Whom it was learnt for.
    identity: Identity,
    peer: SocketAddr,
    until: Monotonic,
    /// [`Shared::forgotten`] before it was learnt.
    since: u64,
    shared: Arc<Shared>,
}

impl Drop for Attached {
    fn drop(&mut self) {
        self.shared.attached.fetch_sub(1, Relaxed);
    }
}

impl Shared {
    /// Forgets these users, or everybody.
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

    /// Whether a user was forgotten after `since`.
    fn has_forgotten(&self, user: UserId, since: u64) -> bool {
        if self.forgotten.load(Acquire) == since {
            return false;
        }
        let log = self.log.lock();
        log.all > since || log.users.get(&user).is_some_and(|at| *at > since)
    }
}

/// Tells the audit who it is.
fn noted(subject: Arc<Subject>) -> Arc<Subject> {
    current::user(subject.user.0);
    subject
}

impl Subjects {
    pub(crate) fn new(membership: Arc<dyn Membership>, lifetime: Duration) -> Subjects {
        Subjects { membership, lifetime, shared: Arc::default() }
    }

    /// What is attached to the caller's connection, fresh or stale, if it is about this caller and not forgotten.
    fn attached(&self, caller: &Caller) -> Option<Arc<Attached>> {
        let attached: Arc<Attached> = caller.connection.attached()?;
        let is_own = Arc::ptr_eq(&attached.shared, &self.shared);
        let is_caller = attached.peer == caller.peer && attached.identity == caller.identity;
        let is_known = !self.shared.has_forgotten(attached.subject.user, attached.since);
        (is_own && is_caller && is_known).then_some(attached)
    }

    /// Who is calling, if it is remembered well enough.
    pub(crate) fn fresh(&self, caller: &Caller, now: Monotonic) -> Option<Arc<Subject>> {
        let attached = self.attached(caller)?;
        (now < attached.until).then(|| noted(Arc::clone(&attached.subject)))
    }

    /// Touches the memory of what is remembered of each of these: see [`FileServer::look_ahead`](crate::FileServer::look_ahead).
    pub(crate) fn look_ahead<'a>(callers: impl Iterator<Item = &'a Caller>) -> u64 {
        // Each step leads to memory that the one before it names: all of one step, then all of the next.
        let found: Vec<Arc<Attached>> = callers.filter_map(|caller| caller.connection.attached()).collect();
        let users = found.iter().fold(0, |seen, attached| seen ^ attached.subject.user.0);
        let groups = found.iter().filter_map(|attached| attached.subject.groups.first());
        groups.fold(users as u64, |seen, id| seen ^ id.0 as u64)
    }

    /// Who is calling. As in OpenAFS a connection's caller keeps the groups that it had while nobody
    /// can say what they are now.
    pub(crate) fn of(&self, caller: &Caller, now: Monotonic) -> Result<Arc<Subject>, AbortCode> {
        let known = self.attached(caller);
        if let Some(attached) = known.as_ref().filter(|attached| now < attached.until) {
            return Ok(noted(Arc::clone(&attached.subject)));
        }
        let since = self.shared.forgotten.load(Acquire);
        let (subject, lifetime) = match (self.membership.subject(caller), known) {
            (Ok(subject), _) if subject.is_partial => (Arc::new(subject), RETRY),
            (Ok(subject), _) => (Arc::new(subject), self.lifetime),
            (Err(_), Some(stale)) => (Arc::clone(&stale.subject), RETRY),
            (Err(code), None) => return Err(code),
        };
        self.attach(caller, Arc::clone(&subject), now + lifetime.min(self.lifetime), since);
        Ok(noted(subject))
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

    /// Forgets what is known about users (RXAFS_FlushCPS).
    pub(crate) fn forget_users(&self, users: &[UserId]) {
        if !users.is_empty() {
            self.shared.forget(Some(users));
        }
    }

    /// Forgets everything; host groups are not kept apart.
    pub(crate) fn forget_all(&self) {
        self.membership.forget_hosts();
        self.shared.forget(None);
    }

    /// How many connections have a subject.
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

    /// Names are the digits of users' ids.
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
