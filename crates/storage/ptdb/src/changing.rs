//! Changes on behalf of callers, with checks of their rights.

use crate::access::{Access, RequestedAccess};
use crate::actor::Actor;
use crate::change::{Change, Changer, change};
use crate::create::{Kind, Wanted, create};
use crate::entry::{Entry, EntryFlags};
use crate::error::ProtectionError;
use crate::protection::{Protection, is_fixed, refuse_if};
use crate::remove::remove;
use crate::tables::{List, Tables};
use base::{UnixTime, UserId};

/// A new entry as requested by a caller.
#[derive(Clone, Debug)]
pub struct NewEntry {
    /// Its name; converted to lower case.
    pub name: Vec<u8>,
    /// Whether it is a user or a group.
    pub kind: Kind,
    /// Owner of a group; 0 for the creator.
    pub owner: UserId,
    /// Its id; `None` for the next free one.
    pub id: Option<UserId>,
}

/// Fields to set (PR_SetFieldsEntry); `None` leaves a field unchanged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fields {
    /// Access bits at their position on the wire: a mask of those to set, and their values.
    pub access: Option<(u32, u32)>,
    /// Number of groups that the user may still create.
    pub group_quota: Option<i32>,
    /// Quota of foreign users.
    pub user_quota: Option<i32>,
}

/// Changes on behalf of a caller.
impl Protection {
    /// Makes a change in one transaction; `make` checks the caller's rights.
    fn write_as<T>(
        &self,
        actor: &Actor,
        make: impl FnOnce(&mut Tables<'_>) -> Result<T, ProtectionError>,
    ) -> Result<T, ProtectionError> {
        actor.check_known()?;
        self.write(make)
    }

    fn access<'t, 'a>(&'t self, tables: &'t Tables<'a>, actor: &'t Actor) -> Access<'t, 'a> {
        Access { tables, policy: &self.policy, actor }
    }

    /// Creates an entry (PR_NewEntry, PR_INewEntry). Administrators create users, any user with quota left
    /// creates groups, and a user of another cell may register itself.
    pub fn create(&self, actor: &Actor, new: &NewEntry, now: UnixTime) -> Result<UserId, ProtectionError> {
        let name = new.name.to_ascii_lowercase();
        let registers_itself = actor.foreign_name.as_ref() == Some(&name)
            && !self.policy.restricted
            && new.kind == Kind::User
            && new.id.is_none();
        if !registers_itself {
            actor.check_known()?;
        }
        refuse_if(registers_itself && new.owner.0 != 0)?;
        self.write(|tables| {
            let admin = self.access(tables, actor).is_administrator()?;
            self.check_create(tables, actor, new, admin || registers_itself)?;
            let wanted = Wanted {
                name: &name,
                kind: new.kind,
                owner: new.owner,
                creator: actor.id,
                admin,
                id: new.id,
            };
            create(tables, &wanted, now)
        })
    }

    fn check_create(
        &self,
        tables: &Tables<'_>,
        actor: &Actor,
        new: &NewEntry,
        admin: bool,
    ) -> Result<(), ProtectionError> {
        refuse_if(self.policy.restricted && !admin)?;
        if new.kind == Kind::User {
            return refuse_if(!admin || new.owner == UserId::ANONYMOUS);
        }
        refuse_if(actor.id == UserId::ANONYMOUS)?;
        // Only administrators choose a group's id, but anyone may name the next free one.
        let next = UserId(tables.totals()?.max_group.0.wrapping_sub(1));
        refuse_if(!admin && new.id.is_some_and(|id| id != next))
    }

    /// Deletes an entry (PR_Delete).
    pub fn delete(&self, actor: &Actor, id: UserId, now: UnixTime) -> Result<(), ProtectionError> {
        refuse_if(is_fixed(id) || id == UserId::ADMINISTRATORS)?;
        self.write_as(actor, |tables| {
            let entry = tables.need(id)?;
            self.access(tables, actor).check_owner(&entry)?;
            remove(tables, &entry, self.policy.depth, now)
        })
    }

    /// Adds a user or a group to a group (PR_AddToGroup).
    pub fn add_to_group(
        &self,
        actor: &Actor,
        id: UserId,
        group: UserId,
        now: UnixTime,
    ) -> Result<(), ProtectionError> {
        refuse_if(matches!(group, UserId::ANYUSER | UserId::AUTHUSER) || id == UserId::ANONYMOUS)?;
        self.write_as(actor, |tables| {
            let element = self.check_membership(tables, actor, (id, group), RequestedAccess::ADD)?;
            tables.add(List::Elements, group, id, now)?;
            tables.add(element, id, group, now)
        })
    }

    /// Removes a user or a group from a group (PR_RemoveFromGroup).
    pub fn remove_from_group(
        &self,
        actor: &Actor,
        id: UserId,
        group: UserId,
        now: UnixTime,
    ) -> Result<(), ProtectionError> {
        self.write_as(actor, |tables| {
            let element = self.check_membership(tables, actor, (id, group), RequestedAccess::REMOVE)?;
            tables.take(List::Elements, group, id, now)?;
            tables.take(element, id, group, now)
        })
    }

    /// Fails unless the actor may change the group's members; returns the list of `id` that contains its
    /// groups.
    fn check_membership(
        &self,
        tables: &Tables<'_>,
        actor: &Actor,
        (id, group): (UserId, UserId),
        wish: RequestedAccess,
    ) -> Result<List, ProtectionError> {
        let element = tables.need(id)?;
        let group_entry = tables.need(group)?;
        if !group_entry.is_group() {
            return Err(ProtectionError::NotGroup(group));
        }
        self.access(tables, actor).check(Some(&group_entry), wish)?;
        Ok(if element.is_group() { List::Supergroups } else { List::Elements })
    }

    /// Changes the id, owner or name of an entry (PR_ChangeEntry).
    pub fn change(
        &self,
        actor: &Actor,
        id: UserId,
        what: &Change,
        now: UnixTime,
    ) -> Result<(), ProtectionError> {
        refuse_if(is_fixed(id) || id == UserId::ADMINISTRATORS)?;
        let what = Change { name: what.name.to_ascii_lowercase(), ..what.clone() };
        self.write_as(actor, |tables| {
            let entry = tables.need(id)?;
            let access = self.access(tables, actor);
            access.check_owner(&entry)?;
            let changer = Changer { id: actor.id, admin: access.is_administrator()?, now };
            change(tables, id, &what, changer)
        })
    }

    /// Sets access bits and quotas (PR_SetFieldsEntry). Only administrators may set quotas.
    pub fn set_fields(&self, actor: &Actor, id: UserId, fields: Fields) -> Result<(), ProtectionError> {
        refuse_if(is_fixed(id))?;
        self.write_as(actor, |tables| {
            let old = tables.need(id)?;
            let sets_quota = fields.group_quota.is_some() || fields.user_quota.is_some();
            self.access(tables, actor).check((!sets_quota).then_some(&old), RequestedAccess::MODIFY)?;
            let new = with_fields(&old, fields)?;
            tables.update(&old, &new);
            Ok(())
        })
    }

    /// Sets the counter of assigned ids: the largest user id, or the most negative group id (PR_SetMax).
    pub fn set_max(&self, actor: &Actor, id: UserId, kind: Kind) -> Result<(), ProtectionError> {
        self.write_as(actor, |tables| {
            self.access(tables, actor).check(None, RequestedAccess::MODIFY)?;
            let mut totals = tables.totals()?;
            match kind {
                Kind::Group if id.0 <= 0 => totals.max_group = id,
                Kind::User if id.0 >= 0 => totals.max_user = id,
                _ => {
                    return Err(ProtectionError::BadArgument(
                        "users have positive ids, groups negative ones",
                    ));
                }
            }
            tables.set_totals(&totals);
            Ok(())
        })
    }

    /// Checks that the actor is an administrator and that the entry exists, by id or, if that is 0, by name.
    /// PR_UpdateEntry repairs hash chains in OpenAFS; this database has none.
    pub fn repair(&self, actor: &Actor, id: UserId, name: &[u8]) -> Result<(), ProtectionError> {
        refuse_if(is_fixed(id) || id == UserId::ADMINISTRATORS)?;
        self.read_as(actor, |access| {
            refuse_if(!access.is_administrator()?)?;
            let id = if id.0 == 0 { access.tables.id_of(name)?.unwrap_or_default() } else { id };
            access.tables.need(id).map(drop)
        })
    }
}

fn with_fields(old: &Entry, fields: Fields) -> Result<Entry, ProtectionError> {
    let mut new = old.clone();
    if fields.group_quota.is_some() || fields.user_quota.is_some() {
        new.settle_quota();
    }
    if let Some((mask, bits)) = fields.access {
        let mask = (mask & 0xffff) << EntryFlags::ACCESS_SHIFT;
        new.flags.0 =
            new.flags.0 & !mask | (bits << EntryFlags::ACCESS_SHIFT) & mask | EntryFlags::ACCESS_SET;
    }
    for (field, value) in
        [(&mut new.group_quota, fields.group_quota), (&mut new.user_quota, fields.user_quota)]
    {
        match value {
            Some(value) if value < 0 => return Err(ProtectionError::BadArgument("negative quota")),
            Some(value) => *field = value,
            None => {}
        }
    }
    Ok(new)
}
