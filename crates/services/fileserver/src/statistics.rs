//! GetStatistics and GetStatistics64.

use crate::call::FileCall;
use crate::counters::Operation;
use crate::server::FileServer;
use crate::wire::blocks;
use afs_idl::fs as rxafs;
use base::{AbortCode, CallContext, Monotonic};
use std::time::Duration;

/// Period after its last use of files during which a host counts as active.
const ACTIVE: Duration = Duration::from_secs(15 * 60);

/// The only version of GetStatistics64, which is also the number of its values.
const STATISTICS64_VERSION: i32 = 16;

/// The values that both calls report.
struct Figures {
    fetches: u64,
    fetch_datas: u64,
    fetched_bytes: u64,
    fetch_rate: u64,
    stores: u64,
    store_datas: u64,
    stored_bytes: u64,
    store_rate: u64,
    calls: u64,
    hosts: u64,
    active_hosts: u64,
    connections: u64,
    process_kib: u64,
}

/// Returns the bytes per second of transfer time.
fn rate(bytes: u64, time: Duration) -> u64 {
    bytes / time.as_secs().max(1)
}

impl FileCall<'_> {
    /// GetStatistics (146).
    pub(crate) fn get_statistics(
        &self,
        caller: &CallContext<'_>,
        _: rxafs::GetStatisticsRequest,
    ) -> Result<rxafs::GetStatisticsReply, AbortCode> {
        let server = self.server;
        server.idle_call(caller, Operation::GetStatistics, || {
            let figures = server.figures();
            let statistics = rxafs::ViceStatistics {
                current_time: server.clock().unix().0,
                start_time: server.started().0,
                current_connections: figures.connections as i32,
                total_vice_calls: figures.calls as u32,
                total_fetches: figures.fetches as u32,
                fetch_datas: figures.fetch_datas as u32,
                fetched_bytes: figures.fetched_bytes as u32,
                fetch_data_rate: figures.fetch_rate as i32,
                total_stores: figures.stores as u32,
                store_datas: figures.store_datas as u32,
                stored_bytes: figures.stored_bytes as u32,
                store_data_rate: figures.store_rate as i32,
                process_size: blocks(figures.process_kib),
                workstations: figures.hosts as i32,
                active_workstations: figures.active_hosts as i32,
                disks: server.disks(),
                ..rxafs::ViceStatistics::default()
            };
            Ok(rxafs::GetStatisticsReply { statistics })
        })
    }

    /// GetStatistics64 (65542).
    pub(crate) fn get_statistics64(
        &self,
        caller: &CallContext<'_>,
        request: rxafs::GetStatistics64Request,
    ) -> Result<rxafs::GetStatistics64Reply, AbortCode> {
        self.server.idle_call(caller, Operation::GetStatistics, || {
            if request.version != STATISTICS64_VERSION {
                return Err(AbortCode::UAEINVAL);
            }
            Ok(rxafs::GetStatistics64Reply { statistics: self.server.statistics64() })
        })
    }
}

impl FileServer {
    fn figures(&self) -> Figures {
        let calls = |operation| self.counters().operation(operation).calls;
        let [fetched, stored] = self.counters().transfers();
        let recently =
            Monotonic(self.clock().monotonic().since(Monotonic(ACTIVE.as_nanos() as u64)).as_nanos() as u64);
        let hosts = self.hosts().state();
        Figures {
            fetches: calls(Operation::FetchData) + calls(Operation::FetchACL) + calls(Operation::FetchStatus),
            fetch_datas: calls(Operation::FetchData),
            fetched_bytes: fetched.bytes,
            fetch_rate: rate(fetched.bytes, fetched.transfers.time),
            stores: calls(Operation::StoreData) + calls(Operation::StoreACL) + calls(Operation::StoreStatus),
            store_datas: calls(Operation::StoreData),
            stored_bytes: stored.bytes,
            store_rate: rate(stored.bytes, stored.transfers.time),
            calls: self.counters().all_calls(),
            hosts: hosts.counters().hosts,
            active_hosts: hosts.active_hosts(recently) as u64,
            connections: self.transport().server_connections,
            process_kib: self.process_kib(),
        }
    }

    fn disks(&self) -> [rxafs::ViceDisk; 10] {
        let mut disks: [rxafs::ViceDisk; 10] =
            std::array::from_fn(|_| rxafs::ViceDisk { total_blocks: -1, ..rxafs::ViceDisk::default() });
        for (disk, partition) in disks.iter_mut().zip(self.volumes().partitions()) {
            let Ok(space) = self.volumes().space(partition) else { continue };
            disk.total_blocks = blocks(space.total_kib);
            disk.blocks_available = blocks(space.free_kib);
            let name = partition.to_string();
            disk.name[..name.len()].copy_from_slice(name.as_bytes());
        }
        disks
    }

    fn statistics64(&self) -> Vec<u64> {
        use rxafs::statistics64_index as place;
        let figures = self.figures();
        let mut statistics = vec![0; rxafs::STATISTICS64_MAX];
        let mut set = |place: usize, value: u64| statistics[place] = value;
        set(place::CURRENT_TIME, u64::from(self.clock().unix().0));
        set(place::START_TIME, u64::from(self.started().0));
        set(place::CURRENT_CONNECTIONS, figures.connections);
        set(place::TOTAL_FETCHES, figures.fetches);
        set(place::FETCH_DATAS, figures.fetch_datas);
        set(place::FETCHED_BYTES, figures.fetched_bytes);
        set(place::FETCH_DATA_RATE, figures.fetch_rate);
        set(place::TOTAL_STORES, figures.stores);
        set(place::STORE_DATAS, figures.store_datas);
        set(place::STORED_BYTES, figures.stored_bytes);
        set(place::STORE_DATA_RATE, figures.store_rate);
        set(place::TOTAL_VICE_CALLS, figures.calls);
        set(place::WORKSTATIONS, figures.hosts);
        set(place::ACTIVE_WORKSTATIONS, figures.active_hosts);
        set(place::PROCESS_SIZE, figures.process_kib);
        statistics
    }
}
