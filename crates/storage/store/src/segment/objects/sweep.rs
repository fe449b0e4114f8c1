//! Finds objects that nothing knows of.
//!
//! They are left by a process that ended between the creation of an object and the commit of its account; by requests
//! of such a process, or of one that another has taken over from, that arrive late; and by a request to create an
//! object that the bucket carries out again after the object was removed.

use super::super::accounts::Account;
use super::super::header::HEADER_BYTES;
use super::ObjectChunks;
use super::name::{epoch_of, object_name, parse_name};
use crate::StoreError;
use std::ops::ControlFlow;
use std::sync::atomic::Ordering::Relaxed;

/// Number of orphans that are removed together.
const ORPHANS_MAX: usize = 1000;

impl ObjectChunks {
    /// Removes the objects that nothing knows of; see [`FileData::sweep`](crate::FileData::sweep).
    pub(super) fn remove_orphans(&self, go_on: &mut dyn FnMut() -> bool) -> Result<u64, StoreError> {
        self.may_read()?;
        let _one = self.maintaining.lock();
        let (mut after, mut removed) = (String::new(), 0);
        loop {
            let mut orphans = Vec::new();
            let mut is_stopped = false;
            let listed = self.bucket.list(&after, &mut |name, bytes| {
                is_stopped = !go_on();
                if is_stopped || orphans.len() == ORPHANS_MAX {
                    return ControlFlow::Break(());
                }
                orphans.extend(parse_name(name).filter(|id| self.is_orphan(*id, bytes)));
                ControlFlow::Continue(())
            });
            let names: Vec<String> = orphans.iter().map(|id| object_name(*id)).collect();
            if !names.is_empty() {
                tracing::info!(place = self.bucket.place(), count = names.len(), first = %names[0],
                    "removing objects that nothing refers to");
                self.bucket.remove(&names).map_err(|error| self.unanswered(&error))?;
                removed += names.len() as u64;
            }
            listed.map_err(|error| self.unanswered(&error))?;
            if is_stopped {
                return Ok(removed);
            }
            if names.len() < ORPHANS_MAX {
                self.adopts.store(false, Relaxed);
                return Ok(removed);
            }
            // Those that were removed are not listed again, whatever the order of the list.
            after.clear();
        }
    }

    /// Whether nothing knows of this object. An object of this epoch has an account from before its creation until
    /// after its removal; one of a later epoch is that of a process that has taken over.
    fn is_orphan(&self, id: u64, bytes: u64) -> bool {
        let epoch = epoch_of(id);
        let mut accounts = self.accounts.lock();
        if epoch > self.epoch || accounts.has(id) {
            return false;
        }
        if !self.adopts.load(Relaxed) || epoch == self.epoch {
            return true;
        }
        tracing::warn!(
            name = object_name(id),
            bytes,
            "keeping an object whose account may have been damaged"
        );
        accounts.take_over(id, Account::new(bytes.max(HEADER_BYTES)));
        self.has_orphans.store(true, Relaxed);
        false
    }
}
