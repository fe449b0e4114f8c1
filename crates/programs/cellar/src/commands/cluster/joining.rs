//! `cellar cluster init` and `cellar cluster join`.

use super::addresses::{Taken, joined, listed, replace};
use super::keying::check_key;
use super::moving::is_live;
use super::place::{described, record, surveyed_nodes};
use super::section::{Added, add, section, with_database_roles};
use super::{Init, Join, NodeOptions};
use crate::commands::Context;
use crate::commands::context::PACKAGED;
use crate::commands::owner_guard::OwnerGuard;
use anyhow::{Context as _, Result, bail};
use base::{BucketAddress, PartitionId};
use bucket::probe::probe_once;
use cellar_config::cluster::{host_node_name, is_of_this_machine};
use cellar_config::encryption::KeySource;
use cellar_config::{BucketSettings, ClusterSettings, Role, Settings, files};
use cellar_server::CopiedDatabases;
use cellar_server::buckets::{Around, cluster_around, connect};
use cluster::{ClusterRecord, NodeSeen, ServiceAddresses};
use disk::beneath::Folder;
use serde::Serialize;
use std::fmt::Write as _;
use std::fs;
use std::net::Ipv4Addr;
use std::os::unix::fs::{MetadataExt, chown};
use std::path::{Path, PathBuf};

/// What was done.
#[derive(Debug, Serialize)]
struct Done {
    bucket: String,
    cell: String,
    partitions: Vec<String>,
    service_addresses: Vec<Ipv4Addr>,
    node: String,
    config: PathBuf,
    /// Whether every node serves the cell's databases.
    databases: bool,
    /// Lines of the configuration that became comments.
    commented_out: Vec<String>,
    next: Vec<String>,
}

/// A configuration file.
pub(super) struct ConfigFile {
    pub(super) path: PathBuf,
    pub(super) text: String,
}

/// A configuration file as it is to be.
pub(super) struct Plan {
    pub(super) added: Added,
    pub(super) settings: Settings,
    pub(super) cluster: ClusterSettings,
}

impl ConfigFile {
    pub(super) fn read(context: &Context) -> Result<ConfigFile> {
        let path = context.config().unwrap_or(Path::new(PACKAGED)).to_owned();
        let text = fs::read_to_string(&path).with_context(|| {
            format!(
                "cannot read the configuration {}; a node needs one with the cell's name and key, and --config names \
                 it",
                path.display()
            )
        })?;
        Ok(ConfigFile { path, text })
    }

    /// Adds the section, and checks the whole file as the server would.
    fn plan(
        &self,
        command: &str,
        bucket: &BucketAddress,
        (partitions, has_databases): (&[PartitionId], bool),
        options: &NodeOptions,
    ) -> Result<Plan> {
        let node = options.node.clone().unwrap_or_else(host_node_name);
        let section = section(command, bucket, (partitions, has_databases), (&node, options))?;
        let text =
            if has_databases { with_database_roles(&self.path, &self.text)? } else { self.text.clone() };
        let added = add(&self.path, &text, &section)?;
        let settings = cellar_config::file::parse(&self.path, &added.text)?;
        let cluster = settings.cluster.clone().context("the configuration has no cluster")?;
        if options.encryption_key.is_some() {
            let keys = settings.partitions.iter().filter_map(|partition| partition.key.as_ref());
            keys.map(KeySource::load).collect::<Result<Vec<_>, _>>().context("--encryption-key")?;
        }
        Ok(Plan { added, settings, cluster })
    }

    /// Writes the address of a node with service addresses into its section, which is the end of the file: a service address
    /// that is at the machine when it starts must not be taken for its own.
    fn settle_address(&self, plan: Plan, options: &NodeOptions, service: &ServiceAddresses) -> Result<Plan> {
        let Plan { mut added, settings, cluster } = plan;
        if service.addresses().contains(&cluster.address) {
            bail!(
                "{} is a service address of the cluster; name an address of this machine alone with --address",
                cluster.address
            );
        }
        if service.addresses().is_empty() || options.address.is_some() {
            return Ok(Plan { added, settings, cluster });
        }
        writeln!(added.text, "address = \"{}\"", cluster.address).expect("a string takes everything");
        let settings = cellar_config::file::parse(&self.path, &added.text)?;
        Ok(Plan { added, settings, cluster })
    }

    /// Replaces the file by itself, to know that this is possible before anything else is changed.
    pub(super) fn check_writable(&self) -> Result<()> {
        self.replace(&self.text)
    }

    /// Replaces the file, and keeps its owner and mode.
    pub(super) fn write(&self, plan: &Plan) -> Result<()> {
        self.replace(&plan.added.text)
    }

    fn replace(&self, text: &str) -> Result<()> {
        let cannot = || format!("cannot write the configuration {}", self.path.display());
        let before = fs::metadata(&self.path).with_context(cannot)?;
        files::replace(&self.path, text.as_bytes()).with_context(cannot)?;
        let now = fs::metadata(&self.path).with_context(cannot)?;
        if (now.uid(), now.gid()) != (before.uid(), before.gid()) {
            chown(&self.path, Some(before.uid()), Some(before.gid()))
                .with_context(|| format!("cannot give {} to its owner again", self.path.display()))?;
        }
        Ok(())
    }
}

/// Creates a cluster.
pub(super) fn init(context: &Context, options: &Init) -> Result<()> {
    let file = ConfigFile::read(context)?;
    let mut plan = file.plan("init", &options.bucket, (&options.partitions, false), &options.node)?;
    // There is no other node yet.
    let own = (&plan.cluster, &plan.settings.announce[..]);
    let taken = Taken { own, leases: &[], present: &ServiceAddresses::default() };
    let service = taken.check(&options.service_addresses)?;
    let fate = Fate::of_databases(&file.path, &plan.settings, options)?;
    if fate.are_shared() {
        plan = file.plan("init", &options.bucket, (&options.partitions, true), &options.node)?;
    }
    let plan = file.settle_address(plan, &options.node, &service)?;
    let bucket = &plan.cluster.bucket;
    let ids = plan.settings.partitions.iter().map(|partition| partition.id).collect();
    let record =
        ClusterRecord::new(plan.settings.cell.clone(), ids).context("a cluster needs a partition")?;
    let record = record.with_databases(fate.are_shared());
    refuse_existing(bucket, &record)?;
    check_place(&plan, options.adopt)?;
    probe(bucket)?;
    make_folders(&plan)?;
    file.check_writable()?;
    let _owner = OwnerGuard::new(&plan.settings.database_path);
    let copied = (fate == Fate::Copied).then(|| cellar_server::copy_databases(&plan.settings)).transpose()?;
    let created = cluster::create_cluster(&*connect(bucket)?, plan.cluster.folder(), &record)
        .with_context(|| format!("cannot create the cluster in {}", described(bucket)))?;
    if created != record {
        return Err(exists(bucket, &created));
    }
    if !service.addresses().is_empty() {
        replace(bucket, &service)?;
    }
    file.write(&plan)?;
    let copied = copied.map(CopiedDatabases::finish).transpose()?;
    let mut next = vec![start(&file.path)];
    next.push(format!(
        "on each further node, with the cell's key: cellar cluster join {}, with the same options for the bucket",
        bucket.address
    ));
    done(context, &file, (&plan, &service), (fate.lines(&plan.settings, copied), next))
}

/// Where the databases of a server are that creates a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// It has none: they are on other servers.
    None,
    /// They stay on its disk.
    Local,
    /// They will be in the bucket, and are new.
    New,
    /// They are copied to the bucket.
    Copied,
}

impl Fate {
    fn of_databases(path: &Path, settings: &Settings, options: &Init) -> Result<Fate> {
        Ok(match (is_database_server(settings), settings.database_path.exists()) {
            (false, _) if options.databases => bail!(
                "{}: this server does not have the cell's databases, so they cannot be moved into the bucket; that needs \
                 the roles \"pt\" and \"vl\" in `server.roles`, and no other servers in `cell.database_servers`",
                path.display()
            ),
            (false, _) => Fate::None,
            (true, _) if options.local_databases => Fate::Local,
            (true, true) if options.databases => Fate::Copied,
            (true, true) => Fate::Local,
            (true, false) => Fate::New,
        })
    }

    fn are_shared(self) -> bool {
        matches!(self, Fate::New | Fate::Copied)
    }

    /// Describes it for the administrator.
    fn lines(self, settings: &Settings, copied: Option<u64>) -> Vec<String> {
        let path = settings.database_path.display();
        match self {
            Fate::None => Vec::new(),
            Fate::Local => vec![format!(
                "the cell's databases stay in {path}, on this machine only (--databases would move them into the bucket)"
            )],
            Fate::New => vec!["the cell's databases will be in the bucket, served by every node".into()],
            Fate::Copied => vec![moved(settings, copied.unwrap_or_default())],
        }
    }
}

/// Whether this server alone has the cell's databases.
pub(super) fn is_database_server(settings: &Settings) -> bool {
    let has_roles = [Role::Pt, Role::Vl].iter().all(|role| settings.roles.contains(role));
    has_roles && settings.other_database_servers().is_empty()
}

/// Says that the databases were copied to the bucket.
pub(super) fn moved(settings: &Settings, records: u64) -> String {
    format!(
        "the cell's databases are in the bucket now, served by every node: {records} records were copied; those in {} are \
         not used any more",
        settings.database_path.display()
    )
}

/// Makes a server a node.
pub(super) fn join(context: &Context, options: &Join) -> Result<()> {
    let file = ConfigFile::read(context)?;
    let bucket = options.node.reach.settings(options.bucket.clone())?;
    let record = record(&bucket)?.with_context(|| {
        format!(
            "there is no cluster in {}; create it on its first node with `cellar cluster init {}`",
            described(&bucket),
            bucket.address
        )
    })?;
    let service = listed(&bucket)?;
    let partitions = record.partitions();
    let contents = (&partitions[..], record.has_databases());
    let plan = file.plan("join", &options.bucket, contents, &options.node)?;
    let plan = file.settle_address(plan, &options.node, &service)?;
    check_cell(&file.path, &plan.settings, &record)?;
    if record.has_databases() {
        check_own_databases(&file.path, &plan.settings)?;
    } else if !options.databases {
        check_databases(&file.path, &plan.settings)?;
    }
    let nodes = surveyed_nodes(&plan.cluster.bucket)?.nodes;
    check_name(&plan.cluster, &nodes)?;
    let untried = check_key(&plan.settings, &nodes)?;
    probe(&plan.cluster.bucket)?;
    make_folders(&plan)?;
    file.write(&plan)?;
    let shared = "it serves the cell's databases, which are in the bucket";
    let lines = record.has_databases().then(|| shared.to_owned()).into_iter().chain(untried).collect();
    done(context, &file, (&plan, &service), (lines, vec![start(&file.path)]))
}

/// Refuses a server that has databases of its own, which would not be used any more.
pub(super) fn check_own_databases(path: &Path, settings: &Settings) -> Result<()> {
    if settings.database_path.exists() {
        bail!(
            "{}, `server.state`: this server has databases of its own in {}, and the cell's databases are in the bucket. If \
             nothing in its own ones is needed, move that folder away",
            path.display(),
            settings.database_path.display()
        );
    }
    Ok(())
}

/// Refuses a place that has a cluster, unless it is this one and no node has been started: then an earlier attempt has
/// failed after it was created.
fn refuse_existing(bucket: &BucketSettings, record: &ClusterRecord) -> Result<()> {
    let found = cluster::read_cluster(&*connect(bucket)?, bucket.address.prefix())
        .with_context(|| format!("cannot read {}", described(bucket)))?;
    let Some(found) = found else { return Ok(()) };
    let is_unused = found == *record && surveyed_nodes(bucket)?.nodes.is_empty();
    if is_unused { Ok(()) } else { Err(exists(bucket, &found)) }
}

/// Refuses a place that another cluster or a partition has, and folders with data unless they are to be adopted.
fn check_place(plan: &Plan, adopt: bool) -> Result<()> {
    let bucket = &plan.cluster.bucket;
    let cannot_read = || format!("cannot read {}", described(bucket));
    if let Some(Around { address, record }) = cluster_around(bucket).with_context(cannot_read)?
        && address != bucket.address
    {
        bail!(
            "{} belongs to the cluster of the cell {} in {address}; choose another place",
            bucket.address,
            record.cell
        );
    }
    let place = [bucket.address.prefix().parse()?];
    let owners = cluster::read_owners(&*connect(bucket)?, &place).with_context(cannot_read)?;
    if owners.iter().any(|(_, owner)| owner.is_some()) {
        bail!("{} is a partition of another server; choose another place", described(bucket));
    }
    for id in plan.settings.partitions.iter().map(|partition| partition.id).filter(|_| !adopt) {
        check_vacant(&plan.cluster, id)?;
    }
    Ok(())
}

/// Refuses a partition whose folder has data.
pub(super) fn check_vacant(cluster: &ClusterSettings, id: PartitionId) -> Result<()> {
    let bucket = &cluster.bucket;
    let vacant = cluster::is_vacant(&*connect(bucket)?, &cluster.partition(id))
        .with_context(|| format!("cannot read {}", described(bucket)))?;
    if !vacant {
        bail!(
            "there is data in the folder {} of {}, perhaps of a partition that was removed: --adopt takes it, with all volumes that \
             may be there; or delete the folder",
            id.letters(),
            described(bucket)
        );
    }
    Ok(())
}

fn exists(bucket: &BucketSettings, found: &ClusterRecord) -> anyhow::Error {
    anyhow::anyhow!(
        "there is a cluster in {} already, of the cell {} with the partitions {}; add this server to it with `cellar \
         cluster join {}`, or choose another place",
        described(bucket),
        found.cell,
        letters(&found.partitions()),
        bucket.address
    )
}

pub(super) fn letters(partitions: &[PartitionId]) -> String {
    partitions.iter().map(|partition| partition.letters()).collect::<Vec<_>>().join(", ")
}

fn probe(bucket: &BucketSettings) -> Result<()> {
    let probed = probe_once(connect(bucket)?, bucket.address.prefix());
    probed.map(drop).with_context(|| format!("{} can hold no cluster", described(bucket)))
}

/// Refuses a server of another cell.
fn check_cell(path: &Path, settings: &Settings, record: &ClusterRecord) -> Result<()> {
    if settings.cell != record.cell {
        bail!(
            "{}, `cell.name`: this server is in the cell {}, and the cluster is of the cell {}",
            path.display(),
            settings.cell,
            record.cell
        );
    }
    Ok(())
}

/// Refuses databases on a node that joins: it would have its own, apart from those of the first node.
fn check_databases(path: &Path, settings: &Settings) -> Result<()> {
    if settings.roles.contains(&Role::Pt) || settings.roles.contains(&Role::Vl) {
        bail!(
            "{}, `server.roles`: with \"pt\" and \"vl\" this node would have databases of its own. Set `roles = \
             [\"fs\", \"vol\", \"bos\"]`, and `cell.database_servers` to the machines that have the cell's databases; or, if this is the one that has \
             them, add --databases",
            path.display()
        );
    }
    Ok(())
}

/// Refuses the name of a node that runs.
fn check_name(cluster: &ClusterSettings, nodes: &[NodeSeen]) -> Result<()> {
    if nodes.iter().any(|seen| seen.record.node == cluster.node && is_live(seen)) {
        bail!("a node with the name `{}` runs already; give this one another name with --node", cluster.node);
    }
    Ok(())
}

/// Creates the folders of the partitions and databases in a bucket that is a folder, for the owner of that one.
pub(super) fn make_folders(plan: &Plan) -> Result<()> {
    let Some(above) = plan.cluster.bucket.address.folder() else { return Ok(()) };
    let partitions = plan.settings.partitions.iter().filter_map(|partition| partition.place.bucket());
    for bucket in partitions.chain(plan.cluster.databases.as_deref()) {
        let Some(folder) = bucket.address.folder() else { continue };
        if folder.is_dir() {
            continue;
        }
        let cannot = || format!("cannot create {}", folder.display());
        files::make_folder(folder).with_context(cannot)?;
        // A partition may be elsewhere.
        if let Ok(below) = folder.strip_prefix(above) {
            let above = Folder::open(&above.join("")).with_context(cannot)?;
            above.give_path_to_owner(below).with_context(cannot)?;
        }
    }
    Ok(())
}

/// Returns what starts the server with this configuration.
pub(super) fn start(config: &Path) -> String {
    if config == Path::new(PACKAGED) {
        "start this node, or restart it: systemctl enable cellar && systemctl restart cellar".into()
    } else {
        format!("start this node: cellar serve --config {}", config.display())
    }
}

/// Prints what was done.
pub(super) fn done(
    context: &Context,
    file: &ConfigFile,
    (plan, service): (&Plan, &ServiceAddresses),
    (more, next): (Vec<String>, Vec<String>),
) -> Result<()> {
    let (cluster, partitions) = (&plan.cluster, &plan.settings.partitions);
    let ids: Vec<PartitionId> = partitions.iter().map(|partition| partition.id).collect();
    let mut lines = vec![format!(
        "{} is the node {} of the cluster in {}, with the partitions {}",
        file.path.display(),
        cluster.node,
        described(&cluster.bucket),
        letters(&ids)
    )];
    lines.extend(more);
    lines.extend(
        plan.added
            .removed
            .iter()
            .map(|line| format!("now a comment, since its folder does not exist: {line}")),
    );
    if cluster.bucket.address.folder().is_none() && cluster.bucket.credentials_file.is_none() {
        lines.push(
            "there is no `credentials_file`: the server takes the key from its own environment, or from the machine's \
             metadata service"
                .into(),
        );
    }
    if !service.addresses().is_empty() {
        lines.push(format!(
            "clients call {}; the server needs CAP_NET_ADMIN and CAP_NET_RAW to have them (docs/guide/cluster.md)",
            joined(service)
        ));
    }
    if !is_of_this_machine(cluster.address) {
        lines.push(format!(
            "this machine has no address {}, at which the others are to call it: correct `address` in {}, unless it is translated",
            cluster.address,
            file.path.display()
        ));
    }
    lines.extend(next.iter().map(|step| format!("next, {step}")));
    let done = Done {
        bucket: cluster.bucket.address.to_string(),
        cell: plan.settings.cell.to_string(),
        partitions: ids.iter().map(|id| id.letters()).collect(),
        service_addresses: service.addresses().to_vec(),
        node: cluster.node.to_string(),
        config: file.path.clone(),
        databases: cluster.databases.is_some(),
        commented_out: plan.added.removed.clone(),
        next,
    };
    context.format.done(&done, lines.join("\n"))
}
