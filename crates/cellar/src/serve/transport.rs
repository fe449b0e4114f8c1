//! What the network loses at the server's own sockets, and what to do about it.

use afs_idl::cellar::GetTransportReply;
use load::watch;
use rx::ServerStatistics;

/// The counters of a port as `cellar server status` shows them; `wanted_bytes` is the receive buffer
/// that its sockets were to have.
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

/// What to do about buffers that are too small, if they are.
pub fn advice(buffer_kib: u64, wanted_kib: u64) -> Option<String> {
    (buffer_kib < wanted_kib).then(|| {
        format!(
            "the system gives a socket {buffer_kib} KiB of receive buffer instead of {wanted_kib}: datagrams \
             will be lost when many clients call at once; run `sysctl -w net.core.rmem_max={}` and put that \
             into /etc/sysctl.d, or give the server CAP_NET_ADMIN, and start it again",
            wanted_kib * 1024
        )
    })
}

/// Says so in the log when a port is opened.
pub fn warn_of_small_buffers(role: &str, statistics: &ServerStatistics, wanted_bytes: usize) {
    if let Some(advice) = advice(kib(statistics.receive_buffer_bytes), kib(wanted_bytes)) {
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
    fn advice_names_the_limit_to_raise() {
        assert_eq!(advice(16_384, 16_384), None);
        assert_eq!(advice(32_768, 16_384), None);
        let text = advice(208, 16_384).unwrap();
        assert!(text.contains("208 KiB") && text.contains("net.core.rmem_max=16777216"), "{text}");
    }

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
