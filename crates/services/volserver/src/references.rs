//! References in a transfer to chunks in objects of a bucket, on their way past the reader of the dump.
//!
//! The dump that a transfer stands for has zeros where such a reference is. The restoration gets the reference instead,
//! by its place in the dump; one that stands for anything but a whole chunk of a file is an error.

use afs_format::dump::{DumpError, Reader};
use afs_format::transfer::Stored;
use base::AbortCode;
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use volume::{ChunkAddress, ChunkPlace, DataSource};

/// The references that were read from the transfer, and not yet from the dump, with their offsets in the dump.
#[derive(Clone, Default)]
pub(crate) struct References {
    left: Arc<Mutex<VecDeque<(u64, Stored)>>>,
    /// Whether the dump is followed by the end of a transfer, without which it must not be used.
    pub(crate) has_end: bool,
}

impl References {
    /// Those of a transfer, in which there are none yet.
    pub(crate) fn of_transfer() -> References {
        References { has_end: true, ..References::default() }
    }

    pub(crate) fn add(&self, at: u64, stored: Stored) {
        self.left.lock().push_back((at, stored));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.left.lock().is_empty()
    }

    /// Returns the reference that stands for these bytes of the dump, if there is one.
    ///
    /// # Errors
    /// A reference stands for some of these bytes or for earlier ones.
    fn take(&self, at: u64, length: u64) -> Result<Option<Stored>, ()> {
        let mut all = self.left.lock();
        match all.front().copied() {
            Some((begin, stored)) if begin == at && u64::from(stored.length) == length => {
                all.pop_front();
                Ok(Some(stored))
            }
            Some((begin, _)) if begin < at.saturating_add(length) => Err(()),
            _ => Ok(None),
        }
    }
}

/// The data of a file in a dump. Chunks of it may be references.
pub(crate) struct FileData<'a, F> {
    reader: &'a mut Reader<F>,
    references: &'a References,
    /// Data that was read to see whether it is a reference.
    ahead: Bytes,
    /// The error of the dump.
    pub(crate) failure: Option<DumpError<AbortCode>>,
}

impl<'a, F: FnMut(usize) -> Result<Bytes, AbortCode>> FileData<'a, F> {
    pub(crate) fn new(reader: &'a mut Reader<F>, references: &'a References) -> FileData<'a, F> {
        FileData { reader, references, ahead: Bytes::new(), failure: None }
    }

    fn read(&mut self, most: usize) -> Result<Bytes, AbortCode> {
        self.reader.data(most).map_err(|error| self.fail(error))
    }

    fn fail(&mut self, error: DumpError<AbortCode>) -> AbortCode {
        self.failure = Some(error);
        AbortCode::VOLSERREAD_DUMPERROR
    }

    /// Reads past bytes of the dump.
    fn skip(&mut self, mut bytes: usize) -> Result<(), AbortCode> {
        while bytes > 0 {
            let piece = self.read(bytes)?;
            if piece.is_empty() {
                let error = self.reader.damaged("a chunk within its file");
                return Err(self.fail(error));
            }
            bytes -= piece.len();
        }
        Ok(())
    }
}

impl<F: FnMut(usize) -> Result<Bytes, AbortCode>> DataSource for FileData<'_, F> {
    fn next(&mut self, bytes_max: usize) -> Result<Bytes, AbortCode> {
        if self.ahead.is_empty() {
            return self.read(bytes_max);
        }
        Ok(self.ahead.split_to(self.ahead.len().min(bytes_max)))
    }

    fn stored(&mut self, length: usize) -> Result<Option<ChunkPlace>, AbortCode> {
        let at = self.reader.offset() - self.ahead.len() as u64;
        if self.ahead.is_empty() {
            // What follows in the transfer is known once a part of it was read.
            self.ahead = self.read(length)?;
        }
        let Ok(reference) = self.references.take(at, length as u64) else {
            let error = self.reader.damaged("a reference to a whole chunk of a file");
            return Err(self.fail(error));
        };
        let Some(Stored { object, offset, record_bytes, origin, .. }) = reference else { return Ok(None) };
        let ahead = std::mem::take(&mut self.ahead);
        self.skip(length.saturating_sub(ahead.len()))?;
        let address = ChunkAddress { segment: object, offset, stored_bytes: record_bytes };
        Ok(Some(ChunkPlace { address, origin }))
    }
}
