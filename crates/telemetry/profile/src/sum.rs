//! Totals per stack.

use events::Figures;

/// Maximum number of rows in a table of stacks, per waiting thread or for all running threads together.
pub(crate) const ROWS_MAX: usize = 4096;

/// Number, total and maximum duration, and bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sum {
    pub(crate) count: u64,
    pub(crate) ns: u64,
    pub(crate) longest_ns: u64,
    pub(crate) bytes: u64,
}

impl Sum {
    /// Adds one event.
    pub(crate) fn record(&mut self, ns: u64, bytes: u64) {
        self.add(&Sum { count: 1, ns, longest_ns: ns, bytes });
    }
}

impl Figures for Sum {
    fn add(&mut self, other: &Sum) {
        self.count = self.count.saturating_add(other.count);
        self.ns = self.ns.saturating_add(other.ns);
        self.longest_ns = self.longest_ns.max(other.longest_ns);
        self.bytes = self.bytes.saturating_add(other.bytes);
    }

    fn since(&self, before: &Sum) -> Option<Sum> {
        Some(Sum {
            count: self.count.checked_sub(before.count)?,
            ns: self.ns.checked_sub(before.ns)?,
            longest_ns: self.longest_ns,
            bytes: self.bytes.checked_sub(before.bytes)?,
        })
    }

    fn weight(&self) -> u64 {
        self.ns
    }
}
