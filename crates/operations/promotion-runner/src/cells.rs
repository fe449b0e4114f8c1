//! Carries out every [`Task`] in cells, with standard calls.

use super::config::{COPIES_MAX, CellConfig, Config};
use super::volumes::{OFFLINE, Open, Step, Volumes, failed};
use afs_idl::cellar as own;
use afs_idl::vl::{self, NVldbEntry, entry_flags, lock_release, site_flags};
use afs_idl::vol::{self, RestoreCookie, attach_mode, volume_type};
use base::{AbortCode, PartitionId};
use cell_client::{CellClient, Interface};
use jobs::Place;
use parking_lot::Mutex;
use promote::{Done, Held, Home, Outcome, PromotionError, Step as Do, Task};
use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// IDs per new volume: read-write, read-only, backup.
const NUMBERS: u32 = 3;
const WHOLE_LOCK: i32 = lock_release::TIMESTAMP | lock_release::OPCODE | lock_release::AFSID;
/// Maximum length of the name of a volume with read-only volumes.
const NAME_BYTES_MAX: usize = 22;

/// All cells, and the promoted volume.
pub struct Cells<'a> {
    config: &'a Config,
    volume: String,
    stop: Arc<AtomicBool>,
    /// Whether an existing volume of this name is taken over.
    adopt: bool,
    /// Clients, created on first use. No call is made under the lock.
    clients: Mutex<HashMap<String, Arc<CellClient>>>,
}

impl<'a> Cells<'a> {
    /// Creates the cells for promotions of one volume. With `adopt`, an existing volume of this name in a
    /// cell is taken over.
    pub fn new(config: &'a Config, volume: &str, stop: Arc<AtomicBool>, adopt: bool) -> Cells<'a> {
        Cells { config, volume: volume.into(), stop, adopt, clients: Mutex::default() }
    }

    /// Returns a client of a cell.
    pub fn client(&self, cell: &str) -> Result<Arc<CellClient>, PromotionError> {
        if let Some(client) = self.clients.lock().get(cell) {
            return Ok(client.clone());
        }
        let connected = self.config.cell(cell).and_then(CellConfig::connect);
        let client =
            Arc::new(connected.map_err(|error| PromotionError::Lasting(format!("{cell}: {error:#}")))?);
        Ok(self.clients.lock().entry(cell.into()).or_insert(client).clone())
    }

    /// Uses this client for a cell.
    #[cfg(test)]
    pub(super) fn ask_through(self, cell: &str, client: Arc<CellClient>) -> Cells<'a> {
        self.clients.lock().insert(cell.into(), client);
        self
    }

    /// Returns the volume's entry in a cell.
    pub(super) fn entry(&self, cell: &str) -> Step<Option<NVldbEntry>> {
        Site { cells: self, name: cell, cell: &*self.client(cell)? }.entry()
    }

    /// Returns whether the user asked to stop.
    pub fn is_stopping(&self) -> bool {
        self.stop.load(std::sync::atomic::Ordering::Relaxed)
    }

    pub(super) fn stop(&self) -> &AtomicBool {
        &self.stop
    }

    /// Carries out a task.
    pub fn perform(&self, task: &Task) -> Outcome {
        let client = self.client(&task.cell)?;
        let site = Site { cells: self, name: &task.cell, cell: &client };
        match &task.step {
            Do::Look => site.find_home().map(Done::Home),
            Do::Make(home) => site.make(home).map(|()| Done::Well),
            Do::Send { source, from, home, since } => {
                site.receive(source, *from, home, *since).map(Done::Sent)
            }
            Do::Number => site.numbers(1).map(Done::Number),
            Do::Freeze { home, clone } => site.freeze(home, *clone).map(|()| Done::Well),
            Do::Digest(held) => site.volumes().digest(held.place, held.volume).map(Done::Digest),
            Do::Publish { home, verified } => site.publish(home, *verified).map(|()| Done::Well),
            Do::Copy { home, from, to } => site.copy(home, *from, *to).map(|()| Done::Well),
            Do::Widen { home, copies } => {
                site.widen(home, *copies).map(|(sites, why)| Done::Sites(sites, why))
            }
            Do::Drop(held) => site.volumes().remove(held.place, held.volume).map(|()| Done::Well),
        }
    }

    /// Returns whether servers of one cell may send directly to those of the other.
    fn is_direct(&self, from: &str, to: &str) -> bool {
        let has_common = |cell: &str| self.config.cells.get(cell).is_some_and(|cell| cell.common_key);
        from == to || (has_common(from) && has_common(to))
    }
}

/// One cell in which tasks are carried out.
struct Site<'a> {
    cells: &'a Cells<'a>,
    name: &'a str,
    cell: &'a CellClient,
}

impl Site<'_> {
    fn volumes(&self) -> Volumes<'_> {
        Volumes { cell: self.cell, stop: self.cells.stop() }
    }

    fn volume(&self) -> &str {
        &self.cells.volume
    }

    fn read_only_name(&self) -> String {
        format!("{}.readonly", self.volume())
    }

    fn cookie(&self, home: &Home, kind: i32) -> RestoreCookie {
        let name = if kind == volume_type::READ_ONLY { self.read_only_name() } else { self.volume().into() };
        RestoreCookie { name: name.as_str().into(), volume_type: kind, clone_id: 0, parent_id: home.volume }
    }

    fn numbers(&self, bump_count: u32) -> Step<u32> {
        let request = vl::GetNewVolumeIdRequest { bump_count };
        let reply = self.cell.database(Interface::Locations, |vl| vl::get_new_volume_id(vl, &request));
        reply.map(|reply| reply.new_volume_id).map_err(failed("get a volume number"))
    }

    fn entry(&self) -> Step<Option<NVldbEntry>> {
        let request = vl::GetEntryByNameNRequest { volume_name: self.volume().into() };
        match self.cell.newest(Interface::Locations, |vl| vl::get_entry_by_name_n(vl, &request)) {
            Ok(reply) => Ok(Some(reply.entry)),
            Err(AbortCode::VL_NOENT) => Ok(None),
            Err(code) => Err(failed(format!("look {} up", self.volume()))(code)),
        }
    }

    // Location of the volume.

    fn find_home(&self) -> Step<Home> {
        let name = self.volume();
        if name.len() > NAME_BYTES_MAX {
            return Err(PromotionError::Lasting(format!(
                "the name {name} is too long for a read-only volume"
            )));
        }
        match self.entry()? {
            None => self.choose(),
            Some(entry) if self.cells.adopt => adopted(&entry).ok_or_else(|| {
                PromotionError::Lasting(format!(
                    "the volume {name} of {} has no read-only site where its read-write volume is",
                    self.name
                ))
            }),
            Some(_) => Err(PromotionError::Lasting(format!(
                "{} has a volume {name} that was not promoted there; --adopt takes it over with its contents",
                self.name
            ))),
        }
    }

    fn choose(&self) -> Step<Home> {
        let wanted = self.config()?;
        let sites = if wanted.sites.is_empty() {
            self.roomiest(wanted.copies, &[])?.places
        } else {
            wanted.sites.clone()
        };
        if sites.is_empty() {
            return Err(PromotionError::Passing(format!("no volume server of {} answers", self.name)));
        }
        let volume = self.numbers(NUMBERS)?;
        Ok(Home { volume, read_only: volume + 1, sites })
    }

    fn config(&self) -> Step<&CellConfig> {
        self.cells.config.cell(self.name).map_err(|error| PromotionError::Lasting(error.to_string()))
    }

    /// Adds sites that clients may not use yet, until there are enough. Sites already in the entry come
    /// first: an earlier run may have added them without receiving the reply, or the cell's administrators.
    fn widen(&self, home: &Home, copies: usize) -> Step<(Vec<Place>, Option<String>)> {
        let is_further = |place: &Place| !home.sites.contains(place);
        let lacking = copies.min(COPIES_MAX).saturating_sub(home.sites.len());
        let entry = self.entry()?;
        let mut sites: Vec<Place> = entry.iter().flat_map(read_only_places).filter(is_further).collect();
        sites.truncate(lacking);
        let taken: Vec<Ipv4Addr> = home.sites.iter().chain(&sites).map(|site| site.server).collect();
        let wanted = self.config()?;
        let found = if wanted.sites.is_empty() {
            self.roomiest(lacking - sites.len(), &taken)?
        } else {
            let further = wanted.sites.iter().filter(|place| !taken.contains(&place.server));
            Found { places: further.take(lacking - sites.len()).copied().collect(), silent: Vec::new() }
        };
        if !found.places.is_empty() {
            self.edit_entry(|entry| found.places.iter().for_each(|place| add_site(entry, *place)))?;
        }
        let missing = lacking - sites.len() - found.places.len();
        sites.extend(&found.places);
        Ok((sites, (missing > 0).then(|| self.scarcity(&found.silent))))
    }

    /// Explains why there are not enough sites.
    fn scarcity(&self, silent: &[Ipv4Addr]) -> String {
        let silent: Vec<String> = silent.iter().map(Ipv4Addr::to_string).collect();
        match &silent[..] {
            [] => format!("{} has no further server", self.name),
            [one] => format!("{one} does not answer"),
            all => format!("{} do not answer", all.join(" and ")),
        }
    }

    /// Returns up to `copies` servers with the most free space, each with its partition of the most free space.
    fn roomiest(&self, copies: usize, but: &[Ipv4Addr]) -> Step<Found> {
        let (mut found, mut silent) = (Vec::new(), Vec::new());
        for server in self.servers()?.into_iter().filter(|server| !but.contains(server)) {
            let connection = self.cell.connection(server, Interface::Volumes);
            let Ok(reply) = vol::x_list_partitions(&*connection, &vol::XListPartitionsRequest) else {
                silent.push(server);
                continue;
            };
            let free = |number: i32| {
                let id = u32::try_from(number).ok().and_then(PartitionId::from_index)?;
                let request = vol::PartitionInfo64Request { name: id.to_string().as_str().into() };
                let info = vol::partition_info64(&*connection, &request).ok()?;
                Some((info.partition.free, Place { server, partition: number }))
            };
            found.extend(reply.partitions.into_iter().filter_map(free).max_by_key(|(free, _)| *free));
        }
        found.sort_by_key(|(free, place)| (std::cmp::Reverse(*free), u32::from(place.server)));
        let places = found.into_iter().take(copies.min(COPIES_MAX)).map(|(_, place)| place).collect();
        Ok(Found { places, silent })
    }

    /// Returns the first address of each registered file server.
    fn servers(&self) -> Step<Vec<Ipv4Addr>> {
        self.cell.file_servers().map_err(failed(format!("list the servers of {}", self.name)))
    }

    fn make(&self, home: &Home) -> Step {
        let place = home.sites[0];
        if self.volumes().look(place, home.volume)?.is_none() {
            let made = self.volumes().create(
                place,
                self.volume(),
                home.volume,
                volume_type::READ_WRITE,
                home.volume,
            )?;
            made.set_flags(OFFLINE)?;
            made.end()?;
        }
        match self.entry()? {
            Some(entry) if entry.volume_id[0] == home.volume => Ok(()),
            Some(entry) => Err(PromotionError::Lasting(format!(
                "{} has another volume {} with the number {}",
                self.name,
                self.volume(),
                entry.volume_id[0]
            ))),
            None => {
                let request = vl::CreateEntryNRequest { new_entry: self.new_entry(home) };
                self.cell
                    .database(Interface::Locations, |vl| vl::create_entry_n(vl, &request))
                    .map(drop)
                    .map_err(failed(format!("register {}", self.volume())))
            }
        }
    }

    fn new_entry(&self, home: &Home) -> NVldbEntry {
        let mut entry = NVldbEntry {
            name: self.volume().into(),
            volume_id: [home.volume, home.read_only, home.volume + 2],
            flags: entry_flags::READ_WRITE_EXISTS,
            ..NVldbEntry::default()
        };
        let read_only = home.sites.iter().map(|site| (site, site_flags::READ_ONLY | site_flags::DO_NOT_USE));
        let sites = std::iter::once((&home.sites[0], site_flags::READ_WRITE)).chain(read_only);
        for (number, (site, flags)) in sites.enumerate().take(vl::SITES) {
            entry.server_number[number] = site.server.into();
            entry.server_partition[number] = site.partition;
            entry.server_flags[number] = flags;
            entry.server_count += 1;
        }
        entry
    }

    // Receiving a version.

    fn receive(&self, source: &str, held: Held, home: &Home, since: u32) -> Step<u64> {
        let giving = self.cells.client(source)?;
        let theirs = Volumes { cell: &giving, stop: self.cells.stop() };
        let from = theirs.open(held.place, held.volume, attach_mode::BUSY)?;
        let to = self.volumes().open(home.sites[0], home.volume, attach_mode::OFFLINE)?;
        let cookie = self.cookie(home, volume_type::READ_WRITE);
        let bytes = if self.cells.is_direct(source, self.name) {
            from.forward(since, &to, home.sites[0], &cookie)?;
            from.size(since)
        } else {
            self.volumes().relay(&from, since, &to, cookie)?
        };
        to.set_flags(OFFLINE)?;
        to.end()?;
        from.end()?;
        Ok(bytes)
    }

    /// Clones the staging volume, which is online only while a transaction keeps clients away.
    fn freeze(&self, home: &Home, clone: u32) -> Step {
        let place = home.sites[0];
        let volumes = self.volumes();
        if volumes.look(place, clone)?.is_none() {
            let name = clone_name(self.volume(), clone);
            self.while_in_service(home, |staging| staging.clone_as(&name, clone))?;
        }
        let made = volumes.open(place, clone, attach_mode::OFFLINE)?;
        made.set_flags(OFFLINE)?;
        made.end()
    }

    fn while_in_service(&self, home: &Home, work: impl FnOnce(&Open) -> Step) -> Step {
        let staging = self.volumes().open(home.sites[0], home.volume, attach_mode::OFFLINE)?;
        staging.set_flags(0)?;
        let worked = work(&staging);
        staging.set_flags(OFFLINE)?;
        worked?;
        staging.end()
    }

    // Publishing a version.

    /// Makes the read-only volume a clone of the staging volume, if that still has the date of `held`.
    fn publish(&self, home: &Home, held: Held) -> Step {
        let (place, read_only) = (home.sites[0], home.read_only);
        self.check_unchanged(home, held)?;
        let is_there = self.volumes().look(place, read_only)?.is_some();
        let name = self.read_only_name();
        if is_there {
            // An earlier run may have left a transaction open.
            self.volumes().open(place, read_only, self.mode(place))?.end()?;
        }
        self.while_in_service(home, |staging| {
            if is_there { staging.reclone(read_only) } else { staging.clone_as(&name, read_only) }
        })?;
        let made = self.volumes().open(place, read_only, self.mode(place))?;
        made.set_flags(0)?;
        made.end()?;
        self.change_entry(|entry, site| {
            let is_first = place_of(entry, site) == place;
            set_used(entry, site, is_first);
        })
    }

    /// Fails if the staging volume was changed. A change updates the volume's date, and a clone has the date
    /// of its origin.
    fn check_unchanged(&self, home: &Home, held: Held) -> Step {
        let volumes = self.volumes();
        let updated = |volume: u32| Ok(volumes.look(held.place, volume)?.map(|info| info.update_date));
        match (updated(home.volume)?, updated(held.volume)?) {
            (Some(staging), Some(verified)) if staging == verified => Ok(()),
            _ => Err(PromotionError::Changed(format!(
                "another operation changed the volume {} of {} after it was verified",
                home.volume, self.name
            ))),
        }
    }

    fn copy(&self, home: &Home, from: Held, to: Place) -> Step {
        let volumes = self.volumes();
        let source = volumes.open(from.place, from.volume, attach_mode::BUSY)?;
        let target = if volumes.look(to, home.read_only)?.is_some() {
            volumes.open(to, home.read_only, self.mode(to))?
        } else {
            let name = self.read_only_name();
            volumes.create(to, &name, home.read_only, volume_type::READ_ONLY, home.volume)?
        };
        source.forward(0, &target, to, &self.cookie(home, volume_type::READ_ONLY))?;
        target.set_flags(0)?;
        target.end()?;
        source.end()?;
        self.change_entry(|entry, site| {
            if place_of(entry, site) == to {
                set_used(entry, site, true);
            }
        })
    }

    /// Returns the attach mode for a volume in use. On Cellar's servers, where a complete restore takes
    /// effect atomically, clients continue meanwhile; OpenAFS's servers put a volume online only after it was
    /// offline.
    fn mode(&self, place: Place) -> i32 {
        let connection = self.cell.connection(place.server, Interface::Cellar);
        let is_cellar = own::get_server_info(&*connection, &own::GetServerInfoRequest).is_ok();
        if is_cellar { attach_mode::BUSY } else { attach_mode::OFFLINE }
    }

    /// Changes the read-only sites of the entry, under its lock.
    fn change_entry(&self, change: impl Fn(&mut NVldbEntry, usize)) -> Step {
        self.edit_entry(|entry| {
            entry.flags |= entry_flags::READ_ONLY_EXISTS;
            for site in read_only_sites(entry) {
                change(entry, site);
            }
        })
    }

    /// Changes the entry, under its lock.
    fn edit_entry(&self, edit: impl Fn(&mut NVldbEntry)) -> Step {
        let Some(found) = self.entry()? else {
            return Err(PromotionError::Lasting(format!(
                "{} no longer has an entry of {}",
                self.name,
                self.volume()
            )));
        };
        let volume_id = found.volume_id[0];
        self.lock(volume_id)?;
        let Some(mut entry) = self.entry()? else {
            return Err(PromotionError::Passing(format!("the entry of {} no longer exists", self.volume())));
        };
        edit(&mut entry);
        let request = vl::ReplaceEntryNRequest {
            volume_id,
            volume_type: 0,
            new_entry: entry,
            release_type: WHOLE_LOCK,
        };
        let replaced = self.cell.database(Interface::Locations, |vl| vl::replace_entry_n(vl, &request));
        replaced.map(drop).map_err(failed(format!("change the entry of {}", self.volume())))
    }

    /// Locks the entry. A lock for a release was left by an earlier run, because these volumes are never
    /// released otherwise.
    fn lock(&self, volume_id: u32) -> Step {
        let request = vl::SetLockRequest { volume_id, volume_type: 0, operation: entry_flags::RELEASE };
        let lock = || self.cell.database(Interface::Locations, |vl| vl::set_lock(vl, &request)).map(drop);
        let locked = match lock() {
            Err(AbortCode::VL_ENTRYLOCKED | AbortCode::VL_RERELEASE) => {
                let is_ours = self.entry()?.is_some_and(|entry| entry.flags & entry_flags::RELEASE != 0);
                if is_ours {
                    let request =
                        vl::ReleaseLockRequest { volume_id, volume_type: 0, release_type: WHOLE_LOCK };
                    let _ = self.cell.database(Interface::Locations, |vl| vl::release_lock(vl, &request));
                }
                lock()
            }
            locked => locked,
        };
        locked.map_err(failed(format!("lock the entry of {}", self.volume())))
    }
}

/// Returns the name of a clone that keeps a version; the location database has no entry for it.
pub(super) fn clone_name(volume: &str, number: u32) -> String {
    format!("{volume}.{number:x}")
}

/// Places for new copies, and servers that do not answer.
struct Found {
    places: Vec<Place>,
    silent: Vec<Ipv4Addr>,
}

pub(super) fn read_only_sites(entry: &NVldbEntry) -> Vec<usize> {
    let count = usize::try_from(entry.server_count).unwrap_or(0).min(vl::SITES);
    (0..count).filter(|&site| entry.server_flags[site] & site_flags::READ_ONLY != 0).collect()
}

fn read_only_places(entry: &NVldbEntry) -> Vec<Place> {
    read_only_sites(entry).into_iter().map(|site| place_of(entry, site)).collect()
}

/// Adds a read-only site that clients may not use yet.
fn add_site(entry: &mut NVldbEntry, place: Place) {
    let number = usize::try_from(entry.server_count).unwrap_or(vl::SITES);
    if number < vl::SITES && !read_only_places(entry).contains(&place) {
        entry.server_number[number] = place.server.into();
        entry.server_partition[number] = place.partition;
        entry.server_flags[number] = site_flags::READ_ONLY | site_flags::DO_NOT_USE;
        entry.server_count += 1;
    }
}

pub(super) fn place_of(entry: &NVldbEntry, site: usize) -> Place {
    Place { server: entry.server_number[site].into(), partition: entry.server_partition[site] }
}

fn set_used(entry: &mut NVldbEntry, site: usize, is_used: bool) {
    entry.server_flags[site] &= !(site_flags::DO_NOT_USE | site_flags::NEW_REPLICA);
    if !is_used {
        entry.server_flags[site] |= site_flags::DO_NOT_USE;
    }
}

/// Returns the location of an existing volume, with the read-write site first.
fn adopted(entry: &NVldbEntry) -> Option<Home> {
    let count = usize::try_from(entry.server_count).unwrap_or(0).min(vl::SITES);
    let is_read_write = |site: &usize| entry.server_flags[*site] & site_flags::READ_WRITE != 0;
    let first = place_of(entry, (0..count).find(is_read_write)?);
    let mut sites = read_only_places(entry);
    let beside = sites.iter().position(|site| *site == first)?;
    sites.swap(0, beside);
    Some(Home { volume: entry.volume_id[0], read_only: entry.volume_id[1], sites })
}

#[cfg(test)]
mod tests {
    use super::*;
    use cell_client::fakes::{behind, server};

    fn entry(sites: &[(u8, i32)]) -> NVldbEntry {
        let mut entry = NVldbEntry { volume_id: [10, 11, 12], ..NVldbEntry::default() };
        for (number, (server, flags)) in sites.iter().enumerate() {
            entry.server_number[number] = Ipv4Addr::new(192, 0, 2, *server).into();
            entry.server_flags[number] = *flags;
        }
        entry.server_count = sites.len() as i32;
        entry
    }

    #[test]
    fn imported_volumes_keep_read_only_sites_beside_read_write() {
        let (rw, ro) = (site_flags::READ_WRITE, site_flags::READ_ONLY);
        let home = adopted(&entry(&[(1, ro), (2, rw), (2, ro)])).unwrap();
        let servers: Vec<u8> = home.sites.iter().map(|site| site.server.octets()[3]).collect();
        assert_eq!((home.volume, home.read_only, servers), (10, 11, vec![2, 1]));
        assert_eq!(adopted(&entry(&[(1, ro), (2, rw)])), None);
        assert_eq!(adopted(&entry(&[(1, ro)])), None);
    }

    #[test]
    fn the_sync_site_decides_whether_a_name_is_taken() {
        let (fakes, asked) = behind::cell();
        let config = Config::for_tests("a.example");
        for (volume, adopt, reported) in [
            ("new", false, "a.example has a volume new that was not promoted there"),
            ("moved", true, "no read-only site where its read-write volume is"),
        ] {
            let cells =
                Cells::new(&config, volume, Arc::default(), adopt).ask_through("a.example", fakes.cell(3));
            let look = Task { cell: "a.example".into(), step: Do::Look, tries: 0 };
            let Err(PromotionError::Lasting(why)) = cells.perform(&look) else { panic!("{volume}") };
            assert!(why.contains(reported), "{why}");
        }
        assert_eq!(*asked.lock(), [server(3); 2]);
    }

    #[test]
    fn names_of_clones_fit() {
        assert!(clone_name(&"v".repeat(NAME_BYTES_MAX), u32::MAX).len() <= 31);
    }
}
