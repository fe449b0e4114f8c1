//! The thread of one service address: waits for its ownership, and has it at the interface meanwhile.

use super::leaving::{Leaving, Step};
use super::ports::Ports;
use super::{Addresses, Entry, LOOK};
use crate::threads::wait;
use cluster::{AcquireError, Deed, Holding, Owner, OwnerEvent};
use interfaces::Interface;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// Interval at which the calls at an address that is about to go are counted.
const DRAIN_LOOK: Duration = Duration::from_millis(10);

/// Pause before another attempt to own an address after an error.
const RETRY: Duration = Duration::from_secs(2);

/// Waits for an address, has it, and gives it up, again and again until the end.
pub(super) fn tend(all: &Addresses, entry: &Entry, ending: &AtomicBool) {
    let mut last = None;
    while !all.is_ending(ending) && !entry.is_gone.load(Ordering::Relaxed) {
        if entry.is_unwanted.load(Ordering::Relaxed) {
            std::thread::sleep(LOOK);
            continue;
        }
        let Ok(interface) = all.interface() else {
            std::thread::sleep(LOOK);
            continue;
        };
        match all.member.acquire(&entry.place, &entry.is_unwanted) {
            Ok(owner) => {
                last = None;
                entry.is_owned.store(true, Ordering::Relaxed);
                Tenancy { all, entry, interface: &interface, owner }.serve(ending);
                entry.is_owned.store(false, Ordering::Relaxed);
            }
            Err(AcquireError::Stopped) => {}
            Err(AcquireError::Ended) => return,
            Err(error) => {
                if last.as_ref() != Some(&error) {
                    tracing::warn!(address = %entry.address, "cannot own a service address: {error}; trying again");
                }
                last = Some(error);
                wait(&entry.is_unwanted, RETRY);
            }
        }
    }
}

/// The time during which this node owns an address.
struct Tenancy<'a> {
    all: &'a Addresses,
    entry: &'a Entry,
    interface: &'a Interface,
    owner: Owner,
}

impl Tenancy<'_> {
    /// Has the address at the interface as long as this node owns it, wants it, and is not ending; then gives it up.
    fn serve(self, ending: &AtomicBool) {
        let Tenancy { all, entry, interface, .. } = self;
        let (events, received) = channel();
        self.owner.opened(Vec::new());
        // Without a receiver, the ownership has ended here.
        self.owner.watch(move |event| _ = events.send(event));
        let held = self.hold(&received, ending);
        // Whatever has happened, the address is gone before the ownership is.
        if let Err(error) = self.perform(Deed::Remove) {
            tracing::error!(address = %entry.address, "cannot remove a service address: {error}; it expires within seconds");
        }
        let heir = entry.heir.lock().clone();
        let (address, to) = (entry.address, heir.as_ref().map(cluster::NodeName::as_str));
        match held {
            Ok(()) if self.owner.has_ended() => {
                tracing::warn!(%address, "this node does not own the service address any more");
            }
            Ok(()) => tracing::info!(%address, to, "giving the service address up"),
            Err(error) => {
                let why = format!("cannot have {address} at the interface {}: {error}", interface.name());
                tracing::error!("{why}");
                all.failed(why);
            }
        }
        if !self.owner.has_ended() {
            self.owner.release(heir);
        }
    }

    /// Has the address at the interface until the ownership ends, this node ends, or the address is unwanted and its calls
    /// have ended. Renewals of the lease extend it meanwhile, and its end removes it, whatever calls there are.
    fn hold(&self, received: &Receiver<OwnerEvent>, ending: &AtomicBool) -> std::io::Result<()> {
        let (mut holding, mut leaving) = (Holding::default(), Leaving::default());
        while !self.owner.has_ended() && !self.all.is_ending(ending) && !self.leaves(&mut leaving) {
            // The lease may have ended while the machine slept, which an event does not show.
            if !self.owner.may_answer() {
                holding.held(None);
            }
            while let Some(deed) = holding.poll(rx::now()) {
                self.perform(deed)?;
            }
            let look = if leaving.has_begun() { DRAIN_LOOK } else { LOOK };
            let next = holding.next_time().map_or(look, |next| next.since(rx::now()).min(look));
            match received.recv_timeout(next) {
                Ok(OwnerEvent::Held { until } | OwnerEvent::Resumed { until }) => {
                    let left = until.saturating_duration_since(Instant::now());
                    holding.held(Some(rx::now() + left));
                }
                Ok(OwnerEvent::Lapsed | OwnerEvent::Lost { .. }) | Err(RecvTimeoutError::Disconnected) => {
                    holding.held(None);
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
        Ok(())
    }

    /// Lets the calls at the address end if it is unwanted. Returns whether it may go.
    fn leaves(&self, leaving: &mut Leaving) -> bool {
        let address = self.entry.address;
        let is_wanted = !self.entry.is_unwanted.load(Ordering::Relaxed);
        // Where there is no address, no call can end.
        let calls =
            || if self.entry.is_held() { self.ports().map_or(0, |ports| ports.calls(address)) } else { 0 };
        match leaving.step(is_wanted, Instant::now(), calls) {
            Step::Stay => return false,
            Step::Hold => self.ports().into_iter().for_each(|ports| ports.leaves(address)),
            Step::Accept => self.ports().into_iter().for_each(|ports| ports.came(address)),
            Step::Go { calls: 0 } => return true,
            Step::Go { calls } => {
                tracing::warn!(%address, calls, "calls at a service address have not ended in time; clients repeat them");
                return true;
            }
        }
        false
    }

    fn ports(&self) -> Option<&Ports> {
        self.all.ports.get()
    }

    fn perform(&self, deed: Deed) -> std::io::Result<()> {
        let (address, interface) = (self.entry.address, self.interface);
        match deed {
            Deed::Set { seconds } => {
                let was_held = self.entry.is_held.swap(true, Ordering::Relaxed);
                if !was_held {
                    self.ports().into_iter().for_each(|ports| ports.came(address));
                }
                interface.set(address, seconds)?;
                if !was_held {
                    let (name, epoch) = (interface.name(), self.owner.epoch());
                    tracing::info!(%address, interface = name, %epoch, "this node has the service address");
                }
            }
            Deed::Announce => {
                if let Err(error) = interface.announce(address) {
                    tracing::warn!(%address, "cannot announce a service address: {error}");
                }
            }
            Deed::Remove => {
                // Packets that have arrived but were not read must not begin calls, whose replies could not leave.
                self.ports().into_iter().for_each(|ports| ports.leaves(address));
                let removed = interface.remove(address);
                if self.entry.is_held.swap(false, Ordering::Relaxed) {
                    self.ports().into_iter().for_each(|ports| ports.went(address));
                }
                removed?;
            }
        }
        Ok(())
    }
}
