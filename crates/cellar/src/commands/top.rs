//! `cellar top`: what a server does, while it does it.

mod foreign;
mod keys;
mod screen;
mod state;
mod terminal;
mod told;
mod view;
mod watching;

use super::Context;
use super::stat::address::ServerAddress;
use super::stat::figures::{Labels, Shown, Source, json_of, look};
use super::stat::transport;
use crate::client::{CellClient, Interface};
use crate::output::Format;
use afs_idl::cellar::{GetServerInfoRequest, get_server_info};
use afs_idl::{ClientConnection, fs};
use anyhow::{Result, bail};
use clap::Args;
use events::catalogue::{
    AuditFigures, CacheCounts, CallFigures, DiskFigures, HostFigures, LaneFigures, LockFigures, PeerFigures,
    UsageFigures, WorkerFigures,
};
use events::table::{self, Look};
use foreign::Foreign;
use screen::Grid;
use serde_json::{Map, Value};
use state::{Pane, State};
use std::io::IsTerminal;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;
use std::time::Duration;
use told::Told;

/// Show what a server does: calls, volumes, clients, caches, lanes, workers, disks, locks, peers, hosts. Keys: 1 to
/// 9, 0 or Tab choose a table, arrows a row and the column to sort by, r turns the order, / filters, Enter goes from
/// a volume to its clients and on to what they call, Escape back, a shows all since the start in place of rates, space
/// pauses, ? shows all keys, q ends.
#[derive(Args)]
pub struct Showing {
    /// The server, Cellar's or, as far as they tell, OpenAFS's, of which a port may be named; the file server of this
    /// machine's configuration, else the first database server, if left out.
    #[arg(long, value_name = "HOST[:PORT]")]
    on: Option<ServerAddress>,
    /// Seconds between two looks.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..))]
    interval: u32,
    /// Print everything since the server's start once, and end. --json does too.
    #[arg(long)]
    once: bool,
}

/// Somebody who asks a server of Cellar's.
struct Asking {
    server: Ipv4Addr,
    connection: Arc<dyn ClientConnection>,
    // Its port is what the connection goes through.
    _client: CellClient,
}

/// Somebody who asks any server.
enum Asker {
    Own(Asking),
    Foreign(Foreign),
}

/// Runs the command.
pub fn run(context: &Context, top: &Showing) -> Result<()> {
    let asking = Asker::find(context, top.on.as_ref())?;
    if top.once || context.format == Format::Json {
        return print_all(context.format, &asking);
    }
    if !std::io::stdout().is_terminal() {
        bail!("standard output is no terminal; `--once` prints everything once, `--json` for programs");
    }
    watching::watch(asking, Duration::from_secs(top.interval.into()))
}

impl Asker {
    /// Whoever that is: a server that does not know Cellar's service is another's.
    fn find(context: &Context, named: Option<&ServerAddress>) -> Result<Asker> {
        let address = match named {
            Some(named) => Some(named.resolve(fs::PORT)?),
            None => context.named_server().map(|server| SocketAddrV4::new(server, fs::PORT)),
        };
        let all = named.is_none_or(|named| !named.has_port());
        let client = match (context.client(), address) {
            (Ok(client), _) => client,
            (Err(error), None) => return Err(error),
            // Whom others tell of themselves, they tell anybody.
            (Err(error), Some(address)) => {
                return Foreign::find(address, all).map(Asker::Foreign).map_err(|_| error);
            }
        };
        let server = address.unwrap_or_else(|| SocketAddrV4::new(context.server_to_watch(&client), fs::PORT));
        transport::version(server)?;
        let connection = client.connection(*server.ip(), Interface::Cellar);
        if server.port() == fs::PORT && get_server_info(&*connection, &GetServerInfoRequest).is_ok() {
            return Ok(Asker::Own(Asking { server: *server.ip(), connection, _client: client }));
        }
        Foreign::find(server, all).map(Asker::Foreign)
    }

    fn is_foreign(&self) -> bool {
        matches!(self, Asker::Foreign(_))
    }

    /// Whom it asks.
    fn about(&self) -> String {
        match self {
            Asker::Own(asking) => asking.server.to_string(),
            Asker::Foreign(foreign) => format!("{} ({})", foreign.server, foreign.version),
        }
    }

    fn look(&self, pane: Pane, source: Source) -> Result<Sample> {
        match self {
            Asker::Own(asking) => Sample::take(asking, source),
            Asker::Foreign(foreign) => Ok(match foreign.look(pane)? {
                Some(told) => Sample::Told(told),
                None => Sample::Untold(foreign.untold(pane).unwrap_or_default()),
            }),
        }
    }
}

impl Asking {
    fn look<F: Shown>(&self, source: Source) -> Result<Look<Labels, F>> {
        look(&*self.connection, self.server, source)
    }
}

/// Every table once.
fn print_all(format: Format, asking: &Asker) -> Result<()> {
    let mut all = Map::new();
    let state = State { is_foreign: asking.is_foreign(), ..State::default() };
    if let Asker::Foreign(foreign) = asking {
        all.insert("server".to_owned(), foreign.server.to_string().into());
        all.insert("version".to_owned(), foreign.version.clone().into());
        if format == Format::Text {
            crate::output::line(asking.about())?;
            crate::output::line("")?;
        }
    }
    for &pane in state.panes() {
        let sample = asking.look(pane, pane.source())?;
        if format == Format::Text {
            let grid = sample.grid(pane.headings(), None);
            crate::output::line(pane.name().to_uppercase())?;
            format.table(grid.headings(), grid.texts(), &Value::Null)?;
            crate::output::line("")?;
        }
        all.insert(pane.name().to_owned(), sample.json(pane.headings()));
    }
    if format == Format::Json { format.done(&all, "") } else { Ok(()) }
}

/// A look at a table of any kind.
#[derive(Clone)]
enum Sample {
    Calls(Look<Labels, CallFigures>),
    Usage(Look<Labels, UsageFigures>),
    Hosts(Look<Labels, HostFigures>),
    Disks(Look<Labels, DiskFigures>),
    Lanes(Look<Labels, LaneFigures>),
    Workers(Look<Labels, WorkerFigures>),
    Caches(Look<Labels, CacheCounts>),
    Locks(Look<Labels, LockFigures>),
    Audit(Look<Labels, AuditFigures>),
    Peers(Look<Labels, PeerFigures>),
    /// Of a server that is not Cellar's.
    Told(Told),
    /// Such a server does not tell it, because of this.
    Untold(&'static str),
}

/// Does the same with a sample of any kind of Cellar's.
macro_rules! with_look {
    ($sample:expr, $look:ident => $what:expr, $($other:tt)*) => {
        match $sample {
            $($other)*
            Sample::Calls($look) => $what,
            Sample::Usage($look) => $what,
            Sample::Hosts($look) => $what,
            Sample::Disks($look) => $what,
            Sample::Lanes($look) => $what,
            Sample::Workers($look) => $what,
            Sample::Caches($look) => $what,
            Sample::Locks($look) => $what,
            Sample::Audit($look) => $what,
            Sample::Peers($look) => $what,
        }
    };
}

impl Sample {
    fn take(asking: &Asking, source: Source) -> Result<Sample> {
        Ok(match source {
            Source::Calls => Sample::Calls(asking.look(source)?),
            Source::Volumes | Source::Clients | Source::ClientsOf(_) | Source::CallsOf(_) => {
                Sample::Usage(asking.look(source)?)
            }
            Source::Hosts => Sample::Hosts(asking.look(source)?),
            Source::Disks => Sample::Disks(asking.look(source)?),
            Source::Lanes => Sample::Lanes(asking.look(source)?),
            Source::Workers => Sample::Workers(asking.look(source)?),
            Source::Caches => Sample::Caches(asking.look(source)?),
            Source::Locks => Sample::Locks(asking.look(source)?),
            Source::Events | Source::Callbacks | Source::Partitions | Source::Process => {
                bail!("{source:?} has no table here")
            }
            Source::Audit => Sample::Audit(asking.look(source)?),
            Source::Peers => Sample::Peers(asking.look(source)?),
        })
    }

    /// What came after `before`, a sample of the same table.
    fn since(&self, before: &Sample) -> Option<Sample> {
        Some(match (self, before) {
            (Sample::Calls(now), Sample::Calls(before)) => Sample::Calls(table::since(now, before)),
            (Sample::Usage(now), Sample::Usage(before)) => Sample::Usage(table::since(now, before)),
            (Sample::Hosts(now), Sample::Hosts(before)) => Sample::Hosts(table::since(now, before)),
            (Sample::Disks(now), Sample::Disks(before)) => Sample::Disks(table::since(now, before)),
            (Sample::Lanes(now), Sample::Lanes(before)) => Sample::Lanes(table::since(now, before)),
            (Sample::Workers(now), Sample::Workers(before)) => Sample::Workers(table::since(now, before)),
            (Sample::Caches(now), Sample::Caches(before)) => Sample::Caches(table::since(now, before)),
            (Sample::Locks(now), Sample::Locks(before)) => Sample::Locks(table::since(now, before)),
            (Sample::Audit(now), Sample::Audit(before)) => Sample::Audit(table::since(now, before)),
            (Sample::Peers(now), Sample::Peers(before)) => Sample::Peers(table::since(now, before)),
            (Sample::Told(now), Sample::Told(before)) => Sample::Told(now.since(before)),
            _ => return None,
        })
    }

    /// Only what one client called: its rows, without host and user.
    fn of_client(self, client: &state::Client) -> Sample {
        let Sample::Usage((rows, _)) = self else { return self };
        let is_its = |labels: &Labels| labels.starts_with(&[client.host.clone(), client.user.clone()]);
        let rows = rows.into_iter().filter(|(labels, _)| is_its(labels));
        let rows = rows.map(|(labels, figures)| (labels[2..].to_vec(), figures)).collect();
        Sample::Usage((rows, UsageFigures::default()))
    }

    /// The table for people; by second, if it is of so many seconds.
    fn grid(&self, headings: &[&str], seconds: Option<f64>) -> Grid {
        with_look!(self, look => Grid::new(headings, look, seconds),
            Sample::Told(told) => Grid::of_told(told, seconds),
            Sample::Untold(why) => Grid::of_sentence(why),
        )
    }

    fn json(&self, headings: &[&str]) -> Value {
        with_look!(self, look => {
            let rows = super::stat::tables::rows(headings, look);
            rows.iter().map(|(labels, figures)| Value::Object(json_of(headings, labels, figures))).collect()
        },
            Sample::Told(told) => told.json(),
            Sample::Untold(why) => serde_json::json!({ "not_told": why }),
        )
    }
}
