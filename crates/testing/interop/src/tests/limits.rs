//! A test that hangs fails, and the next one runs.

use crate::Test;
use crate::tests::wait_for;
use anyhow::{Result, ensure};
use interop::cell::Cell;
use interop::means::Means;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

pub(crate) fn tests() -> Vec<Test> {
    vec![Test { name: "a-hanging-test", needs: &[Means::Netns], run: a_hanging_test }]
}

/// Tests run by the one above.
pub(crate) fn hidden() -> Vec<Test> {
    vec![
        Test { name: "hangs-in-its-cell", needs: &[Means::Netns], run: hangs },
        Test { name: "ends-in-a-panic", needs: &[], run: panics },
        Test { name: "is-next", needs: &[], run: is_next },
    ]
}

/// Namespace of the hanging test.
const NAMESPACE: &str = "hangs";
/// Command line by which the process can be found on the machine.
const SLEEP: &str = "sleep 98763";

fn hangs() -> Result<()> {
    println!("about to hang");
    // Writes to one of the cell's OpenAFS logs.
    let script = format!("echo said to its log > /var/log/openafs/TestLog; exec {SLEEP}");
    Cell::start_on(NAMESPACE, "10.99.0.101", &[], &script).map(drop)
}

fn panics() -> Result<()> {
    panic!("out of luck");
}

fn is_next() -> Result<()> {
    println!("is-next runs");
    ensure!(!is_running()?, "`{SLEEP}` still runs");
    Ok(())
}

fn is_running() -> Result<bool> {
    is_there(&["-x", "-f", SLEEP])
}

/// Whether pgrep(1) finds a process with these arguments.
fn is_there(arguments: &[&str]) -> Result<bool> {
    Ok(!Command::new("pgrep").args(arguments).output()?.stdout.is_empty())
}

fn a_hanging_test() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let again = |tests: &[&str]| -> Result<Command> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(tests).env("CELLAR_TEST_LIMIT", "20").env("CELLAR_TEST_JOBS", "1");
        command.env("TMPDIR", folder.path());
        Ok(command)
    };
    let output = again(&["hangs-in-its-cell", "ends-in-a-panic", "is-next"])?.output()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(output.status.code() == Some(1), "{}:\n{text}", output.status);
    for part in [
        "interop: hangs-in-its-cell ... FAILED",
        "no end within 20 s; it was doing:",
        SLEEP,
        "about to hang",
        "said to its log",
        "interop: ends-in-a-panic ... FAILED",
        "out of luck",
        "is-next runs",
        "interop: is-next ... ok",
        "interop: 1 passed, 2 failed, 0 skipped",
    ] {
        ensure!(text.contains(part), "`{part}` is missing in:\n{text}");
    }
    nothing_is_left(folder.path())?;

    // It must be there before the limit for a test ends it.
    let mut interrupted = again(&["hangs-in-its-cell"])?.env("CELLAR_TEST_LIMIT", "120").spawn()?;
    wait_for(Duration::from_secs(60), is_running)?;
    Command::new("kill").args(["-INT", &interrupted.id().to_string()]).status()?;
    let status = interrupted.wait()?;
    ensure!(status.code() == Some(130), "after SIGINT: {status}");
    nothing_is_left(folder.path())
}

/// Checks that nothing is left of the cell of the hanging test, whose files were in this folder.
fn nothing_is_left(folder: &Path) -> Result<()> {
    let files: Vec<_> = std::fs::read_dir(folder)?.flatten().map(|entry| entry.path()).collect();
    ensure!(files.is_empty(), "still there: {files:?}");
    // Name of the process that holds a cell's namespaces.
    let holder = format!("^openafs-cell:{NAMESPACE} ");
    ensure!(!is_there(&["-f", &holder])?, "the cell's namespaces are still there");
    ensure!(!is_running()?, "`{SLEEP}` still runs");
    Ok(())
}
