//! Prints results.

use crate::disturbed;
use crate::machine::Machine;
use crate::order::{Latency, Outcome};
use crate::statistics::{Spread, ratio, short};
use crate::workload::{Kind, Unit, Workload};
use comfy_table::{CellAlignment, Table, presets};
use serde::Serialize;

/// All results.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Report {
    /// Machine of the measurement.
    pub(crate) machine: Machine,
    /// Number of runs of each workload on each server.
    pub(crate) rounds: usize,
    /// Duration of workloads without a natural end.
    pub(crate) seconds: f64,
    /// Bytes moved by bulk workloads.
    pub(crate) bytes: u64,
    /// Arguments of OpenAFS's file server.
    pub(crate) openafs_arguments: String,
    /// Workloads in order.
    pub(crate) rows: Vec<Row>,
}

/// Results of one workload.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    /// Name of the workload.
    pub(crate) workload: &'static str,
    /// Description of the workload.
    pub(crate) text: &'static str,
    /// Unit that is counted.
    pub(crate) unit: Unit,
    /// OpenAFS's runs in order.
    pub(crate) openafs: Vec<Outcome>,
    /// Cellar's runs in order.
    pub(crate) cellar: Vec<Outcome>,
    /// Whether it is a mix of many clients.
    #[serde(skip)]
    pub(crate) is_mix: bool,
    /// Name of the server for each failed run.
    pub(crate) failed: Vec<&'static str>,
}

impl Row {
    /// Creates a row without runs.
    pub(crate) fn new(workload: &Workload) -> Row {
        Row {
            workload: workload.name,
            text: workload.text,
            unit: workload.unit(),
            openafs: Vec::new(),
            cellar: Vec::new(),
            is_mix: matches!(workload.kind, Kind::Mix { .. }),
            failed: Vec::new(),
        }
    }

    /// Returns the description, and how often runs failed.
    fn what(&self) -> String {
        let failures = |server: &str| match self.failed.iter().filter(|failed| **failed == server).count() {
            0 => String::new(),
            count => format!("; {server} failed {count} times"),
        };
        format!("{}{}{}", self.text, failures("OpenAFS"), failures("Cellar"))
    }

    fn has_times(&self) -> bool {
        self.openafs.iter().chain(&self.cellar).any(|outcome| outcome.latency.is_some())
    }

    fn rate(&self, outcome: &Outcome) -> f64 {
        ratio(outcome.amount / self.unit.scale(), outcome.seconds).unwrap_or(0.0)
    }

    fn rates(&self, outcomes: &[Outcome]) -> Spread {
        Spread::of(outcomes.iter().map(|outcome| self.rate(outcome))).unwrap_or_default()
    }

    /// Returns the ratio of Cellar's median rate to OpenAFS's.
    fn comparison(&self) -> Option<f64> {
        ratio(self.rates(&self.cellar).median, self.rates(&self.openafs).median)
    }

    /// Returns the rate per CPU second of the server: total amount divided by total CPU time.
    fn per_server_cpu(&self, outcomes: &[Outcome]) -> Option<f64> {
        let amount: f64 = outcomes.iter().map(|outcome| outcome.amount).sum();
        ratio(amount / self.unit.scale(), outcomes.iter().map(|outcome| outcome.cpu.server).sum())
    }
}

impl Report {
    /// Returns the tables in Markdown.
    pub(crate) fn text(&self) -> String {
        let mut parts = vec![self.machine.to_string(), self.options(), self.rates()];
        parts.extend(self.disturbance());
        parts.push("CPU seconds (user and system) of each server's processes, the load generator and the rest of the machine; medians of the runs:".into());
        parts.push(self.cpu());
        if self.rows.iter().any(Row::has_times) {
            parts.push("Latency in microseconds; medians of the runs' percentiles:".into());
            parts.push(self.latency());
        }
        parts.join("\n\n")
    }

    /// Describes the stolen time, if there was any.
    fn disturbance(&self) -> Option<String> {
        let outcomes = self.rows.iter().flat_map(|row| row.openafs.iter().chain(&row.cellar));
        disturbed::stolen_time(&outcomes.map(Outcome::stolen_share).collect::<Vec<_>>())
    }

    fn options(&self) -> String {
        format!(
            "{} rounds, servers in turn; {} MB per bulk run, {} s per run of small calls; fileserver {}",
            self.rounds,
            short(self.bytes as f64 / 1e6),
            short(self.seconds),
            self.openafs_arguments
        )
    }

    fn rates(&self) -> String {
        let mut table = table(&["workload", "what", "unit", "OpenAFS", "Cellar", "Cellar / OpenAFS"], 3);
        for row in &self.rows {
            table.add_row([
                row.workload.to_owned(),
                row.what(),
                row.unit.rate_name().to_owned(),
                spread(row.rates(&row.openafs)),
                spread(row.rates(&row.cellar)),
                row.comparison().map_or_else(dash, short),
            ]);
        }
        table.to_string()
    }

    fn cpu(&self) -> String {
        let header = [
            "workload",
            "OpenAFS: server",
            "generator",
            "other",
            "Cellar: server",
            "generator",
            "other",
            "per server CPU s: unit",
            "OpenAFS",
            "Cellar",
        ];
        let mut table = table(&header, 1);
        for row in &self.rows {
            let mut cells = vec![row.workload.to_owned()];
            cells.extend(cpu_seconds(&row.openafs));
            cells.extend(cpu_seconds(&row.cellar));
            cells.push(row.unit.rate_name().trim_end_matches("/s").to_owned());
            for outcomes in [&row.openafs, &row.cellar] {
                cells.push(row.per_server_cpu(outcomes).map_or_else(dash, short));
            }
            table.add_row(cells);
        }
        table.to_string()
    }

    fn latency(&self) -> String {
        let mut table = table(&["workload", "OpenAFS: half", "99 %", "Cellar: half", "99 %"], 1);
        for row in self.rows.iter().filter(|row| row.has_times()) {
            let mut cells = vec![row.workload.to_owned()];
            for outcomes in [&row.openafs, &row.cellar] {
                cells.push(percentile(outcomes, |latency| latency.p50_us));
                cells.push(percentile(outcomes, |latency| latency.p99_us));
            }
            table.add_row(cells);
        }
        table.to_string()
    }
}

/// Creates a table; columns from `first_figure` on contain figures.
pub(crate) fn table(header: &[&str], first_figure: usize) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::ASCII_MARKDOWN).set_header(header);
    for column in table.column_iter_mut().skip(first_figure) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

pub(crate) fn spread(spread: Spread) -> String {
    format!("{} ({}..{})", short(spread.median), short(spread.min), short(spread.max))
}

fn cpu_seconds(outcomes: &[Outcome]) -> [String; 3] {
    let median =
        |of: fn(&Outcome) -> f64| short(Spread::of(outcomes.iter().map(of)).unwrap_or_default().median);
    [
        median(|outcome| outcome.cpu.server),
        median(|outcome| outcome.cpu.generator),
        median(|outcome| outcome.cpu.other),
    ]
}

fn percentile(outcomes: &[Outcome], of: impl Fn(Latency) -> f64) -> String {
    let figures = outcomes.iter().filter_map(|outcome| outcome.latency).map(of);
    Spread::of(figures).map_or_else(dash, |spread| short(spread.median))
}

fn dash() -> String {
    "-".into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::order::CpuSeconds;
    use crate::workload;

    fn outcome(amount: f64, seconds: f64, server: f64) -> Outcome {
        let latency = Some(Latency { p50_us: 50.0, p99_us: 1000.0 * seconds });
        Outcome { amount, seconds, cpu: CpuSeconds { server, ..CpuSeconds::default() }, latency }
    }

    fn report(name: &str, openafs: Vec<Outcome>, cellar: Vec<Outcome>) -> Report {
        let row = Row { openafs, cellar, ..Row::new(workload::by_name(name).unwrap()) };
        Report {
            machine: Machine::default(),
            rounds: row.cellar.len(),
            seconds: 2.0,
            bytes: 1_000_000,
            openafs_arguments: "-L".into(),
            rows: vec![row],
        }
    }

    fn line<'a>(text: &'a str, nth: usize, of: &str) -> Vec<&'a str> {
        let line = text.lines().filter(|line| line.contains(of)).nth(nth).unwrap();
        line.trim_matches('|').split('|').map(str::trim).collect()
    }

    #[test]
    fn stolen_time_is_in_the_report() {
        let run = |stolen| {
            let cores = std::thread::available_parallelism().unwrap().get() as f64;
            let cpu = CpuSeconds { stolen: stolen * cores, ..CpuSeconds::default() };
            Outcome { cpu, ..outcome(100.0, 1.0, 0.5) }
        };
        let text = report("status-1", vec![run(0.0), run(0.02)], vec![run(0.5)]).text();
        let reported = "gave other guests 2.00 (0.00..50.0) % of the CPU time; more than 3 % in 1 of 3 runs";
        assert!(text.contains(reported), "{text}");
        assert!(!report("status-1", vec![run(0.0)], vec![run(0.0)]).text().contains("hypervisor"));
    }

    #[test]
    fn rates_ratios_and_cpu() {
        let bulk = |seconds, server| Outcome { latency: None, ..outcome(1e8, seconds, server) };
        let openafs = vec![bulk(1.0, 0.5), bulk(2.0, 0.5), bulk(0.5, 1.0)];
        let cellar = vec![bulk(0.25, 0.0)];
        let text = report("fetch-1", openafs, cellar).text();
        let rates = line(&text, 0, "fetch-1");
        assert_eq!(rates[2..], ["MB/s", "100 (50.0..200)", "400 (400..400)", "4.00"]);
        let cpu = line(&text, 1, "fetch-1");
        assert_eq!(cpu[1..], ["0.50", "0.00", "0.00", "0.00", "0.00", "0.00", "MB", "150", "-"]);
        assert!(!text.contains("99 %"), "bulk runs have no percentiles");
    }

    #[test]
    fn failed_runs_name_their_server() {
        let mut row = Row::new(workload::by_name("mix-250-readers").unwrap());
        assert!(row.is_mix && !Row::new(workload::by_name("fetch-1").unwrap()).is_mix);
        assert_eq!(row.what(), row.text);
        row.failed = vec!["OpenAFS", "OpenAFS"];
        assert_eq!(row.what(), format!("{}; OpenAFS failed 2 times", row.text));
    }

    #[test]
    fn percentiles_and_servers_that_did_not_run() {
        let text = report("status-1", vec![outcome(10.0, 2.0, 1.0), outcome(10.0, 1.0, 1.0)], vec![]).text();
        assert_eq!(line(&text, 2, "status-1")[1..], ["50.0", "1500", "-", "-"]);
        assert_eq!(line(&text, 0, "status-1")[3..], ["7.50 (5.00..10.0)", "0.00 (0.00..0.00)", "0.00"]);
    }
}
