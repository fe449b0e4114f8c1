//! Registrations that would take addresses from a server that is alive.

use base::HostUuid;
use std::net::{IpAddr, Ipv4Addr};
use vldb::{Displaced, LocationError, Servers};

/// Asks file servers what tells one from another.
pub trait Neighbours: Send + Sync {
    /// When the file server at `address` started, in seconds since 1970; `None` if none answers there. `holder` is the UUID
    /// that is expected: what this machine itself has at an address of its own says nothing about other servers.
    fn started(&self, address: Ipv4Addr, holder: Option<HostUuid>) -> Option<u32>;
}

/// A registration.
pub(crate) struct Registration<'a> {
    pub(crate) uuid: HostUuid,
    pub(crate) addresses: &'a [Ipv4Addr],
    /// Where it comes from.
    pub(crate) caller: IpAddr,
}

/// Refuses a registration that would take addresses from a server that answers at another address of its entry, and is
/// not the one that registers.
pub(crate) fn check(
    neighbours: &dyn Neighbours,
    servers: &Servers,
    new: &Registration<'_>,
) -> Result<(), LocationError> {
    let displaced = servers.displaced(new.uuid, new.addresses);
    let alive: Vec<(&Displaced, Ipv4Addr, u32)> = std::thread::scope(|scope| {
        let probe = |it, address| scope.spawn(move || answer(neighbours, it, address));
        let asked: Vec<_> = displaced
            .iter()
            .flat_map(|it| it.others.iter().map(move |address| (it, *address)))
            .map(|(it, address)| probe(it, address))
            .collect();
        asked.into_iter().filter_map(|thread| thread.join().ok().flatten()).collect()
    });
    if alive.is_empty() {
        return Ok(());
    }
    let own = newcomer(neighbours, new, &displaced);
    for (it, address, started) in alive {
        let has_same_uuid = it.uuid == Some(new.uuid);
        match own {
            Some(own) if own == started => {}
            None if has_same_uuid => {
                tracing::warn!(uuid = %new.uuid, %address, "the server registers other addresses, and one answers at its old one");
            }
            _ if has_same_uuid => return Err(LocationError::SharedUuid { uuid: new.uuid, address }),
            _ => return Err(still_serving(new.uuid, it, address)),
        }
    }
    Ok(())
}

fn answer<'a>(
    neighbours: &dyn Neighbours,
    displaced: &'a Displaced,
    address: Ipv4Addr,
) -> Option<(&'a Displaced, Ipv4Addr, u32)> {
    Some((displaced, address, neighbours.started(address, displaced.uuid)?))
}

/// When the server that registers started, as it says at an address that is its own alone.
fn newcomer(neighbours: &dyn Neighbours, new: &Registration<'_>, displaced: &[Displaced]) -> Option<u32> {
    let is_shared = |address: &Ipv4Addr| displaced.iter().any(|it| it.lost.contains(address));
    let caller = match new.caller {
        IpAddr::V4(address) => Some(address),
        IpAddr::V6(_) => None,
    };
    let others = new.addresses.iter().copied().filter(|address| !is_shared(address));
    caller.into_iter().chain(others).find_map(|address| neighbours.started(address, Some(new.uuid)))
}

fn still_serving(newcomer: HostUuid, displaced: &Displaced, address: Ipv4Addr) -> LocationError {
    let holder = displaced.uuid.map_or_else(|| address.to_string(), |uuid| uuid.to_string());
    LocationError::StillServing { newcomer, holder, address, lost: displaced.lost.clone() }
}
