//! Processes of this machine that have a port open, from `/proc` (proc(5)).

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;

/// Maximum number of characters shown of a command line.
const COMMAND_CHARACTERS_MAX: usize = 100;

/// State of a listening TCP socket in `/proc/net/tcp`.
const TCP_LISTEN: &str = "0A";

/// Protocol of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// UDP.
    Udp,
    /// TCP; only listening sockets hold the port.
    Tcp,
}

/// A process that has a port open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Effective user of the socket.
    pub user: u32,
    /// PID and command line; `None` if they cannot be read: processes of other users are visible only to root.
    pub process: Option<(u32, String)>,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let user = self.user;
        match &self.process {
            Some((pid, command)) => write!(f, "process {pid} (`{command}`) of user {user}"),
            None => write!(f, "a process of user {user}, whose PID only that user and root can see"),
        }
    }
}

/// Returns the processes of this network namespace whose open sockets conflict with binding `address`.
pub fn holders(transport: Transport, address: SocketAddr) -> Vec<Holder> {
    let tables = match transport {
        Transport::Udp => ["/proc/net/udp", "/proc/net/udp6"],
        Transport::Tcp => ["/proc/net/tcp", "/proc/net/tcp6"],
    };
    let read = |path| std::fs::read_to_string(path).unwrap_or_default();
    let sockets: Vec<Socket> = tables.map(read).iter().flat_map(|text| parse(text, transport)).collect();
    let sockets = sockets.into_iter().filter(|socket| conflict(socket.local, address));
    let mut holders = Vec::new();
    for socket in sockets {
        let holder = Holder { user: socket.user, process: process_with(socket.inode) };
        if !holders.contains(&holder) {
            holders.push(holder);
        }
    }
    holders
}

/// Adds the process that holds the port to an error of binding `address`; returns other errors unchanged.
pub fn name_holder(error: io::Error, transport: Transport, address: SocketAddr) -> io::Error {
    if error.kind() != io::ErrorKind::AddrInUse {
        return error;
    }
    let text = match &holders(transport, address)[..] {
        [] => format!("{address} is in use by a process outside this process namespace"),
        holders => {
            let names: Vec<String> = holders.iter().map(ToString::to_string).collect();
            format!("{address} is in use by {}", names.join(" and by "))
        }
    };
    io::Error::new(error.kind(), text)
}

/// A row of a table of sockets.
#[derive(Debug, PartialEq, Eq)]
struct Socket {
    local: SocketAddr,
    user: u32,
    inode: u64,
}

/// Parses the rows ` sl local_address rem_address st tx_queue:rx_queue tr:tm->when retrnsmt uid timeout inode`.
fn parse(text: &str, transport: Transport) -> Vec<Socket> {
    let row = |line: &str| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let [_, local, _, state, _, _, _, user, _, inode, ..] = fields[..] else { return None };
        if transport == Transport::Tcp && state != TCP_LISTEN {
            return None;
        }
        Some(Socket { local: parse_address(local)?, user: user.parse().ok()?, inode: inode.parse().ok()? })
    };
    text.lines().filter_map(row).collect()
}

/// Parses an address and a port in hexadecimal. Each group of eight digits is a word of the address, in
/// network byte order, printed as a number of this machine.
fn parse_address(text: &str) -> Option<SocketAddr> {
    let (address, port) = text.split_once(':')?;
    let mut bytes = Vec::new();
    for word in address.as_bytes().chunks(8) {
        let digits = std::str::from_utf8(word).ok().filter(|digits| digits.len() == 8)?;
        bytes.extend(u32::from_str_radix(digits, 16).ok()?.to_ne_bytes());
    }
    let address = match bytes.len() {
        4 => IpAddr::from(<[u8; 4]>::try_from(bytes).ok()?),
        16 => IpAddr::from(<[u8; 16]>::try_from(bytes).ok()?),
        _ => return None,
    };
    Some(SocketAddr::new(address, u16::from_str_radix(port, 16).ok()?))
}

/// Returns whether two sockets may not be bound to these addresses: equal ones, or either is that of all
/// interfaces. An IPv6 socket for all interfaces also receives IPv4 unless it was set up otherwise, which
/// `/proc` does not show.
fn conflict(one: SocketAddr, other: SocketAddr) -> bool {
    let plain = |address: SocketAddr| address.ip().to_canonical();
    let (a, b) = (plain(one), plain(other));
    let is_any = |ip| ip == IpAddr::V4(Ipv4Addr::UNSPECIFIED) || ip == IpAddr::V6(Ipv6Addr::UNSPECIFIED);
    one.port() == other.port() && (a == b || is_any(a) || is_any(b))
}

/// Returns the PID and command line of the process that has a socket open, if they can be read.
fn process_with(inode: u64) -> Option<(u32, String)> {
    let wanted = format!("socket:[{inode}]");
    let processes = std::fs::read_dir("/proc").ok()?.flatten();
    let mut pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let pid = pids.find(|pid| has_open(*pid, &wanted))?;
    Some((pid, command_of(pid)))
}

fn has_open(pid: u32, socket: &str) -> bool {
    let directory: PathBuf = ["/proc", &pid.to_string(), "fd"].iter().collect();
    let Ok(descriptors) = std::fs::read_dir(directory) else { return false };
    descriptors
        .flatten()
        .any(|entry| std::fs::read_link(entry.path()).is_ok_and(|target| target.as_os_str() == socket))
}

/// Returns a command line on one line, or the name of a process without one.
fn command_of(pid: u32) -> String {
    let read = |name: &str| std::fs::read(format!("/proc/{pid}/{name}")).unwrap_or_default();
    let words = read("cmdline");
    let text = if words.is_empty() { read("comm") } else { words };
    let text = String::from_utf8_lossy(&text).replace('\0', " ");
    let plain = |letter: char| if letter.is_control() { '?' } else { letter };
    text.trim().chars().map(plain).take(COMMAND_CHARACTERS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, UdpSocket};

    const TITLE: &str = "   sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops\n";

    #[test]
    fn rows_of_the_tables() {
        let word = |bytes: [u8; 4]| format!("{:08X}", u32::from_ne_bytes(bytes));
        let four = format!("{}:1B58", word([127, 0, 0, 1]));
        let six = format!("{}{}{}{}:1B58", word([0; 4]), word([0; 4]), word([0; 4]), word([0, 0, 0, 1]));
        let row = |address: &str, state: &str| {
            format!(
                "  23: {address} 00000000:0000 {state} 00000000:00000000 00:00000000 00000000   105        0 4711 2 0 0\n"
            )
        };
        let text = format!("{TITLE}{}{}rubbish\n\n", row(&four, "07"), row(&six, "0A"));
        let found = parse(&text, Transport::Udp);
        let expected = |local: &str| Socket { local: local.parse().unwrap(), user: 105, inode: 4711 };
        assert_eq!(found, [expected("127.0.0.1:7000"), expected("[::1]:7000")]);
        assert_eq!(parse(&text, Transport::Tcp), [expected("[::1]:7000")]);
        assert_eq!(["", "1:2", "zz:1B58", "0100007F"].map(parse_address), [None; 4]);
    }

    #[test]
    fn addresses_that_conflict() {
        let wanted: SocketAddr = "127.0.0.1:7000".parse().unwrap();
        for (other, expected) in [
            ("127.0.0.1:7000", true),
            ("127.0.0.2:7000", false),
            ("127.0.0.1:7001", false),
            ("0.0.0.0:7000", true),
            ("[::]:7000", true),
            ("[::ffff:127.0.0.1]:7000", true),
            ("[::1]:7000", false),
        ] {
            assert_eq!(conflict(other.parse().unwrap(), wanted), expected, "{other}");
        }
    }

    #[test]
    fn an_error_names_the_process_that_has_the_port() {
        let (udp, tcp) = (UdpSocket::bind("127.0.0.1:0").unwrap(), TcpListener::bind("127.0.0.1:0").unwrap());
        let sockets =
            [(Transport::Udp, udp.local_addr().unwrap()), (Transport::Tcp, tcp.local_addr().unwrap())];
        for (transport, address) in sockets {
            let error = name_holder(io::ErrorKind::AddrInUse.into(), transport, address);
            let text = error.to_string();
            assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
            let own = format!("{address} is in use by process {} (`", std::process::id());
            assert!(text.starts_with(&own) && text.contains("rx-"), "{text}");
        }
        let other = name_holder(io::ErrorKind::PermissionDenied.into(), Transport::Udp, sockets[0].1);
        assert_eq!(other.kind(), io::ErrorKind::PermissionDenied);
    }

    #[test]
    fn a_process_that_cannot_be_seen_has_a_user() {
        let holder = Holder { user: 7, process: None };
        assert!(holder.to_string().starts_with("a process of user 7"), "{holder}");
    }
}
