//! An attacker that knows a connection's numbers but sends from another address cannot end or change
//! anything. A client that requests these numbers from another host gets zeros.

use afs_idl::fs::{FetchStatusRequest, fetch_status};
use anyhow::{Context, Result, ensure};
use cell_client::Network;
use interop::cell::Server;
use interop::hostile::packet::{abort, acknowledge, datagram};
use interop::hostile::{ATTACKER, Client, Datagram, Listener, Load, SERVER, Spoofer, Target, at, stranger};
use rx_proto::{Flags, Header, PacketType, header};
use std::net::SocketAddrV4;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const SECONDS: u32 = 5;
/// Clients that pause, so that the attacker can keep up.
const MIX: &str = "title = \"verified clients\"\n[[group]]\nname = \"verified\"\nclients = 4\npause_ms = 4\nfiles = 4\n\
                   file_size = \"64KiB\"\nwork = { status = 4, read = 2, write = 1, small_file = 1 }\n";
/// Maximum number of packets per second that are answered with forged ones.
const FORGED_MAX: f64 = 400.0;

/// Runs verified clients, and clients that are authenticating, against an attacker that sees their packets.
pub(super) fn hijack() -> Result<()> {
    let target = Target::start()?;
    target.cell.open_volume(Server::Cellar, "work.1")?;
    let host = target.host("clients", "10.99.0.5")?;
    let listener = Listener::open(&target.link())?;
    let (done, forged) = (AtomicBool::new(false), AtomicU64::new(0));
    let (load, begun) = std::thread::scope(|scope| {
        let attacker = scope.spawn(|| attack(listener, &done, &forged));
        let load = scope.spawn(|| Load::run(&host, "work.1", MIX, SECONDS));
        let begun = begin_until(&target, || load.is_finished());
        let load = load.join();
        done.store(true, Ordering::Relaxed);
        attacker.join().map_err(|_| anyhow::anyhow!("the attacker panicked"))??;
        anyhow::Ok((load.map_err(|_| anyhow::anyhow!("the clients panicked"))??, begun?))
    })?;
    let forged = forged.load(Ordering::Relaxed);
    println!("hostile: {forged} forged packets, {begun} new connections, {load:?}");
    ensure!(forged > 1000, "only {forged} packets were forged");
    ensure!(load.failed == 0 && load.busy == 0, "calls failed: {load:?}");
    Ok(())
}

/// Makes calls on new verified connections until `done`; all must succeed.
fn begin_until(target: &Target, done: impl Fn() -> bool) -> Result<u64> {
    let administrator = Arc::new(Client::administrator(ATTACKER, &target.cell)?);
    let fid = administrator.of_cell(SERVER)?.root_of("work.1")?.fid;
    let mut calls = 0;
    while !done() {
        let connection = administrator.connect((SERVER, 7000).into(), 1);
        let answer = fetch_status(&*connection, &FetchStatusRequest { fid: fid.into() });
        ensure!(answer.is_ok(), "call {calls} on a new connection: {:?}", answer.err());
        calls += 1;
    }
    Ok(calls)
}

/// Answers each packet of a client with forged ones from other addresses, to both ends.
fn attack(mut listener: Listener, done: &AtomicBool, forged: &AtomicU64) -> Result<()> {
    let mut spoofer = Spoofer::open()?;
    let (start, mut seen) = (Instant::now(), 0_u32);
    while !done.load(Ordering::Relaxed) {
        let mut result = Ok(());
        listener.listen(Instant::now() + Duration::from_millis(50), |passed| {
            if f64::from(seen) < start.elapsed().as_secs_f64() * FORGED_MAX
                && let Some((header, client)) = of_client(&passed)
            {
                seen += 1;
                let from = stranger(seen % 50);
                for (to, packet) in forge(&header, client) {
                    result = spoofer.send(from, to, &packet).context("sending");
                    forged.fetch_add(1, Ordering::Relaxed);
                }
            }
        })?;
        result?;
    }
    Ok(())
}

/// Returns the header of a packet that a client sent to the file server.
fn of_client(passed: &Datagram<'_>) -> Option<(Header, SocketAddrV4)> {
    let is_own = passed.from.ip().octets()[1] == 98;
    let (header, _) = header::parse(passed.payload).ok()?;
    let is_call = matches!(header.kind, PacketType::Data | PacketType::Ack | PacketType::Response);
    (passed.to == at(7000) && !is_own && is_call && header.flags.contains(Flags::CLIENT_INITIATED))
        .then_some((header, passed.from))
}

/// Returns packets for server and client that would end or change a call or connection if accepted.
fn forge(of: &Header, client: SocketAddrV4) -> Vec<(SocketAddrV4, Vec<u8>)> {
    let to_server = Header { serial: of.serial + 1, ..*of };
    let to_client = Header { flags: Flags::default(), ..to_server };
    let mut all = Vec::new();
    for (to, header) in [(at(7000), to_server), (client, to_client)] {
        let bare = |kind, call_number, body: &[u8]| {
            let flags = header.flags.without(Flags::LAST_PACKET);
            datagram(&Header { kind, call_number, flags, sequence: 0, ..header }, body)
        };
        let data = Header { kind: PacketType::Data, sequence: of.sequence + 1, ..header };
        let last = Header { flags: data.flags.with(Flags::LAST_PACKET), sequence: 1, ..data };
        let next_call = Header { call_number: of.call_number + 1, ..last };
        let packets = [
            abort(&header, of.call_number, -3),
            abort(&header, 0, -3),
            abort(&header, 0, 19_270_408),
            bare(PacketType::Busy, of.call_number, &[]),
            bare(PacketType::AckAll, of.call_number, &[]),
            acknowledge(&header, of.sequence + 1000, 4),
            acknowledge(&header, 1, 2),
            // Version 2, a nonce, a level, and padding.
            bare(PacketType::Challenge, 0, &[0, 0, 0, 2, 1, 2, 3, 4, 0, 0, 0, 0, 0, 0, 0, 0]),
            bare(PacketType::Response, 0, &[0xff; 120]),
            datagram(&data, &[0xff; 64]),
            datagram(&last, &[0; 32]),
            datagram(&next_call, &[0; 32]),
        ];
        all.extend(packets.into_iter().map(|packet| (to, packet)));
    }
    all
}

/// Compares the output of OpenAFS's rxdebug on the server's own host with that on another host.
pub(super) fn rxdebug() -> Result<()> {
    let target = Target::start()?;
    target.cell.open_volume(Server::Cellar, "work.1")?;
    let host = target.host("clients", "10.99.0.5")?;
    let printed = Mutex::new(None);
    std::thread::scope(|scope| {
        let load = scope.spawn(|| Load::run(&host, "work.1", MIX, SECONDS));
        while !load.is_finished() && printed.lock().unwrap().is_none() {
            let own = target.cell.run(&format!("rxdebug {SERVER} 7000 -allconnections"))?.ok()?;
            if !numbers(&own).is_empty() {
                *printed.lock().unwrap() = Some((own, elsewhere(&["-allconnections"])?));
            }
        }
        load.join().map_err(|_| anyhow::anyhow!("the clients panicked"))?
    })?;
    let (own, foreign) =
        printed.into_inner()?.context("rxdebug shows no connection on the server's own host")?;
    ensure!(
        numbers(&own).iter().any(|number| *number != (0, 0)),
        "only zeros on the server's own host:\n{own}"
    );
    let shown = numbers(&foreign).into_iter().find(|number| *number != (0, 0));
    ensure!(shown.is_none(), "a stranger is shown connections' numbers:\n{foreign}");
    for options in [&["-noconns"][..], &["-peers", "-noconns"], &["-rxstats", "-noconns"], &["-version"]] {
        elsewhere(options)?;
    }
    Ok(())
}

/// Returns the output of rxdebug in the attacker's namespace.
fn elsewhere(options: &[&str]) -> Result<String> {
    let output = Command::new("timeout")
        .args(["20", "rxdebug", &SERVER.to_string(), "7000"])
        .args(options)
        .output()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(output.status.success() && text.contains("Trying 10.99.0.4"), "rxdebug {options:?}: {output:?}");
    Ok(text)
}

/// Returns the epoch and connection id of each connection in rxdebug's output.
fn numbers(printed: &str) -> Vec<(u32, u32)> {
    let ids = printed.split("Cuid ").skip(1);
    let number = |text: &str| u32::from_str_radix(text.trim_end_matches(','), 16).ok();
    ids.filter_map(|rest| {
        let (epoch, id) = rest.split_whitespace().next()?.split_once('/')?;
        Some((number(epoch)?, number(id)?))
    })
    .collect()
}
