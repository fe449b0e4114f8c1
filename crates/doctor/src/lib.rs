//! Known problems of file servers, found in what they tell of themselves.
//!
//! [`diagnose`] is a function of a [`Snapshot`]: two looks at the figures of a server, an interval apart,
//! with what is known of its settings, its machine, clocks and jobs. Each rule looks at a part of that and says
//! what it finds, with the numbers that it saw; what is not in the snapshot is no problem. Nothing here asks
//! anybody, waits or knows a clock, so that every rule has a case in which it fires and a near one in which
//! it does not (`tests`).

pub mod cell;
mod finding;
pub mod network;
mod rules;
mod slow;
mod snapshot;
pub mod text;

pub use finding::{CRITICAL, Finding, SERIOUS};
pub use slow::SlowCall;
pub use snapshot::{
    Clock, Figures, Job, Labels, Machine, Operation, Port, Registration, Settings, Snapshot, Transport,
};

/// The problems of a snapshot, the weightiest first.
pub fn diagnose(snapshot: &Snapshot) -> Vec<Finding> {
    let mut findings: Vec<Finding> = rules::ALL.iter().flat_map(|rule| rule(snapshot)).collect();
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.weight));
    findings
}

#[cfg(test)]
mod tests;
