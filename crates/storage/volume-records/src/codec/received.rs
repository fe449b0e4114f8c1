//! Records of received transfer data, and of directories that become volumes.

use super::{Fields, Record};
use crate::{Receipt, Splitting};
use base::{Fid, UserId, VnodeId, VolumeId};

/// Encodes a receipt; volume and group are in its key.
pub fn put_receipt(receipt: &Receipt) -> Vec<u8> {
    let Receipt { epoch, chunk_shift, bytes, vnodes, touched, .. } = *receipt;
    Record::new().u64(epoch).u8(chunk_shift).u64(bytes).u64(vnodes).u32(touched.0).0
}

/// Decodes the receipt with this volume and group in its key.
pub fn get_receipt(volume: VolumeId, group: u64, value: &[u8]) -> Option<Receipt> {
    let mut f = Fields::open(value)?;
    let (epoch, chunk_shift, bytes, vnodes, touched) = (f.u64()?, f.u8()?, f.u64()?, f.u64()?, f.time()?);
    let is_sound = group > 0 && epoch > 0 && f.0.is_empty();
    is_sound.then_some(Receipt { volume, group, epoch, chunk_shift, bytes, vnodes, touched })
}

/// Encodes a split; the volume that contains the directory is in its key.
pub fn put_splitting(splitting: &Splitting) -> Vec<u8> {
    let Splitting { new, directory, parent, owner, fresh_changes, is_replaced, ref name, .. } = *splitting;
    Record::new()
        .u32(new.0)
        .u32(directory.vnode.0)
        .u32(directory.unique)
        .u32(parent.vnode.0)
        .u32(parent.unique)
        .i32(owner.0)
        .u64(fresh_changes)
        .u8(is_replaced.into())
        .bytes(name)
        .0
}

/// Decodes the split of a directory of this volume.
pub fn get_splitting(volume: VolumeId, value: &[u8]) -> Option<Splitting> {
    fn fid(f: &mut Fields<'_>, volume: VolumeId) -> Option<Fid> {
        Some(Fid { volume, vnode: VnodeId(f.u32()?), unique: f.u32()? })
    }
    let mut f = Fields::open(value)?;
    let new = f.volume()?;
    let (directory, parent) = (fid(&mut f, volume)?, fid(&mut f, volume)?);
    let (owner, fresh_changes, is_replaced) = (UserId(f.i32()?), f.u64()?, f.u8()? != 0);
    let name = f.0.to_vec();
    let splitting = Splitting { volume, new, directory, parent, name, owner, fresh_changes, is_replaced };
    (!splitting.name.is_empty()).then_some(splitting)
}
