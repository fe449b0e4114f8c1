//! Finds known problems of file servers in the figures that they report.
//!
//! [`diagnose`] is a function of a [`Snapshot`]: two samples of a server's figures, an interval apart,
//! together with its settings, its machine, clocks and jobs. Each rule examines a part of it and returns its
//! findings with the figures that support them; data missing from the snapshot is not a problem. The crate
//! performs no I/O and reads no clock, so that every rule has a case in which it fires and a similar one in
//! which it does not (`tests`).

pub mod cell;
mod finding;
pub mod network;
pub mod repair;
mod rules;
mod slow;
mod snapshot;
pub mod text;

pub use finding::{CRITICAL, Finding, SERIOUS};
pub use slow::SlowCall;
pub use snapshot::{
    Clock, Cluster, Figures, Job, Labels, Machine, Node, Operation, Port, Registration, Settings,
    SharedPartition, Snapshot, Transport,
};

/// Returns the problems in a snapshot, by decreasing weight.
pub fn diagnose(snapshot: &Snapshot) -> Vec<Finding> {
    let mut findings: Vec<Finding> = rules::ALL.iter().flat_map(|rule| rule(snapshot)).collect();
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.weight));
    findings
}

#[cfg(test)]
mod tests;
