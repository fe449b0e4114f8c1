//! Creates, registers and removes the volumes of a job: the temporary clone, and the new volume.

use crate::engine::Run;
use crate::procedure::Procedure;
use crate::rpc::{Step, failed};
use crate::state::{State, StateEvent};
use crate::transaction::Transaction;
use crate::{JobError, Place, World};
use afs_idl::vl::{NVldbEntry, entry_flags, site_flags};
use afs_idl::vol::{attach_mode, volume_type};
use base::AbortCode;

/// Number of ids for a new volume: read-write, read-only, backup.
const IDS: u32 = 3;

// The temporary clone of the read-write volume.
impl<P: Procedure, W: World> Run<'_, P, W> {
    /// Creates the temporary clone of the read-write volume, out of service. Returns its id.
    pub(crate) fn make_clone(&mut self, name: &str) -> Step<u32> {
        let clone = if let Some(id) = self.state().temporary_clone().id() {
            id
        } else {
            let id = self.cell.new_ids(1)?;
            self.apply(StateEvent::CloneNumbered(id))?;
            id
        };
        let volume = self.volume();
        let source = self.open(self.job.from, volume, attach_mode::BUSY)?;
        self.record(StateEvent::CloneBegun)?;
        self.cell.clone_volume(source, name, volume_type::READ_ONLY, clone)?;
        // Otherwise the header keeps the id of the temporary clone.
        self.cell.set_family(source, &self.job.name, volume, &self.entry()?)?;
        self.end(source)?;
        Ok(clone)
    }

    /// Removes the temporary clone, if there may be one. No other volume has its id.
    pub(crate) fn remove_clone(&mut self) -> Step {
        if let Some(clone) = self.state().temporary_clone().begun() {
            self.delete(self.job.from, clone, None)?;
            self.record(StateEvent::CloneRemoved)?;
        }
        Ok(())
    }
}

// The new volume.
impl<P: Procedure, W: World> Run<'_, P, W> {
    /// Rejects the name of the new volume if another volume has it.
    pub(crate) fn check_name_is_free(&self, name: &str) -> Step {
        match self.cell.id_of(name)? {
            None => Ok(()),
            // An earlier attempt of this job may have registered it.
            id if id == self.state().new_volume().id() => Ok(()),
            Some(_) => Err(JobError::Refused(format!("a volume {name} exists already"))),
        }
    }

    /// Returns the id of the new volume; allocates one if there is none yet.
    pub(crate) fn number_volume(&mut self) -> Step<u32> {
        if let Some(id) = self.state().new_volume().id() {
            return Ok(id);
        }
        let id = self.cell.new_ids(IDS)?;
        self.record(StateEvent::VolumeNumbered(id))?;
        Ok(id)
    }

    /// Creates the new volume and opens it.
    pub(crate) fn create_new(
        &mut self,
        place: Place,
        name: &str,
        volume: u32,
        volume_type: i32,
        parent_id: u32,
    ) -> Step<Transaction> {
        self.apply(StateEvent::VolumeBegun)?;
        let created = self.create(place, name, volume, volume_type, parent_id);
        if let Err(JobError::Call { code: AbortCode::VOLSERBAD_ACCESS, .. }) = created {
            // Rights are checked before anything is created. Undoing would also be rejected as long as they
            // are missing.
            self.record(StateEvent::VolumeRefused)?;
        }
        created
    }

    /// Removes the volume that the job created at the destination.
    pub(crate) fn remove_new(&mut self, place: Place, volume: u32) -> Step {
        self.delete(place, volume, None)?;
        self.record(StateEvent::VolumeRemoved)
    }

    /// Requests an entry for a new volume. Records whether it may exist although the call failed.
    pub(crate) fn register(&mut self, name: &str, new_entry: NVldbEntry) -> Step {
        self.note("changing the location database");
        let id = new_entry.volume_id[crate::entry::READ_WRITE];
        let Err(code) = self.cell.create_entry(new_entry) else { return Ok(()) };
        if self.cell.has_entry(id)? {
            return Ok(());
        }
        let error = failed(format!("register the volume {name}"))(code);
        let is_silent = error.is_silence();
        self.record(if is_silent { StateEvent::SwitchRequested } else { StateEvent::SwitchRefused })?;
        Err(error)
    }
}

/// Returns the entry of a new volume at this site.
pub(crate) fn new_entry(name: &str, id: u32, place: Place) -> NVldbEntry {
    let mut entry = NVldbEntry {
        name: name.into(),
        server_count: 1,
        volume_id: [id, id + 1, id + 2],
        flags: entry_flags::READ_WRITE_EXISTS,
        ..NVldbEntry::default()
    };
    entry.server_number[0] = place.server.into();
    entry.server_partition[0] = place.partition;
    entry.server_flags[0] = site_flags::READ_WRITE;
    entry
}
