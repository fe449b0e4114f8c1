//! Passes sockets from a running server to its replacement.
//!
//! The successor connects to a Unix socket in the directory of the server's state, sends a request, and
//! receives the sockets. Then the predecessor shuts down cleanly. The connection closes with the
//! predecessor's process; by then its stores are closed, and the successor may open them. Both check that the
//! other runs as the same user.

use super::passing;
use anyhow::{Context, Result, bail};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout, socket_peercred};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, connect, listen as open,
    socket_with,
};
use rx::KeptSocket;
use std::fs::Permissions;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

/// Request of a successor.
const REPLACE: &[u8] = b"replace 1";

/// Time limit for a connected process to send its request.
const PATIENCE: Duration = Duration::from_secs(5);

/// The server that takes over. It waits until this is dropped, or the process ends.
pub struct Successor {
    connection: OwnedFd,
}

impl Successor {
    /// Keeps the connection open until the process ends.
    pub fn wait_for_process_end(self) {
        std::mem::forget(self.connection);
    }
}

/// Starts a thread that passes `sockets` to the first successor, and calls `found` with it.
pub(super) fn listen(
    path: &Path,
    sockets: Vec<KeptSocket>,
    found: impl FnOnce(Successor) + Send + 'static,
) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        cellar_config::files::make_folder(folder)?;
    }
    // This server has opened its stores, so no other server uses this path any more.
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = new_socket()?;
    bind(&listener, &SocketAddrUnix::new(path)?)?;
    std::fs::set_permissions(path, Permissions::from_mode(0o600))?;
    open(&listener, 4)?;
    let serve = move || {
        loop {
            let connection = match accept(&listener) {
                Ok(connection) => connection,
                Err(error) => {
                    return tracing::error!(%error, "`cellar serve --replace` can no longer reach this \
                        server");
                }
            };
            match give(connection.as_fd(), &sockets) {
                Ok(()) => return found(Successor { connection }),
                Err(error) => tracing::warn!(%error, "sockets were requested but not handed over"),
            }
        }
    };
    std::thread::Builder::new().name("handover".into()).spawn(serve).map(drop)
}

fn new_socket() -> io::Result<OwnedFd> {
    Ok(socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?)
}

fn accept(listener: &OwnedFd) -> io::Result<OwnedFd> {
    loop {
        match accept_with(listener, SocketFlags::CLOEXEC) {
            Err(Errno::INTR | Errno::CONNABORTED) => {}
            accepted => return Ok(accepted?),
        }
    }
}

/// Answers a successor's request.
fn give(connection: BorrowedFd<'_>, sockets: &[KeptSocket]) -> io::Result<()> {
    check_peer(connection)?;
    set_socket_timeout(connection, Timeout::Recv, Some(PATIENCE))?;
    set_socket_timeout(connection, Timeout::Send, Some(PATIENCE))?;
    match passing::hear(connection)? {
        Some(message) if message.text == REPLACE => passing::send(connection, sockets),
        _ => Err(io::Error::new(io::ErrorKind::InvalidData, "expected `replace 1`")),
    }
}

/// Takes the sockets of the server that listens at `path`, and waits for its end. Returns none if there is no
/// server.
pub(super) fn take_over(path: &Path) -> Result<Vec<KeptSocket>> {
    let connection = new_socket()?;
    match connect(&connection, &SocketAddrUnix::new(path)?) {
        Err(Errno::NOENT | Errno::CONNREFUSED) => {
            tracing::info!(path = %path.display(), "no server to replace");
            return Ok(Vec::new());
        }
        connected => connected.with_context(|| format!("cannot connect to {}", path.display()))?,
    }
    check_peer(connection.as_fd()).with_context(|| path.display().to_string())?;
    passing::say(connection.as_fd(), REPLACE, None)?;
    let sockets =
        passing::receive(connection.as_fd()).context("the running server handed over no sockets")?;
    tracing::info!(sockets = sockets.len(), "waiting for the running server to close its stores");
    if passing::hear(connection.as_fd())?.is_some() {
        bail!("the running server sent more than its sockets");
    }
    Ok(sockets)
}

/// Fails if the process at the other end runs as another user.
fn check_peer(connection: BorrowedFd<'_>) -> io::Result<()> {
    let (peer, own) = (socket_peercred(connection)?.uid, rustix::process::geteuid());
    if peer == own {
        return Ok(());
    }
    let text = format!("the process at the other end runs as user {}, not {}", peer.as_raw(), own.as_raw());
    Err(io::Error::new(io::ErrorKind::PermissionDenied, text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;
    use std::sync::mpsc::channel;
    use std::thread;

    fn kept() -> (UdpSocket, Vec<KeptSocket>) {
        let bound = UdpSocket::bind("127.0.0.1:0").unwrap();
        let kept = KeptSocket { name: "x-lane0".into(), descriptor: bound.try_clone().unwrap().into() };
        (bound, vec![kept])
    }

    #[test]
    fn a_successor_waits_for_the_end_of_its_predecessor() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state/handover");
        assert!(take_over(&path).unwrap().is_empty(), "there is no server");
        let ((bound, kept), (found, successors)) = (kept(), channel());
        listen(&path, kept, move |successor| found.send(successor).unwrap()).unwrap();
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        let taking = thread::spawn(move || take_over(&path).unwrap());
        let successor = successors.recv().unwrap();
        assert!(!taking.is_finished());
        drop(successor);
        let taken = taking.join().unwrap();
        assert_eq!(taken.len(), 1);
        let taken = UdpSocket::from(taken.into_iter().next().unwrap().descriptor);
        assert_eq!(taken.local_addr().unwrap(), bound.local_addr().unwrap());
    }

    #[test]
    fn sockets_are_given_only_to_a_successor() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("handover");
        let ((_bound, kept), (found, successors)) = (kept(), channel());
        listen(&path, kept, move |successor| found.send(successor).unwrap()).unwrap();
        let stranger = new_socket().unwrap();
        connect(&stranger, &SocketAddrUnix::new(&path).unwrap()).unwrap();
        passing::say(stranger.as_fd(), b"give", None).unwrap();
        assert!(passing::hear(stranger.as_fd()).unwrap().is_none(), "closed without a socket");
        thread::spawn(move || take_over(&path).unwrap());
        successors.recv().unwrap();
    }

    #[test]
    fn a_stale_path_is_no_server() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("handover");
        let listener = new_socket().unwrap();
        bind(&listener, &SocketAddrUnix::new(&path).unwrap()).unwrap();
        drop(listener);
        assert!(take_over(&path).unwrap().is_empty());
    }
}
