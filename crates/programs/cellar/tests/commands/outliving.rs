//! Servers that are replaced, or killed and restarted, while clients keep calling.

use crate::support::place::{Place, cellar};
use crate::support::{Over, PATIENCE, soon};
use afs_idl::ClientConnection;
use anyhow::Result;
use base::AbortCode;
use bytes::Bytes;
use load::files::{Fid, Files};
use load::station::Station;
use std::io::ErrorKind;
use std::net::UdpSocket;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

/// A process that is killed when the test ends.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn serve(place: &Place, options: &[&str]) -> Command {
    let mut command = cellar(&["serve"]);
    command.args(options).arg("--config").arg(&place.config).env("HOME", place.folder());
    command.stdin(Stdio::null()).stdout(Stdio::null());
    command
}

fn wait_until_served(place: &Place) {
    let on = place.address.to_string();
    soon("it serves", || place.output(&["volume", "list", "--on", &on]).status.success().then_some(()));
}

/// Returns the child processes of a process.
fn children(parent: u32) -> Vec<u32> {
    let text = std::fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).unwrap();
    text.split_whitespace().map(|id| id.parse().unwrap()).collect()
}

/// Number of completed calls and requests, and of retries that servers asked for.
#[derive(Default)]
struct Done {
    calls: AtomicU64,
    again: AtomicU64,
    questions: AtomicU64,
}

/// Retries an operation, as cache managers do, when the server is restarting or does not know the call.
fn insist(done: &Done, operation: impl Fn() -> Result<()>) {
    let passing = [AbortCode::RX_RESTARTING, AbortCode::RX_CALL_DEAD].map(|code| format!("{code:?}"));
    loop {
        match operation() {
            Err(error) if passing.iter().any(|code| error.to_string().ends_with(code)) => {
                done.again.fetch_add(1, Relaxed)
            }
            result => {
                result.unwrap();
                done.calls.fetch_add(1, Relaxed);
                return;
            }
        };
    }
}

/// Writes and reads a file until `over` is set.
fn call_on(connection: &Arc<dyn ClientConnection>, root: Fid, name: &str, done: &Done, over: &AtomicBool) {
    let files = Files::new(Arc::clone(connection));
    let fid = files.create(root, name).unwrap();
    for turn in 0u64.. {
        if over.load(Relaxed) {
            return;
        }
        let data: Bytes = turn.to_be_bytes().repeat(500).into();
        insist(done, || files.store(fid, &data));
        insist(done, || files.check_status(fid, data.len() as u64));
        insist(done, || files.fetch_and_compare(fid, &data, 1 << 20));
    }
}

/// Requests the server's version over a connected socket, where an ICMP error is an error, until `over` is
/// set.
fn question(place: &Place, port: u16, done: &Done, over: &AtomicBool) {
    let socket = UdpSocket::bind((place.address, 0)).unwrap();
    socket.connect((place.address, port)).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    let mut version = [0; 28];
    (version[20], version[21]) = (13, 1);
    while !over.load(Relaxed) {
        socket.send(&version).expect("refused");
        match socket.recv(&mut [0; 200]) {
            Ok(_) => done.questions.fetch_add(1, Relaxed),
            // A killed server had already read the request.
            Err(error) if error.kind() == ErrorKind::WouldBlock => continue,
            Err(error) => panic!("refused: {error}"),
        };
        thread::sleep(Duration::from_millis(1));
    }
}

/// Runs `disturb` on the server while clients make calls.
fn under_load(place: &Place, root: Fid, disturb: impl FnOnce(&Done)) -> Done {
    let (done, over) = (Done::default(), AtomicBool::new(false));
    let stations = [(); 3].map(|()| Station::start().unwrap());
    thread::scope(|scope| {
        let _over = Over(&over);
        for (number, station) in stations.iter().enumerate() {
            let (connection, done, over) = (place.connect(station), &done, &over);
            scope.spawn(move || call_on(&connection, root, &format!("file{number}"), done, over));
        }
        for port in [7000, 7003] {
            let (done, over) = (&done, &over);
            scope.spawn(move || question(place, port, done, over));
        }
        disturb(&done);
    });
    done
}

/// Waits until clients have made progress.
fn go_on(done: &Done) {
    let (calls, questions) = (done.calls.load(Relaxed), done.questions.load(Relaxed));
    soon("calls go on", || {
        (done.calls.load(Relaxed) > calls + 50 && done.questions.load(Relaxed) > questions + 50).then_some(())
    });
}

#[test]
fn a_server_is_replaced_without_a_failed_call() {
    let place = Place::new("[rx]\nlanes = 3\n");
    let mut server = Running(serve(&place, &["--replace"]).spawn().unwrap());
    wait_until_served(&place);
    let root = place.volume("home");
    let done = under_load(&place, root, |done| {
        for lanes in [3, 1, 4] {
            go_on(done);
            let text = std::fs::read_to_string(&place.config).unwrap();
            let kept: Vec<&str> = text.lines().filter(|line| !line.starts_with("lanes")).collect();
            std::fs::write(&place.config, format!("{}\nlanes = {lanes}\n", kept.join("\n"))).unwrap();
            let next = Running(serve(&place, &["--replace"]).spawn().unwrap());
            let mut old = std::mem::replace(&mut server, next);
            assert!(old.0.wait().unwrap().success(), "the old server ends in order");
            go_on(done);
        }
    });
    assert_eq!(done.again.load(Relaxed), 0, "calls under way are served to their end");
}

#[test]
fn a_killed_server_is_started_again_with_its_sockets() {
    let place = Place::new("[rx]\nlanes = 2\n");
    let supervisor = Running(serve(&place, &["--supervise"]).spawn().unwrap());
    wait_until_served(&place);
    let root = place.volume("home");
    let served = || children(supervisor.0.id()).first().copied();
    under_load(&place, root, |done| {
        for _ in 0..3 {
            go_on(done);
            let old = served().expect("a server");
            assert!(Command::new("kill").args(["-9", &old.to_string()]).status().unwrap().success());
            soon("another server", || served().filter(|new| *new != old));
            go_on(done);
        }
    });
    let id = supervisor.0.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
    let mut supervisor = supervisor;
    let deadline = Instant::now() + PATIENCE;
    while supervisor.0.try_wait().unwrap().is_none() {
        assert!(Instant::now() < deadline, "the supervisor ends with its server");
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_server_that_never_served_is_not_started_again() {
    let place = Place::new("[nonsense]\n");
    let output = serve(&place, &["--supervise"]).output().unwrap();
    assert!(!output.status.success());
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(text.contains("nonsense") && text.contains("the server ended with"), "{text}");
}
