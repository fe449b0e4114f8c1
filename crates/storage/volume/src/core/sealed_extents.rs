//! Encrypts contents stored in the metadata of encrypted partitions.

use crate::VolumeError;
use crate::core::shared::Partition;
use crate::interface::error::damage;
use volume_records::codec::{self, Extent};
use volume_records::families;

impl Partition {
    /// Encodes an extent for storage under a key (without its epoch).
    pub(crate) fn extent_record(&self, key: &[u8], extent: &Extent) -> Result<Vec<u8>, VolumeError> {
        if let Extent::Inline(contents) = extent
            && let Some(sealed) = self.handle.chunks.seal(key, contents)?
        {
            return Ok(codec::put_extent(&Extent::Sealed(sealed.into())));
        }
        Ok(codec::put_extent(extent))
    }

    /// Decodes and decrypts the extent stored under a key.
    pub(crate) fn extent(&self, key: &[u8], value: &[u8]) -> Result<Extent, VolumeError> {
        let damage = |what| damage(families::EXTENTS, key, what);
        match codec::get_extent(value).ok_or_else(|| damage("the extent"))? {
            Extent::Sealed(sealed) => {
                let contents = self.handle.chunks.unseal(key, &sealed).map_err(|what| {
                    let error = damage("contents that cannot be decrypted");
                    tracing::error!(%error, what, partition = %self.handle.id, "cannot read a file");
                    error
                });
                contents.map(Extent::Inline)
            }
            plain => Ok(plain),
        }
    }
}
