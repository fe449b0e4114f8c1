//! Rejects registrations that would take addresses from a running server.

use base::HostUuid;
use std::net::{IpAddr, Ipv4Addr};
use vldb::{Displaced, LocationError, Servers};

/// Probes file servers, to tell one from another.
pub trait Neighbours: Send + Sync {
    /// Returns the start time of the file server at `address`, in seconds since 1970; `None` if none answers.
    /// `holder` is the expected UUID: a server that this machine itself has at one of its own addresses says
    /// nothing about other servers.
    fn started(&self, address: Ipv4Addr, holder: Option<HostUuid>) -> Option<u32>;

    /// Returns whether one file server answers at both addresses. Two servers that started in the same second
    /// have the same start time.
    fn is_same(&self, one: Ipv4Addr, other: Ipv4Addr) -> bool;
}

/// A registration to check.
pub(crate) struct Registration<'a> {
    pub(crate) uuid: HostUuid,
    pub(crate) addresses: &'a [Ipv4Addr],
    /// Address of the caller.
    pub(crate) caller: IpAddr,
}

/// Rejects a registration that would take addresses from a server that still answers at another address of
/// its entry and is not the registering server. A registering server that does not answer, because it is just
/// starting or ending, is not that server: it would answer at all its addresses or at none.
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
            Some((own, own_started)) if own_started == started && neighbours.is_same(own, address) => {}
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

/// Returns an address of the registering server that no other server has, and the start time reported there.
fn newcomer(
    neighbours: &dyn Neighbours,
    new: &Registration<'_>,
    displaced: &[Displaced],
) -> Option<(Ipv4Addr, u32)> {
    let is_shared = |address: &Ipv4Addr| displaced.iter().any(|it| it.lost.contains(address));
    let caller = match new.caller {
        IpAddr::V4(address) => Some(address),
        IpAddr::V6(_) => None,
    };
    let others = new.addresses.iter().copied().filter(|address| !is_shared(address));
    caller
        .into_iter()
        .chain(others)
        .find_map(|address| Some((address, neighbours.started(address, Some(new.uuid))?)))
}

fn still_serving(newcomer: HostUuid, displaced: &Displaced, address: Ipv4Addr) -> LocationError {
    let holder = displaced.uuid.map_or_else(|| address.to_string(), |uuid| uuid.to_string());
    LocationError::StillServing { newcomer, holder, address, lost: displaced.lost.clone() }
}
