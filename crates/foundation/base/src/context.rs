//! The context of a call: its caller, and the facts about it that statistics and the audit record.

use crate::{CallId, Caller, UserId, VolumeId};
use std::ops::Deref;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, AtomicU8, AtomicU32, Ordering::Relaxed};

/// An operation that administrator privileges permit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Privilege {
    /// Write data regardless of mode bits and owner.
    StoreData,
    /// Change an access list.
    StoreAcl,
    /// Change a status.
    StoreStatus,
    /// Read an access list.
    FetchAcl,
    /// Read a status.
    FetchStatus,
    /// Set mode bits together with data.
    SetModeOfData,
    /// Set mode bits.
    SetMode,
}

/// All [`Privilege`]s, in order, with their names.
pub const PRIVILEGES: [(Privilege, &str); 7] = [
    (Privilege::StoreData, "store-data"),
    (Privilege::StoreAcl, "store-acl"),
    (Privilege::StoreStatus, "store-status"),
    (Privilege::FetchAcl, "fetch-acl"),
    (Privilege::FetchStatus, "fetch-status"),
    (Privilege::SetModeOfData, "set-mode-of-data"),
    (Privilege::SetMode, "set-mode"),
];

/// The set of privileges that a call used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Privileges(u8);

impl Privileges {
    /// Returns the set with one more privilege.
    #[must_use]
    pub fn and(self, privilege: Privilege) -> Privileges {
        Privileges(self.0 | privilege.bit())
    }

    /// Returns the set with one bit per privilege.
    pub fn bits(self) -> u8 {
        self.0
    }

    /// Returns the set with these bits.
    pub fn of_bits(bits: u8) -> Privileges {
        Privileges(bits)
    }

    /// Returns each privilege used, with its name.
    pub fn used(self) -> impl Iterator<Item = (Privilege, &'static str)> {
        PRIVILEGES.into_iter().filter(move |(privilege, _)| self.0 & privilege.bit() != 0)
    }
}

impl Privilege {
    fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// A call being served. The dispatcher creates it, passes it to the handler, and reads the facts when the call ends.
/// Handlers only add facts; no behaviour depends on them. The identity is no fact: a change that has one is made once.
#[derive(Debug)]
pub struct CallContext<'a> {
    caller: &'a Caller,
    id: OnceLock<CallId>,
    volume: AtomicU32,
    user: AtomicI32,
    privileges: AtomicU8,
}

impl<'a> CallContext<'a> {
    /// Returns the context of a new call.
    pub fn new(caller: &'a Caller) -> CallContext<'a> {
        CallContext {
            caller,
            id: OnceLock::new(),
            volume: AtomicU32::default(),
            user: AtomicI32::default(),
            privileges: AtomicU8::default(),
        }
    }

    /// Returns the caller.
    pub fn caller(&self) -> &'a Caller {
        self.caller
    }

    /// Sets the identity of a call that may have been executed before, or may be executed again. Only the first one counts.
    pub fn identify(&self, id: CallId) {
        self.id.get_or_init(|| id);
    }

    /// Returns the identity of a call that may be executed more than once; `None` for most calls.
    pub fn id(&self) -> Option<CallId> {
        self.id.get().copied()
    }

    /// Records that the call uses this volume; only the first one counts.
    pub fn note_volume(&self, id: VolumeId) {
        if self.volume.load(Relaxed) == 0 {
            self.volume.store(id.0, Relaxed);
        }
    }

    /// Records the caller's number in the protection database.
    pub fn note_user(&self, id: UserId) {
        self.user.store(id.0, Relaxed);
    }

    /// Records that an administrator privilege permitted something.
    pub fn note_privilege(&self, used: Privilege) {
        self.privileges.fetch_or(used.bit(), Relaxed);
    }

    /// Returns the facts recorded so far.
    pub fn facts(&self) -> CallFacts {
        CallFacts {
            volume: self.volume.load(Relaxed),
            user: self.user.load(Relaxed),
            privileges: Privileges::of_bits(self.privileges.load(Relaxed)),
        }
    }
}

impl Deref for CallContext<'_> {
    type Target = Caller;

    fn deref(&self) -> &Caller {
        self.caller
    }
}

/// Facts recorded about a call by its handler.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallFacts {
    /// First volume that the call used; 0 for none.
    pub volume: u32,
    /// The caller's number in the protection database; 0 if it was not looked up.
    pub user: i32,
    /// Administrator privileges that the call used.
    pub privileges: Privileges,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Connection, Identity, SecurityLevel};
    use std::net::{IpAddr, Ipv4Addr};

    #[test]
    fn a_call_is_about_its_first_volume() {
        let local = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let caller = Caller {
            identity: Identity::Anonymous,
            level: SecurityLevel::Clear,
            peer: (local, 7001).into(),
            local,
            connection: Connection::default(),
        };
        let call = CallContext::new(&caller);
        assert_eq!(call.facts(), CallFacts::default());
        call.note_volume(VolumeId(7));
        call.note_volume(VolumeId(8));
        call.note_user(UserId(42));
        call.note_privilege(Privilege::SetMode);
        call.note_privilege(Privilege::StoreStatus);
        let privileges = Privileges::default().and(Privilege::StoreStatus).and(Privilege::SetMode);
        assert_eq!(call.facts(), CallFacts { volume: 7, user: 42, privileges });
        let names: Vec<&str> = privileges.used().map(|(_, name)| name).collect();
        assert_eq!(names, ["store-status", "set-mode"]);
        assert_eq!(CallContext::new(call.caller()).facts(), CallFacts::default());
        let ids = [1, 2].map(|number| CallId { process: 7, number });
        for id in ids {
            call.identify(id);
        }
        assert_eq!((call.id(), CallContext::new(call.caller()).id()), (Some(ids[0]), None));
    }
}
