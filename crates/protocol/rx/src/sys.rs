//! System calls that neither the standard library nor `socket2` offers: batches of datagrams with control
//! messages, a socket's error queue, `ppoll`, `eventfd`, three socket options, and packet sockets
//! ([`packet`]).
//!
//! This module and its child [`packet`] contain all `unsafe` code of the crate. Every block passes the kernel
//! pointers to memory that is borrowed or owned for the whole call. The kernel keeps none of them, and its
//! output is read only up to the length that it reports.
#![allow(unsafe_code, reason = "system calls without a safe wrapper; see the module's text")]

pub(crate) mod packet;

use std::fs::File;
use std::io::{self, IoSlice};
use std::mem::{MaybeUninit, size_of, zeroed};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Maximum number of datagrams (or merged runs of them) per system call.
pub(crate) const BATCH_MESSAGES: usize = 32;

/// The kernel's limit on the pieces of one message (`UIO_MAXIOV`).
pub(crate) const MESSAGE_PIECES_MAX: usize = 1024;

/// One message to send: a datagram, or a run of equal datagrams to be segmented by the kernel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Message<'a> {
    /// Destination address.
    pub(crate) to: SocketAddr,
    /// Source address; the kernel chooses it if `None`.
    pub(crate) from: Option<IpAddr>,
    /// Payload bytes of each datagram if the kernel is to segment `pieces` (`UDP_SEGMENT`).
    pub(crate) segment_bytes: Option<u16>,
    /// The payload, gathered by the kernel; at most [`MESSAGE_PIECES_MAX`] pieces.
    pub(crate) pieces: &'a [IoSlice<'a>],
}

/// The kernel's description of one received message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Received {
    /// Number of bytes written to the buffer.
    pub(crate) length: usize,
    /// Address of the sender.
    pub(crate) from: SocketAddr,
    /// Destination address, if the socket reports it.
    pub(crate) to: Option<IpAddr>,
    /// Size of each datagram but the last, if the kernel merged several.
    pub(crate) segment_bytes: Option<usize>,
    /// Whether the datagram was longer than the buffer.
    pub(crate) truncated: bool,
}

/// A buffer for control messages, aligned as the kernel requires.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
struct Control([u8; CONTROL_BYTES]);

/// Space for packet information (IPv6: 40 bytes) and a segment size (24 bytes), with some to spare.
const CONTROL_BYTES: usize = 128;

impl Control {
    const EMPTY: Control = Control([0; CONTROL_BYTES]);
}

/// Space for the address of an IP socket; IPv6 has the longest. `recvmmsg` reports addresses that do not fit.
type Name = libc::sockaddr_in6;

/// Uninitialised slots for one batch. Only those that a batch uses are filled: clearing all of them would
/// cost more than the rest of a small call.
fn slots<T>() -> [MaybeUninit<T>; BATCH_MESSAGES] {
    [const { MaybeUninit::uninit() }; BATCH_MESSAGES]
}

/// Returns an empty message header.
fn no_header() -> libc::mmsghdr {
    // SAFETY: plain data (pointers and numbers) for which all-zero bytes are valid.
    unsafe { zeroed() }
}

/// Receives one message into each of `buffers` (at most [`BATCH_MESSAGES`]) without waiting, and appends
/// their descriptions to `received` in the order of `buffers`. May receive fewer.
///
/// Fails with `WouldBlock` if there are none.
pub(crate) fn receive(
    socket: BorrowedFd<'_>,
    buffers: &mut [Box<[u8]>],
    received: &mut Vec<Received>,
) -> io::Result<()> {
    let (mut names, mut controls) = (slots::<Name>(), slots::<Control>());
    let (mut vectors, mut headers) = (slots::<libc::iovec>(), slots::<libc::mmsghdr>());
    let room = names.iter_mut().zip(&mut controls).zip(&mut vectors).zip(&mut headers);
    let mut count = 0;
    for (buffer, (((name, control), vector), header)) in buffers.iter_mut().zip(room) {
        vector.write(libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() });
        let header = &mut header.write(no_header()).msg_hdr;
        header.msg_name = name.as_mut_ptr().cast();
        header.msg_namelen = size_of::<Name>() as libc::socklen_t;
        header.msg_iov = vector.as_mut_ptr();
        header.msg_iovlen = 1;
        header.msg_control = control.as_mut_ptr().cast();
        header.msg_controllen = CONTROL_BYTES;
        count += 1;
    }
    // SAFETY: the first `count` headers are initialised. They point to slots on this stack frame, which the
    // kernel only writes to, and to `buffers`, with the sizes of both; all of them outlive the call.
    let got = unsafe {
        libc::recvmmsg(
            socket.as_raw_fd(),
            headers.as_mut_ptr().cast(),
            count,
            libc::MSG_DONTWAIT,
            std::ptr::null_mut(),
        )
    };
    let got = usize::try_from(got).map_err(|_| io::Error::last_os_error())?;
    for (header, name) in headers[..got].iter().zip(&names) {
        // SAFETY: `got` is at most `count`, and those headers were initialised above.
        received.push(describe(unsafe { header.assume_init_ref() }, name));
    }
    Ok(())
}

/// Decodes one message header that the kernel has filled, and the name it points to.
fn describe(header: &libc::mmsghdr, name: &MaybeUninit<Name>) -> Received {
    let (to, segment_bytes) = control_facts(&header.msg_hdr);
    Received {
        length: header.msg_len as usize,
        from: socket_address(name, header.msg_hdr.msg_namelen),
        to,
        segment_bytes,
        truncated: header.msg_hdr.msg_flags & libc::MSG_TRUNC != 0,
    }
}

/// Converts the kernel's socket address, of which it wrote `length` bytes. Returns an unspecified address if
/// it belongs to no IP family.
fn socket_address(name: &MaybeUninit<Name>, length: libc::socklen_t) -> SocketAddr {
    let name = name.as_ptr();
    let holds = |bytes: usize| length as usize >= bytes && bytes <= size_of::<Name>();
    // SAFETY: `length` is the number of bytes that the kernel wrote; each value is inside a `Name` and is
    // read only if that many bytes were written.
    unsafe {
        let family = holds(size_of::<libc::sa_family_t>()).then(|| name.cast::<libc::sa_family_t>().read());
        match family.map(i32::from) {
            Some(libc::AF_INET) if holds(size_of::<libc::sockaddr_in>()) => {
                let name = name.cast::<libc::sockaddr_in>().read();
                let address = Ipv4Addr::from(name.sin_addr.s_addr.to_ne_bytes());
                SocketAddrV4::new(address, u16::from_be(name.sin_port)).into()
            }
            Some(libc::AF_INET6) if holds(size_of::<libc::sockaddr_in6>()) => {
                let name = name.read();
                let (address, port) = (Ipv6Addr::from(name.sin6_addr.s6_addr), u16::from_be(name.sin6_port));
                SocketAddrV6::new(address, port, name.sin6_flowinfo, name.sin6_scope_id).into()
            }
            _ => SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0),
        }
    }
}

/// Writes an address in the kernel's form. Returns the number of bytes of `name` used.
fn write_name(name: &mut MaybeUninit<Name>, address: SocketAddr) -> libc::socklen_t {
    match address {
        SocketAddr::V4(address) => {
            let of_ipv4 = libc::sockaddr_in {
                sin_family: libc::AF_INET as libc::sa_family_t,
                sin_port: address.port().to_be(),
                sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(address.ip().octets()) },
                sin_zero: [0; 8],
            };
            // SAFETY: a `Name` is at least as long and as aligned as the address of an IPv4 socket.
            unsafe { name.as_mut_ptr().cast::<libc::sockaddr_in>().write(of_ipv4) };
            size_of::<libc::sockaddr_in>() as libc::socklen_t
        }
        SocketAddr::V6(address) => {
            name.write(libc::sockaddr_in6 {
                sin6_family: libc::AF_INET6 as libc::sa_family_t,
                sin6_port: address.port().to_be(),
                sin6_flowinfo: address.flowinfo(),
                sin6_addr: libc::in6_addr { s6_addr: address.ip().octets() },
                sin6_scope_id: address.scope_id(),
            });
            size_of::<libc::sockaddr_in6>() as libc::socklen_t
        }
    }
}

/// Returns the local address and the segment size among a message's control messages.
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
                    let address = Ipv4Addr::from(info.ipi_spec_dst.s_addr.to_ne_bytes());
                    // The datagram arrived before the socket was set to report addresses.
                    local = (!address.is_unspecified()).then_some(IpAddr::V4(address));
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

/// The kernel's record of a datagram that was not delivered (ip(7), `IP_RECVERR`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SocketError {
    /// Destination of the datagram.
    pub(crate) to: SocketAddr,
    /// Origin of the error (`SO_EE_ORIGIN_*`).
    pub(crate) origin: u8,
    /// Type of the ICMP message.
    pub(crate) kind: u8,
    /// Code of the ICMP message.
    pub(crate) code: u8,
    /// Error number (`errno`).
    pub(crate) number: i32,
    /// For EMSGSIZE, the MTU.
    pub(crate) info: u32,
    /// Number of bytes of the datagram that were quoted.
    pub(crate) quoted_bytes: usize,
}

/// Takes the first error off a socket's queue, and copies the beginning of the datagram's payload to `quote`.
/// Returns `None` for an entry of another kind.
///
/// Fails with `WouldBlock` if there is none.
pub(crate) fn receive_error(socket: BorrowedFd<'_>, quote: &mut [u8]) -> io::Result<Option<SocketError>> {
    let mut name = MaybeUninit::<Name>::uninit();
    let mut header = no_header().msg_hdr;
    let mut control = Control::EMPTY;
    let mut vector = libc::iovec { iov_base: quote.as_mut_ptr().cast(), iov_len: quote.len() };
    header.msg_name = name.as_mut_ptr().cast();
    header.msg_namelen = size_of::<Name>() as libc::socklen_t;
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

/// Returns the error among a message's control messages.
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

/// Sends up to [`BATCH_MESSAGES`] messages without waiting. Returns the number sent, at least one. An error
/// applies to the first message.
pub(crate) fn send<'a>(
    socket: BorrowedFd<'_>,
    messages: impl Iterator<Item = &'a Message<'a>>,
) -> io::Result<usize> {
    let (mut names, mut controls, mut headers) =
        (slots::<Name>(), slots::<Control>(), slots::<libc::mmsghdr>());
    let room = names.iter_mut().zip(&mut controls).zip(&mut headers);
    let mut count = 0;
    for (((name, control), header), message) in room.zip(messages) {
        let header = &mut header.write(no_header()).msg_hdr;
        header.msg_namelen = write_name(name, message.to);
        header.msg_name = name.as_mut_ptr().cast();
        // `IoSlice` is guaranteed to have the layout of `iovec`, and the kernel only reads it.
        header.msg_iov = message.pieces.as_ptr().cast_mut().cast();
        header.msg_iovlen = message.pieces.len();
        write_control(header, control, message);
        count += 1;
    }
    // SAFETY: the first `count` headers are initialised, and point to names and control messages that are
    // initialised up to their lengths. These and the pieces outlive the call.
    let sent = unsafe {
        libc::sendmmsg(
            socket.as_raw_fd(),
            headers.as_mut_ptr().cast(),
            count,
            libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL,
        )
    };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}

/// Writes the control messages of `message` to `control` and references them in `header`.
fn write_control(header: &mut libc::msghdr, control: &mut MaybeUninit<Control>, message: &Message<'_>) {
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
        header.msg_control = control.as_mut_ptr().cast();
        header.msg_controllen = used;
    }
}

/// Writes one control message at `offset` including its padding, so that the kernel gets no uninitialised
/// byte. Returns the space used.
#[allow(
    clippy::cast_ptr_alignment,
    reason = "`Control` is aligned, CMSG_SPACE keeps it so, and writes are unaligned"
)]
fn push_control<T: Copy>(
    control: &mut MaybeUninit<Control>,
    offset: usize,
    level: i32,
    kind: i32,
    value: T,
) -> usize {
    let bytes = size_of::<T>() as libc::c_uint;
    // SAFETY: only arithmetic.
    let (space, length) = unsafe { (libc::CMSG_SPACE(bytes) as usize, libc::CMSG_LEN(bytes) as usize) };
    assert!(offset + space <= CONTROL_BYTES, "control messages outgrew their buffer");
    // SAFETY: the assertion keeps header and value inside the buffer; both are written unaligned.
    unsafe {
        let at = control.as_mut_ptr().cast::<u8>().add(offset);
        at.write_bytes(0, space);
        let at = at.cast::<libc::cmsghdr>();
        at.write_unaligned(libc::cmsghdr { cmsg_len: length, cmsg_level: level, cmsg_type: kind });
        libc::CMSG_DATA(at).cast::<T>().write_unaligned(value);
    }
    space
}

/// A descriptor and the event to wait for.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Interest(libc::pollfd);

impl Interest {
    /// Waits until the descriptor is readable.
    pub(crate) fn readable(descriptor: RawFd) -> Interest {
        Interest(libc::pollfd { fd: descriptor, events: libc::POLLIN, revents: 0 })
    }

    /// Waits until the descriptor is writable.
    pub(crate) fn writable(descriptor: RawFd) -> Interest {
        Interest(libc::pollfd { fd: descriptor, events: libc::POLLOUT, revents: 0 })
    }

    /// Whether the last wait found errors to fetch.
    pub(crate) fn has_errors(self) -> bool {
        self.0.revents & libc::POLLERR != 0
    }
}

/// Waits until one of `interests` is ready or the timeout expires (`None`: no timeout). A signal ends the
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

/// Creates an event counter that never blocks (`eventfd`).
pub(crate) fn event_counter() -> io::Result<File> {
    // SAFETY: takes no pointers.
    let descriptor = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor was just created and has no other owner.
    Ok(File::from(unsafe { OwnedFd::from_raw_fd(descriptor) }))
}

/// The first descriptor that a service manager passes (SD_LISTEN_FDS_START).
const PASSED_FIRST: RawFd = 3;

/// Takes over `count` descriptors that a service manager has passed to this process (sd_listen_fds(3)), and
/// marks them close-on-exec. Descriptors that are not open are omitted. A second call returns none.
pub(crate) fn take_passed(count: usize) -> Vec<OwnedFd> {
    static TAKEN: AtomicBool = AtomicBool::new(false);
    if TAKEN.swap(true, Ordering::SeqCst) {
        return Vec::new();
    }
    let passed = PASSED_FIRST..PASSED_FIRST.saturating_add(i32::try_from(count).unwrap_or(0));
    // SAFETY: takes no pointers; fails for a descriptor that is not open.
    let is_open = |number: &RawFd| unsafe { libc::fcntl(*number, libc::F_SETFD, libc::FD_CLOEXEC) } == 0;
    // SAFETY: the descriptor is open. It has been since this program started, the service manager has
    // declared the program its owner, and it is taken only once.
    passed.filter(is_open).map(|number| unsafe { OwnedFd::from_raw_fd(number) }).collect()
}

/// One instruction of a classic BPF program.
pub(crate) type Instruction = libc::sock_filter;

/// Attaches a program that chooses the socket within the `SO_REUSEPORT` group of `socket`. Its result is an
/// index in the order of binding.
pub(crate) fn attach_steering(socket: BorrowedFd<'_>, program: &[Instruction]) -> io::Result<()> {
    let program =
        libc::sock_fprog { len: program.len() as libc::c_ushort, filter: program.as_ptr().cast_mut() };
    set_option(socket, libc::SOL_SOCKET, libc::SO_ATTACH_REUSEPORT_CBPF, &program)
}

/// Sets an integer socket option.
pub(crate) fn set_integer(socket: BorrowedFd<'_>, level: i32, name: i32, value: i32) -> io::Result<()> {
    set_option(socket, level, name, &value)
}

fn set_option<T: Copy>(socket: BorrowedFd<'_>, level: i32, name: i32, value: &T) -> io::Result<()> {
    // SAFETY: the value is borrowed for the call and its size is passed; the kernel copies it (and the filter
    // program that it may point to).
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

/// Returns the number of datagrams that the kernel has dropped at this socket, mostly for lack of buffer
/// space.
pub(crate) fn kernel_drops(socket: BorrowedFd<'_>) -> io::Result<u32> {
    let mut counters = [0u32; MEMINFO_COUNTERS];
    let mut bytes = size_of::<[u32; MEMINFO_COUNTERS]>() as libc::socklen_t;
    // SAFETY: the buffer is owned by this frame and its size is passed.
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

/// `SO_MEMINFO` (asm-generic/socket.h), and its number of counters (linux/sock_diag.h).
const SO_MEMINFO: i32 = 55;
const MEMINFO_COUNTERS: usize = 9;

/// Returns the system's monotonic clock in nanoseconds. Read several times per call: the standard library's
/// `Instant` takes ten times as many instructions.
pub(crate) fn monotonic_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the value is owned by this frame. The call cannot fail: every Linux has this clock.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    (now.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(now.tv_nsec as u64)
}

/// Returns an unpredictable seed.
pub(crate) fn random_seed() -> io::Result<[u8; 32]> {
    let mut seed = [0u8; 32];
    // SAFETY: the buffer is owned by this frame and its size is passed.
    let got = unsafe { libc::getrandom(seed.as_mut_ptr().cast(), seed.len(), 0) };
    // Requests of up to 256 bytes are never truncated (getrandom(2)).
    if usize::try_from(got) == Ok(seed.len()) { Ok(seed) } else { Err(io::Error::last_os_error()) }
}
