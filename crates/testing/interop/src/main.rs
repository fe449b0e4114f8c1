//! Interoperability tests: Cellar against independent software.
//!
//! `interop [FILTER...]` runs the tests whose names contain a filter, or all tests without one; `--list`
//! shows them. The tests need root, network namespaces, Debian's OpenAFS packages, /dev/fuse and QEMU. A test
//! whose requirements are not met fails with a list of what is missing, unless `CELLAR_TEST_SKIP` names that
//! requirement ([`Means`]; docs/design/testing.md has the names): then it is counted as skipped.
//!
//! Each test runs in a separate process with its own network, so that several run in parallel: one for each
//! processor, and more while processors are idle, since most tests mainly wait ([`Jobs`]; `CELLAR_TEST_JOBS`
//! sets a number). Tests that measure rates or use all processors run after the others, one at a time.
//! `CELLAR_TEST_LIMIT` is the time limit for a test in seconds: a test that hangs fails, and its processes are
//! stopped before the next test starts.

mod churn;
mod privileged;
mod tests;

use anyhow::{Context, Result, bail, ensure};
use interop::ending;
use interop::jobs::{Begun, Jobs};
use interop::limited::{Ended, Limits, run as run_limited};
use interop::means::Means;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// One test.
pub(crate) struct Test {
    name: &'static str,
    needs: &'static [Means],
    run: fn() -> Result<()>,
}

enum Outcome {
    Passed,
    /// The test failed for this reason.
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
    let (limits, jobs) = match limits().and_then(|limits| Ok((limits, Jobs::configured()?))) {
        Ok(set) => set,
        Err(error) => {
            println!("interop: {error:#}");
            return ExitCode::FAILURE;
        }
    };
    let (all, alone) = (tests::all(), tests::alone());
    if arguments.iter().any(|argument| argument == "--list") {
        for test in all.iter().chain(&alone) {
            println!("{}", test.name);
        }
        return ExitCode::SUCCESS;
    }
    let wanted = |test: &&Test| arguments.is_empty() || arguments.iter().any(|part| test.name.contains(part));
    let hidden = tests::hidden();
    let hidden = hidden.iter().filter(|test| arguments.iter().any(|word| word == test.name));
    let tests: Vec<&Test> = all.iter().filter(wanted).chain(hidden).collect();
    let alone: Vec<&Test> = alone.iter().filter(wanted).collect();
    let (mut passed, mut skipped, mut failures) = (0, 0, Vec::new());
    let outcomes = run_all(&tests, limits, jobs).into_iter().chain(run_all(&alone, limits, Jobs::ONE));
    for (name, outcome) in outcomes {
        match outcome {
            Outcome::Passed => passed += 1,
            Outcome::Failed(reason) => failures.push((name, reason)),
            Outcome::Skipped => skipped += 1,
        }
    }
    for (name, reason) in &failures {
        println!("\ninterop: {name} FAILED\n{}", end_of(reason));
    }
    println!("\ninterop: {passed} passed, {} failed, {skipped} skipped", failures.len());
    if passed + skipped > 0 && failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// First argument of the process that runs one test; the test's name and a folder follow.
const OWN_PROCESS: &str = "run-alone";
/// File in that folder with the reason for a failure.
const FAILURE: &str = "failure";

/// Default time limit for a test, in seconds. The slowest tests take 7 minutes on two processors.
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

/// Runs all tests, several in parallel; returns the outcomes in the order of completion.
fn run_all<'a>(tests: &[&'a Test], limits: Limits, jobs: Jobs) -> Vec<(&'a str, Outcome)> {
    let (begun, outcomes) = (Mutex::new((tests.iter(), Begun::of(jobs))), Mutex::new(Vec::new()));
    let work = || {
        loop {
            let (test, running) = {
                let (next, begun) = &mut *begun.lock().unwrap();
                let Some(test) = next.next() else { return };
                (test, begun.begin())
            };
            let mark = if jobs.most > 1 { format!("{}: ", test.name) } else { String::new() };
            let outcome = run(test, limits, &mark);
            drop(running);
            outcomes.lock().unwrap().push((test.name, outcome));
        }
    };
    std::thread::scope(|scope| (0..jobs.most).for_each(|_| _ = scope.spawn(work)));
    outcomes.into_inner().unwrap()
}

/// Runs one test in this process.
fn own_process(name: &str, folder: &Path) -> ExitCode {
    ending::list_in(folder);
    let tests = tests::all().into_iter().chain(tests::alone()).chain(tests::hidden());
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

/// Runs a command with a private network and a private list of named network namespaces.
const OWN_NETWORK: &str =
    "mkdir -p /run/netns && mount -t tmpfs tmpfs /run/netns && ip link set lo up && exec \"$@\"";

/// Runs a test in a new process with its own network. `mark` precedes each line of its output.
fn apart(test: &Test, limits: Limits, mark: &str) -> Result<()> {
    let folder = tempfile::Builder::new().prefix("cellar-interop-test-").tempdir()?;
    let mut command = Command::new("unshare");
    command.args(["--net", "--mount", "sh", "-c", OWN_NETWORK, "sh"]).arg(std::env::current_exe()?);
    command.arg(OWN_PROCESS).arg(test.name).arg(folder.path());
    match run_limited(&mut command, limits, folder.path(), |line| println!("{mark}{line}"))? {
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

/// Number of lines of a failure that are repeated in the summary.
const REPEATED_LINES: usize = 80;

/// Returns the first line and the last lines of a long text.
fn end_of(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    match lines.len().checked_sub(REPEATED_LINES) {
        Some(omitted @ 1..) => {
            format!("{}\n({omitted} lines more above)\n{}", lines[0], lines[omitted..].join("\n"))
        }
        _ => text.to_owned(),
    }
}

/// Runs one of the helper programs that tests start. Writers: `write DATABASES VOLUME WRITER DONE UNTIL [NODE]` and
/// `fill SERVER VOLUME ROUNDS`, `pulse DATABASES SERVER VOLUME`; a reader: `peek DATABASES SERVER VOLUME PATIENCE_MS`; an administrator: `privileged DATABASES SERVER VOLUME TOKEN`; any user: `list
/// DATABASES VOLUME TOKEN`.
fn writer(arguments: &[String]) -> Option<Result<()>> {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let number = |word: &str| word.parse::<u64>().with_context(|| format!("{word} is not a number"));
    let run = || match words[..] {
        ["write", databases, volume, writer, done, until, ref node @ ..] => {
            let (writer, databases) = (u32::try_from(number(writer)?)?, databases.parse()?);
            let cell = match node {
                [] => churn::client(databases)?,
                [node, ..] => churn::Through::cell(databases, node.parse()?)?,
            };
            churn::write(cell, volume, writer, number(done)?, number(until)?)
        }
        ["peek", databases, server, volume, patience_ms] => {
            churn::peek(databases.parse()?, server.parse()?, volume, number(patience_ms)?)
        }
        ["pulse", databases, server, volume] => churn::pulse(databases.parse()?, server.parse()?, volume),
        ["fill", server, volume, rounds] => churn::fill(server.parse()?, volume, number(rounds)?),
        ["privileged", databases, server, volume, token] => {
            privileged::call(databases, server.parse()?, volume, Path::new(token))
        }
        ["list", databases, volume, token] => privileged::list(databases, volume, Path::new(token)),
        _ => bail!(
            "expected `write DATABASES VOLUME WRITER DONE UNTIL [NODE]`, `peek DATABASES SERVER VOLUME PATIENCE_MS`, `pulse DATABASES \
             SERVER VOLUME`, `fill SERVER VOLUME ROUNDS`, `privileged DATABASES SERVER VOLUME TOKEN` \
             or `list DATABASES VOLUME TOKEN`"
        ),
    };
    matches!(words.first(), Some(&"write" | &"peek" | &"pulse" | &"fill" | &"privileged" | &"list")).then(run)
}

fn run(test: &Test, limits: Limits, mark: &str) -> Outcome {
    for means in test.needs {
        if means.is_skipped() {
            println!("interop: {} ... skipped ({means} is in CELLAR_TEST_SKIP)", test.name);
            return Outcome::Skipped;
        }
        if let Err(missing) = means.check().and_then(|()| means.prepare()) {
            let reason = format!("{missing} (CELLAR_TEST_SKIP={means} skips it)");
            println!("interop: {} ... FAILED: {reason}", test.name);
            return Outcome::Failed(reason);
        }
    }
    let start = Instant::now();
    let result = apart(test, limits, mark);
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
