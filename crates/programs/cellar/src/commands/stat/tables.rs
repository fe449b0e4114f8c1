//! `cellar stat TABLE` for each table that servers offer.

use super::again::Again;
use super::figures::{self, Labels, Source, Tabular, with_figures};
use crate::commands::Context;
use crate::output::{Format, line};
use anyhow::Result;
use cell_client::Interface;
use clap::error::ErrorKind;
use clap::{ArgMatches, Args, Command, FromArgMatches, Subcommand};
use events::table::{self, Look};
use observe::Table;
use std::net::Ipv4Addr;

/// Server to query, and sampling interval.
#[derive(Args, Clone)]
struct Looking {
    /// File server to query; defaults to the one in this machine's configuration, or else the first database
    /// server.
    #[arg(long)]
    on: Option<Ipv4Addr>,
    #[command(flatten)]
    again: Again,
}

/// Options of tables that can be restricted to a volume.
#[derive(Args, Clone)]
struct Narrowed {
    #[command(flatten)]
    looking: Looking,
    /// Restrict the table to this volume, by number: calls by their callers, or clients by their use of it.
    /// For superusers.
    #[arg(long, value_name = "ID")]
    volume: Option<u32>,
}

/// The requested table. There is one command per table in [`Table::ALL`].
pub struct TableRequest {
    source: Source,
    looking: Looking,
}

impl TableRequest {
    /// All tables but the caches and the cluster, for which commands of their own show both totals and changes.
    fn tables() -> impl Iterator<Item = Table> {
        let has_own = |table: &Table| matches!(table, Table::Caches | Table::Cluster);
        Table::ALL.iter().copied().filter(move |table| !has_own(table))
    }

    fn can_be_narrowed(table: Table) -> bool {
        matches!(table, Table::Calls | Table::Clients)
    }

    fn command(table: Table) -> Command {
        let what = table.what().trim().trim_end_matches('.');
        let (first, rest) = what.split_at(1);
        let who = if table.is_private() { ". For superusers" } else { "" };
        let command = Command::new(table.name());
        let command = if TableRequest::can_be_narrowed(table) {
            Narrowed::augment_args(command)
        } else {
            Looking::augment_args(command)
        };
        // The options' struct would otherwise set its own doc comment as the description.
        command.about(format!("Show {}{rest}{who}", first.to_lowercase()))
    }

    fn of(table: Table, matches: &ArgMatches) -> Result<TableRequest, clap::Error> {
        if !TableRequest::can_be_narrowed(table) {
            let looking = Looking::from_arg_matches(matches)?;
            return Ok(TableRequest { source: Source::Table(table), looking });
        }
        let Narrowed { looking, volume } = Narrowed::from_arg_matches(matches)?;
        let of_volume = if table == Table::Calls { Source::CallsOf } else { Source::ClientsOf };
        Ok(TableRequest { source: volume.map_or(Source::Table(table), of_volume), looking })
    }
}

impl Subcommand for TableRequest {
    fn augment_subcommands(command: Command) -> Command {
        TableRequest::tables()
            .fold(command, |command, table| command.subcommand(TableRequest::command(table)))
    }

    fn augment_subcommands_for_update(command: Command) -> Command {
        TableRequest::augment_subcommands(command)
    }

    fn has_subcommand(name: &str) -> bool {
        TableRequest::tables().any(|table| table.name() == name)
    }
}

impl FromArgMatches for TableRequest {
    fn from_arg_matches(matches: &ArgMatches) -> Result<TableRequest, clap::Error> {
        let (name, matches) =
            matches.subcommand().ok_or_else(|| clap::Error::new(ErrorKind::MissingSubcommand))?;
        let table = Table::of_name(name).ok_or_else(|| clap::Error::new(ErrorKind::InvalidSubcommand))?;
        TableRequest::of(table, matches)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = TableRequest::from_arg_matches(matches)?;
        Ok(())
    }
}

/// Runs the command.
pub(super) fn run(context: &Context, asked: &TableRequest) -> Result<()> {
    with_figures!(asked.source, Figures => show::<Figures>(context, &asked.looking, asked.source))
}

fn show<F: Tabular>(context: &Context, looking: &Looking, source: Source) -> Result<()> {
    let headings = source.labels();
    let client = context.observer()?;
    let server = looking.on.unwrap_or_else(|| context.default_server(&client));
    let connection = client.connection(server, Interface::Cellar);
    let ask = || figures::look::<F>(&*connection, server, source);
    let mut before = ask()?;
    if looking.again.is_once() {
        return print(context.format, headings, &before);
    }
    looking.again.each(|| {
        let now = ask()?;
        print(context.format, headings, &table::since(&now, &before))?;
        if context.format == Format::Text {
            line("")?;
        }
        before = now;
        Ok(())
    })
}

/// Prints a table.
pub(crate) fn print<F: Tabular>(format: Format, headings: &[&str], look: &Look<Labels, F>) -> Result<()> {
    let rows = rows(headings, look);
    let json = rows.iter().map(|(labels, figures)| figures::json_of(headings, labels, figures, None).into());
    let columns = F::COLUMNS.iter().map(|(heading, ..)| (*heading).to_owned());
    let headings = headings.iter().map(|heading| heading.to_uppercase()).chain(columns).collect();
    let cells = |(labels, figures): &(Labels, F)| {
        labels.iter().cloned().chain(F::COLUMNS.iter().map(|(_, show, of)| show.text(of(figures)))).collect()
    };
    format.table(headings, rows.iter().map(cells).collect(), &serde_json::Value::Array(json.collect()))
}

/// Label of the row that sums up all clients without a row of their own.
pub(crate) const OTHERS: &str = "(others)";

/// Returns the rows, heaviest first, followed by the [`OTHERS`] row unless it is empty.
pub(crate) fn rows<F: Tabular>(headings: &[&str], look: &Look<Labels, F>) -> Vec<(Labels, F)> {
    let mut rows = look.0.clone();
    rows.sort_by(|(a_labels, a), (b_labels, b)| {
        b.weight().cmp(&a.weight()).then_with(|| a_labels.cmp(b_labels))
    });
    if look.1.weight() > 0 {
        let mut labels = vec![OTHERS.to_owned()];
        labels.resize(headings.len(), String::new());
        rows.push((labels, look.1.clone()));
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use events::catalogue::UsageFigures;

    #[test]
    fn each_table_is_a_documented_command() {
        let command = TableRequest::augment_subcommands(Command::new("stat"));
        let about = |command: &Command| command.get_about().map(ToString::to_string).unwrap_or_default();
        let reported: Vec<(&str, String)> =
            command.get_subcommands().map(|command| (command.get_name(), about(command))).collect();
        assert_eq!(reported.len(), Table::ALL.len() - 2);
        for (name, about) in reported {
            let private = ["volumes", "clients", "hosts", "peers"].contains(&name);
            assert!(
                about.starts_with("Show ") && about.ends_with(". For superusers") == private,
                "{name}: {about}"
            );
        }
        let matches = command.get_matches_from(["stat", "calls", "--volume", "7", "--interval", "1"]);
        assert_eq!(TableRequest::from_arg_matches(&matches).unwrap().source, Source::CallsOf(7));
    }

    #[test]
    fn the_heaviest_come_first_and_the_others_last() {
        let of = |calls| UsageFigures { calls, ..UsageFigures::default() };
        let label = |text: &str| vec![text.to_owned(), String::new()];
        let look = (vec![(label("b"), of(1)), (label("a"), of(5)), (label("c"), of(1))], of(9));
        let rows = rows(&["volume", "name"], &look);
        let first: Vec<&str> = rows.iter().map(|(labels, _)| labels[0].as_str()).collect();
        assert_eq!(first, ["a", "b", "c", "(others)"]);
        assert_eq!(rows[3].0.len(), 2);
    }
}
