//! Walks over a tree of files, as by `find -ls`: by the owner of its volume and by another node.

use super::ClusterOptions;
use crate::report::{spread, table};
use crate::statistics::{Spread, short};
use crate::store::forget;
use anyhow::{Context, Result, anyhow};
use interop::cluster::{BUCKET, COPIES, Cluster};
use interop::seaweed::{Requests, Seaweed};

/// What is measured, in this order.
const WALKS: [&str; 7] = [
    "first walk, at the owner; all nodes started with nothing in memory or on their disks",
    "then the first walk of a second node",
    "then the walk of that node again",
    "then the owner again",
    "both at once, after another such start: the owner",
    "both at once: the second node",
    "first walk by a node that is not the owner, after another such start",
];

/// Seconds and requests of one walk.
#[derive(Clone, Copy)]
struct Walk {
    seconds: f64,
    requests: Requests,
}

/// Creates trees, walks over them, and returns the table.
pub(super) fn measure(nodes: &mut Cluster, options: &ClusterOptions) -> Result<String> {
    let mut walks: [Vec<Walk>; WALKS.len()] = [const { Vec::new() }; WALKS.len()];
    let mut creations = Vec::new();
    for round in 0..options.rounds {
        eprintln!("bench: round {}, {} files", round + 1, options.files);
        let volume = format!("tree{round}");
        nodes.create_volume(&volume)?;
        creations.push(tree(nodes, owner(nodes)?, &volume, options.files, Some(options.makers))?);
        let found = round_of(nodes, &volume, options.files).with_context(|| nodes.logs())?;
        walks.iter_mut().zip(found).for_each(|(walks, walk)| walks.push(walk));
        nodes.remove_volume(&volume)?;
    }
    let mut rendered =
        table(&["walk", "s", "us per file", "requests to the bucket per 1,000 files", "kB read"], 1);
    for (name, walks) in WALKS.iter().zip(&walks) {
        let of = |figure: &dyn Fn(&Walk) -> f64| Spread::of(walks.iter().map(figure)).unwrap_or_default();
        let files = f64::from(options.files);
        rendered.add_row([
            (*name).to_owned(),
            spread(of(&|walk| walk.seconds)),
            short(of(&|walk| walk.seconds * 1e6 / files).median),
            short(of(&|walk| walk.requests.all() * 1e3 / files).median),
            short(of(&|walk| walk.requests.sent_bytes / files).median),
        ]);
    }
    let created = Spread::of(creations).map_or_else(|| "-".into(), spread);
    Ok(format!(
        "{} files of 1 KiB, 1,000 in a directory, which {} clients of the owner created in {created} s:\n\n{rendered}",
        options.files, options.makers
    ))
}

fn round_of(nodes: &mut Cluster, volume: &str, files: u32) -> Result<[Walk; WALKS.len()]> {
    start_cold(nodes)?;
    let (first, second) = two(nodes)?;
    let walk = |nodes: &Cluster, node| -> Result<Walk> {
        let before = requests(nodes)?;
        let seconds = tree(nodes, node, volume, files, None)?;
        Ok(Walk { seconds, requests: requests(nodes)?.since(&before) })
    };
    let [cold, other, again, warm] = [first, second, second, first].map(|node| walk(nodes, node));
    start_cold(nodes)?;
    let (first, second) = two(nodes)?;
    let at_once = std::thread::scope(|scope| -> Result<_> {
        let nodes = &*nodes;
        let theirs = scope.spawn(|| walk(nodes, second));
        let own = walk(nodes, first);
        Ok([own?, theirs.join().map_err(|_| anyhow!("a thread panicked"))??])
    })?;
    start_cold(nodes)?;
    let (_, second) = two(nodes)?;
    let [own, theirs] = at_once;
    Ok([cold?, other?, again?, warm?, own, theirs, walk(nodes, second)?])
}

/// Returns the owner of the volumes and another node.
pub(super) fn two(nodes: &Cluster) -> Result<(usize, usize)> {
    let owner = owner(nodes)?;
    Ok((owner, (owner + 1) % nodes.nodes.len()))
}

fn owner(nodes: &Cluster) -> Result<usize> {
    nodes.wait()?;
    nodes.present_owner("b")
}

pub(super) fn requests(nodes: &Cluster) -> Result<Requests> {
    Seaweed::of(&nodes.host).requests(BUCKET)
}

/// Ends all nodes in order and starts them without copies of the bucket's data. The server of buckets goes on, without
/// the page cache of its files. Waits until the volumes are served.
pub(super) fn start_cold(nodes: &mut Cluster) -> Result<()> {
    for node in &mut nodes.nodes {
        node.end_cellar("TERM")?;
    }
    for node in &mut nodes.nodes {
        let copies = node.path().join(COPIES);
        if copies.exists() {
            std::fs::remove_dir_all(copies)?;
        }
    }
    rustix::fs::sync();
    forget(&Seaweed::of(&nodes.host).folder())?;
    for node in &mut nodes.nodes {
        node.start_cellar_alone()?;
    }
    nodes.wait()
}

/// Creates a tree through a node, by this number of clients, or lists it; returns the seconds that took.
fn tree(nodes: &Cluster, node: usize, volume: &str, files: u32, makers: Option<u32>) -> Result<f64> {
    let command = format!(
        "{} tree --address {} --locations {} --volume {volume} --files {files} {}",
        std::env::current_exe()?.display(),
        nodes.nodes[node].address,
        nodes.host.address,
        makers.map_or_else(|| "--list".to_owned(), |makers| format!("--makers {makers}"))
    );
    // Not `run`, whose limit is too short for creating 393,604 files.
    let printed = nodes.host.shell(&command)?.ok()?;
    printed.trim().parse().with_context(|| printed)
}
