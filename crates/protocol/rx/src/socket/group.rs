//! All sockets of one address: bound by this process, or inherited from another.
//!
//! An inherited socket may hold datagrams, and the kernel keeps adding to it as long as any process has it
//! open. Each is therefore read, regardless of the number of lanes.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};

use socket2::Socket;

use super::{LaneSocket, SocketOptions, local_address, new_socket, set_up};
use crate::{ports, steering, sys};

/// The role of a socket among those of its address. Numbers are those of the kernel's `SO_REUSEPORT` group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// A lane's own socket.
    Member(usize),
    /// A socket in excess of the number of lanes, which is only read.
    Spare(usize),
    /// A duplicate descriptor of a member, for a lane that has no socket of its own.
    Duplicate,
}

/// Returns the sockets of one address for each of `lanes` lanes; a lane sends from its first. Peers are
/// steered to lanes by [`steering::lane_of`]. Port 0 is replaced by a free one.
///
/// The `inherited` sockets are already bound to this address, in the order of their group. If there are none,
/// this fails with `AddrInUse` if any other socket has the port, even one that would share it.
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
        // Sharing the port would hide another server on it, so the probe does not share.
        let probe = new_socket(address)?;
        let named = |error| ports::name_holder(error, ports::Transport::Udp, address);
        probe.bind(&address.into()).map_err(named)?;
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

/// Binds further sockets until there is one for each lane. The kernel refuses if the inherited sockets belong
/// to another user; lanes then share them.
fn join(group: &mut Vec<LaneSocket>, lanes: usize, options: &SocketOptions) {
    let address = group[0].local;
    while group.len() < lanes {
        let shared = group.iter().try_for_each(|member| member.socket.set_reuse_port(true));
        match shared.and_then(|()| LaneSocket::bind(address, true, options)) {
            Ok(socket) => group.push(socket),
            Err(error) => {
                let (sockets, wanted) = (group.len(), lanes);
                tracing::warn!(%address, sockets, wanted, %error, "lanes share the inherited sockets");
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
    /// Whether the socket is only read, for the datagrams that it still receives.
    pub(crate) fn is_spare(&self) -> bool {
        matches!(self.place, Place::Spare(_))
    }

    /// Duplicates the socket for another process, with its number in its group. Returns `None` for
    /// duplicates.
    pub(crate) fn to_keep(&self) -> Option<io::Result<(usize, OwnedFd)>> {
        match self.place {
            Place::Member(number) | Place::Spare(number) => {
                Some(self.socket.try_clone().map(|socket| (number, socket.into())))
            }
            Place::Duplicate => None,
        }
    }
}
