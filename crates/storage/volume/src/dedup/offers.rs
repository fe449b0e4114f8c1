//! Chunks to be shared that no extent names yet.
//!
//! Incoming contents are looked up by digest. A chunk that has a row is not stored again if reading it back
//! shows equal contents, so no file ever comes to depend on a chunk that is already damaged. An unreadable
//! chunk is stored again and its row changed to the new address, which repairs all files that use it.

use crate::dedup::Sharing;
use crate::dedup::pins::Pin;
use crate::{PartitionHandle, VolumeError};
use bytes::Bytes;
use std::collections::BTreeMap;
use store::{ChunkAddress, ChunkStore, Codec, Digest, StoreError};
use volume_records::codec::Extent;
use volume_records::keys;
use volume_records::rows::{FoundRow, RowKey, find_row};

/// A chunk to be shared.
pub(crate) struct Offer {
    pub(super) digest: Digest,
    pub(super) length: u32,
    /// Address in the row, kept valid by the pin.
    named: Option<ChunkAddress>,
    /// Whether the chunk at that address is unreadable.
    is_damaged: bool,
    /// A newly stored chunk that no row names yet.
    pub(super) own: Option<ChunkAddress>,
}

impl Offer {
    /// Returns the replacement for the chunk at `address` if that is damaged.
    pub(super) fn heals(&self, address: ChunkAddress) -> Option<ChunkAddress> {
        self.own.filter(|_| self.is_damaged && self.named == Some(address))
    }
}

/// The chunks to be shared by one change.
#[derive(Default)]
pub(crate) struct Offers {
    /// Keeps every chunk whose address was read from a row.
    pin: Option<Pin>,
    offers: BTreeMap<RowKey, Offer>,
}

/// What to do with contents.
pub(crate) enum Look {
    /// Nothing: use this extent, whose row already has the contents.
    Shared(Extent),
    /// Store them for the row with [`Offers::append`], or report the result to [`Offers::appended`]; then use
    /// this extent.
    Append(RowKey, Extent),
    /// Store them unshared.
    Apart,
}

impl Offers {
    pub(super) fn get(&self, key: RowKey) -> Option<&Offer> {
        self.offers.get(&key)
    }

    /// Looks up a chunk with these contents. Offers in `beside` belong to the same change; the read is
    /// accounted to `group`.
    pub(crate) fn look(
        &mut self,
        handle: &PartitionHandle,
        sharing: &Sharing,
        group: u64,
        pieces: &[impl AsRef<[u8]>],
        beside: Option<&Offers>,
    ) -> Result<Look, VolumeError> {
        let chunks = &*handle.chunks;
        let pieces: &[&[u8]] = &pieces.iter().map(AsRef::as_ref).collect::<Vec<_>>();
        let digest = chunks.digest(pieces);
        let length = pieces.iter().map(|piece| piece.len()).sum::<usize>() as u32;
        let key = RowKey::of(&digest);
        let shared = Extent::Shared { row: key, length };
        let known = beside.and_then(|offers| offers.get(key)).or_else(|| self.get(key));
        if let Some(known) = known {
            return Ok(if known.digest == digest { Look::Shared(shared) } else { Look::Apart });
        }
        chunks.begin_sharing()?;
        // Taken before the row is read.
        self.pin.get_or_insert_with(|| sharing.pins.pin());
        let mut offer = Offer { digest, length, named: None, is_damaged: false, own: None };
        let look = match find_row(&*handle.meta, key)? {
            FoundRow::None => Look::Append(key, shared),
            FoundRow::Row(row) if row.digest == digest => {
                offer.named = Some(row.address);
                match holds(chunks, group, row.address, pieces) {
                    Ok(true) => Look::Shared(shared),
                    Ok(false) => {
                        tracing::error!(?key, "a shared chunk's contents do not match its digest");
                        Look::Apart
                    }
                    Err(error) => {
                        tracing::error!(?key, %error, "a shared chunk cannot be read; storing it again");
                        offer.is_damaged = true;
                        Look::Append(key, shared)
                    }
                }
            }
            FoundRow::Row(_) | FoundRow::Unreadable => Look::Apart,
        };
        if !matches!(look, Look::Apart) {
            self.offers.insert(key, offer);
        }
        Ok(look)
    }

    /// Stores the contents for [`Look::Append`].
    pub(crate) fn append(
        &mut self,
        key: RowKey,
        chunks: &dyn ChunkStore,
        pieces: &[Bytes],
        codec: Codec,
    ) -> Result<(), StoreError> {
        let appended = chunks.append_for(keys::row_owner(key), pieces, codec);
        self.appended(key, appended.as_ref().ok().copied());
        appended.map(drop)
    }

    /// Records the address of the chunk stored for [`Look::Append`]; `None` withdraws the offer.
    pub(crate) fn appended(&mut self, key: RowKey, address: Option<ChunkAddress>) {
        if address.is_none() {
            self.offers.remove(&key);
        } else if let Some(offer) = self.offers.get_mut(&key) {
            offer.own = address;
        }
    }

    /// Returns whether there are new chunks that must be durable before a record names them.
    pub(crate) fn has_own(&self) -> bool {
        self.offers.values().any(|offer| offer.own.is_some())
    }

    /// Stores chunks again whose row was deleted since it was read.
    ///
    /// # Errors
    /// `Store`; `DigestsCollide` if the row has other contents, so that the chunk cannot be shared at all.
    pub(crate) fn rescue(
        &mut self,
        chunks: &dyn ChunkStore,
        missing: &[RowKey],
        codec: Codec,
    ) -> Result<(), VolumeError> {
        for key in missing {
            let Some(offer) = self.offers.get_mut(key) else { continue };
            let Some(named) = offer.named.filter(|_| offer.own.is_none()) else {
                return Err(VolumeError::DigestsCollide);
            };
            let contents = chunks.read(named)?;
            offer.own = Some(chunks.append_for(keys::row_owner(*key), &[contents], codec)?);
        }
        Ok(())
    }

    /// Forgets new chunks that rows now name.
    pub(crate) fn settle(&mut self, used: &[ChunkAddress]) {
        for offer in self.offers.values_mut() {
            offer.own = offer.own.filter(|own| !used.contains(own));
        }
    }

    /// Releases unused new chunks and drops the pin.
    pub(crate) fn clear(&mut self, chunks: &dyn ChunkStore) {
        let offers = std::mem::take(&mut self.offers);
        offers.into_values().filter_map(|offer| offer.own).for_each(|own| chunks.release(own));
        self.pin = None;
    }
}

/// Returns whether a chunk has these contents.
fn holds(
    chunks: &dyn ChunkStore,
    group: u64,
    address: ChunkAddress,
    pieces: &[&[u8]],
) -> Result<bool, StoreError> {
    let mut contents = chunks.read_for(group, address)?;
    for piece in pieces {
        if contents.len() < piece.len() || contents.split_to(piece.len()) != piece {
            return Ok(false);
        }
    }
    Ok(contents.is_empty())
}
