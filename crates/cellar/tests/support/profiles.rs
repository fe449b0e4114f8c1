//! Profiles of a cell in this process, taken by the command.

use serde_json::Value;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// What is waited for comes long before this.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long profiles last: the next one, if a busy machine took longer.
const SECONDS: [&str; 3] = ["2", "10", "50"];

/// Begins `cellar profile` with these arguments.
pub(crate) fn begin(config: &Path, arguments: &[&str], seconds: &str) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cellar"));
    command.arg("profile").args(arguments).args(["--seconds", seconds, "--json", "--config"]).arg(config);
    command.stdout(Stdio::piped()).spawn().unwrap()
}

/// The rows that it prints at its end.
pub(crate) fn rows(child: Child) -> Vec<Value> {
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    if output.stdout.is_empty() { Vec::new() } else { serde_json::from_slice(&output.stdout).unwrap() }
}

/// What a profile of waits tells in which this work was done from its beginning to its end; and what the work gave.
pub(crate) fn during<T>(config: &Path, arguments: &[&str], mut work: impl FnMut() -> T) -> (Vec<Value>, T) {
    for seconds in SECONDS {
        let profile = begin(config, arguments, seconds);
        let deadline = Instant::now() + PATIENCE;
        while !waits::is_watched() {
            assert!(Instant::now() < deadline, "{arguments:?} does not begin");
            thread::sleep(Duration::from_millis(5));
        }
        let given = work();
        let is_whole = waits::is_watched();
        let rows = rows(profile);
        if is_whole {
            return (rows, given);
        }
    }
    panic!("the work took longer than each profile");
}
