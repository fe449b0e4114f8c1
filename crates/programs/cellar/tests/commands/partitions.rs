//! Partitions are added to a cluster and removed from it while its nodes run. Here the bucket is a folder.

use crate::nodes::{Cluster, NODES, exchange};
use crate::support::process::Process;
use crate::support::{noise, soon};
use afs_idl::vol;
use base::PartitionId;
use cell_client::Interface;
use cellar_server::buckets::connect;
use cluster::ClusterRecord;
use load::files::Fid;
use serde_json::{Value, json};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

/// How long a command may take that changes the partitions, on a busy machine.
const CHANGED_WITHIN: Duration = Duration::from_secs(60);

/// Starts a cluster with the record that `cellar cluster init` would write.
fn start(partitions: &[&str]) -> Cluster {
    let all = Cluster::start(partitions);
    let settings = all.nodes[0].settings();
    let cluster = settings.cluster.clone().unwrap();
    let ids = settings.partitions.iter().map(|partition| partition.id).collect();
    let record = ClusterRecord::new(settings.cell.clone(), ids).unwrap();
    let created = cluster::create_cluster(&*connect(&cluster.bucket).unwrap(), cluster.folder(), &record);
    assert_eq!(created.unwrap(), record);
    all
}

/// Returns the reason for which a command fails.
fn refusal(node: &Process, arguments: &[&str]) -> String {
    let output = node.output(arguments);
    assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stdout));
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Returns the letters of the partitions that a node has.
fn listed(node: &Process) -> String {
    let connection = node.client().connection(node.address, Interface::Volumes);
    let reply = vol::x_list_partitions(&*connection, &vol::XListPartitionsRequest).unwrap();
    let letters = |index: &i32| PartitionId::from_index(index.cast_unsigned()).unwrap().letters();
    reply.partitions.iter().map(letters).collect::<Vec<_>>().join(",")
}

/// Returns the letters of the partitions in a node's configuration.
fn configured(node: &Process) -> String {
    let settings = node.settings();
    settings.partitions.iter().map(|partition| partition.id.letters()).collect::<Vec<_>>().join(",")
}

fn partitions(node: &Process) -> Vec<(String, String)> {
    let text = |row: &Value, key: &str| row[key].as_str().unwrap().to_owned();
    let rows = node.rows(&["cluster", "partitions"]);
    rows.iter().map(|row| (text(row, "partition"), text(row, "state"))).collect()
}

/// Stores a file again and again until `ending` is set; returns how often, and the longest time that took.
fn write(all: &Cluster, root: Fid, ending: &AtomicBool) -> (usize, Duration) {
    let (client, data) = (all.client(), noise(100_000));
    let fid = client.to[0].create(root, "written").unwrap();
    let (mut count, mut longest) = (0, Duration::ZERO);
    while !ending.load(Relaxed) {
        let begun = Instant::now();
        client.to[count % NODES].store(fid, &data).unwrap();
        client.to[(count + 1) % NODES].fetch_and_compare(fid, &data, 1 << 20).unwrap();
        longest = longest.max(begun.elapsed());
        count += 1;
    }
    (count, longest)
}

#[test]
fn nodes_follow_added_and_removed_partitions() {
    let mut all = start(&["b"]);
    let root = all.volume_through(0, "data", "b");
    let add = ["cluster", "partitions", "add", "d"];
    let remove = ["cluster", "partitions", "remove", "d"];
    let last = refusal(&all.nodes[0], &["cluster", "partitions", "remove", "b"]);
    assert!(last.contains("at least one partition"), "{last}");
    let absent = refusal(&all.nodes[0], &remove);
    assert!(absent.contains("no partition /vicepd; it has b"), "{absent}");

    // A client notices nothing while a partition is added, and a node that did not run the command creates a volume there.
    let ending = AtomicBool::new(false);
    let written = thread::scope(|scope| {
        let writing = scope.spawn(|| write(&all, root, &ending));
        let begun = Instant::now();
        let said = all.nodes[0].run(&add);
        assert!(said.contains("the cluster has d now") && said.contains("lists b, d"), "{said}");
        println!("added after {:?}", begun.elapsed());
        assert!(begun.elapsed() < CHANGED_WITHIN);
        assert!(all.nodes.iter().all(|node| listed(node) == "b,d"));
        let more = all.volume_through(1, "more", "d");
        println!("used after {:?}", begun.elapsed());
        exchange(&all.client(), &[2, 0, 1], more, "f");
        ending.store(true, Relaxed);
        writing.join().unwrap()
    });
    println!("a file was stored {} times, in {:?} at most", written.0, written.1);
    assert!(written.0 > 5 && written.1 < Duration::from_secs(10), "{written:?}");
    let served = |letters: &str| (format!("/vicep{letters}"), "served".to_owned());
    assert_eq!(partitions(&all.nodes[2]), [served("b"), served("d")]);
    let status = all.nodes[2].json(&["cluster", "status"]);
    assert_eq!(
        (&status["partitions"][1]["partition"], &status["partitions"][1]["state"]),
        (&json!("/vicepd"), &json!("owned"))
    );

    // Each node's configuration has its own list.
    let known = refusal(&all.nodes[0], &add);
    assert!(known.contains("has /vicepd already"), "{known}");
    assert_eq!((configured(&all.nodes[0]), configured(&all.nodes[1])), ("b,d".into(), "b".into()));
    let said = all.nodes[1].run(&add);
    assert!(said.contains("the cluster has d already") && configured(&all.nodes[1]) == "b,d", "{said}");

    // It is removed once it is empty, although a node is down, and that one does not have it when it comes back.
    let used = refusal(&all.nodes[0], &remove);
    assert!(used.contains("/vicepd cannot be removed: 1 volumes are on it"), "{used}");
    assert_eq!(partitions(&all.nodes[2]), [served("b"), served("d")]);
    all.databases.run(&["volume", "remove", "more"]);
    all.nodes[1].kill();
    let begun = Instant::now();
    let said = all.nodes[0].run(&remove);
    assert!(said.contains("does not have d any more") && configured(&all.nodes[0]) == "b", "{said}");
    println!("removed after {:?}", begun.elapsed());
    for node in [0, 2] {
        soon("it is not listed any more", || (listed(&all.nodes[node]) == "b").then_some(()));
    }
    all.nodes[1].restart();
    assert_eq!((listed(&all.nodes[1]), configured(&all.nodes[1])), ("b".into(), "b,d".into()));
    let log = all.nodes[1].log();
    assert!(log.contains("`cluster.partitions` of the configuration is outdated"), "{log}");
    let said = all.nodes[1].run(&remove);
    assert!(said.contains("does not have d any more") && configured(&all.nodes[1]) == "b", "{said}");
    let on = all.nodes[1].address.to_string();
    let create = ["volume", "create", "late", "--on", &on, "--partition", "d"];
    assert_eq!(all.databases.output(&create).status.code(), Some(1));

    // What is left there is taken only if that is wanted.
    let left = refusal(&all.nodes[2], &add);
    assert!(left.contains("there is data in the folder d") && left.contains("--adopt"), "{left}");
    all.nodes[2].run(&[&add[..], &["--adopt"]].concat());
    let again = all.volume_through(1, "again", "d");
    exchange(&all.client(), &[0, 1, 2], again, "f");

    // A folder that was deleted is created anew.
    all.databases.run(&["volume", "remove", "again"]);
    all.nodes[2].run(&remove);
    let place = all.nodes[0].settings().cluster.clone().unwrap().bucket.address;
    std::fs::remove_dir_all(place.folder().unwrap().join("d")).unwrap();
    all.nodes[2].run(&add);
    let new = all.volume_through(0, "new", "d");
    exchange(&all.client(), &[1, 2, 0], new, "f");
    exchange(&all.client(), &[1, 2, 0], root, "last");
    println!(
        "the owner of /vicepd is {}",
        all.nodes[0].json(&["cluster", "status"])["partitions"][1]["owner"]
    );
}
