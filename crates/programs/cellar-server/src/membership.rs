//! Group memberships of callers, from the cell's protection servers, for a file server without one in its own
//! process.
//!
//! As in OpenAFS, a caller's groups are requested when its connection is first used, so that a new token
//! shows new groups immediately. Groups shared by many calls, those of hosts and of anonymous callers, are
//! cached here. While no protection server answers, a named caller with unknown groups is told to wait
//! (VBUSY) and gets no access, not even that of anonymous callers, because clients cache their rights. Other
//! callers continue without the rights of their hosts.

use afs_idl::{ClientConnection, pr};
use base::limits::PROTECTION_NAME_BYTES_MAX;
use base::{AbortCode, Caller, LocalAuthority, UserId};
use cell_client::describe::describe;
use cell_client::{CellClient, Interface};
use fileserver::{Membership, Subject};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Lifetime of a host's cached groups (`-hr` of OpenAFS's file server: 2 hours).
const LIFETIME: Duration = Duration::from_secs(2 * 3600);
/// Pause before a failed request is repeated.
const RETRY: Duration = Duration::from_secs(5);
/// Maximum number of cached hosts.
const HOSTS_MAX: usize = 100_000;
/// Interval at which a lasting failure is logged.
const COMPLAINT_PERIOD: Duration = Duration::from_secs(60);
/// The ID for an unknown name in answers of PR_NameToID.
const NOBODY: i32 = UserId::ANONYMOUS.0;

/// The cell's protection servers.
pub struct RemoteMembership {
    cell: Arc<CellClient>,
    authority: Arc<dyn LocalAuthority>,
    /// Guards only the table; no call is made under it.
    shared: Mutex<HashMap<Whose, Groups>>,
    /// Time of the last log line about a failure.
    complained: Mutex<Option<Instant>>,
}

/// Owner of groups that many connections share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Whose {
    Anonymous,
    Host(Ipv4Addr),
}

#[derive(Clone)]
struct Groups {
    ids: Vec<UserId>,
    until: Instant,
    is_partial: bool,
}

impl RemoteMembership {
    /// Uses the protection servers of `cell`; `authority` knows who is trusted by configuration.
    pub fn new(cell: Arc<CellClient>, authority: Arc<dyn LocalAuthority>) -> RemoteMembership {
        RemoteMembership { cell, authority, shared: Mutex::default(), complained: Mutex::default() }
    }

    fn ask<T>(&self, call: impl Fn(&dyn ClientConnection) -> Result<T, AbortCode>) -> Result<T, AbortCode> {
        self.cell.database(Interface::Protection, call).inspect_err(|code| self.complain(*code))
    }

    fn complain(&self, code: AbortCode) {
        let mut last = self.complained.lock();
        if code != AbortCode::PRNOENT && last.is_none_or(|at| at.elapsed() >= COMPLAINT_PERIOD) {
            *last = Some(Instant::now());
            tracing::error!(
                "the cell's protection servers cannot be reached: {}; callers whose groups are unknown wait",
                describe(code)
            );
        }
    }

    /// Requests the groups of a user or group (PR_GetCPS).
    fn groups(&self, id: UserId) -> Result<Vec<UserId>, AbortCode> {
        let reply = self.ask(|pr| pr::get_cps(pr, &pr::GetCPSRequest { id: id.0 }))?;
        Ok(listed(reply.list, reply.over, id.0))
    }

    fn groups_of_user(&self, id: UserId) -> Result<Vec<UserId>, AbortCode> {
        match self.groups(id) {
            Err(AbortCode::PRNOENT) => Ok(vec![id, UserId::ANYUSER]),
            groups => groups.map_err(wait),
        }
    }

    fn groups_of_host(&self, host: Ipv4Addr) -> Result<Vec<UserId>, AbortCode> {
        let reply = self.ask(|pr| pr::get_host_cps(pr, &pr::GetHostCPSRequest { host: host.into() }))?;
        Ok(listed(reply.list, reply.over, host))
    }

    /// Returns cached groups, or requests them. On failure returns the minimum.
    fn shared(&self, whose: Whose) -> Groups {
        let known = self.shared.lock().get(&whose).cloned();
        let now = Instant::now();
        if let Some(groups) = known.filter(|groups| now < groups.until) {
            return groups;
        }
        let (asked, least) = match whose {
            Whose::Anonymous => (self.groups(UserId::ANONYMOUS), vec![UserId::ANONYMOUS, UserId::ANYUSER]),
            Whose::Host(host) => (self.groups_of_host(host), Vec::new()),
        };
        let groups = match asked {
            Ok(ids) => Groups { ids, until: now + LIFETIME, is_partial: false },
            Err(AbortCode::PRNOENT) => Groups { ids: least, until: now + LIFETIME, is_partial: false },
            Err(_) => Groups { ids: least, until: now + RETRY, is_partial: true },
        };
        self.remember(whose, groups.clone(), now);
        groups
    }

    fn remember(&self, whose: Whose, groups: Groups, now: Instant) {
        let mut shared = self.shared.lock();
        if shared.len() >= HOSTS_MAX {
            shared.retain(|_, groups| now < groups.until);
        }
        if shared.len() >= HOSTS_MAX {
            shared.clear();
        }
        shared.insert(whose, groups);
    }

    fn id_of_name(&self, name: &[u8]) -> Result<Option<UserId>, AbortCode> {
        Ok(self.ids(&[name])?.into_iter().next().flatten())
    }
}

impl Membership for RemoteMembership {
    fn subject(&self, caller: &Caller) -> Result<Subject, AbortCode> {
        let actor = ptdb::identify(caller, &*self.authority, |name| self.id_of_name(name))?;
        let mut is_partial = false;
        let mut shared = |whose| {
            let groups = self.shared(whose);
            is_partial |= groups.is_partial;
            groups.ids
        };
        let groups = match actor.id {
            UserId::ANONYMOUS => shared(Whose::Anonymous),
            // The cell itself needs no request.
            UserId::ADMINISTRATORS => vec![UserId::ADMINISTRATORS, UserId::AUTHUSER, UserId::ANYUSER],
            user => self.groups_of_user(user)?,
        };
        let host_groups = match caller.peer.ip() {
            IpAddr::V4(host) => shared(Whose::Host(host)),
            IpAddr::V6(_) => Vec::new(),
        };
        let administrator = groups.contains(&UserId::ADMINISTRATORS);
        let superuser = actor.superuser;
        Ok(Subject { user: actor.id, groups, host_groups, administrator, superuser, is_partial })
    }

    fn names(&self, ids: &[UserId]) -> Result<Vec<Vec<u8>>, AbortCode> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let request = pr::IDToNameRequest { ids: ids.iter().map(|id| id.0).collect() };
        let reply = self.ask(|pr| pr::id_to_name(pr, &request)).map_err(wait)?;
        all_answered(reply.names, ids.len(), |name| name.as_bytes().to_vec())
    }

    fn ids(&self, names: &[&[u8]]) -> Result<Vec<Option<UserId>>, AbortCode> {
        let is_possible = |name: &[u8]| name.len() <= PROTECTION_NAME_BYTES_MAX && !name.contains(&0);
        let asked: Vec<Vec<u8>> =
            names.iter().filter(|name| is_possible(name)).map(|name| name.to_ascii_lowercase()).collect();
        if asked.is_empty() {
            return Ok(vec![None; names.len()]);
        }
        let request =
            pr::NameToIDRequest { names: asked.iter().map(|name| name.as_slice().into()).collect() };
        let reply = self.ask(|pr| pr::name_to_id(pr, &request)).map_err(wait)?;
        let found = all_answered(reply.ids, asked.len(), |id| id)?;
        let mut found = found.into_iter().zip(asked).map(|(id, name)| {
            let is_somebody = id != 0 && (id != NOBODY || name == b"anonymous");
            is_somebody.then_some(UserId(id))
        });
        Ok(names.iter().map(|name| if is_possible(name) { found.next().flatten() } else { None }).collect())
    }

    fn forget_hosts(&self) {
        self.shared.lock().clear();
    }
}

/// Makes clients wait and retry while the database cannot be reached.
fn wait(_: AbortCode) -> AbortCode {
    AbortCode::VBUSY
}

fn listed(list: Vec<i32>, over: i32, whose: impl std::fmt::Display) -> Vec<UserId> {
    if over != 0 {
        tracing::warn!(of = %whose, "the list of groups is truncated: the protection server reports more");
    }
    list.into_iter().map(UserId).collect()
}

/// Returns an answer for each question; another number of answers is an error.
fn all_answered<T, U>(answers: Vec<T>, questions: usize, each: impl Fn(T) -> U) -> Result<Vec<U>, AbortCode> {
    if answers.len() != questions {
        tracing::error!(questions, answers = answers.len(), "a protection server sent an unexpected reply");
        return Err(AbortCode::VBUSY);
    }
    Ok(answers.into_iter().map(each).collect())
}

#[cfg(test)]
mod tests;
