//! Who may do what with an entry (the access rules of `pts`).

use crate::actor::Actor;
use crate::entry::{Entry, EntryFlags};
use crate::error::ProtectionError;
use crate::tables::{DEPTH_DEFAULT, Tables};
use base::UserId;

/// Settings of the server that decide on access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Only administrators change anything, and foreign users cannot register (`-restricted`).
    pub restricted: bool,
    /// Unauthenticated callers may look up ids of names, nothing else. Stricter than OpenAFS's `-restrict_anonymous`, which
    /// leaves them lists of members and of owned groups.
    pub restrict_anonymous: bool,
    /// Access bits of users that have none set, as [`EntryFlags`] bits (`-default_access`).
    pub user_access: u32,
    /// Access bits of groups that have none set.
    pub group_access: u32,
    /// How many groups deep membership goes (`-depth`).
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

    /// The access bits to show for an entry: its own, or the default where it has none.
    pub fn shown_access(&self, entry: &Entry) -> u32 {
        match entry.flags.access_bits() {
            0 => self.default_access(entry.is_group()) >> EntryFlags::ACCESS_SHIFT,
            bits => bits,
        }
    }
}

/// What a caller wants to do, as the bits that would allow it to members and to anybody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wish {
    members: u32,
    anyone: u32,
    /// Members of `system:ptsviewers` may, too.
    viewers: bool,
    /// Administrators only if the policy is `restricted`.
    changes: bool,
}

impl Wish {
    /// Examine.
    pub(crate) const STATUS: Wish = Wish::look(EntryFlags::STATUS_MEMBER, EntryFlags::STATUS_ANY);
    /// List elements.
    pub(crate) const MEMBERSHIP: Wish = Wish::look(EntryFlags::MEMBERSHIP_MEMBER, EntryFlags::MEMBERSHIP_ANY);
    /// Learn of one user whether it is in some group.
    pub(crate) const BEING_MEMBER: Wish =
        Wish { viewers: false, ..Wish::look(0, EntryFlags::MEMBERSHIP_ANY) };
    /// List owned groups: any flag will do for members, and groups always have one.
    pub(crate) const OWNED: Wish = Wish::look(u32::MAX, EntryFlags::OWNED_ANY);
    /// Read a raw record.
    pub(crate) const DUMP: Wish = Wish::look(EntryFlags::STATUS_MEMBER, 0);
    /// Add a member.
    pub(crate) const ADD: Wish = Wish::change(EntryFlags::ADD_MEMBER, EntryFlags::ADD_ANY);
    /// Remove a member.
    pub(crate) const REMOVE: Wish = Wish::change(EntryFlags::REMOVE_MEMBER, 0);
    /// Change the entry, or something of the whole database.
    pub(crate) const MODIFY: Wish = Wish::change(0, 0);

    const fn look(members: u32, anyone: u32) -> Wish {
        Wish { members, anyone, viewers: true, changes: false }
    }

    const fn change(members: u32, anyone: u32) -> Wish {
        Wish { members, anyone, viewers: false, changes: true }
    }
}

/// One caller's rights in one state of the database.
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

    /// Refuses unless `wish` is allowed on `entry`, or on the database as a whole if `None`.
    pub(crate) fn check(&self, entry: Option<&Entry>, wish: Wish) -> Result<(), ProtectionError> {
        if self.is_allowed(entry, wish)? { Ok(()) } else { Err(ProtectionError::NotPermitted) }
    }

    pub(crate) fn is_allowed(&self, entry: Option<&Entry>, wish: Wish) -> Result<bool, ProtectionError> {
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

    /// What the entry's own bits, owner and members give.
    fn is_allowed_by(&self, entry: &Entry, wish: Wish) -> Result<bool, ProtectionError> {
        let mut bits = entry.flags.0;
        if !entry.flags.has(EntryFlags::ACCESS_SET) {
            bits |= self.policy.default_access(entry.is_group());
        }
        Ok(bits & wish.anyone != 0
            || self.is_owner(entry.owner)?
            || (!entry.is_group() && entry.id == self.actor.id)
            || (entry.is_group() && bits & wish.members != 0 && self.is_in(entry.id)?))
    }

    /// Refuses callers that are neither owner of `entry` nor administrators.
    pub(crate) fn check_owner(&self, entry: &Entry) -> Result<(), ProtectionError> {
        let may = if self.policy.restricted {
            self.is_administrator()?
        } else {
            self.is_administrator()? || self.is_owner(entry.owner)?
        };
        if may { Ok(()) } else { Err(ProtectionError::NotPermitted) }
    }
}
