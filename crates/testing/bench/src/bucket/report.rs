//! Prints the comparison of places.

use super::{BucketOptions, OF_CELLAR, PLACES, Place, Run};
use crate::disturbed;
use crate::machine::Machine;
use crate::order::{Latency, Outcome};
use crate::report::{spread, table};
use crate::statistics::{Spread, ratio, short};
use crate::workload::{Unit, Workload};
use interop::seaweed::Requests;

/// What all tables have in common.
pub(super) struct Report {
    pub(super) machine: Machine,
    /// Versions of the other programs.
    pub(super) versions: String,
    pub(super) options: BucketOptions,
}

/// Runs for each place.
type Runs = [Vec<Run>; PLACES.len()];

/// Runs of one workload.
pub(super) struct Row {
    pub(super) workload: &'static Workload,
    pub(super) runs: Runs,
}

/// Cold reads.
pub(super) struct ColdRow {
    pub(super) name: &'static str,
    pub(super) keeps_copies: bool,
    pub(super) runs: Runs,
}

/// One tree of files: seconds of each stage, and what it asked of the bucket.
pub(super) struct TreeRow {
    pub(super) place: Place,
    pub(super) stages: [(f64, Requests); TREE_STAGES.len()],
}

/// Two starts of a server with many volumes.
pub(super) struct StartRow {
    pub(super) place: Place,
    /// Seconds in which the volumes were created.
    pub(super) made: f64,
    /// Seconds of each start, and requests to the bucket.
    pub(super) seconds: Vec<f64>,
    pub(super) requests: Vec<f64>,
}

const TREE_STAGES: [&str; 4] = [
    "create the files and store 1 KiB each, 4 clients",
    "list with status, warm, 1 client",
    "list with status, restarted, no page cache; copies on the local disk",
    "list with status, restarted, no page cache, no copies on the local disk",
];

const STARTS: [&str; 2] = ["after an orderly end", "after a kill"];

impl Row {
    pub(super) fn new(workload: &'static Workload) -> Row {
        Row { workload, runs: [const { Vec::new() }; PLACES.len()] }
    }
}

impl ColdRow {
    pub(super) fn new((name, keeps_copies): (&'static str, bool)) -> ColdRow {
        ColdRow { name, keeps_copies, runs: [const { Vec::new() }; PLACES.len()] }
    }
}

/// Returns the least ratio to the local partition that is aimed at.
fn goal(workload: &str) -> Option<f64> {
    match workload {
        "read-1" | "read-16" => Some(0.9),
        "write-1" | "write-16" => Some(0.6),
        "small-16" => Some(0.5),
        _ => None,
    }
}

fn rates(runs: &[Run], unit: Unit) -> Option<Spread> {
    let rate = |run: &Run| ratio(run.outcome.amount / unit.scale(), run.outcome.seconds);
    Spread::of(runs.iter().filter_map(rate))
}

/// Returns the cells of Cellar's rates: those of [`beside_local`].
fn compared(runs: &Runs, unit: Unit) -> Vec<String> {
    beside_local(OF_CELLAR.map(|place| rates(&runs[place as usize], unit)), quotient)
}

/// Returns the cells of Cellar's places: the local partition, and each other one followed by its comparison with the local
/// one.
fn beside_local(
    figures: [Option<Spread>; OF_CELLAR.len()],
    compare: fn(Option<Spread>, Option<Spread>) -> String,
) -> Vec<String> {
    let [local, others @ ..] = figures;
    let mut cells = vec![cell(local)];
    cells.extend(others.into_iter().flat_map(|other| [cell(other), compare(other, local)]));
    cells
}

fn cell(figures: Option<Spread>) -> String {
    figures.map_or_else(dash, spread)
}

fn quotient(part: Option<Spread>, whole: Option<Spread>) -> String {
    let found = part.zip(whole).and_then(|(part, whole)| ratio(part.median, whole.median));
    found.map_or_else(dash, short)
}

fn dash() -> String {
    "-".into()
}

/// Returns the sum of a figure over the runs, per unit.
fn per_unit(runs: &[Run], unit: Unit, of: impl Fn(&Run) -> f64) -> String {
    let amount: f64 = runs.iter().map(|run| run.outcome.amount / unit.scale()).sum();
    ratio(runs.iter().map(of).sum(), amount).map_or_else(dash, short)
}

/// Returns the cells of requests for one unit: writes, reads, others, and kB sent to the bucket and read from it.
fn requests(runs: &[Run], unit: Unit) -> [String; 5] {
    let of = |figure: fn(&Requests) -> f64| per_unit(runs, unit, |run| figure(&run.requests));
    [
        of(|requests| requests.put),
        of(|requests| requests.get),
        of(|requests| requests.list + requests.delete + requests.other),
        of(|requests| requests.received_bytes / 1e3),
        of(|requests| requests.sent_bytes / 1e3),
    ]
}

fn unit_name(unit: Unit) -> String {
    unit.rate_name().trim_end_matches("/s").trim_end_matches('s').to_owned()
}

fn percentile(runs: &[Run], of: fn(Latency) -> f64) -> String {
    let figures = runs.iter().filter_map(|run| run.outcome.latency).map(of);
    Spread::of(figures).map_or_else(dash, |figures| short(figures.median))
}

impl Report {
    /// Describes the machine and the options.
    pub(super) fn head(&self) -> String {
        let BucketOptions { rounds, seconds, size, .. } = self.options;
        format!(
            "{}\n\n{rounds} rounds, in turn; {} MB per run with large files, {} s per run with small ones; {}",
            self.machine,
            short((size << 20) as f64 / 1e6),
            short(seconds),
            self.versions
        )
    }

    /// Returns the tables of workloads.
    pub(super) fn operations(rows: &[Row]) -> String {
        let outcomes = rows.iter().flat_map(|row| row.runs.iter().flatten()).map(|run| &run.outcome);
        let shares: Vec<f64> = outcomes.map(Outcome::stolen_share).collect();
        [
            disturbed::below(&Report::rates(rows), &shares),
            "Requests to the bucket for each unit, and kB of objects in them; also those of work in the background:"
                .into(),
            Report::requests(rows),
            "CPU time for each unit, in milliseconds: of Cellar's server, and of the rest of the machine with the load \
             generator and the server of the bucket:"
                .into(),
            Report::cpu(rows),
            "Latency in microseconds; medians of the runs' percentiles:".into(),
            Report::latencies(rows),
        ]
        .join("\n\n")
    }

    fn rates(rows: &[Row]) -> String {
        let header = [
            "workload",
            "what",
            "unit",
            "local",
            "bucket",
            "bucket / local",
            "folder",
            "folder / local",
            "goal",
            "JuiceFS",
        ];
        let mut lines = table(&header, 3);
        for row in rows {
            let (Workload { name, text, .. }, unit) = (*row.workload, row.workload.unit());
            let mut cells = vec![name.to_owned(), text.to_owned(), unit.rate_name().to_owned()];
            cells.extend(compared(&row.runs, unit));
            cells.push(goal(name).map_or_else(dash, short));
            cells.push(cell(rates(&row.runs[Place::JuiceFs as usize], unit)));
            lines.add_row(cells);
        }
        lines.to_string()
    }

    fn requests(rows: &[Row]) -> String {
        let header = [
            "workload",
            "unit",
            "bucket: PUT",
            "GET",
            "others",
            "kB sent",
            "kB read",
            "JuiceFS: PUT",
            "GET",
            "others",
            "kB sent",
            "kB read",
        ];
        let mut lines = table(&header, 2);
        for row in rows {
            let unit = row.workload.unit();
            let mut cells = vec![row.workload.name.to_owned(), unit_name(unit)];
            for place in [Place::Bucket, Place::JuiceFs] {
                cells.extend(requests(&row.runs[place as usize], unit));
            }
            lines.add_row(cells);
        }
        lines.to_string()
    }

    fn cpu(rows: &[Row]) -> String {
        let header = [
            "workload",
            "unit",
            "local: server",
            "rest",
            "bucket: server",
            "rest",
            "folder: server",
            "rest",
            "JuiceFS: all",
        ];
        let mut lines = table(&header, 2);
        for row in rows {
            let unit = row.workload.unit();
            let mut cells = vec![row.workload.name.to_owned(), unit_name(unit)];
            let rest = |run: &Run| (run.outcome.cpu.generator + run.outcome.cpu.other) * 1e3;
            for place in OF_CELLAR {
                let runs = &row.runs[place as usize];
                cells.push(per_unit(runs, unit, |run| run.outcome.cpu.server * 1e3));
                cells.push(per_unit(runs, unit, rest));
            }
            cells.push(per_unit(&row.runs[Place::JuiceFs as usize], unit, rest));
            lines.add_row(cells);
        }
        lines.to_string()
    }

    fn latencies(rows: &[Row]) -> String {
        let header = [
            "workload",
            "local: half",
            "99 %",
            "bucket: half",
            "99 %",
            "folder: half",
            "99 %",
            "JuiceFS: half",
            "99 %",
        ];
        let mut lines = table(&header, 1);
        for row in
            rows.iter().filter(|row| row.runs.iter().flatten().any(|run| run.outcome.latency.is_some()))
        {
            let mut cells = vec![row.workload.name.to_owned()];
            for runs in &row.runs {
                cells.push(percentile(runs, |latency| latency.p50_us));
                cells.push(percentile(runs, |latency| latency.p99_us));
            }
            lines.add_row(cells);
        }
        lines.to_string()
    }

    /// Returns the table of cold reads.
    pub(super) fn cold(rows: &[ColdRow]) -> String {
        let header = [
            "read a large file, MB/s",
            "local",
            "bucket",
            "bucket / local",
            "folder",
            "folder / local",
            "JuiceFS",
            "bucket: GET per MB",
        ];
        let mut lines = table(&header, 1);
        for row in rows {
            let mut cells = vec![row.name.to_owned()];
            cells.extend(compared(&row.runs, Unit::Bytes));
            cells.push(cell(rates(&row.runs[Place::JuiceFs as usize], Unit::Bytes)));
            cells.push(per_unit(&row.runs[Place::Bucket as usize], Unit::Bytes, |run| run.requests.get));
            lines.add_row(cells);
        }
        lines.to_string()
    }

    /// Returns the table of trees.
    pub(super) fn tree(&self, rows: &[TreeRow]) -> String {
        let header = [
            "seconds",
            "local",
            "bucket",
            "local / bucket",
            "folder",
            "local / folder",
            "bucket: requests per 1,000 files",
            "kB sent",
            "kB read",
        ];
        let mut lines = table(&header, 1);
        let of = |place, figure: &dyn Fn(&TreeRow) -> f64| {
            Spread::of(rows.iter().filter(|row| row.place == place).map(figure))
        };
        for (at, name) in TREE_STAGES.iter().enumerate() {
            let seconds = OF_CELLAR.map(|place| of(place, &|row| row.stages[at].0));
            let mut cells = vec![(*name).to_owned()];
            cells.extend(beside_local(seconds, |other, local| quotient(local, other)));
            let thousands = f64::from(self.options.files) / 1e3;
            let asked = |figure: fn(&Requests) -> f64| {
                let found = of(Place::Bucket, &|row| figure(&row.stages[at].1) / thousands);
                found.map_or_else(dash, |found| short(found.median))
            };
            cells.push(asked(Requests::all));
            cells.push(asked(|requests| requests.received_bytes / 1e3));
            cells.push(asked(|requests| requests.sent_bytes / 1e3));
            lines.add_row(cells);
        }
        format!("A tree of {} files, 1,000 in a directory:\n\n{lines}", self.options.files)
    }

    /// Returns the table of starts.
    pub(super) fn start(&self, rows: &[StartRow]) -> String {
        let header =
            ["seconds from the start to the last volume", "local", "bucket", "folder", "bucket: requests"];
        let mut lines = table(&header, 1);
        let of = |place, figure: &dyn Fn(&StartRow) -> f64| {
            cell(Spread::of(rows.iter().filter(|row| row.place == place).map(figure)))
        };
        for (at, name) in STARTS.iter().enumerate() {
            let mut cells = vec![(*name).to_owned()];
            cells.extend(OF_CELLAR.map(|place| of(place, &|row| row.seconds[at])));
            cells.push(of(Place::Bucket, &|row| row.requests[at]));
            lines.add_row(cells);
        }
        let [local, bucket, folder] = OF_CELLAR.map(|place| {
            let of = rows.iter().filter(|row| row.place == place).map(|row| row.made);
            Spread::of(of).map_or_else(dash, |made| short(made.median))
        });
        format!(
            "A server with {} volumes, which 16 clients created in {local} s on the local disk, {bucket} s in the bucket and \
             {folder} s in the folder:\n\n{lines}",
            self.options.volumes
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::order::CpuSeconds;
    use crate::workload;

    fn run(amount: f64, puts: f64) -> Run {
        let cpu = CpuSeconds { server: 1.0, generator: 0.5, other: 0.5, stolen: 0.0 };
        let latency = Some(Latency { p50_us: 70.0, p99_us: 900.0 });
        let requests = Requests { put: puts, received_bytes: 1e6, ..Requests::default() };
        Run { outcome: Outcome { amount, seconds: 2.0, cpu, latency }, requests }
    }

    fn report() -> Report {
        let options =
            BucketOptions { rounds: 1, seconds: 2.0, size: 1, files: 2000, volumes: 10, only: vec![] };
        Report { machine: Machine::default(), versions: "SeaweedFS 1".into(), options }
    }

    fn line<'a>(text: &'a str, nth: usize, of: &str) -> Vec<&'a str> {
        let line = text.lines().filter(|line| line.contains(of)).nth(nth).unwrap();
        line.trim_matches('|').split('|').map(str::trim).collect()
    }

    #[test]
    fn a_workload_has_a_ratio_its_goal_and_its_requests() {
        let mut row = Row::new(workload::by_name("small-16").unwrap());
        let bucket = vec![run(1000.0, 500.0), run(1000.0, 500.0)];
        row.runs = [vec![run(2000.0, 0.0)], bucket, vec![run(500.0, 0.0)], vec![]];
        let text = Report::operations(&[row]);
        let rates = line(&text, 0, "small-16");
        let cellar = ["1000 (1000..1000)", "500 (500..500)", "0.50", "250 (250..250)", "0.25"];
        assert_eq!(rates[2..], [&["files/s"], &cellar[..], &["0.50", "-"]].concat());
        let asked = line(&text, 1, "small-16");
        assert_eq!(asked[1..], ["file", "0.50", "0.00", "0.00", "1.00", "0.00", "-", "-", "-", "-", "-"]);
        let cpu = line(&text, 2, "small-16");
        assert_eq!(cpu[1..], ["file", "0.50", "0.50", "1.00", "1.00", "2.00", "2.00", "-"]);
        let latencies = ["70.0", "900", "70.0", "900", "70.0", "900", "-", "-"];
        assert_eq!(line(&text, 3, "small-16")[1..], latencies);
    }

    #[test]
    fn cold_reads_trees_and_starts_have_a_row_each() {
        let mut row = ColdRow::new(("cold", false));
        row.runs = [4e8, 2e8, 3e8, 1e8].map(|amount| vec![run(amount, 0.0)]);
        let cold = Report::cold(&[row]);
        let cellar = ["200 (200..200)", "100 (100..100)", "0.50", "150 (150..150)", "0.75"];
        assert_eq!(line(&cold, 0, "cold")[1..], [&cellar[..], &["50.0 (50.0..50.0)", "0.00"]].concat());
        let asked = Requests { get: 40.0, sent_bytes: 2e6, ..Requests::default() };
        let tree = |place, seconds| TreeRow { place, stages: [(seconds, asked); 4] };
        let rows = [tree(Place::Local, 1.0), tree(Place::Bucket, 2.0), tree(Place::Folder, 4.0)];
        let text = report().tree(&rows);
        assert!(text.starts_with("A tree of 2000 files"), "{text}");
        let cellar = ["1.00 (1.00..1.00)", "2.00 (2.00..2.00)", "0.50", "4.00 (4.00..4.00)", "0.25"];
        assert_eq!(line(&text, 0, "warm")[1..], [&cellar[..], &["20.0", "0.00", "1000"]].concat());
        let start =
            |place, made| StartRow { place, made, seconds: vec![1.0, 7.0], requests: vec![9.0, 12.0] };
        let rows = [start(Place::Local, 3.0), start(Place::Bucket, 4.0), start(Place::Folder, 5.0)];
        let text = report().start(&rows);
        let made = "created in 3.00 s on the local disk, 4.00 s in the bucket and 5.00 s in the folder";
        assert!(text.contains(made), "{text}");
        let figures = ["7.00 (7.00..7.00)", "7.00 (7.00..7.00)", "7.00 (7.00..7.00)", "12.0 (12.0..12.0)"];
        assert_eq!(line(&text, 0, "kill")[1..], figures);
    }
}
