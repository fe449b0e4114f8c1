//! Import of the entries of another database.

use crate::entry::Location;
use crate::error::LocationError;
use crate::locations::Locations;
use crate::servers::{Server, Servers};
use crate::{SERVERS_MAX, ServerNumber};
use base::VolumeId;
use base::limits::VOLUME_SITES_MAX;
use std::collections::HashSet;
use std::sync::Arc;

/// The contents to import.
#[derive(Clone, Debug)]
pub struct Imported {
    /// Where the search for the next new volume id starts.
    pub max_volume: VolumeId,
    /// The servers, under the numbers that sites refer to.
    pub servers: Vec<(ServerNumber, Server)>,
    /// The volumes in listing order.
    pub locations: Vec<Location>,
}

impl Locations {
    /// Imports all volumes and servers of another database, in one change. The database must have no volumes;
    /// the servers that it has are removed, and register again by themselves.
    ///
    /// # Errors
    /// `NotNew`, `BadServer` (a site on an unknown server), `Full`, `NameExists`, `IdExists`.
    pub fn import(&self, imported: &Imported) -> Result<(), LocationError> {
        check(imported)?;
        self.write(|draft| {
            if draft.totals.created != draft.totals.deleted {
                return Err(LocationError::NotNew);
            }
            let mut servers = Servers::default();
            for (number, server) in &imported.servers {
                servers.set(*number, Some(server.clone()));
            }
            draft.servers = Arc::new(servers);
            for number in 0..SERVERS_MAX {
                draft.write_server(ServerNumber(number as u8));
            }
            draft.totals.max_volume = draft.totals.max_volume.max(imported.max_volume);
            imported.locations.iter().try_for_each(|location| draft.insert(location).map(drop))
        })
    }
}

/// Checks the import for internal consistency: a draft only sees the state before the change.
fn check(imported: &Imported) -> Result<(), LocationError> {
    let known: HashSet<ServerNumber> = imported.servers.iter().map(|(number, _)| *number).collect();
    let (mut names, mut ids) = (HashSet::new(), HashSet::new());
    for location in &imported.locations {
        let sites = &location.sites;
        if sites.len() > VOLUME_SITES_MAX || sites.iter().any(|site| !known.contains(&site.server)) {
            return Err(LocationError::BadServer);
        }
        if !names.insert(&location.name) {
            return Err(LocationError::NameExists(location.name.to_string()));
        }
        let twice = location.volumes().find(|id| !ids.insert(*id));
        if let Some(id) = location.shared_id().or(twice) {
            return Err(LocationError::IdExists(id));
        }
    }
    Ok(())
}
