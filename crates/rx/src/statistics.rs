//! What the driver counts, and the plain numbers it gives out.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counters {
    ($(#[$about:meta])* $live:ident => $plain:ident { $($(#[$doc:meta])* $name:ident,)* }) => {
        /// The running counters; any thread may add.
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
            /// The numbers now.
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
    /// What one lane has moved since it started.
    LaneCounters => LaneStatistics {
        /// Datagrams received.
        datagrams_received,
        /// Bytes in them, without UDP and IP headers.
        bytes_received,
        /// System calls that received something.
        receive_batches,
        /// Messages in which the kernel had merged several datagrams.
        merged_receives,
        /// Datagrams longer than a receive buffer, thrown away.
        truncated,
        /// Datagrams dropped by the kernel at this lane's sockets, mostly for want of buffer.
        kernel_drops,
        /// Datagrams of another lane's peers, handed over to it.
        handed_over,
        /// Datagrams that could not be handed over because the other lane was behind.
        handover_drops,
        /// Datagrams sent.
        datagrams_sent,
        /// Bytes in them, without UDP and IP headers.
        bytes_sent,
        /// System calls that sent something.
        send_batches,
        /// Messages that the kernel cut into several datagrams.
        segmented_sends,
        /// Times the kernel or device refused to cut, and we sent one by one.
        segmentation_fallbacks,
        /// Waits for room in the send buffer.
        send_waits,
        /// Datagrams given up because the kernel refused them.
        send_errors,
        /// Errors that the network reported about datagrams sent earlier.
        errors_reported,
        /// Times the lane's thread woke up.
        wakeups,
        /// Nanoseconds that it had nothing to do.
        idle_ns,
        /// Faults caught in the lane's thread; each is a bug.
        faults,
    }
}

counters! {
    /// What the workers of one server have done since it started.
    CallCounters => CallStatistics {
        /// Calls that arrived.
        arrived,
        /// Calls that a service ended without an error.
        succeeded,
        /// Of those, calls that the receiving thread answered itself.
        answered_at_once,
        /// Calls that a service ended with an abort code.
        failed,
        /// Calls refused because too many were waiting.
        refused_busy,
        /// Services that panicked; each is a bug, and its call was aborted.
        panicked,
    }
}

/// What one server has done since it started.
#[derive(Clone, Debug, Default)]
pub struct ServerStatistics {
    /// Sockets and threads, one entry per lane.
    pub lanes: Vec<LaneStatistics>,
    /// Protocol, one entry per lane.
    pub endpoints: Vec<rx_proto::Statistics>,
    /// Calls.
    pub calls: CallStatistics,
    /// Calls waiting for a worker now.
    pub waiting_calls: usize,
    /// Worker threads now, those among them that stand in for others that wait for their clients.
    pub worker_threads: usize,
    /// Calls that may be served at a time, besides those that wait for their clients.
    pub workers_limit: usize,
    /// Calls wait, and no worker may take one of them.
    pub workers_full: bool,
    /// Workers that are serving a call now.
    pub busy_workers: usize,
    /// Receive buffer that the kernel gave each socket, in bytes of payload asked for.
    pub receive_buffer_bytes: usize,
    /// Send buffer that the kernel gave each socket, in bytes of payload asked for.
    pub send_buffer_bytes: usize,
}

impl ServerStatistics {
    /// The sum over all lanes.
    pub fn total(&self) -> LaneStatistics {
        let mut total = LaneStatistics::default();
        for lane in &self.lanes {
            total += *lane;
        }
        total
    }
}

/// A number that only grows; exact in sum, not ordered with anything else.
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
