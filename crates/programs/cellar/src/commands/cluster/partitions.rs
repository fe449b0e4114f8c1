//! `cellar cluster partitions`.

use super::contents::Contents;
use super::informing::Nodes;
use super::joining::{ConfigFile, Plan, check_vacant, letters, make_folders};
use super::place::{configured, described, leases, record};
use super::section::{Added, with_partitions};
use super::{AddPartitions, Partitions, PartitionsChange, RemovePartitions};
use crate::commands::Context;
use crate::output::Row;
use anyhow::{Context as _, Result, anyhow, bail};
use base::PartitionId;
use cellar_config::cluster::common_key;
use cellar_config::encryption::KeySource;
use cellar_config::{ClusterSettings, PartitionSettings, Settings, files::Exposure};
use cellar_server::buckets::connect;
use cluster::{
    ClusterRecord, Holder, NodeName, NodeRecord, NodeState, OwnerRecord, PARTITIONS_MAX, PartitionName,
    PartitionState,
};
use serde::Serialize;
use std::path::{Path, absolute};
use std::thread;
use std::time::{Duration, Instant};

/// For how long the owner of a removed partition may take to close it.
const CLOSED_WITHIN: Duration = Duration::from_secs(30);

/// Interval between two readings of the owner.
const INTERVAL: Duration = Duration::from_millis(500);

/// A partition of the cluster.
#[derive(Debug, Serialize)]
struct PartitionRow {
    partition: String,
    /// `served`, `adding` or `removing`.
    state: &'static str,
    /// Whether the configuration of this node lists it.
    configured: bool,
}

impl Row for PartitionRow {
    const COLUMNS: &'static [&'static str] = &["PARTITION", "STATE", "CONFIGURED HERE"];

    fn cells(&self) -> Vec<String> {
        let configured = if self.configured { "yes" } else { "no" };
        vec![self.partition.clone(), self.state.into(), configured.into()]
    }
}

/// What was done.
#[derive(Debug, Serialize)]
struct Done {
    /// The partitions of the cluster.
    partitions: Vec<String>,
    /// Whether the cluster was changed, or only the configuration.
    cluster_changed: bool,
    config: std::path::PathBuf,
    next: Vec<String>,
}

/// A node whose cluster is to be changed.
struct Scene<'a> {
    context: &'a Context,
    file: ConfigFile,
    settings: Settings,
    cluster: ClusterSettings,
    record: ClusterRecord,
}

pub(super) fn run(context: &Context, options: &Partitions) -> Result<()> {
    match &options.change {
        None => list(context),
        Some(PartitionsChange::Add(options)) => Scene::new(context)?.add(options),
        Some(PartitionsChange::Remove(options)) => Scene::new(context)?.remove(options),
    }
}

fn list(context: &Context) -> Result<()> {
    let (settings, cluster) = configured(context)?;
    let record = existing(&cluster)?;
    let is_configured = |id| settings.partitions.iter().any(|partition| partition.id == id);
    let row = |(id, state): (PartitionId, PartitionState)| PartitionRow {
        partition: id.to_string(),
        state: word(state),
        configured: is_configured(id),
    };
    context.format.rows(&record.states().map(row).collect::<Vec<_>>())
}

fn word(state: PartitionState) -> &'static str {
    match state {
        PartitionState::Adding => "adding",
        PartitionState::Served => "served",
        PartitionState::Removing => "removing",
    }
}

fn existing(cluster: &ClusterSettings) -> Result<ClusterRecord> {
    record(&cluster.bucket)?.with_context(|| {
        format!(
            "there is no cluster in {}: only one that was created by `cellar cluster init` has a list of partitions there",
            described(&cluster.bucket)
        )
    })
}

impl<'a> Scene<'a> {
    fn new(context: &'a Context) -> Result<Scene<'a>> {
        let (settings, cluster) = configured(context)?;
        let record = existing(&cluster)?;
        Ok(Scene { context, file: ConfigFile::read(context)?, settings, cluster, record })
    }

    /// Adds partitions.
    fn add(&self, options: &AddPartitions) -> Result<()> {
        let ids = distinct(&options.partitions);
        let new: Vec<PartitionId> =
            ids.iter().copied().filter(|id| self.record.state(*id) != Some(PartitionState::Served)).collect();
        self.check_new(&ids, &new)?;
        let key = new_key(&self.file.path, &self.settings.partitions, options.encryption_key.as_deref())?;
        let plan = self.plan(&self.record.clone().with(&ids, PartitionState::Served), key.as_ref())?;
        self.check_closed(&new)?;
        self.check_vacant(&new, options.adopt)?;
        self.file.check_writable()?;
        make_folders(&plan)?;
        if !new.is_empty() {
            self.note_empty(&new, options.adopt)?;
            self.announce(&new)?;
        }
        self.file.write(&plan)?;
        let all = self.record.clone().with(&new, PartitionState::Served).partitions();
        self.done((&all, !new.is_empty()), &plan, self.added(&ids, &new))
    }

    /// Refuses partitions that the cluster has already, unless this node's configuration does not have them.
    fn check_new(&self, ids: &[PartitionId], new: &[PartitionId]) -> Result<()> {
        let is_configured = |id: &PartitionId| self.settings.partitions.iter().any(|one| one.id == *id);
        if let Some(known) = ids.iter().find(|id| !new.contains(id) && is_configured(id)) {
            bail!("the cluster has {known} already; it has {}", letters(&self.record.partitions()));
        }
        if let Some(leaving) = new.iter().find(|id| self.record.state(**id) == Some(PartitionState::Removing))
        {
            bail!(
                "{leaving} is being removed; finish that with `cellar cluster partitions remove {}` first",
                leaving.letters()
            );
        }
        if self.record.partitions().len() + new.len() > PARTITIONS_MAX {
            bail!("a cluster has at most {PARTITIONS_MAX} partitions");
        }
        Ok(())
    }

    /// Refuses partitions that were removed and are still open at a node: it could write to the database that is created in the place
    /// of its own.
    fn check_closed(&self, new: &[PartitionId]) -> Result<()> {
        let removed: Vec<PartitionId> =
            new.iter().copied().filter(|id| self.record.state(*id).is_none()).collect();
        let open = self.open(&removed)?;
        open.first().map_or(Ok(()), |why| Err(anyhow!("no partition was added: {why}")))
    }

    /// Refuses places with data, unless it is to be adopted or an earlier attempt to add the partition was interrupted.
    fn check_vacant(&self, new: &[PartitionId], adopt: bool) -> Result<()> {
        let mut unknown = new.iter().filter(|id| !adopt && self.record.state(**id).is_none());
        unknown.try_for_each(|id| check_vacant(&self.cluster, *id))
    }

    /// Notes of new partitions without data that they are new: a node that was down may have had others there. What an earlier attempt
    /// has noted does not apply to one that has data.
    fn note_empty(&self, new: &[PartitionId], adopt: bool) -> Result<()> {
        let (bucket, client) = (&self.cluster.bucket, connect(&self.cluster.bucket)?);
        for place in new.iter().map(|id| self.cluster.partition(*id)) {
            let is_vacant = || {
                cluster::is_vacant(&*client, &place)
                    .with_context(|| format!("cannot read {}", described(bucket)))
            };
            let note =
                if !adopt && is_vacant()? { cluster::note_added_empty } else { cluster::forget_added_empty };
            note(&*client, &place).with_context(|| format!("cannot write to {}", described(bucket)))?;
        }
        Ok(())
    }

    /// Lets all nodes expect volumes in new partitions, and then serve them.
    fn announce(&self, new: &[PartitionId]) -> Result<()> {
        let nodes = Nodes::new(&self.settings, &self.cluster.bucket)?;
        let without = |record: &ClusterRecord| left(record.clone().without(new));
        if new.iter().any(|id| self.record.state(*id).is_some()) {
            // Nodes may expect no volumes any more in what an interrupted command has added.
            self.change(without, new, &[None, Some(PartitionState::Adding)])?;
            nodes.wait(new, false)?;
        }
        let adding = |record: &ClusterRecord| Ok(record.clone().with(new, PartitionState::Adding));
        self.change(adding, new, &[None])?;
        if let Err(error) = nodes.wait(new, true) {
            let undone = self.change(without, new, &[Some(PartitionState::Adding)]);
            undone.context("the partitions are still being added; repeat the command")?;
            return Err(error.context("no partition was added"));
        }
        let served = |record: &ClusterRecord| Ok(record.clone().with(new, PartitionState::Served));
        self.change(served, new, &[Some(PartitionState::Adding)])
    }

    /// Changes the record, if all these partitions have one of the states `from` now, `None` for one that the cluster does not have.
    fn change(
        &self,
        to: impl Fn(&ClusterRecord) -> Result<ClusterRecord>,
        partitions: &[PartitionId],
        from: &[Option<PartitionState>],
    ) -> Result<()> {
        let bucket = &self.cluster.bucket;
        let checked = |record: &ClusterRecord| {
            if let Some(id) = partitions.iter().find(|id| !from.contains(&record.state(**id))) {
                bail!("another administrator has changed {id} meanwhile: see `cellar cluster partitions`");
            }
            to(record).map(Some)
        };
        let changed = cluster::change_cluster(&*connect(bucket)?, self.cluster.folder(), checked)
            .with_context(|| format!("cannot change the cluster in {}", described(bucket)))??;
        changed.map(drop).with_context(|| format!("there is no cluster in {} any more", described(bucket)))
    }

    fn added(&self, ids: &[PartitionId], new: &[PartitionId]) -> Vec<String> {
        let mut lines = Vec::new();
        if new.is_empty() {
            lines.push(format!("the cluster has {} already", letters(ids)));
        } else {
            lines.push(format!("the cluster has {} now; all nodes that run follow", letters(new)));
        }
        if common_key(&self.settings.partitions).is_none() {
            lines.push(
                "the partitions have different keys, so a node serves a new one only once it is restarted with its configuration: \
                 run the command on each node, and restart it"
                    .into(),
            );
        }
        lines
    }

    /// Removes partitions.
    fn remove(&self, options: &RemovePartitions) -> Result<()> {
        let ids = distinct(&options.partitions);
        let known: Vec<PartitionId> =
            ids.iter().copied().filter(|id| self.record.state(*id).is_some()).collect();
        let is_configured = |id: &PartitionId| self.settings.partitions.iter().any(|one| one.id == *id);
        if let Some(absent) = ids.iter().find(|id| !known.contains(id) && !is_configured(id)) {
            if let Some(why) = self.open(&[*absent])?.first() {
                bail!("the cluster does not have {absent} any more, but {why}");
            }
            bail!("the cluster has no partition {absent}; it has {}", letters(&self.record.partitions()));
        }
        let rest = left(self.record.clone().without(&ids))?;
        let plan = self.plan(&rest, None)?;
        self.file.check_writable()?;
        if !known.is_empty() {
            self.retire(&known)?;
        }
        self.file.write(&plan)?;
        let open = self.await_closing(&ids)?;
        let (letters, place) = (letters(&ids), described(&self.cluster.bucket));
        let advice = match (open.is_empty(), known.is_empty()) {
            (true, false) => format!("what is left in the folder in {place} can be deleted"),
            // It need not have been one of the cluster.
            (true, true) => "no node has it open".to_owned(),
            (false, _) => format!("delete nothing in {place} yet"),
        };
        let mut lines = vec![format!("the cluster does not have {letters} any more; {advice}")];
        lines.extend(open);
        self.done((&rest.partitions(), !known.is_empty()), &plan, lines)
    }

    /// Lets no volume be created in partitions any more, and removes them if there is none.
    fn retire(&self, known: &[PartitionId]) -> Result<()> {
        const ADDING: Option<PartitionState> = Some(PartitionState::Adding);
        const SERVED: Option<PartitionState> = Some(PartitionState::Served);
        const REMOVING: Option<PartitionState> = Some(PartitionState::Removing);
        let without = |record: &ClusterRecord| left(record.clone().without(known));
        if let Some(adding) = known.iter().find(|id| self.record.state(**id) == ADDING) {
            if known.iter().any(|id| self.record.state(*id) != ADDING) {
                bail!("{adding} is still being added; remove it by a command of its own");
            }
            // No node takes them yet.
            return self.change(without, known, &[ADDING]);
        }
        let nodes = Nodes::new(&self.settings, &self.cluster.bucket)?;
        let check = || known.iter().try_for_each(|id| self.check_contents(*id));
        let is_new = known.iter().any(|id| self.record.state(*id) != Some(PartitionState::Removing));
        if is_new {
            check()?;
        }
        let removing = |record: &ClusterRecord| Ok(record.clone().with(known, PartitionState::Removing));
        self.change(removing, known, &[SERVED, REMOVING])?;
        if let Err(error) = nodes.wait(known, false).and_then(|()| check()) {
            let undo = |record: &ClusterRecord| Ok(record.clone().with(known, PartitionState::Served));
            self.change(undo, known, &[REMOVING]).context("the partitions are still being removed")?;
            return Err(error.context("no partition was removed"));
        }
        self.change(without, known, &[REMOVING])
    }

    fn check_contents(&self, id: PartitionId) -> Result<()> {
        let client = self.context.client()?;
        let contents = Contents::read(&client, &self.cluster, id)?;
        contents.refusal(id).map_or(Ok(()), |why| Err(anyhow!("{id} cannot be removed: {why}")))
    }

    /// Waits until no node has partitions open that were removed; returns what to say of those that are.
    fn await_closing(&self, removed: &[PartitionId]) -> Result<Vec<String>> {
        let begun = Instant::now();
        loop {
            let open = self.open(removed)?;
            if open.is_empty() || begun.elapsed() >= CLOSED_WITHIN {
                return Ok(open);
            }
            thread::sleep(INTERVAL);
        }
    }

    /// Returns what to say of partitions that a node may have open.
    fn open(&self, removed: &[PartitionId]) -> Result<Vec<String>> {
        let places: Vec<PartitionName> = removed.iter().map(|id| self.cluster.partition(*id)).collect();
        let owners = cluster::read_owners(&*connect(&self.cluster.bucket)?, &places)
            .with_context(|| format!("cannot read {}", described(&self.cluster.bucket)))?;
        let leases = leases(&self.cluster.bucket)?;
        Ok(still_open(&owners, &leases)
            .map(|(place, node)| format!("{node} has not closed {place} yet: see its log"))
            .collect())
    }

    /// Returns the configuration with the partitions of a record.
    fn plan(&self, record: &ClusterRecord, key: Option<&KeySource>) -> Result<Plan> {
        let text = with_partitions(&self.file.path, &self.file.text, &record.partitions(), key)?;
        let settings = cellar_config::file::parse(&self.file.path, &text)?;
        let cluster = settings.cluster.clone().context("the configuration has no cluster")?;
        if let Some(key) = key {
            key.load().context("--encryption-key")?;
        }
        Ok(Plan { added: Added { text, removed: Vec::new() }, settings, cluster })
    }

    /// Prints what was done.
    fn done(
        &self,
        (partitions, cluster_changed): (&[PartitionId], bool),
        plan: &Plan,
        mut lines: Vec<String>,
    ) -> Result<()> {
        let config = self.file.path.clone();
        let listed: Vec<PartitionId> =
            plan.settings.partitions.iter().map(|partition| partition.id).collect();
        lines.push(format!("{} lists {}", config.display(), letters(&listed)));
        let mut next = Vec::new();
        if cluster_changed {
            next.push(
                "run the command on each other node, too, so that its configuration lists the same partitions; none has to be \
                 restarted for that"
                    .to_owned(),
            );
        }
        lines.extend(next.iter().map(|step| format!("next, {step}")));
        let partitions = partitions.iter().map(|id| id.letters()).collect();
        self.context.format.done(&Done { partitions, cluster_changed, config, next }, lines.join("\n"))
    }
}

/// Returns the removed partitions that a node may have open. Their owner gives them up when it has closed them. One whose process has
/// ended has nothing open; a later membership may be that of the same process.
fn still_open<'a>(
    owners: &'a [(PartitionName, Option<OwnerRecord>)],
    leases: &'a [NodeRecord],
) -> impl Iterator<Item = (&'a PartitionName, &'a NodeName)> {
    owners.iter().filter_map(|(place, owner)| {
        let Holder::Owned { node, incarnation } = &owner.as_ref()?.holder else { return None };
        let lease = leases.iter().find(|lease| lease.node == *node)?;
        let may_run = lease.incarnation.nonce == incarnation.nonce && lease.state != NodeState::Left;
        may_run.then_some((place, node))
    })
}

/// Returns the record without removed partitions.
///
/// # Errors
/// If none remains.
fn left(rest: Option<ClusterRecord>) -> Result<ClusterRecord> {
    rest.context("a cluster has at least one partition; add another one first")
}

/// Returns partitions in order and each once.
fn distinct(partitions: &[PartitionId]) -> Vec<PartitionId> {
    let mut ids = partitions.to_vec();
    ids.sort_unstable();
    ids.dedup();
    ids
}

/// Returns the source of the key of new partitions. Nodes that run give them the key that all others have.
///
/// # Errors
/// If another one is named.
fn new_key(path: &Path, partitions: &[PartitionSettings], named: Option<&Path>) -> Result<Option<KeySource>> {
    let named = named.map(absolute).transpose()?;
    let common = common_key(partitions).map(Option::<&KeySource>::cloned);
    match (common, named) {
        (Some(common), None) => Ok(common),
        (Some(Some(common)), Some(named)) => {
            if matches!(&common, KeySource::File(path, _) if *path == named) {
                return Ok(Some(common));
            }
            bail!(
                "--encryption-key: the other partitions have {common}, and nodes that run would use that one"
            )
        }
        (Some(None), Some(_)) => bail!(
            "--encryption-key: the other partitions are not encrypted, and nodes that run would create the new ones without a key"
        ),
        (None, named) => {
            if named.is_none() {
                bail!(
                    "{}: the partitions have different keys; name one with --encryption-key",
                    path.display()
                );
            }
            Ok(named.map(|named| KeySource::File(named, Exposure::Refused)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cluster::{Epoch, Incarnation};

    #[test]
    fn a_process_that_may_run_may_have_it_open() {
        let place: PartitionName = "cell/d".parse().unwrap();
        let owned = |nonce, count| Holder::Owned {
            node: "fs1".parse().unwrap(),
            incarnation: Incarnation { nonce, count },
        };
        let lease = |state| NodeRecord {
            node: "fs1".parse().unwrap(),
            incarnation: Incarnation { nonce: 7, count: 2 },
            sequence: 1,
            state,
            ttl: Duration::from_secs(6),
            replaced: None,
            addresses: Vec::new(),
            takes_addresses: false,
        };
        let is_open = |holder: Holder, leases: &[NodeRecord]| {
            let owners = [(place.clone(), Some(OwnerRecord { epoch: Epoch(3), holder }))];
            still_open(&owners, leases).next().is_some()
        };
        let [live, dead, left] =
            [NodeState::Live, NodeState::Dead, NodeState::Left].map(|state| [lease(state)]);
        assert!(is_open(owned(7, 2), &live));
        assert!(is_open(owned(7, 1), &live), "it has lost its lease and joined again");
        assert!(is_open(owned(7, 2), &dead), "it may stand still");
        assert!(!is_open(owned(7, 2), &left) && !is_open(owned(6, 1), &live), "it has ended");
        assert!(!is_open(owned(7, 2), &[]), "it was removed");
        assert!(!is_open(Holder::Free { successor: Some("fs1".parse().unwrap()) }, &live));
        assert!(still_open(&[(place.clone(), None)], &live).next().is_none());
    }
}
