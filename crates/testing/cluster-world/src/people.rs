//! Who may do what: holders of the cell's key everything, everyone else what access lists allow anyone.

use base::{AbortCode, Caller, Identity, UserId};
use fileserver::{Membership, Subject};
use volserver::Administrators;

/// Whether a caller holds the cell's key.
pub fn is_cell(caller: &Caller) -> bool {
    matches!(&caller.identity, Identity::Known(principal) if principal.name == "afs")
}

/// Holders of the cell's key are superusers, all others are anyone.
#[derive(Clone, Copy, Debug)]
pub struct People;

impl Membership for People {
    fn subject(&self, caller: &Caller) -> Result<Subject, AbortCode> {
        let is_admin = is_cell(caller);
        let user = if is_admin { UserId(1) } else { UserId::ANONYMOUS };
        Ok(Subject {
            user,
            groups: vec![user, UserId::ANYUSER],
            host_groups: Vec::new(),
            administrator: is_admin,
            superuser: is_admin,
            is_partial: false,
        })
    }

    fn names(&self, ids: &[UserId]) -> Result<Vec<Vec<u8>>, AbortCode> {
        Ok(ids.iter().map(|id| id.0.to_string().into_bytes()).collect())
    }

    fn ids(&self, names: &[&[u8]]) -> Result<Vec<Option<UserId>>, AbortCode> {
        let anyone = b"system:anyuser";
        Ok(names.iter().map(|name| (*name == anyone).then_some(UserId::ANYUSER)).collect())
    }
}

/// Holders of the cell's key are administrators of the volume service.
#[derive(Clone, Copy, Debug)]
pub struct Administration;

impl Administrators for Administration {
    fn is_administrator(&self, caller: &Caller) -> bool {
        is_cell(caller)
    }
}
