//! The system calls that neither the standard library nor `socket2` offers: batches of datagrams
//! with control messages, the queue of a socket's errors, `ppoll`, `eventfd`, three socket options, and
//! packet sockets ([`packet`]).
//!
//! This and its part [`packet`] are the crate's one module with `unsafe` in it. Every block passes the kernel pointers into
//! memory that is borrowed or owned for the whole call; nothing is kept by the kernel afterwards,
//! and what it wrote is read only as far as it says it wrote.
#![allow(unsafe_code, reason = "system calls without a safe wrapper; see the module's text")]

pub(crate) mod packet;

use std::fs::File;
use std::io::{self, IoSlice};
use std::mem::{size_of, zeroed};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

use socket2::{SockAddr, SockAddrStorage};

/// Datagrams (or merged runs of them) moved by one system call, at most.
pub(crate) const BATCH_MESSAGES: usize = 32;

/// The kernel's limit on pieces of one message (`UIO_MAXIOV`).
pub(crate) const MESSAGE_PIECES_MAX: usize = 1024;

/// One message to send: a datagram, or a run of equal datagrams cut by the kernel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Message<'a> {
    /// Where to.
    pub(crate) to: SocketAddr,
    /// Source address; the kernel chooses if none.
    pub(crate) from: Option<IpAddr>,
    /// Payload bytes of each datagram if the kernel is to cut `pieces` (`UDP_SEGMENT`).
    pub(crate) segment_bytes: Option<u16>,
    /// The payload, gathered by the kernel; at most [`MESSAGE_PIECES_MAX`].
    pub(crate) pieces: &'a [IoSlice<'a>],
}

/// What the kernel said about one received message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Received {
    /// Bytes that were written to the buffer.
    pub(crate) length: usize,
    /// The sender.
    pub(crate) from: SocketAddr,
    /// The address it was sent to, if the socket reports it.
    pub(crate) to: Option<IpAddr>,
    /// If the kernel merged several datagrams: the size of each but the last.
    pub(crate) segment_bytes: Option<usize>,
    /// The datagram was longer than the buffer.
    pub(crate) truncated: bool,
}

/// Room for control messages, aligned as the kernel wants it.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
struct Control([u8; CONTROL_BYTES]);

/// Holds packet information (IPv6: 40 bytes) and a segment size (24 bytes) with room to spare.
const CONTROL_BYTES: usize = 128;

impl Control {
    const EMPTY: Control = Control([0; CONTROL_BYTES]);
}

/// Receives up to [`BATCH_MESSAGES`] messages into `buffers`, one each, without waiting, and
/// appends what the kernel said to `received`, in the order of `buffers`.
///
/// Fails with `WouldBlock` if there is nothing.
pub(crate) fn receive(
    socket: BorrowedFd<'_>,
    buffers: &mut [Box<[u8]>],
    received: &mut Vec<Received>,
) -> io::Result<()> {
    let count = buffers.len().min(BATCH_MESSAGES);
    // SAFETY: all three are plain data for which zero bytes are a value.
    let mut names: [libc::sockaddr_storage; BATCH_MESSAGES] = unsafe { zeroed() };
    let mut vectors: [libc::iovec; BATCH_MESSAGES] = unsafe { zeroed() };
    let mut headers: [libc::mmsghdr; BATCH_MESSAGES] = unsafe { zeroed() };
    let mut controls = [Control::EMPTY; BATCH_MESSAGES];
    for slot in 0..count {
        vectors[slot].iov_base = buffers[slot].as_mut_ptr().cast();
        vectors[slot].iov_len = buffers[slot].len();
        let header = &mut headers[slot].msg_hdr;
        header.msg_name = (&raw mut names[slot]).cast();
        header.msg_namelen = size_of::<libc::sockaddr_storage>() as libc::socklen_t;
        header.msg_iov = &raw mut vectors[slot];
        header.msg_iovlen = 1;
        header.msg_control = controls[slot].0.as_mut_ptr().cast();
        header.msg_controllen = CONTROL_BYTES;
    }
    // SAFETY: the headers point to arrays on this stack frame and to `buffers`, all of which live
    // until after the call, and `count` does not exceed any of them.
    let got = unsafe {
        libc::recvmmsg(
            socket.as_raw_fd(),
            headers.as_mut_ptr(),
            count as libc::c_uint,
            libc::MSG_DONTWAIT,
            std::ptr::null_mut(),
        )
    };
    for slot in 0..usize::try_from(got).map_err(|_| io::Error::last_os_error())? {
        received.push(describe(&headers[slot], &names[slot]));
    }
    Ok(())
}

/// Reads one filled message header.
fn describe(header: &libc::mmsghdr, name: &libc::sockaddr_storage) -> Received {
    let (to, segment_bytes) = control_facts(&header.msg_hdr);
    Received {
        length: header.msg_len as usize,
        from: socket_address(name, header.msg_hdr.msg_namelen),
        to,
        segment_bytes,
        truncated: header.msg_hdr.msg_flags & libc::MSG_TRUNC != 0,
    }
}

/// The kernel's socket address as the standard library's; unspecified if it is of no IP family.
fn socket_address(name: &libc::sockaddr_storage, length: libc::socklen_t) -> SocketAddr {
    let mut storage = SockAddrStorage::zeroed();
    // SAFETY: `SockAddrStorage` may be viewed as `sockaddr_storage`, its own layout.
    unsafe { *storage.view_as::<libc::sockaddr_storage>() = *name };
    // SAFETY: the storage holds what the kernel wrote, and `length` is what it said it wrote.
    let address = unsafe { SockAddr::new(storage, length) };
    address.as_socket().unwrap_or(SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0))
}

/// The local address and the segment size among a message's control messages.
fn control_facts(header: &libc::msghdr) -> (Option<IpAddr>, Option<usize>) {
    let mut local = None;
    let mut segment_bytes = None;
    // SAFETY: the kernel filled the control buffer and set its length; the CMSG functions walk it
    // within that length, and each value is read unaligned and only for its own type.
    unsafe {
        let mut next = libc::CMSG_FIRSTHDR(header);
        while !next.is_null() {
            let data = libc::CMSG_DATA(next);
            match ((*next).cmsg_level, (*next).cmsg_type) {
                (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
                    let info = data.cast::<libc::in_pktinfo>().read_unaligned();
                    local = Some(IpAddr::V4(Ipv4Addr::from(info.ipi_spec_dst.s_addr.to_ne_bytes())));
                }
                (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
                    let info = data.cast::<libc::in6_pktinfo>().read_unaligned();
                    local = Some(IpAddr::V6(Ipv6Addr::from(info.ipi6_addr.s6_addr)));
                }
                (libc::SOL_UDP, libc::UDP_GRO) => {
                    let bytes = data.cast::<libc::c_int>().read_unaligned();
                    segment_bytes = usize::try_from(bytes).ok().filter(|bytes| *bytes > 0);
                }
                _ => {}
            }
            next = libc::CMSG_NXTHDR(header, next);
        }
    }
    (local, segment_bytes)
}

/// What the kernel keeps about a datagram that was not delivered (ip(7), `IP_RECVERR`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SocketError {
    /// Where the datagram was sent to.
    pub(crate) to: SocketAddr,
    /// Who says so (`SO_EE_ORIGIN_*`).
    pub(crate) origin: u8,
    /// Type and code of the ICMP message.
    pub(crate) kind: u8,
    /// See `kind`.
    pub(crate) code: u8,
    /// The error number.
    pub(crate) number: i32,
    /// For EMSGSIZE the size that would pass.
    pub(crate) info: u32,
    /// Bytes of the datagram that are known.
    pub(crate) quoted_bytes: usize,
}

/// Takes the first error off a socket's queue, and puts the beginning of the datagram's payload into
/// `quote`. `None` is an entry of some other kind.
///
/// Fails with `WouldBlock` if there is nothing.
pub(crate) fn receive_error(socket: BorrowedFd<'_>, quote: &mut [u8]) -> io::Result<Option<SocketError>> {
    // SAFETY: both are plain data for which zero bytes are a value.
    let mut name: libc::sockaddr_storage = unsafe { zeroed() };
    let mut header: libc::msghdr = unsafe { zeroed() };
    let mut control = Control::EMPTY;
    let mut vector = libc::iovec { iov_base: quote.as_mut_ptr().cast(), iov_len: quote.len() };
    header.msg_name = (&raw mut name).cast();
    header.msg_namelen = size_of::<libc::sockaddr_storage>() as libc::socklen_t;
    header.msg_iov = &raw mut vector;
    header.msg_iovlen = 1;
    header.msg_control = control.0.as_mut_ptr().cast();
    header.msg_controllen = CONTROL_BYTES;
    // SAFETY: the header points to values on this stack frame and to `quote`, with their lengths.
    let got = unsafe {
        libc::recvmsg(socket.as_raw_fd(), &raw mut header, libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT)
    };
    let quoted_bytes = usize::try_from(got).map_err(|_| io::Error::last_os_error())?.min(quote.len());
    Ok(extended_error(&header).map(|error| SocketError {
        to: socket_address(&name, header.msg_namelen),
        origin: error.ee_origin,
        kind: error.ee_type,
        code: error.ee_code,
        number: error.ee_errno as i32,
        info: error.ee_info,
        quoted_bytes,
    }))
}

/// The error among a message's control messages.
fn extended_error(header: &libc::msghdr) -> Option<libc::sock_extended_err> {
    // SAFETY: as in `control_facts`; the value is read only if the message has room for it.
    unsafe {
        let least = libc::CMSG_LEN(size_of::<libc::sock_extended_err>() as libc::c_uint) as usize;
        let mut next = libc::CMSG_FIRSTHDR(header);
        while !next.is_null() {
            let of_ip = ((*next).cmsg_level, (*next).cmsg_type) == (libc::IPPROTO_IP, libc::IP_RECVERR);
            let of_ipv6 = ((*next).cmsg_level, (*next).cmsg_type) == (libc::IPPROTO_IPV6, libc::IPV6_RECVERR);
            if (of_ip || of_ipv6) && (*next).cmsg_len as usize >= least {
                return Some(libc::CMSG_DATA(next).cast::<libc::sock_extended_err>().read_unaligned());
            }
            next = libc::CMSG_NXTHDR(header, next);
        }
    }
    None
}

/// Sends up to [`BATCH_MESSAGES`] messages without waiting; answers how many were taken (at least
/// one). An error is that of the first message.
pub(crate) fn send(socket: BorrowedFd<'_>, messages: &[Message<'_>]) -> io::Result<usize> {
    let count = messages.len().min(BATCH_MESSAGES);
    let mut names: [Option<SockAddr>; BATCH_MESSAGES] = [const { None }; BATCH_MESSAGES];
    let mut controls = [Control::EMPTY; BATCH_MESSAGES];
    // SAFETY: plain data for which zero bytes are a value.
    let mut headers: [libc::mmsghdr; BATCH_MESSAGES] = unsafe { zeroed() };
    for (slot, message) in messages[..count].iter().enumerate() {
        let name = names[slot].insert(SockAddr::from(message.to));
        let header = &mut headers[slot].msg_hdr;
        header.msg_name = name.as_ptr().cast_mut().cast();
        header.msg_namelen = name.len();
        // `IoSlice` is guaranteed to have the layout of `iovec`; the kernel only reads it.
        header.msg_iov = message.pieces.as_ptr().cast_mut().cast();
        header.msg_iovlen = message.pieces.len();
        write_control(header, &mut controls[slot], message);
    }
    // SAFETY: names, controls and pieces live until after the call and `count` bounds the headers.
    let sent = unsafe {
        libc::sendmmsg(
            socket.as_raw_fd(),
            headers.as_mut_ptr(),
            count as libc::c_uint,
            libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL,
        )
    };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}

/// Lays out the control messages of `message` in `control` and names them in `header`.
fn write_control(header: &mut libc::msghdr, control: &mut Control, message: &Message<'_>) {
    let mut used = 0;
    match message.from {
        Some(IpAddr::V4(from)) => {
            let info = libc::in_pktinfo {
                ipi_ifindex: 0,
                ipi_spec_dst: libc::in_addr { s_addr: u32::from_ne_bytes(from.octets()) },
                ipi_addr: libc::in_addr { s_addr: 0 },
            };
            used += push_control(control, used, libc::IPPROTO_IP, libc::IP_PKTINFO, info);
        }
        Some(IpAddr::V6(from)) => {
            let info =
                libc::in6_pktinfo { ipi6_addr: libc::in6_addr { s6_addr: from.octets() }, ipi6_ifindex: 0 };
            used += push_control(control, used, libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, info);
        }
        None => {}
    }
    if let Some(bytes) = message.segment_bytes {
        used += push_control(control, used, libc::SOL_UDP, libc::UDP_SEGMENT, bytes);
    }
    if used > 0 {
        header.msg_control = control.0.as_mut_ptr().cast();
        header.msg_controllen = used;
    }
}

/// Writes one control message at `offset`; answers the room it took.
#[allow(
    clippy::cast_ptr_alignment,
    reason = "`Control` is aligned, CMSG_SPACE keeps it so, and writes are unaligned"
)]
fn push_control<T: Copy>(control: &mut Control, offset: usize, level: i32, kind: i32, value: T) -> usize {
    let bytes = size_of::<T>() as libc::c_uint;
    // SAFETY: only arithmetic.
    let (space, length) = unsafe { (libc::CMSG_SPACE(bytes) as usize, libc::CMSG_LEN(bytes) as usize) };
    assert!(offset + space <= CONTROL_BYTES, "control messages outgrew their room");
    // SAFETY: the assertion keeps header and value inside the buffer; both are written unaligned.
    unsafe {
        let at = control.0.as_mut_ptr().add(offset).cast::<libc::cmsghdr>();
        at.write_unaligned(libc::cmsghdr { cmsg_len: length, cmsg_level: level, cmsg_type: kind });
        libc::CMSG_DATA(at).cast::<T>().write_unaligned(value);
    }
    space
}

/// What to wait for on a descriptor.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Interest(libc::pollfd);

impl Interest {
    /// Waits for something to read.
    pub(crate) fn readable(descriptor: RawFd) -> Interest {
        Interest(libc::pollfd { fd: descriptor, events: libc::POLLIN, revents: 0 })
    }

    /// Waits for room to write.
    pub(crate) fn writable(descriptor: RawFd) -> Interest {
        Interest(libc::pollfd { fd: descriptor, events: libc::POLLOUT, revents: 0 })
    }

    /// Whether the last wait found errors to be fetched.
    pub(crate) fn has_errors(self) -> bool {
        self.0.revents & libc::POLLERR != 0
    }
}

/// Waits until one of `interests` is ready or the time is over (none: for ever). A signal ends the
/// wait early, without an error.
pub(crate) fn wait(interests: &mut [Interest], timeout: Option<Duration>) -> io::Result<()> {
    let timeout = timeout.map(|span| libc::timespec {
        tv_sec: libc::time_t::try_from(span.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: libc::c_long::from(span.subsec_nanos() as i32),
    });
    let timeout = timeout.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: `Interest` is a transparent wrapper in an array of known length; the timeout outlives
    // the call.
    let ready = unsafe {
        libc::ppoll(interests.as_mut_ptr().cast(), interests.len() as libc::nfds_t, timeout, std::ptr::null())
    };
    if ready < 0 {
        return ignore_interruption(io::Error::last_os_error());
    }
    Ok(())
}

fn ignore_interruption(error: io::Error) -> io::Result<()> {
    if error.kind() == io::ErrorKind::Interrupted { Ok(()) } else { Err(error) }
}

/// A new event counter that never blocks (`eventfd`).
pub(crate) fn event_counter() -> io::Result<File> {
    // SAFETY: takes no pointers.
    let descriptor = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor was just made and belongs to nobody else.
    Ok(File::from(unsafe { OwnedFd::from_raw_fd(descriptor) }))
}

/// One instruction of a classic BPF program.
pub(crate) type Instruction = libc::sock_filter;

/// Lets `program` choose the socket of the `SO_REUSEPORT` group that `socket` is in; its answer is
/// an index in the order of binding.
pub(crate) fn attach_steering(socket: BorrowedFd<'_>, program: &[Instruction]) -> io::Result<()> {
    let program =
        libc::sock_fprog { len: program.len() as libc::c_ushort, filter: program.as_ptr().cast_mut() };
    set_option(socket, libc::SOL_SOCKET, libc::SO_ATTACH_REUSEPORT_CBPF, &program)
}

/// Sets an integer option.
pub(crate) fn set_integer(socket: BorrowedFd<'_>, level: i32, name: i32, value: i32) -> io::Result<()> {
    set_option(socket, level, name, &value)
}

fn set_option<T: Copy>(socket: BorrowedFd<'_>, level: i32, name: i32, value: &T) -> io::Result<()> {
    // SAFETY: the value is borrowed for the call and its size is given; the kernel copies it (and
    // what a filter program points to).
    let done = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            name,
            std::ptr::from_ref(value).cast(),
            size_of::<T>() as libc::socklen_t,
        )
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Datagrams that the kernel dropped at this socket, mostly for want of buffer, since it was made.
pub(crate) fn kernel_drops(socket: BorrowedFd<'_>) -> io::Result<u32> {
    let mut counters = [0u32; MEMINFO_COUNTERS];
    let mut bytes = size_of::<[u32; MEMINFO_COUNTERS]>() as libc::socklen_t;
    // SAFETY: the buffer is owned by this frame and its size is given.
    let done = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            SO_MEMINFO,
            counters.as_mut_ptr().cast(),
            &raw mut bytes,
        )
    };
    if done == 0 { Ok(counters[libc::SK_MEMINFO_DROPS as usize]) } else { Err(io::Error::last_os_error()) }
}

/// `SO_MEMINFO` (asm-generic/socket.h), and how many counters it gives (linux/sock_diag.h).
const SO_MEMINFO: i32 = 55;
const MEMINFO_COUNTERS: usize = 9;

/// A number that nobody can guess.
pub(crate) fn random_seed() -> io::Result<u64> {
    let mut seed = [0u8; 8];
    // SAFETY: the buffer is owned by this frame and its size is given.
    let got = unsafe { libc::getrandom(seed.as_mut_ptr().cast(), seed.len(), 0) };
    // Requests of up to 256 bytes are never cut short (getrandom(2)).
    if got == 8 { Ok(u64::from_ne_bytes(seed)) } else { Err(io::Error::last_os_error()) }
}
