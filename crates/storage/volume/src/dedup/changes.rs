//! Changes that a batch makes to rows.

use super::Offers;
use super::offers::Offer;
use crate::VolumeError;
use std::collections::BTreeMap;
use store::{Batch, ChunkAddress, MetaStore};
use volume_records::codec::put_row;
use volume_records::rows::{FoundRow, Row, RowKey, Sums, find_row, find_rows};
use volume_records::{families, keys};

/// Extent versions that a batch puts or deletes, by the row that they name.
#[derive(Default)]
pub(crate) struct Changes(BTreeMap<RowKey, Change>);

#[derive(Clone, Copy, Default)]
struct Change {
    more: u64,
    less: u64,
}

impl Changes {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Counts an added version that names the row.
    pub(crate) fn add(&mut self, row: RowKey) {
        self.0.entry(row).or_default().more += 1;
    }

    /// Counts a removed version that names the row.
    pub(crate) fn take_away(&mut self, row: RowKey) {
        self.0.entry(row).or_default().less += 1;
    }
}

/// The changes of rows to add to a batch; built while holding the lock on rows.
pub(crate) struct Step {
    pub(crate) sums: Sums,
    pub(crate) batch: Batch,
    pub(crate) obsolete: Vec<ChunkAddress>,
    pub(crate) used: Vec<ChunkAddress>,
    pub(crate) missing: Vec<RowKey>,
}

impl Step {
    pub(crate) fn new(sums: Sums) -> Step {
        Step { sums, batch: Batch::new(), obsolete: vec![], used: vec![], missing: vec![] }
    }

    pub(crate) fn take(
        &mut self,
        meta: &dyn MetaStore,
        changes: &Changes,
        offers: &[&Offers],
    ) -> Result<(), VolumeError> {
        let rows = find_rows(meta, changes.0.keys().copied())?;
        for ((&key, &change), row) in changes.0.iter().zip(rows) {
            let offer = offers.iter().find_map(|offers| offers.get(key)).filter(|_| change.more > 0);
            match row {
                FoundRow::None => self.make(key, change, offer),
                FoundRow::Row(old) => self.change(key, &old, change, offer),
                FoundRow::Unreadable if change.more > 0 => self.missing.push(key),
                FoundRow::Unreadable => {
                    tracing::error!(?key, "the row of a shared chunk cannot be read; its chunk is kept");
                }
            }
        }
        Ok(())
    }

    fn make(&mut self, key: RowKey, change: Change, offer: Option<&Offer>) {
        if change.less > 0 {
            tracing::error!(?key, "a shared chunk had no row");
        }
        if change.more == 0 {
            return;
        }
        let Some((offer, address)) = offer.and_then(|offer| Some((offer, offer.own?))) else {
            return self.missing.push(key);
        };
        let Offer { digest, length, .. } = *offer;
        self.used.push(address);
        self.put(key, None, &Row { digest, address, length, count: change.more });
    }

    fn change(&mut self, key: RowKey, old: &Row, change: Change, offer: Option<&Offer>) {
        if change.more > 0 && offer.is_none_or(|offer| offer.digest != old.digest) {
            return self.missing.push(key);
        }
        let mut new = *old;
        if let Some(own) = offer.and_then(|offer| offer.heals(old.address)) {
            new.address = own;
            self.used.push(own);
            self.obsolete.push(old.address);
        }
        let more = old.count.saturating_add(change.more);
        if more < change.less {
            tracing::error!(
                ?key,
                count = old.count,
                "more files released a shared chunk than referred to it; it is kept"
            );
        }
        new.count = more.saturating_sub(change.less);
        if more == change.less {
            self.sums.take_away(old);
            self.obsolete.push(new.address);
            self.batch.delete(families::EXTENTS, keys::row(key));
        } else if new != *old {
            self.put(key, Some(old), &new);
        }
    }

    /// Makes a row name a copy of its chunk, if it still names the old address.
    pub(crate) fn relocate(
        &mut self,
        meta: &dyn MetaStore,
        key: RowKey,
        from: ChunkAddress,
        to: ChunkAddress,
    ) -> Result<(), VolumeError> {
        if let FoundRow::Row(old) = find_row(meta, key)?
            && old.address == from
        {
            self.used.push(to);
            self.obsolete.push(from);
            self.put(key, Some(&old), &Row { address: to, ..old });
        }
        Ok(())
    }

    fn put(&mut self, key: RowKey, old: Option<&Row>, new: &Row) {
        if let Some(old) = old {
            self.sums.take_away(old);
        }
        self.sums.add(new);
        self.batch.put(families::EXTENTS, keys::row(key), put_row(new));
    }
}
