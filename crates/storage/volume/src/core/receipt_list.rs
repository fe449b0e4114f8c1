//! The receipts of a partition.

use parking_lot::Mutex;
use std::sync::Arc;
use volume_records::Receipt;

/// All receipts of a partition, oldest first.
#[derive(Default)]
pub(crate) struct Receipts(pub(crate) Mutex<Vec<Arc<Receipt>>>);

impl Receipts {
    /// Replaces the receipt of a group; `None` removes it.
    pub(crate) fn replace(&self, group: u64, receipt: Option<Receipt>) {
        let mut all = self.0.lock();
        all.retain(|other| other.group != group);
        all.extend(receipt.map(Arc::new));
    }
}
