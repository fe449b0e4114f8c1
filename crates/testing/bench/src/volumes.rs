//! Operations on whole volumes: dump, restore, release and move, with two servers of each kind.

mod unchanged;

use crate::cpu::Reading;
use crate::disturbed;
use crate::machine::Machine;
use crate::report::{spread, table};
use crate::statistics::{Spread, ratio, short};
use anyhow::{Context, Result, bail};
use interop::cell::{Cell, Server, cellar_program};
use interop::means::Means;
use std::path::PathBuf;
use std::time::Instant;

/// Options of the measurement.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct VolumesOptions {
    /// How often to repeat each operation on each kind of server
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Size of the volume with large files, in MiB; 0 skips it
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u64).range(0..=16384))]
    size: u64,
    /// Number of files of 4 KiB in the volume with small files; 0 skips it
    #[arg(long, default_value_t = 5000, value_parser = clap::value_parser!(u64).range(0..=1_000_000))]
    files: u64,
    /// Instead of these: release a volume of this many GiB between two Cellar servers, and again without a
    /// change
    #[arg(long, value_name = "GIB", value_parser = clap::value_parser!(u64).range(1..=64))]
    unchanged: Option<u64>,
    /// Pause before each operation, in seconds, so that earlier writes reach the disk
    #[arg(long, default_value_t = 1)]
    pause: u64,
}

/// Number of files in the volume with large files: one of them is 1 %.
const LARGE_FILES: u64 = 100;
const SMALL_FILE_BYTES: u64 = 4096;
/// Number of small files per folder.
const FOLDER_FILES: u64 = 500;
/// One file in this many is changed.
const CHANGED: u64 = 100;

/// Files of equal length in one volume.
#[derive(Clone, Copy)]
struct Contents {
    volume: &'static str,
    files: u64,
    file_bytes: u64,
}

impl Contents {
    fn of(options: &VolumesOptions) -> Vec<Contents> {
        let file_bytes = (options.size << 20) / LARGE_FILES;
        let large = Contents { volume: "large", files: LARGE_FILES, file_bytes };
        let small = Contents { volume: "small", files: options.files, file_bytes: SMALL_FILE_BYTES };
        [large, small].into_iter().filter(|contents| contents.files * contents.file_bytes > 0).collect()
    }

    fn title(self) -> String {
        let mib = (self.files * self.file_bytes) >> 20;
        format!("A volume of {} files, {mib} MiB", self.files)
    }

    /// Returns a script that writes one of every `step` files into this folder, with new contents each time.
    fn script(self, folder: &str, step: u64) -> String {
        let Contents { files, file_bytes, .. } = self;
        format!(
            "rm -rf {folder}; for i in $(seq 0 {step} {last}); do \
             d={folder}/$((i / {FOLDER_FILES})); [ -d $d ] || mkdir -p $d; \
             head -c {file_bytes} /dev/urandom > $d/file$i; done",
            last = files - 1
        )
    }
}

/// An operation and the command that does it.
struct Operation {
    name: &'static str,
    /// Whether one file in a hundred is rewritten first, outside the measured time.
    is_changed: bool,
    command: fn(&Pair, &'static str) -> String,
}

/// Replaced by the path of the program in commands.
const CELLAR: &str = "CELLAR";

const OPERATIONS: [Operation; 10] = [
    Operation { name: "vos dump to a file", is_changed: false, command: Pair::dump },
    Operation { name: "vos restore of that file", is_changed: false, command: Pair::restore },
    // OpenAFS's client limits both servers above.
    Operation { name: "cellar volume dump to a file", is_changed: false, command: Pair::own_dump },
    Operation { name: "cellar volume restore of that file", is_changed: false, command: Pair::own_restore },
    Operation {
        name: "first vos release to the other server",
        is_changed: false,
        command: |_, volume| release(volume),
    },
    Operation {
        name: "vos release after a change of 1 %",
        is_changed: true,
        command: |_, volume| release(volume),
    },
    Operation {
        name: "vos release without a change",
        is_changed: false,
        command: |_, volume| release(volume),
    },
    Operation {
        name: "vos release -force",
        is_changed: false,
        command: |_, volume| format!("{} -force", release(volume)),
    },
    Operation { name: "vos move to the other server", is_changed: false, command: Pair::there },
    Operation { name: "vos move to the other partition", is_changed: false, command: Pair::aside },
];

/// Two servers of one kind, the first with two partitions.
struct Pair {
    first: Cell,
    second: Cell,
    kind: Server,
}

fn release(volume: &str) -> String {
    format!("vos release {volume} -localauth")
}

impl Pair {
    fn start(kind: Server) -> Result<Pair> {
        let partitions = ["-p", "2"];
        let (first, second) = match kind {
            Server::OpenAfs => {
                let first = Cell::start_with(kind, "benchv1", "10.99.1.21", &partitions)?;
                let second = Cell::start_joining(&first, "benchv2", "10.99.1.22")?;
                (first, second)
            }
            Server::Cellar => {
                let first = Cell::start_with(kind, "benchv3", "10.99.1.23", &partitions)?;
                let second = Cell::start_cellar_joining(&first, "benchv4", "10.99.1.24", "10.99.1.25")?;
                (first, second)
            }
        };
        // Scratch space for dumps.
        first.scratch()?;
        Ok(Pair { first, second, kind })
    }

    /// Creates a volume file by file.
    fn fill(&self, contents: Contents) -> Result<()> {
        self.first.open_volume(self.kind, contents.volume)?;
        self.write(contents, 1)?;
        self.run(&self.dump(contents.volume))
    }

    /// Restores the same volume from a dump of another cell.
    fn take(&self, contents: Contents, other: &Pair) -> Result<()> {
        let (volume, file) = (contents.volume, other.file().display().to_string());
        self.run(&format!("vos restore {} a {volume} -file {file} -localauth", self.first.address))
    }

    fn write(&self, contents: Contents, step: u64) -> Result<()> {
        let folder = self.first.scratch()?.join("files");
        let folder = folder.display();
        self.first.shell(&contents.script(&folder.to_string(), step))?.ok()?;
        self.run(&format!("{CELLAR} cp {folder}/ cell:{}/", contents.volume))
    }

    fn run(&self, command: &str) -> Result<()> {
        let program = cellar_program()?.display().to_string();
        let words: Vec<&str> =
            command.split_whitespace().map(|word| if word == CELLAR { &program } else { word }).collect();
        self.first.run_words(&words)?.ok().map(drop).with_context(|| command.to_owned())
    }

    fn file(&self) -> PathBuf {
        self.first.path().join("scratch/dump")
    }

    fn dump(&self, volume: &'static str) -> String {
        format!("vos dump {volume} -file {} -localauth", self.file().display())
    }

    fn restore(&self, _: &'static str) -> String {
        format!("vos restore {} a restored -file {} -localauth", self.first.address, self.file().display())
    }

    fn own_dump(&self, volume: &'static str) -> String {
        format!("{CELLAR} volume dump {volume} {}", self.file().display())
    }

    fn own_restore(&self, _: &'static str) -> String {
        let (first, file) = (self.first.address, self.file());
        format!("{CELLAR} volume restore {} restored2 --on {first} --partition a", file.display())
    }

    fn there(&self, volume: &'static str) -> String {
        format!("vos move {volume} {} a {} a -localauth", self.first.address, self.second.address)
    }

    fn aside(&self, volume: &'static str) -> String {
        let first = self.first.address;
        format!("vos move {volume} {first} a {first} b -localauth")
    }

    /// Performs all operations once; returns the seconds of each, and the share of stolen time.
    fn round(&self, contents: Contents, pause: u64) -> Result<(Vec<f64>, f64)> {
        let (volume, first, second) = (contents.volume, self.first.address, self.second.address);
        self.run(&format!("vos addsite {second} a {volume} -localauth"))?;
        let (mut seconds, mut stolen) = (Vec::new(), 0.0);
        for operation in &OPERATIONS {
            if operation.is_changed {
                self.write(contents, CHANGED)?;
            }
            let command = (operation.command)(self, volume);
            rustix::fs::sync();
            std::thread::sleep(std::time::Duration::from_secs(pause));
            let before = Reading::now()?;
            let start = Instant::now();
            self.run(&command)?;
            seconds.push(start.elapsed().as_secs_f64());
            stolen += Reading::now()?.since(&before).stolen;
            if operation.name == "vos move to the other server" {
                self.run(&format!("vos move {volume} {second} a {first} a -localauth"))?;
            }
        }
        for command in [
            format!("vos move {volume} {first} b {first} a -localauth"),
            format!("vos remove {second} a {volume}.readonly -localauth"),
            "vos remove -id restored -localauth".into(),
            "vos remove -id restored2 -localauth".into(),
        ] {
            self.run(&command)?;
        }
        let share = disturbed::share(stolen, seconds.iter().sum());
        Ok((seconds, share))
    }
}

/// Measures and prints the tables.
pub(crate) fn run(options: &VolumesOptions) -> Result<()> {
    if let Err(missing) = Means::Netns.check() {
        bail!("{missing}");
    }
    let _alone = crate::alone()?;
    if let Some(gib) = options.unchanged {
        println!("{}\n", Machine::here());
        return unchanged::run(gib);
    }
    let all = Contents::of(options);
    let openafs = Pair::start(Server::OpenAfs).context("OpenAFS")?;
    let cellar = Pair::start(Server::Cellar).context("Cellar")?;
    println!("{}\n", Machine::here());
    for contents in all {
        eprintln!("bench: filling {}", contents.volume);
        cellar.fill(contents).context("Cellar")?;
        openafs.take(contents, &cellar).context("OpenAFS")?;
        let (figures, shares) = measure(options, contents, [&openafs, &cellar])?;
        println!("{}; seconds, median (least..greatest) of {} rounds.\n", contents.title(), options.rounds);
        println!("{}\n", disturbed::below(&rows(&figures), &shares));
    }
    Ok(())
}

/// For OpenAFS and Cellar, and for each round, the seconds of each operation.
type Figures = [Vec<Vec<f64>>; 2];

/// Returns the figures, and the share of stolen time in each round. Each operation depends on the previous
/// one, so a disturbed round is repeated as a whole.
fn measure(options: &VolumesOptions, contents: Contents, pairs: [&Pair; 2]) -> Result<(Figures, Vec<f64>)> {
    let mut figures = [Vec::new(), Vec::new()];
    let mut shares = Vec::new();
    for round in 0..options.rounds {
        for turn in 0..2 {
            let which = (turn + round as usize) % 2;
            let (pair, volume) = (pairs[which], contents.volume);
            eprintln!("bench: {volume}, round {} of {}, {:?}", round + 1, options.rounds, pair.kind);
            let round = || pair.round(contents, options.pause);
            let (seconds, share) = disturbed::least(disturbed::PAUSE, round)?;
            figures[which].push(seconds);
            shares.push(share);
        }
    }
    Ok((figures, shares))
}

fn rows(figures: &Figures) -> String {
    let of = |which: usize, operation: usize| {
        Spread::of(figures[which].iter().map(|round| round[operation])).unwrap_or_default()
    };
    let mut lines = table(&["operation", "OpenAFS", "Cellar", "speedup"], 1);
    for (number, operation) in OPERATIONS.iter().enumerate() {
        let (openafs, cellar) = (of(0, number), of(1, number));
        let times = ratio(openafs.median, cellar.median).map_or_else(|| "-".into(), short);
        lines.add_row([operation.name.into(), spread(openafs), spread(cellar), times]);
    }
    lines.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_says_how_many_times_as_fast() {
        let text = rows(&[
            vec![vec![4.0; OPERATIONS.len()], vec![2.0; OPERATIONS.len()]],
            vec![vec![1.5; OPERATIONS.len()]],
        ]);
        assert!(text.contains("vos dump to a file"), "{text}");
        assert!(text.contains("2.00"), "{text}");
    }
}
