//! Prints all tables without a terminal: totals since the server's start, or changes between samples.

use super::Asker;
use super::sample::Sample;
use super::state::Pane;
use crate::commands::stat::again::Again;
use crate::output::{Format, line};
use anyhow::Result;
use serde_json::{Map, Value, json};
use std::time::Instant;

/// A sample of each table and its time.
type Looks = Vec<(Pane, Sample, Instant)>;

/// Prints all tables: totals once, or rates per second after each interval. A single JSON document is
/// indented; a series has one document per line.
pub(super) fn print(format: Format, asker: &Asker, again: Again, only: bool) -> Result<()> {
    let mut before = look(asker)?;
    if again.is_once() {
        return Printing { format, asker, is_line: false }.tables(before, None);
    }
    again.each(|| {
        let now = look(asker)?;
        Printing { format, asker, is_line: !only }.tables(now.clone(), Some(&before))?;
        before = now;
        Ok(())
    })
}

fn look(asker: &Asker) -> Result<Looks> {
    let state = asker.state();
    let look = |pane: &Pane| Ok((*pane, asker.look(*pane, pane.source())?, Instant::now()));
    state.panes().iter().map(look).collect()
}

/// Output options.
struct Printing<'a> {
    format: Format,
    asker: &'a Asker,
    is_line: bool,
}

impl Printing<'_> {
    /// Prints the tables; as rates per second if there is an earlier sample.
    fn tables(&self, now: Looks, before: Option<&Looks>) -> Result<()> {
        let mut document = self.about()?;
        for (place, (pane, sample, at)) in now.into_iter().enumerate() {
            let past = before.and_then(|before| before.get(place));
            let news =
                past.and_then(|(_, past, then)| Some((sample.since(past)?, (at - *then).as_secs_f64())));
            let (sample, seconds) = news.map_or((sample, None), |(news, seconds)| (news, Some(seconds)));
            if let Some(seconds) = seconds {
                document.entry("seconds").or_insert_with(|| json!(seconds));
            }
            self.table(pane, &sample, seconds)?;
            document.insert(pane.name().to_owned(), sample.json(pane.headings(), seconds));
        }
        match (self.format, self.is_line) {
            (Format::Text, _) => Ok(()),
            (Format::Json, true) => line(serde_json::to_string(&document)?),
            (Format::Json, false) => self.format.done(&document, ""),
        }
    }

    /// Returns the name and version of a foreign server.
    fn about(&self) -> Result<Map<String, Value>> {
        let mut document = Map::new();
        if let Asker::Foreign(foreign) = self.asker {
            document.insert("server".to_owned(), foreign.server.to_string().into());
            document.insert("version".to_owned(), foreign.version.clone().into());
            if self.format == Format::Text {
                line(format!("{}\n", self.asker.about()))?;
            }
        }
        Ok(document)
    }

    fn table(&self, pane: Pane, sample: &Sample, seconds: Option<f64>) -> Result<()> {
        if self.format == Format::Json {
            return Ok(());
        }
        let grid = sample.grid(pane.headings(), seconds);
        let span = if seconds.is_some() { ", by second" } else { "" };
        line(format!("{}{span}", pane.title().to_uppercase()))?;
        self.format.table(grid.headings(), grid.texts(), &Value::Null)?;
        line("")
    }
}
