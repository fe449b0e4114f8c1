//! Seeded histories of a cluster: nodes run [`cluster_proto::Member`] over a simulated bucket, databases, clocks, network
//! and clients.
//!
//! # What is simulated
//!
//! - Real time, and for each node a clock that runs up to 10 % fast or slow and changes its rate.
//! - A bucket that delays, refuses, loses answers, answers a write that was done with a failed precondition, does
//!   requests late (also after their node has crashed) or twice, never answers, and is away.
//! - Nodes that stall for 1 to 60 seconds and then go on where they were, crash, restart, leave in order, and hand
//!   partitions over.
//! - A database in each partition that only its newest writer may write to, like SlateDB. Writes in flight land late.
//! - Clients that cache under promises, repeat calls that are not answered, and are cut off.
//!
//! # What is checked
//!
//! - At no instant of real time may two nodes answer for one partition.
//! - A file's versions grow by one with each change, in the order of epochs, and none is used twice.
//! - What was acknowledged is there, and every read shows it: also one from a cache, unless the client was cut off
//!   while the change was made.
//! - When the faults end, every partition is served within half a minute, and all calls are answered.

mod bucket;
mod client;
mod clock;
mod database;
mod node;
mod world;

pub(crate) use world::Report;

/// A fault planted in the nodes, to prove that the checks find it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Sabotage {
    /// None.
    #[default]
    Nothing,
    /// The deadline counts from the answer to a renewal, not from its sending.
    CountsFromAnswers,
    /// A lease is not waited for before its node is evicted.
    WaitsForNothing,
    /// The own deadline has no margin for the rates of clocks.
    HasNoMargin,
    /// Partitions are taken without the write that ends the membership of their owner.
    EvictsNobody,
    /// The deadline is not checked before an answer.
    AnswersBlindly,
    /// Hosts are not reset after a takeover.
    ResetsNobody,
    /// A promise is answered before its host is in the durable list.
    RecordsLate,
    /// The database takes writes of earlier owners.
    IsNotFenced,
}

/// Which faults the environment of a history has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mood {
    pub has_stalls: bool,
    pub has_crashes: bool,
    pub has_bad_bucket: bool,
    pub has_outages: bool,
    pub has_moves: bool,
    pub has_cuts: bool,
}

impl Mood {
    /// Returns a mood that follows from a seed. One of 64 has no faults.
    fn of(seed: u64) -> Mood {
        let bit = |bit: u64| (seed >> bit) & 1 == 1;
        Mood {
            has_stalls: bit(0),
            has_crashes: bit(1),
            has_bad_bucket: bit(2),
            has_outages: bit(3),
            has_moves: bit(4),
            has_cuts: bit(5),
        }
    }
}

/// One history.
#[derive(Clone, Copy, Debug)]
pub(crate) struct History {
    /// Everything random follows from it.
    pub seed: u64,
    /// A planted fault of the nodes.
    pub sabotage: Sabotage,
}

impl History {
    /// Plays the history. Returns what it covered, and the hash of everything that happened.
    ///
    /// # Errors
    /// The first rule that was violated, and when.
    pub(crate) fn run(self) -> Result<(Report, u64), String> {
        let mut world = world::World::new(self.seed, Mood::of(self.seed), self.sabotage);
        world.run()
    }
}
