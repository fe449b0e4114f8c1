//! Arriving calls: from a known host, or from a caller that has to be identified first.

use super::Callbacks;
use crate::host::{Host, HostId};
use crate::identifying::Admission;
use crate::message::{Arrival, Delivery, Message, Probe, Refusal, Task};
use base::Monotonic;
use base::limits::BULK_FIDS_MAX;
use std::cmp::Reverse;
use std::net::SocketAddr;

/// Maximum number of hosts that are asked to identify themselves for one newcomer.
const ASKS_MAX: usize = 3;

/// Maximum number of hosts that are asked or probed for one newcomer. Each may delay its call.
const CHECKS_MAX: usize = 5;

impl Callbacks {
    /// Handles a call from `peer` on `connection`. `active` is false for calls that do not indicate use of
    /// files (GetTime, GetStatistics, GetCapabilities).
    pub fn arrive(&mut self, now: Monotonic, peer: SocketAddr, connection: u64, active: bool) -> Arrival {
        match self.known(peer, connection) {
            Some(host) => self.admit(now, host, active),
            None => self.identify(now, peer, connection),
        }
    }

    /// Whether [`Callbacks::arrive`] would return [`Arrival::Ready`] for this call.
    pub fn is_ready(&self, peer: SocketAddr, connection: u64) -> bool {
        let host = self.known(peer, connection).and_then(|id| self.hosts.get(id));
        host.is_some_and(Host::is_owed_nothing)
    }

    /// Fast path of [`Callbacks::arrive`] for calls that use files: returns the host and its capabilities
    /// (see [`Callbacks::capabilities`]) if the call can be executed immediately. Has no effect if it returns
    /// `None`.
    pub fn try_arrive(&mut self, now: Monotonic, peer: SocketAddr, connection: u64) -> Option<(HostId, u32)> {
        let id = self.known(peer, connection)?;
        // A host that was down may have missed messages, so it takes the full path.
        let host = self.hosts.get_mut(id).filter(|host| host.up && host.is_owed_nothing())?;
        let capabilities = host.capabilities;
        if host.on_call(now, true) {
            self.rank(id);
        }
        Some((id, capabilities))
    }

    fn known(&self, peer: SocketAddr, connection: u64) -> Option<HostId> {
        let id = self.connections.get(peer, connection)?;
        self.hosts.contains(id).then_some(id)
    }

    fn admit(&mut self, now: Monotonic, id: HostId, active: bool) -> Arrival {
        let host = self.host_mut(id);
        let moved = host.on_call(now, active);
        let busy = host.busy;
        if moved {
            self.rank(id);
        }
        if busy {
            return Arrival::Wait;
        }
        if self.hosts[id].away {
            self.reset_returned(id);
            // Afterwards, since it may count as down again until it has received the message.
            self.host_mut(id).away = false;
        }
        if self.hosts[id].newcomer
            && let Some(arrival) = self.check_twins(now, id)
        {
            return arrival;
        }
        self.admit_checked(id)
    }

    fn admit_checked(&mut self, id: HostId) -> Arrival {
        let host = self.host_mut(id);
        let message = if host.needs_reset.is_some() {
            Message::Reset
        } else if host.delayed.is_empty() {
            let address = host.address;
            if !host.up {
                self.identifying.note_life(address);
                self.mark_up(id);
                self.rank(id);
            }
            return Arrival::Ready(id);
        } else {
            Message::Break(host.delayed.keys().take(BULK_FIDS_MAX).copied().collect())
        };
        host.busy = true;
        let delivery = Delivery { exclusive: true, ..self.delivery(id, message) };
        Arrival::First(Task::Deliver(delivery))
    }

    /// Handles a UUID that has appeared at another address: evicts hosts if it has too many, and probes the
    /// ones that called last. One that does not answer may be where the client was before: changes need not wait for it, and
    /// the client is reset if it comes back there. More than one is probed, since the last one may be an impostor.
    fn check_twins(&mut self, now: Monotonic, id: HostId) -> Option<Arrival> {
        while self.twins.count(self.hosts[id].uuid) > self.config.addresses_max {
            let twins = self.twins_of(id).filter(|twin| !self.hosts[*twin].busy);
            let least =
                twins.min_by_key(|twin| (self.hosts[*twin].rank.class, self.hosts[*twin].last_call))?;
            if let Some(arrival) = self.evict(least) {
                return Some(arrival);
            }
        }
        if self.hosts[id].checks < CHECKS_MAX
            && let Some(task) = self.ask_twin(now, id).or_else(|| self.probe_twin(now, id))
        {
            self.host_mut(id).checks += 1;
            return Some(Arrival::First(task));
        }
        let host = self.host_mut(id);
        (host.newcomer, host.checks) = (false, 0);
        None
    }

    /// Probes the next host with the UUID of a newcomer, each at most once per `probe_interval`, however often its UUID is
    /// claimed.
    fn probe_twin(&mut self, now: Monotonic, id: HostId) -> Option<Task> {
        let due = |host: &Host| self.is_due(now, host.probed);
        let twins = self.twins_of(id).filter(|twin| self.hosts[*twin].up && due(&self.hosts[*twin]));
        let host = twins.min_by_key(|twin| Reverse(self.hosts[*twin].last_call))?;
        let twin = self.host_mut(host);
        twin.probed = Some(now);
        let probe = Probe { host, address: twin.address, uuid: twin.uuid?, newcomer: id };
        Some(Task::Probe(probe))
    }

    /// Has the next host identify itself that a newcomer reports as its interface, but that has not reported the newcomer: its
    /// last report may be older than the interface, or it has reported nothing since it was listed by an earlier owner. Later the
    /// newcomer may be lost, and only that host can tell a client that must be reset from an impostor. The outcome does not matter.
    /// Like a probe, it is done at most once per `probe_interval`.
    fn ask_twin(&mut self, now: Monotonic, id: HostId) -> Option<Task> {
        let (host, ip) = (&self.hosts[id], self.hosts[id].address.ip());
        if host.checks >= ASKS_MAX {
            return None;
        }
        let is_one_sided = |twin: &HostId| {
            let other = &self.hosts[*twin];
            let may_ask = other.up && self.is_due(now, other.asked);
            may_ask && (other.is_listed || host.names(other.address.ip()) && !other.names(ip))
        };
        let twins = self.twins_of(id).filter(is_one_sided);
        let twin = twins.min_by_key(|twin| Reverse(self.hosts[*twin].last_call))?;
        self.host_mut(twin).asked = Some(now);
        Some(Task::AskTwin { twin, address: self.hosts[twin].address })
    }

    /// Whether a host that was checked at `last` may be checked again.
    fn is_due(&self, now: Monotonic, last: Option<Monotonic>) -> bool {
        last.is_none_or(|at| now.since(at) >= self.config.probe_interval)
    }

    fn identify(&mut self, now: Monotonic, peer: SocketAddr, connection: u64) -> Arrival {
        if let Some(refusal) = self.identifying.refusal(now, peer) {
            return Arrival::Refuse(refusal);
        }
        let is_known = self.by_address.contains_key(&peer);
        if !is_known && let Some(arrival) = self.make_host_room(peer.ip()) {
            return arrival;
        }
        match self.identifying.begin(&self.config, now, peer, is_known) {
            Admission::Ask(effort) => Arrival::First(Task::Identify { address: peer, connection, effort }),
            Admission::Wait => Arrival::Wait,
            Admission::Silent(refusal) => Arrival::Refuse(refusal),
            Admission::Full => Arrival::Refuse(Refusal::Busy),
        }
    }
}
