//! How much of what was committed is not yet in tables of the bucket, to bound the memory for it.

use std::collections::VecDeque;

/// Bytes of commits that are counted together, so that many small commits need few entries.
const GROUP_BYTES: usize = 64 << 10;

/// Memory of one change besides its key and value.
pub(crate) const CHANGE_BYTES: usize = 64;

/// Commits not yet in tables, in groups.
#[derive(Debug, Default)]
pub(crate) struct Unflushed {
    groups: VecDeque<Group>,
    bytes: usize,
}

#[derive(Debug)]
struct Group {
    /// Largest number of its commits.
    last: u64,
    bytes: usize,
}

impl Unflushed {
    /// Adds a commit. Concurrent commits may be added in any order.
    pub(crate) fn add(&mut self, number: u64, bytes: usize) {
        self.bytes += bytes;
        match self.groups.back_mut() {
            Some(group) if group.bytes < GROUP_BYTES || group.last > number => {
                group.last = group.last.max(number);
                group.bytes += bytes;
            }
            _ => self.groups.push_back(Group { last: number, bytes }),
        }
    }

    /// Removes the groups that have only commits up to `flushed`.
    pub(crate) fn settle(&mut self, flushed: u64) {
        while let Some(group) = self.groups.front()
            && group.last <= flushed
        {
            self.bytes -= group.bytes;
            self.groups.pop_front();
        }
    }

    /// Bytes of all commits that are left.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_leave_with_the_last_commit_of_their_group() {
        let mut unflushed = Unflushed::default();
        (1..=4).for_each(|number| unflushed.add(number, GROUP_BYTES / 2));
        unflushed.settle(1);
        assert_eq!(unflushed.bytes(), 2 * GROUP_BYTES);
        unflushed.settle(2);
        assert_eq!(unflushed.bytes(), GROUP_BYTES);
        unflushed.add(6, 1);
        unflushed.add(5, 1);
        unflushed.settle(5);
        assert_eq!(unflushed.bytes(), 2, "commit 6 is in the same group");
        unflushed.settle(6);
        assert_eq!(unflushed.bytes(), 0);
    }

    #[test]
    fn many_small_commits_take_few_groups() {
        let mut unflushed = Unflushed::default();
        (1..=100_000).for_each(|number| unflushed.add(number, 64));
        assert!(unflushed.groups.len() <= 100_000 * 64 / GROUP_BYTES + 1);
    }
}
