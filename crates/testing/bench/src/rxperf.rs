//! Measures Rx alone: `cellar bench rxperf` against itself, and for comparison OpenAFS's `rxperf` against
//! itself if it has been built (no Debian package contains it), with one to many streams over three paths.

use crate::cpu::Reading;
use crate::disturbed;
use crate::machine::Machine;
use crate::report::{spread, table};
use crate::statistics::{Spread, ratio, short};
use anyhow::{Context, Result, bail, ensure};
use interop::cell::cellar_program;
use interop::means::Means;
use load::cpu::{parse_process, seconds};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Options of the measurement.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct RxperfOptions {
    /// How often each row is measured
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Numbers of concurrent calls
    #[arg(long, value_delimiter = ',', default_values_t = [1, 8, 64, 250], value_parser = clap::value_parser!(u32).range(1..=1000))]
    streams: Vec<u32>,
    /// MiB of a run; OpenAFS moves an eighth of it
    #[arg(long, default_value_t = 512, value_parser = clap::value_parser!(u32).range(1..=65536))]
    size: u32,
    /// OpenAFS's program, to compare with
    #[arg(long, value_name = "PROGRAM")]
    openafs: Option<PathBuf>,
    /// Set if the network namespace already exists
    #[arg(long, hide = true)]
    inside: bool,
}

/// Maximum number of threads of OpenAFS's client.
const OPENAFS_STREAMS_MAX: u32 = 128;
/// Maximum duration of a run.
const RUN_SECONDS_MAX: &str = "60";

/// Path that datagrams take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Route {
    /// Segmented datagrams stay merged from one end to the other.
    Loopback,
    /// The kernel splits merged datagrams at the sender, and they are not merged again: the minimum benefit
    /// of segmentation.
    Segmented,
    /// A veth pair between two network namespaces.
    Veth,
}

impl Route {
    const ALL: [Route; 3] = [Route::Loopback, Route::Segmented, Route::Veth];

    fn name(self) -> &'static str {
        match self {
            Route::Loopback => "loopback",
            Route::Segmented => "loopback, without segmentation offload",
            Route::Veth => "veth",
        }
    }

    /// Configures the network for this path.
    fn prepare(self) -> Result<()> {
        let segments = if self == Route::Segmented { "1" } else { "65535" };
        ip(&["link", "set", "lo", "gso_max_segs", segments])
    }

    fn server_address(self) -> &'static str {
        if self == Route::Veth { "10.98.0.1" } else { "127.0.0.1" }
    }
}

/// Measures and prints the table.
pub(crate) fn run(options: &RxperfOptions) -> Result<()> {
    if options.inside {
        return measure(options);
    }
    if let Err(missing) = Means::Netns.check() {
        bail!("{missing}");
    }
    let _alone = crate::alone()?;
    let mut again = Command::new("unshare");
    again.arg("--net").arg("--kill-child").arg("--fork").arg(std::env::current_exe()?);
    let status = again.args(std::env::args_os().skip(1)).arg("--inside").status().context("unshare")?;
    ensure!(status.success(), "the measurement ended with {status}");
    Ok(())
}

fn measure(options: &RxperfOptions) -> Result<()> {
    ip(&["link", "set", "lo", "up"])?;
    let far = Namespace::make()?;
    let mut ends = vec![End::start("Cellar", &cellar_program()?, &["bench", "rxperf"], 7009)?];
    if let Some(program) = &options.openafs {
        ends.push(End::start("OpenAFS", program, &[], 7019)?);
    }
    println!("{}\n", Machine::here());
    println!(
        "{} rounds, calls of 1 MiB, {} MiB per run (OpenAFS: an eighth), each server with its own client, default settings\n",
        options.rounds, options.size
    );
    let header = [
        "path",
        "bytes",
        "streams",
        "OpenAFS, Mbit/s",
        "Cellar, Mbit/s",
        "Cellar / OpenAFS",
        "Cellar's server: CPU s/GB",
    ];
    let mut shares = Vec::new();
    let mut table = table(&header, 2);
    for path in Route::ALL {
        path.prepare()?;
        for command in ["recv", "send"] {
            for &streams in &options.streams {
                table.add_row(row(path, command, streams, options, &ends, &far, &mut shares)?);
            }
        }
    }
    println!("{}", disturbed::below(&table.to_string(), &shares));
    Ok(())
}

fn row(
    path: Route,
    command: &str,
    streams: u32,
    options: &RxperfOptions,
    ends: &[End],
    far: &Namespace,
    shares: &mut Vec<f64>,
) -> Result<Vec<String>> {
    let mut runs: Vec<Vec<Run>> = vec![Vec::new(); ends.len()];
    for round in 0..options.rounds as usize {
        for turn in 0..ends.len() {
            let which = (turn + round) % ends.len();
            let end = &ends[which];
            eprintln!(
                "bench: round {}, {}, {command}, {streams} streams, {}",
                round + 1,
                path.name(),
                end.name
            );
            let (run, share) = disturbed::least(disturbed::PAUSE, || {
                let before = Reading::now()?;
                let start = Instant::now();
                let run = end.run(path, command, streams, options.size, far)?;
                let seconds = start.elapsed().as_secs_f64();
                Ok((run, disturbed::share(Reading::now()?.since(&before).stolen, seconds)))
            })?;
            shares.push(share);
            runs[which].extend(run);
        }
    }
    let rates = |runs: &[Run]| Spread::of(runs.iter().map(|run| run.megabits));
    let cell = |figures: Option<Spread>| figures.map_or_else(|| "-".to_owned(), spread);
    let (cellar, openafs) = (rates(&runs[0]), runs.get(1).and_then(|runs| rates(runs)));
    let comparison = cellar.zip(openafs).and_then(|(cellar, openafs)| ratio(cellar.median, openafs.median));
    Ok(vec![
        path.name().to_owned(),
        command.to_owned(),
        streams.to_string(),
        cell(openafs),
        cell(cellar),
        comparison.map_or_else(|| "-".to_owned(), short),
        cell(Spread::of(runs[0].iter().map(|run| run.server_cpu_per_gb))),
    ])
}

/// Result of one run of a client.
#[derive(Clone, Copy, Debug)]
struct Run {
    megabits: f64,
    server_cpu_per_gb: f64,
}

/// A server, and the command of its clients.
struct End {
    name: &'static str,
    program: PathBuf,
    words: &'static [&'static str],
    port: u16,
    server: Child,
}

impl End {
    fn start(name: &'static str, program: &Path, words: &'static [&'static str], port: u16) -> Result<End> {
        let mut command = Command::new(program);
        command.args(words).args(["server", "-p", &port.to_string(), "-S", "256"]);
        let server = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let server = server.with_context(|| format!("cannot start {}", program.display()))?;
        // Packets that arrive too early are retransmitted.
        std::thread::sleep(Duration::from_millis(500));
        Ok(End { name, program: program.to_owned(), words, port, server })
    }

    /// Runs a client. `None` if it does not support that many streams, or takes too long.
    fn run(
        &self,
        path: Route,
        command: &str,
        streams: u32,
        mib: u32,
        far: &Namespace,
    ) -> Result<Option<Run>> {
        let is_openafs = self.name == "OpenAFS";
        if is_openafs && streams > OPENAFS_STREAMS_MAX {
            return Ok(None);
        }
        let mib = if is_openafs { mib.div_ceil(8) } else { mib };
        let times = mib.div_ceil(streams).to_string();
        let (port, streams_word) = (self.port.to_string(), streams.to_string());
        let mut client = far.client(path);
        client.arg("timeout").arg(RUN_SECONDS_MAX).arg(&self.program).args(self.words);
        client.args(["client", "-c", command, "-b", "1048576", "-T", &times, "-t", &streams_word]);
        client.args(["-p", &port, "-s", path.server_address()]);
        let before = self.cpu_seconds()?;
        let output = client.stdin(Stdio::null()).stderr(Stdio::inherit()).output().context("the client")?;
        let used = self.cpu_seconds()? - before;
        let bytes = f64::from(mib.div_ceil(streams)) * f64::from(streams) * f64::from(1 << 20);
        let megabits = megabits(&String::from_utf8_lossy(&output.stdout));
        Ok(megabits.map(|megabits| Run { megabits, server_cpu_per_gb: used / (bytes / 1e9) }))
    }

    fn cpu_seconds(&self) -> Result<f64> {
        let path = format!("/proc/{}/stat", self.server.id());
        let text =
            std::fs::read_to_string(&path).with_context(|| format!("{}'s server has ended", self.name))?;
        Ok(seconds(parse_process(&text).context(path)?.ticks))
    }
}

impl Drop for End {
    fn drop(&mut self) {
        _ = self.server.kill();
        _ = self.server.wait();
    }
}

/// Parses the rate in a client's output: `... msec [7.081 Gbit/s]`.
fn megabits(text: &str) -> Option<f64> {
    let (figure, unit) = text.split_once('[')?.1.split_once("bit/s]")?.0.split_once(' ')?;
    let scale = match unit {
        "G" => 1e3,
        "M" => 1.0,
        "k" => 1e-3,
        _ => return None,
    };
    figure.parse::<f64>().ok().map(|figure| figure * scale)
}

/// A network namespace at the other end of a veth pair; it ends with the process that holds it.
struct Namespace(Child);

impl Namespace {
    fn make() -> Result<Namespace> {
        let mut holder = Command::new("unshare");
        holder.args(["--net", "sh", "-c", "ip link set lo up && echo ready && exec sleep infinity"]);
        let mut holder = holder.stdout(Stdio::piped()).spawn().context("unshare")?;
        let mut ready = String::new();
        let output = holder.stdout.take().context("no pipe")?;
        std::io::BufRead::read_line(&mut std::io::BufReader::new(output), &mut ready)?;
        let far = Namespace(holder);
        ensure!(ready.trim() == "ready", "cannot make a network namespace");
        let pid = far.0.id().to_string();
        ip(&["link", "add", "near", "type", "veth", "peer", "name", "far", "netns", &pid])?;
        ip(&["address", "add", "10.98.0.1/24", "dev", "near"])?;
        ip(&["link", "set", "near", "up"])?;
        for words in
            [["address", "add", "10.98.0.2/24", "dev", "far"].as_slice(), &["link", "set", "far", "up"]]
        {
            let status = far.enter().arg("ip").args(words).status()?;
            ensure!(status.success(), "ip {} ended with {status}", words.join(" "));
        }
        Ok(far)
    }

    fn enter(&self) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--net", "--target", &self.0.id().to_string()]);
        command
    }

    /// Returns the command that starts a client on this path.
    fn client(&self, path: Route) -> Command {
        if path == Route::Veth { self.enter() } else { Command::new("env") }
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

fn ip(words: &[&str]) -> Result<()> {
    let status = Command::new("ip").args(words).status().context("ip")?;
    ensure!(status.success(), "ip {} ended with {status}", words.join(" "));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_of_both_programs() {
        let line = |rate: &str| {
            format!("RECV: threads\t8, times\t50, bytes\t1048576:\t     473 msec\t[{rate}]\nmore\n")
        };
        for (rate, expected) in [
            ("7.081 Gbit/s", Some(7081.0)),
            ("940.2 Mbit/s", Some(940.2)),
            ("12 kbit/s", Some(0.012)),
            ("12 bit/s", None),
            ("x Gbit/s", None),
        ] {
            assert_eq!(megabits(&line(rate)), expected, "{rate}");
        }
        assert_eq!(megabits("rxperf: no answer\n"), None);
    }
}
