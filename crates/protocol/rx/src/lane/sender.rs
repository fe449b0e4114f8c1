//! Sending: takes datagrams from the endpoint in batches and sends them with the endpoint unlocked.

use super::{Lane, LaneState};
use crate::clock;
use crate::gather::Gather;
use crate::socket::LaneSocket;
use crate::steering::lane_of;
use base::Monotonic;
use rx_proto::{Endpoint, Path, Transmit};
use std::sync::Weak;
use std::sync::atomic::Ordering;

/// Maximum number of transmits taken from the endpoint per lock acquisition.
const BATCH_TRANSMITS: usize = 16;

/// Maximum number of batches that another thread sends before it returns to its own work.
const WORKER_BATCHES: usize = 64;

/// Buffers of the sending thread, kept for the next one.
#[derive(Default)]
pub(super) struct Sending {
    batch: Vec<Transmit>,
    gather: Gather<'static>,
}

impl Lane {
    /// Processes the endpoint's output after it was used: events, datagrams and timers.
    pub(crate) fn flush(&self) {
        if !self.flush_some(WORKER_BATCHES) {
            // Other threads keep the endpoint busy, and this one has its own work to do.
            self.waker.wake();
        }
    }

    /// Requests a flush. The caller must then call [`Lane::flush_if_wanted`], unless another thread flushes
    /// first.
    pub(crate) fn want_flush(&self) {
        self.send_wanted.store(true, Ordering::SeqCst);
    }

    /// Flushes if a flush was requested with [`Lane::want_flush`] and no other thread has done it.
    pub(crate) fn flush_if_wanted(&self) {
        if !self.flush_wanted(WORKER_BATCHES) {
            self.waker.wake();
        }
    }

    /// Like [`Lane::flush`], but stops after this number of batches. Returns false if there is more.
    pub(super) fn flush_some(&self, batches: usize) -> bool {
        self.want_flush();
        self.flush_wanted(batches)
    }

    fn flush_wanted(&self, batches: usize) -> bool {
        let mut left = batches;
        while self.send_wanted.load(Ordering::SeqCst) {
            // The holder of the lock checks `send_wanted` again after releasing it.
            let Some(mut sending) = self.sending.try_lock() else { return true };
            self.send_wanted.store(false, Ordering::SeqCst);
            while self.take_batch(&mut sending.batch) {
                self.send_and_let_go(&mut sending);
                left = left.saturating_sub(1);
                if left == 0 {
                    return false;
                }
            }
            self.send_and_let_go(&mut sending);
        }
        true
    }

    fn send_and_let_go(&self, sending: &mut Sending) {
        if !sending.batch.is_empty() {
            self.send(sending);
            // May drop the last references to large pieces, so it runs without the endpoint's lock.
            for sent in &mut sending.batch {
                sent.bodies.clear();
            }
        }
    }

    /// Returns the buffers in `batch` to the endpoint and takes the next transmits. Returns false if none
    /// will follow these.
    fn take_batch(&self, batch: &mut Vec<Transmit>) -> bool {
        let mut state = self.lock();
        batch.drain(..).for_each(|sent| state.endpoint.recycle(sent));
        let now = clock::now();
        self.take_notices(now, &mut state.endpoint);
        batch.extend(std::iter::from_fn(|| state.endpoint.poll_transmit(now)).take(BATCH_TRANSMITS));
        let is_full = batch.len() == BATCH_TRANSMITS;
        // Reading or refusing calls may produce datagrams.
        let happened = state.dispatch_events(now, &*self.arrivals);
        let has_more = is_full || happened;
        state.hand_on_short(&*self.arrivals);
        if !has_more {
            self.wake_for_timer(&state);
        }
        self.unlock(state);
        has_more
    }

    /// Reports network errors to the endpoint that sent the datagrams. The kernel delivers such notices to
    /// any lane's socket; those for other lanes are forwarded.
    fn take_notices(&self, now: Monotonic, endpoint: &mut Endpoint) {
        while let Some(notice) = self.sockets.iter().find_map(LaneSocket::notice) {
            if lane_of(notice.remote, self.lanes) == self.index {
                notice.report(now, endpoint);
            } else if let Some(siblings) = self.siblings.get().and_then(Weak::upgrade) {
                let lane = siblings.of_peer(notice.remote);
                let _ = lane.notices.push(notice);
                lane.waker.wake();
            }
        }
        while let Some(notice) = self.notices.pop() {
            notice.report(now, endpoint);
        }
    }

    /// Wakes the lane's thread if it would sleep past the endpoint's next deadline.
    fn wake_for_timer(&self, state: &LaneState) {
        let deadline = state.endpoint.poll_timeout().map_or(u64::MAX, |at| at.0.max(1));
        if deadline < self.sleeping_until.load(Ordering::SeqCst) {
            self.sleeping_until.store(deadline, Ordering::SeqCst);
            self.waker.wake();
        }
    }

    fn send(&self, sending: &mut Sending) {
        let Sending { batch, gather: unused } = sending;
        for (index, socket) in self.sockets.iter().enumerate() {
            let mut gather: Gather<'_> = std::mem::take(unused);
            let own =
                |transmit: &&Transmit| self.sockets.len() == 1 || self.socket_of(&transmit.path) == index;
            batch.iter().filter(own).for_each(|transmit| gather.push(transmit));
            if !gather.runs().is_empty() {
                socket.send(&gather, &self.counters);
            }
            *unused = Gather::reuse(gather);
        }
    }

    /// Returns the index of the socket that serves a path. If none does, returns the first, whose kernel will
    /// refuse the datagram.
    fn socket_of(&self, path: &Path) -> usize {
        self.sockets.iter().position(|socket| socket.serves(path)).unwrap_or(0)
    }
}
