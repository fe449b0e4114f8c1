//! Counters of the driver, and their snapshots.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counters {
    ($(#[$about:meta])* $live:ident => $plain:ident { $($(#[$doc:meta])* $name:ident,)* }) => {
        /// The live counters; any thread may add.
        #[derive(Debug, Default)]
        pub(crate) struct $live {
            $(pub(crate) $name: Counter,)*
        }

        $(#[$about])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $plain {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl $live {
            /// Returns the current values.
            pub(crate) fn snapshot(&self) -> $plain {
                $plain { $($name: self.$name.get(),)* }
            }
        }

        impl std::ops::AddAssign for $plain {
            fn add_assign(&mut self, other: $plain) {
                $(self.$name += other.$name;)*
            }
        }
    };
}

counters! {
    /// Traffic of one lane since it started.
    LaneCounters => LaneStatistics {
        /// Datagrams received.
        datagrams_received,
        /// Bytes in them, without UDP and IP headers.
        bytes_received,
        /// System calls that received at least one datagram.
        receive_batches,
        /// Messages in which the kernel had merged several datagrams.
        merged_receives,
        /// Datagrams longer than a receive buffer, thrown away.
        truncated,
        /// Datagrams longer than a receive buffer, discarded.
        kernel_drops,
        /// Datagrams that the kernel dropped at this lane's sockets, mostly for lack of buffer space.
        handed_over,
        /// Datagrams handed over to the lane of their peer.
        handover_drops,
        /// Datagrams dropped because the inbox of their lane was full.
        datagrams_sent,
        /// Bytes in them, without UDP and IP headers.
        bytes_sent,
        /// System calls that sent at least one datagram.
        send_batches,
        /// Messages that the kernel segmented into several datagrams.
        segmented_sends,
        /// Times the kernel or device refused to segment, and the datagrams were sent one by one.
        segmentation_fallbacks,
        /// Waits for space in the send buffer.
        send_waits,
        /// Datagrams dropped because the kernel refused them.
        send_errors,
        /// Errors reported by the network about datagrams sent earlier.
        errors_reported,
        /// Times the lane's thread woke up.
        wakeups,
        /// Nanoseconds during which the lane's thread was idle.
        idle_ns,
        /// Panics caught in the lane's thread; each is a bug.
        faults,
    }
}

counters! {
    /// Work of one server's workers since it started.
    CallCounters => CallStatistics {
        /// Calls that arrived.
        arrived,
        /// Calls that a service completed without an error.
        succeeded,
        /// Successful calls that the receiving thread answered itself.
        answered_at_once,
        /// Calls that a service ended with an abort code.
        failed,
        /// Calls refused because too many were waiting.
        refused_busy,
        /// Panics of services; each is a bug, and its call was aborted.
        panicked,
    }
}

/// Statistics of one server since it started.
#[derive(Clone, Debug, Default)]
pub struct ServerStatistics {
    /// Socket and thread counters, one entry per lane.
    pub lanes: Vec<LaneStatistics>,
    /// Protocol counters, one entry per lane.
    pub endpoints: Vec<rx_proto::Statistics>,
    /// Call counters.
    pub calls: CallStatistics,
    /// Calls currently waiting for a worker.
    pub waiting_calls: usize,
    /// Current worker threads, including stand-ins for workers that wait for their clients.
    pub worker_threads: usize,
    /// Number of calls that may be served at a time, not counting those that wait for their clients.
    pub workers_limit: usize,
    /// Whether calls wait and no worker may take one of them.
    pub workers_full: bool,
    /// Workers currently serving a call.
    pub busy_workers: usize,
    /// Receive buffer that the kernel granted each socket, in bytes of payload as requested.
    pub receive_buffer_bytes: usize,
    /// Send buffer that the kernel granted each socket, in bytes of payload as requested.
    pub send_buffer_bytes: usize,
}

impl ServerStatistics {
    /// Returns the sum over all lanes.
    pub fn total(&self) -> LaneStatistics {
        let mut total = LaneStatistics::default();
        for lane in &self.lanes {
            total += *lane;
        }
        total
    }
}

/// A monotonic counter: its sum is exact, but it is not ordered with other memory accesses.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, amount: usize) {
        self.0.fetch_add(amount as u64, Ordering::Relaxed);
    }

    pub(crate) fn increment(&self) {
        self.add(1);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
