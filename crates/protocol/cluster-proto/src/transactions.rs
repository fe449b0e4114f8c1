//! Numbers of the volume server's transactions, from which every node sees where a transaction is.
//!
//! A number has 31 bits: 8 for the partition, 7 for the epoch in which the transaction was opened, and 16 that count. So
//! numbers of two partitions are distinct, and a number of an earlier owner is none of the next one's.

use crate::names::Epoch;
use base::PartitionId;
use std::ops::RangeInclusive;

const COUNT_BITS: u32 = 16;
const EPOCH_BITS: u32 = 7;

/// Returns the numbers of the transactions that are opened on a partition in an epoch. An owner uses them in turn.
pub fn transaction_numbers(partition: PartitionId, epoch: Epoch) -> RangeInclusive<i32> {
    let epoch = (epoch.0 % (1 << EPOCH_BITS)) as u32;
    let first = (partition.index() << EPOCH_BITS | epoch) << COUNT_BITS;
    // A partition has 8 bits, so the sign is never set. 0 is no transaction.
    (first + 1) as i32..=(first + ((1 << COUNT_BITS) - 1)) as i32
}

/// Returns the partition of the transaction with this number; `None` for a number that no owner uses.
pub fn partition_of_transaction(number: i32) -> Option<PartitionId> {
    let number = u32::try_from(number).ok().filter(|number| number % (1 << COUNT_BITS) != 0)?;
    PartitionId::from_index(number >> (EPOCH_BITS + COUNT_BITS))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(partition: u32, epoch: u64) -> RangeInclusive<i32> {
        transaction_numbers(PartitionId::from_index(partition).unwrap(), Epoch(epoch))
    }

    #[test]
    fn a_number_leads_to_its_partition() {
        for partition in 0..=255 {
            for epoch in [0, 1, 127, 128, u64::MAX] {
                let numbers = numbers(partition, epoch);
                assert!(*numbers.start() > 0 && numbers.clone().count() == 65_535);
                for number in [*numbers.start(), *numbers.end()] {
                    let found = partition_of_transaction(number).map(PartitionId::index);
                    assert_eq!(found, Some(partition), "{number:#x}");
                }
            }
        }
        for number in [0, -1, i32::MIN, 0x10000, 0x7fff_0000] {
            assert_eq!(partition_of_transaction(number), None, "{number:#x}");
        }
    }

    #[test]
    fn numbers_of_two_owners_are_distinct() {
        let of = |partition, epoch| numbers(partition, epoch);
        let overlap =
            |a: RangeInclusive<i32>, b: RangeInclusive<i32>| a.start() <= b.end() && b.start() <= a.end();
        for other in 1..128 {
            assert!(!overlap(of(3, 1000), of(3, 1000 + other)), "the epoch {other} later");
        }
        assert!(!overlap(of(3, 7), of(4, 7)) && !overlap(of(3, 127), of(4, 128)), "another partition");
        assert_eq!(of(3, 1000), of(3, 1128), "the numbers come back after 128 owners");
    }
}
