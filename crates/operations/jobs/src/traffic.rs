//! Counts the bytes sent for a job.

use crate::engine::Run;
use crate::procedure::Procedure;
use crate::rpc::Step;
use crate::transaction::Transaction;
use crate::{Job, World};
use serde::{Deserialize, Serialize};
use std::net::Ipv4Addr;

/// Maximum number of transactions whose traffic is kept; beyond it the oldest are dropped.
const COUNTED_MAX: usize = 200;

/// Progress of transferred volumes in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traffic {
    /// Total size of the volumes.
    pub total: u64,
    /// Bytes that the targets have.
    pub done: u64,
    /// Bytes sent over the network; less than `done` if the targets had some already.
    pub sent: u64,
}

impl std::ops::Add for Traffic {
    type Output = Traffic;

    fn add(self, other: Traffic) -> Traffic {
        Traffic {
            total: self.total.saturating_add(other.total),
            done: self.done.saturating_add(other.done),
            sent: self.sent.saturating_add(other.sent),
        }
    }
}

/// Traffic of one transaction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Counted {
    server: Ipv4Addr,
    transaction: i32,
    traffic: Traffic,
}

impl Job {
    /// Returns the traffic up to the end of the last call that sent data.
    pub fn traffic(&self) -> Traffic {
        self.sent.iter().map(|counted| counted.traffic).fold(Traffic::default(), |sum, one| sum + one)
    }

    /// Returns the total traffic including the current figures of open transactions, and the part of the open
    /// transactions alone. `report` returns the current figures of a transaction, if its server reports them.
    pub fn traffic_now(&self, report: impl Fn(Ipv4Addr, i32) -> Option<Traffic>) -> (Traffic, Traffic) {
        let open = |server, id| self.transactions.iter().any(|open| open.server == server && open.id == id);
        let over = self.sent.iter().filter(|counted| !open(counted.server, counted.transaction));
        let over = over.map(|counted| counted.traffic).fold(Traffic::default(), |sum, one| sum + one);
        let reported = self.transactions.iter().filter_map(|open| report(open.server, open.id));
        let now = reported.fold(Traffic::default(), |sum, one| sum + one);
        (over + now, now)
    }

    fn count(&mut self, from: Transaction, traffic: Traffic) -> Traffic {
        let is_same =
            |counted: &&mut Counted| (counted.server, counted.transaction) == (from.server, from.id);
        if let Some(counted) = self.sent.iter_mut().find(is_same) {
            let before = std::mem::replace(&mut counted.traffic, traffic);
            return Traffic {
                total: traffic.total.saturating_sub(before.total),
                done: traffic.done.saturating_sub(before.done),
                sent: traffic.sent.saturating_sub(before.sent),
            };
        }
        if self.sent.len() >= COUNTED_MAX {
            self.sent.remove(0);
        }
        self.sent.push(Counted { server: from.server, transaction: from.id, traffic });
        traffic
    }
}

impl<P: Procedure, W: World> Run<'_, P, W> {
    /// Records the traffic of the last call, if the server reports it.
    pub(crate) fn count_sent(&mut self, from: Transaction) -> Step {
        let Some(traffic) = self.cell.world.traffic(from.server, from.id) else { return Ok(()) };
        self.count(from, traffic);
        self.save()
    }

    /// Records the traffic of a transaction.
    pub(crate) fn count(&mut self, within: Transaction, traffic: Traffic) {
        let new = self.job.count(within, traffic);
        self.note(format!("sent {} for {}", size(new.sent), size(new.done)));
    }
}

/// Formats a size in bytes for display.
pub(crate) fn size(bytes: u64) -> String {
    let unit = (0..3).rev().find(|unit| bytes >= 1024 << (10 * unit));
    match unit {
        None => format!("{bytes} B"),
        Some(unit) => {
            let tenths = (u128::from(bytes) * 10) >> (10 * (unit + 1));
            format!("{}.{} {}", tenths / 10, tenths % 10, ["KiB", "MiB", "GiB"][unit])
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Operation, Place};

    #[test]
    fn traffic_of_a_transaction_is_counted_once() {
        let place = Place { server: Ipv4Addr::LOCALHOST, partition: 0 };
        let mut job = Job::new(1, Operation::Backup, 5, "home", place);
        let from = |id| Transaction { server: place.server, id, volume: 5, partition: None };
        let traffic = |done| Traffic { total: 2 * done, done, sent: done / 2 };
        assert_eq!(job.count(from(1), traffic(10)), traffic(10));
        assert_eq!(job.count(from(1), traffic(30)), traffic(20), "since the last time");
        assert_eq!(job.count(from(2), traffic(4)), traffic(4));
        assert_eq!(job.traffic(), traffic(34));
        job.transactions.push(from(2));
        let report = |_, id| (id == 2).then(|| traffic(8));
        assert_eq!(job.traffic_now(report), (traffic(38), traffic(8)));
    }

    #[test]
    fn sizes_are_short() {
        let texts = [0, 1023, 1024, 1536, 5 << 20, (7 << 30) + (1 << 29)].map(size);
        assert_eq!(texts, ["0 B", "1023 B", "1.0 KiB", "1.5 KiB", "5.0 MiB", "7.5 GiB"]);
    }
}
