//! Copies of trees of small files with `cellar cp`, into each kind of server and back.
//!
//! The local trees are in memory, because ext4 is slow where many files were removed in the last minutes, whatever
//! program creates the next ones (docs/lab/benchmarks.md, "Copies of many small files").

use crate::cpu::Reading;
use crate::disturbed;
use crate::machine::Machine;
use crate::report::{spread, table};
use crate::statistics::{Spread, ratio, short};
use anyhow::{Context, Result, bail};
use interop::cell::{Cell, Server, cellar_program};
use interop::means::Means;
use std::path::Path;
use std::time::Instant;

/// Options of the measurement.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct CopiesOptions {
    /// How often to repeat each copy on each kind of server
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Number of files
    #[arg(long, default_value_t = 5000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    files: u32,
    /// Size of each file in bytes
    #[arg(long, default_value_t = 4096)]
    bytes: u32,
    /// Numbers of concurrent transfers (`cellar cp --jobs`) to measure
    #[arg(long, value_delimiter = ',', default_values_t = [1_u8, 8, 32])]
    jobs: Vec<u8>,
}

/// Number of files per folder.
const FOLDER_FILES: u32 = 500;
/// Where the local trees are.
const MEMORY: &str = "/dev/shm";
/// Volume that is copied into; each copy gets a new one.
const VOLUME: &str = "copies";

/// A direction of a copy.
#[derive(Clone, Copy)]
enum Way {
    Up,
    Down,
}

impl Way {
    const ALL: [Way; 2] = [Way::Up, Way::Down];

    fn name(self) -> &'static str {
        match self {
            Way::Up => "into the cell",
            Way::Down => "out of the cell",
        }
    }
}

/// Measures and prints the table.
pub(crate) fn run(options: &CopiesOptions) -> Result<()> {
    if let Err(missing) = Means::Netns.check() {
        bail!("{missing}");
    }
    let _alone = crate::alone()?;
    let cells = [
        (
            Server::OpenAfs,
            Cell::start_with(Server::OpenAfs, "benchc1", "10.99.1.31", &[]).context("OpenAFS")?,
        ),
        (Server::Cellar, Cell::start_with(Server::Cellar, "benchc2", "10.99.1.32", &[]).context("Cellar")?),
    ];
    let trees = tempfile::Builder::new().prefix("cellar-bench-").tempdir_in(MEMORY).context(MEMORY)?;
    for (kind, cell) in &cells {
        cell.open_volume(*kind, VOLUME)?;
    }
    make_files(trees.path(), options)?;
    println!("{}\n", Machine::here());
    let mut lines = table(&["copy", "transfers at a time", "OpenAFS", "Cellar", "speedup"], 1);
    let mut shares = Vec::new();
    for &jobs in &options.jobs {
        let mut figures = [[Vec::new(), Vec::new()], [Vec::new(), Vec::new()]];
        for round in 0..options.rounds {
            for turn in 0..2 {
                let which = (turn + round as usize) % 2;
                let (kind, cell) = &cells[which];
                eprintln!("bench: {jobs} jobs, round {} of {}, {kind:?}", round + 1, options.rounds);
                for way in Way::ALL {
                    let (rate, share) = disturbed::least(disturbed::PAUSE, || {
                        copy(*kind, cell, trees.path(), way, (jobs, options.files))
                    })?;
                    figures[which][way as usize].push(rate);
                    shares.push(share);
                }
            }
        }
        for way in Way::ALL {
            let of =
                |which: usize| Spread::of(figures[which][way as usize].iter().copied()).unwrap_or_default();
            let (openafs, cellar) = (of(0), of(1));
            let times = ratio(cellar.median, openafs.median).map_or_else(|| "-".into(), short);
            lines.add_row([way.name().into(), jobs.to_string(), spread(openafs), spread(cellar), times]);
        }
    }
    let CopiesOptions { files, bytes, rounds, .. } = options;
    println!("{files} files of {bytes} bytes; files/s, median (least..greatest) of {rounds} rounds.\n");
    println!("{}", disturbed::below(&lines.to_string(), &shares));
    Ok(())
}

/// Creates the tree that is copied, with random contents.
fn make_files(trees: &Path, options: &CopiesOptions) -> Result<()> {
    let mut data = vec![0; options.bytes as usize];
    for file in 0..options.files {
        let folder = trees.join("files").join((file / FOLDER_FILES).to_string());
        std::fs::create_dir_all(&folder)?;
        rand::fill(&mut data[..]);
        std::fs::write(folder.join(format!("file{file}")), &data)?;
    }
    Ok(())
}

/// Copies once; returns the files per second, and the share of stolen time.
fn copy(kind: Server, cell: &Cell, trees: &Path, way: Way, (jobs, files): (u8, u32)) -> Result<(f64, f64)> {
    let (program, trees) = (cellar_program()?, trees.display());
    let program = program.display();
    let command = match way {
        Way::Up => format!("{program} cp --jobs {jobs} {trees}/files/ cell:{VOLUME}/tree"),
        Way::Down => format!("{program} cp --jobs {jobs} cell:{VOLUME}/tree {trees}/back"),
    };
    match way {
        Way::Up => {
            // Removing a volume is quicker than removing its files.
            cell.run(&format!("vos remove -id {VOLUME} -localauth"))?.ok()?;
            cell.open_volume(kind, VOLUME)?;
        }
        Way::Down => drop(cell.shell(&format!("rm -rf {trees}/back"))?.ok()?),
    }
    rustix::fs::sync();
    let before = Reading::now()?;
    let start = Instant::now();
    cell.run(&command)?.ok().with_context(|| command.clone())?;
    let seconds = start.elapsed().as_secs_f64();
    let stolen = Reading::now()?.since(&before).stolen;
    if matches!(way, Way::Down) {
        cell.shell(&format!("diff -r {trees}/files {trees}/back"))?.ok().context("the copy differs")?;
    }
    Ok((f64::from(files) / seconds, disturbed::share(stolen, seconds)))
}
