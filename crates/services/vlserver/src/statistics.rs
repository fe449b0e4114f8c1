//! Counts calls by procedure (VL_GetStats).

use afs_idl::vl::{OPCODES, Stats};
use base::{AbortCode, UnixTime};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// The lowest opcode that is counted.
const FIRST_OPCODE: u32 = 501;

/// Counters by opcode since the start of the program.
pub(crate) struct Statistics {
    start: UnixTime,
    requests: [AtomicU32; OPCODES],
    aborts: [AtomicU32; OPCODES],
}

impl Statistics {
    pub(crate) fn new(start: UnixTime) -> Statistics {
        let zeros = || std::array::from_fn(|_| AtomicU32::new(0));
        Statistics { start, requests: zeros(), aborts: zeros() }
    }

    /// Counts a call and, if it fails, its abort.
    pub(crate) fn count<T>(
        &self,
        opcode: u32,
        serve: impl FnOnce() -> Result<T, AbortCode>,
    ) -> Result<T, AbortCode> {
        let add = |counters: &[AtomicU32]| {
            if let Some(counter) = counters.get(opcode.wrapping_sub(FIRST_OPCODE) as usize) {
                counter.fetch_add(1, Relaxed);
            }
        };
        add(&self.requests);
        serve().inspect_err(|_| add(&self.aborts))
    }

    pub(crate) fn wire(&self) -> Stats {
        let values = |counters: &[AtomicU32]| counters.iter().map(|n| n.load(Relaxed) as i32).collect();
        Stats {
            start_time: self.start.0,
            requests: values(&self.requests),
            aborts: values(&self.aborts),
            reserved: [0; 5],
        }
    }
}
