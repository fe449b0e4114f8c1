//! A view of the protection records that sees its own, not yet committed, changes.

use crate::error::ProtectionError;
use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};
use store::{Batch, Family, KeyRange, MetaStore};

/// Is given keys and values until it breaks.
pub(crate) type Visit<'v> = &'v mut dyn FnMut(&[u8], &[u8]) -> ControlFlow<()>;

/// Reads fall through to the store where nothing was changed here.
pub(crate) struct Overlay<'a> {
    meta: &'a dyn MetaStore,
    changes: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
}

/// The first key behind all keys that start with `prefix`.
fn end_of(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            return end;
        }
    }
    // Tables are numbered far below the largest key, so this is never reached; a scan to here is
    // empty.
    end
}

impl<'a> Overlay<'a> {
    pub(crate) fn new(meta: &'a dyn MetaStore) -> Overlay<'a> {
        Overlay { meta, changes: BTreeMap::new() }
    }

    pub(crate) fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, ProtectionError> {
        match self.changes.get(key) {
            Some(change) => Ok(change.clone()),
            None => Ok(self.meta.get(Family::Protection, key)?.map(|value| value.to_vec())),
        }
    }

    pub(crate) fn put(&mut self, key: Vec<u8>, value: impl Into<Vec<u8>>) {
        self.changes.insert(key, Some(value.into()));
    }

    pub(crate) fn delete(&mut self, key: Vec<u8>) {
        self.changes.insert(key, None);
    }

    /// Calls `visit` with every record under `prefix` whose key is not before `from`, in order.
    pub(crate) fn scan(&self, prefix: &[u8], from: &[u8], visit: Visit<'_>) -> Result<(), ProtectionError> {
        let end = end_of(prefix);
        let from = from.max(prefix);
        let bounds = (Bound::Included(from.to_vec()), Bound::Excluded(end.clone()));
        let mut ours = self.changes.range(bounds).peekable();
        let mut stopped = false;
        self.meta.scan(Family::Protection, KeyRange::ascending(from, &end), &mut |key, value| {
            let mut hidden = false;
            while let Some((our_key, our_value)) = ours.next_if(|(ours, _)| ours.as_slice() <= key) {
                hidden = our_key.as_slice() == key;
                if let Some(our_value) = our_value
                    && visit(our_key, our_value).is_break()
                {
                    stopped = true;
                    return ControlFlow::Break(());
                }
            }
            let step = if hidden { ControlFlow::Continue(()) } else { visit(key, value) };
            stopped = step.is_break();
            step
        })?;
        for (key, value) in ours {
            if stopped {
                break;
            }
            if let Some(value) = value {
                stopped = visit(key, value).is_break();
            }
        }
        Ok(())
    }

    /// The changes as one batch.
    pub(crate) fn into_batch(self) -> Batch {
        let mut batch = Batch::new();
        for (key, value) in self.changes {
            match value {
                Some(value) => batch.put(Family::Protection, key, value),
                None => batch.delete(Family::Protection, key),
            }
        }
        batch
    }
}
