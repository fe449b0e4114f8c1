//! Takes two samples of a Cellar server.

use super::{Examined, FILE_PORT};
use crate::commands::slow;
use crate::commands::stat::figures::{Source, look};
use afs_idl::ClientConnection;
use afs_idl::cellar::{self, GetServerInfoReply, GetTransportRequest, SlowCallInfo};
use anyhow::Result;
use cell_client::{CellClient, Interface};
use doctor::{Figures, Labels, SlowCall, Transport};
use events::Declared;
use events::table::Look;
use observe::Table;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::thread;
use std::time::{Duration, Instant};

/// Maximum age, in seconds, of the slow calls examined.
const SLOW_SECONDS: u32 = 300;

/// Takes two samples `interval` seconds apart.
pub(super) fn examine(
    client: &CellClient,
    server: Ipv4Addr,
    interval: u32,
    info: &GetServerInfoReply,
) -> Result<Examined> {
    let connection = client.connection(server, Interface::Cellar);
    let mut examined = Examined::new(SocketAddrV4::new(server, FILE_PORT), info.version.to_string());
    let begun = Instant::now();
    examined.snapshot.before = figures(&mut examined, &*connection, server)?;
    thread::sleep(Duration::from_secs(interval.into()));
    // The middle of each sample would be more exact, but a sample takes only milliseconds.
    examined.snapshot.seconds = begun.elapsed().as_secs_f64();
    examined.snapshot.now = figures(&mut examined, &*connection, server)?;
    let calls = examined.seen("slow calls", slow::ask(&*connection, server, 0)).calls;
    let oldest = info.now.saturating_sub(SLOW_SECONDS);
    examined.snapshot.slow = calls.iter().filter(|call| call.ended >= oldest).map(slow_call).collect();
    Ok(examined)
}

fn figures(examined: &mut Examined, connection: &dyn ClientConnection, server: Ipv4Addr) -> Result<Figures> {
    // A server that does not report its calls cannot be examined.
    let calls = look(connection, server, Source::Table(Table::Calls))?;
    let mut table = Tables { examined, connection, server };
    Ok(Figures {
        calls,
        volumes: table.look("volumes", Table::Volumes),
        clients: table.look("clients", Table::Clients),
        disks: table.look("disks", Table::Disks),
        buckets: table.look("buckets", Table::Buckets),
        lanes: table.look("lanes", Table::Lanes),
        workers: table.look("workers", Table::Workers),
        caches: table.look("caches", Table::Caches),
        audit: table.look("the audit", Table::Audit),
        refusals: table.look("refused callers", Table::Refusals),
        locks: table.look("locks", Table::Locks),
        callbacks: table.look("callbacks", Table::Callbacks),
        partitions: table.look("partitions", Table::Partitions),
        own_node: table.look("the node", Table::Cluster),
        nodes: table.look("other nodes", Table::Nodes),
        takeovers: table.look("takeovers", Table::Takeovers),
        // The table's only row has no labels.
        process: table.look("the process", Table::Process).1,
        transport: table.transport(),
    })
}

/// Queries one table after another.
struct Tables<'a> {
    examined: &'a mut Examined,
    connection: &'a dyn ClientConnection,
    server: Ipv4Addr,
}

impl Tables<'_> {
    fn look<F: Declared + events::Figures>(&mut self, what: &str, table: Table) -> Look<Labels, F> {
        let answer = look(self.connection, self.server, Source::Table(table));
        self.examined.seen(what, answer)
    }

    fn transport(&mut self) -> Option<Transport> {
        let reported = cellar::get_transport(self.connection, &GetTransportRequest).ok()?;
        Some(Transport {
            buffer_wanted_kib: reported.buffer_wanted_kib,
            buffer_kib: reported.buffer_kib,
            dropped: reported.dropped,
            machine_dropped: reported.machine_dropped,
        })
    }
}

fn slow_call(call: &SlowCallInfo) -> SlowCall {
    let cause = call.cause.to_string();
    let known = call.parts.iter().find(|part| part.name.to_string() == cause).map(|part| part.ns);
    let waits = call.parts.iter().fold(0, |sum: u64, part| sum.saturating_add(part.ns));
    SlowCall {
        service: call.service.to_string(),
        procedure: call.procedure.to_string(),
        volume: call.volume,
        user: call.user.to_string(),
        host: call.host.to_string(),
        total_ns: call.total_ns,
        cause_ns: known.unwrap_or_else(|| call.total_ns.saturating_sub(waits)),
        cause,
    }
}
