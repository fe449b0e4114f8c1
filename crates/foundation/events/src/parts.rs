//! State of the call that the calling thread serves: the call records here which volume and user it is about
//! and where its time goes, and the code that counts calls reads it.

use std::cell::Cell;

/// A part of a call's time other than processor time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Waiting for a worker.
    Queue,
    /// Waiting for another thread's change to the same volume.
    Lock,
    /// Reading or writing a disk, or waiting for a sync.
    Disk,
    /// Waiting for clients to acknowledge a callback break.
    Callback,
    /// Waiting for the calling client to send more data, or to accept a reply.
    Client,
    /// Waiting until a volume that was not in use has been loaded.
    Load,
}

/// Names of [`Part`], in order.
pub const PARTS: [&str; 6] = ["queue", "lock", "disk", "callback", "client", "load"];

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
        Privileges(self.0 | 1 << privilege as u8)
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
        PRIVILEGES.into_iter().filter(move |(privilege, _)| self.0 & 1 << *privilege as u8 != 0)
    }
}

/// Facts recorded about a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Noted {
    /// First volume that the call used; 0 for none.
    pub volume: u32,
    /// The caller's number in the protection database; 0 if it was not looked up.
    pub user: i32,
    /// Administrator privileges that the call used.
    pub privileges: Privileges,
    /// Nanoseconds spent in each [`Part`].
    pub parts: [u64; PARTS.len()],
}

thread_local! {
    static VOLUME: Cell<u32> = const { Cell::new(0) };
    static USER: Cell<i32> = const { Cell::new(0) };
    static USED: Cell<Privileges> = const { Cell::new(Privileges(0)) };
    static PARTS_NS: Cell<[u64; PARTS.len()]> = const { Cell::new([0; PARTS.len()]) };
}

/// Resets all facts at the start of a call.
pub fn begin() {
    VOLUME.set(0);
    USER.set(0);
    USED.set(Privileges(0));
    PARTS_NS.set([0; PARTS.len()]);
}

/// Records that the call uses this volume.
pub fn volume(id: u32) {
    if VOLUME.get() == 0 {
        VOLUME.set(id);
    }
}

/// Records the caller's number in the protection database.
pub fn user(id: i32) {
    USER.set(id);
}

/// Records that an administrator privilege permitted something.
pub fn privilege(used: Privilege) {
    USED.set(USED.get().and(used));
}

/// Adds `ns` nanoseconds to a part.
pub fn spent(part: Part, ns: u64) {
    let mut parts = PARTS_NS.get();
    parts[part as usize] = parts[part as usize].saturating_add(ns);
    PARTS_NS.set(parts);
}

/// A wait of the call. Everything recorded within it counts as part of this wait, whose duration is passed to
/// [`Span::leave`].
#[derive(Debug)]
#[must_use]
pub struct Span {
    part: Part,
    before: [u64; PARTS.len()],
}

/// Starts a wait.
pub fn enter(part: Part) -> Span {
    Span { part, before: PARTS_NS.get() }
}

impl Span {
    /// Ends the wait, which took `ns` nanoseconds.
    pub fn leave(self, ns: u64) {
        PARTS_NS.set(self.before);
        spent(self.part, ns);
    }
}

/// Returns the facts recorded since [`begin`].
pub fn noted() -> Noted {
    Noted { volume: VOLUME.get(), user: USER.get(), privileges: USED.get(), parts: PARTS_NS.get() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_about_its_first_volume() {
        begin();
        spent(Part::Disk, 5);
        volume(7);
        volume(8);
        user(42);
        privilege(Privilege::SetMode);
        privilege(Privilege::StoreStatus);
        spent(Part::Disk, 6);
        let parts = [0, 0, 11, 0, 0, 0];
        let privileges = Privileges::default().and(Privilege::StoreStatus).and(Privilege::SetMode);
        assert_eq!(noted(), Noted { volume: 7, user: 42, privileges, parts });
        let names: Vec<&str> = privileges.used().map(|(_, name)| name).collect();
        assert_eq!(names, ["store-status", "set-mode"]);
        begin();
        assert_eq!(noted(), Noted::default());
    }

    #[test]
    fn nested_waits_belong_to_the_outer_one() {
        begin();
        spent(Part::Client, 1);
        let span = enter(Part::Callback);
        spent(Part::Client, 100);
        spent(Part::Callback, 100);
        span.leave(150);
        assert_eq!(noted().parts, [0, 0, 0, 150, 1, 0]);
    }
}
