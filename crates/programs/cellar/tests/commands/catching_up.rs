//! A release while a server with one of the sites is down, with real processes: the other site has the new
//! version immediately, and the one that was down receives it automatically when it is back.

use crate::support::locations::Locations;
use crate::support::place::{Place, addresses};
use crate::support::process::Process;
use crate::support::soon;
use serde_json::Value;
use std::net::Ipv4Addr;

const VOLUME: &str = "software";

struct World {
    first: Process,
    second: Process,
    // Removed after the servers have ended.
    folder: tempfile::TempDir,
}

impl World {
    fn start() -> World {
        let folder = tempfile::tempdir().unwrap();
        let [a, b, ..] = addresses();
        let start = |name: &str, address| {
            Process::start(Place::member(&folder.path().join(name), "a.example", 1, address, a))
        };
        let (first, second) = (start("a", a), start("b", b));
        World { first, second, folder }
    }

    fn volume(&self, arguments: &[&str]) {
        self.first.run(&[&["volume"], arguments].concat());
    }

    fn set_sites(&self, sites: &[Ipv4Addr]) {
        Locations::of(&self.first).set_sites(VOLUME, sites);
    }

    fn write(&self, text: &str) {
        let local = self.folder.path().join("text");
        std::fs::write(&local, text).unwrap();
        self.first.run(&["cp", local.to_str().unwrap(), &format!("cell:{VOLUME}/text")]);
    }

    /// Reads the contents of the read-only volume.
    fn read(&self) -> String {
        let local = self.folder.path().join("read");
        let from = format!("cell:{VOLUME}.readonly/text");
        self.first.run(&["cp", &from, local.to_str().unwrap()]);
        std::fs::read_to_string(local).unwrap()
    }

    fn jobs(&self) -> Vec<Value> {
        self.first.rows(&["volume", "jobs"])
    }
}

#[test]
fn a_site_that_was_down_gets_the_release_by_itself() {
    let mut world = World::start();
    world.volume(&["create", VOLUME, "--quota", "0", "--acl", "system:anyuser=rl"]);
    world.set_sites(&[world.first.address, world.second.address]);
    world.write("one");
    world.volume(&["release", VOLUME]);

    world.second.kill();
    world.write("two");
    let released = world.first.output(&["volume", "release", VOLUME]);
    let reported = String::from_utf8_lossy(&released.stderr);
    assert!(!released.status.success() && reported.contains("did not reach all sites"), "{reported}");
    assert_eq!(world.read(), "two", "what clients are sent to has it");
    assert_eq!(world.jobs().last().unwrap()["stage"], "catching_up");

    world.second.restart();
    soon("all jobs are done", || world.jobs().iter().all(|job| job["stage"] == "done").then_some(()));
    world.set_sites(&[world.second.address]);
    assert_eq!(world.read(), "two");
}
