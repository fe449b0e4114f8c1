//! Where volumes are.

use super::describe::failed;
use super::{CellClient, Interface};
use afs_idl::{ClientConnection, vl};
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
    /// The entry of a volume by name or number; `None` if no location server has one.
    pub fn find_volume(&self, volume: &str) -> Result<Option<Located>> {
        self.find_unless(volume, |_| false)
    }

    fn find_unless(&self, volume: &str, is_old_news: impl Fn(&Located) -> bool) -> Result<Option<Located>> {
        let leads_nowhere = |found: &Option<Located>| found.as_ref().is_none_or(&is_old_news);
        let answer = self.database_unless(Interface::Locations, |vl| ask(vl, volume), leads_nowhere);
        answer.map_err(failed(format!("look up the volume {volume}")))
    }

    /// The entry of a volume that must exist.
    pub fn locate(&self, volume: &str) -> Result<Located> {
        self.locate_unless(volume, |_| false)
    }

    /// The same, of a location server that says something else than what turned out not to be so, if there is one.
    pub fn locate_unless(&self, volume: &str, is_old_news: impl Fn(&Located) -> bool) -> Result<Located> {
        existing(volume, self.find_unless(volume, is_old_news)?)
    }

    /// Whether a volume that somebody is about to make is there already: the answer is not behind.
    pub fn is_registered(&self, name: &str) -> Result<bool, AbortCode> {
        self.newest(Interface::Locations, |vl| ask(vl, name)).map(|found| found.is_some())
    }

    /// Refuses if a volume has the name of one that is to be made.
    pub fn check_name_is_free(&self, name: &str) -> Result<()> {
        if self.find_newest(name)?.is_some() {
            bail!("a volume {name} exists already");
        }
        Ok(())
    }

    /// The entry of a volume that is to be changed, or made if there is none: the answer is not behind.
    pub fn find_newest(&self, volume: &str) -> Result<Option<Located>> {
        let answer = self.newest(Interface::Locations, |vl| ask(vl, volume));
        answer.map_err(failed(format!("look up the volume {volume}")))
    }

    /// The entry of a volume that must exist and is read or looked at: as [`locate_newest`](CellClient::locate_newest), or, while
    /// no location server takes changes, what any of them says; then it is true that the answer may be behind.
    pub fn locate_to_read(&self, volume: &str) -> Result<(Located, bool)> {
        match self.newest(Interface::Locations, |vl| ask(vl, volume)) {
            Ok(found) => Ok((existing(volume, found)?, false)),
            Err(_) => Ok((self.locate(volume)?, true)),
        }
    }

    /// The entry of a volume that must exist and is to be changed.
    pub fn locate_newest(&self, volume: &str) -> Result<Located> {
        existing(volume, self.find_newest(volume)?)
    }
}

fn ask(vl: &dyn ClientConnection, volume: &str) -> Result<Option<Located>, AbortCode> {
    let request = vl::GetEntryByNameNRequest { volume_name: volume.into() };
    match vl::get_entry_by_name_n(vl, &request) {
        Ok(reply) => Ok(Some(Located::from_wire(&reply.entry))),
        Err(AbortCode::VL_NOENT) => Ok(None),
        Err(code) => Err(code),
    }
}

fn existing(volume: &str, located: Option<Located>) -> Result<Located> {
    match located {
        Some(located) => Ok(located),
        None => bail!("there is no volume {volume} in the location database"),
    }
}
