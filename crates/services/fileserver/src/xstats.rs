//! Extended statistics: XStatsVersion and GetXStats, in the layout that `xstat_fs_test` expects
//! (`viced/fs_stats.h`, on a 64-bit little-endian server).

use crate::call::FileCall;
use crate::counters::{Operation, OperationCount, TransferCount, XSTAT_OPERATIONS};
use crate::server::FileServer;
use afs_idl::fs as rxafs;
use base::{AbortCode, CallContext};
use std::time::Duration;

/// Version of the statistics (AFS_XSTAT_VERSION).
const VERSION: i32 = 2;
/// Number of words of struct afs_PerfStats.
const PERFORMANCE_WORDS: usize = 98;
/// Number of words of struct fs_stats_FullPerfStats on platforms where a time takes two 64-bit numbers.
const FULL_PERFORMANCE_WORDS: usize = 666;
/// Initial values of minima: seconds, and bytes.
const NO_TIME: Duration = Duration::from_secs(999_999);
const NO_BYTES: u64 = 999_999_999;

/// The words of a C structure in order.
#[derive(Debug, Default)]
struct Words(Vec<i32>);

impl Words {
    fn put(&mut self, value: u64) {
        self.0.push(value as i32);
    }

    fn put_all(&mut self, values: &[u64]) {
        for &value in values {
            self.put(value);
        }
    }

    fn zeros(&mut self, count: usize) {
        self.0.resize(self.0.len() + count, 0);
    }

    /// Writes a struct timeval of a 64-bit little-endian machine: low and high word of seconds and of
    /// microseconds. The high words are 0, from which readers infer the byte order.
    fn time_parts(&mut self, seconds: u64, microseconds: u64) {
        self.put_all(&[seconds, 0, microseconds, 0]);
    }

    fn time(&mut self, time: Duration) {
        self.time_parts(time.as_secs(), u64::from(time.subsec_micros()));
    }

    /// Writes a time as two words, seconds and microseconds.
    fn short_time(&mut self, time: Duration) {
        self.put_all(&[time.as_secs(), u64::from(time.subsec_micros())]);
    }

    /// Writes numOps, numSuccesses, sum, sum of squares, minimum, maximum.
    fn operation(&mut self, count: &OperationCount) {
        const SQUARE: u64 = 1_000_000_000_000;
        self.put_all(&[count.calls, count.successes]);
        self.time(count.time);
        self.time_parts(count.time_squares_us2 / SQUARE, count.time_squares_us2 % SQUARE / 1_000_000);
        self.time(if count.successes == 0 { NO_TIME } else { count.time_min });
        self.time(count.time_max);
    }

    fn transfer(&mut self, count: &TransferCount) {
        self.operation(&count.transfers);
        let bytes_min = if count.transfers.successes == 0 { NO_BYTES } else { count.bytes_min };
        self.put_all(&[count.bytes / 1024, bytes_min, count.bytes_max]);
        self.put_all(&count.by_size);
    }
}

impl FileCall<'_> {
    /// XStatsVersion (159).
    pub(crate) fn x_stats_version(
        &self,
        _: &CallContext<'_>,
        _: rxafs::XStatsVersionRequest,
    ) -> Result<rxafs::XStatsVersionReply, AbortCode> {
        self.server.counted(Operation::XStatsVersion, || Ok(rxafs::XStatsVersionReply { version: VERSION }))
    }

    /// GetXStats (160).
    pub(crate) fn get_x_stats(
        &self,
        _: &CallContext<'_>,
        request: rxafs::GetXStatsRequest,
    ) -> Result<rxafs::GetXStatsReply, AbortCode> {
        use rxafs::statistics_collection as collections;
        let server = self.server;
        server.counted(Operation::GetXStats, || {
            let data = match request.collection {
                collections::CALL_INFO => Vec::new(),
                collections::PERFORMANCE => server.performance().0,
                collections::FULL_PERFORMANCE => server.full_performance(),
                collections::CALLBACKS => server.callback_statistics(),
                _ => return Err(AbortCode(1)),
            };
            Ok(rxafs::GetXStatsReply { server_version: VERSION, time: server.clock().unix().0 as i32, data })
        })
    }
}

impl FileServer {
    /// Returns struct afs_PerfStats.
    fn performance(&self) -> Words {
        let mut words = Words::default();
        words.put(self.counters().count_statistics_call());
        self.put_volume_caches(&mut words);
        self.put_transport(&mut words);
        self.put_hosts(&mut words);
        let transport = self.transport();
        // sysname_ID, rx_nBusies, fs_nBusies, fs_nGetCaps
        let capabilities = self.counters().operation(Operation::GetCapabilities).calls;
        words.put_all(&[0, transport.calls_turned_away, self.counters().busy(), capabilities]);
        words.0.resize(PERFORMANCE_WORDS, 0);
        words
    }

    /// Writes vcache_L_*, vcache_S_*, vcache_H_*, dir_*. Vnodes of both sizes share one cache, reported as
    /// the small one; headers stay in memory once loaded.
    fn put_volume_caches(&self, words: &mut Words) {
        let volume::CacheReport { status, directories, .. } = self.volumes().caches();
        let headers = self.volumes().loaded_count();
        words.zeros(5);
        words.put_all(&[status.entries, status.entries, status.hits + status.misses, status.misses, 0]);
        words.put_all(&[headers as u64, self.counters().all_calls(), 0]);
        words.put_all(&[directories.entries, directories.hits + directories.misses, directories.misses]);
    }

    /// Writes rx_packetRequests to rx_nFreeCallStructs: 41 words.
    fn put_transport(&self, words: &mut Words) {
        let figures = self.transport();
        words.put(figures.packets_read + figures.packets_sent);
        // Packet allocation never fails here, and the socket buffer has the requested size.
        words.zeros(3);
        words.put_all(&[1, figures.bogus_packets_read]);
        words.zeros(5);
        words.put_all(&[figures.packets_read, 0, 0]);
        words.put_all(&[
            figures.data_packets_read,
            figures.ack_packets_read,
            figures.duplicate_packets_read,
            figures.spurious_packets_read,
        ]);
        words.put_all(&[0, figures.packets_sent, 0]);
        words.put_all(&[
            figures.ack_packets_sent,
            figures.ping_packets_sent,
            figures.abort_packets_sent,
            figures.busy_packets_sent,
            figures.data_packets_sent,
            figures.data_packets_resent,
        ]);
        words.zeros(2);
        words.short_time(figures.round_trip_total);
        words.short_time(figures.round_trip_min);
        words.short_time(figures.round_trip_max);
        words.put_all(&[
            figures.round_trips,
            figures.server_connections,
            figures.client_connections,
            figures.peers,
            figures.calls,
            0,
        ]);
    }

    /// Writes host_NumHostEntries to host_ClientBlocks: 8 words. All hosts count as being on other networks,
    /// as in OpenAFS without a list of its own addresses.
    fn put_hosts(&self, words: &mut Words) {
        let hosts = self.callback_counters().hosts;
        words.put_all(&[hosts, 0, hosts, 0, 0, hosts, self.subjects().len() as u64, 0]);
    }

    /// Returns struct fs_stats_FullPerfStats.
    fn full_performance(&self) -> Vec<i32> {
        let mut words = self.performance();
        words.time_parts(u64::from(self.started().0), 0);
        for &operation in &Operation::ALL[..XSTAT_OPERATIONS] {
            words.operation(&self.counters().operation(operation));
        }
        for transfer in self.counters().transfers() {
            words.transfer(&transfer);
        }
        debug_assert_eq!(words.0.len(), FULL_PERFORMANCE_WORDS);
        words.0
    }

    /// Returns struct cbcounters.
    fn callback_statistics(&self) -> Vec<i32> {
        self.counters().count_statistics_call();
        let counters = self.callback_counters();
        let mut words = Words::default();
        words.put_all(&[
            counters.files_deleted,
            counters.promises_deleted,
            counters.breaks,
            counters.promises_made,
            counters.space_searches,
            counters.hosts_cleared,
            counters.files,
            counters.promises,
            counters.promises_max,
            counters.expired,
            counters.deliveries_under_way,
            counters.cleared_asking_host,
            counters.cleared_asking_host,
            counters.cleared_expired,
            counters.cleared_idle_host,
            0,
        ]);
        words.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structures_have_the_words_that_tools_count() {
        let mut words = Words::default();
        words.zeros(PERFORMANCE_WORDS);
        words.time_parts(1, 0);
        (0..XSTAT_OPERATIONS).for_each(|_| words.operation(&OperationCount::default()));
        (0..2).for_each(|_| words.transfer(&TransferCount::default()));
        assert_eq!(words.0.len(), FULL_PERFORMANCE_WORDS);
    }

    #[test]
    fn squares_of_times_are_seconds_and_microseconds() {
        let mut words = Words::default();
        let count = OperationCount {
            calls: 1,
            successes: 1,
            time: Duration::from_millis(1_500),
            time_squares_us2: 1_500_000 * 1_500_000,
            ..OperationCount::default()
        };
        words.operation(&count);
        assert_eq!(words.0[..10], [1, 1, 1, 0, 500_000, 0, 2, 0, 250_000, 0]);
    }
}
