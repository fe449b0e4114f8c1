//! `cellar sniff`: analyses the traffic between clients and servers passively.

mod capture;
mod tables;

use crate::output::line;
use anyhow::{Context as _, Result, bail};
use capture::{Source, Step};
use clap::Args;
use signal_hook::consts::{SIGINT, SIGTERM};
use sniff::{Filter, Limits, Sniffer};
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Default UDP ports of AFS's servers and clients.
const PORTS: [u16; 10] = [7000, 7001, 7002, 7003, 7004, 7005, 7006, 7007, 7008, 7009];

/// Maximum wait for packets before the next check of the time.
const PATIENCE: Duration = Duration::from_millis(100);

/// Analyse AFS traffic passively, from a capture file or a network interface.
#[derive(Args)]
pub struct Sniff {
    /// pcap or pcapng file; `-` is standard input.
    #[arg(required_unless_present = "interface", conflicts_with = "interface")]
    file: Option<PathBuf>,
    /// Capture on this network interface; `any` is all of them. Needs root.
    #[arg(long, short)]
    interface: Option<String>,
    /// Only packets from or to this host; may be repeated.
    #[arg(long = "host", value_name = "ADDRESS")]
    hosts: Vec<Ipv4Addr>,
    /// Only packets from or to this UDP port; may be repeated. Defaults to 7000 to 7009.
    #[arg(long = "port", value_name = "PORT")]
    ports: Vec<u16>,
    /// All UDP ports. Anything that resembles Rx is treated as Rx.
    #[arg(long, conflicts_with = "ports")]
    all_ports: bool,
    /// Print a report every SECONDS seconds (by packet time for a file), each counted from zero.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    interval: Option<u64>,
    /// End after one interval, of 10 seconds unless --interval is given.
    #[arg(long)]
    once: bool,
    /// End after SECONDS seconds.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    seconds: Option<u64>,
    /// Write the captured packets to this file, for `cellar sniff` or Wireshark.
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
    /// Number of rows per table.
    #[arg(long, default_value_t = 20)]
    top: usize,
    /// Print JSON, one object per interval.
    #[arg(long)]
    json: bool,
}

/// The interval of --once.
const ONCE_SECONDS: u64 = 10;

/// Runs the command.
pub fn run(sniff: &Sniff) -> Result<()> {
    let filter = Filter { ports: sniff.ports()?, hosts: sniff.hosts.clone() };
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, stop.clone()).context("cannot take signals")?;
    }
    let mut source = sniff.open(&filter)?;
    let mut writer = sniff.write.as_deref().map(capture::writer).transpose()?;
    let mut sniffer = Sniffer::new(filter.clone(), Limits::default());
    let mut clock = Clock::new(sniff);
    let mut step = Step::More;
    while step != Step::Ended && !clock.is_over {
        let stopping = stop.load(Ordering::Relaxed);
        if let Some(now_ns) = source.now_ns().filter(|_| stopping) {
            clock.end_at(now_ns); // what came before is still counted
        }
        step = source.step(if stopping { Duration::ZERO } else { PATIENCE }, |packet| {
            match clock.tick(packet.time_ns) {
                Tick::Over => return Ok(()),
                Tick::Due => sniff.show(&mut sniffer)?,
                Tick::Running => {}
            }
            clock.is_fresh = true;
            sniffer.frame(packet.time_ns, packet.link, packet.data);
            writer.as_mut().map_or(Ok(()), |writer| capture::keep(writer, &filter, packet))
        })?;
        sniffer.dropped(source.take_drops());
        if !stopping && source.now_ns().is_some_and(|now_ns| clock.tick(now_ns) == Tick::Due) {
            sniff.show(&mut sniffer)?;
        }
        if stopping && (step != Step::More || source.now_ns().is_none()) {
            break;
        }
    }
    if let Some(writer) = writer {
        writer.finish().context("cannot write the capture")?;
    }
    if clock.is_fresh || clock.shown == 0 { sniff.show(&mut sniffer) } else { Ok(()) }
}

impl Sniff {
    fn ports(&self) -> Result<Vec<u16>> {
        let ports = match (self.all_ports, &self.ports[..]) {
            (true, _) => vec![],
            (_, []) => PORTS.to_vec(),
            (_, ports) => ports.to_vec(),
        };
        if ports.len() > rx::TAP_PORTS_MAX {
            bail!("{} ports are too many: at most {} can be named", ports.len(), rx::TAP_PORTS_MAX);
        }
        Ok(ports)
    }

    fn open(&self, filter: &Filter) -> Result<Source> {
        match (&self.interface, &self.file) {
            (Some(interface), _) => Source::live(interface, &filter.ports),
            (None, Some(file)) => Source::file(file),
            (None, None) => bail!("give a file, or an interface with --interface"),
        }
    }

    fn show(&self, sniffer: &mut Sniffer) -> Result<()> {
        let report = sniffer.report();
        sniffer.reset();
        if !self.json {
            return tables::show(&report, self.top);
        }
        let is_one = self.interval.is_none();
        line(if is_one { serde_json::to_string_pretty(&report)? } else { serde_json::to_string(&report)? })
    }
}

/// Decides when to report, by packet time or the time of day.
struct Clock {
    interval_ns: Option<u64>,
    length_ns: Option<u64>,
    start_ns: Option<u64>,
    /// Number of intervals reported.
    shown: u64,
    /// Whether any packet arrived in the current interval.
    is_fresh: bool,
    is_over: bool,
}

/// The result of advancing the clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tick {
    /// The interval continues.
    Running,
    /// An interval has ended.
    Due,
    /// The capture has ended; packets from then on are not counted.
    Over,
}

impl Clock {
    fn new(sniff: &Sniff) -> Clock {
        let ns = |seconds: u64| seconds.saturating_mul(1_000_000_000);
        let interval = sniff.interval.or(sniff.once.then_some(ONCE_SECONDS));
        let once = interval.filter(|_| sniff.once);
        Clock {
            interval_ns: interval.map(ns),
            length_ns: sniff.seconds.into_iter().chain(once).min().map(ns),
            start_ns: None,
            shown: 0,
            is_fresh: false,
            is_over: false,
        }
    }

    /// Ends the capture at this time.
    fn end_at(&mut self, now_ns: u64) {
        let passed_ns = now_ns.saturating_sub(*self.start_ns.get_or_insert(now_ns));
        self.length_ns = Some(self.length_ns.unwrap_or(u64::MAX).min(passed_ns));
    }

    /// Advances the clock. After a silence, empty intervals are skipped.
    fn tick(&mut self, now_ns: u64) -> Tick {
        let passed_ns = now_ns.saturating_sub(*self.start_ns.get_or_insert(now_ns));
        self.is_over |= self.length_ns.is_some_and(|length_ns| passed_ns >= length_ns);
        if self.is_over {
            return Tick::Over;
        }
        let ended = self.interval_ns.map_or(0, |interval_ns| passed_ns / interval_ns);
        if ended <= self.shown {
            return Tick::Running;
        }
        self.shown = ended;
        self.is_fresh = false;
        Tick::Due
    }
}

#[cfg(test)]
mod tests;
