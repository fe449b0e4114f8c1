//! The cell's databases in the bucket of a cluster: every node answers, and one has them open. Here the bucket is a folder.

use crate::support::place::{Place, addresses};
use crate::support::process::Process;
use crate::support::soon;
use afs_idl::{ClientConnection, pr, vl};
use base::AbortCode;
use cell_client::network::AfsNetwork;
use cell_client::{CellClient, Interface};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tempfile::TempDir;

const NODES: usize = 3;

/// Longest time without databases after the death of the node that had them open, on a busy machine.
const TAKEOVER: Duration = Duration::from_secs(30);

struct Cluster {
    nodes: Vec<Process>,
    /// A client of each node alone.
    clients: Vec<CellClient>,
    // Removed after the processes have ended.
    folder: TempDir,
}

fn name(index: usize) -> String {
    format!("n{index}")
}

/// Returns the place of a node that has all roles.
fn place(folder: &Path, index: usize, address: std::net::Ipv4Addr) -> Place {
    let lines = format!(
        "[cluster]\nbucket = \"file://{}/bucket\"\npartitions = [\"b\"]\nnode = \"{}\"\naddress = \"{address}\"\n\
         databases = true\n",
        folder.display(),
        name(index)
    );
    Place::node(&folder.join(name(index)), address, address, &lines)
}

impl Cluster {
    fn start() -> Cluster {
        let folder = tempfile::tempdir().unwrap();
        for part in ["b", "databases"] {
            std::fs::create_dir_all(folder.path().join("bucket").join(part)).unwrap();
        }
        let nodes = (0..NODES).zip(addresses());
        let nodes = nodes.map(|(index, address)| Process::start(place(folder.path(), index, address)));
        let nodes: Vec<Process> = nodes.collect();
        let clients = nodes.iter().map(|node| node.client()).collect();
        Cluster { nodes, clients, folder }
    }

    /// Returns the index of the node that has the databases open, as `at` sees it.
    fn owner(&self, at: usize, not: Option<usize>) -> usize {
        soon("the databases have an owner", || {
            let shown = self.nodes[at].json(&["cluster", "status"]);
            let rows = shown["partitions"].as_array()?;
            let row = rows.iter().find(|row| row["partition"] == "databases" && row["state"] == "owned")?;
            (0..NODES).find(|index| Some(*index) != not && row["owner"] == *name(*index))
        })
    }

    fn connection(&self, node: usize, interface: Interface) -> Arc<dyn ClientConnection> {
        self.clients[node].connection(self.nodes[node].address, interface)
    }

    /// Creates a user through a node; returns the id.
    fn create_user(&self, node: usize, user: &str) -> Result<i32, AbortCode> {
        let request = pr::NewEntryRequest { name: user.into(), flag: 0, owner: 0 };
        pr::new_entry(&*self.connection(node, Interface::Protection), &request).map(|reply| reply.id)
    }

    /// Returns the id of a user, as a node answers.
    fn id(&self, node: usize, user: &str) -> Result<i32, AbortCode> {
        let request = pr::NameToIDRequest { names: vec![user.into()] };
        let reply = pr::name_to_id(&*self.connection(node, Interface::Protection), &request)?;
        Ok(reply.ids[0])
    }

    /// Reserves a volume id through a node.
    fn new_volume(&self, node: usize) -> Result<u32, AbortCode> {
        let request = vl::GetNewVolumeIdRequest { bump_count: 1 };
        let connection = self.connection(node, Interface::Locations);
        vl::get_new_volume_id(&*connection, &request).map(|reply| reply.new_volume_id)
    }

    /// Checks that nodes have these users with these ids.
    fn check(&self, nodes: &[usize], users: &[(String, i32)]) {
        for node in nodes {
            for (user, id) in users {
                assert_eq!(self.id(*node, user), Ok(*id), "{user} at {}", name(*node));
            }
        }
    }
}

#[test]
fn the_databases_survive_every_node() {
    let mut all = Cluster::start();
    let every: Vec<usize> = (0..NODES).collect();
    let first = all.owner(0, None);
    let (mut users, mut volumes) = (Vec::new(), BTreeSet::new());
    for node in &every {
        let user = format!("user{node}");
        users.push((user.clone(), all.create_user(*node, &user).unwrap()));
        assert_eq!(all.create_user((*node + 1) % NODES, &user), Err(AbortCode::PREXIST));
        assert!(volumes.insert(all.new_volume(*node).unwrap()));
    }
    all.check(&every, &users);
    // Anonymous callers stay anonymous on their way.
    for node in &all.nodes {
        let network = AfsNetwork::start(None).unwrap();
        let stranger = CellClient::new(Arc::new(network), vec![node.address]).unwrap();
        let request = vl::GetNewVolumeIdRequest { bump_count: 1 };
        let refused =
            vl::get_new_volume_id(&*stranger.connection(node.address, Interface::Locations), &request);
        assert_eq!(refused.map(drop), Err(AbortCode::VL_PERM));
    }

    // They move by command, while a client goes on, and leave a node with its partitions.
    let second = (first + 1) % NODES;
    std::thread::scope(|scope| {
        let change = scope.spawn(|| soon("a change is made", || all.create_user(first, "meanwhile").ok()));
        all.nodes[first].run(&["cluster", "move", "databases", &name(second)]);
        users.push(("meanwhile".into(), change.join().unwrap()));
    });
    assert_eq!(all.owner(0, Some(first)), second);
    all.check(&every, &users);
    all.nodes[first].run(&["cluster", "drain", &name(second)]);
    let owner = all.owner(0, Some(second));
    assert_ne!(owner, second);
    users.push(("drained".into(), all.create_user(second, "drained").unwrap()));
    all.check(&every, &users);

    // The node that has them open dies. The others go on, and have everything.
    let rest: Vec<usize> = every.iter().copied().filter(|node| *node != owner).collect();
    let begun = Instant::now();
    all.nodes[owner].kill();
    let made = soon("a change is made", || all.create_user(rest[0], "survivor").ok());
    let waited = begun.elapsed();
    println!("a change was made {waited:?} after the owner was killed");
    assert!(waited < TAKEOVER, "{waited:?}");
    users.push(("survivor".into(), made));
    all.check(&rest, &users);
    for node in &rest {
        assert!(volumes.insert(all.new_volume(*node).unwrap()), "volume ids do not repeat");
    }
    let next = all.owner(rest[0], Some(owner));
    assert_ne!(next, owner);

    // It comes back, and answers from the same databases.
    all.nodes[owner].restart();
    all.check(&every, &users);
    users.push(("back".into(), all.create_user(owner, "back").unwrap()));

    // All of them are restarted.
    for node in &mut all.nodes {
        node.kill();
    }
    for node in &mut all.nodes {
        node.restart();
    }
    all.owner(0, None);
    all.check(&every, &users);
    let ids: BTreeSet<i32> = users.iter().map(|(_, id)| *id).collect();
    assert_eq!(ids.len(), users.len(), "{users:?}");
    assert!(volumes.insert(all.new_volume(0).unwrap()));
    assert!(!all.folder.path().join("n0/state/db").exists(), "there are none on a local disk");
}

/// Returns the id of the user ann; creates her first if `is_new`.
fn ann(server: &Process, is_new: bool) -> Result<i32, AbortCode> {
    let client = server.client();
    let connection = client.connection(server.address, Interface::Protection);
    if is_new {
        let request = pr::NewEntryRequest { name: "ann".into(), flag: 0, owner: 0 };
        return pr::new_entry(&*connection, &request).map(|reply| reply.id);
    }
    let request = pr::NameToIDRequest { names: vec!["ann".into()] };
    pr::name_to_id(&*connection, &request).map(|reply| reply.ids[0])
}

#[test]
fn existing_databases_are_moved_into_the_bucket() {
    let bucket = tempfile::tempdir().unwrap();
    let at = format!("file://{}", bucket.path().display());
    let mut server = Process::start(Place::new(""));
    let id = ann(&server, true).unwrap();
    server.volume("data");
    std::fs::rename(server.path("vicepa"), server.path("unused")).unwrap();
    let init = ["cluster", "init", &at, "--partitions", "b", "--node", "n0", "--databases"];
    let refused = server.output(&init);
    let why = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && why.contains("stop the server"), "{why}");

    server.kill();
    let said = server.run(&init);
    assert!(said.contains("records were copied"), "{said}");
    server.restart();
    let found = soon("the databases are open", || ann(&server, false).ok());
    assert_eq!(found, id);
    assert_eq!(server.client().is_registered("data"), Ok(true));
    let shown = server.json(&["cluster", "status"]);
    assert_eq!(shown["partitions"][1]["partition"], "databases", "{shown:#}");
    assert_eq!(shown["partitions"][1]["owner"], "n0");
}

/// A cluster that was made without them gets them later.
#[test]
fn a_cluster_gets_the_databases_of_its_node() {
    let (bucket, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let at = format!("file://{}", bucket.path().display());
    let first = Place::new("");
    let unready = first.output(&["cluster", "share-databases"]);
    std::fs::remove_dir(first.path("vicepa")).unwrap();
    let refusal = |output: std::process::Output| {
        assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stdout));
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let unready = refusal(unready);
    assert!(unready.contains("no section `[cluster]`"), "{unready}");
    first.run(&["cluster", "init", &at, "--partitions", "b", "--node", "n0", "--local-databases"]);
    let database = first.address;
    let mut first = Process::start(first);
    let id = ann(&first, true).unwrap();
    let second = Place::member(&folder.path().join("n1"), "t.example", 7, addresses()[3], database);
    std::fs::remove_dir(second.path("vicepa")).unwrap();
    second.run(&["cluster", "join", &at, "--node", "n1"]);
    let early = refusal(second.output(&["cluster", "share-databases"]));
    assert!(early.contains("neither in the bucket nor on this server"), "{early}");
    let running = refusal(first.output(&["cluster", "share-databases"]));
    assert!(running.contains("stop the server"), "{running}");
    assert_eq!(ann(&first, false), Ok(id));

    first.kill();
    let said = first.run(&["cluster", "share-databases"]);
    assert!(said.contains("records were copied") && said.contains("on each other node"), "{said}");
    let again = refusal(first.output(&["cluster", "share-databases"]));
    assert!(again.contains("already"), "{again}");
    first.restart();
    assert_eq!(soon("the databases are open", || ann(&first, false).ok()), id);
    let said = second.run(&["cluster", "share-databases"]);
    assert!(said.contains("serves the cell's databases from the bucket"), "{said}");
    let second = Process::start(second);
    assert_eq!(soon("the second node answers", || ann(&second, false).ok()), id);

    // No machine has them alone any more.
    first.kill();
    assert_eq!(soon("the second node has them", || ann(&second, false).ok()), id);
    let shown = second.json(&["cluster", "status"]);
    assert_eq!(shown["partitions"][1]["owner"], "n1", "{shown:#}");
}
