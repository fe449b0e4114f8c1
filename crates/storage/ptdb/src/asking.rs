//! Queries on behalf of callers, with checks of their rights.

use crate::access::{Access, RequestedAccess};
use crate::actor::Actor;
use crate::entry::{Entry, Totals};
use crate::error::ProtectionError;
use crate::protection::{LIST_IDS_MAX, Protection, host_groups, protection_set, refuse_if};
use crate::tables::{List, Tables};
use base::UserId;
use std::net::Ipv4Addr;
use std::ops::ControlFlow;

/// Queries on behalf of a caller.
impl Protection {
    pub(crate) fn read_as<T>(
        &self,
        actor: &Actor,
        ask: impl FnOnce(&Access<'_, '_>) -> Result<T, ProtectionError>,
    ) -> Result<T, ProtectionError> {
        actor.check_known()?;
        self.read(|tables| ask(&Access { tables, policy: &self.policy, actor }))
    }

    /// Like [`Protection::read_as`], but rejects anonymous callers if the policy says so.
    fn read_as_known<T>(
        &self,
        actor: &Actor,
        ask: impl FnOnce(&Access<'_, '_>) -> Result<T, ProtectionError>,
    ) -> Result<T, ProtectionError> {
        refuse_if(self.policy.restrict_anonymous && actor.id == UserId::ANONYMOUS)?;
        self.read_as(actor, ask)
    }

    /// Returns the names of ids; the name of an id without an entry is its decimal number (PR_IDToName).
    pub fn names(&self, actor: &Actor, ids: &[UserId]) -> Result<Vec<Vec<u8>>, ProtectionError> {
        self.read_as_known(actor, |access| {
            let name = |&id: &UserId| {
                let entry = access.tables.entry(id)?;
                Ok(entry.map_or_else(|| id.0.to_string().into_bytes(), |entry| entry.name))
            };
            ids.iter().map(name).collect()
        })
    }

    /// Returns the entry, if the actor may see it (PR_ListEntry).
    pub fn examine(&self, actor: &Actor, id: UserId) -> Result<Entry, ProtectionError> {
        self.read_as_known(actor, |access| {
            let entry = access.tables.need(id)?;
            access.check(Some(&entry), RequestedAccess::STATUS)?;
            Ok(entry)
        })
    }

    /// Returns a group's members or a user's groups in ascending order (PR_ListElements).
    pub fn elements(&self, actor: &Actor, id: UserId) -> Result<Vec<UserId>, ProtectionError> {
        self.read_as_known(actor, |access| list(access, List::Elements, id))
    }

    /// Returns the groups that a group is in, in ascending order (PR_ListSuperGroups).
    pub fn supergroups(&self, actor: &Actor, id: UserId) -> Result<Vec<UserId>, ProtectionError> {
        self.read_as_known(actor, |access| list(access, List::Supergroups, id))
    }

    /// Returns the current protection set of `id`, if the actor may list its groups (PR_GetCPS).
    pub fn protection_set_as(&self, actor: &Actor, id: UserId) -> Result<Vec<UserId>, ProtectionError> {
        self.read_as_known(actor, |access| {
            let entry = access.tables.need(id)?;
            access.check(Some(&entry), RequestedAccess::MEMBERSHIP)?;
            protection_set(access.tables, &entry, self.policy.depth)
        })
    }

    /// Returns the protection set of a user at a host, or only the host's groups without a user (PR_GetCPS2).
    pub fn protection_set_at(
        &self,
        actor: &Actor,
        id: Option<UserId>,
        host: Ipv4Addr,
    ) -> Result<Vec<UserId>, ProtectionError> {
        self.read_as_known(actor, |access| {
            let mut set = host_groups(access.tables, host)?;
            if let Some(id) = id {
                let entry = access.tables.need(id)?;
                access.check(Some(&entry), RequestedAccess::MEMBERSHIP)?;
                set.extend(protection_set(access.tables, &entry, self.policy.depth)?);
            }
            set.sort_unstable();
            set.dedup();
            Ok(set)
        })
    }

    /// Returns the groups of a host (PR_GetHostCPS).
    pub fn host_protection_set_as(
        &self,
        actor: &Actor,
        host: Ipv4Addr,
    ) -> Result<Vec<UserId>, ProtectionError> {
        self.read_as_known(actor, |access| host_groups(access.tables, host))
    }

    /// Returns the counters and largest ids (PR_ListMax).
    pub fn totals_as(&self, actor: &Actor) -> Result<Totals, ProtectionError> {
        self.read_as_known(actor, |access| access.tables.totals())
    }

    /// Whether `user` is in `group` (PR_IsAMemberOf). The access bits of either entry may allow the query.
    pub fn is_member_as(&self, actor: &Actor, user: UserId, group: UserId) -> Result<bool, ProtectionError> {
        self.read_as_known(actor, |access| {
            let user_entry = access.tables.need(user)?;
            let group_entry = access.tables.need(group)?;
            if !group_entry.is_group() {
                return Err(ProtectionError::BadArgument("not a group"));
            }
            if !access.is_allowed(Some(&user_entry), RequestedAccess::BEING_MEMBER)? {
                access.check(Some(&group_entry), RequestedAccess::MEMBERSHIP)?;
            }
            access.tables.is_member(user, group, self.policy.depth)
        })
    }

    /// Returns up to `limit` groups that `owner` owns (0: orphans), in ascending order starting at group
    /// `from` (PR_ListOwned).
    pub fn owned(
        &self,
        actor: &Actor,
        owner: UserId,
        from: Option<UserId>,
        limit: usize,
    ) -> Result<Vec<UserId>, ProtectionError> {
        self.read_as_known(actor, |access| {
            if owner.0 == 0 {
                access.check(None, RequestedAccess::MODIFY)?;
            } else {
                let entry = access.tables.need(owner)?;
                access.check(Some(&entry), RequestedAccess::OWNED)?;
            }
            access.tables.owned(owner, from, limit)
        })
    }

    /// Returns the entry at a position of the listing order, so that a listing can continue.
    pub fn entry_at(&self, position: u32) -> Result<Option<Entry>, ProtectionError> {
        self.read(|tables| tables.id_at(position)?.map(|id| tables.need(id)).transpose())
    }

    /// Returns the position of an entry in the listing order (PR_WhereIsIt).
    pub fn position(&self, actor: &Actor, id: UserId) -> Result<u32, ProtectionError> {
        self.read_as_known(actor, |access| Ok(access.tables.need(id)?.position))
    }

    /// Returns the entry at a position of the listing order, with its lists (PR_DumpEntry).
    pub fn dump(&self, actor: &Actor, position: u32) -> Result<Dump, ProtectionError> {
        self.read_as_known(actor, |access| {
            access.check(None, RequestedAccess::DUMP)?;
            let id = access.tables.id_at(position)?.ok_or(ProtectionError::NoEntry(UserId(0)))?;
            dump(access.tables, id)
        })
    }

    /// Returns up to `limit` entries in listing order, starting at `position`, and the position to continue
    /// at if there are more (PR_ListEntries). For administrators only.
    pub fn list(
        &self,
        actor: &Actor,
        position: u32,
        limit: usize,
        wanted: &dyn Fn(&Entry) -> bool,
    ) -> Result<(Vec<Entry>, Option<u32>), ProtectionError> {
        self.read_as(actor, |access| {
            refuse_if(!access.is_administrator()?)?;
            list_from(access.tables, position, limit, wanted)
        })
    }
}

/// A raw record, as returned by PR_DumpEntry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dump {
    /// The entry.
    pub entry: Entry,
    /// The entry's first elements.
    pub elements: Vec<UserId>,
    /// The first groups that the entry is in, if it is a group.
    pub supergroups: Vec<UserId>,
    /// Position of the first group that it owns.
    pub first_owned: Option<u32>,
    /// Position of the next group with the same owner.
    pub next_owned: Option<u32>,
}

/// Number of elements in a raw record (PRSIZE).
const DUMP_ELEMENTS: usize = 10;
/// Number of supergroups in a raw record (SGSIZE).
const DUMP_SUPERGROUPS: usize = 2;

fn dump(tables: &Tables<'_>, id: UserId) -> Result<Dump, ProtectionError> {
    let entry = tables.need(id)?;
    let position_of = |id: Option<&UserId>| -> Result<Option<u32>, ProtectionError> {
        id.map(|&id| tables.need(id)).transpose().map(|entry| entry.map(|entry| entry.position))
    };
    let next = if entry.is_group() { tables.owned(entry.owner, Some(id), 2)? } else { Vec::new() };
    Ok(Dump {
        elements: tables.elements(List::Elements, id, DUMP_ELEMENTS)?,
        supergroups: tables.elements(List::Supergroups, id, DUMP_SUPERGROUPS)?,
        first_owned: position_of(tables.owned(id, None, 1)?.first())?,
        next_owned: position_of(next.get(1))?,
        entry,
    })
}

fn list(access: &Access<'_, '_>, list: List, id: UserId) -> Result<Vec<UserId>, ProtectionError> {
    let entry = access.tables.need(id)?;
    access.check(Some(&entry), RequestedAccess::MEMBERSHIP)?;
    let elements = access.tables.elements(list, id, LIST_IDS_MAX + 1)?;
    if elements.len() > LIST_IDS_MAX { Err(ProtectionError::TooMany(LIST_IDS_MAX)) } else { Ok(elements) }
}

fn list_from(
    tables: &Tables<'_>,
    position: u32,
    limit: usize,
    wanted: &dyn Fn(&Entry) -> bool,
) -> Result<(Vec<Entry>, Option<u32>), ProtectionError> {
    let mut found = Vec::new();
    let mut next = None;
    let mut failed = None;
    tables.positions(position, &mut |position, id| match tables.need(id) {
        Ok(entry) if !wanted(&entry) => ControlFlow::Continue(()),
        Ok(_) if found.len() == limit => {
            next = Some(position);
            ControlFlow::Break(())
        }
        Ok(entry) => {
            found.push(entry);
            ControlFlow::Continue(())
        }
        Err(error) => {
            failed = Some(error);
            ControlFlow::Break(())
        }
    })?;
    failed.map_or(Ok((found, next)), Err)
}
