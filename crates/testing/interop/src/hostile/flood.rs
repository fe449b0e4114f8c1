//! Datagrams at a given rate.

use super::packet;
use super::spoofer::Spoofer;
use super::target::{at, stranger};
use anyhow::{Context, Result};
use std::net::SocketAddrV4;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Builds a datagram for a service, given its number in the flood.
type Make = Arc<dyn Fn(u16, u32) -> Vec<u8> + Send + Sync>;

/// Parameters of a flood.
#[derive(Clone)]
pub struct Shape {
    /// Datagrams per second.
    pub rate: u32,
    /// Number of datagrams after which the flood ends.
    pub datagrams_max: u32,
    /// Number of source addresses, used in rotation.
    pub sources: u32,
    /// Ports and services, called in rotation; each datagram starts a new connection.
    pub services: Vec<(SocketAddrV4, u16)>,
    /// Builds the datagrams.
    pub datagram: Make,
}

impl Shape {
    /// Returns a flood of anonymous calls to these ports and services of the target. Their opcode does not
    /// exist.
    pub fn calls(rate: u32, sources: u32, services: &[(u16, u16)]) -> Shape {
        let services = services.iter().map(|&(port, service)| (at(port), service)).collect();
        let datagram = Arc::new(|service_id, number| packet::call(service_id, number, 0, &[]));
        Shape { rate, datagrams_max: u32::MAX, sources, services, datagram }
    }
}

/// Result of a flood.
#[derive(Clone, Copy, Debug)]
pub struct Flooded {
    /// Number of datagrams sent.
    pub sent: u32,
    /// Duration of the flood.
    pub took: Duration,
}

impl Flooded {
    /// Returns the datagrams per second.
    pub fn rate(&self) -> f64 {
        f64::from(self.sent) / self.took.as_secs_f64().max(0.001)
    }
}

/// A flood that runs until it is stopped or has sent all datagrams.
pub struct Flood {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<Flooded>>>,
}

/// Interval between batches of datagrams.
const TICK: Duration = Duration::from_millis(1);

impl Flood {
    /// Starts a flood.
    ///
    /// # Errors
    /// If the process may not send from other hosts' addresses.
    pub fn start(shape: Shape) -> Result<Flood> {
        let spoofer = Spoofer::open()?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::Builder::new().name("flood".to_owned());
        let thread = thread.spawn(move || send(spoofer, &shape, &stopped))?;
        Ok(Flood { stop, thread: Some(thread) })
    }

    /// Waits until all datagrams are sent.
    ///
    /// # Errors
    /// If a datagram could not be sent.
    pub fn finish(mut self) -> Result<Flooded> {
        let thread = self.thread.take().context("ended already")?;
        thread.join().map_err(|_| anyhow::anyhow!("the flood panicked"))?
    }

    /// Stops the flood.
    ///
    /// # Errors
    /// If a datagram could not be sent.
    pub fn end(self) -> Result<Flooded> {
        self.stop.store(true, Ordering::Relaxed);
        self.finish()
    }
}

impl Drop for Flood {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

fn send(mut spoofer: Spoofer, shape: &Shape, stop: &AtomicBool) -> Result<Flooded> {
    let start = Instant::now();
    let mut sent = 0;
    while sent < shape.datagrams_max && !stop.load(Ordering::Relaxed) {
        let due = (start.elapsed().as_secs_f64() * f64::from(shape.rate)) as u32;
        while sent < due.min(shape.datagrams_max) {
            let number = sent;
            let (to, service_id) = shape.services[number as usize % shape.services.len()];
            let from = stranger(number % shape.sources);
            spoofer.send(from, to, &(shape.datagram)(service_id, number)).context("sending")?;
            sent += 1;
        }
        std::thread::sleep(TICK);
    }
    Ok(Flooded { sent, took: start.elapsed() })
}
