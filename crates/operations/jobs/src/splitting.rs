//! Turns a directory into a separate volume (SplitVolume).
//!
//! The new volume and its entry are created first, empty, so that the mount point is valid as soon as it
//! exists. The new volume shows whether the call took effect: if no vnode was ever created in it, the split
//! was not done. A Cellar server completes or undoes an interrupted call; OpenAFS servers do not and are not
//! used.

use crate::calls::{Run, Step, failed};
use crate::copying::new_entry;
use crate::{JobError, Stage, World};
use afs_idl::vl;
use afs_idl::vol::{self, attach_mode, volume_type};
use base::AbortCode;

/// Number of ids for a new volume: read-write, read-only, backup.
const NUMBERS: u32 = 3;
/// Next uniquifier of a volume in which no vnode was ever created.
const FRESH_UNIQUE: i32 = 2;
/// Bytes of the reply's text to read in one call.
const PIECE_BYTES: usize = 4096;

impl<W: World> Run<'_, W> {
    /// Creates the new volume and its entry.
    pub(crate) fn prepare_split(&mut self, name: &str) -> Step {
        let from = self.job.from;
        self.check_splits()?;
        self.check_name_is_free(name)?;
        if self.job.new_volume == 0 {
            self.job.new_volume = self.new_ids(NUMBERS)?;
            self.save()?;
        }
        let new_volume = self.job.new_volume;
        self.check_is_free(from, new_volume)?;
        self.job.new_begun = true;
        let new = self.create(from, name, new_volume, volume_type::READ_WRITE, 0)?;
        self.set_flags(new, 0)?;
        self.end(new)?;
        let request = vl::CreateEntryNRequest { new_entry: new_entry(name, new_volume, from) };
        match self.world.locations(|vl| vl::create_entry_n(vl, &request)) {
            Err(code) if !self.has_entry(new_volume)? => {
                return Err(failed(format!("register the volume {name}"))(code));
            }
            _ => {}
        }
        self.enter(Stage::Switching)
    }

    /// Rejects servers that leave an interrupted split incomplete.
    pub(crate) fn check_splits(&self) -> Step {
        let from = self.job.from;
        if self.world.restores_at_once(from.server) {
            return Ok(());
        }
        // Fails here if the server does not respond.
        self.look(from, self.job.volume)?;
        let server = from.server;
        let why = format!("{server} is no Cellar server: what is cut off there nobody finishes or undoes");
        Err(JobError::Refused(why))
    }

    /// Splits the directory off.
    pub(crate) fn split(&mut self, directory: u32, path: &str) -> Step {
        if self.is_split()? {
            return self.has_been_split();
        }
        self.note(format!("splitting {path} off"));
        let was_asked = std::mem::replace(&mut self.job.switch_asked, true);
        self.save()?;
        let (volume_id, new_volume_id) = (self.job.volume, self.job.new_volume);
        let request = vol::SplitVolumeRequest { volume_id, new_volume_id, vnode: directory, verbose: 0 };
        let called = vol::split_volume(&*self.world.volumes(self.job.from.server), &request, |text| {
            while !text.read_chunk(PIECE_BYTES)?.is_empty() {}
            Ok(())
        });
        let Err(code) = called else { return self.has_been_split() };
        let trouble = failed(format!("split {path} off"))(code);
        let is_busy = matches!(code, AbortCode::VOLSERVOLBUSY | AbortCode::VBUSY);
        if trouble.is_silence() || is_busy {
            return Err(trouble);
        }
        // A rejected call has done nothing, but an earlier one may have.
        self.job.switch_asked = was_asked && self.is_split()?;
        self.save()?;
        Err(JobError::Refused(trouble.to_string()))
    }

    fn has_been_split(&mut self) -> Step {
        self.job.new_begun = false;
        self.enter(Stage::Cleaning)
    }

    /// Returns whether the new volume has the directory's contents. While they are copied it cannot be
    /// opened.
    fn is_split(&mut self) -> Step<bool> {
        match self.open(self.job.from, self.job.new_volume, attach_mode::READ_ONLY) {
            Ok(open) => {
                let status = self.status(open)?;
                self.end(open)?;
                Ok(status.next_unique > FRESH_UNIQUE)
            }
            Err(JobError::Call { code: AbortCode::VNOVOL, .. }) => Ok(false),
            Err(trouble) => Err(trouble),
        }
    }

    /// Removes the new volume and its entry, unless it already has the directory's contents.
    pub(crate) fn put_split_back(&mut self) -> Step {
        self.end_all()?;
        if !self.job.new_begun {
            return Ok(());
        }
        if self.is_split()? {
            self.job.trouble = None;
            self.job.code = None;
            return self.has_been_split();
        }
        // The entry first: once the volume is gone, nothing would lead to the entry.
        self.delete_entry(self.job.new_volume)?;
        self.remove_new(self.job.from, self.job.new_volume)
    }

    fn delete_entry(&self, volume_id: u32) -> Step {
        let request = vl::DeleteEntryRequest { volume_id, volume_type: 0 };
        match self.world.locations(|vl| vl::delete_entry(vl, &request)) {
            Ok(_) | Err(AbortCode::VL_NOENT) => Ok(()),
            Err(code) => Err(failed(format!("remove the entry of the volume {volume_id}"))(code)),
        }
    }
}
