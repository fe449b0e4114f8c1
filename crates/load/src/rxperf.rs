//! OpenAFS's rxperf: a service that takes and gives bytes of no meaning, so that Rx is measured and
//! nothing behind it. Client and server speak its protocol, version 3 (`src/tools/rxperf/rxperf.c`),
//! and each works with OpenAFS's other half.

mod client;
mod request;
mod result;
mod server;
#[cfg(test)]
mod tests;

pub use client::{ClientOptions, run};
pub use request::{Request, Step, Work, parse_list};
pub use result::{Outcome, Packets};
pub use server::{Perf, ServerOptions, serve};

use bytes::Bytes;

/// The service id.
pub const SERVICE: u16 = 147;

/// The UDP port.
pub const PORT: u16 = 7009;

/// The largest piece that either side reads or writes at a time (RXPERF_BUFSIZE).
pub const PIECE_BYTES_MAX: u32 = 512 * 1024;

/// What the server ends its answers with (RXPERF_MAGIC_COOKIE).
const COOKIE: u32 = 0x4711;

/// Transport settings that client and server have in common; `None` leaves the default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tuning {
    /// Socket buffers in bytes.
    pub buffer_bytes: Option<usize>,
    /// Send and receive window in packets, 1 to 4096.
    pub window_packets: Option<u16>,
    /// The largest IP packet in bytes.
    pub mtu_bytes: Option<usize>,
    /// The kernel hands on datagrams one by one as they were sent, not runs of them as one (`UDP_GRO`): it cuts
    /// what the other end sends as a run.
    pub no_merging: bool,
}

/// IP and UDP headers.
const IP_UDP_BYTES: usize = 28;

impl Tuning {
    fn endpoint(self) -> rx::EndpointConfig {
        let mut config = rx::EndpointConfig { version: "cellar rxperf".into(), ..Default::default() };
        if let Some(packets) = self.window_packets {
            (config.receive_window_packets, config.send_window_packets) = (packets, packets);
        }
        if let Some(bytes) = self.mtu_bytes {
            let packet = bytes.saturating_sub(IP_UDP_BYTES);
            config.packet_bytes = packet.clamp(rx_proto::limits::PACKET_BYTES_MIN, config.packet_bytes);
            config.packet_bytes_max = config.packet_bytes;
        }
        config
    }

    fn socket(self) -> rx::SocketOptions {
        let default = rx::SocketOptions::default();
        let buffer_bytes = self.buffer_bytes.unwrap_or(default.buffer_bytes);
        rx::SocketOptions { buffer_bytes, receive_merging: !self.no_merging, ..default }
    }
}

/// Zeros to send.
static ZEROS: [u8; PIECE_BYTES_MAX as usize] = [0; PIECE_BYTES_MAX as usize];

/// `bytes` of zeros in pieces of at most `piece_bytes`.
fn zeros(bytes: u64, piece_bytes: u32) -> impl Iterator<Item = Bytes> {
    let piece = u64::from(piece_bytes.clamp(1, PIECE_BYTES_MAX));
    (0..bytes.div_ceil(piece))
        .map(move |number| Bytes::from_static(&ZEROS[..piece.min(bytes - number * piece) as usize]))
}
