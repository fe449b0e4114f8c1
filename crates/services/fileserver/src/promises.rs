//! Making and breaking callback promises during a call.

use crate::pipeline::{Session, View};
use crate::{volumes, wire};
use afs_idl::fs as rxafs;
use base::{Fid, Monotonic, VolumeType};
use callbacks::CallbackKind;

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
    /// read, so that a change in between breaks the promise.
    pub(crate) fn promise(&self, view: &View<'_>, fid: Fid) -> rxafs::CallBack {
        let kind = kind(view.volume.kind(), false);
        let now = self.server.clock().monotonic();
        let promised = self.server.hosts().state().promise(now, self.host, fid, kind);
        self.server.hosts().send_all(promised.deliveries);
        wire::call_back(promised.seconds)
    }

    /// Makes promises on several vnodes of one volume, for bulk calls.
    pub(crate) fn promise_all(&self, volume_type: VolumeType, fids: &[Fid]) -> Vec<rxafs::CallBack> {
        let kind = kind(volume_type, true);
        let (now, mut deliveries) = (self.server.clock().monotonic(), Vec::new());
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

    /// Fast path of [`Self::promise`]: returns `None` if another host would have to give up promises for it,
    /// which requires sending messages.
    pub(crate) fn try_promise(
        &self,
        volume_type: VolumeType,
        fid: Fid,
        now: Monotonic,
    ) -> Option<rxafs::CallBack> {
        let mut state = self.server.hosts().state();
        if !state.has_room(1) {
            return None;
        }
        let promised = state.promise(now, self.host, fid, kind(volume_type, false));
        Some(wire::call_back(promised.seconds))
    }

    /// Fast path of [`Self::promise_all`].
    pub(crate) fn try_promise_all(
        &self,
        volume_type: VolumeType,
        fids: &[Fid],
        now: Monotonic,
    ) -> Option<Vec<rxafs::CallBack>> {
        let mut state = self.server.hosts().state();
        if !state.has_room(fids.len()) {
            return None;
        }
        let kind = kind(volume_type, true);
        let promise = |fid: &Fid| wire::call_back(state.promise(now, self.host, *fid, kind).seconds);
        Some(fids.iter().map(promise).collect())
    }

    /// Notifies all affected clients. To be called after a change, before it is acknowledged.
    pub(crate) fn announce(&self, change: &Change) {
        for &fid in &change.gone {
            self.server.hosts().state().forget_file(fid);
            self.server.locks().forget(fid);
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
