//! Takes two samples of a foreign server: rxdebug requests and the extended statistics.

use super::{Examined, FILE_PORT};
use crate::commands::stat::transport::{self, Asker, since};
use crate::commands::stat::xstat::collections;
use crate::commands::stat::xstat::layout::Layout;
use afs_idl::ClientConnection;
use anyhow::{Result, anyhow};
use cell_client::Network;
use cell_client::network::AfsNetwork;
use doctor::{Operation, Port};
use rx_proto::answers::Basics;
use std::collections::BTreeMap;
use std::net::SocketAddrV4;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

/// UDP ports of OpenAFS's servers.
const PORTS: [(u16, &str); 4] =
    [(FILE_PORT, "fileserver"), (7002, "ptserver"), (7003, "vlserver"), (7005, "volserver")];

/// Service ID of the file server.
const FILE_SERVICE: u16 = 1;

/// One sample of a port.
struct Look {
    basics: Basics,
    counters: BTreeMap<&'static str, u64>,
}

/// Takes two samples `interval` seconds apart, of one port or of all ports that servers use.
pub(super) fn examine(server: SocketAddrV4, all: bool, interval: u32) -> Result<Examined> {
    let mut examined = Examined::new(server, transport::version(server)?);
    let statistics = (server.port() == FILE_PORT).then(|| Statistics::start(server)).transpose();
    let statistics = examined.seen("extended statistics", statistics);
    let ports: Vec<(SocketAddrV4, &str)> = if all {
        PORTS.map(|(port, name)| (SocketAddrV4::new(*server.ip(), port), name)).to_vec()
    } else {
        vec![(server, "the server")]
    };
    let begun = Instant::now();
    let before = look(&ports);
    let statistics = statistics.and_then(|statistics| statistics.begin(&mut examined));
    thread::sleep(Duration::from_secs(interval.into()));
    examined.snapshot.seconds = begun.elapsed().as_secs_f64();
    let now = look(&ports);
    for (((address, name), before), now) in ports.iter().zip(before).zip(now) {
        let name = format!("{name} ({address})");
        match before.and_then(|before| Ok(port(&name, &before, &now?))) {
            Ok(port) => examined.snapshot.ports.push(port),
            Err(error) => examined.unseen.push(format!("{name}: {error:#}")),
        }
    }
    if let Some(statistics) = statistics {
        statistics.finish(&mut examined);
    }
    Ok(examined)
}

/// Queries all ports concurrently, because a port that does not answer costs a time-out.
fn look(ports: &[(SocketAddrV4, &str)]) -> Vec<Result<Look>> {
    let ask = |address: SocketAddrV4| {
        let mut asker = Asker::new(address)?;
        Ok(Look { basics: asker.basics()?, counters: asker.counters()? })
    };
    thread::scope(|scope| {
        let asking: Vec<_> = ports.iter().map(|(address, _)| scope.spawn(move || ask(*address))).collect();
        let end = |thread: thread::ScopedJoinHandle<'_, Result<Look>>| {
            thread.join().unwrap_or_else(|_| Err(anyhow::anyhow!("the query panicked")))
        };
        asking.into_iter().map(end).collect()
    })
}

fn port(name: &str, before: &Look, now: &Look) -> Port {
    let (old, new) = (before.basics, now.basics);
    Port {
        name: name.to_owned(),
        waiting: old.waiting.min(new.waiting),
        waited: new.waited.saturating_sub(old.waited),
        idle_threads: old.idle_threads.max(new.idle_threads),
        free_packets: old.free_packets.max(new.free_packets),
        packets: new.packets,
        is_waiting_for_packets: old.is_waiting_for_packets || new.is_waiting_for_packets,
        counters: since(&now.counters, &before.counters),
    }
}

/// Time limit for the extended statistics. A request takes one of the server's threads, and a lack of threads
/// may be the very problem; rxdebug requests need none.
const PATIENCE: Duration = Duration::from_secs(8);

/// The connection for extended statistics, and their first sample.
struct Statistics<Seen> {
    // Kept because the connection uses its socket.
    network: AfsNetwork,
    connection: Arc<dyn ClientConnection>,
    before: Seen,
}

/// A pending answer.
type Answer = Receiver<Result<[Layout; 2]>>;

fn ask(connection: &Arc<dyn ClientConnection>) -> Answer {
    let (reported, answer) = mpsc::channel();
    let connection = connection.clone();
    // The thread ends with the connection's network; the receiver may be gone by then.
    thread::spawn(move || _ = reported.send(collections(&*connection)));
    answer
}

fn hear(answer: &Answer) -> Result<Option<[Layout; 2]>> {
    let reported = answer.recv_timeout(PATIENCE);
    let none =
        |_| Err(anyhow!("no answer within {} s: the server may have no thread for it", PATIENCE.as_secs()));
    reported.unwrap_or_else(none).map(Some)
}

impl Statistics<Answer> {
    fn start(server: SocketAddrV4) -> Result<Statistics<Answer>> {
        let network = AfsNetwork::start(None)?;
        let connection = network.connect(server.into(), FILE_SERVICE);
        Ok(Statistics { before: ask(&connection), network, connection })
    }

    fn begin(self, examined: &mut Examined) -> Option<Statistics<[Layout; 2]>> {
        let before = examined.seen("extended statistics", hear(&self.before))?;
        Some(Statistics { network: self.network, connection: self.connection, before })
    }
}

impl Statistics<[Layout; 2]> {
    fn finish(self, examined: &mut Examined) {
        let now = hear(&ask(&self.connection));
        let Some(now) = examined.seen("extended statistics", now) else { return };
        for (now, before) in now.iter().zip(&self.before) {
            let figures = now.figures.iter().zip(&before.figures);
            let news = figures.map(|(now, before)| (now.name.clone(), now.value - before.value));
            examined.snapshot.extended.extend(news);
            let operations = now.operations.iter().zip(&before.operations);
            examined.snapshot.operations.extend(operations.map(|(now, before)| Operation {
                name: now.name.to_owned(),
                calls: u64::try_from(now.calls - before.calls).unwrap_or(0),
                time_us: now.time_us.saturating_sub(before.time_us),
            }));
        }
    }
}
