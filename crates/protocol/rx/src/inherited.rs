//! Sockets that outlive a process: inherited from a previous process, or left to the next.

use std::collections::{BTreeMap, HashSet};
use std::ffi::OsString;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};

use parking_lot::Mutex;
use socket2::{Socket, Type};

use crate::socket::local_address;
use crate::sys;

/// A socket that is passed from one process to another.
#[derive(Debug)]
pub struct KeptSocket {
    /// Identifies the socket's address and its position among the sockets of that address. Contains no colon,
    /// as service managers require.
    pub name: String,
    /// The socket.
    pub descriptor: OwnedFd,
}

/// Precedes a socket's number within its group in names.
const PLACE: &str = "-lane";

impl KeptSocket {
    pub(crate) fn new(address: SocketAddr, place: usize, descriptor: OwnedFd) -> KeptSocket {
        let ip = address.ip().to_string().replace(':', ".");
        KeptSocket { name: format!("{ip}-{}{PLACE}{place}", address.port()), descriptor }
    }

    /// Returns the sockets that the service manager passed to this process, by socket activation or from its
    /// store (`LISTEN_FDS`, sd_listen_fds(3)). Must be called once, before other threads run.
    pub fn passed() -> Vec<KeptSocket> {
        let variable = |name| std::env::var_os(name).map(OsString::into_string).and_then(Result::ok);
        let (pid, count, names) =
            (variable("LISTEN_PID"), variable("LISTEN_FDS"), variable("LISTEN_FDNAMES").unwrap_or_default());
        let count = passed_count(pid.as_deref(), count.as_deref(), std::process::id());
        let names = names.split(':').map(str::to_owned).chain(std::iter::repeat(String::new()));
        let passed = sys::take_passed(count).into_iter().zip(names);
        passed.map(|(descriptor, name)| KeptSocket { name, descriptor }).collect()
    }

    /// Returns the number in the name. Sockets that a unit file requests have other names, and there is one
    /// for each address.
    fn place(&self) -> usize {
        self.name.rsplit_once(PLACE).and_then(|(_, place)| place.parse().ok()).unwrap_or(0)
    }
}

/// Returns how many descriptors are meant for this process.
fn passed_count(pid: Option<&str>, count: Option<&str>, own: u32) -> usize {
    let is_ours = pid.and_then(|pid| pid.parse().ok()) == Some(own);
    count.filter(|_| is_ours).and_then(|count| count.parse().ok()).unwrap_or(0)
}

/// UDP sockets of a previous process that this process's servers can take.
#[derive(Debug, Default)]
pub struct Inherited {
    by_address: Mutex<BTreeMap<SocketAddr, Vec<Heir>>>,
}

#[derive(Debug)]
struct Heir {
    place: usize,
    name: String,
    socket: Socket,
}

impl Inherited {
    /// Groups sockets by address. Anything but a bound UDP socket is closed with a warning.
    pub fn new(sockets: Vec<KeptSocket>) -> Inherited {
        let mut by_address: BTreeMap<SocketAddr, Vec<Heir>> = BTreeMap::new();
        let mut seen = HashSet::new();
        for kept in sockets {
            let (place, name) = (kept.place(), kept.name.clone());
            match Heir::new(kept) {
                // The service manager also returns a unit file's socket from its store.
                Ok((_, heir)) if !heir.is_new(&mut seen) => {}
                Ok((address, heir)) => by_address.entry(address).or_default().push(heir),
                Err(error) => {
                    tracing::warn!(name, place, %error, "an inherited descriptor is not a UDP socket; \
                        closed");
                }
            }
        }
        for group in by_address.values_mut() {
            group.sort_by_key(|heir| heir.place);
        }
        Inherited { by_address: Mutex::new(by_address) }
    }

    /// Takes the sockets of this address, in the order of their group. No other server gets them.
    pub(crate) fn take(&self, address: SocketAddr) -> Vec<Socket> {
        let group = self.by_address.lock().remove(&address).unwrap_or_default();
        group.into_iter().map(|heir| heir.socket).collect()
    }

    /// Closes the sockets that no server has taken. Returns their names and addresses.
    pub fn close_rest(&self) -> Vec<(String, SocketAddr)> {
        let rest = std::mem::take(&mut *self.by_address.lock());
        let names = |(address, group): (SocketAddr, Vec<Heir>)| {
            group.into_iter().map(move |heir| (heir.name, address)).collect::<Vec<_>>()
        };
        rest.into_iter().flat_map(names).collect()
    }
}

impl Heir {
    fn new(kept: KeptSocket) -> io::Result<(SocketAddr, Heir)> {
        let place = kept.place();
        let socket = Socket::from(kept.descriptor);
        if socket.r#type()? != Type::DGRAM {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a datagram socket"));
        }
        let address = local_address(&socket)?;
        Ok((address, Heir { place, name: kept.name, socket }))
    }

    fn is_new(&self, seen: &mut HashSet<(u64, u64)>) -> bool {
        let identity = rustix::fs::fstat(self.socket.as_fd()).map(|stat| (stat.st_dev, stat.st_ino));
        identity.is_ok_and(|identity| seen.insert(identity))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;

    fn kept(name: &str, socket: &UdpSocket) -> KeptSocket {
        KeptSocket { name: name.into(), descriptor: socket.try_clone().unwrap().into() }
    }

    #[test]
    fn descriptors_for_another_process_are_not_taken() {
        assert_eq!(passed_count(Some("7"), Some("3"), 7), 3);
        for (pid, count) in
            [(Some("8"), Some("3")), (None, Some("3")), (Some("7"), None), (Some("7"), Some("x"))]
        {
            assert_eq!(passed_count(pid, count, 7), 0);
        }
    }

    #[test]
    fn sockets_are_found_by_address_in_the_order_of_their_group() {
        let bound = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
        let [one, other] = [0, 1].map(|n: usize| bound[n].local_addr().unwrap());
        let name = KeptSocket::new(one, 2, bound[0].try_clone().unwrap().into()).name;
        assert_eq!(name, format!("127.0.0.1-{}-lane2", one.port()));
        let inherited = Inherited::new(vec![kept("x-lane2", &bound[0]), kept("unit", &bound[1])]);
        assert_eq!((inherited.take(one).len(), inherited.take(one).len()), (1, 0));
        assert_eq!(inherited.close_rest(), [("unit".to_owned(), other)]);
        assert!(inherited.close_rest().is_empty());
    }

    #[test]
    fn a_socket_that_comes_twice_is_taken_once() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let twice = vec![kept("cellar.socket", &socket), kept("x-lane0", &socket)];
        assert_eq!(Inherited::new(twice).take(socket.local_addr().unwrap()).len(), 1);
    }

    #[test]
    fn other_sockets_are_ignored() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let file = std::fs::File::open("/dev/null").unwrap();
        let all = [OwnedFd::from(listener), OwnedFd::from(file)];
        let all = all.map(|descriptor| KeptSocket { name: String::new(), descriptor });
        assert!(Inherited::new(all.into()).close_rest().is_empty());
    }
}
