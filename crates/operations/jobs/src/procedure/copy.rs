//! Copies a volume to a new one.

use super::Procedure;
use crate::creation::new_entry;
use crate::engine::Run;
use crate::journal::Fields;
use crate::rpc::{Step, keep_first};
use crate::state::{Creation, State, StateEvent};
use crate::{Job, Outlook, Place, Stage, World};
use afs_idl::vol::{RestoreCookie, attach_mode, volume_type};
use serde::{Deserialize, Serialize};

/// Creates a read-write volume with the same contents.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Copy {
    /// Name of the new volume.
    pub name: String,
    /// Destination.
    pub to: Place,
}

/// State of a copy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum CopyState {
    Beginning,
    /// An attempt is in progress, or what it left is being removed before the next one.
    Working(Volumes),
    /// The new volume is complete, and has no entry yet.
    Switching {
        clone: u32,
        new: u32,
        /// Whether the entry may exist. Then the job can only go forward.
        requested: bool,
    },
    /// The new volume has an entry.
    Cleaning {
        clone: Creation,
        new: u32,
    },
    Undoing(Volumes),
    Done {
        new: u32,
    },
    Failed {
        new: Option<u32>,
    },
}

/// The volumes that an attempt creates.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Volumes {
    clone: Creation,
    new: Creation,
}

impl Volumes {
    fn after(self, event: StateEvent) -> Option<Volumes> {
        match event {
            StateEvent::CloneNumbered(_) | StateEvent::CloneBegun if self.is_gone() => {
                self.clone.after_clone_event(event).map(|clone| Volumes { clone, ..self })
            }
            StateEvent::VolumeNumbered(_) | StateEvent::VolumeRefused => {
                self.new.after_volume_event(event).map(|new| Volumes { new, ..self })
            }
            StateEvent::VolumeBegun if self.clone.begun().is_some() => {
                self.new.after_volume_event(event).map(|new| Volumes { new, ..self })
            }
            event => self.after_removal(event),
        }
    }

    /// Returns the volumes after an event while they can only be removed.
    fn after_removal(self, event: StateEvent) -> Option<Volumes> {
        let clone = self.clone.after_clone_removal(event).map(|clone| Volumes { clone, ..self });
        clone.or_else(|| self.new.after_volume_removal(event).map(|new| Volumes { new, ..self }))
    }

    fn is_gone(self) -> bool {
        self.clone.begun().is_none() && self.new.begun().is_none()
    }
}

impl State for CopyState {
    const START: CopyState = CopyState::Beginning;

    fn stage(self) -> Stage {
        match self {
            CopyState::Beginning => Stage::Beginning,
            CopyState::Working(_) => Stage::Working,
            CopyState::Switching { .. } => Stage::Switching,
            CopyState::Cleaning { .. } => Stage::Cleaning,
            CopyState::Undoing(_) => Stage::Undoing,
            CopyState::Done { .. } => Stage::Done,
            CopyState::Failed { .. } => Stage::Failed,
        }
    }

    fn after(self, event: StateEvent) -> Option<CopyState> {
        use CopyState::{Beginning, Cleaning, Done, Failed, Switching, Undoing, Working};
        match (self, event) {
            (Beginning, StateEvent::Begun) => Some(Working(Volumes::default())),
            (Beginning, StateEvent::GivenUp) => Some(Undoing(Volumes::default())),

            (
                Working(Volumes { clone: Creation::Begun(clone), new: Creation::Begun(new) }),
                StateEvent::Prepared,
            ) => Some(Switching { clone, new, requested: false }),
            (Working(volumes), StateEvent::GivenUp) => Some(Undoing(volumes)),
            (Working(volumes) | Undoing(volumes), StateEvent::Switched) => {
                volumes.new.begun().map(|new| Cleaning { clone: volumes.clone, new })
            }
            (Undoing(volumes), StateEvent::Undone) => {
                volumes.is_gone().then_some(Failed { new: volumes.new.id() })
            }
            (Working(volumes), event) => volumes.after(event).map(Working),
            (Undoing(volumes), event) => volumes.after_removal(event).map(Undoing),

            (Switching { clone, new, .. }, StateEvent::SwitchRequested) => {
                Some(Switching { clone, new, requested: true })
            }
            (Switching { clone, new, .. }, StateEvent::SwitchRefused) => {
                Some(Switching { clone, new, requested: false })
            }
            (Switching { clone, new, .. }, StateEvent::Switched) => {
                Some(Cleaning { clone: Creation::Begun(clone), new })
            }
            (Switching { clone, new, requested: false }, StateEvent::GivenUp) => {
                Some(Undoing(Volumes { clone: Creation::Begun(clone), new: Creation::Begun(new) }))
            }

            (Cleaning { clone, new }, StateEvent::Cleaned) => clone.begun().is_none().then_some(Done { new }),
            (Cleaning { clone, new }, event) => {
                clone.after_clone_removal(event).map(|clone| Cleaning { clone, new })
            }
            _ => None,
        }
    }

    fn decode(fields: Fields) -> Option<CopyState> {
        let (clone, new) = (fields.temporary_clone()?, fields.volume_id());
        let volumes = Volumes { clone, new: fields.volume()? };
        match fields.stage {
            Stage::Beginning => (volumes == Volumes::default()).then_some(CopyState::Beginning),
            Stage::Working if !fields.switch_asked => Some(CopyState::Working(volumes)),
            Stage::Switching => match volumes {
                Volumes { clone: Creation::Begun(clone), new: Creation::Begun(new) } => {
                    Some(CopyState::Switching { clone, new, requested: fields.switch_asked })
                }
                _ => None,
            },
            Stage::Cleaning => new.map(|new| CopyState::Cleaning { clone, new }),
            Stage::Undoing if !fields.switch_asked => Some(CopyState::Undoing(volumes)),
            Stage::Done => new.map(|new| CopyState::Done { new }),
            Stage::Failed => Some(CopyState::Failed { new }),
            Stage::CatchingUp | Stage::Working | Stage::Undoing => None,
        }
    }

    fn encode(self) -> Fields {
        let fields = Fields::of(self.stage());
        match self {
            CopyState::Beginning => fields,
            CopyState::Working(volumes) | CopyState::Undoing(volumes) => {
                fields.with_clone(volumes.clone).with_volume(volumes.new)
            }
            CopyState::Switching { clone, new, requested } => {
                let fields = fields.with_clone(Creation::Begun(clone)).with_volume(Creation::Begun(new));
                Fields { switch_asked: requested, ..fields }
            }
            CopyState::Cleaning { clone, new } => Fields { new_volume: new, ..fields.with_clone(clone) },
            CopyState::Done { new } => Fields { new_volume: new, ..fields },
            CopyState::Failed { new } => Fields { new_volume: new.unwrap_or(0), ..fields },
        }
    }

    fn temporary_clone(self) -> Creation {
        match self {
            CopyState::Working(volumes) | CopyState::Undoing(volumes) => volumes.clone,
            CopyState::Switching { clone, .. } => Creation::Begun(clone),
            CopyState::Cleaning { clone, .. } => clone,
            CopyState::Beginning | CopyState::Done { .. } | CopyState::Failed { .. } => Creation::Unnumbered,
        }
    }

    fn new_volume(self) -> Creation {
        match self {
            CopyState::Beginning => Creation::Unnumbered,
            CopyState::Working(volumes) | CopyState::Undoing(volumes) => volumes.new,
            CopyState::Switching { new, .. } => Creation::Begun(new),
            CopyState::Cleaning { new, .. } | CopyState::Done { new } => Creation::Numbered(new),
            CopyState::Failed { new } => new.map_or(Creation::Unnumbered, Creation::Numbered),
        }
    }
}

impl Procedure for Copy {
    type State = CopyState;

    const VERB: &'static str = "copy";

    fn title(&self, job: &Job) -> String {
        format!("copy of {} to {} on {}", job.name, self.name, self.to)
    }

    fn plan(&self, job: &Job, _: &Outlook) -> Vec<String> {
        let (name, from, new, to) = (&job.name, job.from, &self.name, self.to);
        vec![
            format!("get numbers for {new}"),
            format!("clone {name} on {from}, which stays in use"),
            format!("send the clone to {new} on {to}"),
            format!("make the entry of {new}"),
            format!("remove the clone on {from}"),
        ]
    }

    fn preflight<W: World>(run: &Run<'_, Copy, W>, outlook: &mut Outlook) -> Step {
        run.checked_entry(outlook)?;
        let Copy { name, to } = run.request();
        run.check_can_number(name)?;
        // The id of the new volume is unknown, so only the partition is checked.
        run.cell.list_volume(*to, 0)?;
        let free_kib = run.check_space(*to)?;
        run.check_can_clone(outlook)?;
        run.check_can_create(*to, name)?;
        run.add_partition(outlook, *to, free_kib);
        Ok(())
    }

    fn lock(&self) -> i32 {
        0
    }

    fn work<W: World>(run: &mut Run<'_, Copy, W>) -> Step {
        let Copy { name, to } = run.request().clone();
        run.check_name_is_free(&name)?;
        let new_volume = run.number_volume()?;
        run.cell.check_is_free(to, new_volume)?;
        run.check_space(to)?;
        run.note("cloning");
        let clone = run.make_clone("copy-clone-temp")?;
        let clone = run.open(run.job.from, clone, attach_mode::OFFLINE)?;
        let new = run.create_new(to, &name, new_volume, volume_type::READ_WRITE, new_volume)?;
        let cookie = RestoreCookie {
            name: name.as_str().into(),
            volume_type: volume_type::READ_WRITE,
            clone_id: 0,
            parent_id: new_volume,
        };
        run.note(format!("sending the volume to {}", to.server));
        run.forward(clone, 0, new, &cookie)?;
        run.end(clone)?;
        run.cell.set_flags(new, 0)?;
        run.end(new)?;
        run.record(StateEvent::Prepared)
    }

    /// Registers the new volume in the location database.
    fn switch<W: World>(run: &mut Run<'_, Copy, W>) -> Step {
        let Copy { name, to } = run.request().clone();
        let CopyState::Switching { new, .. } = run.state() else { return Ok(()) };
        run.register(&name, new_entry(&name, new, to))?;
        run.record(StateEvent::Switched)
    }

    /// Removes the new volume, unless it is registered, and the clone.
    fn revert<W: World>(run: &mut Run<'_, Copy, W>) -> Step {
        let mut outcome = run.end_all();
        if let Some(new) = run.state().new_volume().begun() {
            if run.cell.has_entry(new)? {
                return run.record(StateEvent::Switched);
            }
            keep_first(&mut outcome, run.remove_new(run.request().to, new));
        }
        keep_first(&mut outcome, run.remove_clone());
        outcome
    }
}
