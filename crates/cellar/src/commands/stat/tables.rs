//! `cellar stat calls`, `volumes`, `clients`, `hosts`, `disk`, `lanes`, `workers`, `locks`, `events`, `audit`, `peers`.

use super::again::Again;
use super::figures::{self, Labels, Shown, Source};
use crate::client::Interface;
use crate::commands::Context;
use crate::output::{Format, line};
use anyhow::Result;
use clap::Args;
use events::catalogue::{
    AuditFigures, CallFigures, DiskFigures, EventFigures, HostFigures, LaneFigures, LockFigures, PeerFigures,
    UsageFigures, WorkerFigures,
};
use events::table::{self, Look};
use std::net::Ipv4Addr;

/// Whom to ask, and how often.
#[derive(Args, Clone)]
pub struct Looking {
    /// The file server; that of this machine's configuration, else the first database server, if left out.
    #[arg(long)]
    on: Option<Ipv4Addr>,
    #[command(flatten)]
    again: Again,
}

/// Which calls.
#[derive(Args)]
pub struct Calls {
    #[command(flatten)]
    looking: Looking,
    /// Only those of this volume, by number, and by whom they were made. For superusers.
    #[arg(long, value_name = "ID")]
    volume: Option<u32>,
}

/// Whose clients.
#[derive(Args)]
pub struct Clients {
    #[command(flatten)]
    looking: Looking,
    /// Only those of this volume, by number, and only what they did with it.
    #[arg(long, value_name = "ID")]
    volume: Option<u32>,
}

/// Calls by service and procedure.
pub(super) fn calls(context: &Context, calls: &Calls) -> Result<()> {
    let looking = &calls.looking;
    match calls.volume {
        None => show::<CallFigures>(context, looking, Source::Calls, &["service", "procedure"]),
        Some(volume) => {
            let headings = ["host", "user", "service", "procedure"];
            show::<UsageFigures>(context, looking, Source::CallsOf(volume), &headings)
        }
    }
}

/// Hosts by use.
pub(super) fn hosts(context: &Context, looking: &Looking) -> Result<()> {
    show::<HostFigures>(context, looking, Source::Hosts, &["host"])
}

/// Volumes by use.
pub(super) fn volumes(context: &Context, looking: &Looking) -> Result<()> {
    show::<UsageFigures>(context, looking, Source::Volumes, &["volume", "name"])
}

/// Clients by use.
pub(super) fn clients(context: &Context, clients: &Clients) -> Result<()> {
    let source = clients.volume.map_or(Source::Clients, Source::ClientsOf);
    show::<UsageFigures>(context, &clients.looking, source, &["host", "user"])
}

/// Disks by kind of access.
pub(super) fn disk(context: &Context, looking: &Looking) -> Result<()> {
    show::<DiskFigures>(context, looking, Source::Disks, &["partition", "access"])
}

/// Lanes of all ports.
pub(super) fn lanes(context: &Context, looking: &Looking) -> Result<()> {
    show::<LaneFigures>(context, looking, Source::Lanes, &["port", "lane"])
}

/// Workers of all ports.
pub(super) fn workers(context: &Context, looking: &Looking) -> Result<()> {
    show::<WorkerFigures>(context, looking, Source::Workers, &["port"])
}

/// Locks by name.
pub(super) fn locks(context: &Context, looking: &Looking) -> Result<()> {
    show::<LockFigures>(context, looking, Source::Locks, &["lock"])
}

/// Lines of events in the log.
pub(super) fn events(context: &Context, looking: &Looking) -> Result<()> {
    show::<EventFigures>(context, looking, Source::Events, &["event"])
}

/// Peers of all ports.
pub(super) fn peers(context: &Context, looking: &Looking) -> Result<()> {
    show::<PeerFigures>(context, looking, Source::Peers, &["port", "peer"])
}

/// Sinks of the audit.
pub(super) fn audit(context: &Context, looking: &Looking) -> Result<()> {
    show::<AuditFigures>(context, looking, Source::Audit, &["sink"])
}

fn show<F: Shown>(context: &Context, looking: &Looking, source: Source, headings: &[&str]) -> Result<()> {
    let client = context.client()?;
    let server = looking.on.unwrap_or_else(|| context.server_to_watch(&client));
    let connection = client.connection(server, Interface::Cellar);
    let ask = || figures::look::<F>(&*connection, server, source);
    let mut before = ask()?;
    if looking.again.is_once() {
        return print(context.format, headings, &before);
    }
    looking.again.each(|| {
        let now = ask()?;
        print(context.format, headings, &table::since(&now, &before))?;
        if context.format == Format::Text {
            line("")?;
        }
        before = now;
        Ok(())
    })
}

/// Prints a table.
pub(crate) fn print<F: Shown>(format: Format, headings: &[&str], look: &Look<Labels, F>) -> Result<()> {
    let rows = rows(headings, look);
    let json = rows.iter().map(|(labels, figures)| figures::json_of(headings, labels, figures).into());
    let columns = F::COLUMNS.iter().map(|(heading, ..)| (*heading).to_owned());
    let headings = headings.iter().map(|heading| heading.to_uppercase()).chain(columns).collect();
    let cells = |(labels, figures): &(Labels, F)| {
        labels.iter().cloned().chain(F::COLUMNS.iter().map(|(_, show, of)| show.text(of(figures)))).collect()
    };
    format.table(headings, rows.iter().map(cells).collect(), &serde_json::Value::Array(json.collect()))
}

/// What those who have no row are called.
pub(crate) const OTHERS: &str = "(others)";

/// The heaviest rows first, and behind them the others, if they have anything.
pub(crate) fn rows<F: Shown>(headings: &[&str], look: &Look<Labels, F>) -> Vec<(Labels, F)> {
    let mut rows = look.0.clone();
    rows.sort_by(|(a_labels, a), (b_labels, b)| {
        b.weight().cmp(&a.weight()).then_with(|| a_labels.cmp(b_labels))
    });
    if look.1.weight() > 0 {
        let mut labels = vec![OTHERS.to_owned()];
        labels.resize(headings.len(), String::new());
        rows.push((labels, look.1.clone()));
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_heaviest_come_first_and_the_others_last() {
        let of = |calls| UsageFigures { calls, ..UsageFigures::default() };
        let label = |text: &str| vec![text.to_owned(), String::new()];
        let look = (vec![(label("b"), of(1)), (label("a"), of(5)), (label("c"), of(1))], of(9));
        let rows = rows(&["volume", "name"], &look);
        let first: Vec<&str> = rows.iter().map(|(labels, _)| labels[0].as_str()).collect();
        assert_eq!(first, ["a", "b", "c", "(others)"]);
        assert_eq!(rows[3].0.len(), 2);
    }
}
