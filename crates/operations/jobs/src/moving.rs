//! Moves a read-write volume.

use crate::calls::{CLOCK_SLACK_SECONDS, Run, Step, keep};
use crate::job::Transaction;
use crate::{JobError, Place, Stage, World, entry};
use afs_idl::vl::{NVldbEntry, entry_flags};
use afs_idl::vol::{RestoreCookie, attach_mode, volume_flags, volume_type};

impl<W: World> Run<'_, W> {
    /// Sends a clone while the volume is in use, then the changes made meanwhile, while clients wait.
    pub(crate) fn move_volume(&mut self, to: Place) -> Step {
        let volume = self.job.volume;
        self.check_is_free(to, volume)?;
        self.check_room(to)?;
        self.note("cloning");
        self.make_clone("move-clone-temp")?;
        let clone = self.open(self.job.from, self.job.clone, attach_mode::OFFLINE)?;
        let from_date = self.status(clone)?.creation_date.saturating_sub(CLOCK_SLACK_SECONDS);
        self.job.new_begun = true;
        let name = self.job.name.clone();
        let new = self.create(to, &name, volume, volume_type::READ_WRITE, volume)?;
        let cookie = RestoreCookie {
            name: name.as_str().into(),
            volume_type: volume_type::READ_WRITE,
            clone_id: 0,
            parent_id: volume,
        };
        self.note(format!("sending the volume to {}", to.server));
        self.forward(clone, 0, new, &cookie)?;
        self.end(clone)?;
        self.check_control()?;
        self.note("sending what changed meanwhile");
        let source = self.open(self.job.from, volume, attach_mode::BUSY)?;
        self.forward(source, from_date, new, &cookie)?;
        let entry = self.locked_entry()?;
        self.set_family(new, &entry)?;
        self.job.source_off = true;
        self.save()?;
        self.set_flags(source, volume_flags::OUT_OF_SERVICE)?;
        // Clients of the same server would find the new volume immediately, and their writes would be lost if
        // the job were undone. So it goes into service when the job can no longer be undone, see
        // `clear_old_place`.
        self.set_flags(new, if self.is_within(to) { volume_flags::OUT_OF_SERVICE } else { 0 })?;
        self.end(new)?;
        // The transaction still exists, so no client can have written to the source after the changes were
        // sent.
        self.status(source)?;
        self.enter(Stage::Switching)
    }

    /// Changes the entry to the destination. Once the change was requested, the job can only go forward.
    pub(crate) fn switch_to(&mut self, to: Place) -> Step {
        let entry = match self.locked_entry() {
            Ok(entry) => entry,
            Err(trouble) if self.job.switch_asked => return Err(trouble),
            Err(trouble) => return self.step_back(&trouble),
        };
        let place = entry::read_write_place(&entry);
        if place == Some(to) {
            return self.enter(Stage::Cleaning);
        }
        if place != Some(self.job.from) {
            return Err(JobError::Refused(format!("somebody changed the entry of {}", self.job.name)));
        }
        if !self.job.switch_asked && !self.source_is_still_ours() {
            return self.step_back(&JobError::Refused("the old server was restarted".into()));
        }
        self.note("changing the location database");
        let was_asked = std::mem::replace(&mut self.job.switch_asked, true);
        self.save()?;
        match self.replace_entry(&moved(entry, self.job.from, to)) {
            Ok(()) => self.enter(Stage::Cleaning),
            Err(trouble) => {
                // A rejected first request has changed nothing.
                self.job.switch_asked = was_asked || trouble.is_silence();
                self.save()?;
                Err(trouble)
            }
        }
    }

    fn step_back(&mut self, trouble: &JobError) -> Step {
        self.note(trouble.to_string());
        self.enter(Stage::Working)
    }

    /// Returns whether the transaction in which the last changes were sent is still open.
    fn source_is_still_ours(&self) -> bool {
        self.open_on_source().is_some_and(|open| self.status(open).is_ok())
    }

    fn open_on_source(&self) -> Option<Transaction> {
        let (from, volume) = (self.job.from, self.job.volume);
        self.job.transactions.iter().copied().find(|open| open.is_on(from, volume))
    }

    /// Returns whether the volume stays on its server.
    fn is_within(&self, to: Place) -> bool {
        self.job.from.server == to.server
    }

    /// Removes the volume, its backup and the clone at the source.
    pub(crate) fn clear_old_place(&mut self, to: Place) -> Step {
        let from = self.job.from;
        if !self.job.source_gone {
            let entry = self.locked_entry_if_any()?;
            if entry.as_ref().and_then(entry::read_write_place) == Some(from) {
                return Err(JobError::Refused(format!(
                    "the entry of {} points to {from} again; nothing is removed there",
                    self.job.name
                )));
            }
            if self.is_within(to) {
                self.put_online(to, self.job.volume, attach_mode::BUSY)?;
            }
            self.remove_source(to)?;
            let backup = entry.map_or(0, |entry| entry.volume_id[entry::BACKUP]);
            if backup != 0 {
                self.delete(from, backup, None)?;
            }
            self.job.source_gone = true;
            self.save()?;
        }
        self.put_clone_back()
    }

    fn remove_source(&mut self, to: Place) -> Step {
        let (from, volume) = (self.job.from, self.job.volume);
        let moved_to = (from.server != to.server).then_some(to.server);
        if let Some(open) = self.open_on_source()
            && self.status(open).is_ok()
        {
            return self.delete_open(open, moved_to);
        }
        self.end_all()?;
        self.delete(from, volume, moved_to)
    }

    /// Undoes an attempt, on all servers that respond, or detects that it succeeded after all.
    pub(crate) fn put_move_back(&mut self, to: Place) -> Step {
        if !self.job.new_begun && !self.job.clone_begun && !self.job.source_off {
            return self.end_all();
        }
        let entry = self.locked_entry_if_any()?;
        let place = entry.as_ref().and_then(entry::read_write_place);
        if place == Some(to) {
            self.job.trouble = None;
            self.job.code = None;
            return self.enter(Stage::Cleaning);
        }
        let mut outcome = self.end_all();
        if self.job.new_begun && self.is_within(to) {
            // A server may have only one volume with this id in service.
            keep(&mut outcome, self.remove_new(to, self.job.volume));
        }
        if self.job.source_off {
            keep(&mut outcome, self.put_source_back());
        }
        if self.job.new_begun && !self.is_within(to) {
            keep(&mut outcome, self.remove_new(to, self.job.volume));
        }
        keep(&mut outcome, self.remove_clone());
        outcome
    }

    fn put_source_back(&mut self) -> Step {
        self.put_online(self.job.from, self.job.volume, attach_mode::BUSY)?;
        self.job.source_off = false;
        self.save()
    }

    /// Removes the volume that the job created at the destination.
    pub(crate) fn remove_new(&mut self, to: Place, volume: u32) -> Step {
        self.delete(to, volume, None)?;
        self.job.new_begun = false;
        self.save()
    }
}

/// Returns the entry with the read-write volume at its destination, where it has no backup yet.
fn moved(mut entry: NVldbEntry, from: Place, to: Place) -> NVldbEntry {
    if let Some(site) = entry::read_write_site(&entry).filter(|&site| entry::place(&entry, site) == from) {
        entry.server_number[site] = to.server.into();
        entry.server_partition[site] = to.partition;
        entry.flags &= !entry_flags::BACKUP_EXISTS;
    }
    entry
}
