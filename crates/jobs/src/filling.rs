//! Making a volume of a dump in a file.

use crate::calls::{Run, Step};
use crate::traffic::Traffic;
use crate::{Place, Stage, Trouble, World};
use afs_idl::vol::{RestoreCookie, RestoreRequest, volume_type};

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
    pub(crate) fn restore_file(&mut self, file: &str, name: &str, to: Place) -> Step {
        self.check_name_is_free(name)?;
        if self.job.new_volume == 0 {
            self.job.new_volume = self.new_ids(NUMBERS)?;
            self.job.volume = self.job.new_volume;
            self.save()?;
        }
        let volume = self.job.new_volume;
        self.check_is_free(to, volume)?;
        self.job.new_begun = true;
        let new = self.create(to, name, volume, volume_type::READ_WRITE, volume)?;
        let cookie = RestoreCookie {
            name: name.into(),
            volume_type: volume_type::READ_WRITE,
            clone_id: 0,
            parent_id: volume,
        };
        self.note(format!("sending {file}"));
        let request = RestoreRequest { transaction: new.id, flags: 0, cookie };
        let bytes = self.world.send_file(to.server, &request, file)?;
        self.count(new, Traffic { total: bytes, done: bytes, sent: bytes });
        self.set_flags(new, 0)?;
        self.end(new)?;
        self.enter(Stage::Switching)
    }
}
