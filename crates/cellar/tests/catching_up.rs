//! A release while a server with one of the sites is down, with real processes: the other site has the new version at once,
//! and the one that was down gets it by itself when it is back.

#[path = "support/processes.rs"]
mod processes;

use afs_idl::vl;
use cellar::client::{CellClient, Interface};
use cellar::config;
use cellar::network::{AfsNetwork, local_authentication};
use processes::{PATIENCE, Server, addresses, cellar, run};
use serde_json::Value;
use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::Arc;
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

    /// Lets the volume have read-only sites on these servers and no others, as `vos addsite` and `vos remsite` do.
    fn set_sites(&self, sites: &[Ipv4Addr]) {
        let settings = config::file::load(Path::new(self.config())).unwrap();
        let security = local_authentication(&settings.keys).unwrap();
        let network = Arc::new(AfsNetwork::start(Some(security)).unwrap());
        let cell = CellClient::new(network, vec![self.first.address]).unwrap();
        let request = vl::GetEntryByNameNRequest { volume_name: VOLUME.into() };
        let found =
            cell.database(Interface::Locations, |way| vl::get_entry_by_name_n(way, &request)).unwrap();
        let mut entry = found.entry;
        for (at, site) in (1..).zip(sites) {
            entry.server_number[at] = (*site).into();
            entry.server_partition[at] = 0;
            entry.server_flags[at] = vl::site_flags::READ_ONLY;
        }
        entry.server_count = 1 + sites.len() as i32;
        let volume_id = entry.volume_id[0];
        let request =
            vl::ReplaceEntryNRequest { volume_id, volume_type: 0, new_entry: entry, release_type: 0 };
        cell.database(Interface::Locations, |way| vl::replace_entry_n(way, &request)).unwrap();
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
