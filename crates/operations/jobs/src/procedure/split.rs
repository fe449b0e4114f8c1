//! Turns a directory into a separate volume (SplitVolume).
//!
//! The new volume and its entry are created first, empty, so that the mount point is valid as soon as it
//! exists. The new volume shows whether the call took effect: if no vnode was ever created in it, the split
//! was not done. A Cellar server completes or undoes an interrupted call; OpenAFS servers do not and are not
//! used.

use super::Procedure;
use crate::creation::new_entry;
use crate::engine::Run;
use crate::journal::Fields;
use crate::rpc::{Step, failed};
use crate::state::{Creation, State, StateEvent};
use crate::{Job, JobError, Outlook, Stage, World};
use afs_idl::vol::{attach_mode, volume_type};
use base::AbortCode;
use serde::{Deserialize, Serialize};

/// Next uniquifier of a volume in which no vnode was ever created.
const FRESH_UNIQUE: i32 = 2;

/// Turns a directory into a separate volume, next to the volume that contains it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Split {
    /// Vnode of the directory.
    pub directory: u32,
    /// Path of the directory, for display.
    pub path: String,
    /// Name of the new volume.
    pub name: String,
}

/// State of a split.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum SplitState {
    Beginning,
    /// The new volume and its entry are being created, or removed before the next attempt.
    Working(Creation),
    /// The new volume and its entry exist.
    Switching {
        new: u32,
        /// Whether the directory may have been split off. Then the job can only go forward.
        requested: bool,
    },
    /// The new volume has the directory's contents.
    Cleaning {
        new: u32,
    },
    Undoing(Creation),
    Done {
        new: u32,
    },
    Failed {
        new: Option<u32>,
    },
}

impl State for SplitState {
    const START: SplitState = SplitState::Beginning;

    fn stage(self) -> Stage {
        match self {
            SplitState::Beginning => Stage::Beginning,
            SplitState::Working(_) => Stage::Working,
            SplitState::Switching { .. } => Stage::Switching,
            SplitState::Cleaning { .. } => Stage::Cleaning,
            SplitState::Undoing(_) => Stage::Undoing,
            SplitState::Done { .. } => Stage::Done,
            SplitState::Failed { .. } => Stage::Failed,
        }
    }

    fn after(self, event: StateEvent) -> Option<SplitState> {
        use SplitState::{Beginning, Cleaning, Done, Failed, Switching, Undoing, Working};
        match (self, event) {
            (Beginning, StateEvent::Begun) => Some(Working(Creation::Unnumbered)),
            (Beginning, StateEvent::GivenUp) => Some(Undoing(Creation::Unnumbered)),

            (Working(new), StateEvent::Prepared) => {
                new.begun().map(|new| Switching { new, requested: false })
            }
            (Working(new), StateEvent::GivenUp) => Some(Undoing(new)),
            (Working(new) | Undoing(new), StateEvent::Switched) => new.begun().map(|new| Cleaning { new }),
            (Undoing(new), StateEvent::Undone) => new.begun().is_none().then_some(Failed { new: new.id() }),
            (Working(new), event) => new.after_volume_event(event).map(Working),
            (Undoing(new), event) => new.after_volume_removal(event).map(Undoing),

            (Switching { new, .. }, StateEvent::SwitchRequested) => Some(Switching { new, requested: true }),
            (Switching { new, .. }, StateEvent::SwitchRefused) => Some(Switching { new, requested: false }),
            (Switching { new, .. }, StateEvent::Switched) => Some(Cleaning { new }),
            (Switching { new, requested: false }, StateEvent::GivenUp) => Some(Undoing(Creation::Begun(new))),

            (Cleaning { new }, StateEvent::Cleaned) => Some(Done { new }),
            _ => None,
        }
    }

    fn decode(fields: Fields) -> Option<SplitState> {
        let (volume, new) = (fields.volume()?, fields.volume_id());
        match fields.stage {
            Stage::Beginning => (volume == Creation::Unnumbered).then_some(SplitState::Beginning),
            Stage::Working if !fields.switch_asked => Some(SplitState::Working(volume)),
            Stage::Switching => {
                let requested = fields.switch_asked;
                volume.begun().map(|new| SplitState::Switching { new, requested })
            }
            Stage::Cleaning => new.map(|new| SplitState::Cleaning { new }),
            Stage::Undoing if !fields.switch_asked => Some(SplitState::Undoing(volume)),
            Stage::Done => new.map(|new| SplitState::Done { new }),
            Stage::Failed => Some(SplitState::Failed { new }),
            Stage::CatchingUp | Stage::Working | Stage::Undoing => None,
        }
    }

    fn encode(self) -> Fields {
        let fields = Fields::of(self.stage());
        match self {
            SplitState::Beginning => fields,
            SplitState::Working(new) | SplitState::Undoing(new) => fields.with_volume(new),
            SplitState::Switching { new, requested } => {
                Fields { switch_asked: requested, ..fields.with_volume(Creation::Begun(new)) }
            }
            SplitState::Cleaning { new } | SplitState::Done { new } => {
                Fields { new_volume: new, switch_asked: true, ..fields }
            }
            SplitState::Failed { new } => Fields { new_volume: new.unwrap_or(0), ..fields },
        }
    }

    fn new_volume(self) -> Creation {
        match self {
            SplitState::Beginning => Creation::Unnumbered,
            SplitState::Working(new) | SplitState::Undoing(new) => new,
            SplitState::Switching { new, .. } => Creation::Begun(new),
            SplitState::Cleaning { new } | SplitState::Done { new } => Creation::Numbered(new),
            SplitState::Failed { new } => new.map_or(Creation::Unnumbered, Creation::Numbered),
        }
    }
}

impl Procedure for Split {
    type State = SplitState;

    const VERB: &'static str = "split";

    fn title(&self, _: &Job) -> String {
        format!("split of {} to {}", self.path, self.name)
    }

    fn plan(&self, job: &Job, _: &Outlook) -> Vec<String> {
        let (name, from, path, new) = (&job.name, job.from, &self.path, &self.name);
        vec![
            format!("get numbers for {new}"),
            format!("make {new} on {from}, empty, and its entry"),
            format!("copy {path} with everything below it to {new}, while clients of {name} wait"),
            format!("put a mount point of {new} in the place of {path}, and remove the copied files"),
        ]
    }

    fn preflight<W: World>(run: &Run<'_, Split, W>, outlook: &mut Outlook) -> Step {
        run.checked_entry(outlook)?;
        run.check_can_split()?;
        let name = &run.request().name;
        run.check_can_number(name)?;
        run.check_can_create(run.job.from, name)?;
        run.check_source(outlook).map(drop)
    }

    /// The server itself locks a volume that it splits against other operations.
    fn lock(&self) -> i32 {
        0
    }

    /// Creates the new volume and its entry.
    fn work<W: World>(run: &mut Run<'_, Split, W>) -> Step {
        let (from, name) = (run.job.from, run.request().name.clone());
        run.check_can_split()?;
        run.check_name_is_free(&name)?;
        let new_volume = run.number_volume()?;
        run.cell.check_is_free(from, new_volume)?;
        let new = run.create_new(from, &name, new_volume, volume_type::READ_WRITE, 0)?;
        run.cell.set_flags(new, 0)?;
        run.end(new)?;
        match run.cell.create_entry(new_entry(&name, new_volume, from)) {
            Err(code) if !run.cell.has_entry(new_volume)? => {
                return Err(failed(format!("register the volume {name}"))(code));
            }
            _ => {}
        }
        run.record(StateEvent::Prepared)
    }

    /// Splits the directory off.
    fn switch<W: World>(run: &mut Run<'_, Split, W>) -> Step {
        let SplitState::Switching { new, requested: was_requested } = run.state() else { return Ok(()) };
        if run.is_split(new)? {
            return run.record(StateEvent::Switched);
        }
        let Split { directory, path, .. } = run.request().clone();
        run.note(format!("splitting {path} off"));
        run.record(StateEvent::SwitchRequested)?;
        let called = run.cell.split_volume(run.job.from.server, run.volume(), new, directory);
        let Err(code) = called else { return run.record(StateEvent::Switched) };
        let error = failed(format!("split {path} off"))(code);
        let is_busy = matches!(code, AbortCode::VOLSERVOLBUSY | AbortCode::VBUSY);
        if error.is_silence() || is_busy {
            return Err(error);
        }
        // A rejected call has done nothing, but an earlier one may have.
        if !(was_requested && run.is_split(new)?) {
            run.apply(StateEvent::SwitchRefused)?;
        }
        run.save()?;
        Err(JobError::Refused(error.to_string()))
    }

    /// Removes the new volume and its entry, unless it already has the directory's contents.
    fn revert<W: World>(run: &mut Run<'_, Split, W>) -> Step {
        run.end_all()?;
        let Some(new) = run.state().new_volume().begun() else { return Ok(()) };
        if run.is_split(new)? {
            return run.record(StateEvent::Switched);
        }
        // The entry first: once the volume is gone, nothing would lead to the entry.
        run.cell.delete_entry(new)?;
        run.remove_new(run.job.from, new)
    }
}

impl<W: World> Run<'_, Split, W> {
    /// Rejects servers that leave an interrupted split incomplete.
    fn check_can_split(&self) -> Step {
        let (from, volume) = (self.job.from, self.volume());
        let server = from.server;
        if self.cell.world.restores_atomically(server) {
            return Ok(());
        }
        // Fails here if the server does not respond.
        self.cell.list_volume(from, volume)?;
        let why =
            format!("{server} is not a Cellar server: an interrupted split would stay incomplete there");
        Err(JobError::Refused(why))
    }

    /// Returns whether the new volume has the directory's contents. While they are copied it cannot be
    /// opened.
    fn is_split(&mut self, new: u32) -> Step<bool> {
        match self.open(self.job.from, new, attach_mode::READ_ONLY) {
            Ok(open) => {
                let status = self.cell.status(open)?;
                self.end(open)?;
                Ok(status.next_unique > FRESH_UNIQUE)
            }
            Err(JobError::Call { code: AbortCode::VNOVOL, .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }
}
