//! Transfer progress of jobs, as reported by the sending servers.

use afs_idl::cellar::{self, ListTransfersRequest, TransferInfo};
use base::AbortCode;
use cell_client::{CellClient, Interface};
use jobs::{Job, Traffic};
use std::cell::RefCell;
use std::collections::HashMap;
use std::net::Ipv4Addr;

/// Transfers within a transaction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Transfers {
    /// Total of all transfers, concurrent and consecutive.
    pub traffic: Traffic,
    /// Rate of the active transfers, in bytes per second.
    pub rate: u64,
}

/// Returns a server's transfers within one of its transactions; `None` if it has sent nothing.
pub fn traffic(
    cell: &CellClient,
    server: Ipv4Addr,
    transaction: i32,
) -> Result<Option<Transfers>, AbortCode> {
    Ok(sum(&list_transfers(cell, server)?, transaction, cell_client::network::now().0))
}

/// Returns the past and present transfers of a job, with the present rate. Servers that do not answer, or are
/// not Cellar's, are left out.
pub fn of_job(cell: &CellClient, job: &Job) -> Transfers {
    of_jobs(cell)(job)
}

/// Returns the transfers of jobs like [`of_job`]; queries each server only once.
pub fn of_jobs(cell: &CellClient) -> impl Fn(&Job) -> Transfers {
    let listed: RefCell<HashMap<Ipv4Addr, Vec<TransferInfo>>> = RefCell::default();
    let now = cell_client::network::now().0;
    move |job| {
        let mut rate = 0_u64;
        let (traffic, _) = {
            let rate = RefCell::new(&mut rate);
            job.traffic_now(|server, transaction| {
                let mut listed = listed.borrow_mut();
                let transfers =
                    listed.entry(server).or_insert_with(|| list_transfers(cell, server).unwrap_or_default());
                let sum = sum(transfers, transaction, now)?;
                **rate.borrow_mut() += sum.rate;
                Some(sum.traffic)
            })
        };
        Transfers { traffic, rate }
    }
}

/// Returns the transfers of jobs from what one server knows, through its addresses and transfers, without any
/// call. For transfers by other servers it uses the journal, which has the state after the last call.
pub fn of_server<'a>(
    addresses: &'a [Ipv4Addr],
    transfers: &'a [TransferInfo],
) -> impl Fn(&Job) -> Traffic + 'a {
    let now = cell_client::network::now().0;
    move |job| {
        let report = |server: Ipv4Addr, transaction| {
            let sum = sum(transfers, transaction, now)?;
            addresses.contains(&server).then_some(sum.traffic)
        };
        let (known, (present, _)) = (job.traffic(), job.traffic_now(report));
        if present.total >= known.total { present } else { known }
    }
}

fn list_transfers(cell: &CellClient, server: Ipv4Addr) -> Result<Vec<TransferInfo>, AbortCode> {
    let connection = cell.connection(server, Interface::CellarVolumes);
    cellar::list_transfers(&*connection, &ListTransfersRequest).map(|reply| reply.transfers)
}

fn sum(transfers: &[TransferInfo], transaction: i32, now: u32) -> Option<Transfers> {
    let of_it = transfers.iter().filter(|transfer| transfer.transaction == transaction);
    of_it.map(|transfer| one(transfer, now)).reduce(|sum, one| Transfers {
        traffic: sum.traffic + one.traffic,
        rate: sum.rate.saturating_add(one.rate),
    })
}

fn one(transfer: &TransferInfo, now: u32) -> Transfers {
    let TransferInfo { total, done, sent, .. } = *transfer;
    let seconds = now.saturating_sub(transfer.began).max(1);
    let rate = if transfer.ended == 0 { done / u64::from(seconds) } else { 0 };
    Transfers { traffic: Traffic { total, done, sent }, rate }
}

#[cfg(test)]
mod tests {
    use super::*;
    use jobs::{Operation, Place};
    use serde_json::json;

    #[test]
    fn other_servers_transfers_are_from_the_journal() {
        let [own, other] = [1, 2].map(|last| Ipv4Addr::new(10, 0, 0, last));
        let place = Place { server: own, partition: 0 };
        let job = serde_json::to_value(Job::new(1, Operation::Backup, 5, "home", place)).unwrap();
        let counted = |server, transaction| json!([{ "server": server, "transaction": transaction, "traffic": { "total": 100, "done": 40, "sent": 30 } }]);
        let with = |server: Ipv4Addr, sent: serde_json::Value| -> Job {
            let mut job = job.clone();
            job["transactions"] = json!([{ "server": server, "id": 7, "volume": 5 }]);
            job["sent"] = sent;
            serde_json::from_value(job).unwrap()
        };
        let listed =
            TransferInfo { transaction: 7, total: 100, done: 60, sent: 50, ..TransferInfo::default() };
        let (addresses, transfers) = ([own], [listed]);
        let of = of_server(&addresses, &transfers);
        let traffic = |done, sent| Traffic { total: 100, done, sent };
        assert_eq!(of(&with(own, json!([]))), traffic(60, 50), "in progress");
        assert_eq!(of(&with(own, counted(own, 7))), traffic(60, 50), "it is counted once");
        assert_eq!(
            of(&with(other, json!([]))),
            Traffic::default(),
            "the number 7 there is another transaction"
        );
        assert_eq!(of(&with(other, counted(other, 7))), traffic(40, 30));
    }

    #[test]
    fn transfers_to_several_sites_are_added_up() {
        let transfer = |transaction, ended, done| TransferInfo {
            transaction,
            began: 100,
            ended,
            total: 1000,
            done,
            sent: done / 2,
            ..TransferInfo::default()
        };
        let transfers =
            [transfer(1, 0, 500), transfer(1, 0, 100), transfer(2, 105, 1000), transfer(1, 103, 1000)];
        let one = sum(&transfers, 1, 110).unwrap();
        assert_eq!(one, Transfers { traffic: Traffic { total: 3000, done: 1600, sent: 800 }, rate: 60 });
        assert_eq!(sum(&transfers, 2, 110).unwrap().rate, 0, "it is over");
        assert_eq!(sum(&transfers, 3, 110), None);
    }
}
