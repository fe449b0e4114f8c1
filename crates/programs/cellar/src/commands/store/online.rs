//! `cellar store check --on`: a check that a running server carries out itself.

use super::{Bar, Check, Checked, Found, finish};
use crate::commands::context::{Connect, Context};
use crate::output::Format;
use afs_idl::ClientConnection;
use afs_idl::cellar::{
    self, CheckCounts, GetCheckDamagesRequest, GetCheckReply, GetCheckRequest, GetServerInfoRequest,
    StartCheckRequest, StopCheckRequest,
};
use anyhow::{Context as _, Result, anyhow, bail};
use base::PartitionId;
use cell_client::describe::failed;
use cell_client::{CellClient, Interface};
use clap::Args;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};
use volume_check::{Progress, Stage};

/// Interval between requests for the progress.
const POLL: Duration = Duration::from_millis(300);
/// Interval between writes of the progress file.
const SAVE: Duration = Duration::from_secs(2);

/// Options of a check by a running server.
#[derive(Args)]
pub(super) struct Online {
    /// Have this running file server check its partitions itself while it serves.
    #[arg(long, value_name = "ADDRESS")]
    pub(super) on: Option<Ipv4Addr>,
    /// Maximum share of time that the check may use, in percent.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=100), requires = "on")]
    percent: u32,
    /// Record progress in this file, and continue from it if an earlier check was interrupted.
    #[arg(long, value_name = "FILE", requires = "on")]
    resume: Option<PathBuf>,
}

/// Counts and damages.
#[derive(Clone, Default, Serialize, Deserialize)]
struct Part {
    vnodes: u64,
    chunks_read: u64,
    damage_count: u64,
    damages: Vec<Found>,
}

/// Progress of the check of a partition.
#[derive(Clone, Default, Serialize, Deserialize)]
struct Saved {
    data: bool,
    volume: u32,
    segment: u64,
    offset: u64,
    found: Part,
}

/// Progress by partition.
type Notes = BTreeMap<String, Saved>;

/// Checks partitions of the server at `on`.
pub(super) fn run(check: &Check, on: Ipv4Addr) -> Result<()> {
    let context = Context::new(&Connect::to_the_cell(check.config.clone(), check.json));
    let client = context.client()?;
    let connection = client.connection(on, Interface::Cellar);
    let mut all = Vec::new();
    for id in partitions(check, &client, on)? {
        all.push(Run { check, connection: &*connection, id, on }.run()?);
    }
    finish(&all, if check.json { Format::Json } else { Format::Text })
}

fn partitions(check: &Check, client: &CellClient, on: Ipv4Addr) -> Result<Vec<PartitionId>> {
    let given = check.partitions.iter().map(|path| {
        let name = path.to_string_lossy();
        name.parse::<PartitionId>().map_err(|error| anyhow!("{name}: {error}"))
    });
    let given: Vec<PartitionId> = given.collect::<Result<_>>()?;
    if !given.is_empty() {
        return Ok(given);
    }
    server_partitions(client, on)
}

/// Returns the partitions of a server.
pub(super) fn server_partitions(client: &CellClient, on: Ipv4Addr) -> Result<Vec<PartitionId>> {
    let connection = client.connection(on, Interface::Cellar);
    let info = cellar::get_server_info(&*connection, &GetServerInfoRequest)
        .map_err(failed(format!("ask {on} for its partitions (only from Cellar servers)")))?;
    Ok(info.partitions.iter().filter_map(|partition| PartitionId::from_index(partition.id)).collect())
}

/// The check of one partition.
struct Run<'a> {
    check: &'a Check,
    connection: &'a dyn ClientConnection,
    id: PartitionId,
    on: Ipv4Addr,
}

impl Run<'_> {
    fn run(&self) -> Result<Checked> {
        let resume = self.check.online.resume.as_deref();
        let before = self.begin_from(resume)?;
        self.start(&before, resume.is_some())?;
        let bar = Bar::new();
        let mut found = Part::default();
        let mut saved = Instant::now();
        let state = loop {
            let state = self.ask()?;
            bar.show(progress(&state));
            if state.state != 1 {
                break state;
            }
            if let Some(path) = resume.filter(|_| saved.elapsed() > SAVE && state.stage > 1) {
                self.fetch(1, &state.found, &mut found)?;
                self.note(path, Some(&self.saved(&before, &state, &found)))?;
                saved = Instant::now();
            }
            thread::sleep(POLL);
        };
        bar.0.finish_and_clear();
        self.fetch(1, &state.found, &mut found)?;
        if state.state != 2 {
            if let Some(path) = resume.filter(|_| state.stage > 1) {
                self.note(path, Some(&self.saved(&before, &state, &found)))?;
            }
            let why =
                if state.state == 3 { "was stopped" } else { "failed; the server's log has the reason" };
            bail!("the check of {} on {} {why}", self.id, self.on);
        }
        let mut records = Part::default();
        self.fetch(0, &state.records, &mut records)?;
        if let Some(path) = resume {
            self.note(path, None)?;
        }
        Ok(checked(self.id, &state.records, records.and(before.found).and(found)))
    }

    /// Returns the recorded position of an earlier check of the same kind.
    fn begin_from(&self, resume: Option<&Path>) -> Result<Saved> {
        let fresh = Saved { data: self.check.data, ..Saved::default() };
        let Some(path) = resume else { return Ok(fresh) };
        let known = read_notes(path)?.remove(&self.id.to_string());
        Ok(known.filter(|saved| saved.data == self.check.data).unwrap_or(fresh))
    }

    fn start(&self, from: &Saved, replaces: bool) -> Result<()> {
        let partition = self.id.index();
        let request = StartCheckRequest {
            partition,
            data: self.check.data.into(),
            percent: self.check.online.percent,
            volume: from.volume,
            segment: from.segment,
            offset: from.offset,
        };
        if self.ask()?.state == 1 {
            if !replaces {
                bail!(
                    "a check of {} on {} is already running; --resume FILE continues from its position",
                    self.id,
                    self.on
                );
            }
            cellar::stop_check(self.connection, &StopCheckRequest { partition })
                .map_err(failed(format!("end the check of {} on {} that is running", self.id, self.on)))?;
        }
        cellar::start_check(self.connection, &request)
            .map_err(failed(format!("begin the check of {} on {}", self.id, self.on)))?;
        Ok(())
    }

    fn ask(&self) -> Result<GetCheckReply> {
        let request = GetCheckRequest { partition: self.id.index() };
        let asked = cellar::get_check(self.connection, &request);
        asked.map_err(failed(format!("ask {} about the check of {}", self.on, self.id)))
    }

    /// Updates `part` to the state in `counts`; later findings are left for the next update.
    fn fetch(&self, number: u32, counts: &CheckCounts, part: &mut Part) -> Result<()> {
        while (part.damages.len() as u64) < counts.damages {
            let from = part.damages.len() as u32;
            let request = GetCheckDamagesRequest { partition: self.id.index(), part: number, from };
            let got = cellar::get_check_damages(self.connection, &request)
                .map_err(failed(format!("read the damage in {} from {}", self.id, self.on)))?;
            if got.damages.is_empty() {
                // The server limits how many damages it lists.
                break;
            }
            part.damages.extend(got.damages.iter().map(|damage| Found {
                volume: (damage.volume != 0).then_some(damage.volume),
                place: damage.place.to_string(),
                what: damage.what.to_string(),
            }));
        }
        part.damages.truncate(counts.damages as usize);
        part.damage_count = counts.damages;
        (part.vnodes, part.chunks_read) = (counts.vnodes, counts.chunks_read);
        Ok(())
    }

    fn saved(&self, before: &Saved, state: &GetCheckReply, found: &Part) -> Saved {
        Saved {
            data: self.check.data,
            volume: state.volume,
            segment: state.segment,
            offset: state.offset,
            found: before.found.clone().and(found.clone()),
        }
    }

    /// Records the progress, or removes it when the check has finished.
    fn note(&self, path: &Path, saved: Option<&Saved>) -> Result<()> {
        let mut notes = read_notes(path)?;
        notes.remove(&self.id.to_string());
        notes.extend(saved.map(|saved| (self.id.to_string(), saved.clone())));
        write_notes(path, &notes)
    }
}

impl Part {
    fn and(mut self, other: Part) -> Part {
        self.vnodes += other.vnodes;
        self.chunks_read += other.chunks_read;
        self.damage_count += other.damage_count;
        self.damages.extend(other.damages);
        self
    }
}

fn read_notes(path: &Path) -> Result<Notes> {
    match fs::read(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Notes::new()),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
        Ok(text) => serde_json::from_slice(&text)
            .with_context(|| format!("{} does not record how far a check came", path.display())),
    }
}

fn write_notes(path: &Path, notes: &Notes) -> Result<()> {
    let write = || {
        if notes.is_empty() {
            return match fs::remove_file(path) {
                Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
                _ => Ok(()),
            };
        }
        cellar_config::files::replace(path, &serde_json::to_vec_pretty(notes)?)
    };
    write().with_context(|| format!("cannot record in {} how far the check came", path.display()))
}

fn progress(state: &GetCheckReply) -> Progress {
    let stage = match state.stage {
        2 => Stage::Volumes,
        3 => Stage::Data,
        _ => Stage::Records,
    };
    Progress { stage, done: state.done, total: state.total }
}

fn checked(id: PartitionId, records: &CheckCounts, part: Part) -> Checked {
    Checked {
        partition: id.to_string(),
        volumes: records.volumes,
        groups: records.groups,
        jobs: records.jobs,
        records: records.records,
        vnodes: part.vnodes,
        chunks: records.chunks,
        chunks_read: part.chunks_read,
        chunk_bytes: records.chunk_bytes,
        dead_bytes: records.dead_bytes,
        damage_count: part.damage_count,
        damages: part.damages,
    }
}
