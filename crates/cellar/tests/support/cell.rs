//! A cell of one server in the test's own process, which can be made worse on purpose.

use super::place::Place;
use cellar::serve::{self, Hindrances, Running};
use std::ops::Deref;

/// A cell that runs until it is dropped. What can be done with its [`Place`] can be done with it.
pub(crate) struct Cell {
    // Ends before the folder goes.
    pub(crate) running: Running,
    pub(crate) place: Place,
}

impl Cell {
    /// With `more` at the end of the configuration.
    pub(crate) fn start(more: &str) -> Cell {
        Cell::start_at(Place::new(more), &Hindrances::default())
    }

    /// Of a folder that has been prepared, with these hindrances.
    pub(crate) fn start_at(place: Place, hindrances: &Hindrances) -> Cell {
        Cell { running: serve::start_hindered(&place.settings(), hindrances).unwrap(), place }
    }

    /// With nothing in its caches.
    pub(crate) fn restart(self) -> Cell {
        let Cell { running, place } = self;
        running.stop().unwrap();
        Cell::start_at(place, &Hindrances::default())
    }

    /// A document of the port for metrics, which the configuration must have. To ask for it passes no packets of AFS.
    pub(crate) fn get(&self, path: &str) -> String {
        super::get(self.running.metrics_address().unwrap(), path).unwrap()
    }

    /// The number of a metric with its labels, if it is there.
    pub(crate) fn figure(&self, name: &str) -> Option<u64> {
        super::figure(&self.get("/metrics"), name)
    }
}

impl Deref for Cell {
    type Target = Place;

    fn deref(&self) -> &Place {
        &self.place
    }
}
