//! Gives a cell a new key while its servers run, as `asetkey add` and `asetkey delete` do, with real
//! processes.

use crate::support::place::{self, Place, addresses, cellar, printed};
use crate::support::process::Process;
use crate::support::soon;
use afs_format::keyfile::write_extended;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Longer than the interval at which servers check their key files.
const A_WHILE: Duration = Duration::from_secs(7);

fn key(kvno: u8) -> afs_format::keyfile::TypedKey {
    place::key(kvno.into(), kvno)
}

struct World {
    first: Process,
    second: Process,
    // Removed after the servers have ended.
    _folder: tempfile::TempDir,
}

impl World {
    fn start() -> World {
        let folder = tempfile::tempdir().unwrap();
        let [a, b, ..] = addresses();
        let start = |name: &str, address| {
            Process::start(Place::member(&folder.path().join(name), "a.example", 1, address, a))
        };
        let (first, second) = (start("a", a), start("b", b));
        World { first, second, _folder: folder }
    }

    /// Writes the key files of both servers.
    fn give(&self, contents: &[u8]) {
        for server in [&self.first, &self.second] {
            cellar_config::files::replace(&server.path("KeyFileExt"), contents).unwrap();
        }
    }

    /// Returns the configuration of an administrator with this key, independent of the servers' keys.
    fn administrator(&self, kvno: u8) -> PathBuf {
        let name = format!("Key{kvno}");
        cellar_config::files::replace(&self.first.path(&name), &write_extended(&[key(kvno)])).unwrap();
        let text = std::fs::read_to_string(&self.first.config).unwrap().replace("KeyFileExt", &name);
        let path = self.first.path(&format!("{name}.toml"));
        std::fs::write(&path, text).unwrap();
        path
    }

    fn is_known(&self, administrator: &Path) -> [Result<(), String>; 2] {
        [self.first.address, self.second.address].map(|server| asks(server, administrator))
    }
}

/// Makes a request that only administrators may make.
fn asks(server: Ipv4Addr, administrator: &Path) -> Result<(), String> {
    let (on, config) = (server.to_string(), administrator.to_str().unwrap());
    let output = cellar(&["stat", "volumes", "--on", &on, "--config", config]).output().unwrap();
    if output.status.success() { Ok(()) } else { Err(String::from_utf8(output.stderr).unwrap()) }
}

#[test]
fn a_new_key_takes_no_restart() {
    let mut world = World::start();
    let [old, new] = [1, 2].map(|kvno| world.administrator(kvno));
    let run = |arguments: &[&str]| {
        printed(cellar(arguments).arg("--config").arg(&new));
    };
    assert_eq!(world.is_known(&old), [Ok(()), Ok(())]);
    assert!(world.is_known(&new).iter().all(Result::is_err));

    // An unreadable file, as during a write, changes nothing.
    world.give(&[1, 2, 3]);
    std::thread::sleep(A_WHILE);
    assert_eq!(world.is_known(&old), [Ok(()), Ok(())]);

    world.give(&write_extended(&[key(1), key(2)]));
    soon("both know the new one", || (world.is_known(&new) == [Ok(()), Ok(())]).then_some(()));
    assert_eq!(world.is_known(&old), [Ok(()), Ok(())], "both are good now");

    world.give(&write_extended(&[key(2)]));
    let is_refused = || world.is_known(&old).into_iter().map(Result::err).collect::<Option<Vec<_>>>();
    for refused in soon("both refuse the old one", is_refused) {
        assert!(refused.contains("19270408") || refused.contains("unknown key"), "{refused}");
    }
    // The servers use the new key with each other; after the restart no older connection is left.
    world.first.kill();
    world.first.restart();
    let [first, second] = [&world.first, &world.second].map(|server| server.address.to_string());
    run(&["volume", "create", "v", "--quota", "0", "--acl", "system:anyuser=rl", "--on", &second]);
    // For an anonymous caller, the second server asks the first one's protection server.
    run(&["du", "cell:v", "--noauth"]);
    run(&["volume", "move", "v", "--to", &first]);
    run(&["du", "cell:v", "--noauth"]);
}
