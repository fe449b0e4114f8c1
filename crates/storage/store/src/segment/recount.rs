//! Finds the chunks that a crash orphaned.
//!
//! A chunk is appended before metadata references it. If the program dies in between, no metadata references
//! the chunk and nothing will release it. So after an unclean end, all chunks that metadata references are
//! counted once in the background, and the rest is dead.
//!
//! This is safe next to writers and purges because it counts one snapshot: the state at the open, before this
//! run changed anything. In segments of earlier runs, exactly the chunks referenced then are live until they
//! are released, and each is released at most once. A chunk whose reference was removed during the count was
//! counted as referenced, and its release was recorded; chunks of this run are in segments of this run, which
//! are not counted.

use super::accounts::Accounts;
use crate::{ChunkAddress, Family, KeyRange, Snapshot, StoreError};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::ops::ControlFlow;

/// Returns the chunk that a record (key and value) references, if any. An error means that the record cannot be
/// read; nothing is reclaimed then.
pub type ChunkOf = fn(&[u8], &[u8]) -> Result<Option<ChunkAddress>, StoreError>;

/// The records that reference chunks.
#[derive(Clone, Copy, Debug)]
pub struct ChunkNames {
    /// Their family.
    pub family: Family,
    /// Decodes one of them.
    pub chunk_of: ChunkOf,
}

/// Greater than every key that starts with an id.
const BEHIND_ALL: [u8; 9] = [0xff; 9];

/// Result of counting everything that metadata references.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recount {
    /// Number of referenced chunks.
    pub chunks: u64,
    /// Their bytes on disk, headers included.
    pub bytes: u64,
    /// Bytes newly found dead.
    pub orphaned_bytes: u64,
    /// Referenced chunks in no segment, or beyond the end of theirs: lost data.
    pub missing: u64,
}

/// The references found.
#[derive(Default)]
pub(super) struct Count {
    /// Referenced bytes by segment.
    pub(super) named: BTreeMap<u64, u64>,
    pub(super) result: Recount,
}

/// Counts the chunks that `state` references; `None` if `go_on`, which is called before each record, returned
/// false.
///
/// # Errors
/// Errors of reading the metadata.
pub(super) fn count(
    accounts: &Mutex<Accounts>,
    state: &dyn Snapshot,
    names: ChunkNames,
    go_on: &mut dyn FnMut() -> bool,
) -> Result<Option<Count>, StoreError> {
    let mut count = Count::default();
    let mut stopped = None;
    state.scan(names.family, KeyRange::ascending(&[], &BEHIND_ALL), &mut |key, value| {
        if !go_on() {
            stopped = Some(Ok(None));
            return ControlFlow::Break(());
        }
        match (names.chunk_of)(key, value) {
            Ok(Some(address)) => count.add(accounts, address),
            Ok(None) => {}
            Err(error) => {
                stopped = Some(Err(error));
                return ControlFlow::Break(());
            }
        }
        ControlFlow::Continue(())
    })?;
    stopped.unwrap_or(Ok(Some(count)))
}

impl Count {
    fn add(&mut self, accounts: &Mutex<Accounts>, address: ChunkAddress) {
        let bytes = u64::from(address.stored_bytes);
        self.result.chunks += 1;
        self.result.bytes += bytes;
        if !accounts.lock().had(address) {
            self.result.missing += 1;
            tracing::error!(?address, "metadata refers to a missing chunk");
        }
        *self.named.entry(address.segment).or_default() += bytes;
    }
}
