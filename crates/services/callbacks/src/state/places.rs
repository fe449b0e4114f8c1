//! Locations of clients: hosts by address and UUID.

use super::Callbacks;
use crate::host::{Host, HostId, Identification, Reached};
use crate::message::{Asked, Delivery, Message, Probe, Refusal};
use crate::strays::Stray;
use crate::twins::SharedUuid;
use base::{HostUuid, Monotonic};
use std::net::{IpAddr, SocketAddr};

impl Callbacks {
    /// Reports the result of [`Task::Identify`](crate::Task::Identify). `was_reset` means that the client was reset before
    /// or while it answered.
    ///
    /// # Errors
    /// The refusal of the call, if its caller was not identified.
    pub fn identified(
        &mut self,
        now: Monotonic,
        address: SocketAddr,
        connection: u64,
        asked: Asked,
        was_reset: bool,
    ) -> Result<(), Refusal> {
        self.identifying.end(address);
        let said = match asked {
            Asked::Known(said) => said,
            failed => return Err(self.not_identified(now, address, &failed)),
        };
        self.identifying.forget(address);
        let (id, is_new) = self.place(now, address, said.uuid);
        if was_reset && is_new {
            // No call from this address has been executed since the reset.
            self.host_mut(id).needs_reset = None;
        }
        self.learn(now, id, is_new, &said);
        let host = self.hosts.get_mut(id).expect("just found or made");
        let (host_max, total_max) = (self.config.host_connections_max, self.config.connections_max);
        self.connections.add(id, host, connection, host_max, total_max);
        Ok(())
    }

    /// Reports the result of [`Task::AskTwin`](crate::Task::AskTwin). It concerns only the host that was asked: a failure
    /// refuses no call, of that host or another.
    pub fn twin_asked(&mut self, now: Monotonic, twin: HostId, asked: Asked) {
        let Some(address) = self.hosts.get(twin).map(|host| host.address) else { return };
        match asked {
            Asked::Known(said) => {
                self.identifying.forget(address);
                let (id, is_new) = self.place(now, address, said.uuid);
                self.learn(now, id, is_new, &said);
            }
            Asked::Silent => self.mark_down(twin),
            Asked::Refused | Asked::Failed => {}
        }
    }

    /// Stores what the client of a host has reported. One that has called before is reset if its interfaces have changed. What
    /// they were is not known of one that an earlier owner has listed, and that has been served at another address since.
    fn learn(&mut self, now: Monotonic, id: HostId, is_new: bool, said: &Identification) {
        let has_twins = self.twins_of(id).next().is_some();
        let host = self.hosts.get_mut(id).expect("the host exists");
        host.last_call = now;
        let was_listed = host.is_listed;
        let have_changed = host.learn(&self.config, said);
        let may_have_changed = if was_listed { has_twins } else { have_changed };
        if !is_new && may_have_changed && said.uuid.is_some() {
            self.reset_returned(id);
        }
    }

    /// Requires a reset of a host whose client has other interfaces than before. Promises that it was made at a lost one are
    /// broken there, unheard; those made at a new one may have been lost before this host was known to be the same client.
    /// The same for a host that was down while its client may have been elsewhere. Its other hosts are checked again.
    pub(super) fn reset_returned(&mut self, id: HostId) {
        self.sequence += 1;
        self.need_reset(id);
        self.host_mut(id).newcomer = true;
    }

    /// Records why no client was identified at `address`. A host that is silent counts as down.
    fn not_identified(&mut self, now: Monotonic, address: SocketAddr, asked: &Asked) -> Refusal {
        let known = self.by_address.get(&address).copied();
        if let (Asked::Silent, Some(id)) = (asked, known) {
            self.mark_down(id);
        }
        if *asked == Asked::Failed {
            self.identifying.note_failure(&self.config, now, address, known.is_some());
            return Refusal::Busy;
        }
        self.identifying.note_silence(&self.config, now, address, known.is_some())
    }

    /// Returns the host at `address` with exactly this UUID (or none), and whether it is new. A different
    /// client at a known address replaces the host there; a known UUID at another address becomes a separate
    /// host and does not affect the others.
    fn place(&mut self, now: Monotonic, address: SocketAddr, uuid: Option<HostUuid>) -> (HostId, bool) {
        if let Some(&there) = self.by_address.get(&address) {
            if self.hosts[there].uuid == uuid {
                return (there, false);
            }
            self.drop_unnotified(there);
        }
        let mut host = Host::new(now, address, uuid, self.sequence);
        host.newcomer = self.twins.count(uuid) > 0;
        let rank = host.rank;
        let id = self.hosts.add(host);
        self.mark_up(id);
        self.by_address.insert(address, id);
        self.twins.add(uuid, id);
        self.ranking.insert(address.ip(), rank, id);
        (id, true)
    }

    /// Reports the result of [`Task::Probe`](crate::Task::Probe): whether a client with the UUID answered at
    /// the address. If that reveals that two clients use the UUID, and it was not known before, returns the
    /// fact for logging.
    pub fn probed(&mut self, now: Monotonic, probe: &Probe, answered: bool) -> Option<SharedUuid> {
        if !answered {
            self.mark_down(probe.host);
            return None;
        }
        self.identifying.note_life(probe.address);
        let (old, new) = (self.hosts.get(probe.host)?, self.hosts.get(probe.newcomer)?);
        if old.names(new.address.ip()) || new.names(old.address.ip()) {
            return None;
        }
        self.counters.uuid_conflicts += 1;
        let addresses = [old.address, new.address];
        let shared = SharedUuid { uuid: probe.uuid, addresses, seen: now };
        self.twins.note_shared(shared.clone()).then_some(shared)
    }

    /// Requires a reset of hosts that may hold promises of an earlier owner of some volumes, and adds those that are not
    /// known. None of their calls is ready before. Returns the messages, which must reach their hosts, or be reported as
    /// undelivered, before a change of these volumes is acknowledged. The caller limits the number of hosts: they are added
    /// even if there are too many.
    ///
    /// The client at an address may be the listed one, the one that this server knows, or another. Each may hold promises, so
    /// whichever is there gets the message. The host in the table counts as reset only if its own client was there; another
    /// one is new when it calls, and is reset then.
    pub fn owe_resets(
        &mut self,
        now: Monotonic,
        hosts: impl IntoIterator<Item = (SocketAddr, Option<HostUuid>)>,
    ) -> Vec<Delivery> {
        self.sequence += 1;
        let sequence = self.sequence;
        let owe = |(address, uuid): (SocketAddr, Option<HostUuid>)| {
            let known = self.by_address.get(&address).copied();
            let id = known.unwrap_or_else(|| self.place(now, address, uuid).0);
            let host = self.host_mut(id);
            host.is_listed |= known.is_none();
            // Not `need_reset`: changes of other volumes need not wait for this.
            host.needs_reset = Some(sequence);
            Delivery { for_anyone: true, ..self.delivery(id, Message::Reset) }
        };
        hosts.into_iter().map(owe).collect()
    }

    /// Records that a host is up. Its client may be the one that other hosts with its UUID have lost.
    pub(super) fn mark_up(&mut self, id: HostId) {
        self.host_mut(id).up = true;
        let down: Vec<HostId> = self.twins_of(id).filter(|twin| !self.hosts[*twin].up).collect();
        for twin in down {
            self.host_mut(twin).away = true;
        }
    }

    pub(super) fn mark_down(&mut self, id: HostId) {
        let is_elsewhere = self.twins_of(id).any(|twin| self.hosts[twin].up);
        if let Some(host) = self.hosts.get_mut(id) {
            host.up = false;
            host.away |= is_elsewhere;
        }
        self.owing.remove(id);
        self.rank(id);
    }

    /// Removes a host that could not be reset. Its promises may have been made to a client that is still
    /// served at another of its addresses.
    pub(super) fn drop_unnotified(&mut self, id: HostId) {
        let host = &self.hosts[id];
        if self.promises.has_any(id) || !host.delayed.is_empty() || host.needs_reset.is_some() {
            self.reset_elsewhere(id);
        }
        self.drop_host(id);
    }

    /// Requires resets where the client of host `id` may still be, since it has lost promises without a message.
    pub(super) fn reset_elsewhere(&mut self, id: HostId) {
        self.reset_kin(id, &[], u64::MAX);
        let Some((host, uuid)) = self.hosts.get(id).and_then(|host| Some((host, host.uuid?))) else { return };
        let heard = host.reported.iter().filter(|reported| reported.reached == Reached::Yes);
        for interface in heard.filter(|reported| !self.by_address.contains_key(&reported.address)) {
            self.strays.add(interface.address, Stray { host: id, uuid, since: self.sequence });
        }
    }

    /// Records whether a client with this UUID was reached at an interface, for hosts that have reported it.
    pub(super) fn note_reached(&mut self, uuid: Option<HostUuid>, interface: SocketAddr, reached: bool) {
        for twin in self.twins.of(uuid) {
            if let Some(host) = self.hosts.get_mut(twin) {
                host.note_reached(interface, reached);
            }
        }
    }

    /// Requires a reset of hosts that by their own reports are the client of host `id` at another address, or
    /// that share its IP address, except those in `reported`, which are sent what was lost, and those that owe a reset for `lost` or
    /// something later. Hosts that only have the same UUID are not affected: otherwise an impostor could empty a client's
    /// cache at will.
    pub(super) fn reset_kin(&mut self, id: HostId, reported: &[HostId], lost: u64) {
        let ip = self.hosts[id].address.ip();
        let owes = |twin: HostId| self.hosts[twin].needs_reset.is_some_and(|since| since >= lost);
        let is_kin = |twin: &HostId| !reported.contains(twin) && self.is_kin(*twin, ip) && !owes(*twin);
        let kin: Vec<HostId> = self.twins_of(id).filter(is_kin).collect();
        self.sequence += 1;
        for twin in kin {
            self.need_reset(twin);
        }
    }

    /// Whether `twin` may be the client of a host at `ip`. One that is known only from the list of an earlier owner has not
    /// reported anything yet. It is asked when a newcomer has its UUID, so that no impostor has it reset again and again.
    pub(super) fn is_kin(&self, twin: HostId, ip: IpAddr) -> bool {
        let twin = &self.hosts[twin];
        twin.address.ip() == ip || twin.names(ip) || twin.is_listed
    }

    /// Requires a reset of host `id` for everything up to now. Changes that do not concern it wait for that, unless they wait for too
    /// many hosts at its address.
    pub(super) fn need_reset(&mut self, id: HostId) {
        let sequence = self.sequence;
        let host = self.host_mut(id);
        host.needs_reset = Some(sequence);
        let (is_up, ip) = (host.up, host.address.ip());
        if is_up {
            self.owing.add(ip, id, self.config.owing_per_ip_max);
        }
        self.rank(id);
    }

    /// Removes a host. If it calls again it is new, and is reset.
    pub(super) fn drop_host(&mut self, id: HostId) {
        self.promises.remove_host(id, u64::MAX);
        self.owing.remove(id);
        let Some(host) = self.hosts.remove(id) else { return };
        self.delayed -= host.delayed.len();
        self.by_address.remove(&host.address);
        self.twins.remove(host.uuid, id);
        self.note_reached(host.uuid, host.address, host.up);
        self.ranking.remove(host.address.ip(), host.rank, id);
        self.connections.remove_host(&host);
    }
}
