//! The cluster that the server belongs to, as its bucket describes it.

use super::Examined;
use crate::commands::cluster::observe;
use anyhow::Context as _;
use cell_client::CellClient;
use cell_client::describe::failed;
use cellar_config::Settings;

/// Observes the cluster of a node. `own` are the server's settings, if they are known.
pub(super) fn look(own: Option<&Settings>, client: &CellClient, examined: &mut Examined) {
    let Some((settings, cluster)) = own.and_then(|own| Some((own, own.cluster.as_ref()?))) else {
        if !examined.snapshot.now.own_node.0.is_empty() {
            examined.unseen.push("the cluster's bucket: run the command on the node".to_owned());
        }
        return;
    };
    let observed = observe(settings, cluster, client).context("the cluster");
    let observed = observed.inspect_err(|error| examined.unseen.push(format!("{error:#}"))).ok();
    let Some((cluster, addresses)) = observed else { return };
    let table = client.file_server_table().map_err(failed("list the file servers of the cell"));
    let table = examined.seen("the registration of the nodes", table);
    let registered = table.into_iter().flatten().collect();
    examined.snapshot.registration.absent = addresses.absent(&registered);
    examined.snapshot.cluster = Some(cluster);
}
