//! Users and groups: creating, changing and listing entries.

use crate::service::PtService;
use crate::wire::{check_entry, debug_entry, fields, kind_of, max_kind, new_kind, position, wire_position};
use afs_idl::pr;
use base::{AbortCode, Caller, UserId};
use ptdb::{Change, Entry, NewEntry, Protection};

/// Maximum number of entries in a reply of ListEntries (PR_MAXENTRIES).
const ENTRIES_MAX: usize = 500;
/// Flags of ListEntries.
const LIST_USERS: i32 = 1;
const LIST_GROUPS: i32 = 2;

impl PtService {
    /// INewEntry: creates an entry with a given id.
    pub(crate) fn i_new_entry(
        &self,
        caller: &Caller,
        r: pr::INewEntryRequest,
    ) -> Result<pr::INewEntryReply, AbortCode> {
        let id = UserId(r.id);
        if id.0 == 0 {
            return Err(AbortCode::PRPERM);
        }
        let new = NewEntry { name: r.name.0, kind: kind_of(id), owner: UserId(r.owner), id: Some(id) };
        self.change(caller, "INewEntry", r.id, |p, actor, now| p.create(actor, &new, now))?;
        Ok(pr::INewEntryReply)
    }

    /// NewEntry: creates an entry with the next free id.
    pub(crate) fn new_entry(
        &self,
        caller: &Caller,
        r: pr::NewEntryRequest,
    ) -> Result<pr::NewEntryReply, AbortCode> {
        let kind = new_kind(r.flag)?;
        let new = NewEntry { name: r.name.0, kind, owner: UserId(r.owner), id: None };
        let id = self.change(caller, "NewEntry", 0, |p, actor, now| p.create(actor, &new, now))?;
        Ok(pr::NewEntryReply { id: id.0 })
    }

    /// Delete: deletes an entry.
    pub(crate) fn delete(&self, caller: &Caller, r: pr::DeleteRequest) -> Result<pr::DeleteReply, AbortCode> {
        self.change(caller, "Delete", r.id, |p, actor, now| p.delete(actor, UserId(r.id), now))?;
        Ok(pr::DeleteReply)
    }

    /// ChangeEntry: changes name, owner and id.
    pub(crate) fn change_entry(
        &self,
        caller: &Caller,
        r: pr::ChangeEntryRequest,
    ) -> Result<pr::ChangeEntryReply, AbortCode> {
        let change = Change { name: r.name.0, owner: UserId(r.owner), new_id: UserId(r.new_id) };
        self.change(caller, "ChangeEntry", r.id, |p, actor, now| {
            p.change(actor, UserId(r.id), &change, now)
        })?;
        Ok(pr::ChangeEntryReply)
    }

    /// SetFieldsEntry: changes flags and quotas.
    pub(crate) fn set_fields_entry(
        &self,
        caller: &Caller,
        r: pr::SetFieldsEntryRequest,
    ) -> Result<pr::SetFieldsEntryReply, AbortCode> {
        if r.mask != 0 {
            let fields = fields(r.mask, r.flags, r.group_quota, r.user_quota);
            self.change(caller, "SetFieldsEntry", r.id, |p, actor, _| {
                p.set_fields(actor, UserId(r.id), fields)
            })?;
        }
        Ok(pr::SetFieldsEntryReply)
    }

    /// UpdateEntry: repairs an entry.
    pub(crate) fn update_entry(
        &self,
        caller: &Caller,
        r: pr::UpdateEntryRequest,
    ) -> Result<pr::UpdateEntryReply, AbortCode> {
        self.ask(caller, |p, actor| p.repair(actor, UserId(r.id), r.name.as_bytes()))?;
        Ok(pr::UpdateEntryReply)
    }

    /// ListEntry: returns one entry.
    pub(crate) fn list_entry(
        &self,
        caller: &Caller,
        r: pr::ListEntryRequest,
    ) -> Result<pr::ListEntryReply, AbortCode> {
        let entry = self.ask(caller, |p, actor| p.examine(actor, UserId(r.id)))?;
        Ok(pr::ListEntryReply { entry: check_entry(self.protection.policy(), &entry) })
    }

    /// ListEntries: returns the entries from an index on.
    pub(crate) fn list_entries(
        &self,
        caller: &Caller,
        r: pr::ListEntriesRequest,
    ) -> Result<pr::ListEntriesReply, AbortCode> {
        let wanted = |entry: &Entry| r.flags & (if entry.is_group() { LIST_GROUPS } else { LIST_USERS }) != 0;
        let start = u32::try_from(r.start_index).unwrap_or(0);
        let (entries, next) = self.ask(caller, |p, actor| p.list(actor, start, ENTRIES_MAX, &wanted))?;
        let policy = self.protection.policy();
        Ok(pr::ListEntriesReply {
            entries: entries.iter().map(|entry| check_entry(policy, entry)).collect(),
            next_start_index: next.and_then(|next| i32::try_from(next).ok()).unwrap_or(-1),
        })
    }

    /// ListMax: returns the highest ids of users and groups.
    pub(crate) fn list_max(
        &self,
        caller: &Caller,
        _: pr::ListMaxRequest,
    ) -> Result<pr::ListMaxReply, AbortCode> {
        let totals = self.ask(caller, Protection::totals_as)?;
        Ok(pr::ListMaxReply { user: totals.max_user.0, group: totals.max_group.0 })
    }

    /// SetMax: sets the highest id of users or groups.
    pub(crate) fn set_max(
        &self,
        caller: &Caller,
        r: pr::SetMaxRequest,
    ) -> Result<pr::SetMaxReply, AbortCode> {
        let kind = max_kind(r.group_flag);
        self.change(caller, "SetMax", r.id, |p, actor, _| p.set_max(actor, UserId(r.id), kind))?;
        Ok(pr::SetMaxReply)
    }

    /// WhereIsIt: returns the position of an entry.
    pub(crate) fn where_is_it(
        &self,
        caller: &Caller,
        r: pr::WhereIsItRequest,
    ) -> Result<pr::WhereIsItReply, AbortCode> {
        let position = self.ask(caller, |p, actor| p.position(actor, UserId(r.id)))?;
        Ok(pr::WhereIsItReply { position: wire_position(Some(position)) })
    }

    /// DumpEntry: returns the entry at a position, as it is stored.
    pub(crate) fn dump_entry(
        &self,
        caller: &Caller,
        r: pr::DumpEntryRequest,
    ) -> Result<pr::DumpEntryReply, AbortCode> {
        let position = position(r.position).ok_or(AbortCode::PRNOENT)?;
        let dump = self.ask(caller, |p, actor| p.dump(actor, position))?;
        Ok(pr::DumpEntryReply { entry: debug_entry(&dump) })
    }
}
