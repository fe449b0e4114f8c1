//! Moves a read-write volume.

use super::{Procedure, check_read_write};
use crate::engine::Run;
use crate::journal::Fields;
use crate::rpc::{Step, keep_first};
use crate::sites::CLOCK_SLACK_SECONDS;
use crate::state::{Creation, State, StateEvent};
use crate::transaction::Transaction;
use crate::{Job, JobError, Outlook, Place, Stage, World, entry};
use afs_idl::vl::{NVldbEntry, entry_flags};
use afs_idl::vol::{RestoreCookie, attach_mode, volume_flags, volume_type};
use serde::{Deserialize, Serialize};

/// Moves a read-write volume to another site.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Move {
    /// Destination.
    pub to: Place,
}

/// State of a move.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum MoveState {
    Beginning,
    /// An attempt is in progress, or what it left is being removed before the next one.
    Working(Leftovers),
    /// The clone and the destination exist, and the source is out of service.
    Switching {
        clone: u32,
        /// Whether the entry may point to the destination. Then the job can only go forward.
        requested: bool,
    },
    /// The entry points to the destination.
    Cleaning {
        clone: Creation,
        source_removed: bool,
    },
    Undoing(Leftovers),
    Done,
    Failed,
}

/// What an attempt has, or may have, left. Undoing removes it in any order, on the servers that respond.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Leftovers {
    clone: Creation,
    /// Whether the volume at the destination may exist.
    destination: bool,
    /// Whether the source may be out of service.
    source_off: bool,
}

impl Leftovers {
    fn is_empty(self) -> bool {
        self.clone.begun().is_none() && !self.destination && !self.source_off
    }

    fn after(self, event: StateEvent) -> Option<Leftovers> {
        match event {
            StateEvent::VolumeBegun if self.clone.begun().is_some() && !self.destination => {
                Some(Leftovers { destination: true, ..self })
            }
            StateEvent::VolumeRefused if self.destination => Some(Leftovers { destination: false, ..self }),
            StateEvent::SourceStopped if self.destination && !self.source_off => {
                Some(Leftovers { source_off: true, ..self })
            }
            StateEvent::CloneNumbered(_) | StateEvent::CloneBegun if self.is_empty() => {
                self.clone.after_clone_event(event).map(|clone| Leftovers { clone, ..self })
            }
            event => self.after_removal(event),
        }
    }

    /// Returns the leftovers after an event while they can only be removed.
    fn after_removal(self, event: StateEvent) -> Option<Leftovers> {
        match event {
            StateEvent::VolumeRemoved if self.destination => Some(Leftovers { destination: false, ..self }),
            StateEvent::SourceRestored if self.source_off => Some(Leftovers { source_off: false, ..self }),
            event => self.clone.after_clone_removal(event).map(|clone| Leftovers { clone, ..self }),
        }
    }
}

impl State for MoveState {
    const START: MoveState = MoveState::Beginning;

    fn stage(self) -> Stage {
        match self {
            MoveState::Beginning => Stage::Beginning,
            MoveState::Working(_) => Stage::Working,
            MoveState::Switching { .. } => Stage::Switching,
            MoveState::Cleaning { .. } => Stage::Cleaning,
            MoveState::Undoing(_) => Stage::Undoing,
            MoveState::Done => Stage::Done,
            MoveState::Failed => Stage::Failed,
        }
    }

    fn after(self, event: StateEvent) -> Option<MoveState> {
        use MoveState::{Beginning, Cleaning, Done, Failed, Switching, Undoing, Working};
        match (self, event) {
            (Beginning, StateEvent::Begun) => Some(Working(Leftovers::default())),
            (Beginning, StateEvent::GivenUp) => Some(Undoing(Leftovers::default())),

            (
                Working(Leftovers { clone: Creation::Begun(clone), destination: true, source_off: true }),
                StateEvent::Prepared,
            ) => Some(Switching { clone, requested: false }),
            (Working(left), StateEvent::GivenUp) => Some(Undoing(left)),
            (Working(left) | Undoing(left), StateEvent::Switched) if !left.is_empty() => {
                Some(Cleaning { clone: left.clone, source_removed: false })
            }
            (Undoing(left), StateEvent::Undone) => left.is_empty().then_some(Failed),
            (Working(left), event) => left.after(event).map(Working),
            (Undoing(left), event) => left.after_removal(event).map(Undoing),

            (Switching { clone, .. }, StateEvent::SwitchRequested) => {
                Some(Switching { clone, requested: true })
            }
            (Switching { clone, .. }, StateEvent::SwitchRefused) => {
                Some(Switching { clone, requested: false })
            }
            (Switching { clone, .. }, StateEvent::Switched) => {
                Some(Cleaning { clone: Creation::Begun(clone), source_removed: false })
            }
            (Switching { clone, requested: false }, StateEvent::SwitchPostponed) => {
                Some(Working(complete(clone)))
            }
            (Switching { clone, requested: false }, StateEvent::GivenUp) => Some(Undoing(complete(clone))),

            (Cleaning { clone, .. }, StateEvent::SourceRemoved) => {
                Some(Cleaning { clone, source_removed: true })
            }
            (Cleaning { clone, source_removed: true }, StateEvent::Cleaned) => {
                clone.begun().is_none().then_some(Done)
            }
            (Cleaning { clone, source_removed }, event) => {
                clone.after_clone_removal(event).map(|clone| Cleaning { clone, source_removed })
            }
            _ => None,
        }
    }

    fn decode(fields: Fields) -> Option<MoveState> {
        let left = Leftovers {
            clone: fields.temporary_clone()?,
            destination: fields.new_begun,
            source_off: fields.source_off,
        };
        if fields.switch_asked && matches!(fields.stage, Stage::Working | Stage::Undoing) {
            return None;
        }
        match fields.stage {
            Stage::Beginning => (left == Leftovers::default()).then_some(MoveState::Beginning),
            Stage::Working => Some(MoveState::Working(left)),
            Stage::Switching => match left {
                Leftovers { clone: Creation::Begun(clone), destination: true, source_off: true } => {
                    Some(MoveState::Switching { clone, requested: fields.switch_asked })
                }
                _ => None,
            },
            Stage::Cleaning => {
                Some(MoveState::Cleaning { clone: left.clone, source_removed: fields.source_gone })
            }
            Stage::Undoing => Some(MoveState::Undoing(left)),
            Stage::Done => Some(MoveState::Done),
            Stage::Failed => Some(MoveState::Failed),
            Stage::CatchingUp => None,
        }
    }

    fn encode(self) -> Fields {
        let fields = Fields::of(self.stage());
        let switched = Fields { new_begun: true, source_off: true, switch_asked: true, ..fields };
        match self {
            MoveState::Beginning | MoveState::Failed => fields,
            MoveState::Working(left) | MoveState::Undoing(left) => {
                let (new_begun, source_off) = (left.destination, left.source_off);
                Fields { new_begun, source_off, ..fields.with_clone(left.clone) }
            }
            MoveState::Switching { clone, requested } => {
                Fields { switch_asked: requested, ..switched.with_clone(Creation::Begun(clone)) }
            }
            MoveState::Cleaning { clone, source_removed } => {
                Fields { source_gone: source_removed, ..switched.with_clone(clone) }
            }
            MoveState::Done => Fields { source_gone: true, ..switched },
        }
    }

    fn temporary_clone(self) -> Creation {
        match self {
            MoveState::Working(left) | MoveState::Undoing(left) => left.clone,
            MoveState::Switching { clone, .. } => Creation::Begun(clone),
            MoveState::Cleaning { clone, .. } => clone,
            MoveState::Beginning | MoveState::Done | MoveState::Failed => Creation::Unnumbered,
        }
    }
}

/// Returns the leftovers of an attempt that is prepared for the switch.
fn complete(clone: u32) -> Leftovers {
    Leftovers { clone: Creation::Begun(clone), destination: true, source_off: true }
}

impl Procedure for Move {
    type State = MoveState;

    const VERB: &'static str = "move";

    fn title(&self, job: &Job) -> String {
        format!("move of {} from {} to {}", job.name, job.from, self.to)
    }

    fn plan(&self, job: &Job, outlook: &Outlook) -> Vec<String> {
        let (name, from, to) = (&job.name, job.from, self.to);
        vec![
            format!("lock the entry of {name} in the location database"),
            format!("clone {name} on {from}, which stays in use"),
            format!("send the clone to a new volume on {to}"),
            format!("send what changed meanwhile, while clients of {name} wait"),
            if from.server == to.server {
                format!("take {name} on {from} out of service")
            } else {
                format!("take {name} on {from} out of service, and into service on {to}")
            },
            if from.server == to.server {
                format!("let the entry point to {to}, and take {name} into service there")
            } else {
                format!("let the entry point to {to}")
            },
            match outlook.backup {
                Some(_) => format!("remove {name}, its backup and the clone on {from}, and unlock the entry"),
                None => format!("remove {name} and the clone on {from}, and unlock the entry"),
            },
        ]
    }

    fn preflight<W: World>(run: &Run<'_, Move, W>, outlook: &mut Outlook) -> Step {
        let (entry, to) = (run.checked_entry(outlook)?, run.request().to);
        run.cell.check_is_free(to, run.volume())?;
        let free_kib = run.check_space(to)?;
        run.check_can_clone(outlook)?;
        run.check_can_create(to, &run.job.name)?;
        run.add_partition(outlook, to, free_kib);
        outlook.backup = run.backup(&entry)?;
        Ok(())
    }

    fn lock(&self) -> i32 {
        entry_flags::MOVE
    }

    fn check(&self, job: &Job, entry: &NVldbEntry) -> Step {
        check_read_write(job, entry)?;
        if self.to == job.from {
            return Err(JobError::Refused(format!("{} is on {} already", job.name, self.to)));
        }
        Ok(())
    }

    /// Sends a clone while the volume is in use, then the changes made meanwhile, while clients wait.
    fn work<W: World>(run: &mut Run<'_, Move, W>) -> Step {
        let (volume, from, to) = (run.volume(), run.job.from, run.request().to);
        run.cell.check_is_free(to, volume)?;
        run.check_space(to)?;
        run.note("cloning");
        let clone = run.make_clone("move-clone-temp")?;
        let clone = run.open(from, clone, attach_mode::OFFLINE)?;
        let from_date = run.cell.status(clone)?.creation_date.saturating_sub(CLOCK_SLACK_SECONDS);
        let name = run.job.name.clone();
        let new = run.create_new(to, &name, volume, volume_type::READ_WRITE, volume)?;
        let cookie = RestoreCookie {
            name: name.as_str().into(),
            volume_type: volume_type::READ_WRITE,
            clone_id: 0,
            parent_id: volume,
        };
        run.note(format!("sending the volume to {}", to.server));
        run.forward(clone, 0, new, &cookie)?;
        run.end(clone)?;
        run.check_control()?;
        run.note("sending what changed meanwhile");
        let source = run.open(from, volume, attach_mode::BUSY)?;
        run.forward(source, from_date, new, &cookie)?;
        let entry = run.locked_entry()?;
        run.cell.set_family(new, &name, volume, &entry)?;
        run.record(StateEvent::SourceStopped)?;
        run.cell.set_flags(source, volume_flags::OUT_OF_SERVICE)?;
        // Clients of the same server would find the new volume immediately, and their writes would be lost if
        // the job were undone. So it goes into service when the job can no longer be undone, see `clean`.
        run.cell.set_flags(new, if run.is_within_server() { volume_flags::OUT_OF_SERVICE } else { 0 })?;
        run.end(new)?;
        // The transaction still exists, so no client can have written to the source after the changes were
        // sent.
        run.cell.status(source)?;
        run.record(StateEvent::Prepared)
    }

    /// Changes the entry to the destination. Once the change was requested, the job can only go forward.
    fn switch<W: World>(run: &mut Run<'_, Move, W>) -> Step {
        let (from, to) = (run.job.from, run.request().to);
        let was_requested = matches!(run.state(), MoveState::Switching { requested: true, .. });
        let entry = match run.locked_entry() {
            Ok(entry) => entry,
            Err(error) if was_requested => return Err(error),
            Err(error) => return run.postpone(&error),
        };
        let place = entry::read_write_place(&entry);
        if place == Some(to) {
            return run.record(StateEvent::Switched);
        }
        if place != Some(from) {
            return Err(JobError::Refused(format!("another program changed the entry of {}", run.job.name)));
        }
        if !was_requested && !run.has_source_open() {
            return run.postpone(&JobError::Refused("the old server was restarted".into()));
        }
        run.note("changing the location database");
        run.record(StateEvent::SwitchRequested)?;
        match run.replace_entry(&moved(entry, from, to)) {
            Ok(()) => run.record(StateEvent::Switched),
            Err(error) => {
                // A rejected first request has changed nothing.
                if !was_requested && !error.is_silence() {
                    run.apply(StateEvent::SwitchRefused)?;
                }
                run.save()?;
                Err(error)
            }
        }
    }

    /// Removes the volume, its backup and the clone at the source.
    fn clean<W: World>(run: &mut Run<'_, Move, W>) -> Step {
        if let MoveState::Cleaning { source_removed: false, .. } = run.state() {
            run.clear_source()?;
        }
        run.end_all()?;
        run.remove_clone()
    }

    /// Undoes an attempt, on all servers that respond, or detects that it succeeded after all.
    fn revert<W: World>(run: &mut Run<'_, Move, W>) -> Step {
        let (MoveState::Working(left) | MoveState::Undoing(left)) = run.state() else { return run.end_all() };
        if left.is_empty() {
            return run.end_all();
        }
        let (volume, to) = (run.volume(), run.request().to);
        let entry = run.locked_entry_if_any()?;
        let place = entry.as_ref().and_then(entry::read_write_place);
        if place == Some(to) {
            return run.record(StateEvent::Switched);
        }
        let mut outcome = run.end_all();
        if left.destination && run.is_within_server() {
            // A server may have only one volume with this id in service.
            keep_first(&mut outcome, run.remove_new(to, volume));
        }
        if left.source_off {
            keep_first(&mut outcome, run.restore_source());
        }
        if left.destination && !run.is_within_server() {
            keep_first(&mut outcome, run.remove_new(to, volume));
        }
        keep_first(&mut outcome, run.remove_clone());
        outcome
    }
}

impl<W: World> Run<'_, Move, W> {
    fn postpone(&mut self, error: &JobError) -> Step {
        self.note(error.to_string());
        self.record(StateEvent::SwitchPostponed)
    }

    /// Returns whether the transaction in which the last changes were sent is still open.
    fn has_source_open(&self) -> bool {
        self.open_on_source().is_some_and(|open| self.cell.status(open).is_ok())
    }

    fn open_on_source(&self) -> Option<Transaction> {
        let (from, volume) = (self.job.from, self.volume());
        self.job.transactions.iter().copied().find(|open| open.is_on(from, volume))
    }

    /// Returns whether the volume stays on its server.
    fn is_within_server(&self) -> bool {
        self.job.from.server == self.request().to.server
    }

    /// Removes the volume and its backup at the source, unless the entry points there.
    fn clear_source(&mut self) -> Step {
        let (volume, from, to) = (self.volume(), self.job.from, self.request().to);
        let entry = self.locked_entry_if_any()?;
        if entry.as_ref().and_then(entry::read_write_place) == Some(from) {
            return Err(JobError::Refused(format!(
                "the entry of {} points to {from} again; nothing is removed there",
                self.job.name
            )));
        }
        if self.is_within_server() {
            self.put_online(to, volume, attach_mode::BUSY)?;
        }
        self.remove_source()?;
        let backup = entry.map_or(0, |entry| entry.volume_id[entry::BACKUP]);
        if backup != 0 {
            self.delete(from, backup, None)?;
        }
        self.record(StateEvent::SourceRemoved)
    }

    fn remove_source(&mut self) -> Step {
        let (from, volume) = (self.job.from, self.volume());
        let moved_to = (!self.is_within_server()).then_some(self.request().to.server);
        if let Some(open) = self.open_on_source()
            && self.cell.status(open).is_ok()
        {
            return self.delete_open(open, moved_to);
        }
        self.end_all()?;
        self.delete(from, volume, moved_to)
    }

    fn restore_source(&mut self) -> Step {
        self.put_online(self.job.from, self.volume(), attach_mode::BUSY)?;
        self.record(StateEvent::SourceRestored)
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
