//! Read-ahead of vnodes for listings.

use base::VnodeId;
use parking_lot::Mutex;
use std::ops::RangeInclusive;

/// Maximum distance between two uncached numbers that are read in one scan: vnodes created together have
/// close numbers.
pub(crate) const GAP_MAX: u32 = 32;

/// How many numbers a listing reads ahead at first, and at most.
const AHEAD: RangeInclusive<u32> = 128..=1536;

/// How far a listing has read the vnodes of a volume, in the order of their numbers, as clients request them that list
/// directories. A scan costs as much as a hundred of its rows where the data is in a bucket.
#[derive(Default)]
pub(crate) struct VnodeReadAhead(Mutex<Progress>);

#[derive(Default)]
struct Progress {
    /// The last number that was read.
    read_to: u32,
    /// How many numbers the next scan may read ahead.
    ahead: u32,
}

impl VnodeReadAhead {
    /// Returns how many numbers after those that are requested from `first` on should be read: none unless they follow what was
    /// read before.
    pub(crate) fn ahead_of(&self, first: VnodeId) -> u32 {
        let Progress { read_to, ahead } = *self.0.lock();
        let is_next = first.0.checked_sub(read_to).is_some_and(|gap| (1..=GAP_MAX).contains(&gap));
        if is_next { ahead } else { 0 }
    }

    /// Notes what a scan has read that was to read `ahead`.
    pub(crate) fn go_on(&self, read_to: VnodeId, ahead: u32) {
        let ahead = (2 * ahead).clamp(*AHEAD.start(), *AHEAD.end());
        *self.0.lock() = Progress { read_to: read_to.0, ahead };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listing_reads_more_and_more_ahead() {
        let listing = VnodeReadAhead::default();
        let scan = |first, read_to| {
            let ahead = listing.ahead_of(VnodeId(first));
            listing.go_on(VnodeId(read_to), ahead);
            ahead
        };
        assert_eq!(scan(2, 100), 0);
        assert_eq!(scan(102, 328), 128, "this follows");
        assert_eq!(scan(328 + GAP_MAX, 700), 256);
        assert_eq!(scan(702, 1200), 512);
        assert_eq!(scan(1202, 2200), 1024);
        assert_eq!(scan(2202, 4000), 1536);
        assert_eq!(scan(4002, 6000), 1536, "not more than that");
        assert_eq!(scan(6001 + GAP_MAX, 7000), 0, "this does not follow");
        assert_eq!(scan(7000, 7100), 0, "nor does what was read already");
        assert_eq!(scan(7102, 7400), 128);
    }
}
