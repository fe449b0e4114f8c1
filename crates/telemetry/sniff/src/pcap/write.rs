//! Writes pcap files.

use super::PACKET_BYTES_MAX;
use super::classic::NANOSECONDS;
use crate::frame;
use std::io::{self, Write};
use std::net::SocketAddrV4;

/// LINKTYPE_RAW: packets start with their IP header.
const RAW: u32 = 101;

/// Writes a capture of UDP datagrams, with times in nanoseconds. Link-layer headers are omitted, and
/// datagrams that the kernel merged are written separately, as they were on the wire.
#[derive(Debug)]
pub struct Writer<W: Write> {
    output: W,
}

impl<W: Write> Writer<W> {
    /// Writes the header.
    pub fn new(mut output: W) -> io::Result<Writer<W>> {
        let words = [0x0004_0002, 0, 0, PACKET_BYTES_MAX as u32, RAW]; // version 2.4, no zone
        output.write_all(&NANOSECONDS.to_le_bytes())?;
        words.into_iter().try_for_each(|word: u32| output.write_all(&word.to_le_bytes()))?;
        Ok(Writer { output })
    }

    /// Writes a datagram with a payload of `payload_bytes`, of which `payload` was captured.
    pub fn datagram(
        &mut self,
        time_ns: u64,
        source: SocketAddrV4,
        destination: SocketAddrV4,
        payload: &[u8],
        payload_bytes: usize,
    ) -> io::Result<()> {
        let packet = frame::encode(source, destination, payload, payload_bytes);
        let on_the_wire = packet.len() + payload_bytes.saturating_sub(payload.len());
        let seconds = time_ns / 1_000_000_000;
        let words =
            [seconds as u32, (time_ns % 1_000_000_000) as u32, packet.len() as u32, on_the_wire as u32];
        words.into_iter().try_for_each(|word| self.output.write_all(&word.to_le_bytes()))?;
        self.output.write_all(&packet)
    }

    /// Flushes the buffer and returns the output.
    pub fn finish(mut self) -> io::Result<W> {
        self.output.flush()?;
        Ok(self.output)
    }
}
