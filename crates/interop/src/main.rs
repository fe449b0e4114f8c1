//! Interoperability tests: software that nobody here wrote against Cellar.
//!
//! `interop [FILTER...]` runs the tests whose names contain a filter, all without one; `--list` shows
//! them. The tests need root, network namespaces, Debian's OpenAFS packages, /dev/fuse and QEMU. A
//! test whose means are missing fails and says what is missing, unless `CELLAR_TEST_SKIP` names that
//! means (a list out of `netns`, `fuse`, `emulation`, `tshark`,
//! `bpftrace`): then the summary counts it as skipped.

mod churn;
mod privileged;
mod tests;

use anyhow::{Context, Result, bail};
use interop::means::Means;
use std::process::ExitCode;
use std::time::Instant;

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
    if let Err(error) = interop::ending::on_signal() {
        println!("interop: {error:#}");
        return ExitCode::FAILURE;
    }
    let all = tests::all();
    if arguments.iter().any(|argument| argument == "--list") {
        for test in &all {
            println!("{}", test.name);
        }
        return ExitCode::SUCCESS;
    }
    let wanted = |test: &&Test| arguments.is_empty() || arguments.iter().any(|part| test.name.contains(part));
    let (mut passed, mut skipped, mut failures) = (0, 0, Vec::new());
    for test in all.iter().filter(wanted) {
        match run(test) {
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

fn run(test: &Test) -> Outcome {
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
    let result = tests::kafs::again_if_guest_fell(test.run);
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
