//! Making and breaking promises in the course of a call.

use crate::pipeline::{Session, View};
use crate::{volumes, wire};
use afs_idl::fs as rxafs;
use base::{Fid, Monotonic};
use callbacks::CallbackKind;
use volume::Volume;

/// What a call changed.
#[derive(Debug, Default)]
pub(crate) struct Change {
    /// The caller gets the new status in the reply; everybody else must be told.
    pub(crate) others: Vec<Fid>,
    /// The caller must be told, too.
    pub(crate) everyone: Vec<Fid>,
    /// Gone, with all promises and locks.
    pub(crate) gone: Vec<Fid>,
}

impl Change {
    /// The caller gets the new status of `fid` in the reply.
    pub(crate) fn of(fid: Fid) -> Change {
        Change { others: vec![fid], ..Change::default() }
    }

    /// Another vnode changed: it is gone if it has no name left.
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
    /// Promises the caller to tell it before `fid` changes. To be called before the status that the
    /// caller gets is read: what happens in between then breaks the promise instead of escaping it.
    pub(crate) fn promise(&self, view: &View, fid: Fid) -> rxafs::CallBack {
        let kind = kind(&view.volume, false);
        let now = self.server.clock().monotonic();
        let promised = self.server.hosts().state().promise(now, self.host, fid, kind);
        self.server.hosts().send_all(promised.deliveries);
        wire::call_back(promised.seconds)
    }

    /// The same for several vnodes of one volume, as calls about many do it.
    pub(crate) fn promise_all(&self, volume: &Volume, fids: &[Fid]) -> Vec<rxafs::CallBack> {
        let kind = kind(volume, true);
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

    /// The same if no other host has to give up promises for it, and so nothing to be sent.
    pub(crate) fn promise_at_once(
        &self,
        volume: &Volume,
        fid: Fid,
        now: Monotonic,
    ) -> Option<rxafs::CallBack> {
        let mut state = self.server.hosts().state();
        if !state.has_room(1) {
            return None;
        }
        let promised = state.promise(now, self.host, fid, kind(volume, false));
        Some(wire::call_back(promised.seconds))
    }

    /// The same for several vnodes of one volume.
    pub(crate) fn promise_all_at_once(
        &self,
        volume: &Volume,
        fids: &[Fid],
        now: Monotonic,
    ) -> Option<Vec<rxafs::CallBack>> {
        let mut state = self.server.hosts().state();
        if !state.has_room(fids.len()) {
            return None;
        }
        let kind = kind(volume, true);
        let promise = |fid: &Fid| wire::call_back(state.promise(now, self.host, *fid, kind).seconds);
        Some(fids.iter().map(promise).collect())
    }

    /// Tells everybody who must know; to be called after a change, before it is acknowledged.
    pub(crate) fn announce(&self, change: &Change) {
        for &fid in &change.gone {
            self.server.hosts().state().forget_file(fid);
            self.server.locks().forget(fid);
        }
        self.server.hosts().break_files(&change.others, &change.everyone, self.host);
    }
}

fn kind(volume: &Volume, bulk: bool) -> CallbackKind {
    match (volumes::is_writable(volume), bulk) {
        (false, _) => CallbackKind::Volume,
        (true, true) => CallbackKind::Bulk,
        (true, false) => CallbackKind::File,
    }
}
