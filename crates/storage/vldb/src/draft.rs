//! A change to the database under construction; keeps records, indices, servers and counters consistent.

use crate::FAMILY;
use crate::codec::{
    Totals, encode_location, encode_server, encode_totals, entry_key, id_key, key, name_key, on_server_key,
    server_key,
};
use crate::entry::{EntryNumber, Location, ServerNumber};
use crate::error::LocationError;
use crate::lookup::Lookup;
use crate::servers::Servers;
use base::VolumeId;
use std::net::Ipv4Addr;
use std::sync::Arc;
use store::Batch;

/// Collects a change, which others see only when the batch is committed. Reads see the state before the
/// change, so each entry is written at most once.
pub(crate) struct Draft<'a> {
    pub(crate) lookup: Lookup<'a>,
    pub(crate) servers: Arc<Servers>,
    pub(crate) totals: Totals,
    batch: Batch,
}

impl<'a> Draft<'a> {
    pub(crate) fn new(lookup: Lookup<'a>, servers: Arc<Servers>, totals: Totals) -> Draft<'a> {
        Draft { lookup, servers, totals, batch: Batch::new() }
    }

    /// Returns the batch, with the totals if they differ from `before`, and the new servers and totals.
    pub(crate) fn into_parts(mut self, before: &Totals) -> (Batch, Arc<Servers>, Totals) {
        if self.totals != *before {
            self.put(key(crate::codec::Table::Totals, &[]), encode_totals(&self.totals));
        }
        (self.batch, self.servers, self.totals)
    }

    fn put(&mut self, key: Vec<u8>, value: impl Into<Vec<u8>>) {
        self.batch.put(FAMILY, key, value);
    }

    fn delete(&mut self, key: Vec<u8>) {
        self.batch.delete(FAMILY, key);
    }

    /// Returns the number of the server with this address; assigns one if the address is new.
    pub(crate) fn server(&mut self, address: Ipv4Addr) -> Result<ServerNumber, LocationError> {
        if let Some(number) = self.servers.by_address(address) {
            return Ok(number);
        }
        let number = Arc::make_mut(&mut self.servers).number_for(address)?;
        self.write_server(number);
        Ok(number)
    }

    /// Writes the record of a server as it is in the table of servers; deletes the record of a free number.
    pub(crate) fn write_server(&mut self, number: ServerNumber) {
        match self.servers.get(number).map(encode_server) {
            Some(value) => self.put(server_key(number), value),
            None => self.delete(server_key(number)),
        }
    }

    /// Rejects ids that are in the database; 0 stands for no id.
    pub(crate) fn check_unused(&self, ids: &[VolumeId]) -> Result<(), LocationError> {
        for &id in ids.iter().filter(|id| id.0 != 0) {
            if self.lookup.number_by_id(id)?.is_some() {
                return Err(LocationError::IdExists(id));
            }
        }
        Ok(())
    }

    /// Rejects a name that is in the database.
    pub(crate) fn check_unused_name(&self, name: &base::VolumeName) -> Result<(), LocationError> {
        match self.lookup.number_by_name(name)? {
            Some(_) => Err(LocationError::NameExists(name.to_string())),
            None => Ok(()),
        }
    }

    /// Adds an entry under the next number.
    pub(crate) fn insert(&mut self, location: &Location) -> Result<EntryNumber, LocationError> {
        let number = self.totals.next_entry;
        // On the wire, numbers are signed 32-bit indices.
        if number.0 >= i32::MAX as u32 {
            return Err(LocationError::Full);
        }
        self.totals.next_entry = EntryNumber(number.0 + 1);
        self.totals.created = self.totals.created.saturating_add(1);
        self.totals.count(location, true);
        self.write(number, location);
        Ok(number)
    }

    /// Replaces an entry.
    pub(crate) fn replace(&mut self, number: EntryNumber, old: &Location, new: &Location) {
        self.totals.count(old, false);
        self.totals.count(new, true);
        self.erase(number, old);
        self.write(number, new);
    }

    /// Removes an entry.
    pub(crate) fn remove(&mut self, number: EntryNumber, old: &Location) {
        self.totals.deleted = self.totals.deleted.saturating_add(1);
        self.totals.count(old, false);
        self.erase(number, old);
    }

    fn write(&mut self, number: EntryNumber, location: &Location) {
        let value = number.0.to_be_bytes();
        self.put(entry_key(number), encode_location(location));
        self.put(name_key(&location.name), value);
        for id in location.volumes() {
            self.put(id_key(id), value);
        }
        for site in &location.sites {
            self.put(on_server_key(site.server, number), []);
        }
    }

    fn erase(&mut self, number: EntryNumber, location: &Location) {
        self.delete(entry_key(number));
        self.delete(name_key(&location.name));
        for id in location.volumes() {
            self.delete(id_key(id));
        }
        for site in &location.sites {
            self.delete(on_server_key(site.server, number));
        }
    }
}
