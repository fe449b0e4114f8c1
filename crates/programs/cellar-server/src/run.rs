//! The process: signals, the handover to a successor, and the end.

use crate::faults::FaultInjection;
use crate::log::Console;
use crate::running::Running;
use crate::sockets::{Keepers, Sources, Successor, Watchdog};
use crate::startup::start_inheriting;
use crate::threads::thread;
use crate::{log, privileges, sockets};
use anyhow::{Result, bail};
use cellar_config::Settings;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::signal_name;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

/// Serves until SIGINT or SIGTERM, or until another process takes over. SIGHUP reopens the audit files and
/// reads the cell's keys.
pub fn run(settings: Settings, sources: Sources) -> Result<()> {
    run_then(settings, sources, Console::All, |_| Ok(()))
}

/// Serves until SIGINT or SIGTERM, or until another process takes over; calls `then` once all services
/// answer.
///
/// # Errors
/// If it could not start, or the cell's databases failed; in that case it was shut down cleanly.
pub fn run_then(
    settings: Settings,
    sources: Sources,
    console: Console,
    then: impl FnOnce(&Settings) -> Result<()>,
) -> Result<()> {
    log::start(&settings.log_path, console)?;
    privileges::give_up_unused(&settings);
    privileges::set_priority(settings.nice);
    let (instructions, received) = channel();
    let interrupted = Arc::new(AtomicBool::new(false));
    follow_signals(instructions.clone(), Arc::clone(&interrupted))?;
    let roles: Vec<&str> = settings.roles.iter().map(|role| role.instance()).collect();
    tracing::info!(cell = %settings.cell, from = settings.source, ?roles, "starting");
    let settings = Arc::new(settings);
    let path = settings.handover_path();
    let (keepers, inherited) = Keepers::find(sources, &path)?;
    let mut running = start_inheriting(&settings, &FaultInjection::default(), &inherited, &interrupted)?;
    let sockets = running.sockets()?;
    keepers.keep(&inherited, &sockets);
    if let Some(watchdog) = Watchdog::of_environment() {
        running.feed(watchdog);
    }
    let failed = instructions.clone();
    running.watch_databases(move |error| _ = failed.send(Instruction::Fail(error)));
    let lost = instructions.clone();
    running.watch_ownership(&settings, move |what| _ = lost.send(Instruction::Lose(what)));
    sockets::await_successor(&path, sockets, move |successor| {
        let _ = instructions.send(Instruction::Replace(successor));
    });
    tracing::info!("serving");
    then(&settings)?;
    let end = wait_for_end(&running, &received)?;
    keepers.stopping();
    let stopped = running.stop();
    match end {
        End::Signal => {}
        End::Replaced(successor) => successor.wait_for_process_end(),
        End::Failed(error) => {
            let path = settings.database_path.display();
            bail!(
                "stopped: the cell's databases in {path} no longer accept writes: {error}; repair their \
                file system first"
            );
        }
        End::Lost(what) => {
            bail!("stopped: {what}; start the server again: it then waits to own the partition")
        }
    }
    stopped?;
    tracing::info!("stopped");
    Ok(())
}

/// Instruction to a running server.
enum Instruction {
    Reopen,
    Replace(Successor),
    /// End, because of this signal.
    End(i32),
    /// The cell's databases failed with this error.
    Fail(String),
    /// A partition was lost, for this reason.
    Lose(String),
}

/// Reason why a server ends.
enum End {
    Signal,
    Replaced(Successor),
    Failed(String),
    Lost(String),
}

/// Handles instructions until the server is to end.
fn wait_for_end(running: &Running, received: &Receiver<Instruction>) -> Result<End> {
    loop {
        match received.recv()? {
            Instruction::Reopen => running.reopen(),
            Instruction::Replace(successor) => {
                tracing::info!("stopping: another process takes over");
                return Ok(End::Replaced(successor));
            }
            Instruction::End(signal) => {
                tracing::info!(signal = signal_name(signal), "stopping");
                return Ok(End::Signal);
            }
            Instruction::Fail(error) => {
                tracing::error!(error, "stopping: the cell's databases no longer accept writes");
                return Ok(End::Failed(error));
            }
            Instruction::Lose(what) => {
                tracing::error!("stopping: {what}");
                return Ok(End::Lost(what));
            }
        }
    }
}

/// Passes signals on. Those that end the server set `interrupted`, which ends a start that waits.
fn follow_signals(instructions: Sender<Instruction>, interrupted: Arc<AtomicBool>) -> Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
    let follow = move || {
        for signal in signals.forever() {
            interrupted.fetch_or(signal != SIGHUP, Ordering::Relaxed);
            let instruction = if signal == SIGHUP { Instruction::Reopen } else { Instruction::End(signal) };
            if instructions.send(instruction).is_err() {
                return;
            }
        }
    };
    thread("signals", follow);
    Ok(())
}
