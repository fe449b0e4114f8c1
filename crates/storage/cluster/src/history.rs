//! What has happened to a member since its start, for administrators.

use crate::clock;
use crate::driver::Counters;
use crate::gate::Gate;
use base::Monotonic;
use cluster_proto::{Cause, NodeState, NodeStatus, Stage, Takeover};
use events::Histogram;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// Number of takeovers that are kept, with those by which partitions left.
pub const TAKEOVERS_MAX: usize = 64;

/// What has happened since the start.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// Counts.
    pub counters: Counters,
    /// Durations of the requests to the bucket. One without an answer ends after a quarter of the TTL.
    pub requests: Histogram,
    /// Ownerships that have begun and been served, and those that have ended, by cause.
    pub causes: [u64; Cause::COUNT],
    /// Durations of the takeovers from nodes that had died, from the last renewal that was seen.
    pub takeovers: Histogram,
    /// Sums of their stages, in nanoseconds.
    pub stages: [u64; Stage::COUNT],
    /// The last takeovers, the oldest first.
    pub last: Vec<PastTakeover>,
    /// Other nodes that own partitions.
    pub nodes: Vec<NodeWatched>,
    /// Lifetime of the lease.
    pub ttl: Duration,
    /// For how long the lease is still valid; `None` if it is not.
    pub lease_left: Option<Duration>,
    /// Time since the lease was last not renewed in time; `None` if that has not happened.
    pub since_lapse: Option<Duration>,
}

/// A partition that came to this node or left it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PastTakeover {
    /// What happened, with the times of its stages.
    pub takeover: Takeover,
    /// When it began, by the machine's clock.
    pub began: SystemTime,
    /// Time since then.
    pub age: Duration,
    /// Time from the beginning to the first reply; `None` if there was none. Reads are answered before the hosts are
    /// reset.
    pub answered: Option<Duration>,
}

/// Another node that owns partitions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeWatched {
    /// Its name.
    pub node: String,
    /// Where it receives calls of other nodes.
    pub addresses: Vec<SocketAddr>,
    /// The state in its lease; `None` if it was not read yet.
    pub state: Option<NodeState>,
    /// Time since its lease was last seen to change.
    pub silent: Duration,
    /// See [`NodeStatus::renewal`].
    pub renewal: Option<Duration>,
}

impl NodeWatched {
    pub(crate) fn new(status: NodeStatus) -> NodeWatched {
        let NodeStatus { node, addresses, state, changed, renewal } = status;
        NodeWatched { node: node.to_string(), addresses, state, silent: clock::now().since(changed), renewal }
    }
}

/// A takeover that is kept.
struct Kept {
    takeover: Takeover,
    began: SystemTime,
    /// Knows the first reply.
    gate: Option<Arc<Gate>>,
}

/// The records of a member.
#[derive(Default)]
pub(crate) struct Records {
    kept: VecDeque<Kept>,
    requests: Histogram,
    causes: [u64; Cause::COUNT],
    takeovers: Histogram,
    stages: [u64; Stage::COUNT],
    lapsed: Option<Monotonic>,
}

impl Records {
    pub(crate) fn request(&mut self, time: Duration) {
        self.requests.record(nanoseconds(time));
    }

    pub(crate) fn lapsed(&mut self) {
        self.lapsed = Some(clock::now());
    }

    /// Keeps and logs a takeover that has ended.
    pub(crate) fn takeover(&mut self, takeover: Takeover, gate: Option<Arc<Gate>>) {
        let age = clock::now().since(takeover.began);
        let began = SystemTime::now().checked_sub(age).unwrap_or(SystemTime::UNIX_EPOCH);
        if takeover.is_complete {
            self.causes[takeover.cause as usize] += 1;
        }
        if takeover.is_complete && takeover.cause == Cause::Died {
            self.takeovers.record(nanoseconds(takeover.total()));
            for (sum, stage) in self.stages.iter_mut().zip(takeover.stages) {
                *sum = sum.saturating_add(nanoseconds(stage));
            }
        }
        let kept = Kept { takeover, began, gate };
        log(&kept.report());
        self.kept.truncate(TAKEOVERS_MAX - 1);
        self.kept.push_front(kept);
    }

    pub(crate) fn history(&self) -> History {
        History {
            requests: self.requests.clone(),
            causes: self.causes,
            takeovers: self.takeovers.clone(),
            stages: self.stages,
            last: self.kept.iter().rev().map(Kept::report).collect(),
            since_lapse: self.lapsed.map(|lapsed| clock::now().since(lapsed)),
            ..History::default()
        }
    }
}

impl Kept {
    fn report(&self) -> PastTakeover {
        let first = self.gate.as_ref().and_then(|gate| gate.first_answer());
        PastTakeover {
            takeover: self.takeover.clone(),
            began: self.began,
            age: clock::now().since(self.takeover.began),
            answered: first.map(|first| first.since(self.takeover.began)),
        }
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Writes the line by which the log explains how long a takeover took.
fn log(past: &PastTakeover) {
    let PastTakeover { takeover, answered, .. } = past;
    let ms = |stage| takeover.stage(stage).as_millis();
    let (partition, epoch, cause) = (&takeover.partition, takeover.epoch, takeover.cause.name());
    let node = takeover.other.as_ref().map_or("-", |node| node.as_str());
    let total_ms = takeover.total().as_millis();
    if takeover.cause.is_gain() {
        let answered_ms = answered.map(|answered| answered.as_millis());
        let end =
            if takeover.is_complete { "took a partition over" } else { "a takeover has not come to its end" };
        tracing::info!(%partition, %epoch, cause, node, total_ms, detect_ms = ms(Stage::Detect), evict_ms = ms(Stage::Evict),
            claim_ms = ms(Stage::Claim), open_ms = ms(Stage::Open), reset_ms = ms(Stage::Reset), answered_ms, "{end}");
    } else {
        tracing::info!(%partition, %epoch, cause, node, total_ms, close_ms = ms(Stage::Close), free_ms = ms(Stage::Free),
            "a partition has left this node");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cluster_proto::{CallKind, Epoch, Phase};

    fn takeover(number: u64, cause: Cause, is_complete: bool) -> Takeover {
        let mut stages = [Duration::ZERO; Stage::COUNT];
        (stages[0], stages[3]) = (Duration::from_secs(6), Duration::from_millis(number));
        let (partition, now) = ("cell/b".parse().unwrap(), clock::now());
        let began = Monotonic(now.0.saturating_sub(nanoseconds(stages.iter().sum())));
        Takeover { partition, epoch: Epoch(number), cause, other: None, began, stages, is_complete }
    }

    #[test]
    fn the_last_takeovers_are_kept_and_all_are_counted() {
        let mut records = Records::default();
        for number in 1..=100 {
            let cause = if number % 2 == 0 { Cause::Died } else { Cause::GivenUp };
            records.takeover(takeover(number, cause, number != 100), None);
        }
        let history = records.history();
        let epochs: Vec<u64> = history.last.iter().map(|past| past.takeover.epoch.0).collect();
        assert_eq!(epochs, (37..=100).collect::<Vec<_>>());
        assert_eq!(history.causes[Cause::Died as usize], 49, "the last one is not complete");
        assert_eq!(history.causes[Cause::GivenUp as usize], 50);
        assert_eq!(history.takeovers.count(), 49);
        assert_eq!(history.stages.iter().sum::<u64>(), history.takeovers.sum());
        let last = &history.last[63];
        assert!(last.answered.is_none() && last.age >= last.takeover.total(), "{last:?}");
        let wall = SystemTime::now().duration_since(last.began).unwrap();
        assert!(wall >= Duration::from_secs(6) && wall < Duration::from_secs(600), "{wall:?}");
    }

    #[test]
    fn the_first_reply_is_found_after_the_takeover() {
        let deadline = Arc::default();
        let gate = Arc::new(Gate::new(&deadline));
        let mut records = Records::default();
        records.takeover(takeover(1, Cause::New, true), Some(Arc::clone(&gate)));
        let answered = |records: &Records| records.history().last[0].answered;
        gate.set_phase(Phase::Serving);
        assert!(!gate.may_answer(CallKind::Read), "there is no lease");
        deadline.set(Some(Monotonic(u64::MAX)));
        assert!(gate.accepts(CallKind::Change));
        assert_eq!(answered(&records), None, "nothing was answered");
        assert!(gate.may_answer(CallKind::Change));
        let first = answered(&records).unwrap();
        assert!(first >= Duration::from_secs(6), "{first:?}");
        gate.set_phase(Phase::Draining);
        assert!(gate.may_answer(CallKind::Read));
        assert_eq!(answered(&records), Some(first), "the first one stays");
    }
}
