//! Entries: users, groups, users of other cells.

use base::{UnixTime, UserId};

/// State and access bits of an entry, with the numbers of `ptserver.h`. The eight access bits lie
/// 16 bits up; the wire carries them shifted down ([`EntryFlags::access_bits`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EntryFlags(pub u32);

impl EntryFlags {
    /// The entry is a group (PRGRP).
    pub const GROUP: u32 = 2;
    /// Access bits were set; without it the server's default ones hold (PRACCESS).
    pub const ACCESS_SET: u32 = 1 << 6;
    /// The quota fields are valid (PRQUOTA).
    pub const QUOTA_SET: u32 = 1 << 7;
    /// Where the access bits begin (PRIVATE_SHIFT).
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

    /// The bits of an access mask as `pts` shows it, like `S-M--`: letters `S`, `s`, `O`, `M`, `m`, `A`, `a` and `r`, and
    /// `-` in the place of those that are not set. `None` if there is anything else in it.
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

    /// Whether all of `bits` are set.
    pub fn has(self, bits: u32) -> bool {
        self.0 & bits == bits
    }

    /// The access bits as the wire carries them.
    pub fn access_bits(self) -> u32 {
        self.0 >> EntryFlags::ACCESS_SHIFT
    }
}

/// One user or group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Positive for users, negative for groups; never changes but by [`crate::Change::new_id`].
    pub id: UserId,
    /// 1 to 63 bytes without NUL and newline.
    pub name: Vec<u8>,
    /// State and access bits.
    pub flags: EntryFlags,
    /// For a user of another cell the group that stands for that cell, else 0.
    pub cell: UserId,
    /// Who may change the entry; 0 for a group whose owner was deleted ("orphan").
    pub owner: UserId,
    /// Who created it.
    pub creator: UserId,
    /// Groups that a user may still create; foreign users that a cell's group may still get.
    pub group_quota: i32,
    /// Foreign user quota; in a cell's group the highest number given to one of its users.
    pub user_quota: i32,
    /// Elements: a group's members, or the groups a user is a member of.
    pub count: u32,
    /// Groups that this group is a member of.
    pub supergroup_count: u32,
    /// Place in the listing order; never used again.
    pub position: u32,
    /// When the entry was made.
    pub created: UnixTime,
    /// When an element was last added; 0 if never.
    pub added: UnixTime,
    /// When an element was last removed; 0 if never.
    pub removed: UnixTime,
    /// When name, owner or id last changed; 0 if never.
    pub changed: UnixTime,
}

impl Entry {
    /// Group quota of a new user, and of anybody whose quota was never set.
    pub const DEFAULT_QUOTA: i32 = 20;
    /// Users of another cell that may register themselves unless its group's quota says otherwise.
    pub const DEFAULT_FOREIGN_QUOTA: i32 = 30;

    /// Whether this is a group.
    pub fn is_group(&self) -> bool {
        self.flags.has(EntryFlags::GROUP)
    }

    /// Whether the name says that this is a user or the group of another cell.
    pub fn is_foreign(&self) -> bool {
        self.name.contains(&b'@')
    }

    /// Makes the quota fields valid, with their defaults, if they are not.
    pub(crate) fn settle_quota(&mut self) {
        if !self.flags.has(EntryFlags::QUOTA_SET) {
            self.flags.0 |= EntryFlags::QUOTA_SET;
            self.group_quota = Entry::DEFAULT_QUOTA;
            self.user_quota = Entry::DEFAULT_QUOTA;
        }
    }
}

/// What is counted over the whole database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Totals {
    /// Largest user id given out (`pts listmax`).
    pub max_user: UserId,
    /// Most negative group id given out (`pts listmax`).
    pub max_group: UserId,
    /// The position that the next new entry gets.
    pub next_position: u32,
    /// Users of this cell.
    pub users: u32,
    /// Groups.
    pub groups: u32,
    /// Users of other cells.
    pub foreign_users: u32,
}

impl Totals {
    /// Those of an empty database.
    pub(crate) const EMPTY: Totals = Totals {
        max_user: UserId(0),
        max_group: UserId(0),
        next_position: 0,
        users: 0,
        groups: 0,
        foreign_users: 0,
    };

    /// The counter that `entry` belongs to.
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
