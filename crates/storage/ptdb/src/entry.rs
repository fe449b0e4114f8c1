//! Entries: users, groups and users of other cells.

use base::{UnixTime, UserId};

/// State and access bits of an entry, with the values of `ptserver.h`. The eight access bits start at bit 16;
/// on the wire they are shifted down ([`EntryFlags::access_bits`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EntryFlags(pub u32);

impl EntryFlags {
    /// The entry is a group (PRGRP).
    pub const GROUP: u32 = 2;
    /// Access bits are set; without this flag the server's defaults apply (PRACCESS).
    pub const ACCESS_SET: u32 = 1 << 6;
    /// The quota fields are valid (PRQUOTA).
    pub const QUOTA_SET: u32 = 1 << 7;
    /// Position of the lowest access bit (PRIVATE_SHIFT).
    pub const ACCESS_SHIFT: u32 = 16;
    /// `S`: anyone may examine.
    pub const STATUS_ANY: u32 = 0x80 << 16;
    /// `s`: members may examine.
    pub const STATUS_MEMBER: u32 = 0x40 << 16;
    /// `O`: anyone may list owned groups.
    pub const OWNED_ANY: u32 = 0x20 << 16;
    /// `M`: anyone may list members.
    pub const MEMBERSHIP_ANY: u32 = 0x10 << 16;
    /// `m`: members may list members.
    pub const MEMBERSHIP_MEMBER: u32 = 0x08 << 16;
    /// `A`: anyone may add members.
    pub const ADD_ANY: u32 = 0x04 << 16;
    /// `a`: members may add members.
    pub const ADD_MEMBER: u32 = 0x02 << 16;
    /// `r`: members may remove members.
    pub const REMOVE_MEMBER: u32 = 0x01 << 16;

    /// Parses an access mask as printed by `pts`, like `S-M--`: letters `S`, `s`, `O`, `M`, `m`, `A`, `a` and
    /// `r`, with `-` for bits that are not set. Returns `None` for any other text.
    pub fn parse_access(text: &str) -> Option<u32> {
        text.chars().try_fold(0, |bits, letter| {
            Some(
                bits | match letter {
                    'S' => EntryFlags::STATUS_ANY,
                    's' => EntryFlags::STATUS_MEMBER,
                    'O' => EntryFlags::OWNED_ANY,
                    'M' => EntryFlags::MEMBERSHIP_ANY,
                    'm' => EntryFlags::MEMBERSHIP_MEMBER,
                    'A' => EntryFlags::ADD_ANY,
                    'a' => EntryFlags::ADD_MEMBER,
                    'r' => EntryFlags::REMOVE_MEMBER,
                    '-' => 0,
                    _ => return None,
                },
            )
        })
    }

    /// Formats the access bits like `pts`, as [`EntryFlags::parse_access`] takes them. If both members and
    /// anyone have a right, the letter is that for anyone.
    pub fn access_text(self) -> String {
        let letter = |bit, letter| if self.has(bit) { letter } else { '-' };
        let either = |any, any_letter, member, member_letter| {
            if self.has(any) { any_letter } else { letter(member, member_letter) }
        };
        [
            either(EntryFlags::STATUS_ANY, 'S', EntryFlags::STATUS_MEMBER, 's'),
            letter(EntryFlags::OWNED_ANY, 'O'),
            either(EntryFlags::MEMBERSHIP_ANY, 'M', EntryFlags::MEMBERSHIP_MEMBER, 'm'),
            either(EntryFlags::ADD_ANY, 'A', EntryFlags::ADD_MEMBER, 'a'),
            letter(EntryFlags::REMOVE_MEMBER, 'r'),
        ]
        .iter()
        .collect()
    }

    /// Whether all of `bits` are set.
    pub fn has(self, bits: u32) -> bool {
        self.0 & bits == bits
    }

    /// Returns the access bits as sent on the wire.
    pub fn access_bits(self) -> u32 {
        self.0 >> EntryFlags::ACCESS_SHIFT
    }
}

/// A user or group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Positive for users, negative for groups; only changed by [`crate::Change::new_id`].
    pub id: UserId,
    /// Name of 1 to 63 bytes, without NUL and newline.
    pub name: Vec<u8>,
    /// State and access bits.
    pub flags: EntryFlags,
    /// For a user of another cell, the group of all users of that cell; otherwise 0.
    pub cell: UserId,
    /// User or group that may change the entry; 0 for a group whose owner was deleted (an orphan).
    pub owner: UserId,
    /// User that created the entry.
    pub creator: UserId,
    /// Number of groups that a user may still create, or of foreign users that may still be added to a cell's
    /// group.
    pub group_quota: i32,
    /// Foreign user quota; for a cell's group, the highest number assigned to one of its users.
    pub user_quota: i32,
    /// Number of elements: a group's members, or the groups that a user is in.
    pub count: u32,
    /// Number of groups that this group is in.
    pub supergroup_count: u32,
    /// Position in the listing order; never reused.
    pub position: u32,
    /// Time at which the entry was created.
    pub created: UnixTime,
    /// Time at which an element was last added; 0 if never.
    pub added: UnixTime,
    /// Time at which an element was last removed; 0 if never.
    pub removed: UnixTime,
    /// Time at which name, owner or id last changed; 0 if never.
    pub changed: UnixTime,
}

impl Entry {
    /// Group quota of a new user, and of any user whose quota was never set.
    pub const DEFAULT_QUOTA: i32 = 20;
    /// Default number of users of another cell that may register themselves.
    pub const DEFAULT_FOREIGN_QUOTA: i32 = 30;

    /// Whether this is a group.
    pub fn is_group(&self) -> bool {
        self.flags.has(EntryFlags::GROUP)
    }

    /// Whether the name is that of a user of another cell, or of the group of such users.
    pub fn is_foreign(&self) -> bool {
        self.name.contains(&b'@')
    }

    /// Sets the quota fields to their defaults if they are not valid.
    pub(crate) fn settle_quota(&mut self) {
        if !self.flags.has(EntryFlags::QUOTA_SET) {
            self.flags.0 |= EntryFlags::QUOTA_SET;
            self.group_quota = Entry::DEFAULT_QUOTA;
            self.user_quota = Entry::DEFAULT_QUOTA;
        }
    }
}

/// Counters of the whole database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Totals {
    /// Largest user id assigned so far (`pts listmax`).
    pub max_user: UserId,
    /// Most negative group id assigned so far (`pts listmax`).
    pub max_group: UserId,
    /// Position of the next new entry.
    pub next_position: u32,
    /// Number of users of this cell.
    pub users: u32,
    /// Number of groups.
    pub groups: u32,
    /// Number of users of other cells.
    pub foreign_users: u32,
}

impl Totals {
    /// Counters of an empty database.
    pub(crate) const EMPTY: Totals = Totals {
        max_user: UserId(0),
        max_group: UserId(0),
        next_position: 0,
        users: 0,
        groups: 0,
        foreign_users: 0,
    };

    /// Returns the counter that includes `entry`.
    pub(crate) fn counter(&mut self, entry: &Entry) -> &mut u32 {
        if entry.is_group() {
            &mut self.groups
        } else if entry.is_foreign() {
            &mut self.foreign_users
        } else {
            &mut self.users
        }
    }
}
