//! `cellar stat cluster`: a server as a node of a cluster.

use super::again::Again;
use super::figures::{self, Labels, Show, Source, Tabular, json_of};
use super::tables;
use crate::commands::Context;
use crate::output::{Format, Row, line};
use afs_idl::ClientConnection;
use anyhow::{Result, bail};
use cell_client::Interface;
use clap::Args;
use events::catalogue::{ClusterFigures, NodeFigures, TakeoverFigures};
use events::table::{self, Look};
use events::{Declared, Unit, Value};
use observe::Table;
use serde::Serialize;
use serde_json::Map;
use std::net::Ipv4Addr;

/// Show a server as a node of a cluster.
#[derive(Args)]
pub struct Clustered {
    /// File server to query; defaults to the one in this machine's configuration, or else the first database
    /// server.
    #[arg(long)]
    on: Option<Ipv4Addr>,
    #[command(flatten)]
    again: Again,
}

/// A sample of a node.
struct Sample {
    node: String,
    cluster: ClusterFigures,
    nodes: Look<Labels, NodeFigures>,
    takeovers: Look<Labels, TakeoverFigures>,
}

/// A figure of a node, for display.
#[derive(Serialize)]
struct FigureRow {
    figure: String,
    value: String,
    since: String,
}

impl Row for FigureRow {
    const COLUMNS: &'static [&'static str] = &["FIGURE", "VALUE", "SINCE"];

    fn cells(&self) -> Vec<String> {
        vec![self.figure.clone(), self.value.clone(), self.since.clone()]
    }
}

/// Runs the command.
pub(super) fn run(context: &Context, asked: &Clustered) -> Result<()> {
    let client = context.observer()?;
    let server = asked.on.unwrap_or_else(|| context.default_server(&client));
    let connection = client.connection(server, Interface::Cellar);
    let mut before = Sample::take(&*connection, server)?;
    before.show(context.format, None)?;
    asked.again.each(|| {
        let now = Sample::take(&*connection, server)?;
        if context.format == Format::Text {
            line("")?;
        }
        now.show(context.format, Some(&before))?;
        before = now;
        Ok(())
    })
}

impl Sample {
    fn take(connection: &dyn ClientConnection, server: Ipv4Addr) -> Result<Sample> {
        let (rows, _) = figures::look::<ClusterFigures>(connection, server, Source::Table(Table::Cluster))?;
        let Some((labels, cluster)) = rows.into_iter().next() else {
            bail!(
                "{server} is no node of a cluster: it has no section `[cluster]` (`cellar cluster init`, `cellar cluster \
                 join`); --on names another server"
            )
        };
        Ok(Sample {
            node: labels.into_iter().next().unwrap_or_default(),
            cluster,
            nodes: figures::look(connection, server, Source::Table(Table::Nodes))?,
            takeovers: figures::look(connection, server, Source::Table(Table::Takeovers))?,
        })
    }

    /// Returns what is new since an earlier sample. A restarted server counts from zero.
    fn since(&self, before: &Sample) -> Sample {
        let look = |sample: &Sample| -> Look<Labels, ClusterFigures> {
            (vec![(vec![sample.node.clone()], sample.cluster.clone())], ClusterFigures::default())
        };
        let (mut rows, _) = table::since(&look(self), &look(before));
        let is_new = |(labels, _): &&(Labels, TakeoverFigures)| {
            !before.takeovers.0.iter().any(|(earlier, _)| earlier == labels)
        };
        let takeovers = self.takeovers.0.iter().filter(is_new).cloned().collect();
        Sample {
            node: self.node.clone(),
            cluster: rows.pop().map(|(_, figures)| figures).unwrap_or_default(),
            nodes: table::since(&self.nodes, &before.nodes),
            takeovers: (takeovers, TakeoverFigures::default()),
        }
    }

    /// Prints the sample; after the first one, also what is new.
    fn show(&self, format: Format, before: Option<&Sample>) -> Result<()> {
        let news = before.map(|before| self.since(before));
        if format == Format::Json {
            let mut document = self.json();
            document.extend(news.map(|news| ("since".to_owned(), news.json().into())));
            return format.done(&document, "");
        }
        format.rows(&self.rows(news.as_ref()))?;
        let shown = news.as_ref().unwrap_or(self);
        if !shown.nodes.0.is_empty() {
            line("")?;
            tables::print(format, Table::Nodes.labels(), &shown.nodes)?;
        }
        if !shown.takeovers.0.is_empty() {
            line("")?;
            tables::print(format, Table::Takeovers.labels(), &shown.takeovers)?;
        }
        Ok(())
    }

    fn json(&self) -> Map<String, serde_json::Value> {
        fn of<F: Tabular>(table: Table, look: &Look<Labels, F>) -> serde_json::Value {
            let rows = tables::rows(table.labels(), look);
            rows.iter()
                .map(|(labels, figures)| {
                    serde_json::Value::Object(json_of(table.labels(), labels, figures, None))
                })
                .collect()
        }
        let own = json_of(Table::Cluster.labels(), &vec![self.node.clone()], &self.cluster, None);
        let mut document = Map::new();
        document.insert("cluster".into(), own.into());
        document.insert("nodes".into(), of(Table::Nodes, &self.nodes));
        document.insert("takeovers".into(), of(Table::Takeovers, &self.takeovers));
        document
    }

    /// Returns the figures that are not zero, and their changes.
    fn rows(&self, news: Option<&Sample>) -> Vec<FigureRow> {
        let mut rows =
            vec![FigureRow { figure: "node".into(), value: self.node.clone(), since: String::new() }];
        let of_news = news.map(|news| parts(&news.cluster));
        for (index, (figure, value, grows)) in parts(&self.cluster).into_iter().enumerate() {
            let since = of_news.as_ref().and_then(|news| news.get(index)).filter(|_| grows);
            if let Some(value) = value {
                let since = since.map(|(_, value, _)| value.clone().unwrap_or_else(|| "0".into()));
                rows.push(FigureRow { figure, value, since: since.unwrap_or_default() });
            }
        }
        rows
    }
}

/// Returns each figure's name, its value unless it is zero, and whether it grows.
fn parts(cluster: &ClusterFigures) -> Vec<(String, Option<String>, bool)> {
    let mut parts = Vec::new();
    for (declaration, value) in ClusterFigures::DECLARATIONS.iter().zip(cluster.values()) {
        let name = declaration.name.replace('_', " ");
        let grows = declaration.kind != events::Kind::Gauge;
        let text = |number: u64| {
            let show = match declaration.unit {
                Unit::Count => Show::Count,
                Unit::Bytes => Show::Bytes,
                Unit::Nanoseconds => Show::Time,
            };
            (number > 0).then(|| show.text(number))
        };
        match value {
            Value::Number(number) => parts.push((name, text(number), grows)),
            Value::Longest(longest) => parts.push((name, text(longest.value()), grows)),
            Value::List(numbers) => {
                let of = declaration.values.iter().zip(numbers);
                parts.extend(of.map(|(label, number)| (format!("{name}: {label}"), text(*number), grows)));
            }
            Value::Histogram(histogram) => {
                let count = histogram.count();
                let [mean, p99, max] = [histogram.mean(), histogram.quantile(990), histogram.max()]
                    .map(|number| Show::Time.text(number));
                let value = format!("{}; mean {mean}, p99 {p99}, max {max}", Show::Count.text(count));
                parts.push((name, (count > 0).then_some(value), grows));
            }
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const MS: u64 = 1_000_000;

    fn sample(forwarded: u64, epochs: &[&str]) -> Sample {
        let mut cluster = ClusterFigures { forwarded, ttl: 6000 * MS, owned: 2, ..ClusterFigures::default() };
        for number in 1..=forwarded {
            cluster.bucket.record(number * MS);
        }
        cluster.ownerships[5] = epochs.len() as u64;
        let node = NodeFigures { data_sent: 100 * forwarded, round_trip: MS, ..NodeFigures::default() };
        let takeover = |epoch: &&str| {
            let labels = ["/vicepb", epoch, "died", "fs2"].map(str::to_owned).to_vec();
            let (total, detect, open) = (7000 * MS, 6000 * MS, 1000 * MS);
            (labels, TakeoverFigures { began: 1, total, detect, open, complete: 1, ..Default::default() })
        };
        Sample {
            node: "fs1".into(),
            cluster,
            nodes: (vec![(vec!["fs2".into(), "192.0.2.2:7010".into()], node)], NodeFigures::default()),
            takeovers: (epochs.iter().map(takeover).collect(), TakeoverFigures::default()),
        }
    }

    #[test]
    fn samples_have_totals_and_changes() {
        let (before, now) = (sample(3, &["4"]), sample(10, &["4", "9"]));
        let news = now.since(&before);
        let rows: Vec<Vec<String>> = now.rows(Some(&news)).iter().map(Row::cells).collect();
        let row = |name: &str| rows.iter().find(|row| row[0] == name).map(|row| [&*row[1], &row[2]]);
        assert_eq!(row("node"), Some(["fs1", ""]));
        assert_eq!(row("forwarded"), Some(["10", "7"]));
        assert_eq!(row("owned"), Some(["2", ""]), "what there is does not grow");
        assert_eq!(row("ownerships: died"), Some(["2", "1"]));
        assert_eq!(row("lapses"), None);
        let bucket = row("bucket").unwrap();
        assert!(
            bucket[0].starts_with("10; mean 5.50 ms") && bucket[1].starts_with("7; mean 7.00 ms"),
            "{bucket:?}"
        );
        let many = sample(1000, &[]).rows(None).iter().map(Row::cells).collect::<Vec<_>>();
        assert!(many.iter().any(|row| row[0] == "bucket" && row[1].starts_with("1,000; ")), "{many:?}");

        let (whole, part) = (now.json(), news.json());
        assert_eq!((&whole["cluster"]["node"], &whole["cluster"]["forwarded"]), (&json!("fs1"), &json!(10)));
        assert_eq!(part["cluster"]["forwarded"], 7);
        assert_eq!(
            (&whole["nodes"][0]["data_sent"], &part["nodes"][0]["data_sent"]),
            (&json!(1000), &json!(700))
        );
        let epochs = |of: &Map<String, serde_json::Value>| -> Vec<String> {
            let takeovers = of["takeovers"].as_array().unwrap();
            takeovers.iter().map(|one| one["epoch"].as_str().unwrap().to_owned()).collect()
        };
        assert_eq!((epochs(&whole).len(), epochs(&part)), (2, vec!["9".to_owned()]));
        assert_eq!(whole["takeovers"][0]["total_ns"], 7000 * MS);
    }

    #[test]
    fn a_restarted_node_counts_from_zero() {
        let (before, now) = (sample(10, &[]), sample(3, &[]));
        assert_eq!(now.since(&before).cluster.forwarded, 3);
    }
}
