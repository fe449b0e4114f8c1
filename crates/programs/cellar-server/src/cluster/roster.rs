//! The partitions of the cluster as the bucket names them, which this node follows while it runs (docs/design/cluster.md, "Partitions
//! that are added and removed").

use super::folder::Folder;
use super::node::Node;
use crate::buckets::{Keeper, connect};
use crate::known::KnownPartitions;
use crate::observed::Observatory;
use crate::stores::Meters;
use crate::threads::{thread, wait};
use anyhow::{Context, Result, bail};
use base::{Monotonic, PartitionId};
use cellar_config::cluster::common_key;
use cellar_config::{ClusterSettings, PartitionSettings, Settings};
use cluster::{ClusterRecord, PartitionState, cluster_record};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Interval at which the record is read. A node relies on what it has read for several intervals.
const PERIOD: Duration = Duration::from_secs(2);

/// Interval while partitions are being added or removed, and after a failure.
const BUSY_PERIOD: Duration = Duration::from_millis(500);

/// For how long the bucket may take to answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// How long a partition that is being added counts as one that may contain volumes. The command that adds it is done by then, or has
/// given up.
const ADDED_WITHIN: Duration = Duration::from_secs(60);

fn folder(cluster: &ClusterSettings) -> Result<Folder> {
    Folder::new(connect(&cluster.bucket)?, cluster.folder())
}

/// Returns the record, if there is one.
fn read(folder: &Folder) -> Result<Option<ClusterRecord>> {
    folder.ask(PATIENCE, async |client, name| cluster_record(client, name).await)
}

/// Returns the settings of a node with the partitions that the cluster has, whatever the configuration lists. Waits for the bucket
/// until `interrupted`.
///
/// # Errors
/// If the bucket's client cannot be set up, or the wait was interrupted.
pub(crate) fn with_listed_partitions(
    settings: &Arc<Settings>,
    interrupted: &AtomicBool,
) -> Result<Arc<Settings>> {
    let Some(cluster) = &settings.cluster else { return Ok(Arc::clone(settings)) };
    let (folder, mut last) = (folder(cluster)?, String::new());
    let record = loop {
        match read(&folder) {
            // A cluster that was not created by a command has the partitions of the configuration.
            Ok(None) => return Ok(Arc::clone(settings)),
            Ok(Some(record)) => break record,
            Err(error) => {
                let error = format!("{error:#}");
                if error != last {
                    tracing::error!(error, "a node needs the list of the cluster's partitions; trying again");
                }
                last = error;
            }
        }
        if !wait(interrupted, BUSY_PERIOD) {
            bail!("stopped while waiting for the list of the cluster's partitions: {last}");
        }
    };
    forget_absent(settings, cluster, &record);
    Ok(Arc::new(listed(settings, cluster, &record)))
}

/// Returns the settings with the partitions of the record that can be served.
fn listed(settings: &Settings, cluster: &ClusterSettings, record: &ClusterRecord) -> Settings {
    let configured = letters(settings.partitions.iter().map(|partition| partition.id));
    let known = letters(record.partitions());
    if configured != known {
        tracing::warn!(
            configured,
            cluster = known,
            "`cluster.partitions` of the configuration is outdated; the partitions of the cluster count"
        );
    }
    let served = record.states().filter(|(_, state)| *state != PartitionState::Adding);
    let mut partitions = Vec::new();
    for (id, _) in served {
        match partition_of(settings, cluster, id) {
            Ok(partition) => partitions.push(partition),
            Err(why) => tracing::error!(partition = %id, why = format!("{why:#}"), "{NOT_SERVED}"),
        }
    }
    Settings { partitions, ..settings.clone() }
}

/// What is logged of a partition that the cluster has and this node cannot serve.
const NOT_SERVED: &str = "this node does not take the partition, and only passes calls on to others";

/// Returns the settings of a partition: those of the configuration, or those that all others have.
///
/// # Errors
/// If its key is not known.
fn partition_of(
    settings: &Settings,
    cluster: &ClusterSettings,
    id: PartitionId,
) -> Result<PartitionSettings> {
    if let Some(partition) = settings.partitions.iter().find(|partition| partition.id == id) {
        return Ok(partition.clone());
    }
    let key = common_key(&settings.partitions).with_context(|| {
        let letters = id.letters();
        format!(
            "it is not known whether it is encrypted, since the others have different keys; add it to \
             `cluster.partitions`, and `[encryption.{letters}]` if it is, and restart the node"
        )
    })?;
    Ok(cluster.partition_settings(id, key.cloned())?)
}

/// Forgets partitions that this node has had, and that were removed from the cluster.
fn forget_absent(settings: &Settings, cluster: &ClusterSettings, record: &ClusterRecord) {
    let known = KnownPartitions::of(settings);
    for (id, place) in known.all() {
        if record.state(id).is_none() && place_of(cluster, id).as_ref() == Some(&place) {
            known.forget(id, &place);
        }
    }
}

/// Returns the place of a partition of the cluster as it is recorded.
fn place_of(cluster: &ClusterSettings, id: PartitionId) -> Option<String> {
    Some(cluster.partition_settings(id, None).ok()?.place.to_string())
}

fn letters(ids: impl IntoIterator<Item = PartitionId>) -> String {
    ids.into_iter().map(PartitionId::letters).collect::<Vec<_>>().join(",")
}

/// What following the partitions needs of the server.
pub(crate) struct Means {
    pub(crate) node: Arc<Node>,
    pub(crate) settings: Arc<Settings>,
    pub(crate) keeper: Arc<Keeper>,
    pub(crate) observatory: Arc<Observatory>,
}

/// The thread that follows the record.
struct Roster {
    means: Means,
    cluster: ClusterSettings,
    folder: Folder,
    /// The threads of the partitions that this node may own.
    threads: BTreeMap<PartitionId, JoinHandle<()>>,
    /// The partitions that are being added, since when that is seen.
    added: BTreeMap<PartitionId, Instant>,
    /// Those that this node cannot serve.
    unusable: BTreeSet<PartitionId>,
    /// Whether the record has been there.
    is_read: bool,
    last_error: String,
}

/// Follows the record until the end, and waits then for the threads of the partitions.
///
/// # Errors
/// If the bucket's client cannot be set up.
pub(crate) fn follow(
    means: Means,
    threads: Vec<(PartitionId, JoinHandle<()>)>,
    ending: &Arc<AtomicBool>,
) -> Result<JoinHandle<()>> {
    let cluster = means.settings.cluster.clone().context("only a node has partitions of a cluster")?;
    let folder = folder(&cluster)?;
    let threads = threads.into_iter().collect();
    let (added, unusable, last_error) = Default::default();
    let roster = Roster { means, cluster, folder, threads, added, unusable, is_read: false, last_error };
    let ending = Arc::clone(ending);
    Ok(thread("partitions", move || roster.run(&ending)))
}

impl Roster {
    fn run(mut self, ending: &AtomicBool) {
        loop {
            let period = self.look();
            if !wait(ending, period) {
                break;
            }
        }
        for (id, thread) in self.threads {
            if thread.join().is_err() {
                tracing::error!(partition = %id, "the thread of a partition panicked");
            }
        }
    }

    /// Reads the record once; returns the time until the next reading.
    fn look(&mut self) -> Duration {
        let begun = cluster::now();
        match read(&self.folder) {
            Ok(Some(record)) => {
                self.is_read = true;
                self.last_error.clear();
                self.apply(&record, begun)
            }
            Ok(None) if !self.is_read => {
                self.means.node.members().listed(begun);
                PERIOD
            }
            Ok(None) => self.failed("the object is not there any more".into()),
            Err(error) => self.failed(format!("{error:#}")),
        }
    }

    fn failed(&mut self, error: String) -> Duration {
        if error != self.last_error {
            tracing::warn!(error, "cannot read the list of the cluster's partitions; trying again");
        }
        self.last_error = error;
        BUSY_PERIOD
    }

    fn apply(&mut self, record: &ClusterRecord, begun: Monotonic) -> Duration {
        let node = Arc::clone(&self.means.node);
        for id in node.closing() {
            self.end_closing(id);
        }
        let before: BTreeMap<_, _> = node.states().into_iter().collect();
        let mut is_complete = true;
        for (id, state) in record.states() {
            if before.get(&id) != Some(&Some(state)) && !self.change(id, state) {
                is_complete = false;
                continue;
            }
            self.note_adding(id, state);
            // One that was removed is closed before this node can have it again.
            if state != PartitionState::Adding && !node.closing().contains(&id) {
                self.keep(id);
            }
        }
        for (id, state) in before {
            if state.is_some() && record.state(id).is_none() {
                tracing::info!(partition = %id, "the partition was removed from the cluster");
                node.unlist(id);
                self.added.remove(&id);
            }
        }
        if is_complete {
            node.members().listed(begun);
        }
        let is_busy = record.states().any(|(_, state)| state != PartitionState::Served);
        if is_busy || !is_complete || !node.closing().is_empty() { BUSY_PERIOD } else { PERIOD }
    }

    /// Notes the state of a partition; returns false if that failed.
    fn change(&mut self, id: PartitionId, state: PartitionState) -> bool {
        tracing::info!(partition = %id, ?state, "the partition has this state in the cluster now");
        // Without the key, the owner reads for this node.
        let readable = partition_of(&self.means.settings, &self.cluster, id).ok();
        let settings = self.cluster.partition_settings(id, None);
        let listed = settings
            .map_err(anyhow::Error::from)
            .and_then(|settings| self.means.node.list(&self.cluster, &settings, (readable.as_ref(), state)));
        if let Err(error) = &listed {
            tracing::error!(partition = %id, error = format!("{error:#}"), "the partition cannot be followed; trying again");
        }
        listed.is_ok()
    }

    /// Follows how long a partition is being added.
    fn note_adding(&mut self, id: PartitionId, state: PartitionState) {
        let Some(place) = self.means.node.place(id) else { return };
        let members = self.means.node.members();
        if state != PartitionState::Adding {
            if self.added.remove(&id).is_some() {
                members.follow(&place);
            }
        } else if self.added.entry(id).or_insert_with(Instant::now).elapsed() >= ADDED_WITHIN {
            members.disregard(&place);
        }
    }

    /// Starts the thread of a partition that this node may own.
    fn keep(&mut self, id: PartitionId) {
        if self.threads.contains_key(&id) || self.unusable.contains(&id) {
            return;
        }
        match partition_of(&self.means.settings, &self.cluster, id) {
            Ok(partition) => {
                let meters = Meters::default();
                self.means.observatory.add_partition(id, meters.clone());
                self.threads.insert(id, self.means.keeper.begin(&partition, &meters));
            }
            Err(why) => {
                tracing::error!(partition = %id, why = format!("{why:#}"), "{NOT_SERVED}");
                self.unusable.insert(id);
            }
        }
    }

    /// Ends the following of a partition that was removed, once it is closed here.
    fn end_closing(&mut self, id: PartitionId) {
        if self.threads.get(&id).is_some_and(|thread| !thread.is_finished()) {
            return;
        }
        if let Some(thread) = self.threads.remove(&id)
            && thread.join().is_err()
        {
            tracing::error!(partition = %id, "the thread of a partition panicked");
        }
        self.unusable.remove(&id);
        self.means.node.closed_for_good(id);
        self.means.observatory.remove_partition(id);
        if let Some(place) = place_of(&self.cluster, id) {
            KnownPartitions::of(&self.means.settings).forget(id, &place);
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::buckets::until;
    use crate::startup::volume_options;
    use crate::stores::meters_of;
    use clusterserver::Ownership as _;
    use disk::RealDisk;
    use std::sync::atomic::Ordering;
    use std::sync::mpsc::{Sender, channel};
    use tempfile::TempDir;
    use volume::Volumes;

    /// The thread of a partition, which ends with the sender.
    fn hanging() -> (Sender<()>, JoinHandle<()>) {
        let (sender, receiver) = channel::<()>();
        (sender, thread("hanging", move || _ = receiver.recv()))
    }

    /// The node of a cluster in a folder below this one.
    pub(in crate::cluster) fn settings(folder: &TempDir) -> Arc<Settings> {
        // It writes the cell's key.
        crate::registration::tests::settings(folder);
        let (path, bucket) = (folder.path().join("cellar.toml"), folder.path().join("bucket"));
        for letters in ["b", "d"] {
            std::fs::create_dir_all(bucket.join(letters)).unwrap();
        }
        let text = format!(
            "[cell]\nname = \"t.example\"\nkeyfile = \"KeyFileExt\"\ndatabase_servers = [\"192.0.2.9\"]\n[server]\nstate = \".\"\nroles = [\"fs\", \
             \"vol\"]\n[cluster]\nbucket = \"file://{}\"\npartitions = [\"b\"]\nnode = \"fs1\"\naddress = \"192.0.2.1\"\n",
            bucket.display()
        );
        std::fs::write(&path, text).unwrap();
        Arc::new(cellar_config::file::load(&path).unwrap())
    }

    /// Returns what follows the record, with these threads.
    fn roster(settings: &Arc<Settings>, threads: BTreeMap<PartitionId, JoinHandle<()>>) -> Roster {
        let settings = Arc::clone(settings);
        let node = Node::start(&settings).unwrap().unwrap();
        let volumes = Arc::new(Volumes::open(Vec::new(), volume_options(&settings)).unwrap());
        let keeper = Arc::new(Keeper {
            settings: Arc::clone(&settings),
            disk: Arc::new(RealDisk),
            ending: Arc::default(),
            volumes: Arc::clone(&volumes),
            partitions: Arc::default(),
            file_server: None,
            volume_server: None,
            node: Some(Arc::clone(&node)),
        });
        let observatory = Arc::new(Observatory::new(meters_of(&settings), &volumes, None, None));
        let cluster = settings.cluster.clone().unwrap();
        let (added, unusable, last_error) = Default::default();
        let folder = super::folder(&cluster).unwrap();
        let means = Means { node, settings, keeper, observatory };
        Roster { means, cluster, folder, threads, added, unusable, is_read: true, last_error }
    }

    /// The folder of a partition that is free may be deleted.
    #[test]
    fn a_removed_partition_is_owned_until_it_is_closed() {
        let folder = tempfile::tempdir().unwrap();
        let settings = settings(&folder);
        let [b, d]: [PartitionId; 2] = ["b", "d"].map(|letters| letters.parse().unwrap());
        let (end_b, thread_b) = hanging();
        let mut roster = roster(&settings, [(b, thread_b)].into());
        let (node, keeper) = (Arc::clone(&roster.means.node), Arc::clone(&roster.means.keeper));
        let bucket = connect(&roster.cluster.bucket).unwrap();
        let places = [roster.cluster.partition(d)];
        let is_owned = || {
            let owners = cluster::read_owners(&*bucket, &places).unwrap();
            matches!(owners[0].1.as_ref().unwrap().holder, cluster::Holder::Owned { .. })
        };
        let one = ClusterRecord::new(settings.cell.clone(), vec![b]).unwrap();
        roster.apply(&one.clone().with(&[d], PartitionState::Served), cluster::now());
        until("it is open", || !keeper.partitions.lock().is_empty());
        let used = Arc::clone(&keeper.partitions.lock()[0].partition);
        roster.apply(&one, cluster::now());
        until("it is being closed", || keeper.partitions.lock().is_empty());
        std::thread::sleep(Duration::from_secs(7));
        assert!(is_owned() && !roster.threads[&d].is_finished());
        assert_eq!(node.members().partitions(), [roster.cluster.partition(b)], "no volume is there");
        drop(used);
        until("it is closed", || roster.threads[&d].is_finished());
        assert!(!is_owned());
        roster.apply(&one, cluster::now());
        assert!(node.place(d).is_none());
        drop(end_b);
        node.leave();
    }

    #[test]
    fn a_partition_added_again_is_known_while_it_is_closed() {
        let folder = tempfile::tempdir().unwrap();
        let settings = settings(&folder);
        let [b, d]: [PartitionId; 2] = ["b", "d"].map(|letters| letters.parse().unwrap());
        let ((end_b, thread_b), (end_d, thread_d)) = (hanging(), hanging());
        let mut roster = roster(&settings, [(b, thread_b), (d, thread_d)].into());
        let (node, ending) = (Arc::clone(&roster.means.node), Arc::clone(&roster.means.keeper.ending));
        let one = ClusterRecord::new(settings.cell.clone(), vec![b]).unwrap();
        let with = |state| one.clone().with(&[d], state);
        let long_ago = || Monotonic(cluster::now().0 - 60_000_000_000);

        roster.apply(&with(PartitionState::Served), long_ago());
        assert!(!node.is_removed(d) && node.partition_ids() == [b, d]);
        roster.apply(&one, long_ago());
        assert!(node.is_removed(d) && node.partition_ids() == [b]);
        assert_eq!(node.takes_volumes(d), Some(false));
        roster.apply(&one, long_ago());
        assert!(node.place(d).is_some() && !node.members().knows_all(), "it is still open here");

        // It was added again. This node does not have it, but knows it.
        roster.apply(&with(PartitionState::Adding), cluster::now());
        assert!(node.members().knows_all() && node.is_removed(d));
        assert!(node.place(d).is_some() && node.partition_ids() == [b], "no command is to add it yet");
        assert_eq!(node.members().partitions().len(), 2, "volumes may be there");
        roster.apply(&with(PartitionState::Served), cluster::now());
        assert_eq!((node.takes_volumes(d), node.is_removed(d)), (Some(true), true));

        // Once it is closed, it is one like the others, and was known all the time.
        drop(end_d);
        while !roster.threads[&d].is_finished() {
            std::thread::sleep(Duration::from_millis(10));
        }
        roster.apply(&with(PartitionState::Served), cluster::now());
        assert!(!node.is_removed(d) && node.closing().is_empty() && !roster.threads[&d].is_finished());
        assert!(node.partition_ids() == [b, d]);

        // A removed one is forgotten when it is closed.
        ending.store(true, Ordering::Relaxed);
        while !roster.threads[&d].is_finished() {
            std::thread::sleep(Duration::from_millis(10));
        }
        roster.apply(&one, cluster::now());
        assert!(node.place(d).is_some());
        roster.apply(&one, cluster::now());
        assert!(node.place(d).is_none() && node.closing().is_empty());
        drop(end_b);
        node.leave();
    }
}
