//! `cellar quickstart`: the welcome, the demonstration, commands that find the cell, and ports in use.

use crate::support::place::{address, cellar};
use crate::support::soon;
use std::io::Read;
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use tempfile::TempDir;

/// A quickstart cell in the folder `cell` of a temporary directory; dropping it kills the server.
struct Quick {
    child: Child,
    place: TempDir,
    address: Ipv4Addr,
}

impl Quick {
    /// Starts a cell and waits until it has printed the end of its welcome.
    fn start(options: &[&str]) -> Quick {
        let (place, address) = (tempfile::tempdir().unwrap(), address());
        let child = begin(place.path(), address, options);
        let quick = Quick { child, place, address };
        soon("the welcome", || quick.welcome().contains("Ctrl-C stops it").then_some(()));
        quick
    }

    fn welcome(&self) -> String {
        std::fs::read_to_string(self.place.path().join("out")).unwrap()
    }

    fn errors(&self) -> String {
        std::fs::read_to_string(self.place.path().join("err")).unwrap()
    }

    /// Runs a command in the directory where the cell was started, without naming a configuration.
    fn output(&self, arguments: &[&str]) -> Output {
        cellar(arguments).current_dir(&self.place).env_remove("CELLAR_CONFIG").output().unwrap()
    }

    fn run(&self, arguments: &[&str]) -> String {
        let output = self.output(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    fn rows(&self, arguments: &[&str]) -> Vec<serde_json::Value> {
        serde_json::from_str(&self.run(&[arguments, &["--json"]].concat())).unwrap()
    }
}

impl Drop for Quick {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn begin(folder: &Path, address: Ipv4Addr, options: &[&str]) -> Child {
    let file = |name: &str| std::fs::File::create(folder.join(name)).unwrap();
    let mut command = cellar(&["quickstart", "--user", "ann", "--address", &address.to_string()]);
    command.args(options).current_dir(folder).env_remove("CELLAR_LOG");
    command.stdin(Stdio::null()).stdout(file("out")).stderr(file("err")).spawn().unwrap()
}

fn failure(output: &Output) -> String {
    assert!(!output.status.success());
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[test]
fn the_welcome_is_short_and_commands_find_the_cell() {
    let mut quick = Quick::start(&[]);
    let (welcome, address) = (quick.welcome(), quick.address.to_string());
    assert!((8..=12).contains(&welcome.lines().count()), "{welcome}");
    assert!(welcome.contains(&address) && welcome.contains(" volume list\n"), "{welcome}");
    assert!(
        welcome.contains(&format!("http://{address}:9798/")) && !welcome.contains("--config"),
        "{welcome}"
    );
    assert_eq!(quick.errors(), "");
    let log = std::fs::read_to_string(quick.place.path().join("cell/state/log/CellarLog")).unwrap();
    assert!(log.contains("serving"), "{log}");

    let names: Vec<_> = quick.rows(&["volume", "list"]).iter().map(|row| row["name"].clone()).collect();
    assert_eq!(names, ["root.afs", "root.cell", "user.ann"]);
    let within = cellar(&["volume", "list"]).current_dir(quick.place.path().join("cell")).output().unwrap();
    assert!(within.status.success(), "{}", String::from_utf8_lossy(&within.stderr));

    // A named configuration takes precedence.
    let elsewhere = quick.output(&["volume", "list", "--config", "absent.toml"]);
    assert!(failure(&elsewhere).contains("absent.toml"));
    let mut command = cellar(&["volume", "list"]);
    let by_variable = command.current_dir(&quick.place).env("CELLAR_CONFIG", "other.toml").output().unwrap();
    assert!(failure(&by_variable).contains("other.toml"));

    let again = quick.output(&["quickstart", "--address", &address]);
    assert!(failure(&again).contains(&format!("already runs, in process {};", quick.child.id())));

    let pid = quick.child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    assert!(quick.child.wait().unwrap().success());
    assert!(!quick.output(&["volume", "list"]).status.success(), "the cell has ended");
}

#[test]
fn a_port_in_use_is_reported_with_its_process() {
    let quick = Quick::start(&[]);
    let (pid, address) = (quick.child.id(), quick.address);
    let place = tempfile::tempdir().unwrap();
    std::fs::create_dir(place.path().join("vicepa")).unwrap();
    let cell = quick.place.path().join("cell");
    std::fs::copy(cell.join("KeyFileExt"), place.path().join("KeyFileExt")).unwrap();
    let text = std::fs::read_to_string(cell.join("cellar.toml")).unwrap();
    let config = place.path().join("cellar.toml");
    for (text, taken) in
        [(&*text, format!("{address}:9798")), (text.split_once("[web]").unwrap().0, format!("{address}:70"))]
    {
        std::fs::write(&config, text).unwrap();
        let output = cellar(&["serve", "--config"]).arg(&config).output().unwrap();
        let error = failure(&output);
        assert!(error.contains(&taken) && error.contains("cellar quickstart --user ann"), "{error}");
        assert!(error.contains(&format!("is in use by process {pid} (`")), "{error}");
    }
}

#[test]
fn the_log_is_shown_if_asked_for() {
    let quick = Quick::start(&["--verbose"]);
    assert!(quick.errors().contains("serving"), "{}", quick.errors());
}

#[test]
fn only_loopback_is_accepted() {
    let output = cellar(&["quickstart", "--address", "192.0.2.1"]).output().unwrap();
    assert!(failure(&output).contains("not a loopback address"));
}

#[test]
fn the_demonstration_has_files_calls_and_slow_calls() {
    let mut quick = Quick::start(&["--demo"]);
    let volumes = quick.rows(&["volume", "list"]);
    let of = |name: &str| volumes.iter().find(|row| row["name"] == name).unwrap().clone();
    assert!(of("software")["files"].as_i64().unwrap() > 70, "{volumes:#?}");
    assert_eq!(of("home.ann")["quota_kib"], 200 << 10);
    quick.run(&["user", "examine", "cleo"]);
    let text = quick.place.path().join("copy");
    quick.run(&["cp", "cell:root.cell/software/doc/doc-03.txt", text.to_str().unwrap()]);
    let mut copied = String::new();
    std::fs::File::open(text).unwrap().read_to_string(&mut copied).unwrap();
    assert!(copied.len() >= 40_000, "{}", copied.len());
    soon("calls of the load", || {
        let calls = quick.rows(&["stat", "calls"]);
        let stored = calls.iter().find(|row| row["procedure"] == "StoreData64")?;
        (stored["calls"].as_u64()? > 300).then_some(())
    });
    assert!(!quick.rows(&["stat", "clients"]).is_empty());
    assert!(quick.welcome().contains("those of the demonstration"), "{}", quick.welcome());
    let pid = quick.child.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    assert!(quick.child.wait().unwrap().success());
    assert_eq!(quick.errors(), "");
}
