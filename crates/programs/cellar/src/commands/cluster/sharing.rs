//! `cellar cluster share-databases`.

use super::joining::{
    ConfigFile, Plan, check_own_databases, done, is_database_server, make_folders, moved, start,
};
use super::place::described;
use super::section::{Added, with_databases};
use crate::commands::Context;
use crate::commands::owner_guard::OwnerGuard;
use anyhow::{Context as _, Result, bail};
use cellar_config::Settings;
use cellar_server::CopiedDatabases;
use cellar_server::buckets::connect;
use cluster::ClusterRecord;
use std::path::Path;

/// Lets a node serve the databases in the bucket, after moving those that it has on its disk.
pub(super) fn run(context: &Context) -> Result<()> {
    let file = ConfigFile::read(context)?;
    let before = cellar_config::file::parse(&file.path, &file.text)?;
    let cluster = before.cluster.as_ref().with_context(|| {
        format!(
            "{} has no section `[cluster]`; only a node of a cluster shares databases",
            file.path.display()
        )
    })?;
    let (client, folder) = (connect(&cluster.bucket)?, cluster.folder());
    let cannot_read = || format!("cannot read the cluster in {}", described(&cluster.bucket));
    let record = cluster::read_cluster(&*client, folder).with_context(cannot_read)?;
    let record = record.with_context(|| format!("there is no cluster in {}", described(&cluster.bucket)))?;
    if cluster.databases.is_some() && record.has_databases() {
        bail!("{}: this node serves the databases in the bucket already", file.path.display());
    }
    let is_copied = has_databases_to_copy(&file.path, &before, &record)?;
    let plan = plan(&file)?;
    let service = super::addresses::listed(&cluster.bucket)?;
    make_folders(&plan)?;
    file.check_writable()?;
    let _owner = OwnerGuard::new(&plan.settings.database_path);
    let copied = is_copied.then(|| cellar_server::copy_databases(&plan.settings)).transpose()?;
    // The configuration comes last: while it is as before, the command can be repeated.
    cluster::share_databases(&*client, folder).with_context(|| {
        format!("cannot change the cluster in {}; run the command again", described(&cluster.bucket))
    })?;
    file.write(&plan)?;
    let lines = match copied.map(CopiedDatabases::finish).transpose()? {
        Some(records) => vec![moved(&plan.settings, records)],
        None => vec!["this node serves the cell's databases from the bucket".to_owned()],
    };
    let next = vec![
        start(&file.path),
        "run `cellar cluster share-databases` on each other node, and restart it; list all nodes as database servers in the \
         CellServDB of clients, or in DNS"
            .to_owned(),
    ];
    done(context, &file, (&plan, &service), (lines, next))
}

/// Whether the databases are on the disk of this server, and to be copied from there.
fn has_databases_to_copy(path: &Path, settings: &Settings, record: &ClusterRecord) -> Result<bool> {
    let has_some = settings.database_path.exists();
    if has_some && is_database_server(settings) {
        return Ok(true);
    }
    if record.has_databases() {
        check_own_databases(path, settings)?;
        return Ok(false);
    }
    bail!(
        "{}: the cell's databases are neither in the bucket nor on this server, which has none in {} or names other \
         servers in `cell.database_servers`; first run this command on the node that has them",
        path.display(),
        settings.database_path.display()
    )
}

/// Returns the configuration as it is to be.
fn plan(file: &ConfigFile) -> Result<Plan> {
    let text = with_databases(&file.path, &file.text)?;
    let settings = cellar_config::file::parse(&file.path, &text)?;
    let cluster = settings.cluster.clone().context("the configuration has no cluster")?;
    Ok(Plan { added: Added { text, removed: Vec::new() }, settings, cluster })
}
