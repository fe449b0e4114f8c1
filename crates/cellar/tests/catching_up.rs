//! A release while a server with one of the sites is down, with real processes: the other site has the new version at once,
//! and the one that was down gets it by itself when it is back.

#[path = "support/locations.rs"]
mod locations;
#[path = "support/processes.rs"]
mod processes;

use locations::Locations;
use processes::{PATIENCE, Server, addresses, cellar, run};
use serde_json::Value;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

const VOLUME: &str = "software";

struct World {
    first: Server,
    second: Server,
    // Goes when they have ended.
    folder: tempfile::TempDir,
}

impl World {
    fn start() -> World {
        let folder = tempfile::tempdir().unwrap();
        let [a, b, ..] = addresses();
        let start =
            |name: &str, address| Server::start(&folder.path().join(name), "a.example", 1, address, a);
        let (first, second) = (start("a", a), start("b", b));
        World { first, second, folder }
    }

    fn config(&self) -> &str {
        self.first.config.to_str().unwrap()
    }

    fn volume(&self, arguments: &[&str]) -> String {
        run(&[&["volume", "--config", self.config()], arguments].concat())
    }

    fn set_sites(&self, sites: &[Ipv4Addr]) {
        Locations::of(&self.first.config, self.first.address).set_sites(VOLUME, sites);
    }

    fn write(&self, text: &str) {
        let local = self.folder.path().join("text");
        std::fs::write(&local, text).unwrap();
        run(&["cp", "--config", self.config(), local.to_str().unwrap(), &format!("cell:{VOLUME}/text")]);
    }

    /// What the read-only volume holds.
    fn read(&self) -> String {
        let local = self.folder.path().join("read");
        let from = format!("cell:{VOLUME}.readonly/text");
        run(&["cp", "--config", self.config(), &from, local.to_str().unwrap()]);
        std::fs::read_to_string(local).unwrap()
    }

    fn jobs(&self) -> Vec<Value> {
        serde_json::from_str(&self.volume(&["jobs", "--json"])).unwrap()
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
    let released = cellar(&["volume", "release", VOLUME, "--config", world.config()]).output().unwrap();
    let told = String::from_utf8_lossy(&released.stderr);
    assert!(!released.status.success() && told.contains("did not reach all sites"), "{told}");
    assert_eq!(world.read(), "two", "what clients are sent to has it");
    assert_eq!(world.jobs().last().unwrap()["stage"], "catching_up");

    world.second.restart();
    let until = Instant::now() + PATIENCE;
    while world.jobs().iter().any(|job| job["stage"] != "done") {
        assert!(Instant::now() < until, "{:#?}", world.jobs());
        std::thread::sleep(Duration::from_millis(200));
    }
    world.set_sites(&[world.second.address]);
    assert_eq!(world.read(), "two");
}
