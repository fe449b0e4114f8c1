//! `cellar store`.

mod analyze;
mod damaged;
mod loss;
mod online;
mod rekey;

use super::context::load_settings;
use crate::output::{Format, Row};
use anyhow::{Context as _, Result, anyhow, bail};
use base::BucketAddress;
use cellar_config::encryption::KeySource;
use cellar_config::files::Exposure;
use cellar_config::{PartitionSettings, Place, Settings};
use clap::{Args, Subcommand};
use indicatif::{HumanBytes, HumanCount, ProgressBar, ProgressStyle};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use store::Inspection;
use volume_check::{CheckOptions, CheckReport, Progress, Stage, check};

/// Check, rekey and recover partitions, and estimate the space that data would take.
#[derive(Subcommand)]
pub enum Store {
    /// Verify the consistency of partitions without changing anything. Their server must be stopped, unless
    /// it runs the check itself (--on).
    ///
    /// Crashes do not require a check. Prints a line with the location of each damage, and exits with status
    /// 1 if there is any.
    Check(Check),
    /// Estimate the space that a tree would take under each compression policy. Only reads the files.
    ///
    /// Files are cut into chunks, encoded as in the store and decoded again. The last line is for comparison:
    /// the space on a file system that compresses records of 128 KiB with gzip-6. Metadata is not counted.
    /// Links are not followed; unreadable files are skipped and listed.
    Analyze(analyze::Analyze),
    /// Show the damage that a running server's scrubber has found on its partitions, and other copies of the
    /// affected volumes; exits with status 1 if there is any. For superusers.
    ///
    /// Read-only copies on the same partition as the read-write volume, backups and snapshots share its data
    /// and therefore the damage; they are not listed as other copies. An entry disappears when that part of
    /// the file is rewritten or deleted.
    Damaged(damaged::Damaged),
    /// Change the keys of an encrypted partition. Its server must be stopped.
    ///
    /// Wraps the data keys with another master key, adds a data key for new data, or both. Existing data is
    /// not rewritten. Set the new master key in the configuration before the next start.
    Rekey(rekey::Rekey),
    /// Open a partition or a database of the cell again that is refused because durable changes are lost. Its server must
    /// be stopped.
    ///
    /// The disk has lost a part of the log. Everything before it is kept; the lost changes and all later ones are given up.
    /// Copy the folder first. Clients may have cached what is given up: `fs flushall` makes them forget it.
    AcceptLoss(loss::AcceptLoss),
}

/// Verify the consistency of partitions.
#[derive(Args)]
pub struct Check {
    /// Partitions, like /vicepa; those in the configuration by default. A partition in a bucket is named by its
    /// address as the configuration has it, like s3://cellar/b.
    partitions: Vec<PathBuf>,
    /// Configuration of the server; OpenAFS's in /etc/openafs/server by default.
    #[arg(long, env = "CELLAR_CONFIG")]
    config: Option<PathBuf>,
    /// Also read all file data and verify its checksums.
    #[arg(long)]
    data: bool,
    /// Master key of an encrypted partition, unless the configuration names it. Without a key, encrypted data
    /// is not decrypted, but its checksums are still verified.
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    online: online::Online,
}

/// Result for a partition.
#[derive(Serialize)]
struct Checked {
    partition: String,
    volumes: u64,
    groups: u64,
    jobs: u64,
    records: u64,
    vnodes: u64,
    chunks: u64,
    chunks_read: u64,
    chunk_bytes: u64,
    dead_bytes: u64,
    damage_count: u64,
    damages: Vec<Found>,
}

/// A damage.
#[derive(Clone, Serialize, Deserialize)]
struct Found {
    volume: Option<u32>,
    place: String,
    what: String,
}

impl Row for Checked {
    const COLUMNS: &'static [&'static str] = &[
        "PARTITION",
        "VOLUMES",
        "VNODES",
        "RECORDS",
        "JOBS",
        "CHUNKS",
        "BYTES",
        "DEAD",
        "VERIFIED",
        "DAMAGES",
    ];

    fn cells(&self) -> Vec<String> {
        let count = |number: u64| HumanCount(number).to_string();
        let bytes = |number: u64| HumanBytes(number).to_string();
        vec![
            self.partition.clone(),
            count(self.volumes),
            count(self.vnodes),
            count(self.records),
            count(self.jobs),
            count(self.chunks),
            bytes(self.chunk_bytes),
            bytes(self.dead_bytes),
            count(self.chunks_read),
            count(self.damage_count),
        ]
    }
}

/// Runs the command.
pub fn run(command: &Store) -> Result<()> {
    match command {
        Store::Check(check) => run_check(check),
        Store::Analyze(analyze) => analyze::run(analyze),
        Store::Damaged(asked) => damaged::run(asked),
        Store::Rekey(rekey) => rekey::run(rekey),
        Store::AcceptLoss(accept) => loss::run(accept),
    }
}

fn run_check(check: &Check) -> Result<()> {
    if let Some(server) = check.online.on {
        return online::run(check, server);
    }
    let format = if check.json { Format::Json } else { Format::Text };
    let options = CheckOptions { data: check.data };
    let mut all = Vec::new();
    for (place, key) in partitions(check)? {
        all.push(check_partition(&place, key.as_ref(), options)?);
    }
    finish(&all, format)
}

/// Prints the results; fails if there is any damage.
fn finish(all: &[Checked], format: Format) -> Result<()> {
    for damaged in all {
        print_damages(damaged, format);
    }
    format.rows(all)?;
    let damages: u64 = all.iter().map(|checked| checked.damage_count).sum();
    if damages > 0 {
        bail!("{damages} damages in {} partitions", all.iter().filter(|one| one.damage_count > 0).count());
    }
    Ok(())
}

/// Returns the partitions with the sources of their master keys.
fn partitions(check: &Check) -> Result<Vec<(Place, Option<KeySource>)>> {
    let given = check.key_file.clone().map(|path| KeySource::File(path, Exposure::Refused));
    let is_in_bucket = check.partitions.iter().any(|path| address(path).is_some());
    if !check.partitions.is_empty() && !is_in_bucket && (given.is_some() || check.config.is_none()) {
        let place = |path: &PathBuf| (Place::Folder(path.clone()), given.clone());
        return Ok(check.partitions.iter().map(place).collect());
    }
    let settings = load_settings(check.config.as_deref())?;
    let key = |key: Option<KeySource>| given.clone().or(key);
    if !check.partitions.is_empty() {
        let named = |path: &PathBuf| match address(path) {
            None => Ok((Place::Folder(path.clone()), key(rekey::configured(&settings, path)))),
            Some(address) => {
                let found = in_bucket(&settings, &address)?;
                Ok((found.place.clone(), key(found.key.clone())))
            }
        };
        return check.partitions.iter().map(named).collect();
    }
    if settings.partitions.is_empty() {
        bail!("the configuration names no partition");
    }
    Ok(settings.partitions.into_iter().map(|partition| (partition.place, key(partition.key))).collect())
}

/// Returns the partition at an address in a bucket; only the configuration says how the bucket is reached.
fn in_bucket<'s>(settings: &'s Settings, address: &BucketAddress) -> Result<&'s PartitionSettings> {
    let place = address.to_string();
    let mut known = settings.partitions.iter();
    let found = known.find(|known| known.place.to_string() == place);
    found.with_context(|| format!("{} has no partition {place}", settings.source))
}

/// Returns the address of a bucket, if this is one.
fn address(path: &Path) -> Option<BucketAddress> {
    path.to_str()?.parse().ok()
}

fn check_partition(place: &Place, key: Option<&KeySource>, options: CheckOptions) -> Result<Checked> {
    let key = key.map(KeySource::load).transpose()?;
    let (opened, _claim) = match place {
        // The error already names its cause.
        Place::Folder(path) => {
            let opened = Inspection::open_encrypted(path, key.as_ref());
            (opened.map_err(|error| anyhow!("{error}"))?, None)
        }
        Place::Bucket(bucket) => {
            let (opened, claim) = cellar_server::buckets::inspect(bucket, key.as_ref())?;
            (opened, Some(claim))
        }
    };
    let bar = Bar::new();
    let report = check(opened.meta(), Some(opened.segments()), options, &mut |progress| bar.show(progress));
    bar.0.finish_and_clear();
    Ok(Checked::new(place, report))
}

fn print_damages(checked: &Checked, format: Format) {
    if format == Format::Json {
        return;
    }
    for found in &checked.damages {
        let volume = found.volume.map_or_else(String::new, |volume| format!("volume {volume}, "));
        println!("{}: {volume}{}: {}", checked.partition, found.place, found.what);
    }
    let unlisted = checked.damage_count - checked.damages.len() as u64;
    if unlisted > 0 {
        println!("{}: and {unlisted} more", checked.partition);
    }
}

impl Checked {
    fn new(place: &Place, report: CheckReport) -> Checked {
        let found = |damage: volume_check::Damage| Found {
            volume: damage.volume.map(|volume| volume.0),
            place: damage.place,
            what: damage.what,
        };
        Checked {
            partition: place.to_string(),
            volumes: report.volumes,
            groups: report.groups,
            jobs: report.jobs,
            records: report.records,
            vnodes: report.vnodes,
            chunks: report.chunks,
            chunks_read: report.chunks_read,
            chunk_bytes: report.chunk_bytes,
            dead_bytes: report.dead_bytes,
            damage_count: report.damage_count,
            damages: report.damages.into_iter().map(found).collect(),
        }
    }
}

/// Progress bar of a check, if standard error is a terminal.
struct Bar(ProgressBar);

impl Bar {
    fn new() -> Bar {
        Bar(ProgressBar::new(0))
    }

    fn show(&self, progress: Progress) {
        let template = match progress.stage {
            Stage::Records => "records {human_pos} {spinner}",
            Stage::Volumes => "volumes {wide_bar} {human_pos} of {human_len} {eta}",
            Stage::Data => "data {wide_bar} {bytes} of {total_bytes} {bytes_per_sec} {eta}",
        };
        if self.0.length() != Some(progress.total) || self.0.position() > progress.done {
            self.0.reset();
            self.0.set_length(progress.total);
            let style = ProgressStyle::with_template(template);
            self.0.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        }
        self.0.set_position(progress.done);
    }
}
