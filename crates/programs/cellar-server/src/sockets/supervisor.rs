//! A parent that keeps the server's sockets and restarts a killed server, in place of a service manager.
//!
//! The server's standard input is a socket. The supervisor sends the sockets that it keeps, initially none;
//! the server sends those in use.

use super::passing;
use anyhow::{Context, Result, bail};
use parking_lot::{Condvar, Mutex};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use rx::KeptSocket;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::ffi::OsString;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A server that ran for at least this long is restarted immediately.
const STEADY: Duration = Duration::from_secs(10);

/// Minimum and maximum pause before the restart of a server that ran for less.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// Option that makes a server take its sockets from standard input.
pub const OPTION: &str = "--sockets-on-stdin";

/// State shared by the supervisor and its signal thread.
#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    ends: Condvar,
}

#[derive(Default)]
struct State {
    /// The server's PID, while it cannot have been reused.
    child: Option<Pid>,
    is_ending: bool,
}

/// Runs `cellar serve` with this configuration until it shuts down cleanly, or this process is told to end.
/// The first server replaces a running one if `replace` is set.
///
/// # Errors
/// If the server cannot be started, or fails before it serves.
pub fn run(config: Option<&Path>, replace: bool) -> Result<()> {
    // The path is resolved now, so that a restart after an upgrade runs the new program.
    let program = std::env::current_exe().context("the path of this program is unknown")?;
    let shared = Arc::new(Shared::default());
    follow_signals(&shared)?;
    let mut kept = Vec::new();
    let mut replace = replace;
    let mut pause = Duration::ZERO;
    loop {
        let mut command = Command::new(&program);
        command.args(arguments(config, replace));
        let began = Instant::now();
        let (status, sockets) = run_once(&mut command, kept, &shared)?;
        if status.success() {
            return Ok(());
        }
        if shared.state.lock().is_ending || sockets.is_empty() {
            bail!("the server ended with {status}");
        }
        eprintln!("cellar: the server ended with {status}; its {} sockets are kept", sockets.len());
        (kept, replace) = (sockets, false);
        let is_steady = began.elapsed() >= STEADY;
        pause = if is_steady { Duration::ZERO } else { (2 * pause).clamp(PAUSE_MIN, PAUSE_MAX) };
        if shared.ends_within(pause) {
            return Ok(());
        }
    }
}

fn arguments(config: Option<&Path>, replace: bool) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = vec!["serve".into(), OPTION.into()];
    if let Some(config) = config {
        arguments.extend(["--config".into(), config.into()]);
    }
    arguments.extend(replace.then(|| "--replace".into()));
    arguments
}

/// Runs the server once. Returns its exit status, and the sockets to keep.
fn run_once(
    command: &mut Command,
    kept: Vec<KeptSocket>,
    shared: &Shared,
) -> Result<(ExitStatus, Vec<KeptSocket>)> {
    let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    let mut child = shared.spawn(command.stdin(Stdio::from(theirs)))?;
    // Drops the command's copy of the other end.
    command.stdin(Stdio::null());
    let reader = std::thread::spawn(move || collect(&ours, kept));
    let status = shared.wait(&mut child)?;
    let Ok(kept) = reader.join() else { bail!("the thread that keeps the sockets panicked") };
    Ok((status, kept))
}

/// Sends the server the kept sockets, and returns those to keep once the server has ended.
fn collect(channel: &OwnedFd, kept: Vec<KeptSocket>) -> Vec<KeptSocket> {
    let mut kept = kept;
    if passing::send(channel.as_fd(), &kept).is_ok() {
        while let Ok(sockets) = passing::receive(channel.as_fd()) {
            kept = sockets;
        }
    }
    kept
}

impl Shared {
    fn spawn(&self, command: &mut Command) -> Result<Child> {
        let mut state = self.state.lock();
        let child = command.spawn().with_context(|| format!("cannot start {command:?}"))?;
        state.child = Some(Pid::from_child(&child));
        if state.is_ending {
            let _ = kill_process(Pid::from_child(&child), Signal::TERM);
        }
        Ok(child)
    }

    /// Waits for the end of the server. The process stays a zombie until its PID has been removed from the
    /// shared state.
    fn wait(&self, child: &mut Child) -> Result<ExitStatus> {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        while let Err(error) = waitid(WaitId::Pid(Pid::from_child(child)), options) {
            if error != rustix::io::Errno::INTR {
                return Err(error).context("cannot wait for the server");
            }
        }
        self.state.lock().child = None;
        Ok(child.wait()?)
    }

    /// Waits for this time, or until the supervisor is told to end; returns whether it was.
    fn ends_within(&self, span: Duration) -> bool {
        let mut state = self.state.lock();
        self.ends.wait_while_for(&mut state, |state| !state.is_ending, span);
        state.is_ending
    }

    fn on_signal(&self, signal: i32) {
        let mut state = self.state.lock();
        let ends = signal != SIGHUP;
        state.is_ending |= ends;
        if let Some(child) = state.child {
            let _ = kill_process(child, if ends { Signal::TERM } else { Signal::HUP });
        }
        self.ends.notify_all();
    }
}

fn follow_signals(shared: &Arc<Shared>) -> Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
    let shared = Arc::clone(shared);
    std::thread::spawn(move || signals.forever().for_each(|signal| shared.on_signal(signal)));
    Ok(())
}
