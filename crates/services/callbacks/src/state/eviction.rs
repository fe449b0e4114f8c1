//! Eviction of hosts and promises: the cheapest go first, and clients that lose promises are reset.

use super::{Callbacks, seconds};
use crate::config::PROMISE_S_MAX;
use crate::host::{Host, HostId};
use crate::message::{Arrival, Delivery, Message, Refusal, Task};
use base::Monotonic;
use std::net::IpAddr;
use std::time::Duration;

/// How long shared UUIDs are remembered after they were last seen.
const SHARED_REMEMBERED: Duration = Duration::from_secs(24 * 60 * 60);

/// Maximum number of hosts that are cleared to make room for later promises as well. The call that makes a promise waits until
/// all have been sent their resets.
const CLEARED_AHEAD_MAX: usize = 64;

/// How long a failed identification is remembered after its consequences have ended.
const FAILURE_REMEMBERED: Duration = Duration::from_secs(10 * 60);

impl Callbacks {
    /// Makes room for a host at `ip`. Returns `None` if there is room now. An address with too many hosts
    /// loses one of its own.
    pub(super) fn make_host_room(&mut self, ip: IpAddr) -> Option<Arrival> {
        let is_idle = |id: &HostId| !self.hosts[*id].busy;
        let share = self.config.hosts_per_ip(self.hosts.len());
        let least = if self.ranking.count_at(ip) >= share {
            self.ranking.all_at(ip).find(is_idle)
        } else if self.hosts.len() >= self.config.hosts_max {
            self.ranking.all().find(is_idle)
        } else {
            return None;
        };
        let Some(least) = least else { return Some(Arrival::Refuse(Refusal::Busy)) };
        self.evict(least)
    }

    /// Removes a host. One that is up and holds promises must be reset first.
    pub(super) fn evict(&mut self, id: HostId) -> Option<Arrival> {
        if !self.hosts[id].up {
            self.drop_unnotified(id);
            return None;
        }
        if !self.promises.has_any(id) && self.hosts[id].needs_reset.is_none() {
            self.drop_host(id);
            return None;
        }
        self.clear_host(id);
        self.host_mut(id).busy = true;
        let delivery = Delivery { exclusive: true, ..self.delivery(id, Message::Reset) };
        Some(Arrival::First(Task::Evict(delivery)))
    }

    /// Drops everything that a host holds, which requires a reset.
    pub(super) fn clear_host(&mut self, id: HostId) {
        self.counters.hosts_cleared += 1;
        self.sequence += 1;
        self.promises.remove_host(id, u64::MAX);
        let Some(host) = self.hosts.get_mut(id) else { return };
        self.delayed -= host.delayed.len();
        host.delayed.clear();
        let up = host.up;
        self.need_reset(id);
        if !up {
            self.reset_elsewhere(id);
        }
    }

    /// Brings the number of promises below its limit by clearing the least recently active hosts.
    pub(super) fn make_room(&mut self, now: Monotonic, asking: HostId) -> Vec<Delivery> {
        let mut deliveries = Vec::new();
        if self.used() <= self.config.promises_max {
            return deliveries;
        }
        self.counters.space_searches += 1;
        if self.expire(now) > 0 && self.used() <= self.config.promises_max {
            self.counters.cleared_expired += 1;
            return deliveries;
        }
        let max = self.config.promises_max;
        let enough = max - max / 16;
        while self.used() > max || self.used() > enough && deliveries.len() < CLEARED_AHEAD_MAX {
            let Some(id) = self.least_active(asking) else { break };
            let was_up = self.hosts[id].up;
            self.clear_host(id);
            if was_up {
                deliveries.push(self.delivery(id, Message::Reset));
            }
            // Changes do not wait for its reset, so that no further one at its address is cleared without need.
            if was_up && !self.owing.contains(id) && self.used() <= max {
                break;
            }
        }
        deliveries
    }

    /// Returns the host to clear: one that is down or has been inactive for longest. Returns `asking` only if
    /// there is no other.
    fn least_active(&mut self, asking: HostId) -> Option<HostId> {
        let mut ended = Vec::new();
        let others = self.ranking.holding().filter(|id| *id != asking);
        let found = others.into_iter().find(|id| {
            let holds = self.holds_any(*id);
            if !holds {
                ended.push(*id);
            }
            holds
        });
        // Promises of these hosts have ended since they were ranked. Updating the rank ensures that each is
        // skipped only once.
        for id in ended {
            self.rank(id);
        }
        if found.is_some() {
            self.counters.cleared_idle_host += 1;
            return found;
        }
        let own = self.holds_any(asking);
        self.counters.cleared_asking_host += u64::from(own);
        own.then_some(asking)
    }

    fn holds_any(&self, id: HostId) -> bool {
        self.promises.has_any(id) || self.hosts.get(id).is_some_and(|host| !host.delayed.is_empty())
    }

    fn expire(&mut self, now: Monotonic) -> usize {
        let count = self.promises.expire(seconds(now));
        self.counters.expired += count as u64;
        count
    }

    /// Ends expired promises and removes absent hosts. To be called every few minutes.
    pub fn maintain(&mut self, now: Monotonic) {
        self.expire(now);
        let before = |age: Duration| Monotonic(now.0.saturating_sub(age.as_nanos() as u64));
        self.identifying.forget_before(before(FAILURE_REMEMBERED));
        self.twins.forget_shared_before(before(SHARED_REMEMBERED));
        let idle_max = self.config.host_idle_max;
        let gone = |id: HostId, host: &Host| {
            let silent = now.since(host.last_call);
            let holds_nothing = host.delayed.is_empty() && !self.promises.has_any(id);
            let down_for_good = !host.up && silent > Duration::from_secs(PROMISE_S_MAX);
            !host.busy && (silent > idle_max && holds_nothing || down_for_good)
        };
        let gone: Vec<HostId> = self.hosts.iter().filter(|(id, h)| gone(*id, h)).map(|(id, _)| id).collect();
        for id in gone {
            self.drop_unnotified(id);
        }
        self.owing.fill(self.config.owing_per_ip_max);
    }
}
