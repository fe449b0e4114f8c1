//! Operations that change the database.

use crate::draft::Draft;
use crate::entry::{
    EntryNumber, Location, Site, VolumeQuery, check_release, entry_flags, new_name, site_flags,
};
use crate::error::LocationError;
use crate::locations::Locations;
use base::limits::VOLUME_SITES_MAX;
use base::{HostUuid, UnixTime, VolumeId, VolumeType};
use std::net::Ipv4Addr;
use std::sync::Arc;

/// Maximum number of volume ids per reservation (MAXBUMPCOUNT).
const BUMP_MAX: u32 = i32::MAX as u32;

/// The wire form in which a caller exchanges entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EntryForm {
    /// The form with room for [`VOLUME_SITES_MAX`] sites (nvldbentry, uvldbentry).
    #[default]
    Current,
    /// The form with room for 8 sites (vldbentry, VldbUpdateEntry).
    Old,
}

impl EntryForm {
    /// Returns the number of sites that an entry of this form can hold (NMAXNSERVERS, OMAXNSERVERS).
    pub fn sites_max(self) -> usize {
        match self {
            EntryForm::Current => VOLUME_SITES_MAX,
            EntryForm::Old => 8,
        }
    }
}

/// A site as described by a caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewSite {
    /// Any address of the server. An unknown address creates a new server.
    pub address: Ipv4Addr,
    /// Partition number, 0 to 255.
    pub partition: i32,
    /// Combination of [`site_flags`].
    pub flags: i32,
}

/// An entry as described by a caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewLocation {
    /// The read-write volume's name.
    pub name: Vec<u8>,
    /// Ids of the read-write, read-only and backup volumes; 0 for none.
    pub ids: [VolumeId; 3],
    /// Id of the release clone, or 0.
    pub clone: VolumeId,
    /// Combination of [`entry_flags`].
    pub flags: u32,
    /// 1 to 13 sites.
    pub sites: Vec<NewSite>,
    /// The form in which the caller wrote the entry.
    pub form: EntryForm,
}

/// Changes to one site (VL_UpdateEntry), applied in the order of the fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SiteUpdate {
    /// The site to change: an address of its server, and its partition.
    pub target: (Ipv4Addr, i32),
    /// Whether to remove the target.
    pub delete: bool,
    /// Site to add.
    pub add: Option<NewSite>,
    /// New server of the target.
    pub server: Option<Ipv4Addr>,
    /// New partition of the target.
    pub partition: Option<i32>,
    /// New flags of the target.
    pub flags: Option<i32>,
}

/// Fields of an entry to change (VL_UpdateEntry); `None` leaves a field unchanged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Update {
    /// New name.
    pub name: Option<Vec<u8>>,
    /// New [`entry_flags`].
    pub flags: Option<u32>,
    /// New release clone.
    pub clone: Option<VolumeId>,
    /// New ids of the read-write, read-only and backup volumes.
    pub ids: [Option<VolumeId>; 3],
    /// Changes to sites; must not be empty if present.
    pub sites: Option<Vec<SiteUpdate>>,
    /// The wire form in which the caller exchanges entries.
    pub form: EntryForm,
}

fn partition(wire: i32) -> Result<u8, LocationError> {
    u8::try_from(wire).map_err(|_| LocationError::BadPartition(wire))
}

fn flags(wire: i32) -> Result<u8, LocationError> {
    let flags = u8::try_from(wire).ok().filter(|&flags| flags <= site_flags::MAX);
    flags.ok_or(LocationError::BadSiteFlags(wire))
}

fn site(draft: &mut Draft<'_>, new: &NewSite) -> Result<Site, LocationError> {
    let (partition, flags) = (partition(new.partition)?, flags(new.flags)?);
    Ok(Site { server: draft.server(new.address)?, partition, flags })
}

/// Checks everything in an entry that does not depend on other entries, and replaces server addresses by
/// numbers.
fn location(draft: &mut Draft<'_>, new: &NewLocation, locked: UnixTime) -> Result<Location, LocationError> {
    let name = new_name(&new.name)?;
    if new.sites.is_empty() || new.sites.len() > new.form.sites_max() {
        return Err(LocationError::BadServer);
    }
    if new.ids[VolumeType::ReadWrite as usize].0 == 0 {
        return Err(LocationError::BadEntry("no read-write volume id"));
    }
    let sites = new.sites.iter().map(|new| site(draft, new)).collect::<Result<_, _>>()?;
    Ok(Location { name, ids: new.ids, clone: new.clone, flags: new.flags, locked, sites })
}

/// Changes to entries.
impl Locations {
    /// Creates an entry (VL_CreateEntry, VL_CreateEntryN).
    pub fn create(&self, new: &NewLocation) -> Result<EntryNumber, LocationError> {
        self.write(|draft| {
            let location = location(draft, new, UnixTime(0))?;
            draft.check_unused(&location.ids)?;
            check_shared(&location)?;
            draft.check_unused_name(&location.name)?;
            draft.insert(&location)
        })
    }

    /// Deletes an entry (VL_DeleteEntry).
    pub fn delete(&self, id: VolumeId, kind: Option<VolumeType>) -> Result<(), LocationError> {
        self.write(|draft| {
            let (number, old) = draft.lookup.find(&VolumeQuery::Id(id), kind)?;
            draft.remove(number, &old);
            Ok(())
        })
    }

    /// Replaces an entry except its read-write id and lock, then clears the parts of the lock given by
    /// `release` (VL_ReplaceEntry, VL_ReplaceEntryN).
    ///
    /// # Errors
    ///
    /// `Full` if the entry has more sites than `new.form` can hold: the caller has only received the first of
    /// them, and would remove the others.
    pub fn replace(
        &self,
        id: VolumeId,
        kind: Option<VolumeType>,
        new: &NewLocation,
        release: i32,
    ) -> Result<(), LocationError> {
        check_release(release)?;
        self.write(|draft| {
            let (number, old) = draft.lookup.find(&VolumeQuery::Id(id), kind)?;
            if old.sites.len() > new.form.sites_max() {
                return Err(LocationError::Full);
            }
            let mut new = location(draft, new, old.locked)?;
            if new.id(VolumeType::ReadWrite) != old.id(VolumeType::ReadWrite) {
                return Err(LocationError::BadEntry("the read-write volume id cannot change"));
            }
            check_replacement(draft, &old, &new)?;
            new.unlock(release);
            draft.replace(number, &old, &new);
            Ok(())
        })
    }

    /// Changes individual fields of an entry, then clears the parts of the lock given by `release`
    /// (VL_UpdateEntry, VL_UpdateEntryByName).
    pub fn update(
        &self,
        query: &VolumeQuery,
        kind: Option<VolumeType>,
        update: &Update,
        release: i32,
    ) -> Result<(), LocationError> {
        check_release(release)?;
        self.write(|draft| {
            let (number, old) = draft.lookup.find(query, kind)?;
            let mut new = updated(draft, &old, update)?;
            new.unlock(release);
            draft.replace(number, &old, &new);
            Ok(())
        })
    }

    /// Locks an entry for an operation, one of [`entry_flags::OPERATIONS`] (VL_SetLock). A lock has no
    /// timeout.
    pub fn lock(
        &self,
        id: VolumeId,
        kind: Option<VolumeType>,
        operation: i32,
        now: UnixTime,
    ) -> Result<(), LocationError> {
        let bits = operation as u32;
        if bits & entry_flags::OPERATIONS != bits || !bits.is_power_of_two() {
            return Err(LocationError::BadOperation(operation));
        }
        self.write(|draft| {
            let (number, old) = draft.lookup.find(&VolumeQuery::Id(id), kind)?;
            if old.locked.0 != 0 {
                return Err(LocationError::Locked);
            }
            if old.flags & entry_flags::RELEASE != 0 {
                return Err(LocationError::Rerelease);
            }
            let flags = old.flags & !entry_flags::OPERATIONS | bits;
            // 0 means "not locked".
            let locked = UnixTime(now.0.max(1));
            draft.replace(number, &old, &Location { flags, locked, ..old.clone() });
            Ok(())
        })
    }

    /// Clears the parts of the lock given by `release`; 0 only checks that the entry exists (VL_ReleaseLock).
    pub fn unlock(&self, id: VolumeId, kind: Option<VolumeType>, release: i32) -> Result<(), LocationError> {
        check_release(release)?;
        self.write(|draft| {
            let (number, old) = draft.lookup.find(&VolumeQuery::Id(id), kind)?;
            let mut new = old.clone();
            new.unlock(release);
            draft.replace(number, &old, &new);
            Ok(())
        })
    }

    /// Reserves `count` consecutive volume ids that are in no entry and returns the first
    /// (VL_GetNewVolumeId).
    pub fn new_ids(&self, count: u32) -> Result<VolumeId, LocationError> {
        if count > BUMP_MAX {
            return Err(LocationError::BadBump(count));
        }
        self.write(|draft| {
            let first = draft.lookup.unused_ids(draft.totals.max_volume, count)?;
            let first = first.ok_or(LocationError::BadBump(count))?;
            draft.totals.max_volume = VolumeId(first.0.saturating_add(count));
            Ok(first)
        })
    }
}

/// Rejects a new entry in which one id belongs to two volumes.
fn check_shared(new: &Location) -> Result<(), LocationError> {
    new.shared_id().map_or(Ok(()), |id| Err(LocationError::IdExists(id)))
}

/// Rejects ids and names that are used by other entries.
fn check_replacement(draft: &Draft<'_>, old: &Location, new: &Location) -> Result<(), LocationError> {
    let mut fresh = new.ids;
    for id in &mut fresh {
        if old.ids.contains(id) {
            *id = VolumeId(0);
        }
    }
    draft.check_unused(&fresh)?;
    if new.shared_id().is_some() {
        return Err(LocationError::BadEntry("the same id for two volumes"));
    }
    if new.name == old.name { Ok(()) } else { draft.check_unused_name(&new.name) }
}

fn updated(draft: &mut Draft<'_>, old: &Location, update: &Update) -> Result<Location, LocationError> {
    let mut new = old.clone();
    draft.check_unused(&update.ids.map(Option::unwrap_or_default))?;
    for (id, wanted) in new.ids.iter_mut().zip(update.ids) {
        *id = wanted.unwrap_or(*id);
    }
    if new.id(VolumeType::ReadWrite).0 == 0 {
        return Err(LocationError::BadEntry("no read-write volume id"));
    }
    if let Some(name) = &update.name {
        new.name = new_name(name)?;
        draft.check_unused_name(&new.name)?;
    }
    new.flags = update.flags.unwrap_or(new.flags);
    check_shared(&new)?;
    new.clone = update.clone.unwrap_or(new.clone);
    if let Some(sites) = &update.sites {
        if sites.is_empty() {
            return Err(LocationError::BadServer);
        }
        for step in sites {
            update_site(draft, &mut new.sites, step, update.form)?;
        }
    }
    Ok(new)
}

fn update_site(
    draft: &mut Draft<'_>,
    sites: &mut Vec<Site>,
    step: &SiteUpdate,
    form: EntryForm,
) -> Result<(), LocationError> {
    let target = (step.target.0, partition(step.target.1)?);
    if step.delete {
        let at = place(draft, sites, target).ok_or(LocationError::NoSite)?;
        sites.remove(at);
    }
    if let Some(new) = &step.add {
        let new_partition = partition(new.partition)?;
        if place(draft, sites, (new.address, new_partition)).is_some() {
            return Err(LocationError::SiteExists);
        }
        if sites.len() >= form.sites_max() {
            return Err(LocationError::Full);
        }
        sites.push(site(draft, new)?);
    }
    let changes_target = step.server.is_some() || step.partition.is_some() || step.flags.is_some();
    if changes_target {
        let at = place(draft, sites, target).ok_or(LocationError::NoSite)?;
        let old = sites[at];
        sites[at] = Site {
            server: step.server.map_or(Ok(old.server), |address| draft.server(address))?,
            partition: step.partition.map_or(Ok(old.partition), partition)?,
            flags: step.flags.map_or(Ok(old.flags), flags)?,
        };
    }
    Ok(())
}

/// Returns the index of the site on this server and partition.
fn place(draft: &Draft<'_>, sites: &[Site], (address, partition): (Ipv4Addr, u8)) -> Option<usize> {
    let server = draft.servers.by_address(address);
    sites.iter().position(|site| Some(site.server) == server && site.partition == partition)
}

/// Changes to servers.
impl Locations {
    /// Registers a file server's addresses under its UUID (VL_RegisterAddrs). See [`crate::Servers`] for the
    /// rules.
    pub fn register(&self, uuid: HostUuid, addresses: &[Ipv4Addr]) -> Result<(), LocationError> {
        self.write(|draft| {
            let changed = Arc::make_mut(&mut draft.servers).register(uuid, addresses)?;
            for number in changed {
                draft.write_server(number);
            }
            Ok(())
        })
    }

    /// Changes the address of a server that never registered or, with `None`, removes a server that has no
    /// volumes (VL_ChangeAddr).
    pub fn change_address(&self, old: Ipv4Addr, new: Option<Ipv4Addr>) -> Result<(), LocationError> {
        self.write(|draft| {
            let number = draft.servers.check_change(old, new)?;
            if new.is_none() && draft.lookup.is_used(number)? {
                return Err(LocationError::ServerInUse);
            }
            Arc::make_mut(&mut draft.servers).set(number, new.map(crate::servers::Server::Address));
            draft.write_server(number);
            Ok(())
        })
    }
}
