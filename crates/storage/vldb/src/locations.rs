//! The database as a whole, and its queries.

use crate::codec::Totals;
use crate::draft::Draft;
use crate::entry::{EntryNumber, Location, ServerNumber, VolumeQuery};
use crate::error::LocationError;
use crate::lookup::Lookup;
use crate::servers::Servers;
use base::{VolumeName, VolumeType};
use parking_lot::RwLock;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use store::{CommitNumber, MetaStore, Snapshot};

/// The location database of a cell.
///
/// All methods take `&self` and may be called from any thread. Methods that change something return when the
/// change is durable. Authorisation is up to the service.
pub struct Locations {
    meta: Arc<dyn MetaStore>,
    /// Held for reading while several records are read, and for writing by each change. No thread waits for a
    /// disk while holding it.
    state: RwLock<State>,
    /// Number of changes since the start.
    writes: AtomicU32,
    /// Number of the newest commit.
    newest: AtomicU64,
}

/// State that is kept in memory in addition to the records.
struct State {
    servers: Arc<Servers>,
    totals: Totals,
}

/// Queries.
impl Locations {
    /// Opens the database; it is empty if the store has no records yet.
    pub fn open(meta: Arc<dyn MetaStore>) -> Result<Locations, LocationError> {
        let lookup = Lookup(&*meta);
        let servers = Arc::new(lookup.servers()?);
        let totals = lookup.totals()?.unwrap_or(Totals::NEW);
        let (writes, newest) = Default::default();
        Ok(Locations { meta, state: RwLock::new(State { servers, totals }), writes, newest })
    }

    pub(crate) fn lookup(&self) -> Lookup<'_> {
        Lookup(&*self.meta)
    }

    /// Returns a snapshot of the records.
    pub(crate) fn snapshot(&self) -> Box<dyn Snapshot + '_> {
        self.meta.snapshot()
    }

    /// Returns the current table of servers. Call it after reading entries, so that it has the servers of all
    /// their sites.
    pub fn servers(&self) -> Arc<Servers> {
        Arc::clone(&self.state.read().servers)
    }

    /// Returns the counters of the database.
    pub fn totals(&self) -> Totals {
        self.state.read().totals
    }

    /// Returns the number of changes since the start.
    pub fn writes(&self) -> u32 {
        self.writes.load(Relaxed)
    }

    /// Waits until everything that queries have seen so far is durable: a change is visible before that.
    pub fn settle(&self) -> Result<(), LocationError> {
        Ok(self.meta.sync(CommitNumber(self.newest.load(Relaxed)))?)
    }

    /// Returns the entry of a volume. If a type is given, an id only matches a volume of that type.
    pub fn find(&self, query: &VolumeQuery, kind: Option<VolumeType>) -> Result<Location, LocationError> {
        let _consistent = self.state.read();
        self.lookup().find(query, kind).map(|(_, location)| location)
    }

    /// Returns the entry with this read-write volume name.
    pub fn find_by_name(&self, name: &VolumeName) -> Result<Location, LocationError> {
        self.find(&VolumeQuery::Name(name.clone()), None)
    }

    /// Returns the entry after `previous` (0: the first one), and roughly how many follow it.
    pub fn next(&self, previous: EntryNumber) -> Result<Option<(EntryNumber, Location, u32)>, LocationError> {
        let mut found = None;
        self.lookup().entries(previous, None, &mut |number, location| {
            found = Some((number, location));
            ControlFlow::Break(())
        })?;
        let end = self.totals().next_entry.0;
        Ok(found.map(|(number, location)| (number, location, end.saturating_sub(number.0).saturating_sub(1))))
    }

    /// Whether this number has ever been assigned to an entry.
    pub fn is_listable(&self, number: EntryNumber) -> bool {
        number.0 < self.totals().next_entry.0
    }

    /// Whether any entry has a site on the server.
    pub fn is_used(&self, server: ServerNumber) -> Result<bool, LocationError> {
        self.lookup().is_used(server)
    }
}

impl Locations {
    /// Makes one change. It is durable when this returns; on an error nothing has changed.
    pub(crate) fn write<T>(
        &self,
        make: impl FnOnce(&mut Draft<'_>) -> Result<T, LocationError>,
    ) -> Result<T, LocationError> {
        let (made, number) = {
            let mut state = self.state.write();
            let mut draft = Draft::new(self.lookup(), Arc::clone(&state.servers), state.totals);
            let made = make(&mut draft)?;
            let (batch, servers, totals) = draft.into_parts(&state.totals);
            if batch.is_empty() {
                return Ok(made);
            }
            let number = self.meta.commit(batch)?;
            self.newest.store(number.0, Relaxed);
            *state = State { servers, totals };
            (made, number)
        };
        self.writes.fetch_add(1, Relaxed);
        self.meta.sync(number)?;
        Ok(made)
    }
}
