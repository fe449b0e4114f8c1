//! Opens a partition in a bucket.

use super::lease::{Holder, Lease};
use super::{Claim, Held, OpenDatabases, Ownership, Way};
use crate::known::KnownPartitions;
use crate::stores::databases_config;
use anyhow::{Context, Result, anyhow};
use bucket::probe::probe_once;
use bucket::{Access, ReadCredentials};
use bucket_partition::{BucketConfig, LocalCache};
use cellar_config::encryption::KeySource;
use cellar_config::{BucketSettings, PartitionSettings};
use disk::{Disk, RealDisk};
use object_store::ObjectStore;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;
use store::{BucketMeter, Inspection, MasterKey, Partition, PartitionConfig, Tenure};
use volume::listed_hosts;

/// How long a command waits for a partition that a server has, or had when it died.
const OFFLINE_PATIENCE: Duration = Duration::from_secs(15);

/// Returns how a bucket is reached.
///
/// # Errors
/// If a file of the settings cannot be read.
pub fn access(settings: &BucketSettings) -> Result<Access> {
    let credentials = settings.credentials_file.as_ref().map(|_| {
        let settings = settings.clone();
        let read: ReadCredentials = Arc::new(move || {
            let bytes = settings.credentials().map_err(|error| format!("{error:#}"))?;
            bytes.ok_or_else(|| "there is no credentials file".into())
        });
        read
    });
    Ok(Access {
        endpoint: settings.endpoint.clone(),
        region: settings.region.clone(),
        authorities: settings.authorities()?,
        allow_http: settings.allow_http,
        credentials,
    })
}

/// Sets up a client of a bucket. Each runtime needs one of its own.
///
/// # Errors
/// If a file of the settings cannot be read, or the folder does not exist.
pub fn connect(settings: &BucketSettings) -> Result<Arc<dyn ObjectStore>> {
    Ok(bucket::open(&settings.address, &access(settings)?)?)
}

fn options(
    settings: &BucketSettings,
    (disk, meter): (&Arc<dyn Disk>, &Arc<BucketMeter>),
    tenure: Tenure,
) -> BucketConfig {
    let cache = settings.cache.clone();
    BucketConfig {
        cache: cache.map(|folder| LocalCache { folder, bytes_max: settings.cache_bytes }),
        size_bytes: settings.size_bytes,
        tenure,
        disk: Arc::clone(disk),
        meter: Arc::clone(meter),
        ..BucketConfig::default()
    }
}

/// Returns how a partition that another node has is read.
pub(crate) fn local_options(settings: &BucketSettings) -> BucketConfig {
    let disk: Arc<dyn Disk> = Arc::new(RealDisk);
    options(settings, (&disk, &Arc::default()), Tenure::default())
}

/// Waits until this server owns the partition, and opens it; a new one only if the bucket passes the probe, or has passed it when
/// the cluster was created. Returns
/// `None` soon after `ending` is set during the wait.
pub(super) fn open(partition: &PartitionSettings, way: &Way, ending: &AtomicBool) -> Result<Option<Held>> {
    let settings = partition.place.bucket().context("not a partition in a bucket")?;
    let key = partition.key.as_ref().map(KeySource::load).transpose()?;
    let Some(owned) = open_owned((settings, Some(partition)), key.as_ref(), way, ending)? else {
        return Ok(None);
    };
    let Owned { claim, ownership, partition: opened } = owned;
    let owed = if way.resets_clients {
        listed_hosts(&*opened.meta()).context("cannot read which clients hold promises")?
    } else {
        Vec::new()
    };
    let ownership = Some(ownership);
    Ok(Some(Held { id: partition.id, partition: opened, ownership, owed, _claim: Some(claim) }))
}

/// Waits until this server owns the cell's databases, and opens them, as [`open`] does a partition.
pub(crate) fn open_databases(
    settings: &BucketSettings,
    way: &Way,
    ending: &AtomicBool,
) -> Result<Option<OpenDatabases>> {
    let owned = open_owned((settings, None), None, way, ending)?;
    Ok(owned.map(|Owned { partition, ownership, claim }| OpenDatabases {
        partition,
        ownership,
        _claim: claim,
    }))
}

/// What was opened. The claim is dropped last.
struct Owned {
    ownership: Arc<dyn Ownership>,
    partition: Arc<Partition>,
    claim: Claim,
}

/// Waits for the ownership of what is at a place, the databases or a partition, and opens it.
fn open_owned(
    (settings, partition): (&BucketSettings, Option<&PartitionSettings>),
    key: Option<&MasterKey>,
    way: &Way,
    ending: &AtomicBool,
) -> Result<Option<Owned>> {
    let (addresses, process_file) = (&way.addresses[..], way.process_file.clone());
    let holder = Holder { addresses, process_file, node: way.node.as_ref() };
    let Some(mut lease) = Lease::acquire(settings, holder, ending)? else { return Ok(None) };
    let suspended = match &way.node {
        Some(node) => Some(node.suspend_reads(&settings.lease_place()?.1)),
        None => None,
    };
    let options = options(settings, (&way.disk, &way.meter), lease.tenure());
    let partition = Arc::new(open_with((settings, partition), way, &options, key)?);
    let ownership = lease.opened(&partition);
    Ok(Some(Owned { ownership, partition, claim: Box::new((lease, suspended)) }))
}

fn open_with(
    (settings, partition): (&BucketSettings, Option<&PartitionSettings>),
    way: &Way,
    options: &BucketConfig,
    key: Option<&MasterKey>,
) -> Result<Partition> {
    let address = &settings.address;
    // The errors already name their causes.
    let named = |error: store::StoreError| anyhow!("{error}");
    let exists = || bucket_partition::exists(connect(settings)?, address, options).map_err(named);
    let config = match partition {
        Some(partition) => way.known.config(partition, &way.config, exists, || is_new(settings))?,
        None => way.config.clone(),
    };
    if config.create && !exists()? && !is_tested(settings) {
        let probed = probe_once(connect(settings)?, address.prefix());
        let report = probed.with_context(|| format!("no partition is created in {address}"))?;
        if report.has_versions {
            tracing::warn!(%address, "{}", bucket::probe::VERSIONS_KEPT);
        }
    }
    let opened = bucket_partition::open(connect(settings)?, address, &config, options, key).map_err(named)?;
    // Also if another node has created it, and ended before it was deleted.
    if config.create
        && let Err(error) = forget_new(settings)
    {
        tracing::warn!(%address, "cannot delete the object that says that the partition is new: {error:#}");
    }
    Ok(opened)
}

/// Whether a partition of a cluster was added without data, and not created yet.
fn is_new(settings: &BucketSettings) -> Result<bool> {
    if settings.leases.is_none() {
        return Ok(false);
    }
    let (cluster, place) = settings.lease_place()?;
    Ok(cluster::was_added_empty(&*connect(&cluster)?, &place)?)
}

/// From now on, that there is no data means that it was lost.
fn forget_new(settings: &BucketSettings) -> Result<()> {
    if settings.leases.is_none() {
        return Ok(());
    }
    let (cluster, place) = settings.lease_place()?;
    Ok(cluster::forget_added_empty(&*connect(&cluster)?, &place)?)
}

/// Whether the bucket was tested when the cluster was created (`cellar cluster init`), and when this node joined it.
fn is_tested(settings: &BucketSettings) -> bool {
    let Some(leases) = &settings.leases else { return false };
    let place = BucketSettings { address: leases.address.clone(), ..settings.clone() };
    let read = || Ok::<_, anyhow::Error>(cluster::read_cluster(&*connect(&place)?, place.address.prefix())?);
    matches!(read(), Ok(Some(_)))
}

/// Calls `work` with a flag that is set after [`OFFLINE_PATIENCE`].
fn with_patience<T>(work: impl FnOnce(&AtomicBool) -> Result<Option<T>>) -> Result<T> {
    let is_late = AtomicBool::new(false);
    let (done, is_done) = channel::<()>();
    let result = std::thread::scope(|scope| {
        let flag = &is_late;
        scope.spawn(move || {
            let ended = is_done.recv_timeout(OFFLINE_PATIENCE);
            flag.store(ended == Err(RecvTimeoutError::Timeout), Ordering::Relaxed);
        });
        let result = work(flag);
        drop(done);
        result
    });
    result?.with_context(|| {
        format!("a server has it, or the bucket does not answer; gave up after {OFFLINE_PATIENCE:?}")
    })
}

/// Opens a partition for a command while no server runs.
///
/// # Errors
/// If a server has it open.
pub(crate) fn open_offline(
    partition: &PartitionSettings,
    config: &PartitionConfig,
    known: KnownPartitions,
) -> Result<Held> {
    let way = Way { known, ..Way::of_command(config.clone()) };
    with_patience(|is_late| open(partition, &way, is_late))
}

/// Opens the databases of a cluster for a command while no node serves them.
///
/// # Errors
/// If a node has them open.
pub(crate) fn open_databases_offline(settings: &BucketSettings) -> Result<OpenDatabases> {
    let way = Way::of_command(databases_config());
    with_patience(|is_late| open_databases(settings, &way, is_late))
}

/// Changes the keys of a partition while no server has it; see [`bucket_partition::rekey`].
///
/// # Errors
/// If there is none, a server has it open, or `masters.0` is not its key.
pub fn rekey(settings: &BucketSettings, masters: (&MasterKey, &MasterKey), adds_key: bool) -> Result<usize> {
    let options = BucketConfig { cache: None, ..local_options(settings) };
    let address = &settings.address;
    let named = |error: store::StoreError| anyhow!("{error}");
    if !bucket_partition::exists(connect(settings)?, address, &options).map_err(named)? {
        return Err(anyhow!("there is no partition in {address} yet"));
    }
    let _lease = with_patience(|is_late| Lease::acquire(settings, Holder::COMMAND, is_late))?;
    bucket_partition::rekey(connect(settings)?, address, &options, masters, adds_key).map_err(named)
}

/// Opens a partition for a check, which changes nothing in it. No server opens it while the claim is kept.
///
/// # Errors
/// If there is none, it cannot be read, or a server has it open.
pub fn inspect(settings: &BucketSettings, key: Option<&MasterKey>) -> Result<(Inspection, Claim)> {
    let options = BucketConfig { cache: None, ..local_options(settings) };
    let address = &settings.address;
    let named = |error: store::StoreError| anyhow!("{error}");
    if !bucket_partition::exists(connect(settings)?, address, &options).map_err(named)? {
        return Err(anyhow!("there is no partition in {address} yet"));
    }
    let lease = with_patience(|is_late| Lease::acquire(settings, Holder::COMMAND, is_late))?;
    let found = bucket_partition::inspect(connect(settings)?, address, &options, key).map_err(named)?;
    Ok((found, Box::new(lease)))
}
