//! Measures the cost of promises when clients list a large tree one after the other.
//!
//!     cargo run --release -p callbacks --example listings -- [FILES [CLIENTS]]

mod support;

use base::{Fid, Monotonic, VnodeId, VolumeId};
use callbacks::{CallbackConfig, CallbackKind, Callbacks};
use std::error::Error;
use std::hint::black_box;
use std::time::Instant;
use support::host;

/// Returns the resident memory of this process.
fn resident_bytes() -> Result<u64, Box<dyn Error>> {
    let pages = std::fs::read_to_string("/proc/self/statm")?;
    let pages = pages.split(' ').nth(1).ok_or("no resident pages in /proc/self/statm")?;
    Ok(pages.parse::<u64>()? * 4096)
}

fn main() -> Result<(), Box<dyn Error>> {
    let numbers: Result<Vec<u32>, _> = std::env::args().skip(1).map(|text| text.parse()).collect();
    let numbers = numbers?;
    let files = numbers.first().copied().unwrap_or(393_604);
    let clients = numbers.get(1).copied().unwrap_or(12);
    let promises_max = files as usize * clients as usize;
    let mut callbacks = Callbacks::new(CallbackConfig { promises_max, ..CallbackConfig::default() });
    println!(
        "{files} files, listed by one client after the other, each of which asks for all again in no order:"
    );
    for number in 1..=clients {
        let host = host(&mut callbacks, number as u16)?;
        let before = resident_bytes()?;
        let mut ask = |vnode: u32| {
            let fid = Fid { volume: VolumeId(1), vnode: VnodeId(vnode), unique: vnode };
            black_box(callbacks.promise(Monotonic(0), host, fid, CallbackKind::Bulk));
        };
        let start = Instant::now();
        (0..files).for_each(&mut ask);
        let made = start.elapsed() / files;
        let bytes = (resident_bytes()? - before) / u64::from(files);
        let start = Instant::now();
        (0..files).for_each(|number| ask((u64::from(number) * 0x9e37_79b1 % u64::from(files)) as u32));
        let again = start.elapsed() / files;
        println!("client {number:>3}: a promise {made:>6.0?}, {bytes:>4} bytes; again {again:>6.0?}");
    }
    println!("{} promises", callbacks.counters().promises);
    Ok(())
}
