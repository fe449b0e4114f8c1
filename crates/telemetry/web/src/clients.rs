//! The clients of a port: how many are allowed, and which one is disconnected for another.
//!
//! Every client has a thread, so their number is bounded. A client that sends its request slowly, or not at
//! all, costs as much as one being served. When the limit is reached, such a client is disconnected, from the
//! address that has the most. So an address that opens many connections only harms itself, and many slow
//! clients cannot block the page for others.

use parking_lot::Mutex;
use std::net::{IpAddr, Shutdown, TcpStream};
use std::sync::Arc;

/// Maximum number of clients.
const CLIENTS_MAX: usize = 32;
/// Maximum number per address, unless many clients share it.
const CLIENTS_OF_ADDRESS_MAX: usize = 8;

/// The connected clients.
#[derive(Default)]
pub(crate) struct Clients {
    /// Guards the list, which is in order of arrival; nothing blocks under the lock.
    open: Mutex<Vec<Open>>,
}

struct Open {
    number: u64,
    peer: IpAddr,
    /// Whether its request is incomplete.
    is_asking: bool,
    stream: TcpStream,
}

/// A connected client. It counts until this is dropped, even by a panic.
pub(crate) struct Client {
    clients: Arc<Clients>,
    number: u64,
}

impl Clients {
    /// Admits a client, which may disconnect another one.
    pub(crate) fn admit(
        self: &Arc<Clients>,
        stream: &TcpStream,
        is_shared: impl FnOnce(IpAddr) -> bool,
    ) -> std::io::Result<Client> {
        let (peer, stream) = (stream.peer_addr()?.ip(), stream.try_clone()?);
        let limit = if is_shared(peer) { CLIENTS_MAX } else { CLIENTS_OF_ADDRESS_MAX };
        let mut open = self.open.lock();
        let known: Vec<(IpAddr, bool)> = open.iter().map(|open| (open.peer, open.is_asking)).collect();
        if let Some(at) = client_to_disconnect(&known, peer, limit) {
            // Its thread fails to read or write, and ends.
            let _ = open.remove(at).stream.shutdown(Shutdown::Both);
        }
        let number = open.last().map_or(0, |last| last.number + 1);
        open.push(Open { number, peer, is_asking: true, stream });
        Ok(Client { clients: self.clone(), number })
    }
}

impl Client {
    /// Records that its request is complete.
    pub(crate) fn has_asked(&self) {
        let mut open = self.clients.open.lock();
        if let Some(own) = open.iter_mut().find(|open| open.number == self.number) {
            own.is_asking = false;
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.clients.open.lock().retain(|open| open.number != self.number);
    }
}

/// Selects the client to disconnect for one from `peer`, an address with a limit of `limit` clients. `open`
/// has, in order of arrival, each client's address and whether its request is incomplete.
fn client_to_disconnect(open: &[(IpAddr, bool)], peer: IpAddr, limit: usize) -> Option<usize> {
    let of = |address: IpAddr| open.iter().filter(|(other, _)| *other == address).count();
    let oldest = |address: IpAddr, asks: bool| open.iter().position(|client| *client == (address, asks));
    if of(peer) >= limit {
        return oldest(peer, true).or_else(|| oldest(peer, false));
    }
    if open.len() < CLIENTS_MAX {
        return None;
    }
    let candidates = |asks: bool| open.iter().enumerate().filter(move |(_, client)| client.1 == asks);
    // Of several addresses with equally many clients, the first one.
    let largest =
        |asks: bool| candidates(asks).rev().max_by_key(|(_, client)| of(client.0)).map(|(at, _)| at);
    largest(true).or_else(|| largest(false))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    fn peer(last: u8) -> IpAddr {
        Ipv4Addr::new(192, 0, 2, last).into()
    }

    #[test]
    fn an_address_makes_room_for_itself() {
        let mut open = vec![(peer(1), false); CLIENTS_OF_ADDRESS_MAX - 1];
        open.push((peer(2), true));
        assert_eq!(client_to_disconnect(&open, peer(1), CLIENTS_OF_ADDRESS_MAX), None);
        open.push((peer(1), true));
        assert_eq!(
            client_to_disconnect(&open, peer(1), CLIENTS_OF_ADDRESS_MAX),
            Some(CLIENTS_OF_ADDRESS_MAX)
        );
        assert_eq!(client_to_disconnect(&open, peer(1), CLIENTS_MAX), None, "many share it");
        assert_eq!(client_to_disconnect(&open, peer(3), CLIENTS_OF_ADDRESS_MAX), None);
        open.last_mut().unwrap().1 = false;
        assert_eq!(client_to_disconnect(&open, peer(1), CLIENTS_OF_ADDRESS_MAX), Some(0));
    }

    #[test]
    fn the_largest_idle_client_is_disconnected_first() {
        // The oldest is being served; one address has three incomplete requests, another has one.
        let mut open =
            vec![(peer(1), false), (peer(2), true), (peer(3), true), (peer(3), true), (peer(3), true)];
        open.extend((10..).map(|last| (peer(last), false)).take(CLIENTS_MAX - open.len()));
        assert_eq!(client_to_disconnect(&open, peer(9), CLIENTS_OF_ADDRESS_MAX), Some(2));
        open[2..5].iter_mut().for_each(|client| client.1 = false);
        assert_eq!(client_to_disconnect(&open, peer(9), CLIENTS_OF_ADDRESS_MAX), Some(1));
        open[1].1 = false;
        assert_eq!(client_to_disconnect(&open, peer(9), CLIENTS_OF_ADDRESS_MAX), Some(2), "nobody is asking");
        open.pop();
        assert_eq!(client_to_disconnect(&open, peer(9), CLIENTS_OF_ADDRESS_MAX), None);
    }
}
