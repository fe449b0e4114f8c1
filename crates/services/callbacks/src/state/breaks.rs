//! Changes that break promises, and the outcome of their messages.

use super::{Callbacks, whole};
use crate::host::{Host, HostId, Reached};
use crate::message::{Check, Delivered, Delivery, Message, StandIn};
use crate::origins::Origins;
use crate::strays::Stray;
use base::limits::BULK_FIDS_MAX;
use base::{Fid, Monotonic, VnodeId, VolumeId};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// Maximum number of alternative addresses that a message goes to when its host is unresponsive. Each delays
/// the writer.
const STAND_INS_MAX: usize = 3;

impl Callbacks {
    /// Breaks the promises on `fids`, which `except` has changed. All returned messages must be sent and
    /// reported before the change is acknowledged.
    pub fn break_files(&mut self, fids: &[Fid], except: Option<HostId>) -> Vec<Delivery> {
        let mut broken: BTreeMap<HostId, Vec<Fid>> = BTreeMap::new();
        for &fid in fids {
            for holder in self.promises.holders(fid).filter(|holder| Some(*holder) != except) {
                broken.entry(holder).or_default().push(fid);
            }
        }
        self.break_promises(broken, except)
    }

    /// Breaks all promises in `volume`, which may have changed or been deleted.
    pub fn break_volume(&mut self, volume: VolumeId) -> Vec<Delivery> {
        let holders = self.promises.volume_holders(volume);
        let broken = holders.into_iter().map(|host| (host, vec![whole(volume)])).collect();
        self.break_promises(broken, None)
    }

    fn break_promises(
        &mut self,
        broken: BTreeMap<HostId, Vec<Fid>>,
        except: Option<HostId>,
    ) -> Vec<Delivery> {
        self.counters.breaks += 1;
        self.sequence += 1;
        let sequence = self.sequence;
        let mut deliveries = Vec::new();
        for (id, fids) in broken {
            let up = self.hosts[id].up;
            if !up {
                self.delay(id, &fids, sequence);
            }
            for part in fids.chunks(BULK_FIDS_MAX) {
                let delivery = Delivery { sequence, ..self.delivery(id, Message::Break(part.to_vec())) };
                let delivery = if up { Some(delivery) } else { self.redirect(delivery) };
                self.counters.deliveries_under_way -= u64::from(delivery.is_none());
                deliveries.extend(delivery);
            }
        }
        // Last, because delaying breaks may have made resets necessary.
        deliveries.extend(self.resets_owed(except));
        deliveries
    }

    fn resets_owed(&mut self, except: Option<HostId>) -> Vec<Delivery> {
        let owing: Vec<HostId> = self.owing.all().filter(|id| Some(*id) != except).collect();
        let mut resets: Vec<_> = owing.into_iter().map(|id| self.delivery(id, Message::Reset)).collect();
        let strays: Vec<_> = self.strays.all().collect();
        resets.extend(strays.into_iter().map(|(address, stray)| self.stray_reset(address, stray)));
        resets
    }

    fn stray_reset(&mut self, address: SocketAddr, stray: Stray) -> Delivery {
        self.counters.deliveries_under_way += 1;
        Delivery {
            host: stray.host,
            address,
            uuid: Some(stray.uuid),
            message: Message::Reset,
            stand_in: Some(StandIn::Reported(address)),
            stand_ins: Vec::new(),
            heard: false,
            for_anyone: false,
            sequence: self.sequence,
            exclusive: false,
        }
    }

    pub(super) fn delivery(&mut self, id: HostId, message: Message) -> Delivery {
        self.counters.deliveries_under_way += 1;
        let host = &self.hosts[id];
        Delivery {
            host: id,
            address: host.address,
            uuid: host.uuid,
            message,
            stand_in: None,
            stand_ins: Vec::new(),
            heard: false,
            for_anyone: false,
            sequence: self.sequence,
            exclusive: false,
        }
    }

    /// Returns deliveries in the order in which to send them: the first of each IP address (or /64 network of IPv6) before the second
    /// of any, and recent callers first. So many silent hosts of one address hold up few others.
    pub fn in_turn(&self, mut deliveries: Vec<Delivery>) -> Vec<Delivery> {
        deliveries.sort_by_cached_key(|delivery| {
            let host = self.by_address.get(&delivery.address).and_then(|id| self.hosts.get(*id));
            Reverse(host.map(|host| host.last_call))
        });
        let mut origins = Origins::default();
        let turn = |delivery: Delivery| {
            let ip = delivery.address.ip();
            origins.add(ip);
            (origins.count(ip), delivery)
        };
        let mut turns: Vec<_> = deliveries.into_iter().map(turn).collect();
        turns.sort_by_key(|(turn, _)| *turn);
        turns.into_iter().map(|(_, delivery)| delivery).collect()
    }

    /// Returns when to check that the client with the delivery's UUID answers at its address (ProbeUuid). Messages name no
    /// recipient, and another client that has the address by now would accept them. If the client does not answer, the message
    /// counts as missed. To be called when the delivery is sent, which may be long after it was made.
    pub fn check(&self, now: Monotonic, delivery: &Delivery) -> Check {
        let id = match delivery.stand_in {
            Some(StandIn::Reported(_)) => return Check::Before,
            Some(StandIn::Twin(twin, _)) => twin,
            None => delivery.host,
        };
        if delivery.uuid.is_none() || self.hosts.get(id).is_some_and(|host| !host.may_have_left(now)) {
            return Check::Unneeded;
        }
        if delivery.for_anyone && delivery.is_at_home() { Check::After } else { Check::Before }
    }

    /// Reports whether a delivery was received. Returns how to proceed.
    pub fn delivered(&mut self, delivery: &Delivery, reached: bool) -> Delivered {
        match delivery.stand_in {
            Some(stand_in) => self.delivered_elsewhere(delivery, stand_in, reached),
            None => self.delivered_home(delivery, reached),
        }
    }

    fn delivered_home(&mut self, delivery: &Delivery, reached: bool) -> Delivered {
        let Some(host) = self.hosts.get_mut(delivery.host) else {
            self.end_delivery(reached);
            return if reached { Delivered::Done } else { Delivered::Forgotten };
        };
        if delivery.exclusive {
            host.busy = false;
            if reached {
                self.mark_up(delivery.host);
            }
        }
        if reached {
            self.identifying.note_life(delivery.address);
            self.reached(delivery.host, delivery);
            self.end_delivery(true);
            return Delivered::Done;
        }
        self.missed(delivery.host, delivery);
        if !delivery.exclusive
            && let Some(next) = self.redirect(delivery.clone())
        {
            return Delivered::Retry(Box::new(next));
        }
        self.end_delivery(false);
        Delivered::Delayed
    }

    /// Handles a delivery to a stand-in. The host's own messages stay pending, since it is not proven that
    /// both are the same client.
    fn delivered_elsewhere(&mut self, delivery: &Delivery, stand_in: StandIn, reached: bool) -> Delivered {
        self.note_reached(delivery.uuid, delivery.address, reached);
        match stand_in {
            StandIn::Twin(twin, _) if self.hosts.contains(twin) => {
                if reached {
                    self.reached(twin, delivery);
                } else {
                    self.missed(twin, delivery);
                }
            }
            StandIn::Reported(address) if !reached || delivery.message == Message::Reset => {
                self.strays.remove(address, delivery.sequence);
            }
            _ => {}
        }
        let heard = delivery.heard || reached;
        if let Some(next) = next_stand_in(Delivery { heard, ..delivery.clone() }) {
            return Delivered::Retry(Box::new(next));
        }
        self.end_delivery(heard);
        if heard { Delivered::Done } else { Delivered::Delayed }
    }

    fn end_delivery(&mut self, reached: bool) {
        self.counters.deliveries_under_way = self.counters.deliveries_under_way.saturating_sub(1);
        let count =
            if reached { &mut self.counters.breaks_delivered } else { &mut self.counters.breaks_failed };
        *count += 1;
    }

    /// Returns the same message for other addresses where the client of an unresponsive host may be, if there
    /// are any.
    fn redirect(&mut self, delivery: Delivery) -> Option<Delivery> {
        let stand_ins = self.stand_ins(&delivery);
        let reported: Vec<HostId> = stand_ins.iter().filter_map(twin_of).collect();
        // Related hosts that get no copy must be reset instead.
        self.reset_kin(delivery.host, &reported, delivery.sequence);
        next_stand_in(Delivery { stand_ins, ..delivery })
    }

    /// Returns the addresses where the client of a host may also be: first hosts that it reported itself,
    /// then those that report it, then the most recent callers, then reported addresses that have never
    /// called.
    fn stand_ins(&self, delivery: &Delivery) -> Vec<StandIn> {
        let (id, host) = (delivery.host, &self.hosts[delivery.host]);
        let order = |twin: &HostId| {
            let other = &self.hosts[*twin];
            let unnamed = !host.names(other.address.ip());
            (unnamed, !self.is_kin(*twin, host.address.ip()), Reverse(other.last_call))
        };
        // Its own reset after the takeover is under way.
        let is_sent_own = |twin: &Host| delivery.for_anyone && twin.needs_reset == Some(delivery.sequence);
        let may_be_there = |twin: &HostId| self.hosts[*twin].up && !is_sent_own(&self.hosts[*twin]);
        let mut twins: Vec<HostId> = self.twins_of(id).filter(may_be_there).collect();
        twins.sort_by_key(order);
        let twins = twins.into_iter().map(|twin| StandIn::Twin(twin, self.hosts[twin].address));
        let reported = host.reported.iter().filter(|_| host.uuid.is_some());
        let reported = reported.filter(|reported| reported.reached != Reached::No);
        let unknown = reported.filter(|reported| !self.by_address.contains_key(&reported.address));
        twins.chain(unknown.map(|reported| StandIn::Reported(reported.address))).take(STAND_INS_MAX).collect()
    }

    fn reached(&mut self, id: HostId, delivery: &Delivery) {
        match &delivery.message {
            Message::Break(fids) => {
                for &fid in fids {
                    self.end_promise(id, fid, delivery.sequence);
                    self.forget_delayed(id, fid, delivery.sequence);
                }
            }
            Message::Reset => {
                self.promises.remove_host(id, delivery.sequence);
                self.forget_reset(id, delivery.sequence);
            }
        }
        self.rank(id);
    }

    fn end_promise(&mut self, id: HostId, fid: Fid, sequence: u64) {
        if fid.vnode == VnodeId(0) {
            self.promises.remove_volume(fid.volume, id, sequence);
        } else {
            self.promises.remove(fid, id, sequence);
        }
    }

    fn forget_delayed(&mut self, id: HostId, fid: Fid, sequence: u64) {
        let Some(host) = self.hosts.get_mut(id) else { return };
        if host.delayed.get(&fid).is_some_and(|since| *since <= sequence) {
            host.delayed.remove(&fid);
            self.delayed -= 1;
        }
    }

    fn forget_reset(&mut self, id: HostId, sequence: u64) {
        let Some(host) = self.hosts.get_mut(id) else { return };
        let before = host.delayed.len();
        host.delayed.retain(|_, since| *since > sequence);
        self.delayed -= before - host.delayed.len();
        if host.needs_reset.is_some_and(|since| since <= sequence) {
            host.needs_reset = None;
            self.owing.remove(id);
        }
    }

    fn missed(&mut self, id: HostId, delivery: &Delivery) {
        self.mark_down(id);
        match &delivery.message {
            Message::Break(fids) => self.delay(id, fids, delivery.sequence),
            // The reset of the host itself is already pending; that of a stand-in is not.
            Message::Reset if id != delivery.host => self.need_reset(id),
            Message::Reset => {}
        }
        self.rank(id);
    }

    /// Converts promises of a host that is down into breaks for later delivery.
    fn delay(&mut self, id: HostId, fids: &[Fid], sequence: u64) {
        for &fid in fids {
            self.end_promise(id, fid, sequence);
            let Some(host) = self.hosts.get_mut(id) else { return };
            if host.delayed.len() >= self.config.delayed_max {
                self.clear_host(id);
                return;
            }
            if host.delayed.insert(fid, sequence).is_none() {
                self.delayed += 1;
                self.counters.breaks_delayed += 1;
            }
        }
    }
}

/// Returns the delivery to the next stand-in.
fn next_stand_in(mut delivery: Delivery) -> Option<Delivery> {
    if delivery.stand_ins.is_empty() {
        return None;
    }
    let next = delivery.stand_ins.remove(0);
    let (StandIn::Twin(_, address) | StandIn::Reported(address)) = next;
    Some(Delivery { address, stand_in: Some(next), exclusive: false, ..delivery })
}

fn twin_of(stand_in: &StandIn) -> Option<HostId> {
    match stand_in {
        StandIn::Twin(twin, _) => Some(*twin),
        StandIn::Reported(_) => None,
    }
}
