//! Repetition of calls that a server refuses for the moment, as cache managers do.
//!
//! A file server refuses a call with VBUSY (too many calls, or a volume operation has the volume), VOFFLINE (the
//! volume is being restored, moved or checked) or VRESTARTING before it does anything. OpenAFS's cache manager
//! (`afs_Analyze`) and kafs (`afs_select_fileserver`) wait and repeat the call, and so does every connection of a
//! [`CellClient`](super::CellClient), within the bounds of [`Patience`]. If an address of a file server does not answer, a
//! call that may be executed twice is made at the server's other addresses, as cache managers do, and later calls go there.
//!
//! [`PatientConnection`] repeats a call as long as no byte of the reply was read and the request has at most
//! [`REPEATABLE_BYTES_MAX`]. Longer requests are the data of stores, whose caller can rewind its source
//! ([`CellClient::store`](super::CellClient::store)).

use super::Interface;
use super::servers::{Reach, Servers, is_unanswered};
use afs_idl::{CallStream, ClientCall, ClientConnection};
use base::AbortCode;
use bytes::Bytes;
use parking_lot::Mutex;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Maximum length of a request that is kept to be sent again.
pub const REPEATABLE_BYTES_MAX: usize = 64 * 1024;

/// Bounds on the repetition of refused calls.
#[derive(Clone, Debug)]
pub struct Patience {
    /// Time for which a call is repeated while the server is busy or restarts (VBUSY, VRESTARTING).
    pub busy: Duration,
    /// Time for which a call is repeated while the volume is offline (VOFFLINE), which may last.
    pub offline: Duration,
    /// Pause before the first repetition. Each further pause is twice as long.
    pub pause_min: Duration,
    /// Longest pause.
    pub pause_max: Duration,
    /// Time after which a wait is reported, and between two reports about a server.
    pub report_after: Duration,
    /// Whether calls go to another address of a file server that does not answer. Not for observers of single addresses.
    pub tries_others: bool,
}

impl Patience {
    /// No call is repeated.
    pub const NONE: Patience = Patience {
        busy: Duration::ZERO,
        offline: Duration::ZERO,
        pause_min: Duration::ZERO,
        pause_max: Duration::ZERO,
        report_after: Duration::MAX,
        tries_others: false,
    };

    /// Returns how long a call that ended with `code` is repeated; zero if its repetition is not this layer's
    /// business. Only the file service returns VOFFLINE and VRESTARTING for calls that it has not begun. A volume
    /// server's 110 may be ETIMEDOUT.
    fn limit(&self, interface: Interface, code: AbortCode) -> Duration {
        match (interface, code) {
            (Interface::Volumes | Interface::CellarVolumes, _) => Duration::ZERO,
            (_, AbortCode::VBUSY) | (Interface::Files, AbortCode::VRESTARTING) => self.busy,
            (Interface::Files, AbortCode::VOFFLINE) => self.offline,
            _ => Duration::ZERO,
        }
    }
}

impl Default for Patience {
    fn default() -> Patience {
        Patience {
            busy: Duration::from_secs(300),
            offline: Duration::from_secs(60),
            pause_min: Duration::from_millis(50),
            pause_max: Duration::from_secs(5),
            report_after: Duration::from_secs(3),
            tries_others: true,
        }
    }
}

/// A call that has been refused for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delay {
    /// The server that refuses it.
    pub server: SocketAddr,
    /// The latest reason.
    pub code: AbortCode,
    /// Time since the first refusal.
    pub waited: Duration,
    /// Time for which the call will be repeated at most.
    pub left: Duration,
}

impl std::fmt::Display for Delay {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let reason = match self.code {
            AbortCode::VOFFLINE => "a volume is offline",
            AbortCode::VRESTARTING => "it is restarting",
            _ => "it or a volume is busy",
        };
        let (server, code) = (self.server.ip(), self.code);
        let (waited, left) = (self.waited.as_secs(), self.left.as_secs());
        write!(f, "{server} has refused calls for {waited} s: {reason} [{code}]; trying for another {left} s")
    }
}

/// Receives reports of long waits.
pub(super) type Report = dyn Fn(&Delay) + Send + Sync;

/// The patience of a client, shared by its connections.
pub(super) struct Waiting {
    pub(super) patience: Patience,
    pub(super) report: Box<Report>,
    /// Time of the last report.
    reported: Mutex<Option<Instant>>,
}

impl Waiting {
    pub(super) fn new(patience: Patience, report: Box<Report>) -> Waiting {
        Waiting { patience, report, reported: Mutex::default() }
    }

    /// Reports a delay unless another one was reported just now: many calls may wait for one server.
    fn report(&self, delay: &Delay) {
        let mut reported = self.reported.lock();
        if reported.is_none_or(|last| last.elapsed() >= self.patience.report_after) {
            *reported = Some(Instant::now());
            drop(reported);
            (self.report)(delay);
        }
    }
}

/// The attempts of one call.
pub(super) struct Attempts {
    waiting: Arc<Waiting>,
    servers: Arc<Servers>,
    interface: Interface,
    named: Ipv4Addr,
    /// The address of the next attempt.
    address: Ipv4Addr,
    /// Those that did not answer.
    silent: Vec<Ipv4Addr>,
    reach: Reach,
    began: Option<Instant>,
    pause: Duration,
}

impl Attempts {
    /// Returns the connection for the next attempt, which repeats nothing.
    pub(super) fn connection(&self) -> Arc<dyn ClientConnection> {
        self.servers.connection(self.address, self.interface)
    }

    /// Chooses the address for a call that has not begun.
    fn choose(&mut self, reach: Reach) {
        self.reach = reach;
        let may_differ = self.waiting.patience.tries_others && reach != Reach::Named;
        self.address = if may_differ { self.servers.present(self.named) } else { self.named };
    }

    /// Waits before another attempt of a call that ended with `code`; returns false if there is none.
    pub(super) fn wait(&mut self, code: AbortCode) -> bool {
        if is_unanswered(code) {
            return self.turn();
        }
        let limit = self.waiting.patience.limit(self.interface, code);
        // The server ends, or this machine has lost the address that the call was made from.
        if code == AbortCode::RX_RESTARTING && limit.is_zero() {
            return self.turn();
        }
        let waited = self.began.get_or_insert_with(Instant::now).elapsed();
        let Some(left) = limit.checked_sub(waited).filter(|left| !left.is_zero()) else { return false };
        if waited >= self.waiting.patience.report_after {
            let server = self.connection().peer();
            self.waiting.report(&Delay { server, code, waited, left });
        }
        // A random part, so that refused calls do not all return at the same moment.
        std::thread::sleep(self.pause.mul_f64(rand::random_range(0.75..1.25)).min(left));
        self.pause = (self.pause * 2).min(self.waiting.patience.pause_max);
        true
    }

    /// Turns to another address of the server, after nothing was heard from the present one. Returns false if there is none, or if
    /// the call must not be repeated.
    fn turn(&mut self) -> bool {
        if !self.waiting.patience.tries_others || self.reach == Reach::Named {
            return false;
        }
        self.silent.push(self.address);
        self.servers.note_silence(self.address);
        // What is learned of other addresses serves later calls.
        let other = self.servers.other(self.named, &self.silent);
        self.address = other.unwrap_or(self.address);
        other.is_some() && self.reach == Reach::Any
    }
}

/// A connection that repeats refused calls.
pub(super) struct PatientConnection {
    pub(super) address: Ipv4Addr,
    pub(super) interface: Interface,
    pub(super) servers: Arc<Servers>,
    pub(super) waiting: Arc<Waiting>,
}

impl PatientConnection {
    /// Begins the attempts of a call that the caller repeats itself, at any address of the server.
    pub(super) fn attempts(&self) -> Attempts {
        let mut attempts = Attempts {
            waiting: Arc::clone(&self.waiting),
            servers: Arc::clone(&self.servers),
            interface: self.interface,
            named: self.address,
            address: self.address,
            silent: Vec::new(),
            reach: Reach::Any,
            began: None,
            pause: self.waiting.patience.pause_min,
        };
        attempts.choose(Reach::Any);
        attempts
    }
}

impl ClientConnection for PatientConnection {
    fn begin(&self) -> Result<Box<dyn ClientCall>, AbortCode> {
        Ok(Box::new(PatientCall {
            call: Ok(None),
            attempts: self.attempts(),
            request: Some(Request::default()),
        }))
    }

    fn peer(&self) -> SocketAddr {
        self.servers.connection(self.address, self.interface).peer()
    }
}

/// What was sent of a request.
#[derive(Default)]
struct Request {
    pieces: Vec<Bytes>,
    bytes: usize,
    is_complete: bool,
}

impl Request {
    fn send(&self, call: &mut dyn ClientCall) -> Result<(), AbortCode> {
        self.pieces.iter().try_for_each(|piece| call.write(piece.clone()))?;
        if self.is_complete { call.end_request() } else { Ok(()) }
    }
}

struct PatientCall {
    /// The current attempt, `None` before the first one; or the code with which the last one ended.
    call: Result<Option<Box<dyn ClientCall>>, AbortCode>,
    attempts: Attempts,
    /// `None` if the call can no longer be repeated: the request is long, or some of the reply was read.
    request: Option<Request>,
}

impl PatientCall {
    /// Makes the call again after `code`; returns the code if it cannot be repeated, or stays refused.
    fn repeat(&mut self, code: AbortCode) -> Result<(), AbortCode> {
        // A refused call must not keep its channel while it waits, or for another channel.
        self.call = Err(code);
        let Some(request) = &self.request else {
            if is_unanswered(code) {
                self.attempts.turn();
            }
            return Err(code);
        };
        let mut code = code;
        while self.attempts.wait(code) {
            let begun = self.attempts.connection().begin();
            match begun.and_then(|mut call| request.send(&mut *call).map(|()| call)) {
                Ok(call) => {
                    self.call = Ok(Some(call));
                    return Ok(());
                }
                Err(again) => code = again,
            }
        }
        self.call = Err(code);
        Err(code)
    }

    fn current(&mut self) -> Result<&mut dyn ClientCall, AbortCode> {
        if let Ok(None) = self.call {
            self.call = self.attempts.connection().begin().map(Some);
        }
        match &mut self.call {
            Ok(Some(call)) => Ok(&mut **call),
            Ok(None) => Err(AbortCode::RX_INVALID_OPERATION),
            Err(code) => Err(*code),
        }
    }

    /// Sends a part of the request, which has been recorded, so that a repetition sends it as well.
    fn send(
        &mut self,
        send: impl FnOnce(&mut dyn ClientCall) -> Result<(), AbortCode>,
    ) -> Result<(), AbortCode> {
        send(self.current()?).or_else(|code| self.repeat(code))
    }

    /// Reads from the reply; makes the call again if it was refused.
    fn receive<T>(
        &mut self,
        mut read: impl FnMut(&mut dyn ClientCall) -> Result<T, AbortCode>,
        is_end: impl Fn(&T) -> bool,
    ) -> Result<T, AbortCode> {
        loop {
            match read(self.current()?) {
                Ok(got) => {
                    if !is_end(&got) {
                        self.request = None;
                    }
                    return Ok(got);
                }
                Err(code) => self.repeat(code)?,
            }
        }
    }
}

impl CallStream for PatientCall {
    fn read(&mut self, buf: &mut [u8]) -> Result<usize, AbortCode> {
        self.receive(|call| call.read(buf), |got| *got == 0)
    }

    fn read_chunk(&mut self, max: usize) -> Result<Bytes, AbortCode> {
        self.receive(|call| call.read_chunk(max), Bytes::is_empty)
    }

    fn write(&mut self, data: Bytes) -> Result<(), AbortCode> {
        if let (Ok(None), Some(opcode)) = (&self.call, data.first_chunk()) {
            self.attempts.choose(Reach::of(self.attempts.interface, u32::from_be_bytes(*opcode)));
        }
        if let Some(request) = &mut self.request {
            request.bytes += data.len();
            request.pieces.push(data.clone());
        }
        if self.request.as_ref().is_some_and(|request| request.bytes > REPEATABLE_BYTES_MAX) {
            self.request = None;
        }
        self.send(|call| call.write(data))
    }
}

impl ClientCall for PatientCall {
    fn flush(&mut self) -> Result<(), AbortCode> {
        self.send(|call| call.flush())
    }

    fn end_request(&mut self) -> Result<(), AbortCode> {
        if let Some(request) = &mut self.request {
            request.is_complete = true;
        }
        self.send(|call| call.end_request())
    }

    fn finish(mut self: Box<Self>) -> Result<(), AbortCode> {
        if self.request.is_some() {
            // The refusal of a call with an empty reply is seen here.
            self.receive(|call| call.read_chunk(1), Bytes::is_empty)?;
        }
        self.call?.ok_or(AbortCode::RX_INVALID_OPERATION)?.finish()
    }
}

#[cfg(test)]
mod tests;
