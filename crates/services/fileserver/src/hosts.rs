//! Communication with clients: identification, missed messages, and callback breaks.
//!
//! [`Callbacks`] holds the state. This module adds the lock around it, makes the calls that it requests, and
//! waits. Nothing is sent while the lock is held.

mod delivering;

use crate::config::FileServerConfig;
use crate::environment::{CallbackNetwork, Clock, Reports};
use crate::reports::ThreadReports;
use crate::stranger::{self, Said};
use crate::waiting::WaitingCalls;
use afs_idl::cb;
use base::{AbortCode, Caller, Fid, HostUuid, Monotonic};
use callbacks::{
    Arrival, Asked, Callbacks, Delivery, Effort, HostId, Identification, Probe, Refusal, SharedUuid, Task,
};
use parking_lot::MutexGuard;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use waits::{Lock, LockName};

/// How long a call waits for another call to finish contacting their common host.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// Maximum number of steps to admit a call. Every step makes progress; this bounds the cost of a client that
/// alternately answers and forgets.
const STEPS_MAX: usize = 1_000;

pub(crate) struct Hosts {
    /// The state. The lock is held only while the state machine runs.
    state: Lock<Callbacks>,
    /// Wakes waiting calls after a result was reported to the state machine.
    reports: Arc<dyn Reports>,
    waiting: WaitingCalls,
    /// Number of takeovers whose resets have not all been tried.
    takeovers: Arc<AtomicUsize>,
    /// Number of messages to clients that are waited for, without those that one call waits for.
    under_way: AtomicUsize,
    network: Arc<dyn CallbackNetwork>,
    clock: Arc<dyn Clock>,
    config: Arc<FileServerConfig>,
}

/// Counts a takeover until it is dropped.
#[derive(Debug)]
struct Takeover(Arc<AtomicUsize>);

impl Takeover {
    fn begin(count: &Arc<AtomicUsize>) -> Takeover {
        count.fetch_add(1, Ordering::AcqRel);
        Takeover(Arc::clone(count))
    }
}

impl Drop for Takeover {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Resets that hosts are owed since a partition was taken over. No call of these hosts is executed before its host was
/// reset.
#[derive(Debug)]
#[must_use = "they have to be sent before a change is acknowledged"]
pub struct OwedResets {
    resets: Vec<Delivery>,
    takeover: Takeover,
}

/// A host whose call may be executed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entered {
    pub(crate) host: HostId,
    /// Whether the client translates portable error numbers itself.
    pub(crate) translates: bool,
}

impl Hosts {
    pub(crate) fn new(
        network: Arc<dyn CallbackNetwork>,
        clock: Arc<dyn Clock>,
        config: Arc<FileServerConfig>,
    ) -> Hosts {
        Hosts {
            state: Lock::new(LockName::Hosts, Callbacks::new(config.callbacks.clone())),
            reports: Arc::new(ThreadReports::default()),
            waiting: WaitingCalls::new(config.waiting_calls_max),
            takeovers: Arc::default(),
            under_way: AtomicUsize::new(0),
            network,
            clock,
            config,
        }
    }

    /// Replaces the reports that calls wait for.
    pub(crate) fn set_reports(&mut self, reports: Arc<dyn Reports>) {
        self.reports = reports;
    }

    /// Returns the state, for queries and for steps that send nothing.
    #[track_caller]
    pub(crate) fn state(&self) -> MutexGuard<'_, Callbacks> {
        self.state.lock()
    }

    /// Admits a call: its host is identified, has received all missed messages, and counts as up.
    pub(crate) fn enter(&self, caller: &Caller, active: bool) -> Result<Entered, AbortCode> {
        for _ in 0..STEPS_MAX {
            let now = self.clock.monotonic();
            let mut state = self.state.lock();
            match state.arrive(now, caller.peer, caller.connection.number(), active) {
                Arrival::Ready(host) => {
                    let translates = state.capabilities(host) & cb::client_capability::ERROR_TRANSLATION != 0;
                    return Ok(Entered { host, translates });
                }
                Arrival::Wait => self.wait(state, caller)?,
                Arrival::Refuse(refusal) => return Err(refusal.abort_code()),
                Arrival::First(task) => {
                    drop(state);
                    self.perform(task).map_err(Refusal::abort_code)?;
                }
            }
        }
        Err(AbortCode::VBUSY)
    }

    /// Fast path of [`Self::enter`] if nothing has to be sent first; `None` has no effect. Waits for the
    /// lock, since that takes less time than passing the call to a worker that also needs the lock.
    pub(crate) fn try_enter(&self, caller: &Caller, now: Monotonic) -> Option<Entered> {
        let mut state = self.state.lock();
        let (host, capabilities) = state.try_arrive(now, caller.peer, caller.connection.number())?;
        let translates = capabilities & cb::client_capability::ERROR_TRANSLATION != 0;
        Some(Entered { host, translates })
    }

    /// Whether a call may have to wait until its host is identified or has received a message. Does not
    /// block: returns false if the lock is not free.
    pub(crate) fn must_be_talked_to(&self, caller: &Caller) -> bool {
        self.state.try_lock().is_some_and(|state| !state.is_ready(caller.peer, caller.connection.number()))
    }

    fn wait(&self, state: MutexGuard<'_, Callbacks>, caller: &Caller) -> Result<(), AbortCode> {
        let _place = self.waiting.enter(&caller.identity)?;
        // Read under the lock: a report about a later state has a higher number.
        let seen = self.reports.count();
        drop(state);
        if self.reports.wait(seen, WAIT_MAX) { Ok(()) } else { Err(AbortCode::VBUSY) }
    }

    fn perform(&self, task: Task) -> Result<(), Refusal> {
        match task {
            Task::Identify { address, connection, effort } => {
                let (asked, was_reset) = self.ask_caller(address, effort);
                let now = self.clock.monotonic();
                let identified = self.state.lock().identified(now, address, connection, asked, was_reset);
                self.reports.report();
                identified
            }
            Task::AskTwin { twin, address } => {
                let (asked, _) = self.ask_who(address, self.config.probe_patience, false);
                self.state.lock().twin_asked(self.clock.monotonic(), twin, asked);
                self.reports.report();
                Ok(())
            }
            Task::Probe(probe) => {
                self.probe(&probe);
                Ok(())
            }
            Task::Deliver(delivery) => {
                self.send(delivery, self.config.break_patience).map(drop).map_err(refusal)
            }
            Task::Evict(delivery) => {
                _ = self.send(delivery, self.config.break_patience);
                Ok(())
            }
        }
    }

    /// Checks whether a host still answers at its address, since its UUID was claimed at another one.
    fn probe(&self, probe: &Probe) {
        let answered = match self.answers_to(probe.address, probe.uuid, self.config.probe_patience) {
            // The host may be there.
            Err(code) if is_inconclusive(code) => return,
            answer => answer.is_ok(),
        };
        let shared = self.state.lock().probed(self.clock.monotonic(), probe, answered);
        if let Some(SharedUuid { uuid, addresses: [address, other], .. }) = shared {
            tracing::warn!(
                %uuid, %address, %other,
                "two clients use one UUID: remove the UUID file of one (OpenAFS: the directory \
                /var/cache/openafs) and restart it"
            );
        }
    }

    /// Checks that a client with this UUID answers at `address`.
    fn answers_to(
        &self,
        address: SocketAddr,
        client_uuid: HostUuid,
        patience: Duration,
    ) -> Result<(), AbortCode> {
        let connection = self.network.connection(address, patience);
        cb::probe_uuid(&*connection, &cb::ProbeUuidRequest { client_uuid }).map(drop)
    }

    /// Identifies a caller. Also returns whether it was reset.
    fn ask_caller(&self, address: SocketAddr, effort: Effort) -> (Asked, bool) {
        let patience = match effort {
            Effort::Once => self.config.once_patience,
            Effort::Ask | Effort::AskAndReset => self.config.identify_patience,
        };
        self.ask_who(address, patience, effort == Effort::AskAndReset)
    }

    /// Identifies the client at an address. Also returns whether the client was reset, which happens
    /// concurrently if `may_reset`.
    fn ask_who(&self, address: SocketAddr, patience: Duration, may_reset: bool) -> (Asked, bool) {
        let connection = self.network.connection(address, patience);
        let said = if may_reset {
            stranger::ask_and_reset(&*connection, self.config.uuid)
        } else {
            let who = cb::tell_me_about_yourself(&*connection, &cb::TellMeAboutYourselfRequest);
            Said { who, was_reset: false }
        };
        let addresses = match said.who {
            Ok(reply) => {
                let capabilities = reply.capabilities.first().copied().unwrap_or(0);
                let identification = self.identification(address, &reply.addresses, capabilities);
                return (Asked::Known(identification), said.was_reset);
            }
            Err(AbortCode::RXGEN_OPCODE) => cb::who_are_you(&*connection, &cb::WhoAreYouRequest),
            Err(code) => Err(code),
        };
        let asked = match addresses {
            Ok(reply) => Asked::Known(self.identification(address, &reply.addresses, 0)),
            Err(AbortCode::RXGEN_OPCODE) => Asked::Known(Identification::default()),
            Err(code) => {
                tracing::warn!(%address, %code, "a client does not identify itself");
                failed(code)
            }
        };
        (asked, false)
    }

    /// Returns a client's reported identity without addresses of this server: both may have a bridge with the
    /// same address.
    fn identification(
        &self,
        address: SocketAddr,
        said: &cb::InterfaceAddr,
        capabilities: u32,
    ) -> Identification {
        let addresses = said.addresses().map(IpAddr::from).filter(|ip| !self.network.is_own(*ip));
        let addresses = addresses.map(|ip| SocketAddr::new(ip, address.port())).collect();
        let uuid = (said.uuid != HostUuid::default()).then_some(said.uuid);
        Identification { uuid, addresses, capabilities }
    }

    /// Requires resets of hosts that may hold promises of an earlier owner of a partition.
    pub(crate) fn owe_resets(
        &self,
        hosts: impl Iterator<Item = (SocketAddr, Option<HostUuid>)>,
    ) -> OwedResets {
        let takeover = Takeover::begin(&self.takeovers);
        let resets = self.state.lock().owe_resets(self.clock.monotonic(), hosts);
        OwedResets { resets, takeover }
    }

    /// Waits until no resets are owed that have not been tried.
    pub(crate) fn await_resets(&self) {
        loop {
            let seen = self.reports.count();
            if self.takeovers.load(Ordering::Acquire) == 0 || !self.reports.wait(seen, WAIT_MAX) {
                return;
            }
        }
    }

    /// Breaks the promises on `others` for every host except `except`, and those on `everyone` for all.
    pub(crate) fn break_files(&self, others: &[Fid], everyone: &[Fid], except: HostId) {
        let mut state = self.state.lock();
        let mut deliveries = state.break_files(others, Some(except));
        if !everyone.is_empty() {
            deliveries.extend(state.break_files(everyone, None));
        }
        drop(state);
        self.send_all(deliveries);
    }
}

/// Whether a call to a client that ended with this code says neither that the client is gone nor that it refuses the call:
/// this server or a front could not make the call, has lost the address that it was made from, or ends; or the client
/// answers, but too slowly.
fn is_inconclusive(code: AbortCode) -> bool {
    matches!(code, AbortCode::RX_RESTARTING | AbortCode::RX_CALL_TIMEOUT)
}

/// Returns what the code of an identification says about the client.
fn failed(code: AbortCode) -> Asked {
    match code {
        AbortCode::RX_CALL_DEAD => Asked::Silent,
        code if is_inconclusive(code) => Asked::Failed,
        _ => Asked::Refused,
    }
}

/// Returns how to refuse a call whose host has not received a message, with this code.
fn refusal(code: AbortCode) -> Refusal {
    if is_inconclusive(code) { Refusal::Busy } else { Refusal::Unreachable }
}

#[cfg(test)]
mod tests {
    use super::*;
    use afs_idl::ClientConnection;
    use base::{Identity, SecurityLevel};
    use events::catalogue::LockFigures;
    use std::net::Ipv4Addr;
    use std::time::Instant;

    /// Number of waiting calls.
    const CALLS: u64 = 5;
    /// Minimum time for which they wait.
    const HELD: Duration = Duration::from_millis(20);

    /// An environment without network and with a stopped clock.
    struct Nobody;

    impl CallbackNetwork for Nobody {
        fn connection(&self, _: SocketAddr, _: Duration) -> Arc<dyn ClientConnection> {
            unreachable!("nothing is to be sent")
        }
    }

    impl Clock for Nobody {
        fn monotonic(&self) -> Monotonic {
            Monotonic(0)
        }

        fn wall(&self) -> Duration {
            Duration::ZERO
        }
    }

    /// Returns the counters of the lock. No other test of this program uses it.
    fn figures() -> LockFigures {
        waits::lock_figures().into_iter().find(|(name, _)| *name == "hosts").unwrap().1
    }

    #[test]
    fn calls_that_wait_for_the_clients_are_counted_one_by_one() {
        let hosts = Hosts::new(Arc::new(Nobody), Arc::new(Nobody), Arc::default());
        let caller = || Caller {
            identity: Identity::Anonymous,
            level: SecurityLevel::Clear,
            peer: SocketAddr::from(([10, 0, 0, 1], 7001)),
            local: Ipv4Addr::LOCALHOST.into(),
            connection: base::Connection::new(),
        };
        assert!(hosts.try_enter(&caller(), Monotonic(0)).is_none(), "a stranger");
        assert_eq!(figures().waits, 0, "nobody was before");
        let held = hosts.state();
        let since = std::thread::scope(|scope| {
            for _ in 0..CALLS {
                let (hosts, caller) = (&hosts, caller());
                scope.spawn(move || hosts.try_enter(&caller, Monotonic(0)));
            }
            while figures().waiting < CALLS {
                std::thread::yield_now();
            }
            let since = Instant::now();
            std::thread::sleep(HELD);
            drop(held);
            since
        });
        let (now, longest) = (figures(), since.elapsed());
        assert_eq!((now.waits, now.wait.count(), now.waiting), (CALLS, CALLS, 0));
        let least = HELD.as_nanos() * u128::from(CALLS);
        assert!(u128::from(now.wait.sum()) >= least, "{} ns, all waited {longest:?}", now.wait.sum());
    }
}
