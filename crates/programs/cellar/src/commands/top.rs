//! `cellar top`: live view of a server's activity.

mod foreign;
mod foreign_table;
mod keys;
mod printing;
mod sample;
mod screen;
mod state;
mod terminal;
mod view;
mod watching;

use super::Context;
use super::stat::address::ServerAddress;
use super::stat::again::Again;
use super::stat::figures::{Source, look, with_figures};
use super::stat::transport;
use crate::output::Format;
use afs_idl::cellar::{GetServerInfoRequest, get_server_info};
use afs_idl::{ClientConnection, fs};
use anyhow::{Result, bail};
use cell_client::{CellClient, Interface};
use clap::Args;
use events::catalogue::ClusterFigures;
use foreign::Foreign;
use observe::Table;
use sample::Sample;
use state::{Pane, State};
use std::io::IsTerminal;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;
use std::time::Duration;

/// Watch a server live, through all tables of `cellar stat`. Keys: 1 to 9, 0, Tab or Shift-Tab select a
/// table, arrows select a row and the column to sort by, r reverses the order, / filters, Enter opens the
/// clients of a volume and then the calls of a client, Escape returns, a toggles between rates and totals
/// since the start, space pauses, ? shows all keys, q quits.
#[derive(Args)]
pub struct Showing {
    /// Server to watch, Cellar's or, with fewer tables, OpenAFS's, with a port to watch only that port;
    /// defaults to the file server in this machine's configuration, or else the first database server.
    #[arg(long, value_name = "HOST[:PORT]")]
    on: Option<ServerAddress>,
    /// Seconds between two samples; defaults to 2 in a terminal. With --once, print the rates per second
    /// between two samples; with --json, do so repeatedly, with one document per line.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..))]
    interval: Option<u32>,
    /// With --json and --interval, end after this number of documents.
    #[arg(long, value_name = "SAMPLES", requires = "interval", conflicts_with = "once")]
    count: Option<u32>,
    /// Print every table once and end: totals since the server's start, or rates with --interval. --json
    /// without
    /// --interval implies it.
    #[arg(long)]
    once: bool,
}

/// Default number of seconds between two samples.
const INTERVAL_S: u32 = 2;

/// Queries a Cellar server.
struct Asking {
    server: Ipv4Addr,
    connection: Arc<dyn ClientConnection>,
    /// Whether the server is a node of a cluster.
    is_node: bool,
    // Kept because the connection uses its socket.
    _client: CellClient,
}

/// Queries any server.
enum Asker {
    Own(Asking),
    Foreign(Foreign),
}

/// Runs the command.
pub fn run(context: &Context, top: &Showing) -> Result<()> {
    if top.count.is_some() && context.format == Format::Text {
        bail!("`--count` is for `--json`; in a terminal `q` ends it");
    }
    let asking = Asker::find(context, top.on.as_ref())?;
    if top.once || context.format == Format::Json {
        let count = if top.once { Some(1) } else { top.count };
        return printing::print(context.format, &asking, Again::new(top.interval, count), top.once);
    }
    if !std::io::stdout().is_terminal() {
        bail!("standard output is not a terminal; `--once` prints everything once, `--json` for programs");
    }
    watching::watch(asking, Duration::from_secs(top.interval.unwrap_or(INTERVAL_S).into()))
}

impl Asker {
    /// Connects to the server; one that does not know Cellar's service is a foreign server.
    fn find(context: &Context, named: Option<&ServerAddress>) -> Result<Asker> {
        let address = match named {
            Some(named) => Some(named.resolve(fs::PORT)?),
            None => context.named_server().map(|server| SocketAddrV4::new(server, fs::PORT)),
        };
        let all = named.is_none_or(|named| !named.has_port());
        let client = match (context.observer(), address) {
            (Ok(client), _) => client,
            (Err(error), None) => return Err(error),
            // Foreign servers answer anonymous callers too.
            (Err(error), Some(address)) => {
                return Foreign::find(address, all).map(Asker::Foreign).map_err(|_| error);
            }
        };
        let server = address.unwrap_or_else(|| SocketAddrV4::new(context.default_server(&client), fs::PORT));
        transport::version(server)?;
        let connection = client.connection(*server.ip(), Interface::Cellar);
        // Without a key, a Cellar server is watched like a foreign one, through what it reveals to any
        // caller.
        let may_ask = server.port() == fs::PORT && !context.is_anonymous();
        if may_ask && get_server_info(&*connection, &GetServerInfoRequest).is_ok() {
            return Ok(Asker::Own(Asking::new(*server.ip(), connection, client)));
        }
        Foreign::find(server, all).map(Asker::Foreign)
    }

    /// Returns the first state of the display.
    fn state(&self) -> State {
        let is_node = matches!(self, Asker::Own(asking) if asking.is_node);
        State { is_foreign: matches!(self, Asker::Foreign(_)), is_node, ..State::default() }
    }

    /// Describes the server.
    fn about(&self) -> String {
        match self {
            Asker::Own(asking) => asking.server.to_string(),
            Asker::Foreign(foreign) => format!("{} ({})", foreign.server, foreign.version),
        }
    }

    fn look(&self, pane: Pane, source: Source) -> Result<Sample> {
        match self {
            Asker::Own(asking) => asking.look(source),
            Asker::Foreign(foreign) => Ok(match foreign.look(pane)? {
                Some(reported) => Sample::ForeignTable(reported),
                None => Sample::Untold(foreign.unavailable(pane).unwrap_or_default()),
            }),
        }
    }
}

impl Asking {
    fn new(server: Ipv4Addr, connection: Arc<dyn ClientConnection>, client: CellClient) -> Asking {
        let own = look::<ClusterFigures>(&*connection, server, Source::Table(Table::Cluster));
        // A server of an earlier version does not know the table.
        let is_node = own.is_ok_and(|(rows, _)| !rows.is_empty());
        Asking { server, connection, is_node, _client: client }
    }

    fn look(&self, source: Source) -> Result<Sample> {
        let ask = || (&*self.connection, self.server);
        with_figures!(source, Figures => {
            let (connection, server) = ask();
            Ok(Sample::own(look::<Figures>(connection, server, source)?))
        })
    }
}
