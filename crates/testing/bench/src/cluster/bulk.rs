//! A large file, written and read through the owner of its volume and through another node.

use super::ClusterOptions;
use super::walks::{requests, start_cold, two};
use crate::generator::noise;
use crate::report::{spread, table};
use crate::statistics::{Spread, short};
use anyhow::{Context, Result};
use interop::cluster::Cluster;
use interop::seaweed::Requests;
use load::files::{Fid, Files, volume_root};
use load::station::{FILE_SERVICE, Station};
use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

/// What is measured, in this order.
const PASSES: [&str; 5] = [
    "stored, through the owner",
    "stored, through another node",
    "fetched through that node; all nodes started with nothing in memory or on their disks",
    "then again",
    "fetched through the owner, after another such start",
];

/// Bytes of one fetch.
const FETCH_BYTES: u64 = 16 << 20;

/// Options of a client.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct BulkOptions {
    /// The node's address
    #[arg(long)]
    address: IpAddr,
    /// The location server's address
    #[arg(long)]
    locations: IpAddr,
    /// A volume that anyone may write to
    #[arg(long)]
    volume: String,
    /// Name of a new file, or of the one to fetch
    #[arg(long)]
    file: String,
    /// Size of the file in MiB
    #[arg(long)]
    mib: u32,
    /// Fetch the file instead of storing it
    #[arg(long)]
    fetch: bool,
}

/// Stores or fetches a file with one call at a time, and prints the duration in seconds.
pub(crate) fn bulk(options: &BulkOptions) -> Result<()> {
    let station = Station::start()?;
    let locations = station.connect(SocketAddr::new(options.locations, 7003), 52, None);
    let root: Fid = volume_root(&*locations, &options.volume)?;
    let files = Files::new(station.connect(SocketAddr::new(options.address, 7000), FILE_SERVICE, None));
    let data = noise(u64::from(options.mib) << 20);
    let fid =
        if options.fetch { files.find(root, &options.file)? } else { files.create(root, &options.file)? };
    let begun = Instant::now();
    if options.fetch {
        files.fetch_and_compare(fid, &data, FETCH_BYTES)?;
    } else {
        files.store(fid, &data)?;
    }
    println!("{}", begun.elapsed().as_secs_f64());
    Ok(())
}

/// Seconds and requests of one pass.
struct Pass {
    seconds: f64,
    requests: Requests,
}

/// Stores and fetches files, and returns the table.
pub(super) fn measure(nodes: &mut Cluster, options: &ClusterOptions) -> Result<String> {
    let mut passes: [Vec<Pass>; PASSES.len()] = [const { Vec::new() }; PASSES.len()];
    for round in 0..options.rounds {
        eprintln!("bench: round {}, files of {} MiB", round + 1, options.mib);
        let volume = format!("bulk{round}");
        nodes.create_volume(&volume)?;
        let found = round_of(nodes, &volume, options.mib).with_context(|| nodes.logs())?;
        passes.iter_mut().zip(found).for_each(|(passes, pass)| passes.push(pass));
        nodes.remove_volume(&volume)?;
    }
    let mut rendered = table(&["a file", "MiB/s", "requests to the bucket per GiB"], 1);
    for (name, passes) in PASSES.iter().zip(&passes) {
        let of = |figure: &dyn Fn(&Pass) -> f64| Spread::of(passes.iter().map(figure)).unwrap_or_default();
        let mib = f64::from(options.mib);
        rendered.add_row([
            (*name).to_owned(),
            spread(of(&|pass| mib / pass.seconds)),
            short(of(&|pass| pass.requests.all() * 1024.0 / mib).median),
        ]);
    }
    Ok(format!(
        "{} MiB that compression does not shrink, one client, one call at a time:\n\n{rendered}",
        options.mib
    ))
}

fn round_of(nodes: &mut Cluster, volume: &str, mib: u32) -> Result<[Pass; PASSES.len()]> {
    let pass = |nodes: &Cluster, node: usize, file: &str, more: &str| -> Result<Pass> {
        let before = requests(nodes)?;
        let command = format!(
            "{} bulk --address {} --locations {} --volume {volume} --file {file} --mib {mib} {more}",
            std::env::current_exe()?.display(),
            nodes.nodes[node].address,
            nodes.host.address,
        );
        let printed = nodes.host.shell(&command)?.ok()?;
        let seconds = printed.trim().parse().with_context(|| printed)?;
        Ok(Pass { seconds, requests: requests(nodes)?.since(&before) })
    };
    let (owner, other) = two(nodes)?;
    let stored = [(owner, "own"), (other, "other")].map(|(node, file)| pass(nodes, node, file, ""));
    start_cold(nodes)?;
    let (_, other) = two(nodes)?;
    let fetched = [(); 2].map(|()| pass(nodes, other, "other", "--fetch"));
    start_cold(nodes)?;
    let (owner, _) = two(nodes)?;
    let ([own, through], [cold, again]) = (stored, fetched);
    Ok([own?, through?, cold?, again?, pass(nodes, owner, "other", "--fetch")?])
}
