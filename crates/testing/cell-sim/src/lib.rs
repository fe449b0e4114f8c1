//! A whole cell in one process: seeded histories of two file servers, their location service and three clients.
//!
//! # What is real
//!
//! The endpoints of all hosts ([`rx_proto`]), the file service with its callbacks, the location service and its
//! database, volumes, and the segment store. File servers answer calls as `cellar-server` does: without a thread
//! if possible, else on one, and changes when they are durable, together with those of other calls.
//!
//! # What is simulated
//!
//! - Time. Wall clocks jump, forward and back; the monotonic clock of a server begins anew when it restarts.
//! - The network ([`sim::Network`]): it loses, repeats, delays and reorders datagrams, and is cut between pairs
//!   of hosts.
//! - The disk ([`disk::FaultyDisk`]): in a crash it loses or tears what was not synced, and its power may fail
//!   at any operation.
//! - The engine of metadata, which is in memory: a crash loses some or all of the commits that were not synced.
//!   A sync takes time, in which other calls run and the server may crash.
//! - Threads. Every call to a server and every client has a thread, but only one runs at a time, until it would
//!   block: on the network, for data of its request, for the disk, or for another call of the same client. The
//!   seed selects the next thread. Locks are therefore never contended, and errors in locking are not found.
//! - Clients: caches of status and data that rely on promises, as cache managers do. They call anonymously, and
//!   everyone has all rights.
//!
//! Not simulated: fair queues, security classes (the histories of `sim` have them), volume and protection
//! servers, moves and releases of volumes (those of `jobs` have them), and RocksDB (its crashes are tested in
//! `store`). A message to several clients goes to one after the other.
//!
//! # What is checked
//!
//! - A client that reads from its cache under a promise reads the newest version that was acknowledged before,
//!   unless the server considered the client down when it acknowledged the newer one, or has restarted, and
//!   has executed no call of the client since.
//! - A version that a call returns is not older than any that was acknowledged before the call began, also
//!   after crashes, nor than any that was returned before it began, except before a crash. Everything
//!   acknowledged can be read in the end, after another crash.
//! - A version of a file has only one content, which some client has stored. A version of a directory
//!   has only one content.
//! - No version is acknowledged twice, and none that a client got is lost by a crash.
//! - A file that no client has tried to remove is found; one whose removal was acknowledged is not.
//! - The location service sends clients to a server that has the volume.
//!
//! Each seed is replayed exactly: [`History::run`] returns the same hash of all entries of the record.
//! `CELLAR_SIM_TRACE=1` prints them.

mod client;
mod host;
mod hub;
mod machine;
mod record;
mod stream;
mod tasks;
mod world;

pub use record::Report;
pub use world::{Mood, Sabotage};

/// Things that each client does.
const STEPS: u32 = 100;

/// One history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct History {
    /// Everything random follows from it.
    pub seed: u64,
    /// Faults of the environment.
    pub mood: Mood,
    /// A planted fault of the servers.
    pub sabotage: Sabotage,
}

impl History {
    /// Returns the history of a seed.
    pub fn of(seed: u64) -> History {
        History { seed, mood: Mood::of(seed), sabotage: Sabotage::Nothing }
    }

    /// Plays the history. Returns what it covered, and the hash of everything that happened.
    ///
    /// # Errors
    /// What a server promised but did not keep, and the events before.
    pub fn run(self) -> Result<(Report, u64), String> {
        let mut world = world::World::new(self.seed, self.mood, self.sabotage);
        world.run(STEPS);
        world.result()
    }
}
