//! Conversions between messages and the database's types.

use afs_idl::vl::{
    NVldbEntry, OLD_SITES, SITES, UVldbEntry, VitalHeader, VldbEntry, VldbUpdateEntry, update_mask,
    update_site_mask,
};
use base::{AbortCode, HostUuid, VolumeId};
use std::net::Ipv4Addr;
use vldb::{
    EntryForm, Location, LocationError, NewLocation, NewSite, Server, Servers, Site, SiteUpdate, Totals,
    Update, site_flags,
};
use xdr::{Encode, XdrString};

/// One of the three forms of an entry.
pub(crate) trait WireEntry: Default + Encode {
    /// Converts the entry, with its servers' addresses or UUIDs. The old form has the first 8 sites, as in
    /// OpenAFS: an old client can read from those.
    fn new(location: &Location, servers: &Servers) -> Self;
}

fn name(location: &Location) -> XdrString {
    location.name.as_str().into()
}

fn ids(location: &Location) -> [u32; 3] {
    location.ids.map(|id| id.0)
}

/// Returns an array with one value per site, and the default for the remaining elements.
fn for_sites<T: Copy + Default, const N: usize>(sites: &[Site], value: impl Fn(Site) -> T) -> [T; N] {
    std::array::from_fn(|at| sites.get(at).copied().map_or_else(T::default, &value))
}

fn address(servers: &Servers, site: Site) -> u32 {
    servers.get(site.server).map_or(0, |server| server.first_address().to_bits())
}

fn partition(site: Site) -> i32 {
    site.partition.into()
}

fn flags(site: Site) -> i32 {
    site.flags.into()
}

impl WireEntry for VldbEntry {
    fn new(location: &Location, servers: &Servers) -> VldbEntry {
        let sites = &location.sites;
        VldbEntry {
            name: name(location),
            spare3: 0,
            server_count: sites.len().min(OLD_SITES) as i32,
            server_number: for_sites(sites, |site| address(servers, site)),
            server_partition: for_sites(sites, partition),
            server_flags: for_sites(sites, flags),
            volume_id: ids(location),
            clone_id: location.clone.0,
            flags: location.flags as i32,
        }
    }
}

impl WireEntry for NVldbEntry {
    fn new(location: &Location, servers: &Servers) -> NVldbEntry {
        let sites = &location.sites;
        NVldbEntry {
            name: name(location),
            server_count: sites.len().min(SITES) as i32,
            server_number: for_sites(sites, |site| address(servers, site)),
            server_partition: for_sites(sites, partition),
            server_flags: for_sites(sites, flags),
            volume_id: ids(location),
            clone_id: location.clone.0,
            flags: location.flags as i32,
            ..NVldbEntry::default()
        }
    }
}

impl WireEntry for UVldbEntry {
    fn new(location: &Location, servers: &Servers) -> UVldbEntry {
        let sites = &location.sites;
        let server = |site: Site| identity(servers.get(site.server));
        UVldbEntry {
            name: name(location),
            server_count: sites.len().min(SITES) as i32,
            server_uuid: for_sites(sites, |site| server(site).uuid),
            server_unique: for_sites(sites, |site| server(site).uniquifier),
            server_partition: for_sites(sites, partition),
            server_flags: for_sites(sites, |site| flags(site) | i32::from(server(site).flag)),
            volume_id: ids(location),
            clone_id: location.clone.0,
            flags: location.flags as i32,
            ..UVldbEntry::default()
        }
    }
}

/// Identity of a server in the U form of an entry.
struct ServerIdentity {
    /// The UUID, or the address in its first four bytes.
    uuid: HostUuid,
    uniquifier: i32,
    /// [`site_flags::UUID`] if `uuid` is a UUID, 0 if it is an address.
    flag: u8,
}

fn identity(server: Option<&Server>) -> ServerIdentity {
    match server {
        Some(Server::Registered { uuid, uniquifier, .. }) => {
            ServerIdentity { uuid: *uuid, uniquifier: *uniquifier, flag: site_flags::UUID }
        }
        other => {
            let mut uuid = HostUuid::default();
            let address = other.map_or(Ipv4Addr::UNSPECIFIED, Server::first_address);
            uuid.0[..4].copy_from_slice(&address.octets());
            ServerIdentity { uuid, uniquifier: 0, flag: 0 }
        }
    }
}

/// Returns the sites of a caller's entry: the first `count` elements of the arrays.
fn new_sites(
    count: i32,
    servers: &[u32],
    partitions: &[i32],
    flags: &[i32],
) -> Result<Vec<NewSite>, LocationError> {
    let count = usize::try_from(count).ok().filter(|count| (1..=servers.len()).contains(count));
    let count = count.ok_or(LocationError::BadServer)?;
    let sites = servers.iter().zip(partitions).zip(flags).take(count);
    Ok(sites
        .map(|((&server, &partition), &flags)| NewSite {
            address: Ipv4Addr::from_bits(server),
            partition,
            flags,
        })
        .collect())
}

pub(crate) fn from_old(entry: VldbEntry) -> Result<NewLocation, LocationError> {
    Ok(NewLocation {
        sites: new_sites(
            entry.server_count,
            &entry.server_number,
            &entry.server_partition,
            &entry.server_flags,
        )?,
        name: entry.name.0,
        ids: entry.volume_id.map(VolumeId),
        clone: VolumeId(entry.clone_id),
        flags: entry.flags as u32,
        form: EntryForm::Old,
    })
}

pub(crate) fn from_n(entry: NVldbEntry) -> Result<NewLocation, LocationError> {
    Ok(NewLocation {
        sites: new_sites(
            entry.server_count,
            &entry.server_number,
            &entry.server_partition,
            &entry.server_flags,
        )?,
        name: entry.name.0,
        ids: entry.volume_id.map(VolumeId),
        clone: VolumeId(entry.clone_id),
        flags: entry.flags as u32,
        form: EntryForm::Current,
    })
}

/// Converts an update request. The spare field has the read-write id.
pub(crate) fn update(wire: &VldbUpdateEntry) -> Result<Update, LocationError> {
    let has = |bit: u32| wire.mask & bit != 0;
    let id = |bit, value| has(bit).then_some(VolumeId(value));
    Ok(Update {
        name: has(update_mask::VOLUME_NAME).then(|| wire.name.0.clone()),
        flags: has(update_mask::FLAGS).then_some(wire.flags as u32),
        clone: id(update_mask::CLONE_ID, wire.clone_id),
        ids: [
            id(update_mask::READ_WRITE_ID, wire.spare3 as u32),
            id(update_mask::READ_ONLY_ID, wire.read_only_id),
            id(update_mask::BACKUP_ID, wire.backup_id),
        ],
        sites: has(update_mask::SITES).then(|| site_updates(wire)).transpose()?,
        form: EntryForm::Old,
    })
}

fn site_updates(wire: &VldbUpdateEntry) -> Result<Vec<SiteUpdate>, LocationError> {
    let count = usize::try_from(wire.modified_sites).ok().filter(|count| (1..=OLD_SITES).contains(count));
    Ok((0..count.ok_or(LocationError::BadServer)?).map(|at| site_update(wire, at)).collect())
}

fn site_update(wire: &VldbUpdateEntry, at: usize) -> SiteUpdate {
    let has = |bit: u32| wire.site_mask[at] & bit != 0;
    let new = NewSite {
        address: Ipv4Addr::from_bits(wire.site_new_server[at]),
        partition: wire.site_new_partition[at],
        flags: wire.site_new_flags[at],
    };
    SiteUpdate {
        target: (Ipv4Addr::from_bits(wire.site_target_server[at]), wire.site_target_partition[at]),
        delete: has(update_site_mask::DELETE),
        add: has(update_site_mask::ADD).then_some(new),
        server: has(update_site_mask::MODIFY_SERVER).then_some(new.address),
        partition: has(update_site_mask::MODIFY_PARTITION).then_some(new.partition),
        flags: has(update_site_mask::MODIFY_FLAGS).then_some(new.flags),
    }
}

/// Sizes in OpenAFS's database file: of the header, and of one entry.
const HEADER_BYTES: i32 = 132_120;
const ENTRY_BYTES: i32 = 148;
/// The database version with registered servers (VLDBVERSION_4).
const VERSION: i32 = 4;

/// Returns the database header that OpenAFS's file would have.
pub(crate) fn header(totals: &Totals) -> VitalHeader {
    let entries = i32::try_from(totals.next_entry.0.saturating_sub(1)).unwrap_or(i32::MAX);
    VitalHeader {
        version: VERSION,
        header_size: HEADER_BYTES,
        free_pointer: 0,
        end_pointer: entries.saturating_mul(ENTRY_BYTES).saturating_add(HEADER_BYTES),
        allocations: totals.created as i32,
        frees: totals.deleted as i32,
        max_volume_id: totals.max_volume.0,
        total_entries: totals.volumes.map(|count| count as i32),
    }
}

/// Number of registered servers per block of OpenAFS's file.
const SERVERS_PER_BLOCK: u32 = 63;

/// Returns a server's word in the reply of GetAddrs: an address or, for a registered server, the mark 255, a
/// block and an index within it, which clients look up with GetAddrsU.
pub(crate) fn address_word(number: vldb::ServerNumber, server: &Server) -> u32 {
    match server {
        Server::Address(address) => address.to_bits(),
        Server::Registered { .. } => {
            let number = u32::from(number.0);
            0xff00_0000 | (number / SERVERS_PER_BLOCK) << 16 | (number % SERVERS_PER_BLOCK + 1)
        }
    }
}

/// Returns an error's abort code. Errors of this server itself are logged.
pub(crate) fn abort_code(error: &LocationError) -> AbortCode {
    if matches!(error, LocationError::Store(_) | LocationError::Damaged(_)) {
        tracing::error!(%error, "location database");
    }
    error.abort_code()
}
