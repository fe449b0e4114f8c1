//! The tables that a server exposes, each declared once. The declaration determines the numbers and names by
//! which they are requested, `cellar stat` and `cellar top`, the page, and the metrics of tables that are not
//! private.

use crate::sheet::{Observed, Sheet};
use events::catalogue::{
    AuditFigures, BucketFigures, CacheCounts, CallFigures, CallbackFigures, ClusterFigures, DiskFigures,
    EventFigures, HostFigures, LaneFigures, LockFigures, NodeFigures, PartitionFigures, PeerFigures,
    ProcessFigures, RefusalFigures, TakeoverFigures, UsageFigures, WorkerFigures,
};
use events::{Declaration, Declared, Figures};

/// Receives the contents of a table, whatever its figures are.
pub trait Taker {
    /// Result of receiving a table.
    type Made;

    /// Receives the contents of a table.
    fn take<F: Declared + Figures>(self, sheet: &Sheet<F>) -> Self::Made;
}

/// Declares tables. Each is `Name = number, "name", "Title", "a row in a few words", figures, labels, method
/// that reads it`, and `private` if it reveals who uses what. Generates [`Table`], and
/// [`with_table!`](crate::with_table) for code that needs the type of the figures.
macro_rules! tables {
    ($d:tt $(
        $(#[doc = $what:literal])+
        $table:ident = $number:literal, $name:literal, $title:literal, $about:literal,
            $figures:ident $labels:expr, $sheet:ident $($private:ident)?;
    )+) => {
        /// A table.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Table {
            $($(#[doc = $what])+ $table,)+
        }

        impl Table {
            /// All tables, in the order in which they are displayed.
            pub const ALL: &'static [Table] = &[$(Table::$table),+];

            /// Returns the table's number in `GetFigures` of idl/cellar.idl.
            pub const fn number(self) -> u32 {
                match self { $(Table::$table => $number),+ }
            }

            /// Returns the table's name in commands and URLs.
            pub const fn name(self) -> &'static str {
                match self { $(Table::$table => $name),+ }
            }

            /// Returns the table's title on the page.
            pub const fn title(self) -> &'static str {
                match self { $(Table::$table => $title),+ }
            }

            /// Returns a description of a row, in a few words.
            pub const fn about(self) -> &'static str {
                match self { $(Table::$table => $about),+ }
            }

            /// Returns a description of the table, in one sentence.
            pub const fn what(self) -> &'static str {
                match self { $(Table::$table => concat!($($what),+)),+ }
            }

            /// Whether the table reveals who uses what, and so requires a superuser or a signed-in user.
            pub const fn is_private(self) -> bool {
                match self { $(Table::$table => tables!(@private $($private)?)),+ }
            }

            /// Returns the names of the labels.
            pub const fn labels(self) -> &'static [&'static str] {
                match self { $(Table::$table => &$labels),+ }
            }

            /// Returns the declarations of the figures.
            pub const fn declarations(self) -> &'static [Declaration] {
                match self { $(Table::$table => <$figures as Declared>::DECLARATIONS),+ }
            }

            /// Reads the table and passes its contents to `taker`.
            pub fn read<T: Taker>(self, observed: &dyn Observed, taker: T) -> T::Made {
                match self { $(Table::$table => taker.take(&observed.$sheet())),+ }
            }
        }

        /// Evaluates an expression with the type of the figures of a [`Table`](crate::Table), under a chosen
        /// name.
        #[macro_export]
        macro_rules! with_table {
            ($d table:expr, $d of:ident => $d what:expr) => {
                match $d table {
                    $($crate::Table::$table => {
                        type $d of = $crate::catalogue::$figures;
                        $d what
                    })+
                }
            };
        }
    };
    (@private private) => { true };
    (@private) => { false };
}

tables! { $
    /// Completed calls by service and procedure: number, outcome, bytes of requests and replies, time spent
    /// waiting for a worker and being served.
    Calls = 1, "calls", "Calls", "by service and procedure", CallFigures ["service", "procedure"], calls;
    /// Usage of volumes.
    Volumes = 2, "volumes", "Volumes", "the most used since the start; 0 stands for calls that used none",
        UsageFigures ["volume", "name"], volumes private;
    /// Usage by users and hosts.
    Clients = 3, "clients", "Clients", "users at hosts", UsageFigures ["host", "user"], clients private;
    /// Contents and hit rates of caches.
    Caches = 8, "caches", "Caches", "data kept in memory", CacheCounts ["cache"], caches;
    /// Datagrams and packets received, sent, dropped and retransmitted by each lane (a thread with a socket).
    Lanes = 6, "lanes", "Lanes", "threads with a socket each, by port", LaneFigures ["port", "lane"], lanes;
    /// The worker threads of each port, and the calls waiting for them.
    Workers = 7, "workers", "Workers", "threads that serve calls, by port", WorkerFigures ["port"], workers;
    /// Accesses to the disks with file data: number, size and duration.
    Disks = 5, "disk", "Disks", "segments of file data, by partition and kind of access",
        DiskFigures ["partition", "access"], disks;
    /// Locks that threads waited for: number and duration of the waits.
    Locks = 12, "locks", "Locks", "locks that threads waited for", LockFigures ["lock"], locks;
    /// Traffic between the server and each peer (a host and its port): packets, retransmissions, round-trip
    /// times, windows, connections.
    Peers = 10, "peers", "Peers", "hosts and their ports, by port of the server", PeerFigures ["port", "peer"],
        peers private;
    /// Usage by host: connections, calls by class, and for calls that read or write file data their number,
    /// bytes, mean size, mean and longest time.
    Hosts = 11, "hosts", "Hosts", "connections, calls by class, data read and written", HostFigures ["host"],
        hosts private;
    /// Callback promises and callback breaks: hosts, promises, acknowledged and unanswered breaks.
    Callbacks = 20, "callbacks", "Callbacks", "promises to clients and notifications of changes, by port", CallbackFigures ["port"],
        callbacks;
    /// The partitions: space, damage, space to be reclaimed, savings from deduplication.
    Partitions = 21, "partitions", "Partitions", "space and damage", PartitionFigures ["partition"], partitions;
    /// Requests to the buckets of partitions: number, result, size and duration.
    Buckets = 26, "buckets", "Buckets", "requests to buckets, by partition and kind",
        BucketFigures ["partition", "request"], buckets;
    /// The server's process: start time, memory, loaded volumes.
    Process = 22, "process", "Process", "the server's process", ProcessFigures [], process;
    /// Callers refused before their call was dispatched, by reason, for example an expired ticket or an
    /// unknown key.
    Refusals = 15, "refusals", "Refusals", "callers that were refused, by reason", RefusalFigures ["reason"], refusals;
    /// Records written to each sink of the audit, lost, and waiting.
    Audit = 9, "audit", "Audit", "records written and lost, by sink", AuditFigures ["sink"], audit;
    /// Events logged: enabled events, lines written and omitted.
    Events = 14, "events", "Events", "lines in the log, by event", EventFigures ["event"], event_lines;
    /// This server as a node of a cluster: its lease, ownerships, requests to the bucket, forwarded calls.
    Cluster = 23, "cluster", "Cluster", "this node: its lease, ownerships, forwarded calls", ClusterFigures ["node"], cluster;
    /// The other nodes of the cluster: traffic, losses, round trips, windows, and what is seen of their leases.
    Nodes = 24, "nodes", "Nodes", "the other nodes of the cluster, and traffic with them", NodeFigures ["node", "address"],
        nodes;
    /// The last partitions that came to this node of a cluster or left it, with the time of each stage.
    Takeovers = 25, "takeovers", "Takeovers", "partitions that came to this node or left it",
        TakeoverFigures ["partition", "epoch", "cause", "node"], takeovers;
}

impl Table {
    /// Whether the table is about the server as a node of a cluster; on other servers it has no rows, and is not shown
    /// unless it is asked for. These tables are the last of [`Table::ALL`].
    pub const fn is_of_cluster(self) -> bool {
        matches!(self, Table::Cluster | Table::Nodes | Table::Takeovers)
    }

    /// Whether each row describes a single event of the past. Such rows are no time series, and so no metrics.
    pub const fn is_of_events(self) -> bool {
        matches!(self, Table::Takeovers)
    }

    /// Returns the table with this name.
    pub fn of_name(name: &str) -> Option<Table> {
        Table::ALL.iter().copied().find(|table| table.name() == name)
    }

    /// Returns the table with this number.
    pub fn of_number(number: u32) -> Option<Table> {
        Table::ALL.iter().copied().find(|table| table.number() == number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_and_numbers_are_those_of_one_table_each() {
        let all = Table::ALL;
        let names: BTreeSet<&str> = all.iter().map(|table| table.name()).collect();
        let numbers: BTreeSet<u32> = all.iter().map(|table| table.number()).collect();
        assert_eq!((names.len(), numbers.len()), (all.len(), all.len()));
        for table in all {
            assert_eq!(Table::of_name(table.name()), Some(*table));
            assert_eq!(Table::of_number(table.number()), Some(*table));
            assert!(table.what().ends_with('.') && !table.declarations().is_empty(), "{table:?}");
        }
        assert!(all.is_sorted_by_key(|table| table.is_of_cluster()), "those of clusters are the last");
        // Numbers that idl/cellar.idl uses for the rows of one volume.
        assert!(!numbers.contains(&4) && !numbers.contains(&13));
    }
}
