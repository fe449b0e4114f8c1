//! Tables in the form in which they leave the process.

use crate::SlowCall;
use crate::recorder::{ClientKey, Procedure, Snapshot};
use crate::tables::Table;
use events::catalogue::{
    AuditFigures, CacheCounts, CallFigures, CallbackFigures, DiskFigures, EventFigures, HostFigures,
    LaneFigures, LockFigures, PartitionFigures, PeerFigures, ProbeFigures, ProcessFigures, RefusalFigures,
    UsageFigures, WorkerFigures,
};
use events::{Declared, EVENTS, Figures, LINES};

/// Rows of one sheet, besides that of all others.
const ROWS_MAX: usize = 1000;

/// A row: what it is about, nothing for the sum of all others, and figures.
#[derive(Clone, Debug, PartialEq)]
pub struct SheetRow<F> {
    /// What it is about.
    pub labels: Vec<String>,
    /// What was counted.
    pub figures: F,
}

/// A table.
#[derive(Clone, Debug, PartialEq)]
pub struct Sheet<F> {
    /// What the labels are.
    pub labels: &'static [&'static str],
    /// Its rows.
    pub rows: Vec<SheetRow<F>>,
}

/// Whatever can be asked about a running server.
pub trait Observed: Send + Sync {
    /// Calls, volumes and clients.
    fn snapshot(&self) -> Snapshot;

    /// Calls alone, for who looks often: volumes and clients are many.
    fn calls(&self) -> Sheet<CallFigures> {
        self.snapshot().call_sheet()
    }

    /// Volumes by use, with their names as far as they are at hand: asking must not load them.
    fn volumes(&self) -> Sheet<UsageFigures> {
        self.snapshot().volume_sheet()
    }

    /// Users at hosts by use.
    fn clients(&self) -> Sheet<UsageFigures> {
        self.snapshot().client_sheet()
    }

    /// From how many nanoseconds calls are remembered as slow, and the last of them by number.
    fn slow(&self) -> (u64, Vec<(u64, SlowCall)>);

    /// Lanes by port and number.
    fn lanes(&self) -> Sheet<LaneFigures>;

    /// Workers by port.
    fn workers(&self) -> Sheet<WorkerFigures>;

    /// Disks by partition and kind of access.
    fn disks(&self) -> Sheet<DiskFigures>;

    /// Caches by name.
    fn caches(&self) -> Sheet<CacheCounts>;

    /// Locks of this process by name.
    fn locks(&self) -> Sheet<LockFigures> {
        let mut sheet = Sheet::new(Table::Locks.labels());
        for (name, figures) in waits::lock_figures() {
            sheet.push([name], figures);
        }
        sheet
    }

    /// Lines of events in this process's log, by event.
    fn event_lines(&self) -> Sheet<EventFigures> {
        let mut sheet = Sheet::new(Table::Events.labels());
        for (name, figures) in EVENTS.into_iter().zip(LINES.figures()) {
            sheet.push([name], figures);
        }
        sheet
    }

    /// Peers by port and address, those that sent most first, at most so many as a sheet has rows; and the
    /// others, those that are forgotten among them.
    fn peers(&self) -> Sheet<PeerFigures> {
        Sheet::new(Table::Peers.labels())
    }

    /// Hosts by what their users did, with their connections.
    fn hosts(&self) -> Sheet<HostFigures> {
        crate::hosts::sheet(&self.snapshot(), &self.peers())
    }

    /// Sinks of the audit by name.
    fn audit(&self) -> Sheet<AuditFigures> {
        Sheet::new(Table::Audit.labels())
    }

    /// Callers that were refused before their call was looked at, by reason.
    fn refusals(&self) -> Sheet<RefusalFigures> {
        Sheet::new(Table::Refusals.labels())
    }

    /// The last probe from outside, by volume and the server that had it.
    fn probes(&self) -> Sheet<ProbeFigures> {
        Sheet::new(&["volume", "server"])
    }

    /// The process itself: one row without labels.
    fn process(&self) -> Sheet<ProcessFigures>;

    /// What clients are told of changes, by port.
    fn callbacks(&self) -> Sheet<CallbackFigures> {
        Sheet::new(Table::Callbacks.labels())
    }

    /// Partitions by name.
    fn partitions(&self) -> Sheet<PartitionFigures> {
        Sheet::new(Table::Partitions.labels())
    }
}

impl<F: Declared + Figures> Sheet<F> {
    /// Leaves the heaviest rows, at most as many as a sheet has, and adds the rest to `others`, which becomes
    /// the last row if anything was counted of it.
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
    /// A sheet without rows.
    pub fn new(labels: &'static [&'static str]) -> Sheet<F> {
        Sheet { labels, rows: Vec::new() }
    }

    /// Adds a row.
    pub fn push(&mut self, labels: impl IntoIterator<Item = impl Into<String>>, figures: F) {
        self.rows.push(SheetRow { labels: labels.into_iter().map(Into::into).collect(), figures });
    }

    /// The names of the figures, in order.
    pub fn names() -> impl Iterator<Item = &'static str> {
        F::DECLARATIONS.iter().map(|declaration| declaration.name)
    }
}

impl Snapshot {
    /// Calls by service and procedure.
    pub fn call_sheet(&self) -> Sheet<CallFigures> {
        call_sheet(&self.calls)
    }

    /// Volumes, the most used first, and the others; their names are unknown here.
    pub fn volume_sheet(&self) -> Sheet<UsageFigures> {
        sheet_of(Table::Volumes.labels(), &self.volumes, |volume| vec![volume.to_string()])
    }

    /// Clients, likewise.
    pub fn client_sheet(&self) -> Sheet<UsageFigures> {
        sheet_of(Table::Clients.labels(), &self.clients, |client| client.labels().to_vec())
    }

    /// The clients of one volume. Those that have no row are among others of all volumes, and missing.
    pub fn clients_of(&self, volume: u32) -> Sheet<UsageFigures> {
        let mut pairs: Vec<_> = self.pairs.rows().filter(|(key, _)| key.volume == volume).collect();
        pairs.sort_by_key(|(_, row)| std::cmp::Reverse(row.weight()));
        let mut sheet = Sheet::new(Table::Clients.labels());
        for (key, row) in pairs.into_iter().take(ROWS_MAX) {
            sheet.push(key.client.labels(), row.usage());
        }
        sheet
    }

    /// What the clients of one volume called, by procedure.
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
    /// Host and user for people.
    pub fn labels(&self) -> [String; 2] {
        // What a ticket calls its holder may be anything.
        let user = self.user.to_string().chars().map(|c| if c.is_control() { '?' } else { c }).collect();
        [self.host.to_string(), user]
    }
}

/// Calls by service and procedure.
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
