//! Chunks that are to be shared and that no extent names yet.
//!
//! What comes in is looked up by its digest. A chunk with a row is not stored again, once it was read back and
//! found equal: so no file ever leans on a chunk that is damaged already. One that cannot be read is stored
//! anew, and the row then names the new place: that heals all files that show it.

use super::row::{FoundRow, RowKey, find_row};
use crate::VolumeError;
use crate::keys;
use crate::pins::Pin;
use crate::record::Extent;
use crate::shared::Partition;
use bytes::Bytes;
use std::collections::BTreeMap;
use store::{ChunkAddress, ChunkStore, Codec, Digest, StoreError};

/// What is known of a chunk that is to be shared.
pub(crate) struct Offer {
    pub(super) digest: Digest,
    pub(super) length: u32,
    /// Where a row said that it is. Kept there by the pin.
    named: Option<ChunkAddress>,
    /// What lies there cannot be read.
    is_damaged: bool,
    /// A chunk that nobody names yet.
    pub(super) own: Option<ChunkAddress>,
}

impl Offer {
    /// What takes the place of the chunk at `address` if that is damaged.
    pub(super) fn heals(&self, address: ChunkAddress) -> Option<ChunkAddress> {
        self.own.filter(|_| self.is_damaged && self.named == Some(address))
    }
}

/// The chunks that one change is to share.
#[derive(Default)]
pub(crate) struct Offers {
    /// Holds every chunk that a row was seen to name.
    pin: Option<Pin>,
    offers: BTreeMap<RowKey, Offer>,
}

/// What is to be done with contents.
pub(crate) enum Look {
    /// Nothing: this extent has them.
    Shared(Extent),
    /// Append them for the row: [`Offers::append`], or tell [`Offers::appended`]; then this extent has them.
    Append(RowKey, Extent),
    /// They cannot be shared.
    Apart,
}

impl Offers {
    pub(super) fn get(&self, key: RowKey) -> Option<&Offer> {
        self.offers.get(&key)
    }

    /// Looks for a chunk with these contents. Those that `beside` offers are part of the same change;
    /// `group` is who reads.
    pub(crate) fn look(
        &mut self,
        home: &Partition,
        group: u64,
        pieces: &[impl AsRef<[u8]>],
        beside: Option<&Offers>,
    ) -> Result<Look, VolumeError> {
        let chunks = &*home.handle.chunks;
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
        // Before the row is read.
        self.pin.get_or_insert_with(|| home.sharing.pins.pin());
        let mut offer = Offer { digest, length, named: None, is_damaged: false, own: None };
        let look = match find_row(&*home.handle.meta, key)? {
            FoundRow::None => Look::Append(key, shared),
            FoundRow::Row(row) if row.digest == digest => {
                offer.named = Some(row.address);
                match holds(chunks, group, row.address, pieces) {
                    Ok(true) => Look::Shared(shared),
                    Ok(false) => {
                        tracing::error!(?key, "a shared chunk has other contents than its digest says");
                        Look::Apart
                    }
                    Err(error) => {
                        tracing::error!(?key, %error, "a shared chunk cannot be read; it is stored anew");
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

    /// Appends what [`Look::Append`] wanted.
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

    /// Where the chunk is that [`Look::Append`] wanted; one that could not be appended is not offered any more.
    pub(crate) fn appended(&mut self, key: RowKey, address: Option<ChunkAddress>) {
        if address.is_none() {
            self.offers.remove(&key);
        } else if let Some(offer) = self.offers.get_mut(&key) {
            offer.own = address;
        }
    }

    /// Whether there are chunks that must be durable before anything names them.
    pub(crate) fn has_own(&self) -> bool {
        self.offers.values().any(|offer| offer.own.is_some())
    }

    /// Stores anew what lost its row since it was looked at.
    ///
    /// # Errors
    /// `Store`; `DigestsCollide` if its row is of other contents: then it could not be shared at all.
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

    /// From here on rows name these.
    pub(crate) fn settle(&mut self, used: &[ChunkAddress]) {
        for offer in self.offers.values_mut() {
            offer.own = offer.own.filter(|own| !used.contains(own));
        }
    }

    /// Gives up what nobody took, and holds nothing any more.
    pub(crate) fn clear(&mut self, chunks: &dyn ChunkStore) {
        let offers = std::mem::take(&mut self.offers);
        offers.into_values().filter_map(|offer| offer.own).for_each(|own| chunks.release(own));
        self.pin = None;
    }
}

/// Whether a chunk has these contents.
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
