//! Sockets that capture the packets of an interface, or send frames to it (packet(7)).

use super::{CONTROL_BYTES, Control, Instruction, set_integer, set_option};
use std::ffi::CString;
use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// Requests receive timestamps in nanoseconds (asm-generic/socket.h).
const SO_TIMESTAMPNS: i32 = 35;

/// The kernel's description of a captured packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    /// Bytes in the buffer.
    pub(crate) length: usize,
    /// Capture time in nanoseconds since 1970.
    pub(crate) time_ns: Option<u64>,
    /// Whether the packet was outgoing.
    pub(crate) outgoing: bool,
    /// Whether it was seen on a loopback interface, where every outgoing packet comes in as well.
    pub(crate) loopback: bool,
}

/// Opens a packet socket that captures nothing until [`bind`]. Packets are delivered without their link
/// header.
pub(crate) fn open() -> io::Result<OwnedFd> {
    let socket = open_kind(libc::SOCK_DGRAM)?;
    set_integer(socket.as_fd(), libc::SOL_SOCKET, SO_TIMESTAMPNS, 1)?;
    Ok(socket)
}

/// Opens a packet socket that receives nothing and sends whole frames to an interface.
pub(crate) fn open_sender(interface: &str) -> io::Result<OwnedFd> {
    let socket = open_kind(libc::SOCK_RAW)?;
    // Without a protocol, nothing is received. The protocol of what is sent is that in the frame.
    bind_protocol(socket.as_fd(), interface_index(interface)?, 0)?;
    Ok(socket)
}

fn open_kind(kind: libc::c_int) -> io::Result<OwnedFd> {
    // SAFETY: takes no pointers.
    let descriptor = unsafe { libc::socket(libc::AF_PACKET, kind | libc::SOCK_CLOEXEC, 0) };
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor was just created and has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// Accepts only packets for which `program` returns a non-zero number.
pub(crate) fn attach_filter(socket: BorrowedFd<'_>, program: &[Instruction]) -> io::Result<()> {
    let program =
        libc::sock_fprog { len: program.len() as libc::c_ushort, filter: program.as_ptr().cast_mut() };
    set_option(socket, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &program)
}

/// Starts capturing on this interface, or on all interfaces if `None`.
pub(crate) fn bind(socket: BorrowedFd<'_>, interface: Option<&str>) -> io::Result<()> {
    let index = interface.map_or(Ok(0), interface_index)?;
    bind_protocol(socket, index, libc::ETH_P_ALL as u16)
}

fn bind_protocol(socket: BorrowedFd<'_>, index: libc::c_int, protocol: u16) -> io::Result<()> {
    // SAFETY: plain data for which all-zero bytes are valid.
    let mut address: libc::sockaddr_ll = unsafe { zeroed() };
    address.sll_family = libc::AF_PACKET as libc::c_ushort;
    address.sll_protocol = protocol.to_be();
    address.sll_ifindex = index;
    // SAFETY: the address is borrowed for the call and its size is passed.
    let done = unsafe {
        libc::bind(
            socket.as_raw_fd(),
            std::ptr::from_ref(&address).cast(),
            size_of::<libc::sockaddr_ll>() as libc::socklen_t,
        )
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn interface_index(name: &str) -> io::Result<libc::c_int> {
    let name = CString::new(name)?;
    // SAFETY: the name is borrowed for the call and ends with a zero byte.
    match unsafe { libc::if_nametoindex(name.as_ptr()) } {
        0 => Err(io::Error::last_os_error()),
        index => libc::c_int::try_from(index).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput)),
    }
}

/// Receives a packet into `buffer` without waiting; a longer packet is truncated.
///
/// Fails with `WouldBlock` if there is none.
pub(crate) fn receive(socket: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<Seen> {
    // SAFETY: both are plain data for which all-zero bytes are valid.
    let mut name: libc::sockaddr_ll = unsafe { zeroed() };
    let mut header: libc::msghdr = unsafe { zeroed() };
    let mut control = Control::EMPTY;
    let mut vector = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    header.msg_name = (&raw mut name).cast();
    header.msg_namelen = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    header.msg_iov = &raw mut vector;
    header.msg_iovlen = 1;
    header.msg_control = control.0.as_mut_ptr().cast();
    header.msg_controllen = CONTROL_BYTES;
    // SAFETY: the header points to values on this stack frame and to `buffer`, with their lengths.
    let got = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut header, libc::MSG_DONTWAIT) };
    let length = usize::try_from(got).map_err(|_| io::Error::last_os_error())?.min(buffer.len());
    Ok(Seen {
        length,
        time_ns: time_ns(&header),
        outgoing: name.sll_pkttype == libc::PACKET_OUTGOING,
        loopback: name.sll_hatype == libc::ARPHRD_LOOPBACK,
    })
}

/// Returns the timestamp among a message's control messages.
fn time_ns(header: &libc::msghdr) -> Option<u64> {
    // SAFETY: as in `control_facts`; the value is read only if the message has room for it.
    unsafe {
        let least = libc::CMSG_LEN(size_of::<libc::timespec>() as libc::c_uint) as usize;
        let mut next = libc::CMSG_FIRSTHDR(header);
        while !next.is_null() {
            let kind = ((*next).cmsg_level, (*next).cmsg_type);
            if kind == (libc::SOL_SOCKET, SO_TIMESTAMPNS) && (*next).cmsg_len as usize >= least {
                let time = libc::CMSG_DATA(next).cast::<libc::timespec>().read_unaligned();
                let (seconds, ns) = (u64::try_from(time.tv_sec).ok()?, u64::try_from(time.tv_nsec).ok()?);
                return Some(seconds.saturating_mul(1_000_000_000).saturating_add(ns));
            }
            next = libc::CMSG_NXTHDR(header, next);
        }
    }
    None
}

/// Returns the number of packets that the kernel dropped for lack of buffer space since the previous call.
pub(crate) fn take_drops(socket: BorrowedFd<'_>) -> io::Result<u32> {
    // SAFETY: plain data for which all-zero bytes are valid.
    let mut counters: libc::tpacket_stats = unsafe { zeroed() };
    let mut bytes = size_of::<libc::tpacket_stats>() as libc::socklen_t;
    // SAFETY: the buffer is owned by this frame and its size is passed.
    let done = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_PACKET,
            libc::PACKET_STATISTICS,
            (&raw mut counters).cast(),
            &raw mut bytes,
        )
    };
    if done == 0 { Ok(counters.tp_drops) } else { Err(io::Error::last_os_error()) }
}
