//! Static probes (USDT) for bpftrace, perf, SystemTap and gdb. docs/reference/tracing.md lists them with
//! their arguments; a test compares that list with the probes that `readelf` finds in the program.
//!
//! A text takes two arguments: address and length. A probe that is not traced is a single `nop`; a text's first and
//! last byte are read before it.

use crate::raw;
use events::catalogue::PacketResent;
use events::{Event, LINES};
use std::net::{IpAddr, SocketAddr};

/// `call__start`: a worker has read the first bytes of a call.
#[inline]
pub fn call_start(service: &str, opcode: u32, host: IpAddr, waited_ns: u64) {
    raw::call_start(service, opcode, number_of(host), waited_ns);
}

/// Returns a host as passed to probes: its IPv4 address as a number, 0 for any other.
#[inline]
fn number_of(host: IpAddr) -> u64 {
    match host {
        IpAddr::V4(address) => u64::from(address.to_bits()),
        IpAddr::V6(_) => 0,
    }
}

/// `call__end`: a call has ended, `total_ns` after its first packet, having received and sent `bytes` in
/// total.
#[inline]
pub fn call_end(procedure: &str, volume: u32, code: i32, total_ns: u64, bytes: u64) {
    raw::call_end(procedure, volume, code, total_ns, bytes);
}

/// `callback__break`: callback breaks were sent to `clients` clients, and acknowledged or abandoned.
#[inline]
pub fn callback_break(clients: usize, ns: u64) {
    raw::callback_break(clients as u64, ns);
}

/// `callback__send`: this thread sends a callback break to a client. It may send others before it waits for the answer.
#[inline]
pub fn callback_send(client: SocketAddr) {
    raw::callback_send(number_of(client.ip()), client.port());
}

/// `callback__end`: the callback break was `delivered`, or was not answered: then it goes `elsewhere`, to
/// another address of the client, or remains `unanswered`.
#[inline]
pub fn callback_end(client: SocketAddr, outcome: &str) {
    raw::callback_end(number_of(client.ip()), client.port(), outcome);
}

/// `packet__resend`: a DATA packet is retransmitted.
#[inline]
pub fn packet_resend(connection: u32, call: u32, sequence: u32, bytes: usize) {
    raw::packet_resend(connection, call, sequence, bytes as u64);
    if LINES.wants(Event::Packet) {
        let [connection, call, sequence] = [connection, call, sequence].map(u64::from);
        LINES.log(&PacketResent { connection, call, sequence, sent: bytes as u64 }, Vec::new);
    }
}

/// `queue__enter`: a call starts to wait for a worker, with `waiting` other calls.
#[inline]
pub fn queue_enter(waiting: usize) {
    raw::queue_enter(waiting as u64);
}

/// `queue__leave`: a worker takes a call from the queue.
#[inline]
pub fn queue_leave(waited_ns: u64) {
    raw::queue_leave(waited_ns);
}
