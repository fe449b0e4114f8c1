//! Conversions between wire structures and the shared ids.

use crate::common;
use base::{Fid, VnodeId, VolumeId};

impl From<Fid> for common::Fid {
    fn from(fid: Fid) -> common::Fid {
        common::Fid { volume: fid.volume.0, vnode: fid.vnode.0, unique: fid.unique }
    }
}

impl From<common::Fid> for Fid {
    fn from(fid: common::Fid) -> Fid {
        Fid { volume: VolumeId(fid.volume), vnode: VnodeId(fid.vnode), unique: fid.unique }
    }
}

impl common::InterfaceAddr {
    /// Returns a host with these addresses, as many as fit in the structure.
    pub fn new(uuid: base::HostUuid, addresses: &[std::net::Ipv4Addr]) -> common::InterfaceAddr {
        let mut host = common::InterfaceAddr { uuid, ..common::InterfaceAddr::default() };
        for (place, address) in host.addresses.iter_mut().zip(addresses) {
            *place = u32::from(*address);
            host.interface_count += 1;
        }
        host
    }

    /// Returns the valid addresses.
    pub fn addresses(&self) -> impl Iterator<Item = std::net::Ipv4Addr> {
        let count = usize::try_from(self.interface_count).unwrap_or(0);
        self.addresses.iter().take(count).map(|&address| address.into())
    }
}
