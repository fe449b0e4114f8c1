//! Which small objects are to become one.
//!
//! A sync creates an object of what was appended since the last one, perhaps of a single chunk. Many small objects cost a
//! request each when they are compacted, checked and removed, and an account each in memory. So their live chunks are
//! copied into one object once there are enough objects of about the same size. Sizes are in classes, each sixteen times
//! larger than the one before, and the copies of a full group are in a higher class. So a chunk is copied once for each
//! class at most, whatever is written.

use crate::SegmentUse;

/// Factor between the sizes of two classes.
const CLASS_FACTOR: u64 = 16;

/// Number of objects of one class from which on they become one. With half as many live bytes as they may have, the copy
/// still is in a higher class.
const GROUP_MIN: usize = 2 * CLASS_FACTOR as usize;

/// Chooses objects of the smallest class that has enough of them: the oldest first, as many as fit into one object.
pub(super) fn choose(sealed: impl Iterator<Item = SegmentUse>, object_bytes_max: u64) -> Vec<SegmentUse> {
    let mut classes: Vec<Vec<SegmentUse>> = Vec::new();
    for used in sealed {
        let class = class_of(used.live(), object_bytes_max);
        // The highest class is that of objects that are large enough.
        let Some(class) = class else { continue };
        if classes.len() <= class {
            classes.resize_with(class + 1, Vec::new);
        }
        classes[class].push(used);
    }
    // The last are the smallest.
    let group = classes.into_iter().rev().find(|group| group.len() >= GROUP_MIN).unwrap_or_default();
    let mut left = object_bytes_max;
    let fits = |used: &SegmentUse| {
        let fits = used.live() <= left;
        left = left.saturating_sub(used.live());
        fits
    };
    group.into_iter().take_while(fits).collect()
}

/// Returns the class of an object with this many live bytes: 0 for those of more than a 256th of the largest object's
/// size, and one more for each sixteenth; `None` for more than a 16th.
fn class_of(live: u64, object_bytes_max: u64) -> Option<usize> {
    let mut limit = object_bytes_max / CLASS_FACTOR;
    if live > limit {
        return None;
    }
    let mut class = 0;
    loop {
        limit /= CLASS_FACTOR;
        if live > limit || limit == 0 {
            return Some(class);
        }
        class += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};

    const MAX: u64 = 8 << 20;

    fn objects(sizes: impl Iterator<Item = u64>) -> Vec<SegmentUse> {
        (1..).zip(sizes).map(|(segment, bytes)| SegmentUse { segment, bytes, dead: 0 }).collect()
    }

    fn chosen(objects: &[SegmentUse]) -> Vec<u64> {
        choose(objects.iter().copied(), MAX).iter().map(|used| used.segment).collect()
    }

    #[test]
    fn enough_objects_of_a_size_become_one() {
        assert_eq!(chosen(&[]), []);
        let few = objects((1..GROUP_MIN as u64).map(|_| 4200));
        assert_eq!(chosen(&few), []);
        let enough = objects((0..GROUP_MIN as u64).map(|_| 4200));
        assert_eq!(chosen(&enough), (1..=GROUP_MIN as u64).collect::<Vec<_>>());
        let large = objects((0..1000).map(|_| MAX / CLASS_FACTOR + 1));
        assert_eq!(chosen(&large), []);
        // The smallest first, and not more than one object can hold.
        let both = objects((0..200).map(|number| if number % 2 == 0 { 100_000 } else { 500 }));
        assert!(chosen(&both).iter().all(|segment| segment % 2 == 0) && chosen(&both).len() == 100);
        let many = objects((0..200).map(|_| 100_000));
        assert_eq!(chosen(&many).len() as u64, MAX / 100_000);
        assert_eq!(class_of(0, 1), Some(0));
    }

    /// Objects come one by one, and groups are merged whenever there is one.
    #[test]
    fn a_byte_is_copied_once_for_each_class_at_most() {
        for seed in 0..20 {
            let mut random = SmallRng::seed_from_u64(seed);
            let most = 1 << random.random_range(8..20);
            // Live bytes of each object, and how often they were copied at most.
            let (mut sealed, mut copies): (Vec<SegmentUse>, Vec<u32>) = (vec![], vec![]);
            let (mut written, mut copied) = (0, 0);
            for segment in (0..20_000).map(|number| 1000 * number) {
                let bytes = random.random_range(1..=most);
                sealed.push(SegmentUse { segment, bytes, dead: 0 });
                copies.push(0);
                written += bytes;
                for merged in segment + 1.. {
                    let group = choose(sealed.iter().copied(), MAX);
                    if group.is_empty() {
                        break;
                    }
                    let ids: Vec<u64> = group.iter().map(|used| used.segment).collect();
                    let is_in = |used: &SegmentUse| ids.contains(&used.segment);
                    let times =
                        sealed.iter().zip(&copies).filter(|(used, _)| is_in(used)).map(|(_, copies)| *copies);
                    let times = times.max().unwrap() + 1;
                    let kept = sealed.iter().zip(&copies).filter(|(used, _)| !is_in(used));
                    let (mut kept, mut kept_copies): (Vec<_>, Vec<_>) =
                        kept.map(|(used, copies)| (*used, *copies)).unzip();
                    let bytes = group.iter().map(SegmentUse::live).sum();
                    copied += bytes;
                    kept.push(SegmentUse { segment: merged, bytes, dead: 0 });
                    kept_copies.push(times);
                    (sealed, copies) = (kept, kept_copies);
                }
            }
            assert!(
                sealed.len() < 6 * GROUP_MIN + (written / (MAX / CLASS_FACTOR)) as usize,
                "{}",
                sealed.len()
            );
            assert!(copies.iter().all(|copies| *copies <= 6) && copied <= 6 * written, "seed {seed}");
        }
    }
}
