//! Interoperability tests: software that nobody here wrote against Cellar.
//!
//! `interop [FILTER...]` runs the tests whose names contain a filter, all without one; `--list` shows
//! them. The tests need root, network namespaces, Debian's OpenAFS packages, /dev/fuse and QEMU. A
//! test whose means are missing fails and says what is missing, unless `CELLAR_TEST_SKIP` names that
//! means (a list out of `netns`, `fuse`, `emulation`, `tshark`,
//! `bpftrace`): then the summary counts it as skipped.
//!
//! Each test is a process of its own, which may take `CELLAR_TEST_LIMIT` seconds: one that hangs fails, and what it
//! started is ended before the next begins.

mod churn;
mod privileged;
mod tests;

use anyhow::{Context, Result, bail, ensure};
use interop::ending;
use interop::limited::{Ended, Limits, run as run_limited};
use interop::means::Means;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

/// One test.
pub(crate) struct Test {
    name: &'static str,
    needs: &'static [Means],
    run: fn() -> Result<()>,
}

enum Outcome {
    Passed,
    /// With what was wrong.
    Failed(String),
    Skipped,
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let Some(outcome) = writer(&arguments) {
        return match outcome {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                println!("{error:#}");
                ExitCode::FAILURE
            }
        };
    }
    if let Err(error) = ending::on_signal() {
        println!("interop: {error:#}");
        return ExitCode::FAILURE;
    }
    if let [word, name, folder] = &arguments[..]
        && word == OWN_PROCESS
    {
        return own_process(name, Path::new(folder));
    }
    let limits = match limits() {
        Ok(limits) => limits,
        Err(error) => {
            println!("interop: {error:#}");
            return ExitCode::FAILURE;
        }
    };
    let all = tests::all();
    if arguments.iter().any(|argument| argument == "--list") {
        for test in &all {
            println!("{}", test.name);
        }
        return ExitCode::SUCCESS;
    }
    let wanted = |test: &&Test| arguments.is_empty() || arguments.iter().any(|part| test.name.contains(part));
    let (mut passed, mut skipped, mut failures) = (0, 0, Vec::new());
    let hidden = tests::hidden();
    let hidden = hidden.iter().filter(|test| arguments.iter().any(|word| word == test.name));
    for test in all.iter().filter(wanted).chain(hidden) {
        match run(test, limits) {
            Outcome::Passed => passed += 1,
            Outcome::Failed(reason) => failures.push((test.name, reason)),
            Outcome::Skipped => skipped += 1,
        }
    }
    for (name, reason) in &failures {
        println!("\ninterop: {name} FAILED\n{}", end_of(reason));
    }
    println!("\ninterop: {passed} passed, {} failed, {skipped} skipped", failures.len());
    if passed + skipped > 0 && failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The first argument of the process of one test; its name and a folder follow.
const OWN_PROCESS: &str = "run-alone";
/// In that folder: why it failed.
const FAILURE: &str = "failure";

/// What a test may take if nothing else is said. The slowest ones take 7 minutes on two processors.
const LIMIT_SECONDS: u64 = 1800;

fn limits() -> Result<Limits> {
    let seconds = match std::env::var("CELLAR_TEST_LIMIT") {
        Ok(text) => text.parse().ok().filter(|seconds| *seconds > 0).with_context(|| {
            format!("CELLAR_TEST_LIMIT={text}: expected seconds that a test may take, 1 or more")
        })?,
        Err(_) => LIMIT_SECONDS,
    };
    Ok(Limits { run: Duration::from_secs(seconds), end: Duration::from_secs(ending::END_SECONDS) })
}

/// The process of one test.
fn own_process(name: &str, folder: &Path) -> ExitCode {
    ending::list_in(folder);
    let tests = tests::all().into_iter().chain(tests::hidden());
    let Some(test) = tests.into_iter().find(|test| test.name == name) else {
        println!("interop: there is no test {name}");
        return ExitCode::FAILURE;
    };
    let Err(error) = tests::kafs::again_if_guest_fell(test.run) else { return ExitCode::SUCCESS };
    let reason = format!("{error:#}");
    if std::fs::write(folder.join(FAILURE), &reason).is_err() {
        println!("{reason}");
    }
    ExitCode::FAILURE
}

/// Runs a test in a process of its own.
fn apart(test: &Test, limits: Limits) -> Result<()> {
    let folder = tempfile::Builder::new().prefix("cellar-interop-test-").tempdir()?;
    let mut command = Command::new(std::env::current_exe()?);
    command.arg(OWN_PROCESS).arg(test.name).arg(folder.path());
    match run_limited(&mut command, limits, folder.path(), |line| println!("{line}"))? {
        Ended::Late(doing) => bail!("{doing}"),
        Ended::Itself(status, last) => {
            let reason = std::fs::read_to_string(folder.path().join(FAILURE));
            ensure!(
                status.success(),
                "{}",
                reason.unwrap_or_else(|_| format!("its process ended with {status}:\n{last}"))
            );
            Ok(())
        }
    }
}

/// How many lines of a failure are said again below everything.
const REPEATED_LINES: usize = 80;

/// The first line and the last ones of a long text.
fn end_of(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    match lines.len().checked_sub(REPEATED_LINES) {
        Some(omitted @ 1..) => {
            format!("{}\n({omitted} lines more above)\n{}", lines[0], lines[omitted..].join("\n"))
        }
        _ => text.to_owned(),
    }
}

/// The program as one of the writers that tests start: `write SERVER VOLUME WRITER DONE UNTIL`, `fill
/// SERVER VOLUME ROUNDS`; as an administrator: `privileged DATABASES SERVER
/// VOLUME TOKEN`.
fn writer(arguments: &[String]) -> Option<Result<()>> {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let number = |word: &str| word.parse::<u64>().with_context(|| format!("{word} is no number"));
    let run = || match words[..] {
        ["write", server, volume, writer, done, until] => {
            let writer = u32::try_from(number(writer)?)?;
            churn::write(server.parse()?, volume, writer, number(done)?, number(until)?)
        }
        ["fill", server, volume, rounds] => churn::fill(server.parse()?, volume, number(rounds)?),
        ["privileged", databases, server, volume, token] => {
            privileged::call(databases, server.parse()?, volume, std::path::Path::new(token))
        }
        _ => bail!(
            "expected `write SERVER VOLUME WRITER DONE UNTIL`, `fill SERVER VOLUME ROUNDS` or `privileged DATABASES SERVER VOLUME TOKEN`"
        ),
    };
    matches!(words.first(), Some(&"write" | &"fill" | &"privileged")).then(run)
}

fn run(test: &Test, limits: Limits) -> Outcome {
    for means in test.needs {
        if means.is_skipped() {
            println!("interop: {} ... skipped ({means} is in CELLAR_TEST_SKIP)", test.name);
            return Outcome::Skipped;
        }
        if let Err(missing) = means.check() {
            let reason = format!("{missing} (CELLAR_TEST_SKIP={means} skips it)");
            println!("interop: {} ... FAILED: {reason}", test.name);
            return Outcome::Failed(reason);
        }
    }
    let start = Instant::now();
    let result = apart(test, limits);
    let seconds = start.elapsed().as_secs_f64();
    match result {
        Ok(()) => {
            println!("interop: {} ... ok ({seconds:.1} s)", test.name);
            Outcome::Passed
        }
        Err(error) => {
            let reason = format!("{error:#}");
            println!("interop: {} ... FAILED ({seconds:.1} s)\n{reason}", test.name);
            Outcome::Failed(reason)
        }
    }
}
