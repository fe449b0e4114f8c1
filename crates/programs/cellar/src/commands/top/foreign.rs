//! Tables of `cellar top` for a foreign server, from rxdebug requests, which every port answers, and the file
//! server's extended statistics.

use super::foreign_table::{self, ForeignTable};
use super::state::Pane;
use crate::commands::stat::transport::{self, Asker};
use crate::commands::stat::xstat::{self, layout::Layout};
use afs_idl::{ClientConnection, fs};
use anyhow::{Context as _, Result, anyhow};
use cell_client::Network;
use cell_client::network::AfsNetwork;
use observe::Table;
use rx_proto::answers::Connection;
use std::net::SocketAddrV4;
use std::sync::Arc;
use std::thread;

/// UDP ports of OpenAFS's servers.
pub(crate) const PORTS: [(u16, &str); 5] = [
    (fs::PORT, "fileserver"),
    (7002, "ptserver"),
    (7003, "vlserver"),
    (7005, "volserver"),
    (7007, "bosserver"),
];

/// State of a channel with an active call (RX_STATE_ACTIVE).
const ACTIVE: u8 = 2;

/// Nanoseconds per microsecond.
const US: u64 = 1000;

/// A foreign server and its responding ports.
pub(super) struct Foreign {
    pub(super) server: SocketAddrV4,
    pub(super) version: String,
    /// Ports that answer, with the names of their servers.
    ports: Vec<(&'static str, SocketAddrV4)>,
    /// Extended statistics, for a file server only.
    statistics: Option<Statistics>,
}

struct Statistics {
    connection: Arc<dyn ClientConnection>,
    // Kept because the connection uses its socket.
    _network: AfsNetwork,
}

impl Foreign {
    /// Finds out what answers on a host: on all known ports, or only on the given one unless `all` is set.
    pub(super) fn find(server: SocketAddrV4, all: bool) -> Result<Foreign> {
        let version = transport::version(server)?;
        let others = PORTS.into_iter().filter(|(port, _)| all && *port != server.port());
        let own =
            PORTS.into_iter().find(|(port, _)| *port == server.port()).map_or("server", |(_, name)| name);
        let mut ports = vec![(own, server)];
        ports.extend(answering(others.map(|(port, name)| (name, SocketAddrV4::new(*server.ip(), port)))));
        let statistics = if server.port() == fs::PORT { Some(Statistics::begin(server)?) } else { None };
        Ok(Foreign { server, version, ports, statistics })
    }

    /// Fetches a table; `None` if such a server does not have it.
    pub(super) fn look(&self, pane: Pane) -> Result<Option<ForeignTable>> {
        if self.unavailable(pane).is_some() {
            return Ok(None);
        }
        Ok(Some(match pane {
            Pane::Of(Table::Lanes) => self.lanes()?,
            Pane::Of(Table::Workers) => self.workers()?,
            Pane::Of(Table::Peers) => self.peers()?,
            Pane::Of(Table::Hosts) => self.hosts()?,
            Pane::Figures => self.figures()?,
            Pane::Of(Table::Caches) => caches(&self.extended()?[0]),
            Pane::Of(Table::Calls) => calls(&self.extended()?[0]),
            Pane::Of(_) => return Ok(None),
        }))
    }

    /// Explains why a table is not available.
    pub(super) fn unavailable(&self, pane: Pane) -> Option<&'static str> {
        match pane {
            Pane::Of(Table::Volumes) => Some(
                "OpenAFS servers do not report calls by volume; run `cellar sniff` there, or where their \
                packets are visible",
            ),
            Pane::Of(Table::Clients) => Some(
                "OpenAFS servers do not report their users; table 0 shows their hosts, `cellar sniff` the \
                calls of each host",
            ),
            Pane::Of(Table::Disks) => {
                Some("OpenAFS servers do not report disk statistics; run `iostat -x` there")
            }
            Pane::Of(Table::Locks) => Some("OpenAFS servers do not report what their threads wait for"),
            Pane::Of(Table::Calls | Table::Caches) if self.statistics.is_none() => {
                Some("only file servers report it, at port 7000")
            }
            _ => None,
        }
    }

    fn extended(&self) -> Result<[Layout; 2]> {
        let statistics = self.statistics.as_ref().context("only file servers have extended statistics")?;
        xstat::collections(&*statistics.connection)
    }

    fn each(&self, mut ask: impl FnMut(&str, &mut Asker) -> Result<()>) -> Result<()> {
        self.ports.iter().try_for_each(|(name, address)| ask(name, &mut Asker::new(*address)?))
    }

    fn lanes(&self) -> Result<ForeignTable> {
        let mut reported = ForeignTable::new(&foreign_table::LANES);
        self.each(|name, asker| {
            let counters = asker.counters()?;
            let of = |name: &str| counters.get(name).copied().unwrap_or(0);
            let all = |prefix: &str| {
                counters.iter().filter(|(name, _)| name.starts_with(prefix)).map(|(_, n)| n).sum()
            };
            let no_packets = ["no_packets_receiving", "reads_without_packet", "reads_without_buffers"]
                .map(of)
                .iter()
                .sum();
            reported.add(
                &[name],
                [
                    all("read_"),
                    all("sent_"),
                    of("duplicate_packets_read"),
                    of("data_packets_sent"),
                    of("data_packets_resent"),
                    no_packets,
                    of("send_failures"),
                    of("round_trip_total_us").saturating_mul(US),
                    of("round_trips"),
                    of("server_connections") + of("client_connections"),
                    of("calls"),
                    of("peers"),
                ],
            );
            Ok(())
        })?;
        Ok(reported)
    }

    fn workers(&self) -> Result<ForeignTable> {
        let mut reported = ForeignTable::new(&foreign_table::WORKERS);
        self.each(|name, asker| {
            let basics = asker.basics()?;
            let refused = asker.counters()?.get("busies").copied().unwrap_or(0);
            let [idle, waiting, arrived, waited] =
                [basics.idle_threads, basics.waiting, basics.calls, basics.waited].map(u64::from);
            reported.add(&[name], [idle, waiting, arrived, waited, refused]);
            Ok(())
        })?;
        Ok(reported)
    }

    fn peers(&self) -> Result<ForeignTable> {
        let mut reported = ForeignTable::new(&foreign_table::PEERS);
        self.each(|name, asker| {
            for peer in asker.peers()? {
                reported.add(
                    &[name, &peer.address.to_string()],
                    [
                        peer.bytes_received,
                        peer.sent.into(),
                        peer.resent.into(),
                        peer.bytes_sent,
                        peer.connections.into(),
                        u64::from(peer.round_trip_us) * US,
                        u64::from(peer.round_trip_deviation_us) * US,
                        peer.timeout_us.saturating_mul(US),
                        peer.window_packets.into(),
                        peer.packet_bytes.into(),
                    ],
                );
            }
            Ok(())
        })?;
        Ok(reported)
    }

    fn hosts(&self) -> Result<ForeignTable> {
        let mut reported = ForeignTable::new(&foreign_table::HOSTS);
        self.each(|name, asker| {
            for connection in asker.connections()?.iter().filter(|connection| connection.is_server) {
                let id = format!("{name} {:08x}/{:08x}", connection.epoch, connection.id);
                let (calls, active) = calls_of(connection);
                reported.add(&[&connection.peer.ip().to_string(), &id], [calls, active, 1, 0, 0]);
            }
            for peer in asker.peers()? {
                let id = format!("{name} {}", peer.address.port());
                let bytes = [peer.bytes_received, peer.bytes_sent];
                reported.add(&[&peer.address.ip().to_string(), &id], [0, 0, 0, bytes[0], bytes[1]]);
            }
            Ok(())
        })?;
        Ok(reported)
    }

    /// Returns all figures other than zero.
    fn figures(&self) -> Result<ForeignTable> {
        let mut reported = ForeignTable::new(&foreign_table::FIGURES);
        let mut add = |source: &str, name: &str, value: u64| {
            if value > 0 {
                reported.add(&[source, name], [value; 2]);
            }
        };
        self.each(|name, asker| {
            asker.counters()?.iter().for_each(|(figure, value)| add(name, figure, *value));
            Ok(())
        })?;
        if self.statistics.is_some() {
            for (layout, source) in self.extended()?.iter().zip(["statistics", "callbacks"]) {
                layout.figures.iter().for_each(|figure| add(source, &figure.name, word(figure.value)));
            }
        }
        Ok(reported)
    }
}

/// Returns the ports that answer. All are queried concurrently, because one that does not answer costs a
/// time-out.
fn answering(ports: impl Iterator<Item = (&'static str, SocketAddrV4)>) -> Vec<(&'static str, SocketAddrV4)> {
    let ports: Vec<_> = ports.collect();
    thread::scope(|scope| {
        let asking: Vec<_> = ports
            .iter()
            .map(|(_, address)| scope.spawn(|| Asker::new(*address).and_then(|mut asker| asker.version())))
            .collect();
        let answers = |asked: thread::ScopedJoinHandle<'_, Result<String>>| {
            asked.join().unwrap_or_else(|_| Err(anyhow!("the query panicked"))).is_ok()
        };
        let answers: Vec<bool> = asking.into_iter().map(answers).collect();
        ports.iter().zip(answers).filter(|(_, answers)| *answers).map(|(port, _)| *port).collect()
    })
}

impl Statistics {
    fn begin(server: SocketAddrV4) -> Result<Statistics> {
        let network = AfsNetwork::start(None)?;
        Ok(Statistics { connection: network.connect(server.into(), fs::SERVICE_ID), _network: network })
    }
}

/// Returns the number of calls made on a connection, from its channels' call numbers, which start at 1, and
/// the number of active calls.
fn calls_of(connection: &Connection) -> (u64, u64) {
    let calls = connection.channels.iter().map(|channel| u64::from(channel.call_number)).sum();
    (calls, connection.channels.iter().filter(|channel| channel.state == ACTIVE).count() as u64)
}

/// Converts a word of the statistics, which is unsigned but transmitted as a signed number.
fn word(value: i64) -> u64 {
    u64::try_from(value).unwrap_or_else(|_| u64::from(value as u32))
}

fn calls(layout: &Layout) -> ForeignTable {
    let mut reported = ForeignTable::new(&foreign_table::CALLS);
    let kib = |name: &str| {
        layout.operations.iter().find(|of| of.name == name).and_then(|of| of.kib).map_or(0, word)
    };
    for operation in
        layout.operations.iter().filter(|operation| operation.kib.is_none() && operation.calls != 0)
    {
        let (received, sent) = match operation.name {
            "StoreData" => (kib("StoreData (data)"), 0),
            "FetchData" => (0, kib("FetchData (data)")),
            _ => (0, 0),
        };
        reported.add(
            &["AFS", operation.name],
            [
                word(operation.calls),
                word(operation.successes),
                received << 10,
                sent << 10,
                operation.time_us.saturating_mul(US),
                operation.time_us_max.saturating_mul(US),
            ],
        );
    }
    reported
}

fn caches(layout: &Layout) -> ForeignTable {
    let mut reported = ForeignTable::new(&foreign_table::CACHES);
    let of = |name: &str| {
        layout.figures.iter().find(|figure| figure.name == name).map_or(0, |figure| word(figure.value))
    };
    for (cache, figures) in [
        ("vnodes of directories", ["vcache_L_Gets", "vcache_L_Reads", "vcache_L_Writes", "vcache_L_Entries"]),
        ("vnodes of files", ["vcache_S_Gets", "vcache_S_Reads", "vcache_S_Writes", "vcache_S_Entries"]),
        ("pages of directories", ["dir_Calls", "dir_IOs", "", "dir_Buffers"]),
    ] {
        reported.add(&[cache], figures.map(of));
    }
    reported
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::stat::xstat::layout::{Figure, Operation};

    fn operation(name: &'static str, calls: i64, kib: Option<i64>) -> Operation {
        Operation { name, calls, successes: calls - 1, time_us: 10, time_us_min: 1, time_us_max: 9, kib }
    }

    #[test]
    fn calls_have_the_bytes_of_their_transfers() {
        let operations = vec![
            operation("FetchData", 4, None),
            operation("StoreData", 2, None),
            operation("MakeDir", 0, None),
            operation("FetchData (data)", 4, Some(7)),
            operation("StoreData (data)", 1, Some(3)),
        ];
        let rows = calls(&Layout { figures: vec![], operations }).numbers();
        let name = |place: usize| rows[place].0[1].as_str();
        assert_eq!((rows.len(), name(0), name(1)), (2, "FetchData", "StoreData"));
        assert_eq!(rows[0].1, [4, 1, 0, 7 << 10, 3333, 9000]);
        assert_eq!(rows[1].1[2], 3 << 10);
    }

    #[test]
    fn a_counter_above_two_thousand_millions_is_no_debt() {
        let figure = |name: &str, value| Figure { name: name.to_owned(), value };
        let figures = vec![figure("dir_Calls", -1), figure("dir_IOs", 5)];
        let rows = caches(&Layout { figures, operations: vec![] }).numbers();
        assert_eq!(rows[0].1[..2], [u64::from(u32::MAX) - 5, 5]);
    }
}
