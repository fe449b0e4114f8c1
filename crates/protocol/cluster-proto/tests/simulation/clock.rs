//! The clock of a node.

use base::Monotonic;

pub(crate) const MS: u64 = 1_000_000;
pub(crate) const SECOND: u64 = 1000 * MS;

/// A monotonic clock that runs at a rate of its own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    real: u64,
    local: u64,
    per_mille: u64,
}

impl Clock {
    pub(crate) fn new(real: u64, local: u64, per_mille: u64) -> Clock {
        Clock { real, local, per_mille }
    }

    /// Returns what the clock shows.
    pub(crate) fn at(&self, real: u64) -> Monotonic {
        Monotonic(self.local + real.saturating_sub(self.real) * self.per_mille / 1000)
    }

    /// Returns the first real time at which the clock shows `local`.
    pub(crate) fn real(&self, local: Monotonic) -> u64 {
        self.real + (local.0.saturating_sub(self.local) * 1000).div_ceil(self.per_mille)
    }

    /// Changes the rate.
    pub(crate) fn set_rate(&mut self, real: u64, per_mille: u64) {
        *self = Clock { real, local: self.at(real).0, per_mille };
    }
}
