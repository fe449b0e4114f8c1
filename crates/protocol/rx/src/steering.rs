//! Assigns peers to lanes.
//!
//! All lanes of a server share a port, and the kernel must deliver each datagram to the lane that holds the
//! peer's connections. By default it hashes with a secret, so that a lane which calls a client (callbacks)
//! could not predict where the reply will arrive. Cellar therefore chooses the lane itself, by a function of
//! the peer's address and port. The kernel computes it in a classic BPF program on the `SO_REUSEPORT` group,
//! and [`lane_of`] computes the same function. A datagram that still arrives in another lane (IP options on
//! IPv6, or a kernel that refused the program) is handed over.
//!
//! The price is that one client port is served by one lane. A lane moves more than a client's link does.

use std::net::{IpAddr, SocketAddr};

use crate::sys::Instruction;

/// Spreads the port over 32 bits, so that it and the address do not cancel out.
const PORT_FACTOR: u32 = 0x9E37_79B1;
/// Mixes both into the high bits, from which the lane is computed.
const MIX_FACTOR: u32 = 0x85EB_CA6B;
const MIX_SHIFT: u32 = 16;

/// Returns the lane, below `lanes`, that owns every connection with `peer`.
pub(crate) fn lane_of(peer: SocketAddr, lanes: usize) -> usize {
    let lanes = u32::try_from(lanes).unwrap_or(u32::MAX).max(1);
    let spread = u32::from(peer.port()).wrapping_mul(PORT_FACTOR);
    let mixed = (address_word(peer.ip()) ^ spread).wrapping_mul(MIX_FACTOR);
    ((mixed >> MIX_SHIFT) % lanes) as usize
}

/// The 32 bits of an address that vary most: all of IPv4's, the last of IPv6's.
fn address_word(address: IpAddr) -> u32 {
    match address {
        IpAddr::V4(address) => address.to_bits(),
        IpAddr::V6(address) => address.to_bits() as u32,
    }
}

/// Returns a BPF program that computes the same function, for sockets of the address family of `local`.
pub(crate) fn program(local: IpAddr, lanes: usize) -> Vec<Instruction> {
    let network = libc::SKF_NET_OFF as u32;
    let (source_word, port) = match local {
        // The source address is at offset 12; the ports follow the header, whose length is in its first byte.
        IpAddr::V4(_) => (
            network.wrapping_add(12),
            [
                step(libc::BPF_LDX | libc::BPF_B | libc::BPF_MSH, network),
                step(libc::BPF_LD | libc::BPF_H | libc::BPF_IND, network),
            ],
        ),
        // The source address is at offsets 8 to 23; the ports follow the fixed header of 40 bytes.
        IpAddr::V6(_) => (
            network.wrapping_add(20),
            [
                step(libc::BPF_LDX | libc::BPF_IMM, 0),
                step(libc::BPF_LD | libc::BPF_H | libc::BPF_ABS, network.wrapping_add(40)),
            ],
        ),
    };
    let mut program = port.to_vec();
    program.extend([
        step(libc::BPF_ALU | libc::BPF_MUL | libc::BPF_K, PORT_FACTOR),
        step(libc::BPF_MISC | libc::BPF_TAX, 0),
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, source_word),
        step(libc::BPF_ALU | libc::BPF_XOR | libc::BPF_X, 0),
        step(libc::BPF_ALU | libc::BPF_MUL | libc::BPF_K, MIX_FACTOR),
        step(libc::BPF_ALU | libc::BPF_RSH | libc::BPF_K, MIX_SHIFT),
        step(libc::BPF_ALU | libc::BPF_MOD | libc::BPF_K, lanes as u32),
        step(libc::BPF_RET | libc::BPF_A, 0),
    ]);
    program
}

fn step(code: u32, k: u32) -> Instruction {
    Instruction { code: code as u16, jt: 0, jf: 0, k }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_spread_over_the_lanes() {
        let mut counts = [0usize; 4];
        for host in 0..100u8 {
            for port in [7001, 7001 + u16::from(host), 40_000 + 13 * u16::from(host)] {
                counts[lane_of(SocketAddr::from(([10, 1, 2, host], port)), 4)] += 1;
            }
        }
        assert!(counts.iter().all(|count| (40..=120).contains(count)), "{counts:?}");
    }

    #[test]
    fn lanes_are_in_range_and_none_is_one() {
        for lanes in 0..9 {
            for port in 0..100 {
                let peer = SocketAddr::from(([0xFE80, 0, 0, 0, 0, 0, 0, port], port));
                assert!(lane_of(peer, lanes) < lanes.max(1));
            }
        }
    }
}
