//! Passive capture of the datagrams that pass an interface.

use crate::sys::packet;
use crate::sys::{self, Instruction, Interest};
use libc::{BPF_ABS, BPF_B, BPF_H, BPF_IND, BPF_JEQ, BPF_JMP, BPF_JSET, BPF_LD, BPF_LDX, BPF_MSH};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The longest IP packet, or run of packets that the kernel handles as one.
const BUFFER_BYTES: usize = 65_536;

/// Receive buffer for packets not read yet, in bytes.
const QUEUE_BYTES: i32 = 64 << 20;

/// Maximum number of ports in a filter, limited by the reach of its jumps.
pub const TAP_PORTS_MAX: usize = 100;

/// Captures the UDP datagrams over IPv4 that pass an interface. Requires CAP_NET_RAW.
#[derive(Debug)]
pub struct Tap {
    socket: OwnedFd,
    buffer: Box<[u8]>,
}

/// A captured packet.
#[derive(Clone, Copy, Debug)]
pub struct Passed<'a> {
    /// Capture time in nanoseconds since 1970.
    pub time_ns: u64,
    /// The packet from its IP header on. It may be a run of datagrams that the kernel handles as one, under
    /// one header.
    pub packet: &'a [u8],
}

impl Tap {
    /// Starts capturing on `interface` (all interfaces if `None`) the packets from or to one of `ports` (all
    /// ports if empty). At most [`TAP_PORTS_MAX`] ports are allowed.
    pub fn open(interface: Option<&str>, ports: &[u16]) -> io::Result<Tap> {
        if ports.len() > TAP_PORTS_MAX {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "too many ports for one filter"));
        }
        let socket = packet::open()?;
        packet::attach_filter(socket.as_fd(), &program(ports))?;
        // Exceeding the system's limit requires a privilege; a smaller buffer is acceptable.
        let force = |name| sys::set_integer(socket.as_fd(), libc::SOL_SOCKET, name, QUEUE_BYTES);
        force(libc::SO_RCVBUFFORCE).or_else(|_| force(libc::SO_RCVBUF))?;
        packet::bind(socket.as_fd(), interface)?;
        Ok(Tap { socket, buffer: vec![0; BUFFER_BYTES].into() })
    }

    /// Returns the next packet, or `None` after `timeout` or on a signal.
    pub fn next(&mut self, timeout: Duration) -> io::Result<Option<Passed<'_>>> {
        let seen = match self.receive() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                sys::wait(&mut [Interest::readable(self.socket.as_raw_fd())], Some(timeout))?;
                self.receive()
            }
            seen => seen,
        };
        let seen = match seen {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            seen => seen?,
        };
        let time_ns = seen.time_ns.unwrap_or_else(now_ns);
        Ok(Some(Passed { time_ns, packet: &self.buffer[..seen.length] }))
    }

    /// Receives one packet from the socket.
    fn receive(&mut self) -> io::Result<packet::Seen> {
        loop {
            let seen = packet::receive(self.socket.as_fd(), &mut self.buffer)?;
            // On loopback interfaces every packet is seen twice.
            if !(seen.outgoing && seen.loopback) {
                return Ok(seen);
            }
        }
    }

    /// Returns the number of packets that the kernel dropped since the previous call because they were not
    /// read in time.
    pub fn take_drops(&mut self) -> io::Result<u32> {
        packet::take_drops(self.socket.as_fd())
    }
}

fn now_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |span| span.as_nanos() as u64)
}

/// Jump target of a filter test.
#[derive(Clone, Copy)]
enum Goto {
    Next,
    Take,
    Drop,
}

/// Returns a filter for UDP over IPv4 with these ports, and for fragments, which carry no ports. Packets
/// begin with their IP header.
fn program(ports: &[u16]) -> Vec<Instruction> {
    let protocol = (libc::SKF_AD_OFF + libc::SKF_AD_PROTOCOL) as u32;
    let load = |code: u32, k: u32| (BPF_LD | code, k, Goto::Next, Goto::Next);
    let equal = |k: u32, then, other| (BPF_JMP | BPF_JEQ, k, then, other);
    let mut steps = vec![
        load(BPF_H | BPF_ABS, protocol),
        equal(libc::ETH_P_IP as u32, Goto::Next, Goto::Drop),
        load(BPF_B | BPF_ABS, 9),
        equal(libc::IPPROTO_UDP as u32, Goto::Next, Goto::Drop),
    ];
    if !ports.is_empty() {
        steps.push(load(BPF_H | BPF_ABS, 6));
        steps.push((BPF_JMP | BPF_JSET, 0x1fff, Goto::Take, Goto::Next));
        steps.push((BPF_LDX | BPF_B | BPF_MSH, 0, Goto::Next, Goto::Next));
        for place in [0, 2] {
            steps.push(load(BPF_H | BPF_IND, place));
            steps.extend(ports.iter().map(|port| equal(u32::from(*port), Goto::Take, Goto::Next)));
        }
        steps.push((BPF_JMP, 0, Goto::Drop, Goto::Drop));
    }
    resolve(&steps)
}

/// Assembles the steps, followed by the instructions that accept or drop the packet.
fn resolve(steps: &[(u32, u32, Goto, Goto)]) -> Vec<Instruction> {
    let count = steps.len();
    let mut program: Vec<Instruction> = Vec::with_capacity(count + 2);
    for (at, &(code, k, then, other)) in steps.iter().enumerate() {
        let distance = |goto| match goto {
            Goto::Next => 0,
            Goto::Take => count - at - 1,
            Goto::Drop => count - at,
        };
        let (jt, jf) = (distance(then) as u8, distance(other) as u8);
        // BPF_JA has its jump distance in `k`.
        let k = if code == libc::BPF_JMP { distance(then) as u32 } else { k };
        program.push(Instruction { code: code as u16, jt, jf, k });
    }
    let answer = |k| Instruction { code: libc::BPF_RET as u16, jt: 0, jf: 0, k };
    program.extend([answer(u32::MAX), answer(0)]);
    program
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns what the kernel would decide about a packet with this program.
    fn takes(program: &[Instruction], ethertype: u32, packet: &[u8]) -> bool {
        let half = |at: usize| u32::from(u16::from_be_bytes([packet[at], packet[at + 1]]));
        let (mut a, mut x, mut at) = (0, 0, 0);
        loop {
            let Instruction { code, jt, jf, k } = program[at];
            at += 1;
            let jump = |is_so: bool| usize::from(if is_so { jt } else { jf });
            match code {
                0x28 if k == 0xffff_f000 => a = ethertype,
                0x28 => a = half(k as usize),
                0x30 => a = u32::from(packet[k as usize]),
                0x48 => a = half(x + k as usize),
                0xb1 => x = usize::from(packet[k as usize] & 15) * 4,
                0x15 => at += jump(a == k),
                0x45 => at += jump(a & k != 0),
                0x05 => at += k as usize,
                0x06 => return k != 0,
                other => panic!("instruction {other:#x}"),
            }
        }
    }

    /// An IPv4 header with 4 bytes of options, and ports.
    fn packet(protocol: u8, fragment: u16, from: u16, to: u16) -> Vec<u8> {
        let mut packet = vec![0; 32];
        packet[0] = 0x46;
        packet[6..8].copy_from_slice(&fragment.to_be_bytes());
        packet[9] = protocol;
        packet[24..26].copy_from_slice(&from.to_be_bytes());
        packet[26..28].copy_from_slice(&to.to_be_bytes());
        packet
    }

    #[test]
    fn filters_select_the_named_packets() {
        let ports: Vec<u16> = (7000..7000 + TAP_PORTS_MAX as u16).collect();
        for ports in [&ports[..], &[7000], &[]] {
            let program = program(ports);
            let takes = |ethertype, packet: &[u8]| takes(&program, ethertype, packet);
            assert!(takes(0x800, &packet(17, 0, 7000, 9)));
            assert!(takes(0x800, &packet(17, 0, 9, 7000)));
            assert_eq!(takes(0x800, &packet(17, 0, 9, 6999)), ports.is_empty());
            assert!(takes(0x800, &packet(17, 0x2001, 9, 6999)), "a fragment");
            assert!(!takes(0x800, &packet(6, 0, 7000, 9)));
            assert!(!takes(0x86dd, &packet(17, 0, 7000, 9)));
        }
    }
}
