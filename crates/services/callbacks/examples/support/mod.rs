//! Clients for the examples.

use base::Monotonic;
use callbacks::{Arrival, Asked, Callbacks, HostId, Identification, Task};
use std::error::Error;
use std::net::SocketAddr;

/// Returns the address that a client calls from.
pub(crate) fn address(number: u16) -> SocketAddr {
    ([10, 0, 0, 1], number).into()
}

/// Admits a client, including its reset. Its connection has its number.
pub(crate) fn host(callbacks: &mut Callbacks, number: u16) -> Result<HostId, Box<dyn Error>> {
    let (now, address) = (Monotonic(0), address(number));
    callbacks.arrive(now, address, number.into(), true);
    let said = Asked::Known(Identification::default());
    callbacks
        .identified(now, address, number.into(), said, true)
        .map_err(|refusal| format!("{refusal:?}"))?;
    match callbacks.arrive(now, address, number.into(), true) {
        Arrival::Ready(id) => Ok(id),
        Arrival::First(Task::Deliver(delivery)) => {
            callbacks.delivered(&delivery, true);
            Ok(delivery.host)
        }
        other => Err(format!("{other:?}").into()),
    }
}
