//! Identifications in progress, and addresses where the last one failed.

use crate::config::CallbackConfig;
use crate::message::{Effort, Refusal};
use crate::origins::{Origins, origin};
use base::Monotonic;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

/// Maximum number of addresses whose failures are remembered; those whose consequences end first are dropped.
const FAILED_MAX: usize = 10_000;

/// Number of silences in a row after which calls from an address fail, and an address without a host is sent one packet at
/// a time. One silence may be a moment of packet loss, or of a client that has just woken up.
const SILENCES_MAX: u8 = 2;

/// The decision about an unidentified caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    /// Query it now.
    Ask(Effort),
    /// A query is in progress, or will start soon.
    Wait,
    /// It failed to answer recently.
    Silent(Refusal),
    /// Too many queries are in progress at its address, and some remain unanswered.
    Full,
}

/// The last failed identifications of an address.
#[derive(Clone, Copy, Debug)]
struct Failed {
    /// End of the time in which it is not queried, and its calls are refused.
    refused_until: Monotonic,
    /// End of the time in which few identifications are in progress at its IP address.
    limited_until: Monotonic,
    /// How often in a row it was silent, up to [`SILENCES_MAX`].
    silences: u8,
}

impl Failed {
    /// Returns when its consequences end.
    fn until(self) -> Monotonic {
        self.refused_until.max(self.limited_until)
    }

    fn refusal(self) -> Refusal {
        if self.silences < SILENCES_MAX { Refusal::Busy } else { Refusal::Unreachable }
    }
}

/// See the module documentation.
#[derive(Debug, Default)]
pub(crate) struct Identifying {
    under_way: BTreeSet<SocketAddr>,
    /// Number of identifications in progress per origin.
    by_origin: Origins,
    failed: BTreeMap<SocketAddr, Failed>,
    /// The same addresses by the end of the consequences.
    failed_order: BTreeSet<(Monotonic, SocketAddr)>,
}

impl Identifying {
    /// Returns how calls from `address` are refused, if it failed to answer recently.
    pub(crate) fn refusal(&self, now: Monotonic, address: SocketAddr) -> Option<Refusal> {
        self.failed.get(&address).filter(|failed| now < failed.refused_until).map(|failed| failed.refusal())
    }

    /// Starts an identification if the limits allow it. [`Identifying::end`] ends it.
    pub(crate) fn begin(
        &mut self,
        config: &CallbackConfig,
        now: Monotonic,
        address: SocketAddr,
        is_known: bool,
    ) -> Admission {
        if let Some(refusal) = self.refusal(now, address) {
            return Admission::Silent(refusal);
        }
        if self.under_way.contains(&address) {
            return Admission::Wait;
        }
        let count = self.by_origin.count(address.ip());
        if count >= config.identifying_per_silent_ip && self.some_failed_at(now, address) {
            return Admission::Full;
        }
        if count >= config.identifying_per_ip_max {
            return Admission::Wait;
        }
        self.by_origin.add(address.ip());
        self.under_way.insert(address);
        let silences = self.failed.get(&address).map_or(0, |failed| failed.silences);
        Admission::Ask(match (is_known, silences) {
            (false, 0) => Effort::AskAndReset,
            (false, SILENCES_MAX..) => Effort::Once,
            _ => Effort::Ask,
        })
    }

    /// Whether some ports of a busy address (or of addresses of its /64 network) do not answer, or not in the right way, so
    /// that its calls are not worth waiting for.
    fn some_failed_at(&self, now: Monotonic, address: SocketAddr) -> bool {
        const LOOKED_AT_MAX: usize = 64;
        let first = origin(address.ip());
        let last = match first {
            IpAddr::V4(_) => first,
            IpAddr::V6(network) => Ipv6Addr::from(u128::from(network) | u128::from(u64::MAX)).into(),
        };
        let all = SocketAddr::new(first, 0)..=SocketAddr::new(last, u16::MAX);
        self.failed.range(all).take(LOOKED_AT_MAX).any(|(_, failed)| now < failed.limited_until)
    }

    pub(crate) fn end(&mut self, address: SocketAddr) {
        if self.under_way.remove(&address) {
            self.by_origin.remove(address.ip());
        }
    }

    /// Records that `address` did not answer, or refused to. It is not queried again for a while. Returns how its calls are refused.
    pub(crate) fn note_silence(
        &mut self,
        config: &CallbackConfig,
        now: Monotonic,
        address: SocketAddr,
        is_known: bool,
    ) -> Refusal {
        let before = self.failed.get(&address).map_or(0, |failed| failed.silences);
        let silences = SILENCES_MAX.min(before + 1);
        let is_brief = is_known || silences < SILENCES_MAX;
        let refused_until = now + config.refused_after_silence(is_brief);
        let limited_until = now + config.refused_after_silence(is_known);
        let failed = Failed { refused_until, limited_until, silences };
        self.remember(address, failed);
        failed.refusal()
    }

    /// Records that the identification of `address` failed for a reason that says nothing about the client. It may be
    /// queried again at once, but the attempt may have taken long.
    pub(crate) fn note_failure(
        &mut self,
        config: &CallbackConfig,
        now: Monotonic,
        address: SocketAddr,
        is_known: bool,
    ) {
        let limited_until = now + config.refused_after_silence(is_known);
        let new = Failed { refused_until: now, limited_until, silences: 0 };
        let before = self.failed.get(&address);
        let limited_until = before.map_or(limited_until, |before| limited_until.max(before.limited_until));
        self.remember(address, Failed { limited_until, ..before.copied().unwrap_or(new) });
    }

    /// Records a sign of life from `address` other than an identification: it may be queried at once. The limit for its IP
    /// address remains, since a client that answers everything else can still hold identifications up.
    pub(crate) fn note_life(&mut self, address: SocketAddr) {
        if let Some(&failed) = self.failed.get(&address) {
            self.remember(address, Failed { refused_until: Monotonic(0), silences: 0, ..failed });
        }
    }

    fn remember(&mut self, address: SocketAddr, failed: Failed) {
        self.forget(address);
        if self.failed.len() >= FAILED_MAX
            && let Some(&(_, first)) = self.failed_order.first()
        {
            self.forget(first);
        }
        self.failed.insert(address, failed);
        self.failed_order.insert((failed.until(), address));
    }

    /// Forgets the failures of an address that has identified itself.
    pub(crate) fn forget(&mut self, address: SocketAddr) {
        if let Some(failed) = self.failed.remove(&address) {
            self.failed_order.remove(&(failed.until(), address));
        }
    }

    /// Drops the failures whose consequences ended before `since`.
    pub(crate) fn forget_before(&mut self, since: Monotonic) {
        while let Some(&(until, address)) = self.failed_order.first()
            && until < since
        {
            self.forget(address);
        }
    }

    #[cfg(test)]
    pub(crate) fn sizes(&self) -> (usize, usize) {
        assert_eq!(self.failed.len(), self.failed_order.len());
        (self.under_way.len(), self.failed.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn at(seconds: u64) -> Monotonic {
        Monotonic(0) + Duration::from_secs(seconds)
    }

    #[test]
    fn an_address_has_few_identifications_under_way() {
        let config = CallbackConfig {
            identifying_per_ip_max: 4,
            identifying_per_silent_ip: 2,
            ..CallbackConfig::default()
        };
        let address = |host: u8, port: u16| SocketAddr::from(([10, 0, 0, host], port));
        let mut identifying = Identifying::default();
        let mut begin = |now, address| identifying.begin(&config, now, address, false);
        assert_eq!(begin(at(0), address(1, 1)), Admission::Ask(Effort::AskAndReset));
        assert_eq!(begin(at(0), address(1, 1)), Admission::Wait);
        for port in 2..=4 {
            assert_eq!(begin(at(0), address(1, port)), Admission::Ask(Effort::AskAndReset));
        }
        assert_eq!(begin(at(0), address(1, 5)), Admission::Wait);
        assert_eq!(begin(at(0), address(2, 3)), Admission::Ask(Effort::AskAndReset));
        for port in [3, 4, 1] {
            identifying.end(address(1, port));
        }
        identifying.note_silence(&config, at(0), address(1, 1), false);
        let mut begin = |now, address| identifying.begin(&config, now, address, false);
        assert_eq!(begin(at(0), address(1, 3)), Admission::Ask(Effort::AskAndReset));
        assert_eq!(
            begin(at(0), address(1, 4)),
            Admission::Full,
            "an address with a silent port does not queue"
        );
        assert_eq!(begin(at(9), address(1, 1)), Admission::Silent(Refusal::Busy));
        assert_eq!(begin(at(59), address(1, 4)), Admission::Full, "for a minute");
        assert_eq!(begin(at(60), address(1, 4)), Admission::Ask(Effort::AskAndReset));
    }

    #[test]
    fn addresses_of_a_network_share_the_limit() {
        let config = CallbackConfig { identifying_per_silent_ip: 1, ..CallbackConfig::default() };
        let address = |text: &str| SocketAddr::new(text.parse().unwrap(), 7001);
        let mut identifying = Identifying::default();
        identifying.note_silence(&config, at(0), address("2001:db8::ffff:1"), false);
        let mut begin = |text| identifying.begin(&config, at(0), address(text), false);
        assert_eq!(begin("2001:db8::1"), Admission::Ask(Effort::AskAndReset));
        assert_eq!(begin("2001:db8::2"), Admission::Full);
        assert_eq!(begin("2001:db8:0:1::1"), Admission::Ask(Effort::AskAndReset));
        assert_eq!(begin("2001:db8:0:1::2"), Admission::Ask(Effort::AskAndReset));
    }

    /// The refusals and efforts of an address that is never heard of, and of one where a host is known.
    #[test]
    fn the_second_silence_in_a_row_makes_calls_fail() {
        let (config, peer) = (CallbackConfig::default(), SocketAddr::from(([10, 0, 0, 1], 7001)));
        let (busy, dead) = (Refusal::Busy, Refusal::Unreachable);
        let (reset, ask, once) = (Effort::AskAndReset, Effort::Ask, Effort::Once);
        let stranger = [(reset, busy, 10), (ask, dead, 60), (once, dead, 60), (once, dead, 60)];
        let known = [(ask, busy, 10), (ask, dead, 10), (ask, dead, 10), (ask, dead, 10)];
        for (is_known, attempts) in [(false, stranger), (true, known)] {
            let (mut identifying, mut now) = (Identifying::default(), 0);
            for (effort, refusal, seconds) in attempts {
                let begun = identifying.begin(&config, at(now), peer, is_known);
                assert_eq!(begun, Admission::Ask(effort), "after {now} s, known: {is_known}");
                identifying.end(peer);
                assert_eq!(identifying.note_silence(&config, at(now), peer, is_known), refusal);
                assert_eq!(identifying.refusal(at(now + seconds - 1), peer), Some(refusal));
                now += seconds;
                assert_eq!(identifying.refusal(at(now), peer), None);
            }
        }
    }

    /// What is learned of an address after it has been silent twice.
    #[test]
    fn only_signs_of_life_end_a_refusal() {
        let (config, peer) = (CallbackConfig::default(), SocketAddr::from(([10, 0, 0, 1], 7001)));
        let other = SocketAddr::from(([10, 0, 0, 1], 7002));
        let config = CallbackConfig { identifying_per_silent_ip: 0, ..config };
        let after = |learn: &dyn Fn(&mut Identifying)| {
            let mut identifying = Identifying::default();
            (0..2).for_each(|_| _ = identifying.note_silence(&config, at(0), peer, false));
            learn(&mut identifying);
            let next = identifying.note_silence(&config, at(1), other, true);
            identifying.forget(other);
            let limited = identifying.begin(&config, at(1), other, true) == Admission::Full;
            assert_eq!(next, Refusal::Busy);
            (identifying.refusal(at(1), peer), identifying.sizes().1, limited)
        };
        assert_eq!(after(&|_| ()), (Some(Refusal::Unreachable), 1, true));
        let failure = after(&|identifying| identifying.note_failure(&config, at(1), peer, false));
        assert_eq!(failure, (Some(Refusal::Unreachable), 1, true), "it says nothing about the client");
        assert_eq!(after(&|identifying| identifying.note_life(peer)), (None, 1, true));
        assert_eq!(after(&|identifying| identifying.forget(peer)), (None, 0, false));
    }

    #[test]
    fn a_failure_that_says_nothing_refuses_nothing() {
        let config = CallbackConfig { identifying_per_silent_ip: 0, ..CallbackConfig::default() };
        let peer = |port: u16| SocketAddr::from(([10, 0, 0, 1], port));
        let mut identifying = Identifying::default();
        identifying.note_failure(&config, at(0), peer(1), false);
        assert_eq!(identifying.refusal(at(0), peer(1)), None);
        assert_eq!(
            identifying.begin(&config, at(59), peer(2), false),
            Admission::Full,
            "it may have taken long"
        );
        assert_eq!(identifying.begin(&config, at(60), peer(1), false), Admission::Ask(Effort::AskAndReset));
        let silent = identifying.note_silence(&config, at(60), peer(1), false);
        assert_eq!(silent, Refusal::Busy, "the first silence");
    }

    #[test]
    fn failed_addresses_are_bounded_and_forgotten_in_order() {
        let (config, mut identifying) = (CallbackConfig::default(), Identifying::default());
        let address = |number: usize| SocketAddr::from(([10, 0, (number >> 8) as u8, number as u8], 7001));
        for number in 0..FAILED_MAX + 5 {
            identifying.note_silence(&config, at(number as u64), address(number), false);
        }
        assert_eq!(identifying.sizes(), (0, FAILED_MAX));
        assert_eq!(identifying.refusal(at(0), address(4)), None);
        assert_eq!(identifying.refusal(at(0), address(5)), Some(Refusal::Busy));
        identifying.forget_before(at(FAILED_MAX as u64 + 60));
        assert_eq!(identifying.sizes(), (0, 5));
    }
}
