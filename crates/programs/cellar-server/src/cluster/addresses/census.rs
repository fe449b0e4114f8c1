//! The thread that follows the list of addresses and the leases of all nodes, and decides what the addresses' threads do. It also has
//! nodes evicted that are silent for long.

use super::holder::tend;
use super::plan::{Plan, Seen, Wish};
use super::{Addresses, Entry};
use crate::cluster::folder::Folder;
use crate::threads::{thread, wait};
use anyhow::Result;
use cluster::{
    CallKind, NodeName, NodeRecord, PartitionStatus, Route, ServiceAddresses, read_nodes, service_addresses,
};
use object_store::ObjectStore;
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Interval at which the leases are read, if there are service addresses or it is not known yet which leases are renewed.
const PERIOD: Duration = Duration::from_millis(800);

/// Interval at which the leases are read otherwise.
const LEASES_PERIOD: Duration = Duration::from_secs(10);

/// Interval at which the list of addresses is read, and the pause before another attempt.
const LIST_PERIOD: Duration = Duration::from_secs(10);
const LIST_RETRY: Duration = Duration::from_secs(1);

/// For how long the bucket may take to answer.
const PATIENCE: Duration = Duration::from_secs(3);

pub(super) struct Census {
    all: Arc<Addresses>,
    folder: Folder,
    plan: Plan,
    list: Option<ServiceAddresses>,
    next_list: Instant,
    next_leases: Instant,
    threads: Vec<JoinHandle<()>>,
    errors: Errors,
    /// What was last logged, so that it is logged once.
    last_refusal: String,
}

/// The last error of each thing that is read, so that it is logged once.
#[derive(Default)]
struct Errors(BTreeMap<&'static str, String>);

impl Errors {
    /// Notes an error; returns whether it is another one than before of the same thing.
    fn is_new(&mut self, what: &'static str, error: &str) -> bool {
        self.0.insert(what, error.to_owned()).as_deref() != Some(error)
    }

    fn end(&mut self, what: &str) {
        self.0.remove(what);
    }
}

impl Census {
    pub(super) fn new(all: Arc<Addresses>, client: Arc<dyn ObjectStore>) -> Result<Census> {
        let folder = Folder::new(client, &all.folder)?;
        let plan = Plan::new(all.node.clone());
        let (errors, last_refusal) = Default::default();
        let next_list = Instant::now();
        Ok(Census {
            all,
            folder,
            plan,
            list: None,
            next_list,
            next_leases: next_list,
            threads: Vec::new(),
            errors,
            last_refusal,
        })
    }

    /// Runs until the end, and that of the addresses' threads.
    pub(super) fn run(mut self, ending: &Arc<AtomicBool>) {
        while !self.all.is_ending(ending) {
            self.look(ending);
            if !wait(&self.all.is_withdrawn, PERIOD) {
                break;
            }
        }
        self.all.withdraw();
        for thread in self.threads {
            if thread.join().is_err() {
                tracing::error!("the thread of a service address panicked");
            }
        }
    }

    fn look(&mut self, ending: &Arc<AtomicBool>) {
        self.read_list(ending);
        let Some(list) = self.list.clone() else { return };
        if list.addresses().is_empty() {
            let mut known = self.all.known.write();
            (known.registered, known.holder) = (Some(Vec::new()), None);
            known.others = Some((Instant::now(), Vec::new()));
            drop(known);
            self.read_leases(LEASES_PERIOD);
            return;
        }
        self.read_leases(Duration::ZERO);
        let takes = self.takes(&list);
        self.clean();
        if self.plan.is_ready(Instant::now()) {
            self.decide(takes, &list);
        }
    }

    /// Reads the leases of all nodes when that is due, and next after `period`.
    fn read_leases(&mut self, period: Duration) {
        if !period.is_zero() && Instant::now() < self.next_leases {
            return;
        }
        let asked = Instant::now();
        let read =
            self.read("the leases of the nodes", async |client, folder| read_nodes(client, folder).await);
        let (now, Some(records)) = (Instant::now(), read) else { return };
        self.plan.note(records, now);
        if !self.plan.is_ready(now) {
            return;
        }
        self.next_leases = now + period;
        {
            let mut known = self.all.known.write();
            known.nodes = self.plan.numbers(now);
            if period.is_zero() {
                known.others = Some((asked, self.plan.others(now)));
            }
        }
        for silent in self.plan.silent(now) {
            self.all.member.evict(silent.clone());
        }
    }

    /// Reads the list of addresses when it is due.
    fn read_list(&mut self, ending: &Arc<AtomicBool>) {
        if Instant::now() < self.next_list {
            return;
        }
        let read = self.read("the list of service addresses", async |client, folder| {
            service_addresses(client, folder).await
        });
        self.next_list = Instant::now() + if read.is_some() { LIST_PERIOD } else { LIST_RETRY };
        let Some(list) = read.filter(|list| self.list.as_ref() != Some(list)) else { return };
        if self.list.is_some() || !list.addresses().is_empty() {
            tracing::info!(addresses = ?list.addresses(), "the service addresses of the cluster");
        }
        if let Ok(interface) = self.all.interface() {
            for address in list.addresses().iter().filter(|address| !interface.is_near(**address)) {
                let own = self.all.own;
                tracing::warn!(%address, %own, "a service address is in another network than this node's own address");
            }
        }
        self.follow(&list, ending);
        if let Some(before) = self.list.replace(list.clone()) {
            // If it is full, or there is no audit, the change is in the log.
            _ = self.all.lists.try_send((before.addresses().to_vec(), list.addresses().to_vec()));
        }
    }

    /// Reads something from the bucket. An error is logged when it is another one than before of the same thing.
    fn read<T, E: std::error::Error + Send + Sync + 'static>(
        &mut self,
        what: &'static str,
        request: impl AsyncFnOnce(&dyn ObjectStore, &str) -> Result<T, E>,
    ) -> Option<T> {
        let error = match self.folder.ask(PATIENCE, request) {
            Ok(found) => {
                self.errors.end(what);
                return Some(found);
            }
            Err(error) => error.to_string(),
        };
        if self.errors.is_new(what, &error) {
            tracing::warn!("cannot read {what}: {error}");
        }
        None
    }

    /// Starts threads for new addresses, and ends those of others.
    fn follow(&mut self, list: &ServiceAddresses, ending: &Arc<AtomicBool>) {
        let mut known = self.all.known.write();
        known.entries.retain(|entry| {
            let is_kept = list.addresses().contains(&entry.address);
            if !is_kept {
                *entry.heir.lock() = None;
                entry.is_gone.store(true, Ordering::Relaxed);
                entry.is_unwanted.store(true, Ordering::Relaxed);
            }
            is_kept
        });
        for address in list.addresses() {
            if known.entries.iter().any(|entry| entry.address == *address) {
                continue;
            }
            match Entry::new(&self.all.folder, *address) {
                Ok(entry) => {
                    let entry = Arc::new(entry);
                    self.all.member.follow(&entry.place);
                    known.entries.push(Arc::clone(&entry));
                    let (all, ending) = (Arc::clone(&self.all), Arc::clone(ending));
                    self.threads.push(thread(address.to_string(), move || tend(&all, &entry, &ending)));
                }
                Err(error) => tracing::error!(%address, "not a service address: {error:#}"),
            }
        }
        drop(known);
        self.threads.retain(|thread| !thread.is_finished());
    }

    /// Whether this node can take addresses now; logs why not.
    fn takes(&mut self, list: &ServiceAddresses) -> bool {
        let own = self.all.own;
        if list.addresses().contains(&own) && self.all.interface().is_ok() {
            self.all
                .failed(format!("its own address, {own}, is one of them: set `cluster.address` to another"));
        }
        let refusal = self.all.interface().err().unwrap_or_default();
        if refusal != self.last_refusal && !refusal.is_empty() {
            tracing::error!(
                "this node takes no service addresses: {refusal}; see docs/guide/cluster.md, \"Service addresses\""
            );
        }
        self.last_refusal = refusal;
        self.last_refusal.is_empty() && self.all.member.has_lease() && !self.all.is_leaving()
    }

    /// Removes service addresses from the interface that this node does not own: those that an earlier process has left. An address
    /// that the machine is configured to have stays, whatever the list says.
    fn clean(&self) {
        let Ok(interface) = self.all.interface() else { return };
        if !self.all.member.is_alone() && !self.all.member.has_lease() {
            return;
        }
        let Ok(present) = interface.added() else { return };
        let entries = self.all.known.read().entries.clone();
        for entry in entries.iter().filter(|entry| present.contains(&entry.address)) {
            if !entry.is_held() && matches!(interface.remove(entry.address), Ok(true)) {
                let (address, interface) = (entry.address, interface.name());
                tracing::warn!(%address, interface, "removed a service address that this node does not own");
            }
        }
    }

    fn decide(&mut self, takes: bool, list: &ServiceAddresses) {
        let Some(status) = self.all.member.status() else { return };
        let entries = self.all.known.read().entries.clone();
        let seen: BTreeMap<Ipv4Addr, Seen> =
            entries.iter().map(|entry| (entry.address, self.seen(entry, &status.partitions))).collect();
        for (address, Wish { is_wanted, heir }) in self.plan.decide(&seen, takes, Instant::now()) {
            let Some(entry) = entries.iter().find(|entry| entry.address == address) else { continue };
            *entry.heir.lock() = heir;
            // A node without a lease decides nothing. Its addresses have expired, but it may still own them when it has one.
            let is_unwanted =
                !is_wanted && (self.all.member.has_lease() || !entry.is_owned.load(Ordering::Relaxed));
            entry
                .is_unwanted
                .store(is_unwanted || self.all.is_withdrawn.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        let is_used = self.plan.has_takers() || seen.values().any(|seen| seen.is_served);
        let owner = seen.into_values().filter(|seen| seen.is_served).find_map(|seen| seen.owner);
        let mut known = self.all.known.write();
        known.registered = Some(if is_used { list.addresses().to_vec() } else { Vec::new() });
        known.holder =
            owner.filter(|owner| *owner != self.all.node).and_then(|owner| self.first_address(&owner));
    }

    /// Returns what is known of an address.
    fn seen(&self, entry: &Entry, status: &[PartitionStatus]) -> Seen {
        let status = status.iter().find(|one| one.partition == entry.place);
        let owner = status.and_then(|status| status.owner.clone());
        let successor = status.and_then(|status| status.successor.clone());
        let route = self.all.member.route(&entry.place, CallKind::Read, Duration::ZERO);
        let is_served = matches!(route, Route::Local(_) | Route::Forward { .. });
        Seen { owner, successor, is_served }
    }

    fn first_address(&self, node: &NodeName) -> Option<SocketAddr> {
        self.plan.lease(node).and_then(|lease: &NodeRecord| lease.addresses.first().copied())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_new_once_for_each_thing() {
        let mut errors = Errors::default();
        assert!(errors.is_new("list", "refused") && errors.is_new("leases", "refused"));
        assert!(!errors.is_new("list", "refused") && !errors.is_new("leases", "refused"));
        assert!(errors.is_new("list", "late") && errors.is_new("list", "refused"));
        errors.end("list");
        assert!(errors.is_new("list", "refused") && !errors.is_new("leases", "refused"));
    }
}
