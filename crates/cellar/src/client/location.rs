//! Where volumes are.

use super::describe::failed;
use super::{CellClient, Interface};
use afs_idl::vl;
use anyhow::{Result, bail};
use base::{AbortCode, PartitionId, VolumeId, VolumeType};
use std::net::Ipv4Addr;

/// One copy of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    /// File server.
    pub server: Ipv4Addr,
    /// Partition.
    pub partition: PartitionId,
    /// Whether it is the read-write copy.
    pub is_read_write: bool,
}

/// A volume's entry in the location database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Located {
    /// The read-write volume's name.
    pub name: String,
    /// Numbers of the read-write, read-only and backup volumes; 0 for none.
    pub ids: [VolumeId; 3],
    /// Where they are.
    pub sites: Vec<Site>,
}

impl Located {
    /// From the wire.
    pub fn from_wire(entry: &vl::NVldbEntry) -> Located {
        let count = usize::try_from(entry.server_count).unwrap_or(0).min(vl::SITES);
        let site = |i: usize| {
            let partition =
                u32::try_from(entry.server_partition[i]).ok().and_then(PartitionId::from_index)?;
            let is_read_write = entry.server_flags[i] & vl::site_flags::READ_WRITE != 0;
            Some(Site { server: entry.server_number[i].into(), partition, is_read_write })
        };
        Located {
            name: entry.name.to_string(),
            ids: entry.volume_id.map(VolumeId),
            sites: (0..count).filter_map(site).collect(),
        }
    }

    /// The read-write volume.
    pub fn read_write(&self) -> VolumeId {
        self.ids[VolumeType::ReadWrite as usize]
    }

    /// Where the read-write volume is.
    pub fn read_write_site(&self) -> Result<&Site> {
        match self.sites.iter().find(|site| site.is_read_write) {
            Some(site) => Ok(site),
            None => bail!("the volume {} has no read-write site", self.name),
        }
    }
}

impl Located {
    /// Where it can be read: the read-write volume, or a read-only one if there is no other, like a snapshot.
    pub fn readable_site(&self) -> Result<(&Site, VolumeId)> {
        let (site, read_only) = (self.sites.first(), self.ids[VolumeType::ReadOnly as usize]);
        match (self.read_write_site(), site) {
            (Ok(site), _) => Ok((site, self.read_write())),
            (Err(_), Some(site)) if read_only != VolumeId(0) => Ok((site, read_only)),
            (Err(error), _) => Err(error),
        }
    }
}

impl CellClient {
    /// The entry of a volume by name or number; `None` if there is none.
    pub fn find_volume(&self, volume: &str) -> Result<Option<Located>> {
        let request = vl::GetEntryByNameNRequest { volume_name: volume.into() };
        let answer = self.database(Interface::Locations, |vl| vl::get_entry_by_name_n(vl, &request));
        match answer {
            Ok(reply) => Ok(Some(Located::from_wire(&reply.entry))),
            Err(AbortCode::VL_NOENT) => Ok(None),
            Err(code) => Err(failed(format!("look up the volume {volume}"))(code)),
        }
    }

    /// The entry of a volume that must exist.
    pub fn locate(&self, volume: &str) -> Result<Located> {
        match self.find_volume(volume)? {
            Some(located) => Ok(located),
            None => bail!("there is no volume {volume} in the location database"),
        }
    }
}
