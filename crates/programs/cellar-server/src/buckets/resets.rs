//! Resets of the clients that may hold promises of earlier owners of a partition.

use super::Ownership;
use crate::threads::thread;
use base::{HostUuid, PartitionId};
use fileserver::{FileServer, OwedResets};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Instant;
use volume::ListedHost;

/// Returns the UUID under which the ownership counts a client: clients without one are counted together.
pub(super) fn reset_name(client: &ListedHost) -> HostUuid {
    client.uuid.unwrap_or_default()
}

/// The resets of one partition. Its ownership acknowledges no change until they were sent.
pub(crate) struct Resets {
    partition: PartitionId,
    /// Without a file server nothing can be sent.
    owed: Option<(Arc<FileServer>, OwedResets)>,
    progress: Progress,
}

impl Resets {
    /// Requires the resets of `clients`; `None` if there are none. Without a file server they stay in the list, and changes
    /// are acknowledged.
    pub(super) fn of(
        partition: PartitionId,
        ownership: &Arc<dyn Ownership>,
        clients: &[ListedHost],
        server: Option<&Arc<FileServer>>,
    ) -> Option<Resets> {
        let owed = server.map(|server| (Arc::clone(server), server.owe_resets(clients)));
        let progress = Progress::new(ownership, clients);
        (!clients.is_empty()).then_some(Resets { partition, owed, progress })
    }

    /// Sends them on a thread of its own, after [`Ownership::begin`].
    pub(crate) fn send(self) -> JoinHandle<()> {
        thread(format!("reset {}", self.partition), move || self.send_all())
    }

    fn send_all(self) {
        let Resets { partition, owed, progress } = self;
        let begun = Instant::now();
        if let Some((server, owed)) = owed {
            server.send_resets(owed, &|client, is_reset| progress.done(client, is_reset));
        } else {
            for client in progress.names.keys() {
                progress.done(*client, false);
            }
        }
        let (reset, silent) = progress.counts();
        tracing::info!(%partition, reset, silent, seconds = begun.elapsed().as_secs_f32(),
            "reset the clients that may hold promises of its last owner");
    }
}

/// The clients that were not reported yet.
struct Progress {
    /// Not kept alive: it is given up when the partition is closed.
    ownership: Weak<dyn Ownership>,
    names: BTreeMap<SocketAddr, HostUuid>,
    /// The clients under each name. Held while one of them is counted.
    state: Mutex<BTreeMap<HostUuid, Counts>>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    waiting: usize,
    reset: usize,
    silent: usize,
}

impl Progress {
    fn new(ownership: &Arc<dyn Ownership>, clients: &[ListedHost]) -> Progress {
        let mut state: BTreeMap<HostUuid, Counts> = BTreeMap::new();
        for client in clients {
            state.entry(reset_name(client)).or_default().waiting += 1;
        }
        let names = clients.iter().map(|client| (client.address, reset_name(client))).collect();
        Progress { ownership: Arc::downgrade(ownership), names, state: Mutex::new(state) }
    }

    /// Reports a name when all clients under it are done.
    fn done(&self, client: SocketAddr, is_reset: bool) {
        let Some(name) = self.names.get(&client) else { return };
        let mut state = self.state.lock();
        let counts = state.entry(*name).or_default();
        counts.waiting = counts.waiting.saturating_sub(1);
        *(if is_reset { &mut counts.reset } else { &mut counts.silent }) += 1;
        let (is_last, all_reset) = (counts.waiting == 0, counts.silent == 0);
        drop(state);
        if is_last && let Some(ownership) = self.ownership.upgrade() {
            ownership.reset_done(*name, all_reset);
        }
    }

    /// Returns the numbers of clients that were reset, and that did not answer.
    fn counts(&self) -> (usize, usize) {
        let state = self.state.lock();
        state.values().fold((0, 0), |(reset, silent), counts| (reset + counts.reset, silent + counts.silent))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use volume::Permit;

    #[derive(Default)]
    struct Reported(Mutex<Vec<(HostUuid, bool)>>);

    impl Permit for Reported {
        fn may_answer(&self) -> bool {
            true
        }

        fn may_change(&self) -> bool {
            false
        }

        fn has_ended(&self) -> bool {
            false
        }
    }

    impl Ownership for Reported {
        fn reset_done(&self, client: HostUuid, is_reset: bool) {
            self.0.lock().push((client, is_reset));
        }

        fn begin(&self, _: &[ListedHost]) {}

        fn end(&self) {}
    }

    #[test]
    fn a_client_with_several_addresses_is_reported_once() {
        let address = |number: u8| SocketAddr::from(([10, 0, 0, number], 7001));
        let client = |number, uuid| ListedHost { address: address(number), uuid };
        let [one, two, none] = [HostUuid([1; 16]), HostUuid([2; 16]), HostUuid::default()];
        let clients = [
            client(1, Some(one)),
            client(2, Some(one)),
            client(3, Some(two)),
            client(4, None),
            client(5, None),
        ];
        let reported = Arc::new(Reported::default());
        let ownership: Arc<dyn Ownership> = reported.clone();
        let progress = Progress::new(&ownership, &clients);
        for (number, is_reset) in [(1, true), (4, false), (3, true), (9, true), (5, true), (2, true)] {
            progress.done(address(number), is_reset);
        }
        assert_eq!(*reported.0.lock(), [(two, true), (none, false), (one, true)]);
        assert_eq!(progress.counts(), (4, 1));
    }

    /// A server without file service cannot reset anyone, and makes no promises either.
    #[test]
    fn without_a_file_server_all_are_reported() {
        let reported = Arc::new(Reported::default());
        let ownership: Arc<dyn Ownership> = reported.clone();
        let client = ListedHost { address: SocketAddr::from(([10, 0, 0, 1], 7001)), uuid: None };
        let partition = PartitionId::from_index(0).unwrap();
        assert!(Resets::of(partition, &ownership, &[], None).is_none());
        Resets::of(partition, &ownership, &[client], None).unwrap().send_all();
        assert_eq!(*reported.0.lock(), [(HostUuid::default(), false)]);
    }
}
