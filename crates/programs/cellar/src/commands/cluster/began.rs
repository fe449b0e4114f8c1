//! How the present ownerships of a cluster's partitions began, as their owners report it.

use crate::commands::stat::figures::{Labels, Show, Source, look};
use cell_client::{CellClient, Interface};
use events::catalogue::{OWNERSHIP_CAUSES, TakeoverFigures};
use observe::Table;
use serde::Serialize;
use std::net::Ipv4Addr;

/// The beginning of an ownership.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Beginning {
    /// The partition, as /vicepb.
    #[serde(skip)]
    pub(super) partition: String,
    #[serde(skip)]
    pub(super) epoch: u64,
    /// What became of the owner before, as in `cellar stat takeovers`.
    cause: String,
    /// The owner before; empty if there was none.
    from: String,
    /// Nanoseconds since 1970.
    began_ns: u64,
    /// Until everything was answered.
    total_ns: u64,
}

impl Beginning {
    /// Returns those that a node reports; none if it does not answer, or does not know them.
    pub(super) fn of(client: &CellClient, server: Ipv4Addr) -> Vec<Beginning> {
        let connection = client.connection(server, Interface::Cellar);
        let reported = look::<TakeoverFigures>(&*connection, server, Source::Table(Table::Takeovers));
        let (rows, _) = reported.unwrap_or_default();
        rows.iter().filter_map(|(labels, figures)| Beginning::read(labels, figures)).collect()
    }

    fn read(labels: &Labels, figures: &TakeoverFigures) -> Option<Beginning> {
        let [partition, epoch, cause, from] = &labels[..] else { return None };
        let is_gain = figures.complete > 0 && OWNERSHIP_CAUSES.contains(&&**cause);
        let began = || -> Option<Beginning> {
            Some(Beginning {
                partition: partition.clone(),
                epoch: epoch.parse().ok()?,
                cause: cause.clone(),
                from: from.clone(),
                began_ns: figures.began,
                total_ns: figures.total,
            })
        };
        is_gain.then(began).flatten()
    }

    /// Describes it in a few words.
    pub(super) fn text(&self) -> String {
        let from = match (&*self.cause, &*self.from) {
            (cause, "") => cause.to_owned(),
            ("died" | "left", node) => format!("{node} {}", self.cause),
            (cause, node) => format!("{cause} from {node}"),
        };
        format!("{} in {} ({from})", Show::Moment.text(self.began_ns), Show::Time.text(self.total_ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_beginnings_of_ownerships_are_read() {
        let labels = |cause: &str, node: &str| ["/vicepb", "7", cause, node].map(str::to_owned).to_vec();
        let figures = TakeoverFigures {
            began: 1_764_184_811_000_000_000,
            total: 7_340_000_000,
            complete: 1,
            ..TakeoverFigures::default()
        };
        let read = |cause, node| Beginning::read(&labels(cause, node), &figures);
        let began = read("died", "fs2").unwrap();
        assert_eq!((&*began.partition, began.epoch), ("/vicepb", 7));
        assert_eq!(began.text(), "2025-11-26 19:20:11 in 7.34 s (fs2 died)");
        assert!(read("moved", "fs2").unwrap().text().ends_with("(moved from fs2)"));
        assert!(read("new", "").unwrap().text().ends_with("(new)"));
        for cause in ["given-up", "fenced"] {
            assert_eq!(read(cause, "fs2"), None);
        }
        let failed = TakeoverFigures { complete: 0, ..figures };
        assert_eq!(Beginning::read(&labels("died", "fs2"), &failed), None);
        assert_eq!(Beginning::read(&vec!["/vicepb".to_owned()], &failed), None);
    }
}
