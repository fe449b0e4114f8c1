//! Creates the backup volume, or brings it up to date.

use super::Procedure;
use crate::engine::Run;
use crate::journal::Fields;
use crate::rpc::Step;
use crate::state::{Creation, State, StateEvent};
use crate::{Job, Outlook, Stage, World, entry};
use afs_idl::vl::entry_flags;
use afs_idl::vol::{attach_mode, volume_type};

/// Brings the backup volume to the read-write volume's current contents.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Backup;

/// State of a backup.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum BackupState {
    Beginning,
    /// An attempt is in progress; the creation is that of the backup volume, if there was none before.
    Working(Creation),
    /// The entry has the backup volume.
    Cleaning {
        created: Option<u32>,
    },
    Undoing(Creation),
    Done {
        created: Option<u32>,
    },
    Failed {
        created: Option<u32>,
    },
}

impl State for BackupState {
    const START: BackupState = BackupState::Beginning;

    fn stage(self) -> Stage {
        match self {
            BackupState::Beginning => Stage::Beginning,
            BackupState::Working(_) => Stage::Working,
            BackupState::Cleaning { .. } => Stage::Cleaning,
            BackupState::Undoing(_) => Stage::Undoing,
            BackupState::Done { .. } => Stage::Done,
            BackupState::Failed { .. } => Stage::Failed,
        }
    }

    fn after(self, event: StateEvent) -> Option<BackupState> {
        use BackupState::{Beginning, Cleaning, Done, Failed, Undoing, Working};
        match (self, event) {
            (Beginning, StateEvent::Begun) => Some(Working(Creation::Unnumbered)),
            (Beginning, StateEvent::GivenUp) => Some(Undoing(Creation::Unnumbered)),

            (Working(backup) | Undoing(backup), StateEvent::Switched) => {
                Some(Cleaning { created: backup.id() })
            }
            (Working(backup), StateEvent::GivenUp) => Some(Undoing(backup)),
            (Undoing(backup), StateEvent::Undone) => {
                backup.begun().is_none().then_some(Failed { created: backup.id() })
            }
            (Working(backup), event) => backup.after_volume_event(event).map(Working),
            (Undoing(backup), event) => backup.after_volume_removal(event).map(Undoing),

            (Cleaning { created }, StateEvent::Cleaned) => Some(Done { created }),
            _ => None,
        }
    }

    fn decode(fields: Fields) -> Option<BackupState> {
        let (backup, created) = (fields.volume()?, fields.volume_id());
        match fields.stage {
            Stage::Beginning => (backup == Creation::Unnumbered).then_some(BackupState::Beginning),
            Stage::Working => Some(BackupState::Working(backup)),
            Stage::Cleaning => Some(BackupState::Cleaning { created }),
            Stage::Undoing => Some(BackupState::Undoing(backup)),
            Stage::Done => Some(BackupState::Done { created }),
            Stage::Failed => Some(BackupState::Failed { created }),
            Stage::Switching | Stage::CatchingUp => None,
        }
    }

    fn encode(self) -> Fields {
        let fields = Fields::of(self.stage());
        match self {
            BackupState::Beginning => fields,
            BackupState::Working(backup) | BackupState::Undoing(backup) => fields.with_volume(backup),
            BackupState::Cleaning { created }
            | BackupState::Done { created }
            | BackupState::Failed { created } => Fields { new_volume: created.unwrap_or(0), ..fields },
        }
    }

    fn new_volume(self) -> Creation {
        match self {
            BackupState::Beginning => Creation::Unnumbered,
            BackupState::Working(backup) | BackupState::Undoing(backup) => backup,
            BackupState::Cleaning { created }
            | BackupState::Done { created }
            | BackupState::Failed { created } => created.map_or(Creation::Unnumbered, Creation::Numbered),
        }
    }
}

impl Procedure for Backup {
    type State = BackupState;

    const VERB: &'static str = "backup";

    fn title(&self, job: &Job) -> String {
        format!("backup of {}", job.name)
    }

    fn plan(&self, job: &Job, outlook: &Outlook) -> Vec<String> {
        let (name, from) = (&job.name, job.from);
        vec![
            format!("lock the entry of {name} in the location database"),
            match outlook.backup {
                Some(_) => format!("bring {name}.backup on {from} up to date"),
                None => format!("clone {name} on {from} as {name}.backup"),
            },
            "unlock the entry".into(),
        ]
    }

    fn preflight<W: World>(run: &Run<'_, Backup, W>, outlook: &mut Outlook) -> Step {
        let entry = run.checked_entry(outlook)?;
        outlook.backup = run.backup(&entry)?;
        run.check_can_clone(outlook)
    }

    fn lock(&self) -> i32 {
        entry_flags::BACKUP
    }

    fn work<W: World>(run: &mut Run<'_, Backup, W>) -> Step {
        let mut entry = run.locked_entry()?;
        if entry.volume_id[entry::BACKUP] == 0 {
            entry.volume_id[entry::BACKUP] = run.cell.new_ids(1)?;
            run.replace_entry(&entry)?;
        }
        let (from, backup) = (run.job.from, entry.volume_id[entry::BACKUP]);
        let exists = run.cell.list_volume(from, backup)?.is_some();
        let source = run.open(from, run.volume(), attach_mode::BUSY)?;
        if exists {
            run.cell.reclone(source, backup)?;
        } else {
            let name = format!("{}.backup", run.job.name);
            run.apply(StateEvent::VolumeNumbered(backup))?;
            run.record(StateEvent::VolumeBegun)?;
            run.cell.clone_volume(source, &name, volume_type::BACKUP, backup)?;
        }
        run.end(source)?;
        run.put_online(from, backup, attach_mode::OFFLINE)?;
        if entry.flags & entry_flags::BACKUP_EXISTS == 0 {
            entry.flags |= entry_flags::BACKUP_EXISTS;
            run.replace_entry(&entry)?;
        }
        run.record(StateEvent::Switched)
    }

    /// Removes a backup volume that this job created and did not finish.
    fn revert<W: World>(run: &mut Run<'_, Backup, W>) -> Step {
        run.end_all()?;
        if let Some(backup) = run.state().new_volume().begun() {
            let entry = run.locked_entry_if_any()?;
            if entry.is_some_and(|entry| entry.flags & entry_flags::BACKUP_EXISTS != 0) {
                return run.record(StateEvent::Switched);
            }
            run.remove_new(run.job.from, backup)?;
        }
        Ok(())
    }
}
