//! The tables that the page shows, each with a line here. What stands in them is declared in
//! `events::catalogue`; the page draws whatever declarations it is told.

use crate::Source;
use events::catalogue::{
    CacheCounts, CallFigures, CallbackFigures, DiskFigures, HostFigures, LaneFigures, LockFigures,
    PartitionFigures, ProcessFigures, UsageFigures, WorkerFigures,
};
use events::{Declaration, Declared, Kind, Unit};
use observe::Sheet;
use serde_json::{Value, json};

/// A table.
pub(crate) struct Table {
    /// What it is called in addresses and by `cellar stat`.
    pub(crate) name: &'static str,
    title: &'static str,
    /// What a row is, in a few words.
    about: &'static str,
    /// It tells who uses what, and is for who has signed in.
    pub(crate) is_private: bool,
    labels: &'static [&'static str],
    figures: &'static [Declaration],
    read: fn(&dyn Source, u32) -> Value,
}

impl Table {
    const fn of<F: Declared>(
        name: &'static str,
        title: &'static str,
        about: &'static str,
        labels: &'static [&'static str],
        read: fn(&dyn Source, u32) -> Value,
    ) -> Table {
        Table { name, title, about, is_private: false, labels, figures: F::DECLARATIONS, read }
    }

    const fn private(self) -> Table {
        Table { is_private: true, ..self }
    }

    /// What the page must know to draw it.
    pub(crate) fn describe(&self) -> Value {
        json!({
            "name": self.name,
            "title": self.title,
            "about": self.about,
            "private": self.is_private,
            "labels": self.labels,
            "figures": self.figures.iter().map(figure).collect::<Vec<_>>(),
        })
    }

    /// Its rows as they are now: labels, none for the sum of all others, and the numbers of each figure as
    /// `GetFigures` of idl/cellar.idl tells them.
    pub(crate) fn rows(&self, source: &dyn Source, volume: u32) -> Value {
        (self.read)(source, volume)
    }
}

/// All of them, in the order in which they are shown.
pub(crate) const TABLES: &[Table] = &[
    Table::of::<CallFigures>(
        "calls",
        "Calls",
        "by service and procedure",
        &["service", "procedure"],
        |source, _| rows(&source.observed().calls()),
    ),
    Table::of::<UsageFigures>(
        "volumes",
        "Volumes",
        "the most used since the start; 0 stands for calls that used none",
        &["volume", "name"],
        |source, _| volumes(source),
    )
    .private(),
    Table::of::<UsageFigures>("clients", "Clients", "users at hosts", &["host", "user"], |source, volume| {
        let snapshot = source.observed().snapshot();
        rows(&if volume == 0 { snapshot.client_sheet() } else { snapshot.clients_of(volume) })
    })
    .private(),
    Table::of::<HostFigures>(
        "hosts",
        "Hosts",
        "connections, calls by kind, and what was read and written",
        &["host"],
        |source, _| rows(&source.observed().hosts()),
    )
    .private(),
    Table::of::<DiskFigures>(
        "disk",
        "Disks",
        "segments of file data, by partition and kind of access",
        &["partition", "access"],
        |source, _| rows(&source.observed().disks()),
    ),
    Table::of::<LaneFigures>(
        "lanes",
        "Lanes",
        "threads with a socket each, by port",
        &["port", "lane"],
        |source, _| rows(&source.observed().lanes()),
    ),
    Table::of::<WorkerFigures>(
        "workers",
        "Workers",
        "threads that serve calls, by port",
        &["port"],
        |source, _| rows(&source.observed().workers()),
    ),
    Table::of::<CacheCounts>("caches", "Caches", "what is kept in memory", &["cache"], |source, _| {
        rows(&source.observed().caches())
    }),
    Table::of::<LockFigures>("locks", "Locks", "what threads waited for", &["lock"], |source, _| {
        rows(&source.observed().locks())
    }),
    Table::of::<CallbackFigures>(
        "callbacks",
        "Callbacks",
        "what clients are told of changes, by port",
        &["port"],
        |source, _| rows(&source.observed().callbacks()),
    ),
    Table::of::<PartitionFigures>(
        "partitions",
        "Partitions",
        "room and damage",
        &["partition"],
        |source, _| rows(&source.observed().partitions()),
    ),
    Table::of::<ProcessFigures>("process", "Process", "the server's process", &[], |source, _| {
        rows(&source.observed().process())
    }),
];

fn figure(declaration: &Declaration) -> Value {
    let kind = match declaration.kind {
        Kind::Counter => "counter",
        Kind::Gauge => "gauge",
        Kind::Highest => "highest",
        Kind::Histogram => "histogram",
    };
    let unit = match declaration.unit {
        Unit::Count => "count",
        Unit::Bytes => "bytes",
        Unit::Nanoseconds => "ns",
    };
    json!({
        "name": declaration.name,
        "what": declaration.what.trim(),
        "kind": kind,
        "unit": unit,
        "label": declaration.label,
        "values": declaration.values,
    })
}

fn rows<F: Declared>(sheet: &Sheet<F>) -> Value {
    let row = |labels: &Vec<String>, figures: &F| {
        let values: Vec<Vec<u64>> = figures.values().iter().map(events::Value::numbers).collect();
        json!([labels, values])
    };
    sheet.rows.iter().map(|one| row(&one.labels, &one.figures)).collect()
}

/// Volumes with their names.
fn volumes(source: &dyn Source) -> Value {
    let mut sheet = source.observed().snapshot().volume_sheet();
    for row in &mut sheet.rows {
        let Some(Ok(id)) = row.labels.first().map(|label| label.parse()) else { continue };
        row.labels.push(source.volume_name(id).unwrap_or_default());
    }
    rows(&sheet)
}
