//! OpenAFS's rxperf: a service that sends and receives meaningless bytes, so that only Rx is measured. Client
//! and server implement its protocol, version 3 (`src/tools/rxperf/rxperf.c`), and each interoperates with
//! OpenAFS's counterpart.

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

/// Service id.
pub const SERVICE: u16 = 147;

/// UDP port.
pub const PORT: u16 = 7009;

/// Maximum size of a read or write on either side (RXPERF_BUFSIZE).
pub const PIECE_BYTES_MAX: u32 = 512 * 1024;

/// The last word of the server's replies (RXPERF_MAGIC_COOKIE).
const COOKIE: u32 = 0x4711;

/// Transport settings common to client and server; `None` selects the default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tuning {
    /// Size of the socket buffers in bytes.
    pub buffer_bytes: Option<usize>,
    /// Send and receive window in packets, 1 to 4096.
    pub window_packets: Option<u16>,
    /// Maximum length of an IP packet in bytes.
    pub mtu_bytes: Option<usize>,
    /// Disables merging of received datagrams in the kernel (`UDP_GRO`), which otherwise delivers runs from
    /// the other end as one.
    pub no_merging: bool,
}

/// Length of the IP and UDP headers.
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

/// Returns `bytes` of zeros in pieces of at most `piece_bytes`.
fn zeros(bytes: u64, piece_bytes: u32) -> impl Iterator<Item = Bytes> {
    let piece = u64::from(piece_bytes.clamp(1, PIECE_BYTES_MAX));
    (0..bytes.div_ceil(piece))
        .map(move |number| Bytes::from_static(&ZEROS[..piece.min(bytes - number * piece) as usize]))
}
