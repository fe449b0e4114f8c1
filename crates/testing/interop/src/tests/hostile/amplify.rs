//! Single datagrams from addresses that never answer: whatever a datagram contains, the server sends at most
//! three times its size to that address (RFC 9000, section 8.1).

use super::interfaces::{Procedure, SERVICES, SERVICES_OF_NODE, Served, procedures};
use afs_idl::{bozo, cellar as own, fs, pr, vl, vol};
use anyhow::{Result, ensure};
use interop::hostile::packet::{self, first, request};
use interop::hostile::{Listener, SERVER, Spoofer, Target, stranger};
use rx_proto::{Flags, Header, PacketType};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::{Duration, Instant};

/// Maximum number of bytes sent per byte received.
const FACTOR: u32 = 3;
/// Datagrams per second, low enough that no limit for unproven addresses affects the replies to one of them.
const RATE: u32 = 250;
/// Time to capture after the last datagram; covers retransmissions and pings of the server.
const LISTEN: Duration = Duration::from_secs(35);
/// Maximum number of words that fit in a packet.
const WORDS_MAX: usize = 340;

/// A datagram with a description.
struct Probe {
    name: String,
    port: u16,
    datagram: Vec<u8>,
}

pub(super) fn amplify() -> Result<()> {
    attack(&Target::start()?, &SERVICES)
}

/// The same at the ports of a node, with the service for other nodes.
pub(super) fn node() -> Result<()> {
    attack(&Target::start_node()?, &SERVICES_OF_NODE)
}

fn attack(target: &Target, services: &[Served]) -> Result<()> {
    let ports: BTreeSet<u16> = services.iter().map(|(port, ..)| *port).collect();
    let mut probes = calls(services)?;
    probes.extend(known_calls().into_iter().filter(|probe| ports.contains(&probe.port)));
    for port in ports {
        probes.extend(kinds(port, services));
    }
    let listener = Listener::open(target.interface())?;
    let sent = send(&probes, listener)?;
    judge(&probes, &sent)
}

/// Returns calls of each procedure of each service, in one complete or incomplete packet, and one rxkad call
/// per service.
fn calls(services: &[Served]) -> Result<Vec<Probe>> {
    let mut probes = Vec::new();
    for &(port, service_id, interface) in services {
        for Procedure { name, opcode, words } in procedures(interface)? {
            let (number, words) = (probes.len() as u32, words.min(WORDS_MAX));
            let body = request(opcode, &vec![0; 4 * words]);
            let name = |kind: &str| format!("{port}/{service_id} {name}, {words} words of {kind}");
            let mut add = |kind: &str, datagram| probes.push(Probe { name: name(kind), port, datagram });
            add("zeros", packet::call(service_id, number, opcode, &body[4..]));
            add("ones", packet::call(service_id, number + 1, opcode, &vec![0xff; 4 * words]));
            let open = Header { flags: Flags::CLIENT_INITIATED, ..first(service_id, number + 2) };
            add("zeros, to be continued", packet::datagram(&open, &body));
        }
        let name = format!("{port}/{service_id} by rxkad");
        let datagram = packet::rxkad_call(service_id, probes.len() as u32);
        probes.push(Probe { name, port, datagram });
    }
    Ok(probes)
}

/// Returns valid calls that have long replies.
fn known_calls() -> Vec<Probe> {
    let mut probes = Vec::new();
    let mut add = |name: &str, port, service_id, opcode, arguments: Vec<u8>| {
        let number = 100_000 + probes.len() as u32;
        let datagram = packet::call(service_id, number, opcode, &arguments);
        probes.push(Probe { name: format!("{port}/{service_id} {name}"), port, datagram });
    };
    let root = xdr::to_vec(&common_fid());
    for (name, opcode) in [("FetchStatus", fs::FETCH_STATUS), ("FetchACL", fs::FETCH_ACL)] {
        add(name, 7000, 1, opcode, root.clone());
    }
    let whole = [&root[..], &[0; 8], &(1_u64 << 20).to_be_bytes()].concat();
    add("FetchData64 of a directory", 7000, 1, fs::FETCH_DATA64, whole);
    add("InlineBulkStatus", 7000, 1, fs::INLINE_BULK_STATUS, [&[0, 0, 0, 1][..], &root].concat());
    for collection in 0..4_u32 {
        add("GetXStats", 7000, 1, fs::GET_X_STATS, [1_u32.to_be_bytes(), collection.to_be_bytes()].concat());
    }
    let name = [&9_u32.to_be_bytes()[..], b"root.cell\0\0\0"].concat();
    for opcode in [vl::GET_ENTRY_BY_NAME_O, vl::GET_ENTRY_BY_NAME_N, vl::GET_ENTRY_BY_NAME_U] {
        add("GetEntryByName", 7003, 52, opcode, name.clone());
    }
    for table in 0..40_u32 {
        let arguments = [table.to_be_bytes(), [0; 4]].concat();
        add(&format!("GetFigures {table}"), 7000, 20_011, own::GET_FIGURES, arguments);
    }
    for user in [1_i32, -204, 32_766] {
        for opcode in [pr::GET_CPS, pr::LIST_ENTRY, pr::LIST_ELEMENTS] {
            add("of an entry", 7002, 73, opcode, user.to_be_bytes().to_vec());
        }
    }
    let partition = [&0_u32.to_be_bytes()[..], &1_u32.to_be_bytes()].concat();
    add("ListVolumes", 7005, 4, vol::LIST_VOLUMES, partition);
    add("EnumerateInstance", 7007, 1, bozo::ENUMERATE_INSTANCE, vec![0; 4]);
    probes
}

/// Returns the root directory of a volume that probably exists.
fn common_fid() -> afs_idl::common::Fid {
    afs_idl::common::Fid { volume: 536_870_912, vnode: 1, unique: 1 }
}

/// Returns packets of every type for a port, with and without a call number, with bodies of various lengths.
fn kinds(port: u16, services: &[Served]) -> Vec<Probe> {
    let mut probes = Vec::new();
    let lengths = [0, 4, 8, 24, 65, 500];
    let service_id = services.iter().find(|service| service.0 == port).map_or(1, |service| service.1);
    for kind in (0..=20_u8).chain([128, 255]) {
        for (number, length) in lengths.into_iter().enumerate() {
            let id = 200_000 + probes.len() as u32;
            let header = Header {
                call_number: u32::from(number % 2 == 0),
                flags: Flags::CLIENT_INITIATED.with(Flags::REQUEST_ACK).with(Flags::LAST_PACKET),
                security_index: (number % 4) as u8,
                ..first(service_id, id)
            };
            let mut datagram = packet::datagram(&header, &body(length, number));
            datagram[KIND] = kind;
            let name = format!("{port} packet of type {kind} with {length} bytes");
            probes.push(Probe { name, port, datagram });
        }
    }
    probes.extend((1..=6_u32).map(|question| debug(port, question)));
    probes
}

/// Offset of the packet type in a header.
const KIND: usize = 20;

/// Returns a body that starts with a small number.
fn body(length: usize, number: usize) -> Vec<u8> {
    let mut body = vec![0; length];
    if let Some(last) = body.get_mut(3) {
        *last = number as u8;
    }
    body
}

/// Returns a request of rxdebug.
fn debug(port: u16, question: u32) -> Probe {
    let header = Header { kind: PacketType::Debug, flags: Flags::CLIENT_INITIATED, ..first(0, question) };
    let body = [question.to_be_bytes(), [0; 4]].concat();
    Probe {
        name: format!("{port} rxdebug's question {question}"),
        port,
        datagram: packet::datagram(&header, &body),
    }
}

/// Sends all datagrams, each from a different address, and counts the bytes that the server sends to each
/// address.
fn send(probes: &[Probe], mut listener: Listener) -> Result<BTreeMap<Ipv4Addr, u32>> {
    let start = Instant::now();
    let duration = Duration::from_secs(1) * probes.len() as u32 / RATE + LISTEN;
    let mut out = BTreeMap::new();
    std::thread::scope(|scope| {
        let sender = scope.spawn(|| -> Result<()> {
            let mut spoofer = Spoofer::open()?;
            for (number, probe) in probes.iter().enumerate() {
                let due = start + Duration::from_secs(1) * number as u32 / RATE;
                std::thread::sleep(due.saturating_duration_since(Instant::now()));
                let to = SocketAddrV4::new(SERVER, probe.port);
                spoofer.send(stranger(number as u32), to, &probe.datagram)?;
            }
            Ok(())
        });
        let unseen = listener.listen(start + duration, |seen| {
            if *seen.from.ip() == SERVER {
                *out.entry(*seen.to.ip()).or_default() += seen.payload.len() as u32;
            }
        })?;
        ensure!(unseen == 0, "{unseen} datagrams passed unseen");
        sender.join().map_err(|_| anyhow::anyhow!("the sender panicked"))?
    })?;
    Ok(out)
}

/// Number of results to print.
const SHOWN: usize = 10;

fn judge(probes: &[Probe], out: &BTreeMap<Ipv4Addr, u32>) -> Result<()> {
    let bytes = |number: usize| out.get(stranger(number as u32).ip()).copied().unwrap_or(0);
    let mut rows: Vec<(u32, u32, &str)> = probes
        .iter()
        .enumerate()
        .map(|(number, probe)| (bytes(number), probe.datagram.len() as u32, probe.name.as_str()))
        .collect();
    rows.sort_by(|a, b| (u64::from(b.0) * u64::from(a.1)).cmp(&(u64::from(a.0) * u64::from(b.1))));
    let answered = rows.iter().filter(|row| row.0 > 0).count();
    println!("hostile: {answered} of {} datagrams were answered; the worst:", rows.len());
    for (out, sent, name) in rows.iter().take(SHOWN) {
        println!("hostile: {:6.2} ({out} bytes for {sent}): {name}", f64::from(*out) / f64::from(*sent));
    }
    let over: Vec<_> = rows.iter().filter(|(out, sent, _)| *out > FACTOR * sent).collect();
    ensure!(over.is_empty(), "{} datagrams bring more than {FACTOR} times their bytes", over.len());
    ensure!(answered * 4 > rows.len(), "only {answered} of {} datagrams were answered", rows.len());
    Ok(())
}
