//! The file server announces its addresses in the location database (VL_RegisterAddrs, 532).

use crate::client::describe::describe;
use crate::client::{CellClient, Interface};
use crate::config::Settings;
use crate::network::{AfsNetwork, local_authentication};
use afs_format::sysid::SysId;
use afs_idl::vl;
use anyhow::{Context, Result};
use base::HostUuid;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Pause before another try.
const RETRY: Duration = Duration::from_secs(10);

/// The UUID in the sysid file, which is made if it is missing.
pub fn server_uuid(settings: &Settings) -> Result<HostUuid> {
    let path = &settings.sysid_path;
    match std::fs::read(path) {
        Ok(bytes) => Ok(SysId::parse(&bytes).with_context(|| format!("{} is damaged", path.display()))?.uuid),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => make_sysid(path, settings),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
    }
}

fn make_sysid(path: &Path, settings: &Settings) -> Result<HostUuid> {
    let uuid = HostUuid(*uuid::Uuid::new_v4().as_bytes());
    let sysid = SysId { uuid, addresses: settings.announce.clone() };
    crate::files::replace(path, &sysid.to_bytes(), 0o644)
        .with_context(|| format!("cannot write {}", path.display()))?;
    Ok(uuid)
}

/// Registers; if no database server answers, goes on trying in the background.
pub fn register(settings: &Arc<Settings>, uuid: HostUuid, ending: Arc<AtomicBool>) -> Result<()> {
    let network = Arc::new(AfsNetwork::start(Some(local_authentication(&settings.keys)?))?);
    let servers = settings.database_servers.iter().map(|server| server.address).collect();
    let cell = CellClient::new(network, servers)?;
    let addresses = settings.announce.iter().map(|&address| u32::from(address)).collect();
    let request = vl::RegisterAddrsRequest { uuid, spare1: 0, addresses };
    if !attempt(&cell, &request) {
        std::thread::spawn(move || while super::wait(&ending, RETRY) && !attempt(&cell, &request) {});
    }
    Ok(())
}

fn attempt(cell: &CellClient, request: &vl::RegisterAddrsRequest) -> bool {
    match cell.database(Interface::Locations, |vl| vl::register_addrs(vl, request)) {
        Ok(_) => {
            tracing::info!(uuid = %request.uuid, addresses = request.addresses.len(), "registered");
            true
        }
        Err(code) => {
            tracing::warn!("cannot register in the location database: {}", describe(code));
            false
        }
    }
}
