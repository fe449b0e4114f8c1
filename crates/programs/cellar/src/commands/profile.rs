//! `cellar profile`: flame graphs and tables of where a running server spends its time.

use super::Context;
use super::stat::figures::time;
use crate::output::{Format, line};
use adminserver::{profile_kinds, profile_stages};
use afs_idl::ClientConnection;
use afs_idl::cellar::{
    self, FetchProfileRequest, GetProfileReply, GetProfileRequest, StartProfileRequest, StopProfileRequest,
};
use anyhow::{Context as _, Result, bail, ensure};
use base::AbortCode;
use cell_client::Interface;
use cell_client::describe::failed;
use clap::{Args, Subcommand};
use indicatif::{HumanBytes, HumanCount};
use profile::{Document, Flavour, FunctionTime, IoRow, LatencyRow, LockRow, Table};
use serde_json::{Value, json};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

/// Interval at which the server is asked for its progress.
const ASK_EVERY: Duration = Duration::from_secs(1);

/// Maximum size of a document from a server.
const DOCUMENT_BYTES_MAX: u64 = 256 << 20;

/// Rows of a table in text output; `--json` prints all.
const ROWS_SHOWN: usize = 40;

/// Profile a running server for some seconds. For superusers.
#[derive(Subcommand)]
pub enum Profile {
    /// Show which functions run on the processors, and their callers.
    Cpu {
        /// Server and duration.
        #[command(flatten)]
        taking: Taking,
        /// Samples per second of each running thread.
        #[arg(long, default_value_t = 99, value_parser = clap::value_parser!(u32).range(1..=1000))]
        hz: u32,
        /// Output.
        #[command(flatten)]
        drawing: Drawing,
    },
    /// Show what calls wait for (a worker, locks, disks, clients), by procedure, volume and function.
    OffCpu {
        /// Server and duration.
        #[command(flatten)]
        taking: Taking,
        /// Output.
        #[command(flatten)]
        drawing: Drawing,
    },
    /// Show disk accesses by function, volume and client.
    Io(Taking),
    /// Show waits for locks by lock, holder and waiter.
    Locks(Taking),
    /// Show latencies by procedure and what its calls waited for.
    Latency(Taking),
}

/// Server and duration.
#[derive(Args)]
pub struct Taking {
    /// Duration of the profile in seconds.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=600))]
    seconds: u32,
    /// File server to profile; defaults to the one in this machine's configuration, or else the first
    /// database server.
    #[arg(long)]
    on: Option<Ipv4Addr>,
}

/// Output for stacks.
#[derive(Args)]
pub struct Drawing {
    /// Write a flame graph, for browsers.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Write folded stacks, for other tools.
    #[arg(long, value_name = "FILE")]
    folded: Option<PathBuf>,
    /// Print times by function; the default if no file is written.
    #[arg(long)]
    table: bool,
}

/// A finished profile.
struct Taken {
    connection: std::sync::Arc<dyn ClientConnection>,
    server: Ipv4Addr,
    profile: u64,
    state: GetProfileReply,
    // Kept because the connection uses its socket.
    _client: cell_client::CellClient,
}

/// Runs the command.
pub fn run(context: &Context, command: &Profile) -> Result<()> {
    match command {
        Profile::Cpu { taking, hz, drawing } => {
            let taken = take(context, taking, profile_kinds::CPU, *hz)?;
            let title = format!("On-CPU profile of {}, {} s at {hz} Hz", taken.server, taking.seconds);
            draw(context, &taken, drawing, &title, Flavour::Running)
        }
        Profile::OffCpu { taking, drawing } => {
            let taken = take(context, taking, profile_kinds::WAITS, 0)?;
            let title = format!("Waits of calls on {}, {} s", taken.server, taking.seconds);
            draw(context, &taken, drawing, &title, Flavour::Waiting)
        }
        Profile::Io(taking) => show::<IoRow>(context, taking, Document::Io),
        Profile::Locks(taking) => show::<LockRow>(context, taking, Document::Locks),
        Profile::Latency(taking) => show::<LatencyRow>(context, taking, Document::Latencies),
    }
}

fn take(context: &Context, taking: &Taking, kind: u32, hz: u32) -> Result<Taken> {
    let client = context.client()?;
    let server = taking.on.unwrap_or_else(|| context.default_server(&client));
    let connection = client.connection(server, Interface::Cellar);
    let request = StartProfileRequest { kind, hz, seconds: taking.seconds };
    let started = cellar::start_profile(&*connection, &request);
    if started == Err(AbortCode::UAEBUSY) {
        bail!(
            "{server} is already taking a profile, and a server takes one at a time: try again when it has \
            finished"
        );
    }
    let profile = started
        .map_err(failed(format!(
            "start a profile on {server} (only on Cellar servers, and only as a superuser)"
        )))?
        .profile;
    let state = wait(&*connection, server, profile, taking.seconds)?;
    Ok(Taken { connection, server, profile, state, _client: client })
}

/// Waits until the profile has ended. The server ends it early if no client asks for its progress.
fn wait(
    connection: &dyn ClientConnection,
    server: Ipv4Addr,
    profile: u64,
    seconds: u32,
) -> Result<GetProfileReply> {
    loop {
        let state = cellar::get_profile(connection, &GetProfileRequest { profile })
            .map_err(failed(format!("ask {server} about its profile")))?;
        match state.stage {
            profile_stages::DONE => return Ok(state),
            profile_stages::FAILED => bail!("{server} could not take the profile: {}", state.error),
            _ => {}
        }
        let left =
            Duration::from_secs(seconds.into()).saturating_sub(Duration::from_millis(state.elapsed_ms));
        if left.is_zero() {
            // It ends by itself; this only says that the client needs no more data.
            let _ = cellar::stop_profile(connection, &StopProfileRequest { profile });
        }
        thread::sleep(left.clamp(Duration::from_millis(50), ASK_EVERY));
    }
}

impl Taken {
    /// Fetches a whole document, in pieces.
    fn fetch(&self, document: Document) -> Result<String> {
        let mut bytes = Vec::new();
        loop {
            let offset = bytes.len() as u64;
            let request = FetchProfileRequest { profile: self.profile, document: document.number(), offset };
            let reply = cellar::fetch_profile(&*self.connection, &request)
                .map_err(failed(format!("fetch the profile from {}", self.server)))?;
            ensure!(
                reply.length <= DOCUMENT_BYTES_MAX,
                "{} sends a profile of {} bytes, more than {DOCUMENT_BYTES_MAX}",
                self.server,
                reply.length
            );
            bytes.extend_from_slice(&reply.piece);
            if reply.piece.is_empty() || bytes.len() as u64 >= reply.length {
                break;
            }
        }
        String::from_utf8(bytes).with_context(|| format!("{} sent a profile that is not text", self.server))
    }
}

fn draw(context: &Context, taken: &Taken, drawing: &Drawing, title: &str, flavour: Flavour) -> Result<()> {
    let folded = taken.fetch(Document::Stacks)?;
    if let Some(path) = &drawing.folded {
        write(path, &folded)?;
    }
    if let Some(path) = &drawing.svg {
        write(path, &profile::svg(&folded, title, flavour)?)?;
    }
    if drawing.table || (drawing.svg.is_none() && drawing.folded.is_none()) {
        return functions(context.format, taken, &folded);
    }
    Ok(())
}

fn write(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

/// Prints functions by their own time.
fn functions(format: Format, taken: &Taken, folded: &str) -> Result<()> {
    let all = profile::functions(folded);
    let sum: u64 = all.iter().map(|function| function.own_us).sum();
    let json = all.iter().map(|function| {
        json!({ "function": function.name, "own_us": function.own_us, "total_us": function.total_us })
    });
    let json = Value::Array(json.collect());
    if format == Format::Text {
        let (samples, lost) = (HumanCount(taken.state.samples), HumanCount(taken.state.lost));
        line(format!("{} in {samples} samples, {lost} lost", time(sum.saturating_mul(1000))))?;
    }
    let cells = |function: &FunctionTime| {
        vec![
            time(function.own_us.saturating_mul(1000)),
            percent(function.own_us, sum),
            time(function.total_us.saturating_mul(1000)),
            percent(function.total_us, sum),
            function.name.clone(),
        ]
    };
    let headings = ["OWN", "", "TOTAL", "", "FUNCTION"].map(str::to_owned).to_vec();
    format.table(headings, all.iter().take(ROWS_SHOWN).map(cells).collect(), &json)
}

fn percent(part: u64, of: u64) -> String {
    let permille = part.saturating_mul(1000).checked_div(of).unwrap_or(0);
    format!("{}.{} %", permille / 10, permille % 10)
}

/// A table row for display.
trait TableRow: Table {
    fn headings() -> &'static [&'static str];
    fn texts(&self) -> Vec<String>;
}

fn show<T: TableRow>(context: &Context, taking: &Taking, document: Document) -> Result<()> {
    let taken = take(context, taking, profile_kinds::WAITS, 0)?;
    let rows = T::read(&taken.fetch(document)?)
        .with_context(|| format!("{} did not send this table", taken.server))?;
    let headings = T::headings().iter().map(|heading| (*heading).to_owned()).collect();
    let texts = rows.iter().take(ROWS_SHOWN).map(T::texts).collect();
    context.format.table(headings, texts, &Value::Array(rows.iter().map(json_of).collect()))
}

/// Returns the row's columns by name.
fn json_of<T: Table>(row: &T) -> Value {
    let (texts, numbers) = row.cells();
    let values = texts.into_iter().map(Value::from).chain(numbers.into_iter().map(Value::from));
    Value::Object(T::COLUMNS.iter().map(|name| (*name).to_owned()).zip(values).collect())
}

impl TableRow for IoRow {
    fn headings() -> &'static [&'static str] {
        &["ACCESS", "VOLUME", "CLIENT", "ACCESSES", "BYTES", "TIME", "LONGEST", "STACK"]
    }

    fn texts(&self) -> Vec<String> {
        vec![
            self.access.clone(),
            if self.volume == 0 { "-".to_owned() } else { self.volume.to_string() },
            if self.client.is_empty() { "-".to_owned() } else { self.client.clone() },
            HumanCount(self.accesses).to_string(),
            HumanBytes(self.bytes).to_string(),
            time(self.total_ns),
            time(self.longest_ns),
            // Callees come below their callers.
            self.stack.replace(';', "\n"),
        ]
    }
}

impl TableRow for LockRow {
    fn headings() -> &'static [&'static str] {
        &["LOCK", "HELD SINCE", "WAITING THREAD", "WAITS", "TIME", "LONGEST"]
    }

    fn texts(&self) -> Vec<String> {
        let or_dash = |text: &String| if text.is_empty() { "-".to_owned() } else { text.clone() };
        vec![
            self.lock.clone(),
            or_dash(&self.holder),
            or_dash(&self.waiter),
            HumanCount(self.waits).to_string(),
            time(self.total_ns),
            time(self.longest_ns),
        ]
    }
}

impl TableRow for LatencyRow {
    fn headings() -> &'static [&'static str] {
        &["PROCEDURE", "WAITED FOR", "CALLS", "MEAN", "P50", "P90", "P99", "MAX"]
    }

    fn texts(&self) -> Vec<String> {
        vec![
            self.procedure.clone(),
            self.path.clone(),
            HumanCount(self.calls).to_string(),
            time(self.total_ns.checked_div(self.calls).unwrap_or(0)),
            time(self.p50_ns),
            time(self.p90_ns),
            time(self.p99_ns),
            time(self.longest_ns),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_have_units_in_text_and_names_in_json() {
        let row = LockRow {
            lock: "volume".into(),
            holder: "a.rs:7".into(),
            waits: 2,
            total_ns: 3_000_000,
            longest_ns: 2_000_000,
            ..LockRow::default()
        };
        assert_eq!(row.texts(), ["volume", "a.rs:7", "-", "2", "3.00 ms", "2.00 ms"]);
        assert_eq!(json_of(&row)["total_ns"], 3_000_000);
        assert_eq!(json_of(&row)["holder"], "a.rs:7");
        let row = LatencyRow {
            procedure: "AFS FetchData64".into(),
            calls: 4,
            total_ns: 8000,
            ..LatencyRow::default()
        };
        assert_eq!(row.texts()[3], "2.00 us");
        let row = IoRow { stack: "AFS;FetchData;a".into(), bytes: 2048, ..IoRow::default() };
        assert_eq!((&row.texts()[1][..], &row.texts()[4][..]), ("-", "2.00 KiB"));
        assert_eq!(row.texts()[7], "AFS\nFetchData\na");
        assert_eq!((percent(1, 3), percent(1, 0)), ("33.3 %".to_owned(), "0.0 %".to_owned()));
    }
}
