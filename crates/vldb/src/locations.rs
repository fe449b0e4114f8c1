//! The database as a whole, and what is asked of it.

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
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use store::{MetaStore, Snapshot};

/// The location database of a cell.
///
/// All methods take `&self` and may be called from any thread. Those that change something return
/// when the change is durable. Who may call what is the service's affair.
pub struct Locations {
    meta: Arc<dyn MetaStore>,
    /// Readers of several records hold it against writers, writers against each other. Nothing
    /// waits for a disk under it.
    state: RwLock<State>,
    /// Changes since the start.
    writes: AtomicU32,
}

/// What is kept in memory besides the records.
struct State {
    servers: Arc<Servers>,
    totals: Totals,
}

/// Reading.
impl Locations {
    /// Opens the database, an empty one if nothing was stored yet.
    pub fn open(meta: Arc<dyn MetaStore>) -> Result<Locations, LocationError> {
        let lookup = Lookup(&*meta);
        let servers = Arc::new(lookup.servers()?);
        let totals = lookup.totals()?.unwrap_or(Totals::NEW);
        Ok(Locations { meta, state: RwLock::new(State { servers, totals }), writes: AtomicU32::new(0) })
    }

    pub(crate) fn lookup(&self) -> Lookup<'_> {
        Lookup(&*self.meta)
    }

    /// The state of the records as it is now.
    pub(crate) fn snapshot(&self) -> Box<dyn Snapshot + '_> {
        self.meta.snapshot()
    }

    /// The table of servers as it is now. Take it behind the entries whose sites it is to explain.
    pub fn servers(&self) -> Arc<Servers> {
        Arc::clone(&self.state.read().servers)
    }

    /// Counts and the largest volume id.
    pub fn totals(&self) -> Totals {
        self.state.read().totals
    }

    /// Changes made since the start.
    pub fn writes(&self) -> u32 {
        self.writes.load(Relaxed)
    }

    /// The entry of a volume; with a type only if the id is of that type.
    pub fn find(&self, query: &VolumeQuery, kind: Option<VolumeType>) -> Result<Location, LocationError> {
        let _consistent = self.state.read();
        self.lookup().find(query, kind).map(|(_, location)| location)
    }

    /// The entry of a read-write volume's name.
    pub fn find_by_name(&self, name: &VolumeName) -> Result<Location, LocationError> {
        self.find(&VolumeQuery::Name(name.clone()), None)
    }

    /// The entry behind `previous` (0: the first one), and about how many follow it.
    pub fn next(&self, previous: EntryNumber) -> Result<Option<(EntryNumber, Location, u32)>, LocationError> {
        let mut found = None;
        self.lookup().entries(previous, None, &mut |number, location| {
            found = Some((number, location));
            ControlFlow::Break(())
        })?;
        let end = self.totals().next_entry.0;
        Ok(found.map(|(number, location)| (number, location, end.saturating_sub(number.0).saturating_sub(1))))
    }

    /// Whether an entry with this number could ever have been listed.
    pub fn is_listable(&self, number: EntryNumber) -> bool {
        number.0 < self.totals().next_entry.0
    }

    /// Whether any entry names the server.
    pub fn is_used(&self, server: ServerNumber) -> Result<bool, LocationError> {
        self.lookup().is_used(server)
    }
}

impl Locations {
    /// Makes one change: durable when this returns, or nothing happened.
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
            *state = State { servers, totals };
            (made, number)
        };
        self.writes.fetch_add(1, Relaxed);
        self.meta.sync(number)?;
        Ok(made)
    }
}
