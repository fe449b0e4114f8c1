//! Links snapshots to the rest of the cell: entries in the location database, possibly on other machines, and
//! the other services of this process.

use adminserver::{AdminServer, SnapshotEntry, SnapshotHost};
use afs_idl::vl;
use base::{AbortCode, PartitionId, VolumeId};
use cell_client::{CellClient, Interface};
use cellar_config::Settings;
use fileserver::FileServer;
use std::net::Ipv4Addr;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;
use volserver::VolumeServer;

/// Interval at which due snapshots are checked.
const PERIOD: Duration = Duration::from_secs(5);

/// Error for a server that announces no address and therefore can have no entry.
const NO_ADDRESS: AbortCode = AbortCode::VL_BADSERVER;

/// The cell around a file server.
pub struct CellSnapshots {
    settings: Arc<Settings>,
    cell: Arc<CellClient>,
    file_server: Arc<FileServer>,
    /// Set after the file server is created; empty if the process does not have the role.
    volume_server: OnceLock<Arc<VolumeServer>>,
}

impl CellSnapshots {
    /// Creates it without a volume server.
    pub fn new(
        settings: &Arc<Settings>,
        cell: &Arc<CellClient>,
        file_server: &Arc<FileServer>,
    ) -> CellSnapshots {
        let (settings, cell, file_server) = (settings.clone(), cell.clone(), file_server.clone());
        CellSnapshots { settings, cell, file_server, volume_server: OnceLock::new() }
    }

    /// Sets the volume server, once.
    pub fn set_volume_server(&self, server: Arc<VolumeServer>) {
        let _ = self.volume_server.set(server);
    }

    fn locations<T>(
        &self,
        call: impl Fn(&dyn afs_idl::ClientConnection) -> Result<T, AbortCode>,
    ) -> Result<T, AbortCode> {
        self.cell.database(Interface::Locations, call)
    }

    fn address(&self) -> Result<Ipv4Addr, AbortCode> {
        let now = self.settings.announced_now().and_then(|now| now.addresses.first().copied());
        now.or(self.settings.announce.first().copied()).ok_or(NO_ADDRESS)
    }
}

impl SnapshotHost for CellSnapshots {
    fn new_ids(&self) -> Result<VolumeId, AbortCode> {
        let request = vl::GetNewVolumeIdRequest { bump_count: 2 };
        let reply = self.locations(|vl| vl::get_new_volume_id(vl, &request))?;
        Ok(VolumeId(reply.new_volume_id))
    }

    fn is_name_taken(&self, name: &str) -> Result<bool, AbortCode> {
        self.cell.is_registered(name)
    }

    fn register(&self, entry: &SnapshotEntry) -> Result<(), AbortCode> {
        let mut new_entry = vl::NVldbEntry {
            name: entry.name.as_str().into(),
            server_count: 1,
            volume_id: [entry.parent.0, entry.id.0, 0],
            flags: vl::entry_flags::READ_ONLY_EXISTS,
            ..vl::NVldbEntry::default()
        };
        new_entry.server_number[0] = self.address()?.into();
        new_entry.server_partition[0] = entry.partition.index() as i32;
        new_entry.server_flags[0] = vl::site_flags::READ_ONLY;
        let request = vl::CreateEntryNRequest { new_entry };
        self.locations(|vl| vl::create_entry_n(vl, &request)).map(drop)
    }

    fn unregister(&self, id: VolumeId) -> Result<(), AbortCode> {
        let request = vl::DeleteEntryRequest { volume_id: id.0, volume_type: 1 };
        match self.locations(|vl| vl::delete_entry(vl, &request)) {
            Ok(_) | Err(AbortCode::VL_NOENT) => Ok(()),
            Err(code) => Err(code),
        }
    }

    fn exclusively(
        &self,
        volume: VolumeId,
        partition: PartitionId,
        work: &mut dyn FnMut() -> Result<(), AbortCode>,
    ) -> Result<(), AbortCode> {
        match self.volume_server.get() {
            Some(server) => server.exclusively(volume, partition, "Snapshot", work),
            None => work(),
        }
    }

    fn volume_changed(&self, volume: VolumeId) {
        self.file_server.volume_changed(volume);
    }
}

/// Starts the thread that creates and removes snapshots on schedule.
pub fn start(ending: &Arc<AtomicBool>, server: Arc<AdminServer>) -> JoinHandle<()> {
    let ending = ending.clone();
    crate::threads::thread("snapshots", move || {
        while crate::threads::wait(&ending, PERIOD) {
            server.keep_snapshots();
        }
    })
}
