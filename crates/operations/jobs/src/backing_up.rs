//! Creates the backup volume, or brings it up to date.

use crate::calls::{Run, Step};
use crate::{Stage, World, entry};
use afs_idl::vl::entry_flags;
use afs_idl::vol::{attach_mode, volume_type};

impl<W: World> Run<'_, W> {
    pub(crate) fn back_up(&mut self) -> Step {
        let mut entry = self.locked_entry()?;
        if entry.volume_id[entry::BACKUP] == 0 {
            entry.volume_id[entry::BACKUP] = self.new_ids(1)?;
            self.replace_entry(&entry)?;
        }
        let (from, backup) = (self.job.from, entry.volume_id[entry::BACKUP]);
        let is_there = self.look(from, backup)?.is_some();
        let source = self.open(from, self.job.volume, attach_mode::BUSY)?;
        if is_there {
            self.reclone(source, backup)?;
        } else {
            let name = format!("{}.backup", self.job.name);
            self.job.new_volume = backup;
            self.job.new_begun = true;
            self.save()?;
            self.clone_volume(source, &name, volume_type::BACKUP, backup)?;
        }
        self.end(source)?;
        self.put_online(from, backup, attach_mode::OFFLINE)?;
        if entry.flags & entry_flags::BACKUP_EXISTS == 0 {
            entry.flags |= entry_flags::BACKUP_EXISTS;
            self.replace_entry(&entry)?;
        }
        self.job.new_begun = false;
        self.enter(Stage::Cleaning)
    }

    /// Removes a backup volume that this job created and did not finish.
    pub(crate) fn put_backup_back(&mut self) -> Step {
        self.end_all()?;
        if self.job.new_begun {
            let entry = self.locked_entry_if_any()?;
            if entry.is_some_and(|entry| entry.flags & entry_flags::BACKUP_EXISTS != 0) {
                self.job.new_begun = false;
                return self.enter(Stage::Cleaning);
            }
            self.remove_new(self.job.from, self.job.new_volume)?;
        }
        Ok(())
    }
}
