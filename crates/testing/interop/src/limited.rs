//! Runs a program and all its descendants with a time limit, so that a hanging test does not block the
//! others.

use crate::ending;
use anyhow::{Context, Result};
use std::collections::VecDeque;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// Time limits of a program.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Time until it is sent SIGTERM.
    pub run: Duration,
    /// Additional time until it is killed, in which it stops its cells.
    pub end: Duration,
}

/// How a program ended.
#[derive(Debug)]
pub enum Ended {
    /// It exited by itself; with its last lines of output.
    Itself(ExitStatus, String),
    /// It exceeded its time limit; with a description of its state.
    Late(String),
}

/// Number of lines of the output and of each log to report.
const LAST_LINES: usize = 20;
/// Number of bytes to read from the end of a log.
const LOG_TAIL_BYTES: u64 = 16 << 10;
/// Number of characters of a command line to report.
const COMMAND_CHARACTERS: usize = 300;
/// Interval for polling whether the program has exited.
const LOOK: Duration = Duration::from_millis(100);
/// Time limit for the program's descendants after its exit: processes that run guests still have to stop
/// them.
const OTHERS_END: Duration = Duration::from_secs(40);
/// Time limit for reading the rest of the pipe after the exit; a descendant may hold it open.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Runs a program in a new process group. `say` receives each line of its output immediately. The program
/// lists its cells in its own `folder` ([`ending::list_in`]); cells that are still listed at the end are
/// stopped.
///
/// # Errors
/// If the program cannot be started.
pub fn run(command: &mut Command, limits: Limits, folder: &Path, mut say: impl FnMut(&str)) -> Result<Ended> {
    let (lines, mut child) = start(command, folder)?;
    let mut last = VecDeque::new();
    let mut hear = |patience| {
        let heard = lines.recv_timeout(patience);
        if let Ok(line) = &heard {
            say(line);
            last.truncate(LAST_LINES - 1);
            last.push_front(line.clone());
        }
        heard.err() != Some(RecvTimeoutError::Disconnected)
    };
    let ended = wait(&mut child, limits.run, || _ = hear(LOOK) || idle());
    let doing = ended.is_none().then(|| (processes(child.id()), logs(&ending::listed(folder))));
    if let Some((processes, _)) = &doing {
        signal("TERM", &format!("-{}", child.id()));
        wait(&mut child, limits.end, || _ = hear(LOOK) || idle());
        let deadline = Instant::now() + limits.end.min(OTHERS_END);
        while processes.iter().any(Process::is_there) && Instant::now() < deadline {
            idle();
        }
        processes.iter().filter(|process| process.is_there()).for_each(Process::kill);
    }
    let status = child.wait()?;
    let deadline = Instant::now() + LAST_WORDS;
    while hear(LOOK) && Instant::now() < deadline {}
    for cell in ending::listed(folder) {
        ending::remove(&cell);
    }
    ending::forget_program(folder);
    let last = last.into_iter().rev().collect::<Vec<_>>().join("\n");
    Ok(match doing {
        None => Ended::Itself(status, last),
        Some((processes, logs)) => Ended::Late(ends_of_logs(limits.run, &processes, &logs, &last)),
    })
}

fn start(command: &mut Command, folder: &Path) -> Result<(Receiver<String>, Child)> {
    let (output, input) = std::io::pipe()?;
    command.stdin(Stdio::null()).stdout(input.try_clone()?).stderr(input).process_group(0);
    let child = ending::program_begins(folder, || command.spawn());
    // Closes this process's copies of the writing end.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let child = child.with_context(|| format!("cannot start {}", command.get_program().display()))?;
    let (sender, lines) = channel();
    std::thread::spawn(move || {
        let mut output = BufReader::new(output);
        let mut line = Vec::new();
        while matches!(output.read_until(b'\n', &mut line), Ok(1..)) {
            let text = String::from_utf8_lossy(line.trim_ascii_end()).into_owned();
            if sender.send(text).is_err() {
                return;
            }
            line.clear();
        }
    });
    Ok((lines, child))
}

/// Waits for the program; returns its status, or `None` after the time limit.
fn wait(child: &mut Child, limit: Duration, mut meanwhile: impl FnMut()) -> Option<ExitStatus> {
    let deadline = Instant::now() + limit;
    while Instant::now() < deadline {
        if let Ok(Some(status)) = child.try_wait() {
            return Some(status);
        }
        meanwhile();
    }
    None
}

/// Pauses between polls once the program's output is closed.
fn idle() -> bool {
    std::thread::sleep(LOOK);
    true
}

fn ends_of_logs(limit: Duration, processes: &[Process], logs: &str, last: &str) -> String {
    let mut text = format!("no end within {} s; it was doing:", limit.as_secs_f64());
    for process in processes {
        _ = write!(text, "\n  {} {}", process.id, process.command);
    }
    _ = write!(text, "\nthe last it printed:\n{last}{logs}");
    text
}

/// Returns the last lines of the logs of these cells: those of Cellar, the guests and OpenAFS.
fn logs(cells: &[PathBuf]) -> String {
    let mut text = String::new();
    for cell in cells {
        let entries =
            [cell.clone(), cell.join("log")].into_iter().flat_map(std::fs::read_dir).flatten().flatten();
        let mut files: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
        files.sort();
        for file in files.iter().filter(|file| is_log(file)) {
            let end = end_of(file).unwrap_or_else(|error| error.to_string());
            if !end.is_empty() {
                _ = write!(text, "\nthe end of {}:\n{end}", file.display());
            }
        }
    }
    text
}

fn is_log(file: &Path) -> bool {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    name.ends_with(".log") || name.ends_with("Log")
}

fn end_of(file: &Path) -> std::io::Result<String> {
    let mut file = std::fs::File::open(file)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(LOG_TAIL_BYTES)))?;
    let mut bytes = Vec::new();
    file.take(LOG_TAIL_BYTES).read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<&str> = text.lines().collect();
    Ok(lines[lines.len().saturating_sub(LAST_LINES)..].join("\n"))
}

/// A process, with its start time to distinguish it from a later one with the same id.
#[derive(Debug)]
struct Process {
    id: u32,
    begun: String,
    command: String,
}

/// Returns a process and all its descendants.
fn processes(id: u32) -> Vec<Process> {
    let mut found = vec![id];
    let all: Vec<(u32, u32)> = std::fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter_map(|id| Some((id, fields(id)?.get(PARENT)?.parse().ok()?)))
        .collect();
    let mut at = 0;
    while let Some(&parent) = found.get(at) {
        found.extend(all.iter().filter(|(_, of)| *of == parent).map(|(id, _)| id));
        at += 1;
    }
    found.into_iter().filter_map(Process::of).collect()
}

/// Returns the fields of /proc/PID/stat of a running process, starting with its state (the third in proc(5)).
fn fields(id: u32) -> Option<Vec<String>> {
    let text = std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    let (_, rest) = text.rsplit_once(") ")?;
    Some(rest.split(' ').map(str::to_owned).collect()).filter(|fields: &Vec<String>| fields[0] != "Z")
}

/// Indices of the parent and of the start time in [`fields`].
const PARENT: usize = 1;
const BEGUN: usize = 19;

/// Whether a process with this id is running.
pub(crate) fn is_running(id: u32) -> bool {
    fields(id).is_some()
}

impl Process {
    fn of(id: u32) -> Option<Process> {
        let command = std::fs::read(format!("/proc/{id}/cmdline")).ok()?;
        let words = String::from_utf8_lossy(&command).replace('\0', " ");
        let command = words.trim_end().chars().take(COMMAND_CHARACTERS).collect();
        Some(Process { id, begun: fields(id)?.get(BEGUN)?.clone(), command })
    }

    fn is_there(&self) -> bool {
        fields(self.id).is_some_and(|fields| fields.get(BEGUN) == Some(&self.begun))
    }

    fn kill(&self) {
        signal("KILL", &self.id.to_string());
    }
}

/// Sends a signal to a process, or to a process group if the id has a minus sign. The process may have exited
/// already.
pub(crate) fn signal(name: &str, whom: &str) {
    _ = Command::new("kill").args(["-s", name, "--", whom]).stderr(Stdio::null()).status();
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Limits that no test reaches.
    const LONG: Limits = Limits { run: Duration::from_secs(600), end: Duration::from_secs(600) };

    fn shell(script: &str, limits: Limits) -> (Ended, Vec<String>) {
        let folder = tempfile::tempdir().unwrap();
        let mut heard = Vec::new();
        let mut command = Command::new("bash");
        let ended = run(command.args(["-c", script]), limits, folder.path(), |line| {
            heard.push(line.to_owned());
        });
        (ended.unwrap(), heard)
    }

    #[test]
    fn an_ended_process_is_not_killed() {
        let (ended, heard) = shell("echo one; echo two >&2; exit 3", LONG);
        let Ended::Itself(status, last) = ended else { panic!("{ended:?}") };
        assert_eq!((status.code(), last.as_str()), (Some(3), "one\ntwo"));
        assert_eq!(heard, ["one", "two"]);
    }

    #[test]
    fn the_end_of_a_long_output_is_reported() {
        let (Ended::Itself(_, last), heard) = shell("seq 100", LONG) else { panic!("ended") };
        assert_eq!((last.lines().next(), last.lines().last()), (Some("81"), Some("100")));
        assert_eq!(heard.len(), 100);
    }

    #[test]
    fn a_hanging_process_is_killed_with_children() {
        // Both processes ignore SIGTERM; one is in a new session, which a signal to the group does not reach.
        let script = "echo begun; trap '' TERM; setsid bash -c 'echo $$; exec sleep 98761' & sleep 98762";
        let limits = Limits { run: Duration::from_secs(3), end: Duration::from_secs(1) };
        let (Ended::Late(reported), heard) = shell(script, limits) else { panic!("it ended by itself") };
        for part in ["no end within 3 s", " sleep 98761", " sleep 98762", "begun"] {
            assert!(reported.contains(part), "{part}: {reported}");
        }
        let other: u32 = heard[1].parse().unwrap();
        assert!(!is_running(other), "{other} runs on");
    }

    #[test]
    fn the_ends_of_all_logs_are_reported() {
        let cell = tempfile::tempdir().unwrap();
        std::fs::create_dir(cell.path().join("log")).unwrap();
        let many = (0..10_000).map(|line| format!("line {line}")).collect::<Vec<_>>().join("\n");
        for (file, text) in
            [("cellar.log", many.as_str()), ("log/FileLog", "salvaging"), ("settings", "secret")]
        {
            std::fs::write(cell.path().join(file), text).unwrap();
        }
        let reported = logs(&[cell.path().to_owned()]);
        assert!(
            reported.contains("line 9999") && reported.contains("salvaging") && !reported.contains("secret"),
            "{reported}"
        );
        assert!(reported.lines().count() < 2 * LAST_LINES, "{reported}");
    }
}
