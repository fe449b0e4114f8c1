//! Chunks that are not in the bucket yet.

use super::super::accounts::Accounts;
use super::super::codec::Encoded;
use super::super::header::{self, HEADER_BYTES};
use super::name;
use crate::{ChunkAddress, StoreError};
use bytes::Bytes;
use std::collections::BTreeMap;

/// Objects in memory: the one that chunks are appended to, and those that are complete.
pub(super) struct Unsaved {
    open: Option<Open>,
    sealed: BTreeMap<u64, Sealed>,
    next_id: u64,
    object_bytes_max: u32,
    /// Bytes of all these objects.
    bytes: u64,
    /// Number of chunks appended since the open.
    appended: u64,
}

struct Open {
    id: u64,
    contents: Vec<u8>,
}

struct Sealed {
    contents: Bytes,
    /// Whether it exists, so that only its account is missing.
    is_created: bool,
}

impl Unsaved {
    /// Starts with objects of this epoch.
    pub(super) fn of(epoch: u64, object_bytes_max: u32) -> Unsaved {
        let next_id = name::first_id(epoch);
        Unsaved { open: None, sealed: BTreeMap::new(), next_id, object_bytes_max, bytes: 0, appended: 0 }
    }

    /// Appends all chunks or none. Adds the objects that became full meanwhile to `full`.
    pub(super) fn append(
        &mut self,
        chunks: &[Encoded],
        accounts: &mut Accounts,
        full: &mut Vec<(u64, Bytes)>,
    ) -> Result<Vec<ChunkAddress>, StoreError> {
        if name::ids_left(self.next_id) <= chunks.len() as u64 {
            return Err(no_ids());
        }
        Ok(chunks.iter().map(|chunk| self.append_one(chunk, accounts, full)).collect())
    }

    fn append_one(
        &mut self,
        encoded: &Encoded,
        accounts: &mut Accounts,
        full: &mut Vec<(u64, Bytes)>,
    ) -> ChunkAddress {
        let stored_bytes = encoded.record_bytes();
        let most = self.object_bytes_max as usize;
        if self.open.as_ref().is_some_and(|open| open.contents.len() + stored_bytes as usize > most) {
            full.extend(self.seal(accounts));
        }
        let open = match &mut self.open {
            Some(open) => open,
            none => {
                let id = self.next_id;
                self.next_id += 1;
                self.bytes += HEADER_BYTES;
                accounts.begin(id, HEADER_BYTES);
                none.insert(Open { id, contents: header::build(id).to_vec() })
            }
        };
        let address = ChunkAddress { segment: open.id, offset: open.contents.len() as u64, stored_bytes };
        open.contents.extend_from_slice(&encoded.record.build(open.id, address.offset));
        open.contents.extend_from_slice(encoded.stored.bytes());
        accounts.set_end(open.id, open.contents.len() as u64, 0);
        self.bytes += u64::from(stored_bytes);
        self.appended += 1;
        address
    }

    /// Returns an id for an object that is not made of appended chunks.
    pub(super) fn take_id(&mut self) -> Result<u64, StoreError> {
        if name::ids_left(self.next_id) == 0 {
            return Err(no_ids());
        }
        self.next_id += 1;
        Ok(self.next_id - 1)
    }

    /// Ends the object that is appended to; returns it.
    pub(super) fn seal(&mut self, accounts: &mut Accounts) -> Option<(u64, Bytes)> {
        let Open { id, contents } = self.open.take()?;
        let contents = Bytes::from(contents);
        accounts.seal(id);
        self.sealed.insert(id, Sealed { contents: contents.clone(), is_created: false });
        Some((id, contents))
    }

    /// Returns the sealed objects that do not exist yet.
    pub(super) fn to_create(&self) -> Vec<(u64, Bytes)> {
        let missing = self.sealed.iter().filter(|(_, sealed)| !sealed.is_created);
        missing.map(|(id, sealed)| (*id, sealed.contents.clone())).collect()
    }

    /// Records that these objects exist.
    pub(super) fn created(&mut self, ids: impl Iterator<Item = u64>) {
        for id in ids {
            if let Some(sealed) = self.sealed.get_mut(&id) {
                sealed.is_created = true;
            }
        }
    }

    /// Drops the objects below this id that exist, and returns them: their accounts are committed.
    pub(super) fn take_saved(&mut self, below: u64) -> Vec<(u64, Bytes)> {
        let saved = self.sealed.range(..below).filter(|(_, sealed)| sealed.is_created);
        let saved: Vec<_> = saved.map(|(id, sealed)| (*id, sealed.contents.clone())).collect();
        for (id, contents) in &saved {
            self.sealed.remove(id);
            self.bytes -= contents.len() as u64;
        }
        saved
    }

    /// Returns the id below which every object exists.
    pub(super) fn first_missing(&self) -> u64 {
        let missing = self.sealed.iter().find(|(_, sealed)| !sealed.is_created).map(|(id, _)| *id);
        missing.or(self.open.as_ref().map(|open| open.id)).unwrap_or(self.next_id)
    }

    /// Returns these bytes of an object, if it is here; fewer if it ends before.
    pub(super) fn read(&self, id: u64, from: u64, bytes: u64) -> Option<Bytes> {
        let range = |length: usize| {
            let start = usize::try_from(from).unwrap_or(length).min(length);
            start..start + usize::try_from(bytes).unwrap_or(length).min(length - start)
        };
        if let Some(sealed) = self.sealed.get(&id) {
            return Some(sealed.contents.slice(range(sealed.contents.len())));
        }
        let open = self.open.as_ref().filter(|open| open.id == id)?;
        Some(Bytes::copy_from_slice(&open.contents[range(open.contents.len())]))
    }

    /// Returns the bytes in memory.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the number of chunks appended since the open.
    pub(super) fn appended(&self) -> u64 {
        self.appended
    }
}

fn no_ids() -> StoreError {
    StoreError::Meta("no ids of objects left: open the partition again".into())
}
