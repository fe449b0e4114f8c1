//! Memberships: members and owners of groups, and the protection sets that follow.

use crate::service::PtService;
use crate::wire::{optional_user, position, wire_ids, wire_position};
use afs_idl::server::SMALL_REPLY_BYTES;
use afs_idl::{ReplyWriter, pr};
use base::{AbortCode, Caller, UserId};
use std::net::Ipv4Addr;

/// Maximum number of groups in a reply of ListOwned (PR_MAXGROUPS).
const OWNED_MAX: usize = 5000;

impl PtService {
    /// AddToGroup: adds a member.
    pub(crate) fn add_to_group(
        &self,
        caller: &Caller,
        r: pr::AddToGroupRequest,
    ) -> Result<pr::AddToGroupReply, AbortCode> {
        self.change(caller, "AddToGroup", r.group, |p, actor, now| {
            p.add_to_group(actor, UserId(r.user), UserId(r.group), now)
        })?;
        Ok(pr::AddToGroupReply)
    }

    /// RemoveFromGroup: removes a member.
    pub(crate) fn remove_from_group(
        &self,
        caller: &Caller,
        r: pr::RemoveFromGroupRequest,
    ) -> Result<pr::RemoveFromGroupReply, AbortCode> {
        self.change(caller, "RemoveFromGroup", r.group, |p, actor, now| {
            p.remove_from_group(actor, UserId(r.user), UserId(r.group), now)
        })?;
        Ok(pr::RemoveFromGroupReply)
    }

    /// ListElements: returns a group's members, or a user's groups.
    pub(crate) fn list_elements(
        &self,
        caller: &Caller,
        r: pr::ListElementsRequest,
        reply: &mut ReplyWriter<'_>,
    ) -> Result<(), AbortCode> {
        write_ids(reply, &self.ask(caller, |p, actor| p.elements(actor, UserId(r.id)))?)
    }

    /// ListSuperGroups: returns the groups that contain a group.
    pub(crate) fn list_super_groups(
        &self,
        caller: &Caller,
        r: pr::ListSuperGroupsRequest,
        reply: &mut ReplyWriter<'_>,
    ) -> Result<(), AbortCode> {
        write_ids(reply, &self.ask(caller, |p, actor| p.supergroups(actor, UserId(r.id)))?)
    }

    /// IsAMemberOf: checks a membership.
    pub(crate) fn is_a_member_of(
        &self,
        caller: &Caller,
        r: pr::IsAMemberOfRequest,
    ) -> Result<pr::IsAMemberOfReply, AbortCode> {
        let is = self.ask(caller, |p, actor| p.is_member_as(actor, UserId(r.user), UserId(r.group)))?;
        Ok(pr::IsAMemberOfReply { flag: is.into() })
    }

    /// ListOwned: returns the groups that an entry owns.
    pub(crate) fn list_owned(
        &self,
        caller: &Caller,
        r: pr::ListOwnedRequest,
    ) -> Result<pr::ListOwnedReply, AbortCode> {
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

    /// GetCPS: returns the protection set of an entry.
    pub(crate) fn get_cps(
        &self,
        caller: &Caller,
        r: pr::GetCPSRequest,
    ) -> Result<pr::GetCPSReply, AbortCode> {
        let (list, over) = id_lists(self.ask(caller, |p, actor| p.protection_set_as(actor, UserId(r.id)))?);
        Ok(pr::GetCPSReply { list, over })
    }

    /// GetCPS2: returns the protection set of a user at a host.
    pub(crate) fn get_cps2(
        &self,
        caller: &Caller,
        r: pr::GetCPS2Request,
    ) -> Result<pr::GetCPS2Reply, AbortCode> {
        let host = Ipv4Addr::from_bits(r.host);
        let set = self.ask(caller, |p, actor| p.protection_set_at(actor, optional_user(r.id), host))?;
        let (list, over) = id_lists(set);
        Ok(pr::GetCPS2Reply { list, over })
    }

    /// GetHostCPS: returns the protection set of a host.
    pub(crate) fn get_host_cps(
        &self,
        caller: &Caller,
        r: pr::GetHostCPSRequest,
    ) -> Result<pr::GetHostCPSReply, AbortCode> {
        let host = Ipv4Addr::from_bits(r.host);
        let (list, over) = id_lists(self.ask(caller, |p, actor| p.host_protection_set_as(actor, host))?);
        Ok(pr::GetHostCPSReply { list, over })
    }
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
