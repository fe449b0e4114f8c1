//! A view of the protection records that includes its own uncommitted changes.

use crate::FAMILY;
use crate::error::ProtectionError;
use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};
use store::{Batch, KeyRange, MetaStore};

/// Receives keys and values until it breaks.
pub(crate) type Visit<'v> = &'v mut dyn FnMut(&[u8], &[u8]) -> ControlFlow<()>;

/// Uncommitted changes on top of the store.
pub(crate) struct Overlay<'a> {
    meta: &'a dyn MetaStore,
    changes: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
}

/// Returns the first key after all keys that start with `prefix`.
fn end_of(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            return end;
        }
    }
    // Unreachable, since table numbers are far below the maximum; a scan to an empty key returns nothing.
    end
}

impl<'a> Overlay<'a> {
    pub(crate) fn new(meta: &'a dyn MetaStore) -> Overlay<'a> {
        Overlay { meta, changes: BTreeMap::new() }
    }

    pub(crate) fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, ProtectionError> {
        match self.changes.get(key) {
            Some(change) => Ok(change.clone()),
            None => Ok(self.meta.get(FAMILY, key)?.map(|value| value.to_vec())),
        }
    }

    pub(crate) fn put(&mut self, key: Vec<u8>, value: impl Into<Vec<u8>>) {
        self.changes.insert(key, Some(value.into()));
    }

    pub(crate) fn delete(&mut self, key: Vec<u8>) {
        self.changes.insert(key, None);
    }

    /// Calls `visit` in order for every record under `prefix` whose key is at least `from`.
    pub(crate) fn scan(&self, prefix: &[u8], from: &[u8], visit: Visit<'_>) -> Result<(), ProtectionError> {
        let end = end_of(prefix);
        let from = from.max(prefix);
        let bounds = (Bound::Included(from.to_vec()), Bound::Excluded(end.clone()));
        let mut ours = self.changes.range(bounds).peekable();
        let mut stopped = false;
        self.meta.scan(FAMILY, KeyRange::ascending(from, &end), &mut |key, value| {
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

    /// Returns the changes as one batch.
    pub(crate) fn into_batch(self) -> Batch {
        let mut batch = Batch::new();
        for (key, value) in self.changes {
            match value {
                Some(value) => batch.put(FAMILY, key, value),
                None => batch.delete(FAMILY, key),
            }
        }
        batch
    }
}
