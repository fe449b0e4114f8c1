//! Sources of packets, and the capture file they are written to.

use anyhow::{Context as _, Result};
use rx::Tap;
use sniff::pcap::{Reader, Writer};
use sniff::{Filter, Frame, Link, frame, segments};
use std::fs::File;
use std::io::{BufReader, BufWriter, Read};
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Maximum number of packets per step, so that the main loop can check the time regularly.
const STEP_PACKETS: usize = 1000;

/// A capture file or an interface.
pub(super) enum Source {
    File(Box<Reader<Box<dyn Read>>>),
    Live(Tap),
}

/// What to expect after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// More packets immediately.
    More,
    /// More packets at an unknown time.
    Idle,
    /// No more packets.
    Ended,
}

/// A packet from a file or an interface.
pub(super) struct Captured<'a> {
    pub(super) time_ns: u64,
    pub(super) link: Link,
    pub(super) data: &'a [u8],
}

impl Source {
    pub(super) fn file(path: &Path) -> Result<Source> {
        let input: Box<dyn Read> = if path == Path::new("-") {
            Box::new(std::io::stdin().lock())
        } else {
            Box::new(File::open(path).with_context(|| format!("cannot open {}", path.display()))?)
        };
        let reader = Reader::new(Box::new(BufReader::new(input)) as Box<dyn Read>);
        Ok(Source::File(Box::new(reader.with_context(|| path.display().to_string())?)))
    }

    pub(super) fn live(interface: &str, ports: &[u16]) -> Result<Source> {
        let name = (interface != "any").then_some(interface);
        let tap = Tap::open(name, ports)
            .with_context(|| format!("cannot open interface {interface} (this needs root)"))?;
        Ok(Source::Live(tap))
    }

    /// Takes up to [`STEP_PACKETS`] packets, waiting up to `patience` for each on an interface.
    pub(super) fn step(
        &mut self,
        patience: Duration,
        mut take: impl FnMut(&Captured<'_>) -> Result<()>,
    ) -> Result<Step> {
        for _ in 0..STEP_PACKETS {
            match self {
                Source::File(reader) => {
                    let Some(packet) = reader.packet()? else { return Ok(Step::Ended) };
                    let sniff::pcap::Packet { time_ns, link, data } = packet;
                    take(&Captured { time_ns, link, data })?;
                }
                Source::Live(tap) => {
                    let Some(passed) = tap.next(patience).context("cannot capture")? else {
                        return Ok(Step::Idle);
                    };
                    let rx::Passed { time_ns, packet } = passed;
                    take(&Captured { time_ns, link: Link::Raw, data: packet })?;
                }
            }
        }
        Ok(Step::More)
    }

    /// Returns the time of day for an interface, `None` for a file.
    pub(super) fn now_ns(&self) -> Option<u64> {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        matches!(self, Source::Live(_)).then(|| since.map_or(0, |span| span.as_nanos() as u64))
    }

    /// Returns the number of packets that the kernel dropped since the last call.
    pub(super) fn take_drops(&mut self) -> u64 {
        match self {
            Source::File(_) => 0,
            Source::Live(tap) => tap.take_drops().unwrap_or(0).into(),
        }
    }
}

/// Creates a capture file.
pub(super) fn writer(path: &Path) -> Result<Writer<BufWriter<File>>> {
    let doing = || format!("cannot write {}", path.display());
    Writer::new(BufWriter::new(File::create(path).with_context(doing)?)).with_context(doing)
}

/// Writes the datagrams of a packet that pass the filter.
pub(super) fn keep(
    writer: &mut Writer<BufWriter<File>>,
    filter: &Filter,
    packet: &Captured<'_>,
) -> Result<()> {
    let Frame::Udp(datagram) = frame::decode(packet.link, packet.data) else { return Ok(()) };
    let sniff::Datagram { source, destination, .. } = datagram;
    if !filter.takes(source, destination) {
        return Ok(());
    }
    for (piece, bytes) in segments::datagrams(&datagram) {
        writer
            .datagram(packet.time_ns, source, destination, piece, bytes)
            .context("cannot write the capture")?;
    }
    Ok(())
}
