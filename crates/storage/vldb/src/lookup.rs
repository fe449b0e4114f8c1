//! Reads of the committed records.

use crate::FAMILY;
use crate::codec::{
    Table, Totals, decode_location, decode_server, decode_totals, end_of, entry_key, entry_number, id_key,
    key, last_word, name_key, on_server_key,
};
use crate::entry::{EntryNumber, Location, ServerNumber, VolumeQuery};
use crate::error::LocationError;
use crate::servers::Servers;
use base::{VolumeId, VolumeName, VolumeType};
use std::ops::ControlFlow;
use store::{KeyRange, MetaStore};

/// Receives keys and values until it breaks or fails.
type Visit<'v> = &'v mut dyn FnMut(&[u8], &[u8]) -> Result<ControlFlow<()>, LocationError>;

/// The committed records.
#[derive(Clone, Copy)]
pub(crate) struct Lookup<'a>(pub(crate) &'a dyn MetaStore);

impl Lookup<'_> {
    fn number(self, key: &[u8]) -> Result<Option<EntryNumber>, LocationError> {
        self.0.get(FAMILY, key)?.map(|value| entry_number(&value)).transpose()
    }

    pub(crate) fn number_by_id(self, id: VolumeId) -> Result<Option<EntryNumber>, LocationError> {
        self.number(&id_key(id))
    }

    pub(crate) fn number_by_name(self, name: &VolumeName) -> Result<Option<EntryNumber>, LocationError> {
        self.number(&name_key(name))
    }

    fn location(self, number: EntryNumber) -> Result<Option<Location>, LocationError> {
        let value = self.0.get(FAMILY, &entry_key(number))?;
        value.map(|value| decode_location(&value)).transpose()
    }

    /// Returns the entry of a volume. If a type is given, an id only matches a volume of that type.
    pub(crate) fn find(
        self,
        query: &VolumeQuery,
        kind: Option<VolumeType>,
    ) -> Result<(EntryNumber, Location), LocationError> {
        let number = match query {
            VolumeQuery::Id(id) => self.number_by_id(*id)?,
            VolumeQuery::Name(name) => self.number_by_name(name)?,
        };
        let number = number.ok_or(LocationError::NoEntry)?;
        let location = self.location(number)?.ok_or(LocationError::NoEntry)?;
        match (query, kind) {
            (VolumeQuery::Id(id), Some(kind)) if location.id(kind) != *id => Err(LocationError::NoEntry),
            _ => Ok((number, location)),
        }
    }

    pub(crate) fn totals(self) -> Result<Option<Totals>, LocationError> {
        let value = self.0.get(FAMILY, &key(Table::Totals, &[]))?;
        value.map(|value| decode_totals(&value)).transpose()
    }

    pub(crate) fn servers(self) -> Result<Servers, LocationError> {
        let mut servers = Servers::default();
        self.scan(&key(Table::Servers, &[]), &end_of(Table::Servers), &mut |key, value| {
            let number = key.last().copied().unwrap_or_default();
            servers.set(ServerNumber(number), Some(decode_server(value)?));
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(servers)
    }

    /// Whether any entry has a site on the server.
    pub(crate) fn is_used(self, server: ServerNumber) -> Result<bool, LocationError> {
        let mut used = false;
        let (from, to) =
            (on_server_key(server, EntryNumber(0)), on_server_key(server, EntryNumber(u32::MAX)));
        self.scan(&from, &to, &mut |_, _| {
            used = true;
            Ok(ControlFlow::Break(()))
        })?;
        Ok(used)
    }

    /// Returns the first of the lowest `count` consecutive ids, starting at `from`, that are in no entry.
    pub(crate) fn unused_ids(self, from: VolumeId, count: u32) -> Result<Option<VolumeId>, LocationError> {
        let mut start = u64::from(from.0);
        let enough = |start: u64, next: u64| next >= start + u64::from(count);
        if count > 0 {
            self.scan(&id_key(from), &end_of(Table::Ids), &mut |key, _| {
                let taken = u64::from(last_word(key, 0)?);
                if enough(start, taken) {
                    return Ok(ControlFlow::Break(()));
                }
                start = taken + 1;
                Ok(ControlFlow::Continue(()))
            })?;
        }
        let fits = enough(start, u64::from(u32::MAX));
        Ok(u32::try_from(start).ok().filter(|_| fits).map(VolumeId))
    }

    /// Visits the entries after `previous` in ascending order, of one server or of all.
    pub(crate) fn entries(
        self,
        previous: EntryNumber,
        server: Option<ServerNumber>,
        visit: &mut dyn FnMut(EntryNumber, Location) -> ControlFlow<()>,
    ) -> Result<(), LocationError> {
        let Some(first) = previous.0.checked_add(1).map(EntryNumber) else { return Ok(()) };
        let Some(server) = server else {
            return self.scan(&entry_key(first), &end_of(Table::Entries), &mut |key, value| {
                Ok(visit(EntryNumber(last_word(key, 0)?), decode_location(value)?))
            });
        };
        let (from, to) = (on_server_key(server, first), on_server_key(server, EntryNumber(u32::MAX)));
        self.scan(&from, &to, &mut |key, _| {
            let number = EntryNumber(last_word(key, 1)?);
            // An entry may be deleted between the scan and this read.
            Ok(match self.location(number)? {
                Some(location) => visit(number, location),
                None => ControlFlow::Continue(()),
            })
        })
    }

    fn scan(self, from: &[u8], to: &[u8], visit: Visit<'_>) -> Result<(), LocationError> {
        let mut outcome = Ok(());
        self.0.scan(FAMILY, KeyRange::ascending(from, to), &mut |key, value| {
            visit(key, value).unwrap_or_else(|error| {
                outcome = Err(error);
                ControlFlow::Break(())
            })
        })?;
        outcome
    }
}
