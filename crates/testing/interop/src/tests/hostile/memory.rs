//! Traffic from unproven addresses costs the server a bounded amount of memory.

use super::interfaces::{Procedure, SERVICES, SERVICES_OF_NODE, Served, procedures};
use crate::tests::soak;
use afs_idl::pr::{IDToNameRequest, id_to_name};
use afs_idl::{ClientCall, ClientConnection, vl};
use anyhow::{Result, ensure};
use base::AbortCode;
use bytes::Bytes;
use cell_client::Network;
use interop::hostile::packet::{datagram, first, request, rxkad_call};
use interop::hostile::{ATTACKER, Client, Flood, SERVER, STRANGERS, Shape, Target, at, uuid};
use rx_proto::{Flags, Header};
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Maximum growth of the process. It also holds for an hour: memory for unproven addresses is limited, and
/// the limits are reached within the first second. Most of it are huge pages of the allocator, some 8 MiB for
/// each worker thread that serves anonymous callers, whose number is bounded (174 MiB in all without huge
/// pages).
const GROWTH_MAX: u64 = 768 << 20;
const RATE: u32 = 25_000;
/// Each address calls from five ports.
const DATAGRAMS: u32 = 5 * STRANGERS;
/// Maximum growth because of packets from addresses that prove nothing.
const STRANGERS_GROWTH_MAX: u64 = 256 << 20;
/// Maximum growth because of anonymous calls of all services.
const SERVICES_GROWTH_MAX: u64 = 512 << 20;
/// Addresses that occupy services.
const OCCUPIERS: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 99, 0, 100), Ipv4Addr::new(10, 99, 0, 101)];
/// Number of calls without which nothing was shown: most procedures refuse long arguments and anonymous callers.
const OCCUPIED_MIN: usize = 200;
/// Length of long arguments: 2 MB, in which each word may be the number of elements of a list.
const LONG_WORDS: usize = 500_000;
const COUNT: u32 = 100_000;
/// Number of clients that request the names of many ids at the same time.
const ASKING: usize = 64;
const IDS: i32 = 500_000;
/// Number of their requests, unless they go on as long as the flood.
const ROUNDS: usize = 3;
const SAMPLE: Duration = Duration::from_millis(50);

pub(super) fn memory() -> Result<()> {
    let target = Target::start()?;
    let before = target.resident_bytes()?;
    let strangers = grown(&target, before, || flood(STRANGERS)?.finish().map(drop))?;
    println!("hostile: strangers alone: {} MiB more", strangers >> 20);
    ensure!(strangers <= STRANGERS_GROWTH_MAX, "strangers made the server grow by {} MiB", strangers >> 20);
    let datagrams_max = soak().map_or(DATAGRAMS, |time| time.as_secs() as u32 * RATE);
    let growth = grown(&target, before, || {
        let (flood, done) = (flood(datagrams_max)?, &AtomicBool::new(false));
        let flooded = std::thread::scope(|scope| {
            (0..ASKING).for_each(|number| _ = scope.spawn(move || ask(number, done)));
            let flooded = flood.finish();
            done.store(true, Ordering::Relaxed);
            flooded
        });
        println!("hostile: {:.0} datagrams a second", flooded?.rate());
        Ok(())
    })?;
    println!("hostile: {} MiB at first, at most {} MiB more", before >> 20, growth >> 20);
    ensure!(growth <= GROWTH_MAX, "strangers made the server grow by {} MiB", growth >> 20);
    Ok(())
}

/// Starts a flood of packets from addresses that prove nothing.
fn flood(datagrams_max: u32) -> Result<Flood> {
    Flood::start(Shape {
        rate: RATE,
        datagrams_max,
        sources: 5 * STRANGERS,
        services: [(7000, 1), (7002, 73), (7003, 52), (7005, 4), (7007, 1)]
            .map(|(port, service)| (at(port), service))
            .to_vec(),
        datagram: Arc::new(unproved),
    })
}

/// Returns the maximum growth of the server's memory while `work` runs.
fn grown(target: &Target, before: u64, work: impl FnOnce() -> Result<()>) -> Result<u64> {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let watcher = scope.spawn(|| watch(target, &done));
        let worked = work();
        done.store(true, Ordering::Relaxed);
        let most = watcher.join().map_err(|_| anyhow::anyhow!("the watcher panicked"))??;
        worked.map(|()| most.saturating_sub(before))
    })
}

/// Anonymous callers occupy each procedure of each service: with long arguments, with requests that never end, and
/// with replies that they never read.
pub(super) fn services() -> Result<()> {
    occupy_all(&Target::start()?, &SERVICES)
}

/// The same at a node of a cluster.
pub(super) fn services_of_node() -> Result<()> {
    occupy_all(&Target::start_node()?, &SERVICES_OF_NODE)
}

fn occupy_all(target: &Target, services: &[Served]) -> Result<()> {
    let before = target.resident_bytes()?;
    let growth = grown(target, before, || {
        std::thread::scope(|scope| {
            let mut occupiers = Vec::new();
            for address in OCCUPIERS {
                target.add_address(address)?;
                let client = Arc::new(Client::anonymous(address, uuid())?);
                for &(port, service_id, interface) in services {
                    for procedure in procedures(interface)? {
                        let client = Arc::clone(&client);
                        occupiers.push(scope.spawn(move || {
                            let connect = || client.connect((SERVER, port).into(), service_id);
                            occupy(&connect, &procedure)
                        }));
                    }
                }
            }
            // Calls last until all have begun.
            let calls = occupiers.into_iter().filter_map(|occupier| occupier.join().ok()).flatten();
            let calls: Vec<_> = calls.collect();
            println!("hostile: {} calls", calls.len());
            ensure!(calls.len() > OCCUPIED_MIN, "only {} calls began", calls.len());
            Ok(())
        })
    })?;
    println!("hostile: {} MiB at first, at most {} MiB more", before >> 20, growth >> 20);
    ensure!(growth <= SERVICES_GROWTH_MAX, "anonymous callers made the server grow by {} MiB", growth >> 20);
    Ok(())
}

/// Begins calls of a procedure and reads no reply. Those that the server has ended by then are missing.
fn occupy(
    connect: &dyn Fn() -> Arc<dyn ClientConnection>,
    procedure: &Procedure,
) -> Vec<Box<dyn ClientCall>> {
    let opcode = procedure.opcode;
    let long = |words: usize| request(opcode, &COUNT.to_be_bytes().repeat(words));
    let complete = request(opcode, &vec![0; 4 * procedure.words]);
    let calls = [(long(LONG_WORDS), true), (long(LONG_WORDS), false), (complete, true)];
    calls.into_iter().filter_map(|(request, ends)| begin(&*connect(), request, ends).ok()).collect()
}

fn begin(
    connection: &dyn ClientConnection,
    request: Vec<u8>,
    ends: bool,
) -> Result<Box<dyn ClientCall>, AbortCode> {
    let mut call = connection.begin()?;
    call.write(Bytes::from(request))?;
    if ends {
        call.end_request()?;
    }
    Ok(call)
}

/// Returns complete calls, incomplete calls, packets far ahead, or first packets of rxkad.
fn unproved(service_id: u16, number: u32) -> Vec<u8> {
    let open = Header { flags: Flags::CLIENT_INITIATED, ..first(service_id, number) };
    match number / 5 % 4 {
        0 => datagram(&first(service_id, number), &request(0, &[])),
        1 => datagram(&open, &[0; 1400]),
        2 => datagram(&Header { sequence: 4000, ..open }, &[0; 16]),
        _ => rxkad_call(service_id, number),
    }
}

/// Requests as much as an anonymous call can. It may be rejected.
fn ask(number: usize, done: &AtomicBool) -> Result<()> {
    let client = Client::anonymous(ATTACKER, uuid())?;
    let protection = client.connect((SERVER, 7002).into(), 73);
    let locations = client.connect((SERVER, 7003).into(), 52);
    let ids: Vec<i32> = (0..IDS).map(|id| id + number as i32).collect();
    let rounds = if soak().is_some() { usize::MAX } else { ROUNDS };
    for _ in (0..rounds).take_while(|_| !done.load(Ordering::Relaxed)) {
        _ = id_to_name(&*protection, &IDToNameRequest { ids: ids.clone() });
        _ = vl::list_attributes_n2(&*locations, &vl::ListAttributesN2Request::default());
    }
    Ok(())
}

/// Returns the server's maximum memory usage.
fn watch(target: &Target, done: &AtomicBool) -> Result<u64> {
    let mut most = 0;
    while !done.load(Ordering::Relaxed) {
        most = most.max(target.resident_bytes()?);
        std::thread::sleep(SAMPLE);
    }
    Ok(most)
}
