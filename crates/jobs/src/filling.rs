//! Making a volume of a dump in a file, and putting a dump in the place of what a volume has.

use crate::calls::{ENOENT, Run, Step, failed};
use crate::job::Transaction;
use crate::releasing::ENDING;
use crate::traffic::Traffic;
use crate::{Place, Stage, Trouble, World, entry};
use afs_idl::vol::{self, RestoreCookie, RestoreRequest, attach_mode, volume_flags, volume_type};
use base::AbortCode;

/// Numbers of a new volume: read-write, read-only, backup.
const NUMBERS: u32 = 3;

impl<W: World> Run<'_, W> {
    /// Refuses what cannot be done; nothing is locked for it.
    pub(crate) fn begin_restore(&mut self, name: &str) -> Step {
        self.check_name_is_free(name)?;
        self.note("begun");
        self.enter(Stage::Working)
    }

    pub(crate) fn check_name_is_free(&self, name: &str) -> Step {
        if self.is_registered(name)? {
            return Err(Trouble::Refused(format!("a volume {name} exists already")));
        }
        Ok(())
    }

    /// The volume is out of service, and goes with its transaction, until the whole dump is in it.
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

    /// What the volume is called on its server.
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

    /// Where a restore takes effect at once the volume stays as it is until then. Elsewhere it is overwritten from the
    /// first byte on, so it is out of service until it is whole.
    pub(crate) fn overwrite(&mut self, file: &str, changes: bool, offline: bool) -> Step {
        let entry = self.locked_entry()?;
        if self.job.is_read_only() {
            // Others give it numbers that do not follow each other.
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
        // A server that was started again amid the call does not know the transaction, and may have done it before.
        let is_unknown =
            |trouble: &Trouble| trouble.is_silence() || matches!(trouble, Trouble::Call { code: ENOENT, .. });
        if is_at_once && sent.as_ref().is_err_and(|trouble| !is_unknown(trouble)) {
            self.job.new_begun = was_begun;
        }
        sent?;
        // From here on there is nothing to go back to.
        self.enter(Stage::Switching)?;
        self.settle(open, offline)
    }

    /// The same after an interruption.
    pub(crate) fn finish_overwriting(&mut self, offline: bool) -> Step {
        self.end_all()?;
        let open = self.open(self.job.from, self.job.restored(), attach_mode::OFFLINE);
        let open = open.map_err(|trouble| match trouble {
            Trouble::Call { code: AbortCode::VNOVOL, .. } => {
                Trouble::Refused(format!("{} was removed meanwhile", self.job.name))
            }
            trouble => trouble,
        })?;
        self.settle(open, offline)
    }

    /// The date of its making tells caches and read-only sites that it is not what it was. It is on its server's clock, with
    /// which theirs is compared.
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

/// Flags of a volume that is whole.
fn flags(offline: bool) -> i32 {
    if offline { volume_flags::OUT_OF_SERVICE } else { 0 }
}
