//! Making and breaking callback promises during a call.

use crate::pipeline::{Session, View};
use crate::{volumes, wire};
use afs_idl::fs as rxafs;
use base::{Fid, Monotonic, VolumeType};
use callbacks::CallbackKind;
use volume::{HostPin, InCall, Volume};

/// The vnodes that a call changed.
#[derive(Debug, Default)]
pub(crate) struct Change {
    /// Vnodes whose new status is in the reply, so that only other clients must be notified.
    pub(crate) others: Vec<Fid>,
    /// Vnodes about which the caller must be notified as well.
    pub(crate) everyone: Vec<Fid>,
    /// Deleted vnodes, whose promises and locks are dropped.
    pub(crate) gone: Vec<Fid>,
}

impl Change {
    /// Creates a change of `fid`, whose new status is in the reply.
    pub(crate) fn of(fid: Fid) -> Change {
        Change { others: vec![fid], ..Change::default() }
    }

    /// Adds another changed vnode, which is deleted if it has no name left.
    pub(crate) fn with_target(mut self, fid: Fid, gone: bool) -> Change {
        if gone {
            self.gone.push(fid);
        } else {
            self.everyone.push(fid);
        }
        self
    }
}

impl Session<'_> {
    /// Promises to notify the caller before `fid` changes. To be called before the status for the reply is
    /// read, so that a change in between breaks the promise. If the status is read from the volume as it is found then, use
    /// [`Self::kept`].
    pub(crate) fn promise(&self, view: &View<'_>, fid: Fid) -> rxafs::CallBack {
        let kind = kind(view.volume.kind(), false);
        let now = self.server.clock().monotonic();
        let Some(_pin) = self.pin_host(&view.volume, now) else { return wire::call_back(0) };
        let promised = self.server.hosts().state().promise(now, self.host, fid, kind);
        self.server.hosts().send_all(promised.deliveries);
        wire::call_back(promised.seconds)
    }

    /// Makes promises on several vnodes of one volume, for bulk calls.
    pub(crate) fn promise_all(&self, volume: &InCall<'_>, fids: &[Fid]) -> Vec<rxafs::CallBack> {
        let kind = kind(volume.kind(), true);
        let (now, mut deliveries) = (self.server.clock().monotonic(), Vec::new());
        let Some(_pin) = self.pin_host(volume, now) else { return vec![wire::call_back(0); fids.len()] };
        let mut state = self.server.hosts().state();
        let promise = |fid: &Fid| {
            let promised = state.promise(now, self.host, *fid, kind);
            deliveries.extend(promised.deliveries);
            wire::call_back(promised.seconds)
        };
        let call_backs = fids.iter().map(promise).collect();
        drop(state);
        self.server.hosts().send_all(deliveries);
        call_backs
    }

    /// Returns a promise that was made on one volume, if the status was read from the same partition: the list of
    /// another one may lack the caller.
    pub(crate) fn kept(
        promised: &InCall<'_>,
        read: &InCall<'_>,
        call_back: rxafs::CallBack,
    ) -> rxafs::CallBack {
        if read.is_beside(promised) { call_back } else { wire::call_back(0) }
    }

    /// Keeps the caller in the durable list of the volume's partition, if it has one. `None` if no promise may be made.
    fn pin_host<'v>(&self, volume: &'v InCall<'_>, now: Monotonic) -> Option<HostPin<'v>> {
        volume.pin_host(&self.promisee(now), || self.server.hosts().state().uuid(self.host))
    }

    /// Fast path of [`Self::pin_host`]: returns `None` if the caller is not in the list.
    fn try_pin_host<'v>(&self, volume: &'v Volume, now: Monotonic) -> Option<HostPin<'v>> {
        volume.try_pin_host(|| self.promisee(now))
    }

    /// Fast path of [`Self::promise`]: returns `None` if another host would have to give up promises for it,
    /// which requires sending messages, or if the caller has to be put into a durable list first.
    pub(crate) fn try_promise(&self, volume: &Volume, fid: Fid, now: Monotonic) -> Option<rxafs::CallBack> {
        let _pin = self.try_pin_host(volume, now)?;
        let mut state = self.server.hosts().state();
        if !state.has_room(1) {
            return None;
        }
        let promised = state.promise(now, self.host, fid, kind(volume.kind(), false));
        Some(wire::call_back(promised.seconds))
    }

    /// Fast path of [`Self::promise_all`].
    pub(crate) fn try_promise_all(
        &self,
        volume: &Volume,
        fids: &[Fid],
        now: Monotonic,
    ) -> Option<Vec<rxafs::CallBack>> {
        let _pin = self.try_pin_host(volume, now)?;
        let mut state = self.server.hosts().state();
        if !state.has_room(fids.len()) {
            return None;
        }
        let kind = kind(volume.kind(), true);
        let promise = |fid: &Fid| wire::call_back(state.promise(now, self.host, *fid, kind).seconds);
        Some(fids.iter().map(promise).collect())
    }

    /// Notifies all affected clients. To be called after a change, before it is acknowledged.
    pub(crate) fn announce(&self, change: &Change) {
        for &fid in &change.gone {
            self.server.hosts().state().forget_file(fid);
            let recorded = self.server.locks().forget(fid);
            if let Some(partition) = recorded {
                self.server.volumes().forget_locks(partition, || vec![fid]);
            }
        }
        self.server.hosts().break_files(&change.others, &change.everyone, self.host);
    }
}

fn kind(volume_type: VolumeType, bulk: bool) -> CallbackKind {
    match (volumes::is_writable(volume_type), bulk) {
        (false, _) => CallbackKind::Volume,
        (true, true) => CallbackKind::Bulk,
        (true, false) => CallbackKind::File,
    }
}
