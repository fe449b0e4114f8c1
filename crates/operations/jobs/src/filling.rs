//! Restores a dump file to a new volume or over an existing one.

use crate::calls::{ENOENT, Run, Step, failed};
use crate::job::Transaction;
use crate::releasing::ENDING;
use crate::traffic::Traffic;
use crate::{JobError, Place, Stage, World, entry};
use afs_idl::vol::{self, RestoreCookie, RestoreRequest, attach_mode, volume_flags, volume_type};
use base::AbortCode;

/// Number of ids for a new volume: read-write, read-only, backup.
const NUMBERS: u32 = 3;

impl<W: World> Run<'_, W> {
    /// Starts a restore after checking that the name is free. Takes no lock.
    pub(crate) fn begin_restore(&mut self, name: &str) -> Step {
        self.check_name_is_free(name)?;
        self.note("begun");
        self.enter(Stage::Working)
    }

    pub(crate) fn check_name_is_free(&self, name: &str) -> Step {
        if self.is_registered(name)? {
            return Err(JobError::Refused(format!("a volume {name} exists already")));
        }
        Ok(())
    }

    /// Creates a volume and sends the dump to it. Until the dump is complete, the volume is out of service
    /// and is deleted with its transaction.
    pub(crate) fn restore_file(&mut self, file: &str, name: &str, to: Place, offline: bool) -> Step {
        self.check_name_is_free(name)?;
        if self.job.new_volume == 0 {
            self.job.new_volume = self.new_ids(NUMBERS)?;
            self.job.volume = self.job.new_volume;
            self.save()?;
        }
        let volume = self.job.restored();
        self.check_is_free(to, volume)?;
        self.job.new_begun = true;
        let new = self.create(to, &self.name_of(name), volume, self.kind(), self.job.volume)?;
        self.send_dump(new, name, file, false)?;
        self.set_flags(new, flags(offline))?;
        self.end(new)?;
        self.enter(Stage::Switching)
    }

    fn kind(&self) -> i32 {
        if self.job.is_read_only() { volume_type::READ_ONLY } else { volume_type::READ_WRITE }
    }

    /// Returns the volume's name on its server.
    fn name_of(&self, name: &str) -> String {
        format!("{name}{}", if self.job.is_read_only() { ENDING } else { "" })
    }

    fn send_dump(&mut self, open: Transaction, name: &str, file: &str, changes: bool) -> Step {
        let cookie = RestoreCookie {
            name: self.name_of(name).as_str().into(),
            volume_type: self.kind(),
            clone_id: 0,
            parent_id: self.job.volume,
        };
        self.note(format!("sending {file}"));
        let request = RestoreRequest { transaction: open.id, flags: changes.into(), cookie };
        let bytes = self.world.send_file(open.server, &request, file)?;
        self.count(open, Traffic { total: bytes, done: bytes, sent: bytes });
        Ok(())
    }

    /// Restores a dump over the volume. If restores on the server are atomic, the volume is unchanged until
    /// the end. Otherwise it is overwritten from the first byte on, so it is out of service until it is
    /// complete.
    pub(crate) fn overwrite(&mut self, file: &str, changes: bool, offline: bool) -> Step {
        let entry = self.locked_entry()?;
        if self.job.is_read_only() {
            // Other programs give it an id that does not follow the read-write one.
            self.job.new_volume = entry.volume_id[entry::READ_ONLY];
        }
        let (from, name) = (self.job.from, self.job.name.clone());
        let open = self.open(from, self.job.restored(), attach_mode::OFFLINE)?;
        let (is_at_once, was_begun) = (self.world.restores_at_once(from.server), self.job.new_begun);
        self.job.new_begun = true;
        self.save()?;
        if !is_at_once {
            self.set_flags(open, volume_flags::OUT_OF_SERVICE)?;
        }
        let sent = self.send_dump(open, &name, file, changes);
        // A server that restarted during the call does not know the transaction, but may have executed the
        // call before.
        let is_unknown = |trouble: &JobError| {
            trouble.is_silence() || matches!(trouble, JobError::Call { code: ENOENT, .. })
        };
        if is_at_once && sent.as_ref().is_err_and(|trouble| !is_unknown(trouble)) {
            self.job.new_begun = was_begun;
        }
        sent?;
        // From here on the job cannot be undone.
        self.enter(Stage::Switching)?;
        self.settle(open, offline)
    }

    /// Continues [`Run::overwrite`] after an interruption.
    pub(crate) fn finish_overwriting(&mut self, offline: bool) -> Step {
        self.end_all()?;
        let open = self.open(self.job.from, self.job.restored(), attach_mode::OFFLINE);
        let open = open.map_err(|trouble| match trouble {
            JobError::Call { code: AbortCode::VNOVOL, .. } => {
                JobError::Refused(format!("{} was removed meanwhile", self.job.name))
            }
            trouble => trouble,
        })?;
        self.settle(open, offline)
    }

    /// Sets the creation date, which shows caches and read-only sites that the contents have changed, and the
    /// final flags. The date is from the server's clock, because it is compared with other dates of that
    /// server.
    fn settle(&mut self, open: Transaction, offline: bool) -> Step {
        let made = self.time_at(open)?.max(self.world.now().0);
        let request = vol::SetDateRequest { transaction: open.id, new_date: made };
        vol::set_date(&*self.world.volumes(open.server), &request)
            .map_err(failed(format!("set the date of the volume {}", open.volume)))?;
        if !self.job.is_read_only() {
            let entry = self.locked_entry()?;
            self.set_family(open, &entry)?;
        }
        self.set_flags(open, flags(offline))?;
        self.end(open)?;
        if !self.job.is_read_only() {
            return self.enter(Stage::Cleaning);
        }
        let mut entry = self.locked_entry()?;
        match entry::only_read_only_site(&entry, self.job.from) {
            Some(site) if entry::read_only_sites(&entry).len() > 1 => {
                entry::set_only_new(&mut entry, site);
                self.replace_entry(&entry)?;
                self.enter(Stage::CatchingUp)
            }
            _ => self.enter(Stage::Cleaning),
        }
    }
}

/// Returns the flags of a complete volume.
fn flags(offline: bool) -> i32 {
    if offline { volume_flags::OUT_OF_SERVICE } else { 0 }
}
