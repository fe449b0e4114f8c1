//! `cellar import vicep`.

use crate::commands::context::load_settings;
use crate::commands::owner_guard::OwnerGuard;
use crate::output::{Format, Row, line};
use afs_format::namei::DESTROY_ME;
use anyhow::{Context, Result, bail};
use base::{PartitionId, VolumeId, VolumeType};
use cell_client::network::now;
use cellar_config::Settings;
use cellar_server::offline::OfflineStore;
use clap::Args;
use indicatif::{HumanBytes, HumanCount, ProgressBar, ProgressStyle};
use openafs_import::vicep::leftovers::leftovers;
use openafs_import::vicep::load::{self, LoadError, Target};
use openafs_import::vicep::survey::{Survey, survey};
use openafs_import::vicep::{Problem, Source, Vicep as Partition};
use parking_lot::Mutex;
use serde::Serialize;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, available_parallelism};
use volume::VolumeError;

/// Import the volumes of an OpenAFS file server's partition.
#[derive(Args)]
pub struct Vicep {
    /// Partition of OpenAFS, like /vicepa, or a copy of it.
    partition: PathBuf,
    /// Target partition of the store; by default its only one, or the one of the same name.
    #[arg(long, value_name = "PARTITION")]
    to: Option<PartitionId>,
    /// Import only this volume, by name or number; may be repeated.
    #[arg(long = "volume", value_name = "VOLUME")]
    volumes: Vec<String>,
    /// Also import volumes that were not detached cleanly or need salvaging, if they are sound.
    #[arg(long)]
    unclean: bool,
    /// Number of volumes imported at a time; by default one for each processor.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..=64))]
    jobs: Option<u16>,
    /// Configuration of the server; OpenAFS's in /etc/openafs/server by default.
    #[arg(long, env = "CELLAR_CONFIG")]
    config: Option<PathBuf>,
    /// Read and check everything without importing anything.
    #[arg(long)]
    dry_run: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Outcome for a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Outcome {
    /// The volume was imported.
    Imported,
    /// The volume was imported and shares the contents of its read-write volume.
    Shared,
    /// The volume would be imported.
    Sound,
    /// The store already has the volume.
    Present,
    /// The volume is damaged.
    Damaged,
    /// OpenAFS's server did not detach the volume cleanly, or wants to salvage it.
    Unclean,
    /// The operation that created the volume did not finish.
    Unfinished,
    /// The store has another volume with this number.
    NumberTaken,
    /// Files on the partition that belong to no volume.
    Leftovers,
}

impl Outcome {
    fn text(self) -> &'static str {
        match self {
            Outcome::Imported => "imported",
            Outcome::Shared => "imported, shares the read-write volume's contents",
            Outcome::Sound => "would be imported",
            Outcome::Present => "in the store already",
            Outcome::Damaged => "DAMAGED, left out",
            Outcome::Unclean => "UNCLEAN, left out (salvage it, or --unclean)",
            Outcome::Unfinished => "an unfinished copy, left out",
            Outcome::NumberTaken => "NUMBER TAKEN, left out",
            Outcome::Leftovers => "belongs to no volume, left out",
        }
    }

    /// Returns whether the volume is missing in the store although it should be there.
    fn is_failure(self) -> bool {
        matches!(self, Outcome::Damaged | Outcome::Unclean | Outcome::NumberTaken)
    }
}

/// Result for a volume.
#[derive(Serialize)]
struct Volume {
    id: u32,
    name: String,
    kind: &'static str,
    files: u64,
    directories: u64,
    links: u64,
    bytes: u64,
    outcome: Outcome,
    problems: Vec<Problem>,
    /// Number of problems not listed.
    unreported_problems: u64,
    /// Details of an imported volume that are repaired or left out.
    notes: Vec<Problem>,
}

impl Row for Volume {
    const COLUMNS: &'static [&'static str] =
        &["VOLUME", "NAME", "KIND", "FILES", "DIRECTORIES", "LINKS", "BYTES", ""];

    fn cells(&self) -> Vec<String> {
        let count = |number: u64| HumanCount(number).to_string();
        vec![
            self.id.to_string(),
            self.name.clone(),
            self.kind.to_owned(),
            count(self.files),
            count(self.directories),
            count(self.links),
            HumanBytes(self.bytes).to_string(),
            self.outcome.text().to_owned(),
        ]
    }
}

impl Volume {
    fn of(source: &Source<'_>, outcome: Outcome) -> Volume {
        Volume {
            id: source.info.id,
            name: source.name.to_string(),
            kind: match source.kind {
                VolumeType::ReadWrite => "RW",
                VolumeType::ReadOnly => "RO",
                VolumeType::Backup => "BK",
            },
            files: 0,
            directories: 0,
            links: 0,
            bytes: 0,
            outcome,
            problems: Vec::new(),
            unreported_problems: 0,
            notes: Vec::new(),
        }
    }

    fn unknown(id: u32, problem: Problem) -> Volume {
        Volume {
            id,
            name: String::new(),
            kind: "",
            files: 0,
            directories: 0,
            links: 0,
            bytes: 0,
            outcome: Outcome::Damaged,
            problems: vec![problem],
            unreported_problems: 0,
            notes: Vec::new(),
        }
    }

    /// Returns files that belong to no volume as a row of their own; `None` if there are none.
    fn leftovers(problems: Vec<Problem>) -> Option<Volume> {
        let first = problems.first()?.clone();
        Some(Volume { outcome: Outcome::Leftovers, problems, ..Volume::unknown(0, first) })
    }

    fn surveyed(mut self, found: Survey) -> Volume {
        (self.files, self.directories) = (found.files, found.directories);
        (self.links, self.bytes) = (found.links, found.bytes);
        (self.problems, self.unreported_problems, self.notes) = (found.problems, found.unlisted, found.notes);
        if !self.problems.is_empty() {
            self.outcome = Outcome::Damaged;
        }
        self
    }
}

/// Runs the command.
pub(super) fn run(wanted: &Vicep) -> Result<()> {
    let partition = Partition::open(&wanted.partition)?;
    let mut sources = Vec::new();
    let mut done = Vec::new();
    for id in partition.volumes()? {
        match partition.source(id) {
            Ok(source) => sources.extend(Some(source).filter(|source| wanted.names(source))),
            Err(problem) => done.extend(wanted.knows(id).then(|| Volume::unknown(id, problem))),
        }
    }
    let leftovers = if wanted.volumes.is_empty() {
        Volume::leftovers(leftovers(&partition, &sources, done.is_empty())?)
    } else {
        None
    };
    if !wanted.volumes.is_empty() && sources.is_empty() && done.is_empty() {
        bail!("{} has no volume {}", partition.path().display(), wanted.volumes.join(", "));
    }
    // Read-write volumes come first, because clones may share their contents.
    sources.sort_by_key(|source| (source.info.parent, source.kind as u8, source.info.id));
    let work = Work::begin(wanted, &partition, &sources)?;
    done.extend(work.all(&sources)?);
    work.bar.finish_and_clear();
    if let Some(store) = &work.store {
        store.offline.volumes.sync().context("cannot make the volumes durable")?;
    }
    done.extend(leftovers);
    finish(wanted, &done)
}

fn finish(wanted: &Vicep, done: &[Volume]) -> Result<()> {
    let format = if wanted.json { Format::Json } else { Format::Text };
    if format == Format::Text {
        for volume in done {
            print_problems(volume);
        }
    }
    format.rows(done)?;
    let volumes = || done.iter().filter(|volume| volume.outcome != Outcome::Leftovers);
    if format == Format::Text {
        line(sum(done))?;
    }
    match volumes().filter(|volume| volume.outcome.is_failure()).count() {
        0 => Ok(()),
        count => bail!(
            "{count} of {} volumes cannot be imported; `salvager PARTITION VOLUME` of OpenAFS repairs the \
            source",
            volumes().count()
        ),
    }
}

/// Counts volumes by outcome, and the details that were reported.
fn sum(done: &[Volume]) -> String {
    let of = |outcome: Outcome| done.iter().filter(move |volume| volume.outcome == outcome);
    let all = [
        Outcome::Imported,
        Outcome::Shared,
        Outcome::Sound,
        Outcome::Present,
        Outcome::Damaged,
        Outcome::Unclean,
        Outcome::Unfinished,
        Outcome::NumberTaken,
    ];
    let counts = all.into_iter().map(|outcome| (outcome.text(), of(outcome).count()));
    let mut parts: Vec<String> =
        counts.filter(|(_, count)| *count > 0).map(|(text, count)| format!("{count} {text}")).collect();
    let notes: usize = done.iter().map(|volume| volume.notes.len()).sum();
    if notes > 0 {
        parts.push(format!("{notes} details repaired or left out"));
    }
    let stray: usize = of(Outcome::Leftovers).map(|volume| volume.problems.len()).sum();
    if stray > 0 {
        parts.push(format!("{stray} files that belong to no volume (the salvager removes them)"));
    }
    parts.join("; ")
}

fn print_problems(volume: &Volume) {
    let name = if volume.name.is_empty() { String::new() } else { format!(" ({})", volume.name) };
    if volume.outcome == Outcome::Leftovers {
        volume.problems.iter().for_each(|Problem { place, what }| println!("{place}: {what}"));
        return;
    }
    for Problem { place, what } in volume.problems.iter().chain(&volume.notes) {
        println!("volume {}{name}, {place}: {what}", volume.id);
    }
    if volume.unreported_problems > 0 {
        println!("volume {}{name}: and {} more", volume.id, volume.unreported_problems);
    }
}

impl Vicep {
    fn names(&self, source: &Source<'_>) -> bool {
        let is_meant =
            |wanted: &String| *wanted == source.info.id.to_string() || *wanted == source.name.as_str();
        self.volumes.is_empty() || self.volumes.iter().any(is_meant)
    }

    /// Returns whether a volume with an unreadable name is selected.
    fn knows(&self, id: u32) -> bool {
        self.volumes.is_empty() || self.volumes.contains(&id.to_string())
    }

    /// Returns the target partition of the store.
    fn target(&self, settings: &Settings, from: &Partition) -> Result<PartitionId> {
        let named = from.path().file_name().and_then(|name| name.to_str());
        let named = named.filter(|name| name.starts_with("vicep")).and_then(|name| name.parse().ok());
        let has = |id: PartitionId| settings.partitions.iter().any(|partition| partition.id == id);
        match (self.to, settings.partitions.as_slice()) {
            (Some(id), _) if !has(id) => bail!("{}: there is no partition {id}", settings.source),
            (Some(id), _) => Ok(id),
            (None, [only]) => Ok(only.id),
            (None, _) => named
                .filter(|id| has(*id))
                .context("--to must name the partition of the store, like `--to a`"),
        }
    }
}

/// The target store.
struct Store {
    offline: OfflineStore,
    partition: PartitionId,
    // Dropped after the store.
    _owner: OwnerGuard,
}

impl Store {
    fn target(&self) -> Target<'_> {
        Target { volumes: &self.offline.volumes, partition: self.partition, now: now() }
    }
}

struct Work<'a> {
    wanted: &'a Vicep,
    /// `None` in a dry run.
    store: Option<Store>,
    bar: ProgressBar,
}

impl<'a> Work<'a> {
    fn begin(wanted: &'a Vicep, partition: &Partition, sources: &[Source<'_>]) -> Result<Work<'a>> {
        let store = if wanted.dry_run {
            None
        } else {
            let settings = load_settings(wanted.config.as_deref())?;
            let target = wanted.target(&settings, partition)?;
            let owner = OwnerGuard::of_partitions(&settings);
            Some(Store { offline: OfflineStore::open(&settings)?, partition: target, _owner: owner })
        };
        let bytes = sources.iter().map(|source| u64::from(source.info.used_kib) << 10).sum();
        let style =
            ProgressStyle::with_template("{wide_bar} {bytes} of {total_bytes} {bytes_per_sec} {eta} {msg}");
        let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
        Ok(Work { wanted, store, bar: ProgressBar::new(bytes).with_style(style) })
    }

    /// Checks and imports all volumes, those of several groups at a time. After an error, no further group is begun.
    fn all(&self, sources: &[Source<'_>]) -> Result<Vec<Volume>> {
        let groups: Vec<_> = sources.chunk_by(|one, other| one.info.parent == other.info.parent).collect();
        let processors = || available_parallelism().map_or(1, usize::from);
        let jobs = self.wanted.jobs.map_or_else(processors, usize::from).clamp(1, groups.len().max(1));
        let (next, outcomes) = (AtomicUsize::new(0), Mutex::new(BTreeMap::new()));
        let work = || {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                let Some(group) = groups.get(number) else { break };
                let outcome = self.group(group);
                if outcome.is_err() {
                    next.store(groups.len(), Ordering::Relaxed);
                }
                outcomes.lock().insert(number, outcome);
            }
        };
        thread::scope(|scope| (0..jobs).for_each(|_| drop(scope.spawn(work))));
        let outcomes: Result<Vec<_>> = outcomes.into_inner().into_values().collect();
        Ok(outcomes?.into_iter().flatten().collect())
    }

    /// Checks and imports a read-write volume and its clones.
    fn group(&self, sources: &[Source<'_>]) -> Result<Vec<Volume>> {
        let (mut fresh, mut done) = (None, Vec::new());
        for source in sources {
            let volume = self.volume(source, fresh)?;
            if source.kind == VolumeType::ReadWrite && self.has_it_as_it_is(source, volume.outcome)? {
                fresh = Some(source);
            }
            done.push(volume);
        }
        Ok(done)
    }

    /// Returns whether the store has the volume as it is on the partition, so that its clones may share the
    /// contents. A volume imported by an earlier run may have been changed since.
    fn has_it_as_it_is(&self, source: &Source<'_>, outcome: Outcome) -> Result<bool> {
        match (outcome, &self.store) {
            (Outcome::Imported, _) => Ok(true),
            (Outcome::Present, Some(store)) => {
                let found = store.offline.volumes.get_any_state(VolumeId(source.info.id))?.header();
                Ok(load::is_unchanged(source, &found))
            }
            _ => Ok(false),
        }
    }

    /// Checks and imports a volume. `fresh` is a read-write volume whose contents are the same in the store
    /// and on the partition.
    fn volume(&self, source: &Source<'_>, fresh: Option<&Source<'_>>) -> Result<Volume> {
        self.bar.set_message(source.name.to_string());
        let read = Cell::new(0);
        let progress = |bytes| {
            read.set(read.get() + bytes);
            self.bar.inc(bytes);
        };
        let volume = self.try_volume(source, fresh, &progress);
        // What was not read counts as done, too.
        self.bar.inc((u64::from(source.info.used_kib) << 10).saturating_sub(read.get()));
        volume.with_context(|| format!("volume {} ({})", source.info.id, source.name))
    }

    fn try_volume(
        &self,
        source: &Source<'_>,
        fresh: Option<&Source<'_>>,
        progress: &dyn Fn(u64),
    ) -> Result<Volume> {
        if source.is_unfinished() {
            return Ok(Volume::of(source, Outcome::Unfinished));
        }
        if let Some(volume) = self.in_store(source)? {
            return Ok(volume);
        }
        if let Some(what) = source.unclean().filter(|_| !self.wanted.unclean) {
            let mut volume = Volume::of(source, Outcome::Unclean);
            volume.problems.push(Problem::new("the volume", what));
            return Ok(volume);
        }
        let mut volume = Volume::of(source, Outcome::Sound).surveyed(survey(source));
        if volume.outcome == Outcome::Damaged {
            return Ok(volume);
        }
        match self.bring_in(source, fresh, progress) {
            Ok(outcome) => volume.outcome = outcome,
            Err(LoadError::Source(problem)) => {
                volume.outcome = Outcome::Damaged;
                volume.problems.push(problem);
            }
            // The survey finds what the store would reject; where it does not, the volume is at fault.
            Err(LoadError::Store(VolumeError::Unsound { place, what })) => {
                volume.outcome = Outcome::Damaged;
                volume.problems.push(Problem::new(place, what));
            }
            Err(LoadError::Store(error)) => return Err(error.into()),
        }
        Ok(volume)
    }

    fn bring_in(
        &self,
        source: &Source<'_>,
        fresh: Option<&Source<'_>>,
        progress: &dyn Fn(u64),
    ) -> Result<Outcome, LoadError> {
        let Some(store) = &self.store else {
            load::read(source, progress)?;
            return Ok(Outcome::Sound);
        };
        if let Some(of) = fresh
            && source.kind != VolumeType::ReadWrite
            && load::is_same(of, source)
        {
            load::share(source, VolumeId(of.info.id), store.target())?;
            return Ok(Outcome::Shared);
        }
        load::load(source, store.target(), progress)?;
        Ok(Outcome::Imported)
    }

    /// Returns the outcome for a volume whose number the store has. Removes a volume left by an interrupted
    /// run.
    fn in_store(&self, source: &Source<'_>) -> Result<Option<Volume>> {
        let Some(store) = &self.store else { return Ok(None) };
        let volumes = &store.offline.volumes;
        let found = match volumes.get_any_state(VolumeId(source.info.id)) {
            Ok(found) => found.header(),
            Err(VolumeError::NoVolume(_)) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        if found.destroy_me == DESTROY_ME {
            volumes.delete(found.id)?;
            return Ok(None);
        }
        if found.name == source.name && found.kind == source.kind && found.parent.0 == source.info.parent {
            return Ok(Some(Volume::of(source, Outcome::Present)));
        }
        let mut volume = Volume::of(source, Outcome::NumberTaken);
        let what = format!("the store already has volume {} with this number", found.name);
        volume.problems.push(Problem::new("the volume", what));
        Ok(Some(volume))
    }
}
