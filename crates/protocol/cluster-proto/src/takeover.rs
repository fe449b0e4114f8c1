//! How a partition came to a node or left it, and how long each stage of that took.

use crate::names::{Epoch, NodeName, PartitionName};
use base::Monotonic;
use std::time::Duration;

/// A stage of a takeover, or of giving a partition up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// From the last renewal of the owner's lease that was seen, until the lease was taken to have ended.
    Detect,
    /// Until the lease said that its node is dead.
    Evict,
    /// Until the owner's object named this node.
    Claim,
    /// Until the database was open.
    Open,
    /// Until the hosts that may hold promises of earlier owners were reset.
    Reset,
    /// From the decision to give the partition up, or its loss, until the database was closed.
    Close,
    /// Until the owner's object said that the partition is free.
    Free,
}

impl Stage {
    /// Number of stages.
    pub const COUNT: usize = 7;

    /// All stages, in their order.
    pub const ALL: [Stage; Stage::COUNT] =
        [Stage::Detect, Stage::Evict, Stage::Claim, Stage::Open, Stage::Reset, Stage::Close, Stage::Free];
}

/// Why a partition came to a node, or left it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// No node had owned it.
    New,
    /// It was free.
    Free,
    /// Its owner gave it up for this node.
    Moved,
    /// An earlier process or membership of this node had it.
    Restarted,
    /// Its owner left without giving it up.
    Left,
    /// Its owner's lease ended.
    Died,
    /// This node gave it up.
    GivenUp,
    /// This node lost it.
    Fenced,
}

impl Cause {
    /// Number of causes.
    pub const COUNT: usize = 8;

    /// All causes, those of gains first.
    pub const ALL: [Cause; Cause::COUNT] = [
        Cause::New,
        Cause::Free,
        Cause::Moved,
        Cause::Restarted,
        Cause::Left,
        Cause::Died,
        Cause::GivenUp,
        Cause::Fenced,
    ];

    /// Returns the cause as a word.
    pub fn name(self) -> &'static str {
        match self {
            Cause::New => "new",
            Cause::Free => "free",
            Cause::Moved => "moved",
            Cause::Restarted => "restarted",
            Cause::Left => "left",
            Cause::Died => "died",
            Cause::GivenUp => "given-up",
            Cause::Fenced => "fenced",
        }
    }

    /// Whether the partition came to this node.
    pub fn is_gain(self) -> bool {
        !matches!(self, Cause::GivenUp | Cause::Fenced)
    }
}

/// A partition that came to this node, or left it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Takeover {
    /// The partition.
    pub partition: PartitionName,
    /// The epoch of this node's ownership.
    pub epoch: Epoch,
    /// Why.
    pub cause: Cause,
    /// The owner before, or the node for which the partition was given up.
    pub other: Option<NodeName>,
    /// When it began, by this node's clock: if the owner died, when its lease was last seen to be renewed.
    pub began: Monotonic,
    /// Duration of each stage. They follow each other without gaps.
    pub stages: [Duration; Stage::COUNT],
    /// False for an ownership that ended before everything was answered.
    pub is_complete: bool,
}

impl Takeover {
    /// Returns the duration of a stage.
    pub fn stage(&self, stage: Stage) -> Duration {
        self.stages[stage as usize]
    }

    /// Returns the sum of all stages.
    pub fn total(&self) -> Duration {
        self.stages.iter().sum()
    }
}

/// A takeover that is going on.
#[derive(Clone, Debug)]
pub(crate) struct Timeline {
    cause: Cause,
    other: Option<NodeName>,
    began: Monotonic,
    last: Monotonic,
    stages: [Duration; Stage::COUNT],
}

impl Timeline {
    pub(crate) fn new(cause: Cause, other: Option<NodeName>, began: Monotonic) -> Timeline {
        Timeline { cause, other, began, last: began, stages: [Duration::ZERO; Stage::COUNT] }
    }

    /// Adds the time since the stage before to this one.
    pub(crate) fn reach(&mut self, stage: Stage, now: Monotonic) {
        self.stages[stage as usize] += now.since(self.last);
        self.last = self.last.max(now);
    }

    pub(crate) fn end(self, partition: PartitionName, epoch: Epoch, is_complete: bool) -> Takeover {
        let Timeline { cause, other, began, stages, .. } = self;
        Takeover { partition, epoch, cause, other, began, stages, is_complete }
    }
}

/// The end of another node's lease, as this node has seen it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LeaseEnd {
    /// When the last renewal was seen.
    pub(crate) renewed: Monotonic,
    /// When the lease was taken to have ended.
    pub(crate) ended: Monotonic,
    /// When its object was known to say so.
    pub(crate) evicted: Monotonic,
    /// Whether its node has left in order.
    pub(crate) has_left: bool,
}

impl LeaseEnd {
    /// Returns the takeover of a partition from that node, up to the end of its lease.
    pub(crate) fn timeline(self, node: NodeName) -> Timeline {
        let cause = if self.has_left { Cause::Left } else { Cause::Died };
        let mut timeline = Timeline::new(cause, Some(node), self.renewed);
        timeline.reach(Stage::Detect, self.ended);
        timeline.reach(Stage::Evict, self.evicted);
        timeline
    }
}

/// The mean time between a node's renewals, from the numbers in its lease and this node's clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    sequence: u64,
    since: Monotonic,
    pub(crate) mean: Option<Duration>,
}

impl Pace {
    /// Time that is measured at a time. A lease is read about as often as it is renewed, so a mean is off by up to a
    /// thirtieth.
    const SPAN: u32 = 60;

    pub(crate) fn new(sequence: u64, now: Monotonic) -> Pace {
        Pace { sequence, since: now, mean: None }
    }

    /// Records that the lease was seen to have this number. `renewal` is the time that is expected between two.
    pub(crate) fn note(&mut self, sequence: u64, now: Monotonic, renewal: Duration) {
        let (span, count) = (now.since(self.since), sequence.saturating_sub(self.sequence));
        if span >= renewal * Pace::SPAN && count > 0 {
            let mean = span / u32::try_from(count).unwrap_or(u32::MAX);
            *self = Pace { sequence, since: now, mean: Some(mean) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Monotonic {
        Monotonic(ms * 1_000_000)
    }

    #[test]
    fn stages_follow_without_gaps() {
        let end = LeaseEnd { renewed: at(1000), ended: at(7000), evicted: at(7020), has_left: false };
        let mut timeline = end.timeline("b".parse().unwrap());
        for (stage, now) in [(Stage::Claim, 7100), (Stage::Open, 7900), (Stage::Reset, 7900)] {
            timeline.reach(stage, at(now));
        }
        // A failed attempt to open counts as opening, too.
        timeline.reach(Stage::Open, at(8000));
        // Times that arrive out of order add nothing.
        timeline.reach(Stage::Reset, at(7000));
        let taken = timeline.end("p".parse().unwrap(), Epoch(3), true);
        let ms = Stage::ALL.map(|stage| taken.stage(stage).as_millis());
        assert_eq!(ms, [6000, 20, 80, 900, 0, 0, 0]);
        assert_eq!((taken.total(), taken.cause), (Duration::from_secs(7), Cause::Died));
        assert_eq!(taken.other.unwrap().as_str(), "b");
        let left = LeaseEnd { has_left: true, ..end }.timeline("b".parse().unwrap());
        assert_eq!(left.end("p".parse().unwrap(), Epoch(3), true).cause, Cause::Left);
    }

    #[test]
    fn stages_and_causes_are_numbered_in_their_order() {
        assert!(Stage::ALL.iter().enumerate().all(|(index, stage)| *stage as usize == index));
        assert!(Cause::ALL.iter().enumerate().all(|(index, cause)| *cause as usize == index));
        assert!(Cause::ALL.is_sorted_by_key(|cause| !cause.is_gain()));
    }

    #[test]
    fn the_pace_of_renewals_shows_the_rate_of_a_clock() {
        let second = Duration::from_secs(1);
        let mut pace = Pace::new(5, at(0));
        for renewals in 1..=59 {
            pace.note(5 + renewals, at(renewals * 909), second);
        }
        assert_eq!(pace.mean, None, "it takes a minute");
        pace.note(71, at(60_000), second);
        assert_eq!(pace.mean.map(|mean| mean.as_millis()), Some(909));
        pace.note(71, at(120_000), second);
        assert_eq!(pace.mean.map(|mean| mean.as_millis()), Some(909), "no renewal was seen");
    }
}
