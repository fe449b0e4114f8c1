//! Runs a job: chooses the next step, and handles errors.

use crate::job::Failure;
use crate::procedure::{Execution, Procedure};
use crate::rpc::{Cell, Step};
use crate::state::{State, StateEvent};
use crate::{Control, Job, JobError, Stage, World};
use afs_idl::vl::NVldbEntry;

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
    job.execution.clone().run(job, world)
}

/// A running job.
pub(crate) struct Run<'a, P: Procedure, W: World> {
    pub(crate) job: &'a mut Job,
    pub(crate) cell: Cell<'a, W>,
    /// The same as in the job, with its type.
    execution: Execution<P>,
}

// State and records.
impl<'a, P: Procedure, W: World> Run<'a, P, W> {
    /// `execution` is that of the job.
    pub(crate) fn new(job: &'a mut Job, execution: Execution<P>, world: &'a W) -> Run<'a, P, W> {
        Run { job, cell: Cell { world }, execution }
    }

    /// Returns the parameters of the operation.
    pub(crate) fn request(&self) -> &P {
        &self.execution.request
    }

    pub(crate) fn state(&self) -> P::State {
        self.execution.state
    }

    pub(crate) fn stage(&self) -> Stage {
        self.execution.state.stage()
    }

    /// Returns the id of the read-write volume; 0 if it is still to be created and has no id yet.
    pub(crate) fn volume(&self) -> u32 {
        P::created_volume(self.execution.state).unwrap_or(self.job.source)
    }

    /// Changes the state, without recording it yet.
    ///
    /// # Errors
    /// The event cannot occur in this state. The job stops as it is: no step would be safe.
    pub(crate) fn apply(&mut self, event: StateEvent) -> Step {
        let state = self.execution.state;
        let next = state.after(event);
        self.execution.state =
            next.ok_or_else(|| JobError::Stopped(format!("internal error: {event:?} in {state:?}")))?;
        if !matches!(self.stage(), Stage::Undoing | Stage::Failed) {
            // Undoing has found that the job succeeded after all.
            self.job.failure = None;
        }
        self.job.execution = P::wrap(self.execution.clone());
        Ok(())
    }

    /// Changes the state, and saves the job.
    pub(crate) fn record(&mut self, event: StateEvent) -> Step {
        self.apply(event)?;
        self.save()
    }

    pub(crate) fn save(&self) -> Step {
        self.cell.world.record(self.job).map_err(JobError::Stopped)
    }

    pub(crate) fn note(&mut self, what: impl Into<String>) {
        self.job.note(self.cell.world.now().0, what.into());
    }

    /// Fails if the program is terminating, or if the operator cancelled the job and it can still be undone.
    pub(crate) fn check_control(&self) -> Step {
        let may_be_undone = matches!(self.stage(), Stage::Beginning | Stage::Working);
        match self.cell.world.control() {
            Control::Suspend => Err(JobError::Stopped("the program ends".into())),
            Control::Cancel if may_be_undone => Err(JobError::Cancelled),
            Control::Cancel | Control::Continue => Ok(()),
        }
    }

    /// Returns the volume's entry.
    pub(crate) fn entry(&self) -> Step<NVldbEntry> {
        self.cell.entry(self.volume(), &self.job.name)
    }

    /// Rejects a volume whose entry does not permit the operation.
    pub(crate) fn check_entry(&self, entry: &NVldbEntry) -> Step {
        self.request().check(self.job, entry)
    }

    pub(crate) fn replace_entry(&self, new_entry: &NVldbEntry) -> Step {
        self.cell.replace_entry(self.volume(), &self.job.name, new_entry)
    }
}

// Stages.
impl<P: Procedure, W: World> Run<'_, P, W> {
    /// Runs the job until it ends, or until the world asks it to stop.
    pub(crate) fn run(mut self) -> End {
        let mut tries = 0;
        while !self.stage().is_over() {
            if self.cell.world.control() == Control::Suspend {
                return End::Stopped;
            }
            let before = self.stage();
            let outcome = self.step().or_else(|error| self.handle_error(error, tries));
            if let Err(error) = outcome {
                self.note(error.to_string());
                return End::Stopped;
            }
            if self.stage() == before {
                self.cell.world.pause((PAUSE_SECONDS_MIN << tries.min(10)).min(PAUSE_SECONDS_MAX));
                tries += 1;
            } else {
                tries = 0;
            }
        }
        End::Over
    }

    fn step(&mut self) -> Step {
        match self.stage() {
            Stage::Beginning => {
                self.check_control()?;
                P::begin(self)
            }
            Stage::Working => self.work(),
            Stage::Switching => P::switch(self),
            Stage::Cleaning => self.clean(),
            Stage::Undoing => self.undo(),
            Stage::CatchingUp => self.catch_up(),
            Stage::Done | Stage::Failed => Ok(()),
        }
    }

    /// Handles the error of a step. Returns it if the job has to stop.
    fn handle_error(&mut self, error: JobError, tries: u32) -> Step {
        if let JobError::Stopped(_) = error {
            return Err(error);
        }
        self.note(error.to_string());
        let may_pass = error.may_pass(P::SENDS_FILE);
        let is_hopeless = match self.stage() {
            Stage::Beginning => !may_pass || tries >= ATTEMPTS_MAX,
            Stage::Working => !may_pass || self.job.attempts >= ATTEMPTS_MAX || tries > 2 * ATTEMPTS_MAX,
            // The switch has not been requested yet, or it was certainly rejected.
            Stage::Switching => !may_pass && self.state().after(StateEvent::GivenUp).is_some(),
            _ => false,
        };
        if is_hopeless {
            let code = if let JobError::Call { code, .. } = error { Some(code) } else { None };
            self.job.failure = Some(Failure { description: error.to_string(), code });
            self.apply(StateEvent::GivenUp)?;
        } else if tries >= LOCKED_TRIES && matches!(self.stage(), Stage::Cleaning | Stage::Undoing) {
            let _ = self.unlock();
        }
        let _ = self.save();
        Ok(())
    }

    fn work(&mut self) -> Step {
        P::revert(self)?;
        if self.stage() != Stage::Working {
            return Ok(());
        }
        self.check_control()?;
        self.job.attempts += 1;
        self.save()?;
        P::work(self)
    }

    fn clean(&mut self) -> Step {
        P::clean(self)?;
        self.unlock()?;
        self.note("done");
        self.record(StateEvent::Cleaned)
    }

    fn undo(&mut self) -> Step {
        P::undo(self)?;
        if self.stage() != Stage::Undoing {
            return Ok(());
        }
        self.unlock()?;
        self.note(if P::may_have_overwritten(self.state()) { "given up" } else { "undone" });
        self.record(StateEvent::Undone)
    }
}
