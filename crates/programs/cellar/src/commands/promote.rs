//! `cellar promote`: distributes a volume of one cell to read-only volumes of other cells.

mod shown;

use crate::output::Format;
use anyhow::{Context as _, Result, bail};
use base::VolumeName;
use clap::{ArgGroup, Args, Subcommand};
use promote::{Promotion, Record, SigningKey, Tree};
use promotion_runner::cells::Cells;
use promotion_runner::config::Config;
use promotion_runner::journal::{Claim, Journal};
use promotion_runner::{asking, run, source};
use shown::{CellShown, PlanShown, Progress};
use signal_hook::consts::{SIGINT, SIGTERM};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Distribute a volume of one cell to read-only volumes of other cells, from cell to cell in a tree, signed
/// and verified.
#[derive(Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct Promote {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    new: New,
    #[command(flatten)]
    common: Common,
}

/// Options of all promotion commands.
#[derive(Args, Clone)]
struct Common {
    /// File that lists the cells, the administrative access to each and the keys that they trust.
    #[arg(long, global = true, env = "CELLAR_PROMOTE", default_value = "/etc/cellar/promote.toml")]
    cells: PathBuf,
    /// Print JSON.
    #[arg(long, global = true)]
    json: bool,
}

/// Distribute a volume to other cells.
#[derive(Args)]
struct New {
    /// Read-write volume in the source cell.
    #[arg(required = true)]
    volume: Option<VolumeName>,
    /// Cells to distribute the volume to.
    #[arg(long, num_args = 1.., value_name = "CELL")]
    to: Vec<String>,
    /// File with the names of target cells, one per line; `#` starts a comment.
    #[arg(long, value_name = "FILE")]
    to_file: Option<PathBuf>,
    /// Number of copies in each cell; promote.toml's by default. Additional copies are left in place.
    #[arg(long, value_name = "N")]
    copies: Option<usize>,
    /// Maximum number of cells that one cell serves; promote.toml's by default.
    #[arg(long, value_name = "N")]
    fanout: Option<usize>,
    /// Take over volumes of this name that already exist in the cells, with their contents.
    #[arg(long)]
    adopt: bool,
    /// Show what would be done without doing it.
    #[arg(long)]
    dry_run: bool,
}

#[derive(Subcommand)]
enum Command {
    /// Show what each cell has, as of the last run.
    Status(Status),
    /// Continue with cells that lag or refused the volume, and with interrupted promotions.
    Resume(Resume),
    /// Return to the version that was in use before. Nothing is sent between cells.
    Rollback(Rollback),
    /// Print the signed manifest of a version.
    Manifest(ManifestOf),
    /// Manage the keys that sign manifests.
    Key {
        #[command(subcommand)]
        command: Key,
    },
}

#[derive(Args)]
struct Status {
    /// Name of the volume.
    volume: VolumeName,
    /// Query each cell's location servers and the servers of all sites for the present state.
    #[arg(long)]
    ask: bool,
}

#[derive(Args)]
struct Resume {
    /// Name of the volume.
    volume: VolumeName,
    /// Show which cells would be continued without doing it.
    #[arg(long)]
    dry_run: bool,
}

#[derive(Args)]
#[command(group(ArgGroup::new("where").required(true).args(["within", "everywhere"])))]
struct Rollback {
    /// Name of the volume.
    volume: VolumeName,
    /// Cells to roll back.
    #[arg(long = "in", num_args = 1.., value_name = "CELL")]
    within: Vec<String>,
    /// Roll back all cells that have the volume.
    #[arg(long)]
    everywhere: bool,
    /// Show what would be done without doing it.
    #[arg(long)]
    dry_run: bool,
}

#[derive(Args)]
#[command(disable_version_flag = true)]
struct ManifestOf {
    /// Name of the volume.
    volume: VolumeName,
    /// Version of the volume; the latest by default.
    #[arg(long)]
    version: Option<u32>,
}

#[derive(Subcommand)]
enum Key {
    /// Generate a key in a new file that only you can read, and print its public key for [trusted].
    New {
        /// File to create.
        file: PathBuf,
    },
    /// Print the public key of a signing key.
    Show {
        /// File with the signing key.
        file: PathBuf,
    },
}

/// Runs the command.
pub fn run(promote: &Promote) -> Result<()> {
    let format = if promote.common.json { Format::Json } else { Format::Text };
    match &promote.command {
        Some(Command::Key { command }) => key(format, command),
        Some(Command::Status(Status { volume, ask })) => {
            status(&Opened::new(&promote.common, volume, format)?, *ask)
        }
        Some(Command::Resume(Resume { volume, dry_run })) => {
            resume(&Opened::new(&promote.common, volume, format)?, *dry_run)
        }
        Some(Command::Rollback(rollback)) => {
            roll_back(&Opened::new(&promote.common, &rollback.volume, format)?, rollback)
        }
        Some(Command::Manifest(of)) => {
            manifest(&Opened::new(&promote.common, &of.volume, format)?, of.version)
        }
        None => {
            let volume = promote.new.volume.as_ref().context("no volume given")?;
            begin(Opened::new(&promote.common, volume, format)?, &promote.new)
        }
    }
}

/// The state that commands about one volume share.
struct Opened {
    config: Config,
    journal: Journal,
    volume: VolumeName,
    format: Format,
}

impl Opened {
    fn new(common: &Common, volume: &VolumeName, format: Format) -> Result<Opened> {
        let config = Config::load(&common.cells)?;
        let journal = Journal::of(&config.state, &config.source, volume);
        Ok(Opened { config, journal, volume: volume.clone(), format })
    }

    fn known(&self) -> Result<Record> {
        let (volume, source) = (&self.volume, &self.config.source);
        self.journal.read()?.with_context(|| format!("the volume {volume} of {source} was never promoted"))
    }

    fn cells(&self, adopt: bool) -> Result<Cells<'_>> {
        let stop = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            // The second signal ends the program immediately; the journal has the state of everything.
            signal_hook::flag::register_conditional_shutdown(signal, 1, stop.clone())?;
            signal_hook::flag::register(signal, stop.clone())?;
        }
        Ok(Cells::new(&self.config, self.volume.as_str(), stop, adopt))
    }

    /// Resumes the recorded promotion, reports the outcome, and fails unless all cells are current.
    fn carry_on(&self, mut record: Record, cells: &Cells<'_>, _claim: &Claim) -> Result<()> {
        record.resume();
        self.journal.write(&record)?;
        let progress = Progress::new(&record);
        let promotion = Promotion::new(record, self.config.options.clone());
        let watch = |record: &Record, task: &promote::Task, trouble: Option<&promote::PromotionError>| {
            progress.update(record, task, trouble);
        };
        let mut record = run::run(promotion, cells, &self.journal, self.config.parallel, &watch)?;
        progress.end();
        source::tidy(&self.config, cells, &self.journal, &mut record)?;
        self.format.rows(&CellShown::all(&record))?;
        let volume = &self.volume;
        let late: Vec<&str> = shown::late(&record).map(|(name, _)| name).collect();
        match late.len() {
            0 => Ok(()),
            count => bail!(
                "{count} of {} cells do not have the promoted version: {}; `cellar promote resume {volume}` \
                continues",
                record.cells.len(),
                late.join(", ")
            ),
        }
    }
}

fn status(open: &Opened, ask: bool) -> Result<()> {
    let record = open.known()?;
    let mut shown = CellShown::all(&record);
    if ask {
        let mut found = asking::ask(&open.cells(false)?, &record, open.config.parallel);
        for cell in &mut shown {
            cell.add(found.remove(cell.name()).unwrap_or_default());
        }
    }
    open.format.rows(&shown)
}

fn begin(mut open: Opened, new: &New) -> Result<()> {
    let targets = targets(&open.config, new)?;
    if let Some(fanout) = new.fanout {
        open.config.options.fanout = fanout.max(1);
    }
    if let Some(copies) = new.copies {
        open.config
            .cells
            .values_mut()
            .filter(|cell| cell.sites.is_empty())
            .for_each(|cell| cell.copies = copies);
    }
    let claim = open.journal.claim()?;
    let cells = open.cells(new.adopt)?;
    let located = source::locate(&open.config, &cells, open.volume.as_str())?;
    let known = open.journal.read()?;
    let mut record = known
        .unwrap_or_else(|| Record::new(open.volume.as_str(), &open.config.source, located.read_write().0));
    record.volume_id = located.read_write().0;
    if new.dry_run {
        let tree = Tree::new(targets.len(), open.config.options.fanout);
        return open.format.rows(&PlanShown::all(&open.config, &record, &targets, tree));
    }
    source::tidy(&open.config, &cells, &open.journal, &mut record)?;
    let (version, is_new) = source::freeze(&open.config, &cells, &open.journal, &mut record, &located)?;
    if open.format == Format::Text {
        let text = if is_new { "is promoted as" } else { "has not changed since" };
        eprintln!("{} {text} version {version}", open.volume);
    }
    record.want(version, &targets);
    for name in &targets {
        record.want_copies(name, open.config.cell(name)?.wanted_copies());
    }
    open.carry_on(record, &cells, &claim)
}

/// Returns the cells named on the command line.
fn targets(config: &Config, new: &New) -> Result<Vec<String>> {
    let mut targets = new.to.clone();
    if let Some(file) = &new.to_file {
        let text =
            std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
        let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default().trim());
        targets.extend(lines.filter(|line| !line.is_empty()).map(str::to_owned));
    }
    if targets.is_empty() {
        bail!("no target cell given; use --to CELL... or --to-file FILE");
    }
    let mut unique: Vec<String> = Vec::new();
    for target in targets {
        config.cell(&target)?;
        if target == config.source {
            bail!("{target} is the source cell; use `cellar volume release` for read-only volumes there");
        }
        if !unique.contains(&target) {
            unique.push(target);
        }
    }
    Ok(unique)
}

fn resume(open: &Opened, dry_run: bool) -> Result<()> {
    let claim = open.journal.claim()?;
    if dry_run {
        let record = open.known()?;
        return open.format.rows(&CellShown::unfinished(&record));
    }
    open.carry_on(open.known()?, &open.cells(false)?, &claim)
}

fn roll_back(open: &Opened, rollback: &Rollback) -> Result<()> {
    let claim = open.journal.claim()?;
    let mut record = open.known()?;
    let everywhere =
        || record.cells.keys().filter(|name| record.cells[*name].in_use() != 0).cloned().collect();
    let names: Vec<String> = if rollback.everywhere { everywhere() } else { rollback.within.clone() };
    for name in &names {
        let in_use = record.cells.get(name).map_or(0, promote::CellRecord::in_use);
        let Some(former) = record.roll_back(name) else {
            bail!("{name} has no version before the current one; nothing was changed");
        };
        if rollback.dry_run {
            open.format.done(
                &serde_json::json!({ "cell": name, "from": in_use, "to": former, "is_done": false }),
                format!("{name} would go back from version {in_use} to {former}"),
            )?;
        }
    }
    if rollback.dry_run { Ok(()) } else { open.carry_on(record, &open.cells(false)?, &claim) }
}

fn manifest(open: &Opened, version: Option<u32>) -> Result<()> {
    let record = open.known()?;
    let version = version.unwrap_or(record.latest);
    let signed = record.versions.get(&version).with_context(|| format!("there is no version {version}"))?;
    open.format.done(signed, serde_json::to_string_pretty(signed)?)
}

fn key(format: Format, command: &Key) -> Result<()> {
    match command {
        Key::New { file } => {
            let key = SigningKey::from_seed(&rand::random());
            write_new(file, &key.to_text())?;
            let public = key.public().to_string();
            format.done(&serde_json::json!({ "public": public }), public)
        }
        Key::Show { file } => {
            let shown = || format!("in {}", file.display());
            let key: SigningKey =
                std::fs::read_to_string(file).with_context(shown)?.parse().with_context(shown)?;
            let public = key.public().to_string();
            format.done(&serde_json::json!({ "public": public }), public)
        }
    }
}

/// Writes a new file; never overwrites an existing key.
fn write_new(file: &Path, text: &str) -> Result<()> {
    use std::io::Write as _;
    let shown = || format!("cannot make {}", file.display());
    let mut made = cellar_config::files::create_new(file).with_context(shown)?;
    writeln!(made, "{text}").and_then(|()| made.sync_all()).with_context(shown)
}
