//! A parent that keeps the server's sockets and starts it again when it was killed: what a service manager does, where
//! there is none.
//!
//! The server's standard input is a socket. The supervisor sends the sockets that it keeps, none at first; the server sends
//! those that it serves with.

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

/// A server that ran for this long is started again at once.
const STEADY: Duration = Duration::from_secs(10);

/// Shortest and longest pause before a server is started again that ran for less.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// The option that makes a server take its sockets from standard input.
pub const OPTION: &str = "--sockets-on-stdin";

/// What the supervisor and its thread for signals share.
#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    ends: Condvar,
}

#[derive(Default)]
struct State {
    /// The server, as long as its number cannot be another process's.
    child: Option<Pid>,
    is_ending: bool,
}

/// Runs `cellar serve` with this configuration until it ends in order, or this process is told to end; the first time
/// in place of a server that runs already, if `replace` says so.
///
/// # Errors
/// The server cannot be started, or fails before it serves.
pub fn run(config: Option<&Path>, replace: bool) -> Result<()> {
    // By its path: after an upgrade the new program is started.
    let program = std::env::current_exe().context("the path of this program is not known")?;
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

/// Runs the server once. Returns how it ended, and the sockets to be kept.
fn run_once(
    command: &mut Command,
    kept: Vec<KeptSocket>,
    shared: &Shared,
) -> Result<(ExitStatus, Vec<KeptSocket>)> {
    let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    let mut child = shared.spawn(command.stdin(Stdio::from(theirs)))?;
    // The command holds the other end, too.
    command.stdin(Stdio::null());
    let reader = std::thread::spawn(move || collect(&ours, kept));
    let status = shared.wait(&mut child)?;
    let Ok(kept) = reader.join() else { bail!("the thread that keeps the sockets panicked") };
    Ok((status, kept))
}

/// Sends the server what is kept, and gives what is to be kept once the server has ended.
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

    /// Waits for the end of the server. Until it is known to other threads, the process stays a zombie.
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

    /// Waits, but not if the supervisor is told to end meanwhile; then it returns true.
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
