//! Prints the comparison with other servers.

use super::{PEERS, is_change};
use crate::disturbed;
use crate::machine::Machine;
use crate::order::{Latency, Outcome};
use crate::report::{spread, table};
use crate::statistics::{Spread, ratio, short};
use crate::workload::Workload;

/// All results.
pub(super) struct Report {
    /// Machine of the measurement.
    pub(super) machine: Machine,
    /// Packages and their versions.
    pub(super) versions: [(&'static str, String); super::PACKAGES.len()],
    /// Number of runs of each workload on each server.
    pub(super) rounds: u32,
    /// Duration of workloads without a natural end.
    pub(super) seconds: f64,
    /// Bytes moved by workloads with large files.
    pub(super) bytes: u64,
    /// Workloads in order.
    pub(super) rows: Vec<Row>,
}

/// Results of one workload.
pub(super) struct Row {
    /// The workload.
    pub(super) workload: &'static Workload,
    /// Runs of Cellar, and then of each of the [`PEERS`] that it applies to.
    pub(super) runs: Vec<Vec<Outcome>>,
}

/// Number of peers that are durable.
const DURABLE: usize = 2;

impl Row {
    /// Creates a row without runs; peers as packaged are part of workloads that change something.
    pub(super) fn new(workload: &'static Workload) -> Row {
        let peers = if is_change(workload) { PEERS.len() } else { DURABLE };
        Row { workload, runs: vec![Vec::new(); 1 + peers] }
    }

    fn rates(&self, runs: &[Outcome]) -> Spread {
        let unit = self.workload.unit();
        let rate = |run: &Outcome| ratio(run.amount / unit.scale(), run.seconds).unwrap_or(0.0);
        Spread::of(runs.iter().map(rate)).unwrap_or_default()
    }

    /// Returns the cells of Cellar's rates, of those of these peers, and of the ratio of Cellar's median to
    /// the greatest of the others.
    fn comparison(&self, peers: &[Vec<Outcome>]) -> Vec<String> {
        let cellar = self.rates(&self.runs[0]);
        let peers: Vec<Spread> = peers.iter().map(|runs| self.rates(runs)).collect();
        let best = peers.iter().map(|peer| peer.median).fold(0.0, f64::max);
        let mut cells = vec![spread(cellar)];
        cells.extend(peers.into_iter().map(spread));
        cells.push(ratio(cellar.median, best).map_or_else(dash, short));
        cells
    }

    /// Returns the amount per second of processor time.
    fn per_cpu(&self, runs: &[Outcome], cpu: fn(&Outcome) -> f64) -> String {
        let amount: f64 = runs.iter().map(|run| run.amount).sum();
        ratio(amount / self.workload.unit().scale(), runs.iter().map(cpu).sum()).map_or_else(dash, short)
    }
}

impl Report {
    /// Returns the tables in Markdown.
    pub(super) fn text(&self) -> String {
        let shares: Vec<f64> = self.outcomes().map(Outcome::stolen_share).collect();
        let mut parts = vec![self.machine.to_string(), self.options()];
        parts.push("All servers acknowledge changes when they are on disk:".into());
        parts.push(disturbed::below(&self.rates(), &shares));
        if self.rows.iter().any(|row| is_change(row.workload)) {
            parts.push("Cellar as above, the others as configured by Debian, which may acknowledge changes before they are on disk:".into());
            parts.push(self.packaged());
        }
        parts.push(
            "Amount per second of CPU time (user and system) of the server's and the clients' processes:"
                .into(),
        );
        parts.push(self.cpu());
        if self.outcomes().any(|run| run.latency.is_some()) {
            parts.push("Latency in microseconds; medians of the runs' percentiles:".into());
            parts.push(self.latencies());
        }
        parts.join("\n\n")
    }

    fn outcomes(&self) -> impl Iterator<Item = &Outcome> {
        self.rows.iter().flat_map(|row| row.runs.iter().flatten())
    }

    fn options(&self) -> String {
        let versions = self.versions.iter().map(|(name, version)| format!("{name} {version}"));
        format!(
            "{} rounds, servers in turn; {} MB per run with large files, {} s per other run; {}",
            self.rounds,
            short(self.bytes as f64 / 1e6),
            short(self.seconds),
            versions.collect::<Vec<_>>().join(", ")
        )
    }

    fn rates(&self) -> String {
        let [nfs, smb] = [PEERS[0].name, PEERS[1].name];
        let header = ["workload", "what", "unit", "Cellar", nfs, smb, "Cellar / best other"];
        let mut lines = table(&header, 3);
        for row in &self.rows {
            let Workload { name, text, .. } = *row.workload;
            let mut cells = vec![name.into(), text.into(), row.workload.unit().rate_name().into()];
            cells.extend(row.comparison(&row.runs[1..=DURABLE]));
            lines.add_row(cells);
        }
        lines.to_string()
    }

    fn packaged(&self) -> String {
        let [nfs, smb] = [PEERS[2].name, PEERS[3].name];
        let mut lines = table(&["workload", "unit", "Cellar", nfs, smb, "Cellar / best other"], 2);
        for row in self.rows.iter().filter(|row| is_change(row.workload)) {
            let mut cells = vec![row.workload.name.into(), row.workload.unit().rate_name().into()];
            cells.extend(row.comparison(&row.runs[1 + DURABLE..]));
            lines.add_row(cells);
        }
        lines.to_string()
    }

    fn cpu(&self) -> String {
        let header =
            ["workload", "unit", "server: Cellar", "NFS-Ganesha", "Samba", "clients: Cellar's", "NFS", "SMB"];
        let mut lines = table(&header, 2);
        for row in &self.rows {
            let unit = row.workload.unit().rate_name().trim_end_matches("/s");
            let mut cells = vec![row.workload.name.into(), unit.into()];
            let durable = &row.runs[..=DURABLE];
            cells.extend(durable.iter().map(|runs| row.per_cpu(runs, |run| run.cpu.server)));
            cells.extend(durable.iter().map(|runs| row.per_cpu(runs, |run| run.cpu.generator)));
            lines.add_row(cells);
        }
        lines.to_string()
    }

    fn latencies(&self) -> String {
        let header = ["workload", "Cellar: half", "99 %", "NFS-Ganesha: half", "99 %", "Samba: half", "99 %"];
        let mut lines = table(&header, 1);
        for row in self.rows.iter().filter(|row| row.runs.iter().flatten().any(|run| run.latency.is_some())) {
            let mut cells = vec![row.workload.name.to_owned()];
            for runs in &row.runs[..=DURABLE] {
                let median = |of: fn(Latency) -> f64| {
                    let figures = runs.iter().filter_map(|run| run.latency).map(of);
                    Spread::of(figures).map_or_else(dash, |spread| short(spread.median))
                };
                cells.extend([median(|latency| latency.p50_us), median(|latency| latency.p99_us)]);
            }
            lines.add_row(cells);
        }
        lines.to_string()
    }
}

fn dash() -> String {
    "-".into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::order::CpuSeconds;
    use crate::workload::by_name;

    fn run(amount: f64) -> Outcome {
        let cpu = CpuSeconds { server: 0.5, generator: 0.25, ..CpuSeconds::default() };
        let latency = Some(Latency { p50_us: 40.0, p99_us: 900.0 });
        Outcome { amount, seconds: 2.0, cpu, latency }
    }

    fn cells<'a>(text: &'a str, nth: usize, of: &str) -> Vec<&'a str> {
        let line = text.lines().filter(|line| line.contains(of)).nth(nth).unwrap();
        line.trim_matches('|').split('|').map(str::trim).collect()
    }

    #[test]
    fn peers_are_compared_by_the_best_and_by_what_they_promise() {
        assert!(PEERS.iter().enumerate().all(|(at, peer)| peer.is_durable == (at < DURABLE)));
        let mut small = Row::new(by_name("small-1").unwrap());
        assert_eq!(small.runs.len(), 1 + PEERS.len());
        for (runs, amount) in small.runs.iter_mut().zip([200.0, 100.0, 50.0, 400.0, 80.0]) {
            *runs = vec![run(amount), run(amount), run(2.0 * amount)];
        }
        let mut stat = Row::new(by_name("stat-1").unwrap());
        assert_eq!(stat.runs.len(), 1 + DURABLE);
        stat.runs.iter_mut().for_each(|runs| *runs = vec![run(10.0)]);
        let versions = super::super::PACKAGES.map(|name| (name, "1".to_owned()));
        let (machine, rows) = (Machine::default(), vec![small, stat]);
        let text = Report { machine, versions, rounds: 3, seconds: 2.0, bytes: 1_000_000, rows }.text();
        let durable = ["files/s", "100 (100..200)", "50.0 (50.0..100)", "25.0 (25.0..50.0)", "2.00"];
        assert_eq!(cells(&text, 0, "small-1")[2..], durable);
        let packaged = ["files/s", "100 (100..200)", "200 (200..400)", "40.0 (40.0..80.0)", "0.50"];
        assert_eq!(cells(&text, 1, "small-1")[1..], packaged);
        assert_eq!(cells(&text, 2, "small-1")[1..], ["files", "533", "267", "133", "1067", "533", "267"]);
        assert_eq!(cells(&text, 3, "small-1")[1..], ["40.0", "900", "40.0", "900", "40.0", "900"]);
        assert_eq!(
            cells(&text, 0, "stat-1")[3..],
            ["5.00 (5.00..5.00)"; 3].into_iter().chain(["1.00"]).collect::<Vec<_>>()
        );
        assert!(text.contains("nfs-ganesha 1, nfs-ganesha-vfs 1, samba 1"), "{text}");
    }
}
