//! Tests of the location database.

mod entries;
mod import;
mod limits;
mod lists;
mod model;
mod patterns;
mod records;
mod servers;

use crate::{
    EntryForm, LocationError, Locations, NewLocation, NewSite, VolumeQuery, entry_flags, site_flags,
};
use base::{AbortCode, UnixTime, VolumeId};
use std::net::Ipv4Addr;
use std::sync::Arc;
use store::MemoryMeta;

const NOW: UnixTime = UnixTime(1_700_000_000);

/// A database in memory.
struct Fixture {
    meta: Arc<MemoryMeta>,
    db: Locations,
}

impl Fixture {
    fn new() -> Fixture {
        let meta = Arc::new(MemoryMeta::new());
        Fixture { db: Locations::open(meta.clone()).unwrap(), meta }
    }

    /// Returns the database after a crash that loses everything not synced.
    fn crashed(&self) -> Fixture {
        let meta = Arc::new(self.meta.crash(0));
        Fixture { db: Locations::open(meta.clone()).unwrap(), meta }
    }

    fn create(&self, new: &NewLocation) -> Result<(), AbortCode> {
        self.db.create(new).map(drop).map_err(code)
    }
}

#[allow(clippy::needless_pass_by_value, reason = "for map_err")]
fn code(error: LocationError) -> AbortCode {
    error.abort_code()
}

fn address(last: u8) -> Ipv4Addr {
    Ipv4Addr::new(192, 0, 2, last)
}

fn site(server: u8, partition: i32, flags: u8) -> NewSite {
    NewSite { address: address(server), partition, flags: flags.into() }
}

/// Returns a volume that only has a read-write site.
fn volume(name: &str, id: u32) -> NewLocation {
    NewLocation {
        name: name.into(),
        ids: [VolumeId(id), VolumeId(id + 1), VolumeId(id + 2)],
        clone: VolumeId(0),
        flags: entry_flags::RW_EXISTS,
        sites: vec![site(1, 0, site_flags::READ_WRITE)],
        form: EntryForm::Current,
    }
}

fn by_id(id: u32) -> VolumeQuery {
    VolumeQuery::Id(VolumeId(id))
}

fn by_name(name: &str) -> VolumeQuery {
    VolumeQuery::parse(name.as_bytes()).unwrap()
}
