//! The database as a whole, and the queries of this program's servers.

use crate::access::Policy;
use crate::actor::Actor;
use crate::create::{Kind, Wanted, create};
use crate::entry::{Entry, Totals};
use crate::error::ProtectionError;
use crate::tables::{List, Tables};
use base::{Caller, LocalAuthority, UnixTime, UserId};
use parking_lot::RwLock;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use store::{CommitNumber, MetaStore};

/// Maximum number of ids in a list of the protocol (OPENAFS_MAXPRLIST).
pub const LIST_IDS_MAX: usize = 500_000;

/// The protection database of a cell.
///
/// All methods take `&self` and may be called from any thread. Methods that change something return when the
/// change is durable, and take the time as an argument. Methods with an [`Actor`] check its rights first; the
/// others are for this program's servers, which have unrestricted access.
pub struct Protection {
    meta: Arc<dyn MetaStore>,
    pub(crate) policy: Policy,
    /// Lets readers see consistent records, and serialises writers. No thread waits for a disk while holding
    /// it.
    consistency: RwLock<()>,
    /// Number of changes since the start.
    writes: AtomicU32,
    /// Number of the newest commit.
    newest: AtomicU64,
}

/// The entries of a new database, in the order in which OpenAFS creates them.
pub(crate) const BUILT_IN: [(UserId, &[u8]); 6] = [
    (UserId::ADMINISTRATORS, b"system:administrators"),
    (UserId::BACKUP, b"system:backup"),
    (UserId::ANYUSER, b"system:anyuser"),
    (UserId::AUTHUSER, b"system:authuser"),
    (UserId::PTSVIEWERS, b"system:ptsviewers"),
    (UserId::ANONYMOUS, b"anonymous"),
];

/// Whether the entry can never be changed or deleted. `administrators` is fixed only for some operations,
/// which check for it themselves.
pub(crate) fn is_fixed(id: UserId) -> bool {
    matches!(id, UserId::ANYUSER | UserId::AUTHUSER | UserId::ANONYMOUS)
}

pub(crate) fn refuse_if(refused: bool) -> Result<(), ProtectionError> {
    if refused { Err(ProtectionError::NotPermitted) } else { Ok(()) }
}

/// Queries of servers.
#[allow(clippy::redundant_closure_for_method_calls, reason = "the method's path has one lifetime too few")]
impl Protection {
    /// Opens the database; creates the built-in entries if it is new.
    pub fn open(
        meta: Arc<dyn MetaStore>,
        policy: Policy,
        now: UnixTime,
    ) -> Result<Protection, ProtectionError> {
        let (consistency, writes, newest) = Default::default();
        let protection = Protection { meta, policy, consistency, writes, newest };
        if protection.read(|tables| tables.stored_totals())?.is_none() {
            protection.write(|tables| set_up(tables, now))?;
        }
        Ok(protection)
    }

    /// Returns the settings that affect access.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    pub(crate) fn read<T>(
        &self,
        ask: impl FnOnce(&Tables<'_>) -> Result<T, ProtectionError>,
    ) -> Result<T, ProtectionError> {
        let _consistent = self.consistency.read();
        ask(&Tables::new(&*self.meta))
    }

    pub(crate) fn write<T>(
        &self,
        make: impl FnOnce(&mut Tables<'_>) -> Result<T, ProtectionError>,
    ) -> Result<T, ProtectionError> {
        let (made, number) = {
            let _alone = self.consistency.write();
            let mut tables = Tables::new(&*self.meta);
            let made = make(&mut tables)?;
            let number = self.meta.commit(tables.into_batch())?;
            self.newest.store(number.0, Relaxed);
            (made, number)
        };
        self.writes.fetch_add(1, Relaxed);
        self.meta.sync(number)?;
        Ok(made)
    }

    /// Waits until everything that queries have seen so far is durable: a change is visible before that.
    pub fn settle(&self) -> Result<(), ProtectionError> {
        Ok(self.meta.sync(CommitNumber(self.newest.load(Relaxed)))?)
    }

    /// Identifies a caller, see [`identify`](crate::identify).
    pub fn identify(
        &self,
        caller: &Caller,
        authority: &dyn LocalAuthority,
    ) -> Result<Actor, ProtectionError> {
        crate::identify(caller, authority, |name| self.id_of_name(name))
    }

    /// Returns the id of a name. The comparison is bytewise; registered names are in lower case.
    pub fn id_of_name(&self, name: &[u8]) -> Result<Option<UserId>, ProtectionError> {
        self.read(|tables| tables.id_of(name))
    }

    /// Returns the name of an id.
    pub fn name_of_id(&self, id: UserId) -> Result<Option<Vec<u8>>, ProtectionError> {
        Ok(self.entry(id)?.map(|entry| entry.name))
    }

    /// Returns the entry of an id.
    pub fn entry(&self, id: UserId) -> Result<Option<Entry>, ProtectionError> {
        self.read(|tables| tables.entry(id))
    }

    /// Returns the current protection set (CPS) in ascending order: the id itself, its groups, the groups
    /// that contain those, `system:anyuser`, and `system:authuser` for users of this cell.
    pub fn protection_set(&self, id: UserId) -> Result<Vec<UserId>, ProtectionError> {
        self.read(|tables| {
            let entry = tables.need(id)?;
            protection_set(tables, &entry, self.policy.depth)
        })
    }

    /// Returns the groups of a host in ascending order: those of the user named like its address, and of the
    /// users named like its networks (`10.1.2.0`, `10.1.0.0`, `10.0.0.0`).
    pub fn host_protection_set(&self, host: Ipv4Addr) -> Result<Vec<UserId>, ProtectionError> {
        self.read(|tables| host_groups(tables, host))
    }

    /// Whether `id` is in `group`, directly or through other groups.
    pub fn is_member(&self, id: UserId, group: UserId) -> Result<bool, ProtectionError> {
        self.read(|tables| tables.is_member(id, group, self.policy.depth))
    }

    /// Whether `id` is in `system:administrators`.
    pub fn is_administrator(&self, id: UserId) -> Result<bool, ProtectionError> {
        self.is_member(id, UserId::ADMINISTRATORS)
    }

    /// Returns the number of changes since the start.
    pub fn writes(&self) -> u32 {
        self.writes.load(Relaxed)
    }

    /// Returns the counters and largest ids.
    pub fn totals(&self) -> Result<Totals, ProtectionError> {
        self.read(|tables| tables.totals())
    }
}

fn set_up(tables: &mut Tables<'_>, now: UnixTime) -> Result<(), ProtectionError> {
    for (id, name) in BUILT_IN {
        make_built_in(tables, id, name, now)?;
    }
    // The first regular user gets id 1, not the one after `anonymous`.
    let totals = Totals { max_user: UserId(0), ..tables.totals()? };
    tables.set_totals(&totals);
    Ok(())
}

/// Creates one of the entries of [`BUILT_IN`].
pub(crate) fn make_built_in(
    tables: &mut Tables<'_>,
    id: UserId,
    name: &[u8],
    now: UnixTime,
) -> Result<(), ProtectionError> {
    let kind = if id.is_group() { Kind::Group } else { Kind::User };
    let (owner, creator) = (UserId::ADMINISTRATORS, UserId::ADMINISTRATORS);
    create(tables, &Wanted { name, kind, owner, creator, admin: true, id: Some(id) }, now).map(drop)
}

pub(crate) fn protection_set(
    tables: &Tables<'_>,
    entry: &Entry,
    depth: u32,
) -> Result<Vec<UserId>, ProtectionError> {
    let mut set = tables.groups_of(entry.id, depth)?;
    set.insert(UserId::ANYUSER);
    set.insert(entry.id);
    let authenticated = entry.id != UserId::ANONYMOUS && entry.id != UserId::ANYUSER;
    if authenticated && !entry.is_foreign() {
        set.insert(UserId::AUTHUSER);
    }
    Ok(set.into_iter().collect())
}

pub(crate) fn host_groups(tables: &Tables<'_>, host: Ipv4Addr) -> Result<Vec<UserId>, ProtectionError> {
    let mut groups = Vec::new();
    let address = host.to_bits();
    for mask in [u32::MAX, 0xffff_ff00, 0xffff_0000, 0xff00_0000] {
        let network = Ipv4Addr::from_bits(address & mask);
        if network.is_unspecified() {
            break;
        }
        if let Some(id) = tables.id_of(network.to_string().as_bytes())? {
            groups.extend(tables.elements(List::Elements, id, LIST_IDS_MAX)?);
        }
    }
    groups.sort_unstable();
    groups.dedup();
    Ok(groups)
}
