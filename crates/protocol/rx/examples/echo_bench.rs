//! Measures the driver's throughput over loopback: large transfers both ways, and small calls.
//!
//! `cargo run --release -p rx --example echo_bench [megabytes] [lanes]`
#![allow(clippy::cast_precision_loss, reason = "rates for people")]

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use afs_idl::{CallStream, ClientConnection};
use base::AbortCode;
use bytes::Bytes;
use rx::{Client, ClientConfig, Server, ServerCall, ServerConfig, Service, ServiceConfig, ServiceEntry};
use rx_security::Null;

const SERVICE: u16 = 77;
/// Size of the pieces that a file server writes to a call: one chunk of its cache.
const PIECE_BYTES: usize = 1 << 20;
const SMALL_CALLS_TIME: Duration = Duration::from_secs(3);

/// Reads everything, then sends the number of bytes given in the first eight.
struct Pump;

impl Service for Pump {
    fn serve(&self, call: &mut ServerCall) -> Result<(), AbortCode> {
        let mut wanted = [0; 8];
        let got = call.read(&mut wanted)?;
        assert_eq!(got, wanted.len(), "requests begin with their count in one packet");
        drain(call)?;
        pour(call, u64::from_be_bytes(wanted))
    }
}

fn drain(stream: &mut dyn CallStream) -> Result<u64, AbortCode> {
    let mut total = 0;
    loop {
        match stream.read_chunk(usize::MAX)?.len() {
            0 => return Ok(total),
            bytes => total += bytes as u64,
        }
    }
}

fn pour(stream: &mut dyn CallStream, bytes: u64) -> Result<(), AbortCode> {
    static PIECE: &[u8] = &[0x5A; PIECE_BYTES];
    let mut left = bytes;
    while left > 0 {
        let length = left.min(PIECE_BYTES as u64);
        stream.write(Bytes::from_static(&PIECE[..length as usize]))?;
        left -= length;
    }
    Ok(())
}

/// Makes one call that sends `up` bytes and receives `down`.
fn exchange(connection: &dyn ClientConnection, up: u64, down: u64) -> Result<(), AbortCode> {
    let mut call = connection.begin()?;
    call.write(Bytes::copy_from_slice(&down.to_be_bytes()))?;
    pour(&mut *call, up)?;
    call.end_request()?;
    assert_eq!(drain(&mut *call)?, down);
    call.finish()
}

fn megabytes_per_second(name: &str, bytes: u64, work: impl FnOnce()) {
    let start = Instant::now();
    work();
    let seconds = start.elapsed().as_secs_f64();
    println!("{name:<28} {:8.0} MB/s", bytes as f64 / 1e6 / seconds);
}

/// Runs threads that call as fast as they can, each on its own connection.
fn small_calls(client: &Client, server: std::net::SocketAddr, threads: usize) {
    let start = Instant::now();
    let counts: Vec<u64> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads)
            .map(|_| {
                let connection = client.connect(server, SERVICE, None);
                scope.spawn(move || {
                    let mut count = 0;
                    while start.elapsed() < SMALL_CALLS_TIME {
                        exchange(&*connection, 16, 64).expect("a small call");
                        count += 1;
                    }
                    count
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("a caller")).collect()
    });
    let calls = counts.iter().sum::<u64>() as f64 / start.elapsed().as_secs_f64();
    let each_us = threads as f64 * 1e6 / calls;
    println!("small calls, {threads:>3} threads      {calls:8.0} calls/s  {each_us:6.0} us each");
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let megabytes: u64 = arguments.next().map_or(1000, |text| text.parse().expect("megabytes"));
    let lanes: usize = arguments.next().map_or(1, |text| text.parse().expect("lanes"));
    let config =
        ServerConfig { addresses: vec![IpAddr::from([127, 0, 0, 1])], lanes, ..ServerConfig::default() };
    let service = ServiceEntry {
        config: ServiceConfig { id: SERVICE, name: String::from("pump"), security: vec![Arc::new(Null)] },
        service: Arc::new(Pump),
    };
    let server = Server::start(&config, vec![service]).expect("a server");
    let address = server.addresses()[0];
    let client = Client::start(&ClientConfig::default()).expect("a client");
    let connection = client.connect(address, SERVICE, None);
    let bytes = megabytes * 1_000_000;
    exchange(&*connection, 0, bytes / 10).expect("a first transfer");
    megabytes_per_second("one call down", bytes, || exchange(&*connection, 0, bytes).expect("down"));
    megabytes_per_second("one call up", bytes, || exchange(&*connection, bytes, 0).expect("up"));
    megabytes_per_second("four calls down", bytes, || {
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| exchange(&*connection, 0, bytes / 4).expect("down"));
            }
        });
    });
    for threads in [1, 4, 32] {
        small_calls(&client, address, threads);
    }
    println!("server {:#?}", server.statistics().total());
    println!("client {:#?}", client.statistics());
}
