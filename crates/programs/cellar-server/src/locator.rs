//! Volume locations for the old call that asks a file server for them: from this process's location database,
//! or from the cell's location servers.

use afs_idl::ClientConnection;
use afs_idl::fs::VolumeInfo;
use afs_idl::vl::{self, NVldbEntry};
use base::{AbortCode, VolumeType};
use cell_client::{CellClient, Interface};
use fileserver::VolumeLocator;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use vldb::{Locations, VolumeQuery};

/// Time for which an answer of the location servers is cached.
const FOUND_LIFETIME: Duration = Duration::from_secs(60);
/// Time for which the absence of a volume, or of location servers, is cached.
const ABSENT_LIFETIME: Duration = Duration::from_secs(5);
/// Maximum number of cached answers.
const ANSWERS_MAX: usize = 10_000;
/// Maximum length of a requested name or number.
const NAME_BYTES_MAX: usize = 64;

/// The location database of this process.
pub struct LocalLocator(pub Arc<Locations>);

impl VolumeLocator for LocalLocator {
    fn locate(&self, name: &[u8]) -> Result<VolumeInfo, AbortCode> {
        let query = VolumeQuery::parse(name).map_err(|_| AbortCode::VNOVOL)?;
        let location = self.0.find(&query, None).map_err(|_| AbortCode::VNOVOL)?;
        let ids = KINDS.map(|kind| location.id(kind).0);
        let servers = self.0.servers();
        let found = location.sites.iter().filter_map(|site| servers.get(site.server));
        Ok(info(ids, found.map(|server| server.first_address().into())))
    }
}

/// The cell's location servers. A volume that is requested repeatedly costs one call per minute.
pub struct RemoteLocator {
    cell: Arc<CellClient>,
    /// Guards only the table; no call is made under it.
    answers: Mutex<HashMap<Vec<u8>, Remembered>>,
    /// Until when no location server is asked, since none has answered.
    resting: Mutex<Option<Instant>>,
}

/// An answer and its expiry time.
type Remembered = (Instant, Result<VolumeInfo, AbortCode>);

impl RemoteLocator {
    /// Uses the location servers of `cell`.
    pub fn new(cell: Arc<CellClient>) -> RemoteLocator {
        RemoteLocator { cell, answers: Mutex::default(), resting: Mutex::default() }
    }

    fn ask(&self, name: &[u8]) -> Result<VolumeInfo, AbortCode> {
        let request = vl::GetEntryByNameNRequest { volume_name: name.into() };
        let ask = |vl: &dyn ClientConnection| match vl::get_entry_by_name_n(vl, &request) {
            Ok(reply) => Ok(Some(from_entry(&reply.entry))),
            Err(AbortCode::VL_NOENT | AbortCode::VL_BADNAME) => Ok(None),
            Err(code) => Err(code),
        };
        // A server that was down may not know the volume yet.
        match self.cell.database_unless(Interface::Locations, ask, Option::is_none) {
            Ok(found) => found.ok_or(AbortCode::VNOVOL),
            Err(_) => Err(AbortCode::VBUSY),
        }
    }
}

impl VolumeLocator for RemoteLocator {
    fn locate(&self, name: &[u8]) -> Result<VolumeInfo, AbortCode> {
        if name.len() > NAME_BYTES_MAX || name.contains(&0) {
            return Err(AbortCode::VNOVOL);
        }
        let now = Instant::now();
        let known = self.answers.lock().get(name).copied();
        if let Some((_, answer)) = known.filter(|(until, _)| now < *until) {
            return answer;
        }
        if self.resting.lock().is_some_and(|until| now < until) {
            return Err(AbortCode::VBUSY);
        }
        let answer = self.ask(name);
        if matches!(answer, Err(AbortCode::VBUSY)) {
            *self.resting.lock() = Some(Instant::now() + ABSENT_LIFETIME);
        }
        let lifetime = if answer.is_ok() { FOUND_LIFETIME } else { ABSENT_LIFETIME };
        let mut answers = self.answers.lock();
        if answers.len() >= ANSWERS_MAX {
            answers.clear();
        }
        answers.insert(name.to_vec(), (now + lifetime, answer));
        answer
    }
}

const KINDS: [VolumeType; 3] = [VolumeType::ReadWrite, VolumeType::ReadOnly, VolumeType::Backup];

fn info(ids: [u32; 3], servers: impl Iterator<Item = u32>) -> VolumeInfo {
    let mut info = VolumeInfo { volume_id: ids[0], ..VolumeInfo::default() };
    info.type_ids[..ids.len()].copy_from_slice(&ids);
    for (place, server) in info.servers.iter_mut().zip(servers) {
        *place = server;
        info.server_count += 1;
    }
    info
}

fn from_entry(entry: &NVldbEntry) -> VolumeInfo {
    let count = usize::try_from(entry.server_count).unwrap_or(0).min(vl::SITES);
    info(entry.volume_id, entry.server_number[..count].iter().copied())
}

#[cfg(test)]
mod tests {
    use super::*;
    use cell_client::fakes::{behind, server};

    #[test]
    fn a_volume_unknown_to_the_first_location_server_is_found() {
        let (fakes, asked) = behind::cell();
        let locator = RemoteLocator::new(fakes.cell(3));
        let found = locator.locate(b"new").unwrap();
        assert_eq!((found.server_count, found.servers[0]), (1, behind::NEW.into()));
        asked.lock().clear();
        assert_eq!(locator.locate(b"none").err(), Some(AbortCode::VNOVOL));
        assert_eq!(asked.lock().len(), 3, "it is nowhere if nobody knows it");
    }

    /// Many calls to volumes of a partition that is not open would wait for servers that are gone, too.
    #[test]
    fn location_servers_that_are_silent_are_left_alone() {
        let (fakes, asked) = behind::cell();
        let locator = RemoteLocator::new(fakes.cell(3));
        (1..=3).for_each(|number| fakes.fail(server(number), Some(AbortCode::RX_CALL_DEAD)));
        assert_eq!(locator.locate(b"new").err(), Some(AbortCode::VBUSY));
        asked.lock().clear();
        assert_eq!(locator.locate(b"none").err(), Some(AbortCode::VBUSY));
        assert!(asked.lock().is_empty());
    }
}
