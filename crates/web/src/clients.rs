//! The clients of a port: how many there may be, and which one makes room for another.
//!
//! Every client gets a thread, so their number is bounded. One that sends its request slowly, or not at all, costs
//! as much as one that is served; when there is no room such a client is disconnected, of the address that has the
//! most. So who opens many connections only ever takes from himself, and a page that many slow clients hold stays
//! open for others.

use parking_lot::Mutex;
use std::net::{IpAddr, Shutdown, TcpStream};
use std::sync::Arc;

/// Clients at a time.
const CLIENTS_MAX: usize = 32;
/// Those of one address, unless many share it.
const CLIENTS_OF_ADDRESS_MAX: usize = 8;

/// The clients that are connected.
#[derive(Default)]
pub(crate) struct Clients {
    /// Guards the list, in the order of arrival; nothing waits under it.
    open: Mutex<Vec<Open>>,
}

struct Open {
    number: u64,
    peer: IpAddr,
    /// Its request has not come whole.
    is_asking: bool,
    stream: TcpStream,
}

/// One of the clients; it is one until this is dropped, by a panic too.
pub(crate) struct Client {
    clients: Arc<Clients>,
    number: u64,
}

impl Clients {
    /// Takes in a client, which may cost another one its connection.
    pub(crate) fn admit(
        self: &Arc<Clients>,
        stream: &TcpStream,
        is_shared: impl FnOnce(IpAddr) -> bool,
    ) -> std::io::Result<Client> {
        let (peer, stream) = (stream.peer_addr()?.ip(), stream.try_clone()?);
        let limit = if is_shared(peer) { CLIENTS_MAX } else { CLIENTS_OF_ADDRESS_MAX };
        let mut open = self.open.lock();
        let known: Vec<(IpAddr, bool)> = open.iter().map(|open| (open.peer, open.is_asking)).collect();
        if let Some(at) = who_goes(&known, peer, limit) {
            // Its thread reads or writes in vain, and ends.
            let _ = open.remove(at).stream.shutdown(Shutdown::Both);
        }
        let number = open.last().map_or(0, |last| last.number + 1);
        open.push(Open { number, peer, is_asking: true, stream });
        Ok(Client { clients: self.clone(), number })
    }
}

impl Client {
    /// Its request has come.
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

/// Which of the clients (in the order of arrival, and whether their requests are still to come) makes room for one
/// from `peer`, an address that may have `limit` of them.
fn who_goes(open: &[(IpAddr, bool)], peer: IpAddr, limit: usize) -> Option<usize> {
    let of = |address: IpAddr| open.iter().filter(|(other, _)| *other == address).count();
    let oldest = |address: IpAddr, asks: bool| open.iter().position(|client| *client == (address, asks));
    if of(peer) >= limit {
        return oldest(peer, true).or_else(|| oldest(peer, false));
    }
    if open.len() < CLIENTS_MAX {
        return None;
    }
    let candidates = |asks: bool| open.iter().enumerate().filter(move |(_, client)| client.1 == asks);
    // Of several with as many, the one that came first.
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
        assert_eq!(who_goes(&open, peer(1), CLIENTS_OF_ADDRESS_MAX), None);
        open.push((peer(1), true));
        assert_eq!(who_goes(&open, peer(1), CLIENTS_OF_ADDRESS_MAX), Some(CLIENTS_OF_ADDRESS_MAX));
        assert_eq!(who_goes(&open, peer(1), CLIENTS_MAX), None, "many share it");
        assert_eq!(who_goes(&open, peer(3), CLIENTS_OF_ADDRESS_MAX), None);
        open.last_mut().unwrap().1 = false;
        assert_eq!(who_goes(&open, peer(1), CLIENTS_OF_ADDRESS_MAX), Some(0));
    }

    #[test]
    fn who_has_most_and_has_not_asked_goes_first() {
        // The oldest is served; one address has three that do not ask, another has one.
        let mut open =
            vec![(peer(1), false), (peer(2), true), (peer(3), true), (peer(3), true), (peer(3), true)];
        open.extend((10..).map(|last| (peer(last), false)).take(CLIENTS_MAX - open.len()));
        assert_eq!(who_goes(&open, peer(9), CLIENTS_OF_ADDRESS_MAX), Some(2));
        open[2..5].iter_mut().for_each(|client| client.1 = false);
        assert_eq!(who_goes(&open, peer(9), CLIENTS_OF_ADDRESS_MAX), Some(1));
        open[1].1 = false;
        assert_eq!(who_goes(&open, peer(9), CLIENTS_OF_ADDRESS_MAX), Some(2), "nobody is asking");
        open.pop();
        assert_eq!(who_goes(&open, peer(9), CLIENTS_OF_ADDRESS_MAX), None);
    }
}
