//! Compares the cost of the store with OpenAFS's: small operations with each durability policy, and a volume
//! with many files that is created, listed with status, cloned and removed.

use crate::disturbed;
use crate::machine::Machine;
use crate::order::Order;
use crate::report::{spread, table};
use crate::side::Side;
use crate::statistics::{Spread, ratio, short};
use crate::tree;
use anyhow::{Context, Result, bail};
use interop::cell::{Cell, Server};
use interop::means::Means;
use std::path::Path;

/// Options of the measurement.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct StoreOptions {
    /// How often to repeat each measurement on each server
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// How long each run of small operations takes, in seconds
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// How many files the volumes have
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(1..=2_000_000))]
    files: u32,
    /// Skip the small operations
    #[arg(long)]
    only_tree: bool,
    /// Skip the volumes with many files
    #[arg(long, conflicts_with = "only_tree")]
    only_operations: bool,
    /// Measure the volumes with many files on Cellar only: OpenAFS takes minutes to remove 100,000 files
    #[arg(long)]
    only_cellar: bool,
}

/// A server with one durability policy.
struct Variant {
    name: &'static str,
    cell: &'static str,
    address: &'static str,
    how: How,
}

enum How {
    /// OpenAFS, with arguments of the file server.
    OpenAfs(&'static str),
    /// Cellar, with a value of `[store] durability`.
    Cellar(&'static str),
}

/// Position of the sectors written in a disk's `stat`, and their size; see the kernel's Documentation/block/stat.rst.
const SECTORS_WRITTEN: usize = 6;
const SECTOR_BYTES: f64 = 512.0;

const VARIANTS: [Variant; 5] = [
    Variant {
        name: "OpenAFS, default (-sync onclose)",
        cell: "benchs0",
        address: "10.99.1.10",
        how: How::OpenAfs("-L"),
    },
    Variant {
        name: "OpenAFS, -sync always",
        cell: "benchs1",
        address: "10.99.1.11",
        how: How::OpenAfs("-L -sync always"),
    },
    Variant { name: "Cellar, always", cell: "benchs2", address: "10.99.1.12", how: How::Cellar("always") },
    Variant { name: "Cellar, close", cell: "benchs3", address: "10.99.1.13", how: How::Cellar("close") },
    Variant {
        name: "Cellar, interval:500",
        cell: "benchs4",
        address: "10.99.1.14",
        how: How::Cellar("interval:500"),
    },
];
/// Indices of the variants used for the tree.
const TREE_OPENAFS: usize = 0;
const TREE_CELLAR: usize = 2;
const OPERATIONS: [&str; 2] = ["files-1", "files-16"];

/// Measures and prints the tables.
pub(crate) fn run(options: &StoreOptions) -> Result<()> {
    if let Err(missing) = Means::Netns.check() {
        bail!("{missing}");
    }
    let _alone = crate::alone()?;
    println!("{}\n\n{} rounds, servers in turn", Machine::here(), options.rounds);
    if !options.only_tree {
        println!("\n{}", operations(options)?);
    }
    if !options.only_operations {
        println!("\n{}", trees(options)?);
    }
    Ok(())
}

fn start(variant: &Variant) -> Result<Side> {
    let Variant { name, cell, address, how } = variant;
    let side = match how {
        How::OpenAfs(arguments) => Cell::start_with(Server::OpenAfs, cell, address, &["-f", arguments])
            .map(|cell| (Server::OpenAfs, cell)),
        How::Cellar(durability) => {
            let lines = format!("[store]\ndurability = \"{durability}\"");
            Cell::start_configured(cell, address, &lines).map(|cell| (Server::Cellar, cell))
        }
    };
    side.and_then(|(server, cell)| Side::in_cell(server, cell)).with_context(|| (*name).to_owned())
}

/// Returns the table of rates for each policy.
fn operations(options: &StoreOptions) -> Result<String> {
    let mut sides = VARIANTS.iter().map(start).collect::<Result<Vec<_>>>()?;
    let mut shares = Vec::new();
    let mut rates = vec![[const { Vec::new() }; OPERATIONS.len()]; sides.len()];
    for round in 0..options.rounds as usize {
        for (at, workload) in OPERATIONS.iter().enumerate() {
            for turn in 0..sides.len() {
                let which = (turn + round) % sides.len();
                eprintln!("bench: round {}, {workload}, {}", round + 1, VARIANTS[which].name);
                let milliseconds = (options.seconds * 1e3) as u64;
                let outcome = sides[which].run(&Order::once(workload, milliseconds, 1 << 20))?;
                shares.push(outcome.stolen_share());
                rates[which][at].push(outcome.amount / outcome.seconds);
            }
        }
    }
    let mut table = table(&["create, store 4 KiB, remove: files/s", "1 thread", "16 threads"], 1);
    for (variant, rates) in VARIANTS.iter().zip(&rates) {
        let cell = |rates: &Vec<f64>| spread(Spread::of(rates.iter().copied()).unwrap_or_default());
        table.add_row([variant.name.to_owned(), cell(&rates[0]), cell(&rates[1])]);
    }
    Ok(disturbed::below(&table.to_string(), &shares))
}

/// The measurements of a tree, in the order of the table, and their units.
const TREE_ROWS: [(&str, &str); 7] = [
    ("create the files and store 1 KiB each (4 clients)", "files/s"),
    ("bytes written to the disk per byte stored", "ratio"),
    ("list the files with status, warm (1 client)", "s"),
    ("list the files with status, cold: server restarted, page cache dropped", "s"),
    ("clone the volume (vos backup)", "s"),
    ("remove the clone (vos remove)", "s"),
    ("remove the volume (vos remove)", "s"),
];

type TreeFigures = [f64; TREE_ROWS.len()];

fn trees(options: &StoreOptions) -> Result<String> {
    let openafs = if options.only_cellar { None } else { Some(start(&VARIANTS[TREE_OPENAFS])?) };
    let mut sides = [openafs, Some(start(&VARIANTS[TREE_CELLAR])?)];
    let servers = [Server::OpenAfs, Server::Cellar];
    let mut figures: [Vec<TreeFigures>; 2] = [const { Vec::new() }; 2];
    for round in 0..options.rounds as usize {
        for turn in 0..2 {
            let which = (turn + round) % 2;
            let (server, Some(side)) = (servers[which], &mut sides[which]) else { continue };
            eprintln!("bench: round {}, {} files, {server:?}", round + 1, options.files);
            let volume = format!("tree{round}");
            figures[which].push(measure_tree(server, side.cell(), &volume, options.files)?);
        }
    }
    let mut table = table(&["a volume of files", "unit", "OpenAFS", "Cellar, always", "Cellar / OpenAFS"], 2);
    for (at, (what, unit)) in TREE_ROWS.iter().enumerate() {
        let of = |which: usize| Spread::of(figures[which].iter().map(|figures| figures[at]));
        let cell = |which: usize| of(which).map_or_else(|| "-".into(), spread);
        let compared = of(1).zip(of(0)).and_then(|(cellar, openafs)| ratio(cellar.median, openafs.median));
        let compared = compared.map_or_else(|| "-".into(), short);
        table.add_row([(*what).to_owned(), (*unit).to_owned(), cell(0), cell(1), compared]);
    }
    Ok(format!("{} files, 1,000 in a directory\n\n{table}", options.files))
}

fn measure_tree(server: Server, cell: &mut Cell, volume: &str, files: u32) -> Result<TreeFigures> {
    cell.open_volume(server, volume)?;
    let before = written(cell)?;
    let make = tree_stage(cell, volume, files, false)?;
    sync(cell)?;
    let amplification = (written(cell)? - before) / tree::bytes(files);
    tree_stage(cell, volume, files, true)?;
    let warm = tree_stage(cell, volume, files, true)?;
    restart(server, cell)?;
    let cold = tree_stage(cell, volume, files, true)?;
    let clone = timed(cell, &format!("vos backup {volume} -localauth"))?;
    let remove_clone = timed(cell, &format!("vos remove -id {volume}.backup -localauth"))?;
    let remove = timed(cell, &format!("vos remove -id {volume} -localauth"))?;
    Ok([f64::from(files) / make, amplification, warm, cold, clone, remove_clone, remove])
}

/// Returns the seconds of creating or listing the files.
pub(crate) fn tree_stage(cell: &Cell, volume: &str, files: u32, is_list: bool) -> Result<f64> {
    let program = std::env::current_exe()?;
    let mut command =
        format!("{} tree --address {} --volume {volume} --files {files}", program.display(), cell.address);
    if is_list {
        command.push_str(" --list");
    }
    let printed = cell.run(&command)?.ok()?;
    printed.trim().parse().with_context(|| printed)
}

/// Returns the seconds of a command, without the time of starting it in the cell.
fn timed(cell: &Cell, command: &str) -> Result<f64> {
    let script = format!("T=$(date +%s%N); {command} >&2 || exit 1; echo took $(( $(date +%s%N) - T ))");
    let printed = cell.shell(&script)?.ok()?;
    let nanoseconds = printed.lines().find_map(|line| line.strip_prefix("took ")?.parse::<f64>().ok());
    Ok(nanoseconds.with_context(|| printed)? / 1e9)
}

/// Returns the bytes written so far to the disk that has the partition, by everything on the machine. The kernel's
/// figure for a process (`write_bytes`) is of no use: it counts a whole folio, of up to 2 MiB, for every write to it.
fn written(cell: &Cell) -> Result<f64> {
    let printed = cell.shell("cat /sys/dev/block/$(stat -c %Hd:%Ld /vicepa)/stat")?.ok()?;
    let sectors =
        printed.split_ascii_whitespace().nth(SECTORS_WRITTEN).and_then(|number| number.parse::<f64>().ok());
    Ok(sectors.with_context(|| format!("not the statistics of a disk: {printed}"))? * SECTOR_BYTES)
}

pub(crate) fn sync(cell: &Cell) -> Result<()> {
    cell.run("sync -f /vicepa")?.ok().map(drop)
}

/// Stops the server and starts it again, with the partition's files evicted from the page cache.
fn restart(server: Server, cell: &mut Cell) -> Result<()> {
    match server {
        Server::Cellar => cell.end_cellar("TERM")?,
        Server::OpenAfs => {
            cell.run(&format!("bos shutdown {} dafs -wait -localauth", cell.address))?.ok()?;
        }
    }
    sync(cell)?;
    forget(&cell.path().join("vicepa"))?;
    match server {
        Server::Cellar => cell.start_cellar(),
        Server::OpenAfs => {
            cell.run(&format!("bos startup {} dafs -localauth", cell.address))?.ok()?;
            let wait = "for i in $(seq 300); do vos listvol $0 -localauth && exit 0; sleep 0.1; done; exit 1";
            cell.run_words(&["bash", "-c", wait, cell.address])?.ok().map(drop)
        }
    }
}

/// Tells the kernel that the files below a folder will not be read soon. Names and inodes stay in its caches.
pub(crate) fn forget(folder: &Path) -> Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            forget(&entry.path())?;
        } else if entry.file_type()?.is_file() {
            let file = std::fs::File::open(entry.path())?;
            rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)?;
        }
    }
    Ok(())
}
