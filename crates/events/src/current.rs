//! What the calling thread is doing: the call that it serves notes here what it is about and where its
//! time goes, and who counts calls takes it from here.

use std::cell::Cell;

/// What the time of a call can go to, besides the processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Waiting for a worker.
    Queue,
    /// Waiting for somebody else's change of the same volume.
    Lock,
    /// Reading or writing a disk, or waiting until it has written.
    Disk,
    /// Waiting for clients to answer that they know of a change.
    Callback,
    /// Waiting for the calling client: to send more, or to take what was sent.
    Client,
    /// Waiting until the volume, which nobody used lately, has been read into memory.
    Load,
}

/// The names of [`Part`], in order.
pub const PARTS: [&str; 6] = ["queue", "lock", "disk", "callback", "client", "load"];

/// What an administrator's privileges let a call do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Privilege {
    /// Write data, past mode bits or owners.
    StoreData,
    /// Change an access list.
    StoreAcl,
    /// Change a status.
    StoreStatus,
    /// Read an access list.
    FetchAcl,
    /// Read a status.
    FetchStatus,
    /// Set mode bits with data.
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

/// Which privileges a call used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Privileges(u8);

impl Privileges {
    /// These and one more.
    #[must_use]
    pub fn and(self, privilege: Privilege) -> Privileges {
        Privileges(self.0 | 1 << privilege as u8)
    }

    /// A bit for each.
    pub fn bits(self) -> u8 {
        self.0
    }

    /// Those that have these bits.
    pub fn of_bits(bits: u8) -> Privileges {
        Privileges(bits)
    }

    /// Each that was used, with its name.
    pub fn used(self) -> impl Iterator<Item = (Privilege, &'static str)> {
        PRIVILEGES.into_iter().filter(move |(privilege, _)| self.0 & 1 << *privilege as u8 != 0)
    }
}

/// What was noted of a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Noted {
    /// The first volume that it used; 0 for none.
    pub volume: u32,
    /// The caller's number in the protection database; 0 if nobody asked for it.
    pub user: i32,
    /// What an administrator's privileges let it do.
    pub privileges: Privileges,
    /// Nanoseconds of each [`Part`].
    pub parts: [u64; PARTS.len()],
}

thread_local! {
    static VOLUME: Cell<u32> = const { Cell::new(0) };
    static USER: Cell<i32> = const { Cell::new(0) };
    static USED: Cell<Privileges> = const { Cell::new(Privileges(0)) };
    static PARTS_NS: Cell<[u64; PARTS.len()]> = const { Cell::new([0; PARTS.len()]) };
}

/// Forgets what was noted: a call begins.
pub fn begin() {
    VOLUME.set(0);
    USER.set(0);
    USED.set(Privileges(0));
    PARTS_NS.set([0; PARTS.len()]);
}

/// The call uses this volume.
pub fn volume(id: u32) {
    if VOLUME.get() == 0 {
        VOLUME.set(id);
    }
}

/// The caller has this number in the protection database.
pub fn user(id: i32) {
    USER.set(id);
}

/// The call may do something because the caller is an administrator.
pub fn privilege(used: Privilege) {
    USED.set(USED.get().and(used));
}

/// The call waited so long for that.
pub fn spent(part: Part, ns: u64) {
    let mut parts = PARTS_NS.get();
    parts[part as usize] = parts[part as usize].saturating_add(ns);
    PARTS_NS.set(parts);
}

/// Something the call waits for, within which whatever else it notes belongs to this: it is told on leaving
/// how long it took.
#[derive(Debug)]
#[must_use]
pub struct Span {
    part: Part,
    before: [u64; PARTS.len()],
}

/// The call begins to wait for that.
pub fn enter(part: Part) -> Span {
    Span { part, before: PARTS_NS.get() }
}

impl Span {
    /// It waited so long.
    pub fn leave(self, ns: u64) {
        PARTS_NS.set(self.before);
        spent(self.part, ns);
    }
}

/// What was noted since [`begin`].
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
    fn what_is_waited_for_within_a_wait_belongs_to_it() {
        begin();
        spent(Part::Client, 1);
        let span = enter(Part::Callback);
        spent(Part::Client, 100);
        spent(Part::Callback, 100);
        span.leave(150);
        assert_eq!(noted().parts, [0, 0, 0, 150, 1, 0]);
    }
}
