//! Measures the cost of a short call in the table of clients and promises when its client is known and holds
//! a promise on the file.
//!
//!     cargo run --release -p callbacks --example renewals -- [CALLS [FILES [CLIENTS...]]]

mod support;

use base::{Fid, Monotonic, VnodeId, VolumeId};
use callbacks::{CallbackConfig, CallbackKind, Callbacks};
use std::error::Error;
use std::hint::black_box;
use std::time::Instant;
use support::{address, host};

fn main() -> Result<(), Box<dyn Error>> {
    let numbers: Result<Vec<u32>, _> = std::env::args().skip(1).map(|text| text.parse()).collect();
    let numbers = numbers?;
    let calls = numbers.first().copied().unwrap_or(4_000_000);
    let files = numbers.get(1).copied().unwrap_or(100);
    let clients = numbers.get(2..).filter(|clients| !clients.is_empty()).unwrap_or(&[10, 1_000, 10_000]);
    for &clients in clients {
        measure(calls, files, u16::try_from(clients)?)?;
    }
    Ok(())
}

fn measure(calls: u32, files: u32, clients: u16) -> Result<(), Box<dyn Error>> {
    let promises_max = files as usize * usize::from(clients);
    let mut callbacks = Callbacks::new(CallbackConfig { promises_max, ..CallbackConfig::default() });
    for number in 0..clients {
        host(&mut callbacks, number)?;
    }
    let fid = |vnode: u32| Fid { volume: VolumeId(1), vnode: VnodeId(vnode), unique: vnode };
    // A pseudo-random order that visits all clients and files equally.
    let nth = |n: u64| {
        let mixed = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let (high, low) = (mixed >> 32, mixed & 0xffff_ffff);
        (((high * u64::from(clients)) >> 32) as u16, fid(((low * u64::from(files)) >> 32) as u32))
    };
    let mut call = |now: Monotonic, number: u16, file: Option<Fid>| {
        let known = callbacks.try_arrive(now, address(number), number.into());
        if let (Some((host, _)), Some(fid)) = (known, file) {
            black_box(callbacks.promise(now, host, fid, CallbackKind::File));
        }
    };
    for number in 0..clients {
        (0..files).for_each(|vnode| call(Monotonic(0), number, Some(fid(vnode))));
    }
    let start = Instant::now();
    (0..calls.into()).for_each(|n| call(Monotonic(0), nth(n).0, None));
    let known_ns = start.elapsed().as_nanos() / u128::from(calls);
    let start = Instant::now();
    (0..calls.into()).for_each(|n| call(Monotonic(0), nth(n).0, Some(nth(n).1)));
    let both_ns = start.elapsed().as_nanos() / u128::from(calls);
    println!(
        "{clients:>6} clients, {files} files: who calls {known_ns} ns; that and a promise again {both_ns} ns"
    );
    Ok(())
}
