//! A sample of a table of any type.

use super::foreign_table::ForeignTable;
use super::screen::Grid;
use super::state::Client;
use crate::commands::stat::figures::{Labels, Tabular, json_of};
use crate::commands::stat::tables;
use events::table::{self, Look};
use serde_json::{Value, json};
use std::any::Any;
use std::sync::Arc;

/// A sample of a table.
#[derive(Clone)]
pub(super) enum Sample {
    /// From a Cellar server.
    Own(Arc<dyn Seen>),
    /// From a foreign server.
    ForeignTable(ForeignTable),
    /// Not available from such a server, for this reason.
    Untold(&'static str),
}

/// A sample of figures of any type.
pub(super) trait Seen: Any + Send + Sync {
    fn since(&self, before: &dyn Seen) -> Option<Arc<dyn Seen>>;
    fn of_client(&self, client: &Client) -> Arc<dyn Seen>;
    fn grid(&self, headings: &[&str], seconds: Option<f64>) -> Grid;
    fn json(&self, headings: &[&str], seconds: Option<f64>) -> Value;
}

impl<F: Tabular + Send + Sync> Seen for Look<Labels, F> {
    fn since(&self, before: &dyn Seen) -> Option<Arc<dyn Seen>> {
        let before: &dyn Any = before;
        Some(Arc::new(table::since(self, before.downcast_ref()?)))
    }

    fn of_client(&self, client: &Client) -> Arc<dyn Seen> {
        let its = [client.host.clone(), client.user.clone()];
        let rows = self.0.iter().filter(|(labels, _)| labels.starts_with(&its));
        let rows = rows.map(|(labels, figures)| (labels[its.len()..].to_vec(), figures.clone())).collect();
        let look: Look<Labels, F> = (rows, F::default());
        Arc::new(look)
    }

    fn grid(&self, headings: &[&str], seconds: Option<f64>) -> Grid {
        Grid::new(headings, self, seconds)
    }

    fn json(&self, headings: &[&str], seconds: Option<f64>) -> Value {
        let rows = tables::rows(headings, self);
        let json = |(labels, figures): &(Labels, F)| json_of(headings, labels, figures, seconds);
        rows.iter().map(json).map(Value::Object).collect()
    }
}

impl Sample {
    pub(super) fn own<F: Tabular + Send + Sync>(look: Look<Labels, F>) -> Sample {
        Sample::Own(Arc::new(look))
    }

    /// Returns the changes since `before`, a sample of the same table.
    pub(super) fn since(&self, before: &Sample) -> Option<Sample> {
        match (self, before) {
            (Sample::Own(now), Sample::Own(before)) => now.since(&**before).map(Sample::Own),
            (Sample::ForeignTable(now), Sample::ForeignTable(before)) => {
                Some(Sample::ForeignTable(now.since(before)))
            }
            _ => None,
        }
    }

    /// Keeps only the rows of one client, without their host and user labels.
    pub(super) fn of_client(self, client: &Client) -> Sample {
        match self {
            Sample::Own(look) => Sample::Own(look.of_client(client)),
            other => other,
        }
    }

    /// Returns the table as text; as rates per second if `seconds` is given.
    pub(super) fn grid(&self, headings: &[&str], seconds: Option<f64>) -> Grid {
        match self {
            Sample::Own(look) => look.grid(headings, seconds),
            Sample::ForeignTable(reported) => Grid::of_foreign(reported, seconds),
            Sample::Untold(why) => Grid::of_sentence(why),
        }
    }

    /// Returns the table as JSON; as rates per second if `seconds` is given.
    pub(super) fn json(&self, headings: &[&str], seconds: Option<f64>) -> Value {
        match self {
            Sample::Own(look) => look.json(headings, seconds),
            Sample::ForeignTable(reported) => reported.json(seconds),
            Sample::Untold(why) => json!({ "not_available": why }),
        }
    }
}
