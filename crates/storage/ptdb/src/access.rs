//! Access rules: what a caller may do with an entry, as documented for `pts`.

use crate::actor::Actor;
use crate::entry::{Entry, EntryFlags};
use crate::error::ProtectionError;
use crate::tables::{DEPTH_DEFAULT, Tables};
use base::UserId;

/// Server settings that affect access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Whether only administrators may change anything, and foreign users cannot register themselves
    /// (`-restricted`).
    pub restricted: bool,
    /// Whether unauthenticated callers may only look up the ids of names. Stricter than OpenAFS's
    /// `-restrict_anonymous`, which still lets them list members and owned groups.
    pub restrict_anonymous: bool,
    /// Access bits of users that have none set, as [`EntryFlags`] bits (`-default_access`).
    pub user_access: u32,
    /// Access bits of groups that have none set.
    pub group_access: u32,
    /// Number of levels of nested groups that count for membership (`-depth`).
    pub depth: u32,
}

impl Default for Policy {
    fn default() -> Policy {
        Policy {
            restricted: false,
            restrict_anonymous: false,
            user_access: EntryFlags::STATUS_ANY,
            group_access: EntryFlags::STATUS_ANY | EntryFlags::MEMBERSHIP_ANY,
            depth: DEPTH_DEFAULT,
        }
    }
}

impl Policy {
    fn default_access(&self, group: bool) -> u32 {
        if group { self.group_access } else { self.user_access }
    }

    /// Returns the access bits to show for an entry: its own, or the default if none are set.
    pub fn shown_access(&self, entry: &Entry) -> u32 {
        match entry.flags.access_bits() {
            0 => self.default_access(entry.is_group()) >> EntryFlags::ACCESS_SHIFT,
            bits => bits,
        }
    }
}

/// A requested operation, as the access bits that allow it to members and to anyone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RequestedAccess {
    members: u32,
    anyone: u32,
    /// Whether members of `system:ptsviewers` are allowed, too.
    viewers: bool,
    /// Whether the operation is left to administrators if the policy is `restricted`.
    changes: bool,
}

impl RequestedAccess {
    /// Examine an entry.
    pub(crate) const STATUS: RequestedAccess =
        RequestedAccess::look(EntryFlags::STATUS_MEMBER, EntryFlags::STATUS_ANY);
    /// List the elements of an entry.
    pub(crate) const MEMBERSHIP: RequestedAccess =
        RequestedAccess::look(EntryFlags::MEMBERSHIP_MEMBER, EntryFlags::MEMBERSHIP_ANY);
    /// Ask whether a user is in a group.
    pub(crate) const BEING_MEMBER: RequestedAccess =
        RequestedAccess { viewers: false, ..RequestedAccess::look(0, EntryFlags::MEMBERSHIP_ANY) };
    /// List owned groups. Any access bit allows this to members, and `GROUP` is always set.
    pub(crate) const OWNED: RequestedAccess = RequestedAccess::look(u32::MAX, EntryFlags::OWNED_ANY);
    /// Read a raw record.
    pub(crate) const DUMP: RequestedAccess = RequestedAccess::look(EntryFlags::STATUS_MEMBER, 0);
    /// Add a member.
    pub(crate) const ADD: RequestedAccess =
        RequestedAccess::change(EntryFlags::ADD_MEMBER, EntryFlags::ADD_ANY);
    /// Remove a member.
    pub(crate) const REMOVE: RequestedAccess = RequestedAccess::change(EntryFlags::REMOVE_MEMBER, 0);
    /// Change the entry, or a property of the whole database.
    pub(crate) const MODIFY: RequestedAccess = RequestedAccess::change(0, 0);

    const fn look(members: u32, anyone: u32) -> RequestedAccess {
        RequestedAccess { members, anyone, viewers: true, changes: false }
    }

    const fn change(members: u32, anyone: u32) -> RequestedAccess {
        RequestedAccess { members, anyone, viewers: false, changes: true }
    }
}

/// The rights of one caller in one state of the database.
pub(crate) struct Access<'t, 'a> {
    pub(crate) tables: &'t Tables<'a>,
    pub(crate) policy: &'t Policy,
    pub(crate) actor: &'t Actor,
}

impl Access<'_, '_> {
    pub(crate) fn is_in(&self, group: UserId) -> Result<bool, ProtectionError> {
        self.tables.is_member(self.actor.id, group, self.policy.depth)
    }

    pub(crate) fn is_administrator(&self) -> Result<bool, ProtectionError> {
        Ok(self.actor.superuser || self.is_in(UserId::ADMINISTRATORS)?)
    }

    /// Whether the caller is the owner or in the owning group.
    pub(crate) fn is_owner(&self, owner: UserId) -> Result<bool, ProtectionError> {
        if owner.0 == 0 || owner == UserId::ANONYMOUS {
            return Ok(false);
        }
        Ok(self.actor.id == owner || self.is_in(owner)?)
    }

    /// Fails unless `wish` is allowed on `entry`, or on the whole database if `None`.
    pub(crate) fn check(&self, entry: Option<&Entry>, wish: RequestedAccess) -> Result<(), ProtectionError> {
        if self.is_allowed(entry, wish)? { Ok(()) } else { Err(ProtectionError::NotPermitted) }
    }

    pub(crate) fn is_allowed(
        &self,
        entry: Option<&Entry>,
        wish: RequestedAccess,
    ) -> Result<bool, ProtectionError> {
        if self.actor.superuser {
            return Ok(true);
        }
        if wish.changes && self.policy.restricted {
            return self.is_administrator();
        }
        if let Some(entry) = entry
            && self.is_allowed_by(entry, wish)?
        {
            return Ok(true);
        }
        Ok((wish.viewers && self.is_in(UserId::PTSVIEWERS)?) || self.is_administrator()?)
    }

    /// Whether the entry's own access bits, owner or members allow `wish`.
    fn is_allowed_by(&self, entry: &Entry, wish: RequestedAccess) -> Result<bool, ProtectionError> {
        let mut bits = entry.flags.0;
        if !entry.flags.has(EntryFlags::ACCESS_SET) {
            bits |= self.policy.default_access(entry.is_group());
        }
        Ok(bits & wish.anyone != 0
            || self.is_owner(entry.owner)?
            || (!entry.is_group() && entry.id == self.actor.id)
            || (entry.is_group() && bits & wish.members != 0 && self.is_in(entry.id)?))
    }

    /// Fails unless the caller is an administrator or the owner of `entry`.
    pub(crate) fn check_owner(&self, entry: &Entry) -> Result<(), ProtectionError> {
        let may = if self.policy.restricted {
            self.is_administrator()?
        } else {
            self.is_administrator()? || self.is_owner(entry.owner)?
        };
        if may { Ok(()) } else { Err(ProtectionError::NotPermitted) }
    }
}
