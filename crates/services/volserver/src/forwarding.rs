//! Forward and ForwardMultiple: sends volumes directly to other volume servers, as dumps, or for Cellar
//! servers without the data that they already have.

use crate::codes::{E2BIG, ENOTCONN};
use crate::dumping::{self, Extract};
use crate::lending::Lent;
use crate::reading::Source;
use crate::sending::Sending;
use crate::server::VolumeServer;
use crate::transactions::Use;
use crate::transfers::Transfer;
use crate::unchanged;
use afs_idl::vol::{self, DestServer, Replica, RestoreCookie};
use afs_idl::{CallStream, ClientConnection, cellar};
use base::{AbortCode, CallContext, UnixTime};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;
use std::thread;
use std::time::Duration;
use tracing::info;
use volume::Volume;

/// Maximum number of destinations; a volume has at most 13 sites.
const DESTINATIONS_MAX: usize = 13;

/// Maximum number of times an interrupted transfer is resumed, and the pause before the first one, which
/// doubles each time.
const RESUMES_MAX: u32 = 5;
const RESUME_PAUSE: Duration = Duration::from_secs(2);

/// Connections to other volume servers, on which this server is an administrator.
pub trait OtherServers: Send + Sync {
    /// Checks whether volumes may be sent to this address. The caller chooses the address, but the connection
    /// uses the cell's identity.
    ///
    /// # Errors
    /// The address is not permitted, or the check failed.
    fn check(&self, server: SocketAddrV4) -> Result<(), AbortCode>;

    /// Returns a connection to the volume service at this address.
    ///
    /// # Errors
    /// This server cannot authenticate itself.
    fn connect(&self, server: SocketAddrV4) -> Result<Arc<dyn ClientConnection>, AbortCode>;

    /// Returns a connection to Cellar's own service at this address, or `None` if that is impossible; the
    /// volume is then sent as a dump.
    fn connect_cellar(&self, server: SocketAddrV4) -> Option<Arc<dyn ClientConnection>>;

    /// Sleeps before an interrupted transfer is resumed.
    fn pause(&self, time: Duration) {
        thread::sleep(time);
    }
}

/// The volume to send, and the parameters of its restore.
#[derive(Clone, Copy)]
struct Parcel<'a> {
    server: &'a VolumeServer,
    others: &'a dyn OtherServers,
    /// Transaction on the source volume.
    used: &'a Use<'a>,
    volume: &'a Arc<Volume>,
    from_date: u32,
    cookie: &'a RestoreCookie,
}

impl VolumeServer {
    /// Forward: sends a volume to another server.
    pub(crate) fn forward(
        &self,
        caller: &CallContext<'_>,
        request: vol::ForwardRequest,
    ) -> Result<vol::ForwardReply, AbortCode> {
        let (used, volume) = self.change(caller, request.transaction, "Forward")?;
        let (others, from_date, cookie) = (others(self)?, request.from_date, &request.cookie);
        let parcel = Parcel { server: self, others, used: &used, volume: &volume, from_date, cookie };
        let replica = Replica { transaction: request.destination_transaction, server: request.destination };
        parcel.send(&replica, Source::alone(&volume))?;
        Ok(vol::ForwardReply)
    }

    /// ForwardMultiple: sends to all destinations concurrently, with one read of the volume. Returns a code for
    /// each.
    pub(crate) fn forward_multiple(
        &self,
        caller: &CallContext<'_>,
        request: vol::ForwardMultipleRequest,
    ) -> Result<vol::ForwardMultipleReply, AbortCode> {
        let (used, volume) = self.change(caller, request.transaction, "ForwardMulti")?;
        let others = others(self)?;
        if request.destinations.len() > DESTINATIONS_MAX {
            return Err(E2BIG);
        }
        let (from_date, cookie) = (request.from_date, &request.cookie);
        let parcel = Parcel { server: self, others, used: &used, volume: &volume, from_date, cookie };
        let outcomes: Vec<Result<(), AbortCode>> = thread::scope(|scope| {
            let sources = Source::together(&volume, request.destinations.len());
            let destinations = request.destinations.iter().zip(sources);
            let send = |(replica, source)| scope.spawn(move || parcel.send(replica, source));
            let sending: Vec<_> = destinations.map(send).collect();
            let wait = |thread: thread::ScopedJoinHandle<'_, _>| {
                thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            sending.into_iter().map(wait).collect()
        });
        let results = outcomes.into_iter().map(|outcome| outcome.err().map_or(0, |code| code.0)).collect();
        Ok(vol::ForwardMultipleReply { results })
    }
}

fn others(server: &VolumeServer) -> Result<&dyn OtherServers, AbortCode> {
    server.other_servers().ok_or(AbortCode::RXGEN_OPCODE)
}

impl Parcel<'_> {
    fn send(self, replica: &Replica, source: Source) -> Result<(), AbortCode> {
        let address = address(&replica.server)?;
        self.others.check(address)?;
        let header = self.volume.header();
        let total = header.used_kib << 10;
        let (volume, now) = (header.number(), self.server.now());
        let progress = self.server.transfers().begin(self.used.id(), volume, *address.ip(), total, now);
        let sent = self.send_to(address, replica.transaction, source, &progress);
        progress.end(self.server.now(), sent.err());
        let (whole, bytes) = (progress.done(), progress.sent());
        let from_date = self.from_date;
        info!(%volume, to = %address, from_date, whole, bytes, outcome = ?sent, "a volume is sent to \
            another server");
        sent
    }

    fn extract(&self) -> Extract {
        Extract { since: UnixTime(self.from_date), all_directories: false }
    }

    fn send_to(
        &self,
        address: SocketAddrV4,
        to: i32,
        source: Source,
        progress: &Transfer,
    ) -> Result<(), AbortCode> {
        if let Some(way) = self.others.connect_cellar(address)
            && let Ok(offered) = offer(&*way, to)
        {
            if self.has_all(address, to, offered) {
                progress.add_done(self.volume.header().used_kib << 10);
                return Ok(());
            }
            return self.send_missing(&*way, to, offered, source, progress);
        }
        let connection = self.others.connect(address)?;
        let request = vol::RestoreRequest {
            transaction: to,
            flags: i32::from(self.from_date != 0),
            cookie: self.cookie.clone(),
        };
        let send = |stream: &mut dyn CallStream| {
            dumping::dump(self.volume, self.extract(), source, stream, Some(progress))
        };
        vol::restore(&*connection, &request, send).map(drop)
    }

    /// Returns whether a Cellar server has all contents already; its volume is then up to date. If that cannot be
    /// found out, the volume is sent.
    fn has_all(&self, address: SocketAddrV4, to: i32, offered: u64) -> bool {
        let ask = |way: Arc<dyn ClientConnection>| {
            unchanged::is_brought_up_to_date(self.server, self.volume, self.cookie, (&*way, to), offered)
        };
        // A release of everything (`vos release -force`) is a release of everything.
        self.from_date != 0 && self.others.connect(address).and_then(ask).unwrap_or(false)
    }

    /// Sends the data that a Cellar server lacks. After an interruption, resumes with the data still missing.
    fn send_missing(
        &self,
        way: &dyn ClientConnection,
        to: i32,
        mut offered: u64,
        source: Source,
        progress: &Transfer,
    ) -> Result<(), AbortCode> {
        let request = cellar::TakeVolumeRequest {
            transaction: to,
            name: self.cookie.name.clone(),
            volume_type: self.cookie.volume_type,
            clone_id: self.cookie.clone_id,
        };
        let (mut resumes, mut source, mut lends) = (0, Some(source), true);
        loop {
            progress.restart();
            let lent = if lends { Lent::offer(self.server, self.volume, (way, to)) } else { None };
            let is_lent = lent.is_some();
            let sent = self.send_once(way, &request, (offered, lent), source.take(), progress);
            let Err(mut cut_off) = sent else { return Ok(()) };
            if is_lent && cut_off == AbortCode::VOLSERREAD_DUMPERROR {
                // The target has logged why it does not take the objects over.
                lends = false;
                continue;
            }
            offered = loop {
                if !cut_off.is_of_rx() || resumes == RESUMES_MAX || self.used.is_ended() {
                    return Err(cut_off);
                }
                self.others.pause(RESUME_PAUSE * (1 << resumes));
                resumes += 1;
                match offer(way, to) {
                    Ok(offered) => break offered,
                    Err(code) => cut_off = code,
                }
            };
            let volume = self.volume.id();
            info!(%volume, to = %way.peer(), resumes, "an interrupted transfer continues");
        }
    }

    fn send_once(
        &self,
        way: &dyn ClientConnection,
        request: &cellar::TakeVolumeRequest,
        (offered, lent): (u64, Option<Lent>),
        source: Option<Source>,
        progress: &Transfer,
    ) -> Result<(), AbortCode> {
        // A retry reads on its own and no longer shares the read with the other targets. Neither does a transfer that
        // reads hardly anything.
        let source = source.filter(|_| lent.is_none()).unwrap_or_else(|| Source::alone(self.volume));
        let to = request.transaction;
        let send = |stream: &mut dyn CallStream| {
            let mut sending = Sending::begin(stream, way, to, offered, progress, lent);
            dumping::transfer(self.volume, self.extract(), source, &mut sending, progress)
        };
        cellar::take_volume(way, request, send).map(drop)
    }
}

/// Returns how many vnodes of the target may have data in common; an error if it is not a Cellar server, or
/// not ready.
fn offer(way: &dyn ClientConnection, transaction: i32) -> Result<u64, AbortCode> {
    cellar::offer_volume(way, &cellar::OfferVolumeRequest { transaction }).map(|reply| reply.vnodes)
}

fn address(server: &DestServer) -> Result<SocketAddrV4, AbortCode> {
    let port = u16::try_from(server.port).map_err(|_| ENOTCONN)?;
    Ok(SocketAddrV4::new(Ipv4Addr::from(server.host), port))
}
