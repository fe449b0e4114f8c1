//! Changes entries of the location database, as `vos` does.

use super::place::Place;
use afs_idl::vl;
use cell_client::{CellClient, Interface};
use std::net::Ipv4Addr;

/// A client of the cell with the key of its servers.
pub(crate) struct Locations {
    pub(crate) cell: CellClient,
}

impl Locations {
    /// Creates a client of the cell whose databases are at this place.
    pub(crate) fn of(place: &Place) -> Locations {
        Locations { cell: place.client() }
    }

    pub(crate) fn entry(&self, volume: &str) -> vl::NVldbEntry {
        let request = vl::GetEntryByNameNRequest { volume_name: volume.into() };
        let found = self.cell.database(Interface::Locations, |way| vl::get_entry_by_name_n(way, &request));
        found.unwrap().entry
    }

    /// Gives a volume read-only sites on the first partitions of exactly these servers, as `vos addsite` and
    /// `vos remsite` do.
    pub(crate) fn set_sites(&self, volume: &str, sites: &[Ipv4Addr]) {
        let mut entry = self.entry(volume);
        for (at, site) in (1..).zip(sites) {
            entry.server_number[at] = (*site).into();
            entry.server_partition[at] = 0;
            entry.server_flags[at] = vl::site_flags::READ_ONLY;
        }
        entry.server_count = 1 + sites.len() as i32;
        let volume_id = entry.volume_id[0];
        let request =
            vl::ReplaceEntryNRequest { volume_id, volume_type: 0, new_entry: entry, release_type: 0 };
        self.cell.database(Interface::Locations, |way| vl::replace_entry_n(way, &request)).unwrap();
    }
}
