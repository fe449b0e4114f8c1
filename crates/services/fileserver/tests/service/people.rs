//! Users of the tests: `admin`, `alice` and `bob` of the group `staff`, and `carol`.

use base::{AbortCode, Caller, Identity, UserId};
use fileserver::{Membership, Subject};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

pub(crate) const ADMIN: UserId = UserId(1);
pub(crate) const ALICE: UserId = UserId(100);
pub(crate) const BOB: UserId = UserId(200);
pub(crate) const CAROL: UserId = UserId(300);
pub(crate) const STAFF: UserId = UserId(-300);

const NAMES: [(UserId, &str); 8] = [
    (ADMIN, "admin"),
    (ALICE, "alice"),
    (BOB, "bob"),
    (CAROL, "carol"),
    (STAFF, "staff"),
    (UserId::ADMINISTRATORS, "system:administrators"),
    (UserId::ANYUSER, "system:anyuser"),
    (UserId::AUTHUSER, "system:authuser"),
];

/// A protection database with fixed contents that counts its queries.
#[derive(Default)]
pub(crate) struct People {
    pub(crate) asked: AtomicUsize,
    /// Whether it fails to answer.
    pub(crate) silent: AtomicBool,
    /// Whether it answers only in part.
    pub(crate) partial: AtomicBool,
}

impl Membership for People {
    fn subject(&self, caller: &Caller) -> Result<Subject, AbortCode> {
        self.asked.fetch_add(1, Relaxed);
        if self.silent.load(Relaxed) {
            return Err(AbortCode::VBUSY);
        }
        let name = match &caller.identity {
            Identity::Anonymous => "",
            Identity::Known(principal) => principal.name.as_str(),
        };
        let user = id(name.as_bytes()).unwrap_or(UserId::ANONYMOUS);
        let mut groups = vec![user, UserId::ANYUSER];
        if user != UserId::ANONYMOUS {
            groups.push(UserId::AUTHUSER);
        }
        match user {
            ADMIN => groups.push(UserId::ADMINISTRATORS),
            ALICE | BOB => groups.push(STAFF),
            _ => {}
        }
        let administrator = user == ADMIN;
        let host_groups = Vec::new();
        let is_partial = self.partial.load(Relaxed);
        Ok(Subject { user, groups, host_groups, administrator, superuser: administrator, is_partial })
    }

    fn names(&self, ids: &[UserId]) -> Result<Vec<Vec<u8>>, AbortCode> {
        let name = |id: &UserId| {
            let known = NAMES.iter().find(|(known, _)| known == id);
            known.map_or_else(|| id.0.to_string().into_bytes(), |(_, name)| name.as_bytes().to_vec())
        };
        Ok(ids.iter().map(name).collect())
    }

    fn ids(&self, names: &[&[u8]]) -> Result<Vec<Option<UserId>>, AbortCode> {
        Ok(names.iter().map(|name| id(name)).collect())
    }
}

fn id(name: &[u8]) -> Option<UserId> {
    NAMES.iter().find(|(_, known)| known.as_bytes() == name).map(|(id, _)| *id)
}
