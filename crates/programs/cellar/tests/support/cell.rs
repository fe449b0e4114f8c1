//! A cell with one server in the test's own process, which allows fault injection.

use super::place::Place;
use cellar_server::{FaultInjection, Running};
use std::ops::Deref;

/// A cell that runs until it is dropped. It dereferences to its [`Place`].
pub(crate) struct Cell {
    // Dropped before the directory.
    pub(crate) running: Running,
    pub(crate) place: Place,
}

impl Cell {
    /// Starts a cell with `more` at the end of the configuration.
    pub(crate) fn start(more: &str) -> Cell {
        Cell::start_at(Place::new(more), &FaultInjection::default())
    }

    /// Starts a cell in a prepared directory with these faults.
    pub(crate) fn start_at(place: Place, faults: &FaultInjection) -> Cell {
        Cell { running: start_server(&place, faults), place }
    }

    /// Restarts the cell with empty caches.
    pub(crate) fn restart(self) -> Cell {
        let Cell { running, place } = self;
        running.stop().unwrap();
        Cell::start_at(place, &FaultInjection::default())
    }

    /// Returns a document from the metrics port, which must be configured. This sends no AFS packets.
    pub(crate) fn get(&self, path: &str) -> String {
        super::get(self.running.metrics_address().unwrap(), path).unwrap()
    }

    /// Returns the number of a metric with its labels, if present.
    pub(crate) fn figure(&self, name: &str) -> Option<u64> {
        super::figure(&self.get("/metrics"), name)
    }
}

/// Starts a server in this process. A process that another test starts at the same moment has the locks of a server that was
/// just stopped, until it executes its program.
pub(crate) fn start_server(place: &Place, faults: &FaultInjection) -> Running {
    super::soon("the locks of the last server are not released", || {
        match cellar_server::start_with_faults(&place.settings(), faults) {
            Err(error) if format!("{error:#}").contains("it is already open") => None,
            started => Some(started.unwrap()),
        }
    })
}

impl Deref for Cell {
    type Target = Place;

    fn deref(&self) -> &Place {
        &self.place
    }
}
