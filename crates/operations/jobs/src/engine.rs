//! Runs a job: chooses the next step, and handles errors.

use crate::calls::{Run, Step, failed};
use crate::{Control, Job, JobError, Operation, Stage, World, entry};
use afs_idl::vl::NVldbEntry;
use base::AbortCode;

/// Maximum number of attempts at the work before the job is undone.
const ATTEMPTS_MAX: u32 = 3;
/// Number of tries of a stage before the lock is released during further waits.
const LOCKED_TRIES: u32 = 3;
/// Minimum pause between tries, in seconds; it doubles with each try.
const PAUSE_SECONDS_MIN: u32 = 2;
const PAUSE_SECONDS_MAX: u32 = 300;

/// Why [`run`] returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The job has ended; its stage shows how.
    Over,
    /// The job is suspended; call [`run`] again later.
    Stopped,
}

/// Runs a job until it ends, or until the world asks it to stop.
pub fn run<W: World>(job: &mut Job, world: &W) -> End {
    let mut run = Run { job, world };
    let mut tries = 0;
    while !run.job.is_over() {
        if world.wish() == Control::Suspend {
            return End::Stopped;
        }
        let before = run.job.stage;
        match run.step() {
            Ok(()) => {}
            Err(JobError::Stopped(why)) => {
                run.note(format!("stopped: {why}"));
                return End::Stopped;
            }
            Err(trouble) => run.handle_error(&trouble, tries),
        }
        if run.job.stage == before {
            run.world.pause((PAUSE_SECONDS_MIN << tries.min(10)).min(PAUSE_SECONDS_MAX));
            tries += 1;
        } else {
            tries = 0;
        }
    }
    End::Over
}

impl<W: World> Run<'_, W> {
    fn step(&mut self) -> Step {
        match self.job.stage {
            Stage::Beginning => self.begin(),
            Stage::Working => self.work(),
            Stage::Switching => self.switch(),
            Stage::Cleaning => self.clean(),
            Stage::Undoing => self.undo(),
            Stage::CatchingUp => self.catch_up(),
            Stage::Done | Stage::Failed => Ok(()),
        }
    }

    /// Handles the error of a step.
    fn handle_error(&mut self, trouble: &JobError, tries: u32) {
        self.note(trouble.to_string());
        let is_worth_a_try = trouble.may_pass(&self.job.operation);
        let is_hopeless = match self.job.stage {
            Stage::Beginning => !is_worth_a_try || tries >= ATTEMPTS_MAX,
            Stage::Working => {
                !is_worth_a_try || self.job.attempts >= ATTEMPTS_MAX || tries > 2 * ATTEMPTS_MAX
            }
            // No change of the database has been requested yet, or it was certainly rejected.
            Stage::Switching => !is_worth_a_try && !self.job.switch_asked,
            _ => false,
        };
        if is_hopeless {
            self.give_up(trouble);
        } else if tries >= LOCKED_TRIES && matches!(self.job.stage, Stage::Cleaning | Stage::Undoing) {
            let _ = self.unlock();
        }
        let _ = self.save();
    }

    fn give_up(&mut self, trouble: &JobError) {
        self.job.trouble = Some(trouble.to_string());
        if let JobError::Call { code, .. } = trouble {
            self.job.code = Some(code.0);
        }
        self.job.stage = Stage::Undoing;
    }

    fn begin(&mut self) -> Step {
        self.check_control()?;
        if let Operation::Restore { name, .. } = self.job.operation.clone() {
            return self.begin_restore(&name);
        }
        let entry = self.entry()?;
        self.check(&entry)?;
        // The entry may have changed until it was locked.
        let entry = self.locked_entry()?;
        self.check(&entry)?;
        self.note("begun");
        self.enter(Stage::Working)
    }

    /// Rejects operations that the volume's entry does not permit.
    pub(crate) fn check(&self, entry: &NVldbEntry) -> Step {
        let job = &*self.job;
        if entry.volume_id[entry::READ_WRITE] != job.volume {
            return Err(JobError::Refused(format!("{} is not the read-write volume", job.volume)));
        }
        if job.is_read_only() {
            return match entry::only_read_only_site(entry, job.from) {
                Some(_) => Ok(()),
                None => Err(JobError::Refused(format!("{} is not only read-only on {}", job.name, job.from))),
            };
        }
        let place = entry::read_write_place(entry);
        if place != Some(job.from) {
            return Err(JobError::Refused(format!(
                "the read-write volume {} is not on {}",
                job.name, job.from
            )));
        }
        match job.operation {
            Operation::Move { to } if to == job.from => {
                Err(JobError::Refused(format!("{} is on {to} already", job.name)))
            }
            Operation::Release { .. } => crate::releasing::check(entry),
            _ => Ok(()),
        }
    }

    fn work(&mut self) -> Step {
        self.put_back()?;
        if self.job.stage != Stage::Working {
            return Ok(());
        }
        self.check_control()?;
        self.job.attempts += 1;
        self.save()?;
        match self.job.operation.clone() {
            Operation::Move { to } => self.move_volume(to),
            Operation::Copy { name, to } => self.copy_volume(&name, to),
            Operation::Release { all } => self.release(all),
            Operation::Backup => self.back_up(),
            Operation::Restore { file, name, to, offline, .. } => {
                self.restore_file(&file, &name, to, offline)
            }
            Operation::Overwrite { file, changes, offline, .. } => self.overwrite(&file, changes, offline),
            Operation::Split { name, .. } => self.prepare_split(&name),
        }
    }

    fn switch(&mut self) -> Step {
        match self.job.operation.clone() {
            Operation::Move { to } => self.switch_to(to),
            Operation::Copy { name, to } | Operation::Restore { name, to, .. } => {
                self.register_copy(&name, to)
            }
            Operation::Overwrite { offline, .. } => self.finish_overwriting(offline),
            Operation::Split { directory, path, .. } => self.split(directory, &path),
            Operation::Release { .. } | Operation::Backup => self.enter(Stage::Cleaning),
        }
    }

    fn clean(&mut self) -> Step {
        match self.job.operation {
            Operation::Move { to } => self.clear_old_place(to)?,
            _ => self.put_back()?,
        }
        self.unlock()?;
        self.note("done");
        self.enter(Stage::Done)
    }

    fn undo(&mut self) -> Step {
        self.put_back()?;
        if self.job.stage != Stage::Undoing || self.is_half_released()? {
            return Ok(());
        }
        self.unlock()?;
        self.note(if self.job.may_have_overwritten() { "given up" } else { "undone" });
        self.enter(Stage::Failed)
    }

    /// Cleans up after an attempt. If that fails, it must be called again.
    fn put_back(&mut self) -> Step {
        match self.job.operation.clone() {
            Operation::Move { to } => self.put_move_back(to),
            Operation::Copy { to, .. } => self.put_copy_back(to, self.job.new_volume),
            Operation::Restore { to, .. } => self.put_copy_back(to, self.job.restored()),
            Operation::Release { .. } => self.put_clone_back(),
            Operation::Backup => self.put_backup_back(),
            Operation::Overwrite { .. } => self.end_all(),
            Operation::Split { .. } => self.put_split_back(),
        }
    }

    /// Ends open transactions and removes the temporary clone.
    pub(crate) fn put_clone_back(&mut self) -> Step {
        self.end_all()?;
        self.remove_clone()
    }

    /// Removes the temporary clone, if there may be one. No other volume has its id.
    pub(crate) fn remove_clone(&mut self) -> Step {
        if self.job.clone_begun {
            self.delete(self.job.from, self.job.clone, None)?;
            self.job.clone_begun = false;
            // A volume that is being deleted still occupies its id.
            self.job.clone = 0;
            self.save()?;
        }
        Ok(())
    }

    /// Creates the temporary clone of the read-write volume, out of service.
    pub(crate) fn make_clone(&mut self, name: &str) -> Step {
        use afs_idl::vol::{attach_mode, volume_type};
        if self.job.clone == 0 {
            self.job.clone = self.new_ids(1)?;
        }
        let source = self.open(self.job.from, self.job.volume, attach_mode::BUSY)?;
        self.job.clone_begun = true;
        self.save()?;
        self.clone_volume(source, name, volume_type::READ_ONLY, self.job.clone)?;
        // Otherwise the header keeps the id of the temporary clone.
        self.set_family(source, &self.entry()?)?;
        self.end(source)
    }

    /// Fails if a volume already exists where the job is to create one.
    pub(crate) fn check_is_free(&self, place: crate::Place, volume: u32) -> Step {
        match self.look(place, volume)? {
            None => Ok(()),
            Some(_) => Err(failed(format!(
                "use {place}: it has a volume {volume} that the location database does not know of \
                 (`vos zap` removes it)"
            ))(AbortCode::VVOLEXISTS)),
        }
    }
}
