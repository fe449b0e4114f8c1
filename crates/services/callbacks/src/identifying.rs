//! Identifications in progress, and addresses where the last one failed.

use crate::config::CallbackConfig;
use crate::message::Effort;
use crate::ranking::origin;
use base::Monotonic;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

/// Maximum number of addresses remembered as silent; those that expire first are dropped.
const SILENT_MAX: usize = 10_000;

/// The decision about an unidentified caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    /// Query it now.
    Ask(Effort),
    /// A query is in progress, or will start soon.
    Wait,
    /// It failed to answer recently.
    Silent,
    /// Too many queries are in progress at its address, and some remain unanswered.
    Full,
}

#[derive(Clone, Copy, Debug)]
struct Silence {
    until: Monotonic,
    /// Whether a host was known at the address.
    was_known: bool,
}

/// See the module documentation.
#[derive(Debug, Default)]
pub(crate) struct Identifying {
    under_way: BTreeSet<SocketAddr>,
    /// Number of identifications in progress per origin.
    by_origin: BTreeMap<IpAddr, usize>,
    silent: BTreeMap<SocketAddr, Silence>,
    silent_order: BTreeSet<(Monotonic, SocketAddr)>,
}

impl Identifying {
    /// Whether `address` failed to answer recently.
    pub(crate) fn is_silent(&self, now: Monotonic, address: SocketAddr) -> bool {
        self.silent.get(&address).is_some_and(|silence| now < silence.until)
    }

    /// Starts an identification if the limits allow it. [`Identifying::end`] ends it.
    pub(crate) fn begin(
        &mut self,
        config: &CallbackConfig,
        now: Monotonic,
        address: SocketAddr,
        is_known: bool,
    ) -> Admission {
        if self.is_silent(now, address) {
            return Admission::Silent;
        }
        if self.under_way.contains(&address) {
            return Admission::Wait;
        }
        let count = self.by_origin.get(&origin(address.ip())).copied().unwrap_or_default();
        if count >= config.identifying_per_silent_ip && self.some_silent_at(now, address) {
            return Admission::Full;
        }
        if count >= config.identifying_per_ip_max {
            return Admission::Wait;
        }
        *self.by_origin.entry(origin(address.ip())).or_default() += 1;
        self.under_way.insert(address);
        Admission::Ask(match (is_known, self.silent.get(&address)) {
            (true, _) => Effort::Ask,
            (false, Some(silence)) if !silence.was_known => Effort::Once,
            (false, _) => Effort::AskAndReset,
        })
    }

    /// Whether some ports of a busy address (or of addresses of its /64 network) do not answer, so that its calls
    /// are not worth waiting for.
    fn some_silent_at(&self, now: Monotonic, address: SocketAddr) -> bool {
        const LOOKED_AT_MAX: usize = 64;
        let first = origin(address.ip());
        let last = match first {
            IpAddr::V4(_) => first,
            IpAddr::V6(network) => Ipv6Addr::from(u128::from(network) | u128::from(u64::MAX)).into(),
        };
        let all = SocketAddr::new(first, 0)..=SocketAddr::new(last, u16::MAX);
        let silences = self.silent.range(all).take(LOOKED_AT_MAX);
        silences.into_iter().any(|(_, silence)| now < silence.until)
    }

    pub(crate) fn end(&mut self, address: SocketAddr) {
        if !self.under_way.remove(&address) {
            return;
        }
        let origin = origin(address.ip());
        if let Some(count) = self.by_origin.get_mut(&origin) {
            *count -= 1;
            if *count == 0 {
                self.by_origin.remove(&origin);
            }
        }
    }

    /// Records that `address` did not answer, and is not queried again before `until`.
    pub(crate) fn remember_silence(&mut self, address: SocketAddr, until: Monotonic, was_known: bool) {
        self.forget_silence(address);
        if self.silent.len() >= SILENT_MAX
            && let Some(&(_, first)) = self.silent_order.first()
        {
            self.forget_silence(first);
        }
        self.silent.insert(address, Silence { until, was_known });
        self.silent_order.insert((until, address));
    }

    pub(crate) fn forget_silence(&mut self, address: SocketAddr) {
        if let Some(silence) = self.silent.remove(&address) {
            self.silent_order.remove(&(silence.until, address));
        }
    }

    /// Drops the silences that ended before `since`.
    pub(crate) fn forget_silences_before(&mut self, since: Monotonic) {
        while let Some(&(until, address)) = self.silent_order.first()
            && until < since
        {
            self.forget_silence(address);
        }
    }

    #[cfg(test)]
    pub(crate) fn sizes(&self) -> (usize, usize) {
        assert_eq!(self.silent.len(), self.silent_order.len());
        (self.under_way.len(), self.silent.len())
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
        identifying.remember_silence(address(1, 1), at(60), false);
        let mut begin = |now, address| identifying.begin(&config, now, address, false);
        assert_eq!(begin(at(0), address(1, 3)), Admission::Ask(Effort::AskAndReset));
        assert_eq!(
            begin(at(0), address(1, 4)),
            Admission::Full,
            "an address with a silent port does not queue"
        );
        assert_eq!(begin(at(59), address(1, 1)), Admission::Silent);
        identifying.end(address(1, 2));
        assert_eq!(identifying.begin(&config, at(60), address(1, 1), false), Admission::Ask(Effort::Once));
    }

    #[test]
    fn addresses_of_a_network_share_the_limit() {
        let config = CallbackConfig { identifying_per_silent_ip: 1, ..CallbackConfig::default() };
        let address = |text: &str| SocketAddr::new(text.parse().unwrap(), 7001);
        let mut identifying = Identifying::default();
        identifying.remember_silence(address("2001:db8::ffff:1"), at(60), false);
        let mut begin = |text| identifying.begin(&config, at(0), address(text), false);
        assert_eq!(begin("2001:db8::1"), Admission::Ask(Effort::AskAndReset));
        assert_eq!(begin("2001:db8::2"), Admission::Full);
        assert_eq!(begin("2001:db8:0:1::1"), Admission::Ask(Effort::AskAndReset));
        assert_eq!(begin("2001:db8:0:1::2"), Admission::Ask(Effort::AskAndReset));
    }

    #[test]
    fn silent_addresses_are_bounded_and_forgotten_in_order() {
        let mut identifying = Identifying::default();
        let address = |number: usize| SocketAddr::from(([10, 0, (number >> 8) as u8, number as u8], 7001));
        for number in 0..SILENT_MAX + 5 {
            identifying.remember_silence(address(number), at(number as u64), false);
        }
        assert_eq!(identifying.sizes(), (0, SILENT_MAX));
        assert!(!identifying.is_silent(at(0), address(4)) && identifying.is_silent(at(0), address(5)));
        identifying.forget_silences_before(at(SILENT_MAX as u64));
        assert_eq!(identifying.sizes(), (0, 5));
    }
}
