//! Finds objects that nothing knows of.
//!
//! They are left by a process that ended between the creation of an object and the commit of its account; by requests
//! of such a process, or of one that another has taken over from, that arrive late; and by a request to create an
//! object that the bucket carries out again after the object was removed.

use super::super::accounts::Account;
use super::super::header::{self, HEADER_BYTES};
use super::ObjectChunks;
use super::bucket::BucketError;
use super::name::{epoch_of, object_name, parse_loan_name, parse_name, parse_version_name};
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
            let (mut orphans, mut kept) = (Vec::new(), Vec::new());
            let mut is_stopped = false;
            let listed = self.bucket.list(&after, &mut |name, bytes| {
                is_stopped = !go_on();
                if is_stopped || orphans.len() == ORPHANS_MAX {
                    return ControlFlow::Break(());
                }
                if self.is_left(name, bytes, &mut kept) {
                    orphans.push(name.to_owned());
                }
                ControlFlow::Continue(())
            });
            for (id, bytes) in kept {
                self.adopt(id, bytes)?;
            }
            let names = orphans;
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

    /// Whether an object of this name is to be removed.
    fn is_left(&self, name: &str, bytes: u64, kept: &mut Vec<(u64, u64)>) -> bool {
        match parse_name(name) {
            Some(id) => self.is_orphan(id, bytes, kept),
            None => match parse_loan_name(name) {
                // It was created late, after the loan had ended.
                Some(loan) => epoch_of(loan) <= self.epoch && !self.lent.is_known(loan),
                None => parse_version_name(name).is_some_and(|id| epoch_of(id) <= self.epoch),
            },
        }
    }

    /// Whether nothing knows of this object. An object of this epoch has an account from before its creation until
    /// after its removal; one of a later epoch is that of a process that has taken over. One that is lent may be missing from
    /// metadata that was restored from a copy. One that has to be kept without
    /// being known is added to `kept`.
    fn is_orphan(&self, id: u64, bytes: u64, kept: &mut Vec<(u64, u64)>) -> bool {
        let epoch = epoch_of(id);
        if epoch > self.epoch || self.accounts.lock().has(id) {
            return false;
        }
        if !self.adopts.load(Relaxed) || epoch == self.epoch {
            return !self.lent.has(id);
        }
        kept.push((id, bytes));
        false
    }

    /// Makes an account of an object of an earlier epoch, whose own may have been damaged.
    fn adopt(&self, id: u64, bytes: u64) -> Result<(), StoreError> {
        let name = object_name(id);
        let head = match self.bucket.read(&name, 0..HEADER_BYTES) {
            Err(BucketError::Missing { .. }) => return Ok(()),
            head => head.map_err(|error| self.unanswered(&error))?.bytes,
        };
        tracing::warn!(name, bytes, "keeping an object whose account may have been damaged");
        let account = Account::adopted(id, bytes.max(HEADER_BYTES), header::id_of(&head));
        self.accounts.lock().take_over(id, account);
        self.has_orphans.store(true, Relaxed);
        Ok(())
    }
}
