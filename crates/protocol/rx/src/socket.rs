//! One UDP socket of a lane.

mod errors;
mod group;

pub(crate) use group::bind_lanes;

use std::collections::HashSet;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use crossbeam::queue::ArrayQueue;
use parking_lot::Mutex;
use rx_proto::Path;
use socket2::{Domain, Protocol, Socket, Type};

use crate::gather::{Gather, Run};
use crate::notice::Notice;
use crate::pool::BufferPool;
use crate::statistics::LaneCounters;
use crate::sys::{self, BATCH_MESSAGES, Interest, Message, Received};

/// Configuration of the sockets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SocketOptions {
    /// Size of each socket's receive and send buffer, in bytes. Only privileged processes can exceed the
    /// system's limit (net.core.rmem_max).
    pub buffer_bytes: usize,
    /// Lets the kernel segment runs of equal datagrams (`UDP_SEGMENT`). If the kernel or the device cannot,
    /// this is detected and the datagrams are sent one by one; turn this off only to measure or to test.
    pub segment_offload: bool,
    /// Lets the kernel merge received runs of equal datagrams (`UDP_GRO`).
    pub receive_merging: bool,
    /// Lets the kernel choose the lane of a datagram. Otherwise lanes hand datagrams over.
    pub kernel_steering: bool,
    /// Sends datagrams without UDP checksum. The kernel then refuses to segment runs, which tests the
    /// handling of that refusal.
    #[doc(hidden)]
    pub no_checksum: bool,
    /// Pause of a lane after each received batch, to test the detection of a lane that cannot keep up.
    #[doc(hidden)]
    pub receive_pause: Duration,
}

impl Default for SocketOptions {
    fn default() -> Self {
        SocketOptions {
            buffer_bytes: 16 << 20,
            segment_offload: true,
            receive_merging: true,
            kernel_steering: true,
            no_checksum: false,
            receive_pause: Duration::ZERO,
        }
    }
}

/// Maximum wait for space in the send buffer before a datagram is dropped (the peer will retransmit its
/// request).
const SEND_WAIT: Duration = Duration::from_millis(20);

/// Maximum number of notices waiting for the endpoint. Further ones are dropped, so that their calls time out
/// instead.
const NOTICES_MAX: usize = 256;

/// The same limit for a socket created by [`LaneSocket::bind_alone`], one of very many.
const NOTICES_ALONE_MAX: usize = 8;

/// Maximum attempts of an operation that fails with errors of other datagrams.
const TRIES_MAX: usize = 8;

/// Maximum number of remembered destinations for which the kernel does not segment runs.
const UNSEGMENTED_PEERS_MAX: usize = 1024;

/// A bound socket. Any thread may send; one thread receives.
pub(crate) struct LaneSocket {
    socket: Socket,
    local: SocketAddr,
    segmentation: Segmentation,
    notices: ArrayQueue<Notice>,
    place: group::Place,
}

/// Returns the address that a socket is bound to.
pub(crate) fn local_address(socket: &Socket) -> io::Result<SocketAddr> {
    Ok(socket.local_addr()?.as_socket().ok_or(io::ErrorKind::AddrNotAvailable)?)
}

/// Sets the options of a socket for this address. The socket need not be bound yet.
fn set_up(socket: &Socket, address: SocketAddr, options: &SocketOptions) -> io::Result<()> {
    socket.set_nonblocking(true)?;
    report_addresses(socket, address)?;
    errors::report(socket, address)?;
    grow_buffers(socket, options.buffer_bytes);
    if options.receive_merging
        && let Err(error) = sys::set_integer(socket.as_fd(), libc::SOL_UDP, libc::UDP_GRO, 1)
    {
        tracing::info!(%error, "the kernel does not merge received datagrams");
    }
    if options.no_checksum {
        sys::set_integer(socket.as_fd(), libc::SOL_SOCKET, libc::SO_NO_CHECK, 1)?;
    }
    Ok(())
}

fn new_socket(address: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    Ok(socket)
}

/// Returns the source address that the system's routes select for `remote`. Sends nothing.
pub(crate) fn usual_source(remote: SocketAddr) -> Option<IpAddr> {
    let probe = new_socket(remote).ok()?;
    probe.connect(&remote.into()).ok()?;
    Some(probe.local_addr().ok()?.as_socket()?.ip())
}

/// Whether this host has lost the address `local`: it has a route to `remote`, but not from there.
fn is_source_gone(local: IpAddr, remote: SocketAddr) -> bool {
    let can_leave = || {
        let probe = new_socket(remote)?;
        probe.bind(&SocketAddr::new(local, 0).into())?;
        probe.connect(&remote.into())
    };
    usual_source(remote).is_some() && can_leave().is_err()
}

impl AsFd for LaneSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl LaneSocket {
    /// Binds a socket that shares its port with no other, one of very many.
    pub(crate) fn bind_alone(address: SocketAddr, options: &SocketOptions) -> io::Result<LaneSocket> {
        let socket = LaneSocket::bind(address, false, options)?;
        Ok(LaneSocket { notices: ArrayQueue::new(NOTICES_ALONE_MAX), ..socket })
    }

    fn bind(address: SocketAddr, shared: bool, options: &SocketOptions) -> io::Result<LaneSocket> {
        let socket = new_socket(address)?;
        socket.set_reuse_port(shared)?;
        set_up(&socket, address, options)?;
        socket.bind(&address.into())?;
        LaneSocket::of_bound(socket, options)
    }

    fn of_bound(socket: Socket, options: &SocketOptions) -> io::Result<LaneSocket> {
        let local = local_address(&socket)?;
        Ok(LaneSocket {
            socket,
            local,
            segmentation: Segmentation::new(options.segment_offload),
            notices: ArrayQueue::new(NOTICES_MAX),
            place: group::Place::Member(0),
        })
    }

    /// Returns the bound address.
    pub(crate) fn local(&self) -> SocketAddr {
        self.local
    }

    /// Whether datagrams can be sent here on `path`.
    pub(crate) fn serves(&self, path: &Path) -> bool {
        let family = self.local.is_ipv4() == path.remote.is_ipv4();
        let address = self.local.ip();
        let sends = !matches!(self.place, group::Place::Spare(_));
        sends && family && (address.is_unspecified() || path.local.is_none_or(|local| local == address))
    }

    /// Returns the descriptor to poll.
    pub(crate) fn descriptor(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    /// Returns the number of datagrams that the kernel dropped here, or 0 if it does not report them.
    pub(crate) fn kernel_drops(&self) -> u32 {
        sys::kernel_drops(self.socket.as_fd()).unwrap_or(0)
    }

    /// Returns the granted sizes of the receive and send buffer, in bytes as requested. The kernel doubles
    /// the number for its own bookkeeping (socket(7)).
    pub(crate) fn buffer_bytes(&self) -> (usize, usize) {
        let receive = self.socket.recv_buffer_size().unwrap_or(0) / 2;
        let send = self.socket.send_buffer_size().unwrap_or(0) / 2;
        (receive, send)
    }

    /// Receives at most one batch without waiting, and passes the datagrams to `sink`. Returns whether there
    /// were any. Errors about earlier sends become notices.
    pub(crate) fn receive(
        &self,
        receiver: &mut Receiver,
        counters: &LaneCounters,
        sink: &mut impl FnMut(Datagrams),
    ) -> bool {
        receiver.received.clear();
        let mut tries = 0;
        while let Err(error) = receiver.fill(self.socket.as_fd()) {
            tries += 1;
            if error.kind() == io::ErrorKind::WouldBlock || tries == TRIES_MAX {
                return false;
            }
            self.fetch_errors(counters);
        }
        counters.receive_batches.increment();
        for (received, buffer) in receiver.received.iter().zip(&mut receiver.buffers) {
            if received.truncated || received.from.port() == 0 {
                counters.truncated.increment();
                continue;
            }
            let data = receiver.pool.pass_on(buffer, received.length);
            sink(Datagrams::new(received, data, counters));
        }
        !receiver.received.is_empty()
    }

    /// Sends everything in order, and drops only what the kernel refuses.
    pub(crate) fn send(&self, gather: &Gather<'_>, counters: &LaneCounters) {
        let mut items = Vec::with_capacity(gather.runs().len());
        for run in gather.runs() {
            if run.packets() > 1 && !self.segmentation.allowed(run.path().remote) {
                items.extend(gather.singles(run).map(|message| Item { message, run: None }));
            } else {
                let message = gather.whole(run);
                items.push(Item { message, run: (run.packets() > 1).then_some(run) });
            }
        }
        let mut done = 0;
        while done < items.len() {
            match self.send_some(&items[done..], counters) {
                Ok(sent) => {
                    items[done..done + sent].iter().for_each(|item| item.count_sent(counters));
                    done += sent;
                }
                Err(error) => {
                    self.handle_refusal(gather, &items[done], &error, counters);
                    done += 1;
                }
            }
        }
    }

    /// Sends at least the first message. The kernel reports an error about an earlier datagram, to any
    /// destination, instead of sending the next one. Such errors are fetched, and sending continues.
    fn send_some(&self, items: &[Item<'_>], counters: &LaneCounters) -> io::Result<usize> {
        let batch = &items[..items.len().min(BATCH_MESSAGES)];
        let mut tries = 0;
        loop {
            let result = self.send_batch(batch, counters);
            tries += 1;
            match result {
                Ok(sent) if sent == batch.len() => return Ok(sent),
                Ok(sent) => {
                    self.fetch_errors(counters);
                    return Ok(sent);
                }
                Err(error) => {
                    let fetched = self.fetch_errors(counters);
                    // Another thread may have fetched the error that this one received.
                    let again = fetched > 0 || tries == 1 && errors::may_be_anothers(&error);
                    if !again || tries == TRIES_MAX {
                        return Err(error);
                    }
                }
            }
        }
    }

    /// Makes one system call, and repeats it once after a wait if the send buffer was full.
    fn send_batch(&self, batch: &[Item<'_>], counters: &LaneCounters) -> io::Result<usize> {
        counters.send_batches.increment();
        let send = || sys::send(self.socket.as_fd(), batch.iter().map(|item| &item.message));
        match send() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                counters.send_waits.increment();
                sys::wait(&mut [Interest::writable(self.descriptor())], Some(SEND_WAIT))?;
                send()
            }
            result => result,
        }
    }

    /// Sends a refused run datagram by datagram if the kernel could not segment it. Datagrams refused for
    /// other reasons are lost, as on any network.
    fn handle_refusal(
        &self,
        gather: &Gather<'_>,
        item: &Item<'_>,
        error: &io::Error,
        counters: &LaneCounters,
    ) {
        if let Some(local) = item.message.from.filter(|_| errors::may_be_the_sources(error))
            && is_source_gone(local, item.message.to)
        {
            let _ = self.notices.push(Notice::source_gone(item.message.to, local));
            counters.send_errors.add(item.run.map_or(1, Run::packets));
            return;
        }
        let Some(run) = item.run.filter(|_| self.segmentation.note_refusal(item.message.to, error)) else {
            counters.send_errors.add(item.run.map_or(1, Run::packets));
            tracing::debug!(to = %item.message.to, %error, "datagram not sent");
            return;
        };
        counters.segmentation_fallbacks.increment();
        let singles: Vec<Item<'_>> = gather.singles(run).map(|message| Item { message, run: None }).collect();
        let mut done = 0;
        while done < singles.len() {
            let sent = self.send_some(&singles[done..], counters).unwrap_or_else(|_| {
                counters.send_errors.increment();
                0
            });
            singles[done..done + sent].iter().for_each(|single| single.count_sent(counters));
            done += sent.max(1);
        }
    }
}

/// A message, with its run if the kernel has to segment it.
struct Item<'a> {
    message: Message<'a>,
    run: Option<&'a Run>,
}

impl Item<'_> {
    fn count_sent(&self, counters: &LaneCounters) {
        let Some(run) = self.run else { return count_datagrams(&self.message, counters) };
        counters.segmented_sends.increment();
        counters.datagrams_sent.add(run.packets());
        counters.bytes_sent.add(run.bytes());
    }
}

fn count_datagrams(message: &Message<'_>, counters: &LaneCounters) {
    counters.datagrams_sent.increment();
    counters.bytes_sent.add(message.pieces.iter().map(|piece| piece.len()).sum());
}

/// One or more datagrams of one path from a single receive.
#[derive(Debug)]
pub(crate) struct Datagrams {
    pub(crate) path: Path,
    /// The concatenated datagrams.
    pub(crate) data: Bytes,
    /// Length of each datagram but the last, which may be shorter.
    pub(crate) segment_bytes: usize,
}

impl Datagrams {
    fn new(received: &Received, data: Bytes, counters: &LaneCounters) -> Datagrams {
        let path = Path { remote: received.from, local: received.to };
        let segment_bytes = received.segment_bytes.unwrap_or(usize::MAX).min(data.len()).max(1);
        let datagrams = Datagrams { path, data, segment_bytes };
        counters.bytes_received.add(datagrams.data.len());
        counters.datagrams_received.add(datagrams.count());
        if datagrams.count() > 1 {
            counters.merged_receives.increment();
        }
        datagrams
    }

    /// Returns the number of datagrams.
    pub(crate) fn count(&self) -> usize {
        self.data.len().div_ceil(self.segment_bytes).max(1)
    }

    /// Splits the run into its datagrams.
    pub(crate) fn split(self) -> impl Iterator<Item = (Path, Bytes)> {
        let Datagrams { path, data, segment_bytes } = self;
        let count = data.len().div_ceil(segment_bytes).max(1);
        (0..count).map(move |number| {
            let begin = number * segment_bytes;
            (path, data.slice(begin..data.len().min(begin + segment_bytes)))
        })
    }
}

/// Makes the kernel report the local address of each datagram and permit fragmentation: the endpoint
/// chooses datagram sizes, and a router that silently drops long ones must not end all calls.
fn report_addresses(socket: &Socket, address: SocketAddr) -> io::Result<()> {
    let socket = socket.as_fd();
    if address.is_ipv4() {
        sys::set_integer(socket, libc::IPPROTO_IP, libc::IP_PKTINFO, 1)?;
        return sys::set_integer(socket, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_DONT);
    }
    sys::set_integer(socket, libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO, 1)?;
    sys::set_integer(socket, libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IP_PMTUDISC_DONT)
}

/// Makes both buffers as large as requested, or as the system allows.
fn grow_buffers(socket: &Socket, bytes: usize) {
    let wanted = i32::try_from(bytes).unwrap_or(i32::MAX);
    let force = |name| sys::set_integer(socket.as_fd(), libc::SOL_SOCKET, name, wanted);
    if force(libc::SO_RCVBUFFORCE).is_err() {
        let _ = socket.set_recv_buffer_size(bytes);
    }
    if force(libc::SO_SNDBUFFORCE).is_err() {
        let _ = socket.set_send_buffer_size(bytes);
    }
}

/// Buffers for one batch of receives.
pub(crate) struct Receiver {
    pool: BufferPool,
    buffers: Vec<Box<[u8]>>,
    received: Vec<Received>,
    /// Number of buffers offered to the next batch. Preparing buffers that stay empty costs time.
    offered: usize,
    is_full: bool,
}

/// Minimum number of buffers offered to a batch.
const OFFERED_MIN: usize = 4;

impl Receiver {
    pub(crate) fn new() -> Receiver {
        let pool = BufferPool::new();
        let buffers = (0..BATCH_MESSAGES).map(|_| pool.take()).collect();
        Receiver {
            pool,
            buffers,
            received: Vec::with_capacity(BATCH_MESSAGES),
            offered: OFFERED_MIN,
            is_full: false,
        }
    }

    /// Whether the last batch filled all offered buffers, so that more datagrams may be waiting.
    pub(crate) fn may_have_left_some(&self) -> bool {
        self.is_full
    }

    /// Receives one batch. The next may be twice as large.
    fn fill(&mut self, socket: BorrowedFd<'_>) -> io::Result<()> {
        self.is_full = false;
        sys::receive(socket, &mut self.buffers[..self.offered], &mut self.received)?;
        self.is_full = self.received.len() == self.offered;
        self.offered = (2 * self.received.len()).clamp(OFFERED_MIN, BATCH_MESSAGES);
        Ok(())
    }
}

/// Knowledge about segmentation in the kernel.
struct Segmentation {
    /// False if disabled by configuration, or after the device has refused.
    on: AtomicBool,
    /// Destinations for which the kernel refused it (because of a small path MTU, say), and their number.
    refused: Mutex<HashSet<IpAddr>>,
    refused_count: AtomicUsize,
}

impl Segmentation {
    fn new(on: bool) -> Segmentation {
        Segmentation {
            on: AtomicBool::new(on),
            refused: Mutex::new(HashSet::new()),
            refused_count: AtomicUsize::new(0),
        }
    }

    fn allowed(&self, to: SocketAddr) -> bool {
        self.on.load(Ordering::Relaxed)
            && (self.refused_count.load(Ordering::Relaxed) == 0 || !self.refused.lock().contains(&to.ip()))
    }

    /// Records the refusal of a run. Returns whether sending its datagrams singly may help.
    ///
    /// EIO: the device cannot compute the checksums (Linux udp_send_skb). EINVAL and EMSGSIZE: the run does
    /// not fit this route. ENOPROTOOPT, EOPNOTSUPP: an old kernel.
    fn note_refusal(&self, to: SocketAddr, error: &io::Error) -> bool {
        match error.raw_os_error() {
            Some(libc::EIO | libc::ENOPROTOOPT | libc::EOPNOTSUPP) => {
                if self.on.swap(false, Ordering::Relaxed) {
                    tracing::info!(%error, "segmentation offload refused; sending datagrams one by one");
                }
                true
            }
            Some(libc::EINVAL | libc::EMSGSIZE) => {
                let mut refused = self.refused.lock();
                if refused.len() >= UNSEGMENTED_PEERS_MAX {
                    refused.clear();
                }
                refused.insert(to.ip());
                self.refused_count.store(refused.len(), Ordering::Relaxed);
                true
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests;
