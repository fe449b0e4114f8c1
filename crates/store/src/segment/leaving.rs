//! The room of a segment that was deleted.

use crate::StoreError;
use crate::home::failed;
use disk::File;
use std::path::PathBuf;
use std::sync::Arc;

/// What is given back at a time.
const PIECE_BYTES: u64 = 4 << 20;

/// A file whose name is gone and whose room is not free yet.
///
/// A file system frees a large file in one transaction, and every sync meanwhile waits for that: on ext4 mounted with
/// `discard`, a segment of 256 MiB took 0.4 to 0.9 s, and so did the syncs of others. Cut off from its end in pieces, with a rest
/// after each, it holds nobody up for longer than a piece takes.
#[must_use]
pub(super) struct Leaving {
    file: Option<Arc<dyn File>>,
    /// Where it was, for messages.
    path: PathBuf,
}

impl Leaving {
    pub(super) fn new(file: Option<Arc<dyn File>>, path: PathBuf) -> Leaving {
        Leaving { file, path }
    }

    /// Gives the room back; calls `rest` before each piece, and leaves the remainder to the file system if that answers
    /// no, or if somebody still reads the file. Answers what `rest` did.
    pub(super) fn shorten(self, rest: &mut dyn FnMut() -> bool) -> Result<bool, StoreError> {
        let Some(file) = self.file.filter(|file| Arc::strong_count(file) == 1) else {
            return Ok(rest());
        };
        let fail = |error| failed("free the room of", &self.path, error);
        let mut left = file.length().map_err(fail)?;
        while left > 0 {
            if !rest() {
                return Ok(false);
            }
            left = left.saturating_sub(PIECE_BYTES);
            file.set_len(left).map_err(fail)?;
        }
        Ok(true)
    }
}
