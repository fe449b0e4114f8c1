//! Copies a volume to a new one.

use crate::calls::{Run, Step, failed, keep};
use crate::{Operation, Place, Stage, World, entry};
use afs_idl::vl::{self, NVldbEntry, SITES, entry_flags, site_flags};
use afs_idl::vol::{RestoreCookie, attach_mode, volume_type};
use base::AbortCode;

/// Number of ids for a new volume: read-write, read-only, backup.
const NUMBERS: u32 = 3;

impl<W: World> Run<'_, W> {
    pub(crate) fn copy_volume(&mut self, name: &str, to: Place) -> Step {
        self.check_name_is_free(name)?;
        if self.job.new_volume == 0 {
            self.job.new_volume = self.new_ids(NUMBERS)?;
            self.save()?;
        }
        let new_volume = self.job.new_volume;
        self.check_is_free(to, new_volume)?;
        self.check_room(to)?;
        self.note("cloning");
        self.make_clone("copy-clone-temp")?;
        let clone = self.open(self.job.from, self.job.clone, attach_mode::OFFLINE)?;
        self.job.new_begun = true;
        let new = self.create(to, name, new_volume, volume_type::READ_WRITE, new_volume)?;
        let cookie = RestoreCookie {
            name: name.into(),
            volume_type: volume_type::READ_WRITE,
            clone_id: 0,
            parent_id: new_volume,
        };
        self.note(format!("sending the volume to {}", to.server));
        self.forward(clone, 0, new, &cookie)?;
        self.end(clone)?;
        self.set_flags(new, 0)?;
        self.end(new)?;
        self.enter(Stage::Switching)
    }

    pub(crate) fn is_registered(&self, name: &str) -> Step<bool> {
        let request = vl::GetEntryByNameNRequest { volume_name: name.into() };
        match self.world.newest_locations(|vl| vl::get_entry_by_name_n(vl, &request)) {
            // An earlier attempt of this job may have registered it.
            Ok(reply) => Ok(reply.entry.volume_id[0] != self.job.new_volume || self.job.new_volume == 0),
            Err(AbortCode::VL_NOENT) => Ok(false),
            Err(code) => Err(failed(format!("look {name} up"))(code)),
        }
    }

    /// Registers the new volume in the location database.
    pub(crate) fn register_copy(&mut self, name: &str, to: Place) -> Step {
        self.note("changing the location database");
        let mut new_entry = new_entry(name, self.job.new_volume, to);
        if let Operation::Restore { readonly: true, also, .. } = &self.job.operation {
            make_read_only(&mut new_entry, also);
        }
        let request = vl::CreateEntryNRequest { new_entry };
        match self.world.locations(|vl| vl::create_entry_n(vl, &request)) {
            Ok(_) => {}
            Err(_) if self.has_entry(self.job.new_volume)? => {}
            Err(code) => {
                let trouble = failed(format!("register the volume {name}"))(code);
                self.job.switch_asked = trouble.is_silence();
                self.save()?;
                return Err(trouble);
            }
        }
        self.is_registered_now()
    }

    /// Continues after the new volume has been registered. Further sites get their contents from the first
    /// one.
    fn is_registered_now(&mut self) -> Step {
        self.job.new_begun = false;
        let has_further = matches!(&self.job.operation, Operation::Restore { also, .. } if !also.is_empty());
        self.enter(if has_further { Stage::CatchingUp } else { Stage::Cleaning })
    }

    pub(crate) fn has_entry(&self, volume_id: u32) -> Step<bool> {
        let request = vl::GetEntryByIDNRequest { volume_id, volume_type: 0 };
        match self.world.newest_locations(|vl| vl::get_entry_by_idn(vl, &request)) {
            Ok(_) => Ok(true),
            Err(AbortCode::VL_NOENT) => Ok(false),
            Err(code) => Err(failed(format!("look the volume {volume_id} up"))(code)),
        }
    }

    /// Removes `volume`, which the job may have created, and the clone.
    pub(crate) fn put_copy_back(&mut self, to: Place, volume: u32) -> Step {
        let mut outcome = self.end_all();
        if self.job.new_begun {
            if self.has_entry(self.job.new_volume)? {
                return self.is_registered_now();
            }
            keep(&mut outcome, self.remove_new(to, volume));
        }
        keep(&mut outcome, self.remove_clone());
        outcome
    }
}

/// Returns the entry of a new volume at this site.
pub(crate) fn new_entry(name: &str, id: u32, to: Place) -> NVldbEntry {
    let mut entry = NVldbEntry {
        name: name.into(),
        server_count: 1,
        volume_id: [id, id + 1, id + 2],
        flags: entry_flags::READ_WRITE_EXISTS,
        ..NVldbEntry::default()
    };
    entry.server_number[0] = to.server.into();
    entry.server_partition[0] = to.partition;
    entry.server_flags[0] = site_flags::READ_WRITE;
    entry
}

/// Changes the entry to that of a volume without read-write site. Clients use only the first site until the
/// further ones have the contents.
fn make_read_only(entry: &mut NVldbEntry, further: &[Place]) {
    (entry.flags, entry.server_flags[0]) = (entry_flags::READ_ONLY_EXISTS, site_flags::READ_ONLY);
    for (site, place) in (1..SITES).zip(further) {
        entry.server_number[site] = place.server.into();
        entry.server_partition[site] = place.partition;
        entry.server_flags[site] = site_flags::READ_ONLY;
        entry.server_count += 1;
    }
    if !further.is_empty() {
        entry::set_only_new(entry, 0);
    }
}
