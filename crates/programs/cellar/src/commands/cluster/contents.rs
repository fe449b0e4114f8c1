//! What is on a partition that is to be removed from the cluster.

use super::place::described;
use super::place::servers_of;
use super::status::is_owned_by;
use crate::commands::stat::figures::{Source, look};
use afs_idl::vol;
use anyhow::{Context as _, Result, bail, ensure};
use base::{AbortCode, PartitionId};
use cell_client::describe::failed;
use cell_client::{CellClient, Interface};
use cellar_config::ClusterSettings;
use cellar_server::buckets::connect;
use cluster::NodeState;
use events::catalogue::PartitionFigures;
use observe::Table;
use std::net::Ipv4Addr;
use std::thread;
use std::time::{Duration, Instant};

/// For how long a partition may be without an owner that answers.
const ANSWERED_WITHIN: Duration = Duration::from_secs(20);

/// Interval between two questions.
const INTERVAL: Duration = Duration::from_millis(500);

/// Number of volumes that are named.
const NAMED_MAX: usize = 5;

/// What is on a partition.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Contents {
    /// Its volumes, also unfinished ones and those that wait for the deletion of another one.
    volumes: Vec<u32>,
    /// Number of transactions of the volume server.
    transactions: usize,
    /// Numbers of objects that other partitions use, and of those of other partitions that it uses.
    lent: u64,
    borrowed: u64,
}

impl Contents {
    /// Asks the owner of a partition, until it answers.
    ///
    /// # Errors
    /// If there is no owner, or it does not answer.
    pub(super) fn read(client: &CellClient, cluster: &ClusterSettings, id: PartitionId) -> Result<Contents> {
        let begun = Instant::now();
        loop {
            match Contents::read_once(client, cluster, id) {
                Err(error) if begun.elapsed() >= ANSWERED_WITHIN => return Err(error),
                Err(_) => thread::sleep(INTERVAL),
                read => return read,
            }
        }
    }

    fn read_once(client: &CellClient, cluster: &ClusterSettings, id: PartitionId) -> Result<Contents> {
        let Some(server) = owner(cluster, id)? else { return Ok(Contents::default()) };
        let volumes = client.connection(server, Interface::Volumes);
        let partition = id.index().cast_signed();
        // First: a transaction that is not open any more has created its volume, or creates none.
        let open = match vol::monitor(&*volumes, &vol::MonitorRequest) {
            Ok(reply) => reply.transactions,
            Err(AbortCode::VOLSERNO_OP) => Vec::new(),
            Err(code) => return Err(failed("list the transactions")(code)),
        };
        let request = vol::ListVolumesRequest { partition, flags: 0 };
        let listed =
            vol::list_volumes(&*volumes, &request).map_err(failed(format!("list the volumes of {id}")))?;
        let statistics = client.connection(server, Interface::Cellar);
        let (rows, _) = look::<PartitionFigures>(&*statistics, server, Source::Table(Table::Partitions))?;
        let name = id.to_string();
        let found = rows.into_iter().find(|(labels, _)| labels.first() == Some(&name));
        let (_, figures) = found.with_context(|| format!("{server} has no figures of {id} any more"))?;
        ensure!(figures.offline == 0, "{id} is not open at {server} any more");
        Ok(Contents {
            volumes: listed.entries.iter().map(|volume| volume.volume_id).collect(),
            transactions: open.iter().filter(|open| open.partition == partition).count(),
            lent: figures.lent_objects,
            borrowed: figures.borrowed_objects,
        })
    }

    /// Returns why the partition cannot be removed, with what to do.
    pub(super) fn refusal(&self, id: PartitionId) -> Option<String> {
        let Contents { volumes, transactions, lent, borrowed } = self;
        if !volumes.is_empty() {
            let named: Vec<String> = volumes.iter().take(NAMED_MAX).map(ToString::to_string).collect();
            let more = if volumes.len() > NAMED_MAX { ", ..." } else { "" };
            return Some(format!(
                "{} volumes are on it ({}{more}); move or remove them (`vos listvol SERVER {}` lists them, also unfinished ones)",
                volumes.len(),
                named.join(", "),
                id.letters()
            ));
        }
        if *transactions > 0 {
            return Some(format!(
                "{transactions} transactions are open there (`vos status`); wait for their end, or end them"
            ));
        }
        (lent + borrowed > 0).then(|| {
            format!(
                "{lent} of its objects are lent to other partitions, and {borrowed} of others are borrowed; they are copied or given \
                 back in the background (`cellar stat partitions` shows how many are left): try again later"
            )
        })
    }
}

/// Returns an address of the owner of a partition; `None` if nothing was ever there.
fn owner(cluster: &ClusterSettings, id: PartitionId) -> Result<Option<Ipv4Addr>> {
    let (bucket, place) = (&cluster.bucket, cluster.partition(id));
    let cannot = || format!("cannot read {id} in {}", described(bucket));
    let survey =
        cluster::survey(&*connect(bucket)?, cluster.folder(), std::slice::from_ref(&place), Duration::ZERO);
    let survey = survey.with_context(cannot)?;
    let owner = survey.owners.first().and_then(|(_, owner)| owner.as_ref());
    if owner.is_none() && cluster::is_vacant(&*connect(bucket)?, &place).with_context(cannot)? {
        return Ok(None);
    }
    let node = survey.nodes.iter().find(|seen| is_owned_by(seen, owner));
    let node = node.filter(|seen| seen.record.state == NodeState::Live).map(|seen| &seen.record);
    let server = node.and_then(|record| servers_of(record).first().copied());
    let Some(server) = server else {
        bail!("no running node serves {id} now, so it is not known what is on it (`cellar cluster status`)")
    };
    Ok(Some(server))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partition_that_is_used_is_not_removed() {
        let id = "d".parse().unwrap();
        let refusal = |contents: Contents| contents.refusal(id).unwrap_or_default();
        assert_eq!(Contents::default().refusal(id), None);
        let few = refusal(Contents { volumes: vec![7, 8], ..Contents::default() });
        assert!(few.contains("2 volumes are on it (7, 8)") && few.contains("vos listvol SERVER d"), "{few}");
        let many = refusal(Contents { volumes: (1..=6).collect(), ..Contents::default() });
        assert!(many.contains("6 volumes are on it (1, 2, 3, 4, 5, ...)"), "{many}");
        let open = refusal(Contents { transactions: 1, ..Contents::default() });
        assert!(open.contains("vos status"), "{open}");
        for (lent, borrowed) in [(1, 0), (0, 1)] {
            let used = refusal(Contents { lent, borrowed, ..Contents::default() });
            assert!(used.contains("cellar stat partitions"), "{used}");
        }
    }
}
