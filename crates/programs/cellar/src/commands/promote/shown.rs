//! Output of `cellar promote`.

use crate::output::Row;
use indicatif::{HumanBytes, ProgressBar, ProgressStyle};
use jobs::Place;
use promote::{CellRecord, PromotionError, Record, Stage, Step, Task, Tree};
use promotion_runner::asking::Found;
use promotion_runner::config::{CellConfig, Config};
use serde::Serialize;
use std::time::Duration;

/// A cell as displayed.
#[derive(Serialize)]
pub(super) struct CellShown {
    cell: String,
    state: &'static str,
    in_use: u32,
    since: Option<u32>,
    wanted: u32,
    former: Option<u32>,
    kept: Vec<u32>,
    from: Option<String>,
    sent_bytes: u64,
    volume: Option<u32>,
    sites: Vec<Place>,
    lacking: Vec<Place>,
    /// Intended number of sites, limited by the number of servers in the cell.
    copies: usize,
    trouble: Option<String>,
    /// State of the sites, if they were queried.
    found: Option<Vec<Found>>,
}

impl CellShown {
    /// Returns the cell's name.
    pub(super) fn name(&self) -> &str {
        &self.cell
    }

    /// Adds the queried state of its sites.
    pub(super) fn add(&mut self, found: Vec<Found>) {
        self.found = Some(found);
    }

    /// Returns the number of sites with the version: as queried, or else as recorded.
    fn sites_with_it(&self) -> usize {
        let known = || self.sites.len() - self.lacking.len().min(self.sites.len());
        let well = |found: &Vec<Found>| found.iter().filter(|site| site.trouble.is_none()).count();
        self.found.as_ref().map_or_else(known, well)
    }

    /// Lists everything that differs from the intended state.
    fn troubles(&self) -> String {
        let reported = |site: &Found| Some(format!("{}: {}", site.place, site.trouble.as_ref()?));
        let found = self.found.iter().flatten().filter_map(reported);
        self.trouble.clone().into_iter().chain(found).collect::<Vec<_>>().join("; ")
    }

    /// Returns all cells of a record.
    pub(super) fn all(record: &Record) -> Vec<CellShown> {
        record.cells.iter().map(|(name, cell)| CellShown::new(name, cell)).collect()
    }

    /// Returns the cells that need work: those with another version than intended, or too few copies of it.
    pub(super) fn unfinished(record: &Record) -> Vec<CellShown> {
        let is_short = record.cells.iter().filter(|(_, cell)| cell.is_current() && cell.is_short());
        let is_short = is_short.map(|(name, cell)| (name.as_str(), cell));
        late(record).chain(is_short).map(|(name, cell)| CellShown::new(name, cell)).collect()
    }

    fn new(name: &str, cell: &CellRecord) -> CellShown {
        CellShown {
            cell: name.into(),
            state: state(cell),
            in_use: cell.in_use(),
            since: cell.history.last().map(|arrival| arrival.at),
            wanted: cell.wanted,
            former: cell.former(),
            kept: cell.holds.keys().copied().collect(),
            from: cell.from.clone(),
            sent_bytes: cell.bytes,
            volume: cell.home.as_ref().map(|home| home.read_only),
            sites: cell.home.as_ref().map_or(Vec::new(), |home| home.sites.clone()),
            lacking: cell.lacking.clone(),
            copies: cell.copies.max(cell.home.as_ref().map_or(0, |home| home.sites.len())),
            trouble: cell.trouble().map(str::to_owned).or_else(|| scarcity(cell)),
            found: None,
        }
    }
}

/// Returns the cells that do not have the intended version.
pub(super) fn late(record: &Record) -> impl Iterator<Item = (&str, &CellRecord)> {
    let cells = record.cells.iter().filter(|(_, cell)| cell.wanted != 0 && !cell.is_current());
    cells.map(|(name, cell)| (name.as_str(), cell))
}

/// Explains why the cell has fewer sites than intended.
fn scarcity(cell: &CellRecord) -> Option<String> {
    cell.scarce.as_ref().filter(|_| cell.is_short()).map(|why| format!("no further copy: {why}"))
}

fn state(cell: &CellRecord) -> &'static str {
    match cell.stage {
        _ if cell.is_behind() => "behind",
        _ if cell.is_refused() => "refused",
        _ if cell.is_current() => "current",
        Stage::Beginning | Stage::Making => "waits",
        Stage::Sending => "is sent to",
        Stage::Freezing | Stage::Verifying => "is verified",
        _ => "is published",
    }
}

impl Row for CellShown {
    const COLUMNS: &'static [&'static str] =
        &["CELL", "STATE", "VERSION", "SINCE (UTC)", "BEFORE", "SITES", "FROM", "SENT", "TROUBLE"];

    fn cells(&self) -> Vec<String> {
        let version = |version: u32| if version == 0 { "-".into() } else { version.to_string() };
        let wanted =
            if self.in_use == self.wanted { String::new() } else { format!(" (target {})", self.wanted) };
        let date = |at: u32| {
            jiff::Timestamp::from_second(at.into())
                .map_or_else(|_| at.to_string(), |at| at.strftime("%F %T").to_string())
        };
        vec![
            self.cell.clone(),
            self.state.into(),
            version(self.in_use) + &wanted,
            self.since.map_or_else(|| "-".into(), date),
            self.former.map_or_else(|| "-".into(), version),
            format!("{} of {}", self.sites_with_it(), self.copies),
            self.from.clone().unwrap_or_else(|| "-".into()),
            HumanBytes(self.sent_bytes).to_string(),
            self.troubles(),
        ]
    }
}

/// A cell in the plan.
#[derive(Serialize)]
pub(super) struct PlanShown {
    cell: String,
    from: String,
    depth: usize,
    is_direct: bool,
    has: u32,
    copies: usize,
}

impl PlanShown {
    /// Returns the plan for these cells.
    pub(super) fn all(config: &Config, record: &Record, cells: &[String], tree: Tree) -> Vec<PlanShown> {
        let common = |cell: &str| config.cells.get(cell).is_some_and(|cell| cell.common_key);
        let row = |(number, cell): (usize, &String)| {
            let from = tree.parent(number).map_or(&config.source, |parent| &cells[parent]);
            let known = record.cells.get(cell);
            let sites = known.and_then(|known| known.home.as_ref()).map_or(0, |home| home.sites.len());
            let wanted = config.cells.get(cell).map_or(0, CellConfig::wanted_copies);
            PlanShown {
                cell: cell.clone(),
                from: from.clone(),
                depth: tree.depth(number),
                is_direct: common(cell) && common(from),
                has: known.map_or(0, CellRecord::in_use),
                copies: sites.max(wanted),
            }
        };
        cells.iter().enumerate().map(row).collect()
    }
}

impl Row for PlanShown {
    const COLUMNS: &'static [&'static str] = &["CELL", "FROM", "REMOTE COPIES", "WAY", "HAS", "COPIES"];

    fn cells(&self) -> Vec<String> {
        vec![
            self.cell.clone(),
            self.from.clone(),
            self.depth.to_string(),
            if self.is_direct { "server to server" } else { "through this machine" }.into(),
            if self.has == 0 { "-".into() } else { format!("version {}", self.has) },
            self.copies.to_string(),
        ]
    }
}

/// A progress line on the terminal.
pub(super) struct Progress(ProgressBar);

impl Progress {
    pub(super) fn new(record: &Record) -> Progress {
        let bar = ProgressBar::new(record.cells.len() as u64);
        if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos} of {len} cells, {elapsed}: {msg}") {
            bar.set_style(style);
        }
        bar.enable_steady_tick(Duration::from_millis(200));
        Progress(bar)
    }

    /// Updates the line when a task has ended.
    pub(super) fn update(&self, record: &Record, task: &Task, trouble: Option<&PromotionError>) {
        let current = record.cells.values().filter(|cell| cell.is_current()).count();
        self.0.set_position(current as u64);
        let cell = &task.cell;
        let what = match &task.step {
            Step::Look | Step::Make(_) | Step::Number => "is prepared".into(),
            Step::Send { source, .. } => format!("received it from {source}"),
            Step::Freeze { .. } | Step::Digest(_) => "is verified".into(),
            Step::Publish { .. } => "uses it".into(),
            Step::Copy { to, .. } => format!("has it on {to}"),
            Step::Widen { .. } => "is looking for servers for further copies".into(),
            Step::Drop(_) => "is cleaned up".to_owned(),
        };
        match trouble {
            None => self.0.set_message(format!("{cell} {what}")),
            Some(
                PromotionError::Passing(why) | PromotionError::Lasting(why) | PromotionError::Changed(why),
            ) => {
                self.0.println(format!("{cell}: {why}"));
            }
        }
    }

    pub(super) fn end(&self) {
        self.0.finish_and_clear();
    }
}
