//! Tables in the form in which they leave the process.

use crate::SlowCall;
use crate::recorder::{ClientKey, Procedure, Snapshot};
use crate::tables::Table;
use events::catalogue::{
    AuditFigures, BucketFigures, CacheCounts, CallFigures, CallbackFigures, ClusterFigures, DiskFigures,
    EventFigures, HostFigures, LaneFigures, LockFigures, NodeFigures, PartitionFigures, PeerFigures,
    ProbeFigures, ProcessFigures, RefusalFigures, TakeoverFigures, UsageFigures, WorkerFigures,
};
use events::{Declared, EVENTS, Figures, LINES};

/// Maximum number of rows in a sheet, not counting the common row.
const ROWS_MAX: usize = 1000;

/// A row: labels, which are empty for the sum of all others, and figures.
#[derive(Clone, Debug, PartialEq)]
pub struct SheetRow<F> {
    /// Labels of the row.
    pub labels: Vec<String>,
    /// Figures of the row.
    pub figures: F,
}

/// A table.
#[derive(Clone, Debug, PartialEq)]
pub struct Sheet<F> {
    /// Names of the labels.
    pub labels: &'static [&'static str],
    /// Rows of the table.
    pub rows: Vec<SheetRow<F>>,
}

/// The data that a running server exposes.
pub trait Observed: Send + Sync {
    /// Returns calls, volumes and clients.
    fn snapshot(&self) -> Snapshot;

    /// Returns calls only, for frequent queries: volumes and clients are many.
    fn calls(&self) -> Sheet<CallFigures> {
        self.snapshot().call_sheet()
    }

    /// Returns volumes by usage, with their names if loaded: a query must not load volumes.
    fn volumes(&self) -> Sheet<UsageFigures> {
        self.snapshot().volume_sheet()
    }

    /// Returns users at hosts by usage.
    fn clients(&self) -> Sheet<UsageFigures> {
        self.snapshot().client_sheet()
    }

    /// Returns the minimum duration of slow calls in nanoseconds, and the most recent ones with their
    /// numbers.
    fn slow(&self) -> (u64, Vec<(u64, SlowCall)>);

    /// Returns lanes by port and number.
    fn lanes(&self) -> Sheet<LaneFigures>;

    /// Returns workers by port.
    fn workers(&self) -> Sheet<WorkerFigures>;

    /// Returns disks by partition and kind of access.
    fn disks(&self) -> Sheet<DiskFigures>;

    /// Returns caches by name.
    fn caches(&self) -> Sheet<CacheCounts>;

    /// Returns this process's locks by name.
    fn locks(&self) -> Sheet<LockFigures> {
        let mut sheet = Sheet::new(Table::Locks.labels());
        for (name, figures) in waits::lock_figures() {
            sheet.push([name], figures);
        }
        sheet
    }

    /// Returns the counters of this process's event lines in the log, by event.
    fn event_lines(&self) -> Sheet<EventFigures> {
        let mut sheet = Sheet::new(Table::Events.labels());
        for (name, figures) in EVENTS.into_iter().zip(LINES.figures()) {
            sheet.push([name], figures);
        }
        sheet
    }

    /// Returns peers by port and address, the most active senders first, up to the maximum number of rows;
    /// and the sum of the others, including forgotten ones.
    fn peers(&self) -> Sheet<PeerFigures> {
        Sheet::new(Table::Peers.labels())
    }

    /// Returns hosts with the figures of their users and their connections.
    fn hosts(&self) -> Sheet<HostFigures> {
        crate::hosts::sheet(&self.snapshot(), &self.peers())
    }

    /// Returns the sinks of the audit by name.
    fn audit(&self) -> Sheet<AuditFigures> {
        Sheet::new(Table::Audit.labels())
    }

    /// Returns callers refused before their call was dispatched, by reason.
    fn refusals(&self) -> Sheet<RefusalFigures> {
        Sheet::new(Table::Refusals.labels())
    }

    /// Returns the last probe from outside, by volume and server.
    fn probes(&self) -> Sheet<ProbeFigures> {
        Sheet::new(&["volume", "server"])
    }

    /// Returns the process itself: one row without labels.
    fn process(&self) -> Sheet<ProcessFigures>;

    /// Returns callback promises and callback breaks, by port.
    fn callbacks(&self) -> Sheet<CallbackFigures> {
        Sheet::new(Table::Callbacks.labels())
    }

    /// Returns partitions by name.
    fn partitions(&self) -> Sheet<PartitionFigures> {
        Sheet::new(Table::Partitions.labels())
    }

    /// Returns requests to buckets by partition and kind.
    fn buckets(&self) -> Sheet<BucketFigures> {
        Sheet::new(Table::Buckets.labels())
    }

    /// Whether the server is a node of a cluster.
    fn is_node(&self) -> bool {
        false
    }

    /// Returns the node of a cluster that the server is: one row, or none.
    fn cluster(&self) -> Sheet<ClusterFigures> {
        Sheet::new(Table::Cluster.labels())
    }

    /// Returns the other nodes that own partitions or have called this one.
    fn nodes(&self) -> Sheet<NodeFigures> {
        Sheet::new(Table::Nodes.labels())
    }

    /// Returns the last partitions that came to this node or left it.
    fn takeovers(&self) -> Sheet<TakeoverFigures> {
        Sheet::new(Table::Takeovers.labels())
    }
}

impl<F: Declared + Figures> Sheet<F> {
    /// Keeps the heaviest rows, up to the maximum number in a sheet, and adds the rest to `others`, which
    /// becomes the last row if it is not empty.
    pub fn bound(&mut self, mut others: F) {
        self.rows.sort_by_key(|row| std::cmp::Reverse(row.figures.weight()));
        let rest = self.rows.drain(ROWS_MAX.min(self.rows.len())..);
        rest.for_each(|row| others.add(&row.figures));
        if others.weight() > 0 {
            self.push([""; 0], others);
        }
    }
}

impl<F: Declared> Sheet<F> {
    /// Creates a sheet without rows.
    pub fn new(labels: &'static [&'static str]) -> Sheet<F> {
        Sheet { labels, rows: Vec::new() }
    }

    /// Adds a row.
    pub fn push(&mut self, labels: impl IntoIterator<Item = impl Into<String>>, figures: F) {
        self.rows.push(SheetRow { labels: labels.into_iter().map(Into::into).collect(), figures });
    }

    /// Returns the names of the figures, in order.
    pub fn names() -> impl Iterator<Item = &'static str> {
        F::DECLARATIONS.iter().map(|declaration| declaration.name)
    }
}

impl Snapshot {
    /// Returns calls by service and procedure.
    pub fn call_sheet(&self) -> Sheet<CallFigures> {
        call_sheet(&self.calls)
    }

    /// Returns volumes, the most used first, and the sum of the others. Their names are not known here.
    pub fn volume_sheet(&self) -> Sheet<UsageFigures> {
        sheet_of(Table::Volumes.labels(), &self.volumes, |volume| vec![volume.to_string()])
    }

    /// Returns clients, the most active first, and the sum of the others.
    pub fn client_sheet(&self) -> Sheet<UsageFigures> {
        sheet_of(Table::Clients.labels(), &self.clients, |client| client.labels().to_vec())
    }

    /// Returns the clients of one volume, without those in the common row of all volumes.
    pub fn clients_of(&self, volume: u32) -> Sheet<UsageFigures> {
        let mut pairs: Vec<_> = self.pairs.rows().filter(|(key, _)| key.volume == volume).collect();
        pairs.sort_by_key(|(_, row)| std::cmp::Reverse(row.weight()));
        let mut sheet = Sheet::new(Table::Clients.labels());
        for (key, row) in pairs.into_iter().take(ROWS_MAX) {
            sheet.push(key.client.labels(), row.usage());
        }
        sheet
    }

    /// Returns the calls of one volume's clients, by procedure.
    pub fn calls_of(&self, volume: u32) -> Sheet<UsageFigures> {
        let mut sheet = Sheet::new(&["host", "user", "service", "procedure"]);
        for (key, row) in self.pairs.rows().filter(|(key, _)| key.volume == volume) {
            for (number, figures) in row.calls() {
                let Some(procedure) = self.procedures.get(*number) else { continue };
                let names = [procedure.service, procedure.name].map(str::to_owned);
                sheet.push(key.client.labels().into_iter().chain(names), figures.clone());
            }
        }
        sheet.bound(UsageFigures::default());
        sheet
    }
}

impl ClientKey {
    /// Returns host and user as text.
    pub fn labels(&self) -> [String; 2] {
        // The name in a ticket may contain anything.
        let user = self.user.to_string().chars().map(|c| if c.is_control() { '?' } else { c }).collect();
        [self.host.to_string(), user]
    }
}

/// Returns calls by service and procedure.
pub(crate) fn call_sheet(calls: &[(Procedure, CallFigures)]) -> Sheet<CallFigures> {
    let mut sheet = Sheet::new(Table::Calls.labels());
    for (procedure, figures) in calls {
        sheet.push([procedure.service, procedure.name], figures.clone());
    }
    sheet
}

fn sheet_of<K: Clone + std::hash::Hash + Eq>(
    labels: &'static [&'static str],
    table: &events::Table<K, UsageFigures>,
    label: impl Fn(&K) -> Vec<String>,
) -> Sheet<UsageFigures> {
    let (rows, others) = table.top(ROWS_MAX);
    let mut sheet = Sheet::new(labels);
    for (key, row) in rows {
        sheet.push(label(&key), row);
    }
    if others.calls > 0 {
        sheet.push([""; 0], others);
    }
    sheet
}
