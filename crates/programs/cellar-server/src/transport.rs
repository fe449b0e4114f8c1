//! Datagram losses at the server's own sockets.

use afs_idl::cellar::GetTransportReply;
use doctor::network::small_buffers;
use load::watch;
use rx::ServerStatistics;

/// Returns a port's counters for `cellar server status`; `wanted_bytes` is the intended size of its sockets'
/// receive buffers.
pub fn reply(statistics: &ServerStatistics, wanted_bytes: usize) -> GetTransportReply {
    GetTransportReply {
        sockets: statistics.lanes.len() as u32,
        buffer_wanted_kib: kib(wanted_bytes),
        buffer_kib: kib(statistics.receive_buffer_bytes),
        dropped: statistics.total().kernel_drops,
        machine_dropped: watch::udp_drops_of_machine(),
        waiting: statistics.waiting_calls as u32,
        arrived: statistics.calls.arrived,
        refused: statistics.calls.refused_busy,
        busy: statistics.busy_workers as u32,
        threads: statistics.worker_threads as u32,
    }
}

/// Logs a warning if the receive buffers of a newly opened port are too small.
pub fn warn_of_small_buffers(role: &str, statistics: &ServerStatistics, wanted_bytes: usize) {
    if let Some(advice) = small_buffers(kib(statistics.receive_buffer_bytes), kib(wanted_bytes)) {
        tracing::warn!(role, "{advice}");
    }
}

fn kib(bytes: usize) -> u64 {
    bytes as u64 / 1024
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_sums_over_lanes() {
        let lane = rx::LaneStatistics { kernel_drops: 3, ..rx::LaneStatistics::default() };
        let statistics = ServerStatistics {
            lanes: vec![lane; 2],
            receive_buffer_bytes: 212_992,
            waiting_calls: 7,
            ..ServerStatistics::default()
        };
        let reply = reply(&statistics, 16 << 20);
        assert_eq!((reply.sockets, reply.dropped, reply.waiting), (2, 6, 7));
        assert_eq!((reply.buffer_kib, reply.buffer_wanted_kib), (208, 16_384));
    }
}
