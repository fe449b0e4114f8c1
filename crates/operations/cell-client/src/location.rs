//! Locations of volumes.

use super::describe::failed;
use super::{CellClient, Interface};
use afs_idl::{ClientConnection, vl};
use anyhow::{Result, bail};
use base::{AbortCode, PartitionId, VolumeId, VolumeType};
use std::net::Ipv4Addr;

/// A site of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    /// Address of the file server.
    pub server: Ipv4Addr,
    /// Partition on the server.
    pub partition: PartitionId,
    /// Whether this is the read-write site.
    pub is_read_write: bool,
}

/// A volume's entry in the location database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Located {
    /// Name of the read-write volume.
    pub name: String,
    /// Numbers of the read-write, read-only and backup volumes; 0 for none.
    pub ids: [VolumeId; 3],
    /// Sites of the volume.
    pub sites: Vec<Site>,
}

impl Located {
    /// Decodes an entry.
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

    /// Returns the ID of the read-write volume.
    pub fn read_write(&self) -> VolumeId {
        self.ids[VolumeType::ReadWrite as usize]
    }

    /// Returns the read-write site.
    pub fn read_write_site(&self) -> Result<&Site> {
        match self.sites.iter().find(|site| site.is_read_write) {
            Some(site) => Ok(site),
            None => bail!("the volume {} has no read-write site", self.name),
        }
    }
}

impl Located {
    /// Returns the named volume and a site to read it from: the read-only or backup volume if the name has
    /// that suffix or is its ID; else the read-write volume, or a read-only one if there is no other, as for
    /// a snapshot.
    pub fn readable_site(&self, named: &str) -> Result<(&Site, VolumeId)> {
        let number = named.parse().map(VolumeId).ok().filter(|number| *number != VolumeId(0));
        let is_meant = |kind: VolumeType, ending| {
            named.ends_with(ending) || number.is_some_and(|number| number == self.ids[kind as usize])
        };
        let read_only = || self.sites.iter().find(|site| !site.is_read_write);
        let (site, kind) = match (is_meant(VolumeType::ReadOnly, ".readonly"), self.read_write_site()) {
            (true, _) => (read_only(), VolumeType::ReadOnly),
            (false, site) if is_meant(VolumeType::Backup, ".backup") => (site.ok(), VolumeType::Backup),
            (false, Ok(site)) => (Some(site), VolumeType::ReadWrite),
            (false, Err(_)) if self.ids[VolumeType::ReadOnly as usize] != VolumeId(0) => {
                (self.sites.first(), VolumeType::ReadOnly)
            }
            (false, Err(error)) => return Err(error),
        };
        match (site, self.ids[kind as usize]) {
            (_, VolumeId(0)) => bail!("there is no volume {named}"),
            (None, _) => bail!("no site has the volume {named}"),
            (Some(site), id) => Ok((site, id)),
        }
    }
}

/// Maximum number of file servers requested.
const SERVERS_MAX: usize = 254;

impl CellClient {
    /// Returns the first address of each registered file server.
    pub fn file_servers(&self) -> Result<Vec<Ipv4Addr>, AbortCode> {
        Ok(self.file_server_table()?.iter().filter_map(|addresses| addresses.first().copied()).collect())
    }

    /// Returns the addresses of each registered file server. Servers are requested by index, because GetAddrs
    /// returns the addresses only of servers registered without a UUID, which no longer occur.
    pub fn file_server_table(&self) -> Result<Vec<Vec<Ipv4Addr>>, AbortCode> {
        let all = |vl: &dyn ClientConnection| vl::get_addrs(vl, &vl::GetAddrsRequest::default());
        let count = self.database(Interface::Locations, all)?.addresses.len().min(SERVERS_MAX);
        let mut servers = Vec::new();
        for index in (1..).take(count) {
            let attributes =
                vl::ListAddrByAttributes { mask: vl::address_mask::INDEX, index, ..Default::default() };
            let request = vl::GetAddrsURequest { attributes };
            match self.database(Interface::Locations, |vl| vl::get_addrs_u(vl, &request)) {
                Ok(reply) => servers.push(reply.addresses.iter().map(|&address| address.into()).collect()),
                Err(AbortCode::VL_NOENT | AbortCode::VL_INDEXERANGE) => {}
                Err(code) => return Err(code),
            }
        }
        Ok(servers)
    }

    /// Returns the entry of a volume by name or ID; `None` if no location server has one.
    pub fn find_volume(&self, volume: &str) -> Result<Option<Located>> {
        self.find_unless(volume, |_| false)
    }

    fn find_unless(&self, volume: &str, is_old_news: impl Fn(&Located) -> bool) -> Result<Option<Located>> {
        let leads_nowhere = |found: &Option<Located>| found.as_ref().is_none_or(&is_old_news);
        let answer = self.database_unless(Interface::Locations, |vl| ask(vl, volume), leads_nowhere);
        answer.map_err(failed(format!("look up the volume {volume}")))
    }

    /// Returns the entry of a volume, which must exist.
    pub fn locate(&self, volume: &str) -> Result<Located> {
        self.locate_unless(volume, |_| false)
    }

    /// Returns the entry of a volume; if `is_old_news` says that an answer is out of date, asks other
    /// location servers.
    pub fn locate_unless(&self, volume: &str, is_old_news: impl Fn(&Located) -> bool) -> Result<Located> {
        existing(volume, self.find_unless(volume, is_old_news)?)
    }

    /// Returns whether a volume of this name exists, from the sync site; for use before creating it.
    pub fn is_registered(&self, name: &str) -> Result<bool, AbortCode> {
        self.newest(Interface::Locations, |vl| ask(vl, name)).map(|found| found.is_some())
    }

    /// Fails if a volume has this name; for use before creating it.
    pub fn check_name_is_free(&self, name: &str) -> Result<()> {
        if self.find_newest(name)?.is_some() {
            bail!("a volume {name} exists already");
        }
        Ok(())
    }

    /// Returns the entry of a volume from the sync site; for use before changing or creating it.
    pub fn find_newest(&self, volume: &str) -> Result<Option<Located>> {
        let answer = self.newest(Interface::Locations, |vl| ask(vl, volume));
        answer.map_err(failed(format!("look up the volume {volume}")))
    }

    /// Returns the entry of a volume for reading: like [`locate_newest`](CellClient::locate_newest), or,
    /// while there is no sync site, from any location server. The flag says whether the entry may be out of
    /// date.
    pub fn locate_to_read(&self, volume: &str) -> Result<(Located, bool)> {
        match self.newest(Interface::Locations, |vl| ask(vl, volume)) {
            Ok(found) => Ok((existing(volume, found)?, false)),
            Err(_) => Ok((self.locate(volume)?, true)),
        }
    }

    /// Returns the entry of a volume, which must exist, from the sync site; for use before changing it.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_named_clone_is_read() {
        let site = |last: u8, is_read_write| Site {
            server: Ipv4Addr::new(10, 0, 0, last),
            partition: PartitionId::from_index(0).unwrap(),
            is_read_write,
        };
        let all = Located {
            name: "a".into(),
            ids: [7, 8, 9].map(VolumeId),
            sites: vec![site(2, false), site(1, true), site(3, false)],
        };
        let reads = |located: &Located, named| {
            located.readable_site(named).ok().map(|(site, id)| (site.server.octets()[3], id.0))
        };
        for (named, wanted) in [("a", (1, 7)), ("7", (1, 7)), ("a.readonly", (2, 8)), ("8", (2, 8))] {
            assert_eq!(reads(&all, named), Some(wanted), "{named}");
        }
        assert_eq!((reads(&all, "a.backup"), reads(&all, "9")), (Some((1, 9)), Some((1, 9))));
        let alone = Located { ids: [7, 0, 0].map(VolumeId), sites: vec![site(1, true)], ..all.clone() };
        assert_eq!((reads(&alone, "a.readonly"), reads(&alone, "a.backup")), (None, None));
        assert_eq!(reads(&alone, "0"), Some((1, 7)));
        let snapshot = Located { ids: [0, 8, 0].map(VolumeId), sites: vec![site(2, false)], ..all };
        assert_eq!((reads(&snapshot, "a"), reads(&snapshot, "a.backup")), (Some((2, 8)), None));
    }
}
