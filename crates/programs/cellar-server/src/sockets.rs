//! Sockets that outlive the process, so that a restart loses no datagram: while no process reads them, the
//! kernel queues incoming datagrams, and the next process answers them.
//!
//! The next process gets the sockets from a service manager (socket activation and systemd's descriptor
//! store, [`manager`]), from the process that it replaces ([`handover`]), or from the parent that started it
//! ([`supervisor`]). All pass them over Unix sockets in the same format ([`passing`]).

mod handover;
mod manager;
mod passing;
pub mod supervisor;
mod watchdog;

use manager::Manager;
use rx::{Inherited, KeptSocket};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

pub use handover::Successor;
pub(crate) use watchdog::{Progress, Watchdog};

/// Where a server gets its sockets from, in addition to a service manager.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sources {
    /// Whether to take them from a running server with the same state, which then shuts down cleanly.
    pub predecessor: bool,
    /// Whether to take them from the process at the other end of standard input.
    pub supervisor: bool,
}

/// Processes that keep this process's sockets.
pub struct Keepers {
    manager: Option<Manager>,
    supervisor: Option<OwnedFd>,
}

impl Keepers {
    /// Finds the keepers, and takes over the sockets that they and a predecessor listening at `path` have.
    /// When this returns, a predecessor has ended.
    pub fn find(sources: Sources, path: &Path) -> anyhow::Result<(Keepers, Arc<Inherited>)> {
        let mut kept = KeptSocket::passed();
        let supervisor = sources.supervisor.then(|| io::stdin().as_fd().try_clone_to_owned()).transpose()?;
        if let Some(supervisor) = &supervisor {
            kept.extend(passing::receive(supervisor.as_fd())?);
        }
        if sources.predecessor {
            kept.extend(handover::take_over(path)?);
        }
        if !kept.is_empty() {
            tracing::info!(sockets = kept.len(), "took over the sockets of another process");
        }
        Ok((Keepers { manager: Manager::of_environment(), supervisor }, Arc::new(Inherited::new(kept))))
    }

    /// Leaves the sockets in use with the keepers, and closes inherited ones that are not used. To be called
    /// once the server answers.
    pub fn keep(&self, inherited: &Inherited, sockets: &[KeptSocket]) {
        let unused = inherited.close_rest();
        for (name, address) in &unused {
            tracing::warn!(%address, name, "an inherited socket has an address and port that are not \
                served; closed");
        }
        if let Some(supervisor) = &self.supervisor
            && let Err(error) = passing::send(supervisor.as_fd(), sockets)
        {
            tracing::error!(%error, "the supervisor did not accept the sockets");
        }
        if let Some(manager) = &self.manager {
            manager.keep(sockets);
            for (name, _) in &unused {
                manager.forget(name);
            }
            manager.say("READY=1");
        }
    }

    /// Notifies the service manager that the server is stopping.
    pub fn stopping(&self) {
        if let Some(manager) = &self.manager {
            manager.say("STOPPING=1");
        }
    }
}

/// Listens at `path` for a successor, which receives these sockets and is passed to `found`. If listening
/// fails, the server still runs, but cannot be replaced.
pub fn await_successor(
    path: &Path,
    sockets: Vec<KeptSocket>,
    found: impl FnOnce(Successor) + Send + 'static,
) {
    if let Err(error) = handover::listen(path, sockets, found) {
        tracing::warn!(path = %path.display(), %error, "`cellar serve --replace` cannot reach this server");
    }
}
