//! Traffic from unproven addresses costs the server a bounded amount of memory.

use crate::tests::soak;
use afs_idl::pr::{IDToNameRequest, id_to_name};
use afs_idl::vl;
use anyhow::{Result, ensure};
use cell_client::Network;
use interop::hostile::packet::{datagram, first, request, rxkad_call};
use interop::hostile::{ATTACKER, Client, Flood, SERVER, STRANGERS, Shape, Target, at, uuid};
use rx_proto::{Flags, Header};
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
/// Number of clients that request the names of many ids at the same time.
const ASKING: usize = 64;
const IDS: i32 = 500_000;
const SAMPLE: Duration = Duration::from_millis(50);

pub(super) fn memory() -> Result<()> {
    let target = Target::start()?;
    let before = target.resident_bytes()?;
    let datagrams_max = soak().map_or(DATAGRAMS, |time| time.as_secs() as u32 * RATE);
    let flood = Flood::start(Shape {
        rate: RATE,
        datagrams_max,
        sources: 5 * STRANGERS,
        services: [(7000, 1), (7002, 73), (7003, 52), (7005, 4), (7007, 1)]
            .map(|(port, service)| (at(port), service))
            .to_vec(),
        datagram: Arc::new(unproved),
    })?;
    let done = AtomicBool::new(false);
    let most = std::thread::scope(|scope| {
        (0..ASKING).for_each(|number| _ = scope.spawn(move || ask(number)));
        let watcher = scope.spawn(|| watch(&target, &done));
        let flooded = flood.finish();
        done.store(true, Ordering::Relaxed);
        println!("hostile: {:.0} datagrams a second", flooded?.rate());
        watcher.join().map_err(|_| anyhow::anyhow!("the watcher panicked"))?
    })?;
    let growth = most.saturating_sub(before);
    println!("hostile: {} MiB at first, at most {} MiB more", before >> 20, growth >> 20);
    ensure!(growth <= GROWTH_MAX, "strangers made the server grow by {} MiB", growth >> 20);
    Ok(())
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
fn ask(number: usize) -> Result<()> {
    let client = Client::anonymous(ATTACKER, uuid())?;
    let protection = client.connect((SERVER, 7002).into(), 73);
    let locations = client.connect((SERVER, 7003).into(), 52);
    let ids: Vec<i32> = (0..IDS).map(|id| id + number as i32).collect();
    for _ in 0..3 {
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
