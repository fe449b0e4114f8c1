//! Profiles of a cell in this process, taken by the command.

use super::place::Place;
use super::soon;
use serde_json::Value;
use std::process::{Child, Stdio};

/// Durations of profiles; the next one is used if a busy machine took longer.
const SECONDS: [&str; 3] = ["2", "10", "50"];

/// Starts `cellar profile` with these arguments.
pub(crate) fn begin(place: &Place, arguments: &[&str], seconds: &str) -> Child {
    let mut command = place.command(&[&["profile"], arguments, &["--seconds", seconds, "--json"]].concat());
    command.stdout(Stdio::piped()).spawn().unwrap()
}

/// Waits for the command and returns the rows that it prints.
pub(crate) fn rows(child: Child) -> Vec<Value> {
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    if output.stdout.is_empty() { Vec::new() } else { serde_json::from_slice(&output.stdout).unwrap() }
}

/// Does some work entirely within a profile of waits. Returns the rows of the profile and the result of the
/// work.
pub(crate) fn during<T>(place: &Place, arguments: &[&str], mut work: impl FnMut() -> T) -> (Vec<Value>, T) {
    for seconds in SECONDS {
        let profile = begin(place, arguments, seconds);
        soon(&format!("{arguments:?} begins"), || waits::is_watched().then_some(()));
        let given = work();
        let is_whole = waits::is_watched();
        let rows = rows(profile);
        if is_whole {
            return (rows, given);
        }
    }
    panic!("the work took longer than each profile");
}
