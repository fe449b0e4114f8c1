//! One method for each call of the interface.

use crate::wire::{
    abort_code, check_entry, debug_entry, fields, kind_of, max_kind, new_kind, optional_user, position,
    wire_ids, wire_position,
};
use afs_idl::ReplyWriter;
use afs_idl::pr::{self, NAME_LENGTH, Server};
use afs_idl::server::SMALL_REPLY_BYTES;
use base::{AbortCode, Caller, Identity, LocalAuthority, Principal, UnixTime, UserId};
use ptdb::{Actor, Change, Entry, NewEntry, Protection, ProtectionError};
use std::net::Ipv4Addr;
use std::sync::Arc;

/// Returns the current time.
pub type Clock = Arc<dyn Fn() -> UnixTime + Send + Sync>;

/// Maximum number of groups in a reply of ListOwned (PR_MAXGROUPS).
const OWNED_MAX: usize = 5000;
/// Maximum number of entries in a reply of ListEntries (PR_MAXENTRIES).
const ENTRIES_MAX: usize = 500;
/// Maximum number of ids that IDToName translates for an unauthenticated caller (PR_MAXLIST). Authenticated
/// callers may request every member of the largest group, as `pts membership` does.
const ANONYMOUS_IDS_MAX: usize = 5000;
/// Number of ids whose names are read while holding the database's lock once.
const NAMES_STEP: usize = 128;
/// Flags of ListEntries.
const LIST_USERS: i32 = 1;
const LIST_GROUPS: i32 = 2;

/// The protection service.
pub struct PtService {
    protection: Arc<Protection>,
    authority: Arc<dyn LocalAuthority>,
    clock: Clock,
}

/// Writes a list of ids and the number left out, which is always 0: all ids fit, or the call fails.
fn write_ids(reply: &mut ReplyWriter<'_>, ids: &[UserId]) -> Result<(), AbortCode> {
    hold(reply, size_of_val(ids))?;
    reply.put(&(ids.len() as u32))?;
    for id in ids {
        reply.put(&id.0)?;
    }
    reply.put(&0_i32)
}

fn hold(reply: &mut ReplyWriter<'_>, bytes: usize) -> Result<(), AbortCode> {
    if bytes > SMALL_REPLY_BYTES { reply.hold(bytes) } else { Ok(()) }
}

fn id_lists(ids: Vec<UserId>) -> (Vec<i32>, i32) {
    // The second number counts ids that did not fit. It is always 0: all fit, or the call fails.
    (wire_ids(ids), 0)
}

impl PtService {
    /// Serves `protection`; `authority` knows the superusers and the cell's realms.
    pub fn new(protection: Arc<Protection>, authority: Arc<dyn LocalAuthority>, clock: Clock) -> PtService {
        PtService { protection, authority, clock }
    }

    /// Runs a query with the caller's rights.
    fn ask<T>(
        &self,
        caller: &Caller,
        ask: impl FnOnce(&Protection, &Actor) -> Result<T, ProtectionError>,
    ) -> Result<T, AbortCode> {
        let actor = self.protection.identify(caller, &*self.authority);
        actor.and_then(|actor| ask(&self.protection, &actor)).map_err(|error| abort_code(&error))
    }

    /// Runs a change with the caller's rights, and records it in the audit log.
    fn change<T>(
        &self,
        caller: &Caller,
        what: &'static str,
        id: i32,
        make: impl FnOnce(&Protection, &Actor, UnixTime) -> Result<T, ProtectionError>,
    ) -> Result<T, AbortCode> {
        let outcome = self.ask(caller, |protection, actor| make(protection, actor, (self.clock)()));
        let code = outcome.as_ref().err().map_or(0, |code| code.0);
        tracing::info!(target: "audit", what, id, code, identity = %caller.identity, peer = %caller.peer);
        outcome
    }

    /// Returns the name without its realm if that is one of the cell's realms.
    fn local_name<'n>(&self, name: &'n [u8]) -> &'n [u8] {
        let Some(at) = name.iter().position(|&byte| byte == b'@') else {
            return name;
        };
        let (user, realm) = (&name[..at], &name[at + 1..]);
        let principal = Principal {
            name: String::from_utf8_lossy(user).into_owned(),
            instance: String::new(),
            realm: String::from_utf8_lossy(realm).into_owned(),
        };
        if realm.is_empty() || self.authority.is_local_realm(&principal) { user } else { name }
    }
}

impl Server for PtService {
    fn i_new_entry(&self, caller: &Caller, r: pr::INewEntryRequest) -> Result<pr::INewEntryReply, AbortCode> {
        let id = UserId(r.id);
        if id.0 == 0 {
            return Err(AbortCode::PRPERM);
        }
        let new = NewEntry { name: r.name.0, kind: kind_of(id), owner: UserId(r.owner), id: Some(id) };
        self.change(caller, "INewEntry", r.id, |p, actor, now| p.create(actor, &new, now))?;
        Ok(pr::INewEntryReply)
    }

    fn new_entry(&self, caller: &Caller, r: pr::NewEntryRequest) -> Result<pr::NewEntryReply, AbortCode> {
        let kind = new_kind(r.flag)?;
        let new = NewEntry { name: r.name.0, kind, owner: UserId(r.owner), id: None };
        let id = self.change(caller, "NewEntry", 0, |p, actor, now| p.create(actor, &new, now))?;
        Ok(pr::NewEntryReply { id: id.0 })
    }

    fn where_is_it(&self, caller: &Caller, r: pr::WhereIsItRequest) -> Result<pr::WhereIsItReply, AbortCode> {
        let position = self.ask(caller, |p, actor| p.position(actor, UserId(r.id)))?;
        Ok(pr::WhereIsItReply { position: wire_position(Some(position)) })
    }

    fn dump_entry(&self, caller: &Caller, r: pr::DumpEntryRequest) -> Result<pr::DumpEntryReply, AbortCode> {
        let position = position(r.position).ok_or(AbortCode::PRNOENT)?;
        let dump = self.ask(caller, |p, actor| p.dump(actor, position))?;
        Ok(pr::DumpEntryReply { entry: debug_entry(&dump) })
    }

    fn add_to_group(
        &self,
        caller: &Caller,
        r: pr::AddToGroupRequest,
    ) -> Result<pr::AddToGroupReply, AbortCode> {
        self.change(caller, "AddToGroup", r.group, |p, actor, now| {
            p.add_to_group(actor, UserId(r.user), UserId(r.group), now)
        })?;
        Ok(pr::AddToGroupReply)
    }

    fn remove_from_group(
        &self,
        caller: &Caller,
        r: pr::RemoveFromGroupRequest,
    ) -> Result<pr::RemoveFromGroupReply, AbortCode> {
        self.change(caller, "RemoveFromGroup", r.group, |p, actor, now| {
            p.remove_from_group(actor, UserId(r.user), UserId(r.group), now)
        })?;
        Ok(pr::RemoveFromGroupReply)
    }

    /// Open to everyone, whatever the policy for anonymous callers.
    fn name_to_id(&self, _: &Caller, r: pr::NameToIDRequest) -> Result<pr::NameToIDReply, AbortCode> {
        let id = |name: &xdr::XdrString| {
            let id = self.protection.id_of_name(self.local_name(name.as_bytes()));
            id.map(|id| id.unwrap_or(UserId::ANONYMOUS).0).map_err(|error| abort_code(&error))
        };
        Ok(pr::NameToIDReply { ids: r.names.iter().map(id).collect::<Result<_, _>>()? })
    }

    fn id_to_name(
        &self,
        caller: &Caller,
        r: pr::IDToNameRequest,
        reply: &mut ReplyWriter<'_>,
    ) -> Result<(), AbortCode> {
        let ids: Vec<_> = r.ids.into_iter().map(UserId).collect();
        if caller.identity == Identity::Anonymous && ids.len() > ANONYMOUS_IDS_MAX {
            return Err(AbortCode::PRTOOMANY);
        }
        let actor = self.ask(caller, |p, actor| p.names(actor, &[]).map(|_| actor.clone()))?;
        reply.put(&(ids.len() as u32))?;
        for step in ids.chunks(NAMES_STEP) {
            for name in self.protection.names(&actor, step).map_err(|error| abort_code(&error))? {
                reply.put_with(|out| xdr::chars::encode(&name.into(), out, NAME_LENGTH))?;
            }
        }
        Ok(())
    }

    fn delete(&self, caller: &Caller, r: pr::DeleteRequest) -> Result<pr::DeleteReply, AbortCode> {
        self.change(caller, "Delete", r.id, |p, actor, now| p.delete(actor, UserId(r.id), now))?;
        Ok(pr::DeleteReply)
    }

    fn get_cps(&self, caller: &Caller, r: pr::GetCPSRequest) -> Result<pr::GetCPSReply, AbortCode> {
        let (list, over) = id_lists(self.ask(caller, |p, actor| p.protection_set_as(actor, UserId(r.id)))?);
        Ok(pr::GetCPSReply { list, over })
    }

    fn get_cps2(&self, caller: &Caller, r: pr::GetCPS2Request) -> Result<pr::GetCPS2Reply, AbortCode> {
        let host = Ipv4Addr::from_bits(r.host);
        let set = self.ask(caller, |p, actor| p.protection_set_at(actor, optional_user(r.id), host))?;
        let (list, over) = id_lists(set);
        Ok(pr::GetCPS2Reply { list, over })
    }

    fn get_host_cps(
        &self,
        caller: &Caller,
        r: pr::GetHostCPSRequest,
    ) -> Result<pr::GetHostCPSReply, AbortCode> {
        let host = Ipv4Addr::from_bits(r.host);
        let (list, over) = id_lists(self.ask(caller, |p, actor| p.host_protection_set_as(actor, host))?);
        Ok(pr::GetHostCPSReply { list, over })
    }

    fn list_max(&self, caller: &Caller, _: pr::ListMaxRequest) -> Result<pr::ListMaxReply, AbortCode> {
        let totals = self.ask(caller, Protection::totals_as)?;
        Ok(pr::ListMaxReply { user: totals.max_user.0, group: totals.max_group.0 })
    }

    fn set_max(&self, caller: &Caller, r: pr::SetMaxRequest) -> Result<pr::SetMaxReply, AbortCode> {
        let kind = max_kind(r.group_flag);
        self.change(caller, "SetMax", r.id, |p, actor, _| p.set_max(actor, UserId(r.id), kind))?;
        Ok(pr::SetMaxReply)
    }

    fn list_entry(&self, caller: &Caller, r: pr::ListEntryRequest) -> Result<pr::ListEntryReply, AbortCode> {
        let entry = self.ask(caller, |p, actor| p.examine(actor, UserId(r.id)))?;
        Ok(pr::ListEntryReply { entry: check_entry(self.protection.policy(), &entry) })
    }

    fn change_entry(
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

    fn list_elements(
        &self,
        caller: &Caller,
        r: pr::ListElementsRequest,
        reply: &mut ReplyWriter<'_>,
    ) -> Result<(), AbortCode> {
        write_ids(reply, &self.ask(caller, |p, actor| p.elements(actor, UserId(r.id)))?)
    }

    fn list_super_groups(
        &self,
        caller: &Caller,
        r: pr::ListSuperGroupsRequest,
        reply: &mut ReplyWriter<'_>,
    ) -> Result<(), AbortCode> {
        write_ids(reply, &self.ask(caller, |p, actor| p.supergroups(actor, UserId(r.id)))?)
    }

    fn is_a_member_of(
        &self,
        caller: &Caller,
        r: pr::IsAMemberOfRequest,
    ) -> Result<pr::IsAMemberOfReply, AbortCode> {
        let is = self.ask(caller, |p, actor| p.is_member_as(actor, UserId(r.user), UserId(r.group)))?;
        Ok(pr::IsAMemberOfReply { flag: is.into() })
    }

    fn set_fields_entry(
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

    fn list_owned(&self, caller: &Caller, r: pr::ListOwnedRequest) -> Result<pr::ListOwnedReply, AbortCode> {
        let owner = UserId(r.id);
        let mut owned = self.ask(caller, |p, actor| {
            let from = position(r.last).map(|at| p.entry_at(at)).transpose()?.flatten();
            let from = from.filter(|entry| entry.owner == owner).map(|entry| entry.id);
            p.owned(actor, owner, from, OWNED_MAX + 1)
        })?;
        // There are more groups; the position of the next one lets the client continue.
        let next = owned.split_off(owned.len().min(OWNED_MAX)).pop();
        let next = next.map(|id| self.ask(caller, |p, _| p.entry(id))).transpose()?.flatten();
        Ok(pr::ListOwnedReply {
            list: wire_ids(owned),
            last: wire_position(next.map(|entry| entry.position)),
        })
    }

    fn update_entry(
        &self,
        caller: &Caller,
        r: pr::UpdateEntryRequest,
    ) -> Result<pr::UpdateEntryReply, AbortCode> {
        self.ask(caller, |p, actor| p.repair(actor, UserId(r.id), r.name.as_bytes()))?;
        Ok(pr::UpdateEntryReply)
    }

    fn list_entries(
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
}
