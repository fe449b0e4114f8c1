//! `cellar stat TABLE` for each table that servers tell.

use super::again::Again;
use super::figures::{self, Labels, Shown, Source, with_figures};
use crate::client::Interface;
use crate::commands::Context;
use crate::output::{Format, line};
use anyhow::Result;
use clap::error::ErrorKind;
use clap::{ArgMatches, Args, Command, FromArgMatches, Subcommand};
use events::table::{self, Look};
use observe::Table;
use std::net::Ipv4Addr;

/// Whom to ask, and how often.
#[derive(Args, Clone)]
struct Looking {
    /// The file server; that of this machine's configuration, else the first database server, if left out.
    #[arg(long)]
    on: Option<Ipv4Addr>,
    #[command(flatten)]
    again: Again,
}

/// The same of tables that can be narrowed to a volume.
#[derive(Args, Clone)]
struct Narrowed {
    #[command(flatten)]
    looking: Looking,
    /// Only what was done with this volume, by number: calls by whom they were made, clients by what they did
    /// with it. For superusers.
    #[arg(long, value_name = "ID")]
    volume: Option<u32>,
}

/// A table, as it was asked for. The commands are those of [`Table::ALL`].
pub struct Asked {
    source: Source,
    looking: Looking,
}

impl Asked {
    /// All but the caches, of which `cellar stat caches` has always shown both what there is and what came.
    fn tables() -> impl Iterator<Item = Table> {
        Table::ALL.iter().copied().filter(|table| *table != Table::Caches)
    }

    fn can_be_narrowed(table: Table) -> bool {
        matches!(table, Table::Calls | Table::Clients)
    }

    fn command(table: Table) -> Command {
        let what = table.what().trim().trim_end_matches('.');
        let (first, rest) = what.split_at(1);
        let who = if table.is_private() { ". For superusers" } else { "" };
        let command = Command::new(table.name());
        let command = if Asked::can_be_narrowed(table) {
            Narrowed::augment_args(command)
        } else {
            Looking::augment_args(command)
        };
        // Options have an account of themselves, which is none of the table.
        command.about(format!("Show {}{rest}{who}", first.to_lowercase()))
    }

    fn of(table: Table, matches: &ArgMatches) -> Result<Asked, clap::Error> {
        if !Asked::can_be_narrowed(table) {
            let looking = Looking::from_arg_matches(matches)?;
            return Ok(Asked { source: Source::Table(table), looking });
        }
        let Narrowed { looking, volume } = Narrowed::from_arg_matches(matches)?;
        let of_volume = if table == Table::Calls { Source::CallsOf } else { Source::ClientsOf };
        Ok(Asked { source: volume.map_or(Source::Table(table), of_volume), looking })
    }
}

impl Subcommand for Asked {
    fn augment_subcommands(command: Command) -> Command {
        Asked::tables().fold(command, |command, table| command.subcommand(Asked::command(table)))
    }

    fn augment_subcommands_for_update(command: Command) -> Command {
        Asked::augment_subcommands(command)
    }

    fn has_subcommand(name: &str) -> bool {
        Asked::tables().any(|table| table.name() == name)
    }
}

impl FromArgMatches for Asked {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Asked, clap::Error> {
        let (name, matches) =
            matches.subcommand().ok_or_else(|| clap::Error::new(ErrorKind::MissingSubcommand))?;
        let table = Table::of_name(name).ok_or_else(|| clap::Error::new(ErrorKind::InvalidSubcommand))?;
        Asked::of(table, matches)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Asked::from_arg_matches(matches)?;
        Ok(())
    }
}

/// Shows it.
pub(super) fn run(context: &Context, asked: &Asked) -> Result<()> {
    with_figures!(asked.source, Figures => show::<Figures>(context, &asked.looking, asked.source))
}

fn show<F: Shown>(context: &Context, looking: &Looking, source: Source) -> Result<()> {
    let headings = source.labels();
    let client = context.client()?;
    let server = looking.on.unwrap_or_else(|| context.server_to_watch(&client));
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
pub(crate) fn print<F: Shown>(format: Format, headings: &[&str], look: &Look<Labels, F>) -> Result<()> {
    let rows = rows(headings, look);
    let json = rows.iter().map(|(labels, figures)| figures::json_of(headings, labels, figures, None).into());
    let columns = F::COLUMNS.iter().map(|(heading, ..)| (*heading).to_owned());
    let headings = headings.iter().map(|heading| heading.to_uppercase()).chain(columns).collect();
    let cells = |(labels, figures): &(Labels, F)| {
        labels.iter().cloned().chain(F::COLUMNS.iter().map(|(_, show, of)| show.text(of(figures)))).collect()
    };
    format.table(headings, rows.iter().map(cells).collect(), &serde_json::Value::Array(json.collect()))
}

/// What those who have no row are called.
pub(crate) const OTHERS: &str = "(others)";

/// The heaviest rows first, and behind them the others, if they have anything.
pub(crate) fn rows<F: Shown>(headings: &[&str], look: &Look<Labels, F>) -> Vec<(Labels, F)> {
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
    fn each_table_is_a_command_that_says_what_it_shows() {
        let command = Asked::augment_subcommands(Command::new("stat"));
        let about = |command: &Command| command.get_about().map(ToString::to_string).unwrap_or_default();
        let told: Vec<(&str, String)> =
            command.get_subcommands().map(|command| (command.get_name(), about(command))).collect();
        assert_eq!(told.len(), Table::ALL.len() - 1);
        for (name, about) in told {
            let private = ["volumes", "clients", "hosts", "peers"].contains(&name);
            assert!(
                about.starts_with("Show ") && about.ends_with(". For superusers") == private,
                "{name}: {about}"
            );
        }
        let matches = command.get_matches_from(["stat", "calls", "--volume", "7", "--interval", "1"]);
        assert_eq!(Asked::from_arg_matches(&matches).unwrap().source, Source::CallsOf(7));
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
