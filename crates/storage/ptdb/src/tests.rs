//! Tests of the protection database.

mod import;
mod limits;
mod model;
mod permissions;
mod records;
mod rules;

use crate::{Actor, Entry, Kind, NewEntry, Policy, Protection, ProtectionError};
use base::{AbortCode, UnixTime, UserId};
use std::sync::Arc;
use store::MemoryMeta;

const NOW: UnixTime = UnixTime(1_700_000_000);

/// A database in memory, with short forms of common operations.
struct Fixture {
    meta: Arc<MemoryMeta>,
    db: Protection,
}

impl Fixture {
    fn new() -> Fixture {
        Fixture::with_policy(Policy::default())
    }

    fn with_policy(policy: Policy) -> Fixture {
        let meta = Arc::new(MemoryMeta::new());
        let db = Protection::open(meta.clone(), policy, NOW).unwrap();
        Fixture { meta, db }
    }

    /// Returns the database after a crash that loses everything not synced.
    fn crashed(&self) -> Fixture {
        let meta = Arc::new(self.meta.crash(0));
        let db = Protection::open(meta.clone(), *self.db.policy(), UnixTime(NOW.0 + 1)).unwrap();
        Fixture { meta, db }
    }

    fn create(&self, actor: &Actor, name: &str, kind: Kind) -> Result<UserId, AbortCode> {
        self.create_owned(actor, name, kind, 0)
    }

    fn create_owned(&self, actor: &Actor, name: &str, kind: Kind, owner: i32) -> Result<UserId, AbortCode> {
        let new = NewEntry { name: name.into(), kind, owner: UserId(owner), id: None };
        self.db.create(actor, &new, NOW).map_err(code)
    }

    fn user(&self, name: &str) -> UserId {
        self.create(&Actor::cell(), name, Kind::User).unwrap()
    }

    fn group(&self, name: &str, owner: UserId) -> UserId {
        self.create_owned(&Actor::cell(), name, Kind::Group, owner.0).unwrap()
    }

    fn add(&self, id: UserId, group: UserId) {
        self.db.add_to_group(&Actor::cell(), id, group, NOW).unwrap();
    }

    fn entry(&self, id: UserId) -> Entry {
        self.db.entry(id).unwrap().unwrap()
    }
}

#[allow(clippy::needless_pass_by_value, reason = "for map_err")]
fn code(error: ProtectionError) -> AbortCode {
    error.abort_code()
}
