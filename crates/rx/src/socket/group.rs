//! All sockets of one address: bound here, or left by another process.
//!
//! A socket that another process left may hold datagrams, and the kernel goes on to put datagrams into it as long as
//! any process has it open. So each is read, however many lanes there are.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};

use socket2::Socket;

use super::{LaneSocket, SocketOptions, local_address, new_socket, set_up};
use crate::{steering, sys};

/// What a socket is among those of its address. Numbers are those of the kernel's `SO_REUSEPORT` group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// A lane's own.
    Member(usize),
    /// One more than there are lanes. It is only read.
    Spare(usize),
    /// Another descriptor of a member, for a lane that has no socket of its own.
    Duplicate,
}

/// The sockets of one address for each of `lanes` lanes, the one that it sends from first. Peers are steered to lanes by
/// [`steering::lane_of`]. Port 0 is replaced by a free one.
///
/// `inherited` are bound to this address already, in the order of their group. If there are none, this fails with
/// `AddrInUse` if any other socket has the port, even one that would share it.
pub(crate) fn bind_lanes(
    address: SocketAddr,
    lanes: usize,
    options: &SocketOptions,
    inherited: Vec<Socket>,
) -> io::Result<Vec<Vec<LaneSocket>>> {
    let group = if inherited.is_empty() {
        bind_group(address, lanes, options)?
    } else {
        let mut group = adopt(inherited, options)?;
        join(&mut group, lanes, options);
        group
    };
    if group.len() > 1 && options.kernel_steering {
        let program = steering::program(address.ip(), lanes.min(group.len()));
        if let Err(error) = sys::attach_steering(group[0].as_fd(), &program) {
            tracing::warn!(%error, "the kernel does not steer datagrams; lanes will hand them over");
        }
    }
    share_out(group, lanes, options)
}

fn bind_group(address: SocketAddr, lanes: usize, options: &SocketOptions) -> io::Result<Vec<LaneSocket>> {
    let mut address = address;
    if address.port() != 0 {
        // Sharing a port would hide another server on it; this socket does not share.
        let probe = new_socket(address)?;
        probe.bind(&address.into())?;
    }
    let mut group = Vec::new();
    for _ in 0..lanes {
        let socket = LaneSocket::bind(address, lanes > 1, options)?;
        address.set_port(socket.local.port());
        group.push(socket);
    }
    Ok(group)
}

pub(super) fn adopt(inherited: Vec<Socket>, options: &SocketOptions) -> io::Result<Vec<LaneSocket>> {
    let adopt_one = |socket: Socket| {
        set_up(&socket, local_address(&socket)?, options)?;
        LaneSocket::of_bound(socket, options)
    };
    inherited.into_iter().map(adopt_one).collect()
}

/// Binds what is missing to one socket for each lane. The kernel refuses that if the first sockets are another user's:
/// then lanes share them.
fn join(group: &mut Vec<LaneSocket>, lanes: usize, options: &SocketOptions) {
    let address = group[0].local;
    while group.len() < lanes {
        let shared = group.iter().try_for_each(|member| member.socket.set_reuse_port(true));
        match shared.and_then(|()| LaneSocket::bind(address, true, options)) {
            Ok(socket) => group.push(socket),
            Err(error) => {
                let (sockets, wanted) = (group.len(), lanes);
                tracing::warn!(%address, sockets, wanted, %error, "lanes share the sockets that were passed in");
                return;
            }
        }
    }
}

pub(super) fn share_out(
    group: Vec<LaneSocket>,
    lanes: usize,
    options: &SocketOptions,
) -> io::Result<Vec<Vec<LaneSocket>>> {
    let mut shares: Vec<Vec<LaneSocket>> = (0..lanes).map(|_| Vec::new()).collect();
    for (number, socket) in group.into_iter().enumerate() {
        let place = if number < lanes { Place::Member(number) } else { Place::Spare(number) };
        shares[number % lanes].push(LaneSocket { place, ..socket });
    }
    let members = shares.iter().take_while(|share| !share.is_empty()).count();
    for lane in members..lanes {
        let socket = shares[lane % members][0].socket.try_clone()?;
        let socket = LaneSocket { place: Place::Duplicate, ..LaneSocket::of_bound(socket, options)? };
        shares[lane].push(socket);
    }
    Ok(shares)
}

impl LaneSocket {
    /// Whether it is read only for what other sockets' datagrams it holds.
    pub(crate) fn is_spare(&self) -> bool {
        matches!(self.place, Place::Spare(_))
    }

    /// Another descriptor of it and its number in its group, for another process; none for duplicates.
    pub(crate) fn to_keep(&self) -> Option<io::Result<(usize, OwnedFd)>> {
        match self.place {
            Place::Member(number) | Place::Spare(number) => {
                Some(self.socket.try_clone().map(|socket| (number, socket.into())))
            }
            Place::Duplicate => None,
        }
    }
}
