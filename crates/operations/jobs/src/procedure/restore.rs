//! Restores a dump file to a new volume.

use super::Procedure;
use crate::creation::new_entry;
use crate::dump::{out_of_service, place_list};
use crate::engine::Run;
use crate::journal::Fields;
use crate::rpc::{Step, keep_first};
use crate::state::{Creation, State, StateEvent};
use crate::{Job, Outlook, PartitionSpace, Place, Stage, World, entry};
use afs_idl::vl::{NVldbEntry, SITES, entry_flags, site_flags};
use serde::{Deserialize, Serialize};

/// Creates a volume from a dump file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Restore {
    /// Absolute path of the file, on the machine that runs the job.
    pub file: String,
    /// Name of the new volume.
    pub name: String,
    /// Destination.
    pub to: Place,
    /// Whether the volume stays out of service. Missing in journals of older versions.
    #[serde(default)]
    pub offline: bool,
    /// Whether it is a read-only volume without a read-write volume. Missing in journals of older versions.
    #[serde(default)]
    pub readonly: bool,
    /// Further sites of the read-only volume. Missing in journals of older versions.
    #[serde(default)]
    pub also: Vec<Place>,
}

/// State of a restore. The ids are those of the read-write volume, which has an id in any case.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum RestoreState {
    Beginning,
    /// An attempt is in progress, or what it left is being removed before the next one.
    Working(Creation),
    /// The new volume is complete, and has no entry yet.
    Switching {
        new: u32,
        /// Whether the entry may exist. Then the job can only go forward.
        requested: bool,
    },
    /// The new volume has an entry, and further sites of it lack the contents.
    CatchingUp {
        new: u32,
    },
    /// The new volume has an entry.
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

impl State for RestoreState {
    const START: RestoreState = RestoreState::Beginning;

    fn stage(self) -> Stage {
        match self {
            RestoreState::Beginning => Stage::Beginning,
            RestoreState::Working(_) => Stage::Working,
            RestoreState::Switching { .. } => Stage::Switching,
            RestoreState::CatchingUp { .. } => Stage::CatchingUp,
            RestoreState::Cleaning { .. } => Stage::Cleaning,
            RestoreState::Undoing(_) => Stage::Undoing,
            RestoreState::Done { .. } => Stage::Done,
            RestoreState::Failed { .. } => Stage::Failed,
        }
    }

    fn after(self, event: StateEvent) -> Option<RestoreState> {
        use RestoreState::{Beginning, CatchingUp, Cleaning, Done, Failed, Switching, Undoing, Working};
        match (self, event) {
            (Beginning, StateEvent::Begun) => Some(Working(Creation::Unnumbered)),
            (Beginning, StateEvent::GivenUp) => Some(Undoing(Creation::Unnumbered)),

            (Working(new), StateEvent::Prepared) => {
                new.begun().map(|new| Switching { new, requested: false })
            }
            (Working(new), StateEvent::GivenUp) => Some(Undoing(new)),
            (Working(new) | Undoing(new), StateEvent::Switched) => new.begun().map(|new| Cleaning { new }),
            (Working(new) | Undoing(new), StateEvent::SitesLeft) => new.begun().map(|new| CatchingUp { new }),
            (Undoing(new), StateEvent::Undone) => new.begun().is_none().then_some(Failed { new: new.id() }),
            (Working(new), event) => new.after_volume_event(event).map(Working),
            (Undoing(new), event) => new.after_volume_removal(event).map(Undoing),

            (Switching { new, .. }, StateEvent::SwitchRequested) => Some(Switching { new, requested: true }),
            (Switching { new, .. }, StateEvent::SwitchRefused) => Some(Switching { new, requested: false }),
            (Switching { new, requested: false }, StateEvent::GivenUp) => Some(Undoing(Creation::Begun(new))),

            (Switching { new, .. } | CatchingUp { new }, StateEvent::SitesLeft) => Some(CatchingUp { new }),
            (Switching { new, .. }, StateEvent::Switched)
            | (CatchingUp { new }, StateEvent::SitesCurrent) => Some(Cleaning { new }),
            (CatchingUp { new }, StateEvent::Abandoned) => Some(Failed { new: Some(new) }),

            (Cleaning { new }, StateEvent::Cleaned) => Some(Done { new }),
            _ => None,
        }
    }

    fn decode(fields: Fields) -> Option<RestoreState> {
        let (volume, new) = (fields.volume()?, fields.volume_id());
        match fields.stage {
            Stage::Beginning => (volume == Creation::Unnumbered).then_some(RestoreState::Beginning),
            Stage::Working if !fields.switch_asked => Some(RestoreState::Working(volume)),
            Stage::Switching => {
                let requested = fields.switch_asked;
                volume.begun().map(|new| RestoreState::Switching { new, requested })
            }
            Stage::CatchingUp => new.map(|new| RestoreState::CatchingUp { new }),
            Stage::Cleaning => new.map(|new| RestoreState::Cleaning { new }),
            Stage::Undoing if !fields.switch_asked => Some(RestoreState::Undoing(volume)),
            Stage::Done => new.map(|new| RestoreState::Done { new }),
            Stage::Failed => Some(RestoreState::Failed { new }),
            Stage::Working | Stage::Undoing => None,
        }
    }

    fn encode(self) -> Fields {
        let fields = Fields::of(self.stage());
        match self {
            RestoreState::Beginning => fields,
            RestoreState::Working(new) | RestoreState::Undoing(new) => fields.with_volume(new),
            RestoreState::Switching { new, requested } => {
                Fields { switch_asked: requested, ..fields.with_volume(Creation::Begun(new)) }
            }
            RestoreState::CatchingUp { new }
            | RestoreState::Cleaning { new }
            | RestoreState::Done { new } => Fields { new_volume: new, ..fields },
            RestoreState::Failed { new } => Fields { new_volume: new.unwrap_or(0), ..fields },
        }
    }

    fn new_volume(self) -> Creation {
        match self {
            RestoreState::Beginning => Creation::Unnumbered,
            RestoreState::Working(new) | RestoreState::Undoing(new) => new,
            RestoreState::Switching { new, .. } => Creation::Begun(new),
            RestoreState::CatchingUp { new }
            | RestoreState::Cleaning { new }
            | RestoreState::Done { new } => Creation::Numbered(new),
            RestoreState::Failed { new } => new.map_or(Creation::Unnumbered, Creation::Numbered),
        }
    }
}

impl Procedure for Restore {
    type State = RestoreState;

    const VERB: &'static str = "restore";
    const SENDS_FILE: bool = true;

    fn title(&self, _: &Job) -> String {
        format!("restore of {} to {} on {}", self.file, self.name, place_list(self.to, &self.also))
    }

    fn plan(&self, _: &Job, _: &Outlook) -> Vec<String> {
        let Restore { file, name: new, to, offline, readonly, also } = self;
        let made = if *readonly { "read-only and out of service" } else { "out of service" };
        let made = format!("make {new} on {to}, {made}, and send {file} to it");
        let mut steps = vec![format!("get numbers for {new}"), made];
        steps.extend((!offline).then(|| format!("take {new} into service")));
        steps.push(format!("make the entry of {new}"));
        if let [second, further @ ..] = &also[..] {
            steps.push(format!("send it from there to {}", place_list(*second, further)));
        }
        steps
    }

    fn preflight<W: World>(run: &Run<'_, Restore, W>, outlook: &mut Outlook) -> Step {
        let Restore { name, to, also, .. } = run.request();
        run.check_can_number(name)?;
        run.cell.list_volume(*to, 0)?;
        run.check_can_create(*to, name)?;
        let free_kib = run.cell.free_kib(*to)?;
        outlook.partitions.push(PartitionSpace { place: *to, free_kib });
        for &place in also {
            match run.check_further_site(place, name) {
                Ok(space) => outlook.partitions.push(space),
                Err(error) => outlook.cautions.push(format!("{place} gets it later: {error}")),
            }
        }
        Ok(())
    }

    /// A new volume is not known to others, unless it is sent to further sites.
    fn lock(&self) -> i32 {
        if self.also.is_empty() { 0 } else { entry_flags::RELEASE }
    }

    /// Checks that the name is free. Takes no lock.
    fn begin<W: World>(run: &mut Run<'_, Restore, W>) -> Step {
        run.check_name_is_free(&run.request().name)?;
        run.note("begun");
        run.record(StateEvent::Begun)
    }

    /// Creates a volume and sends the dump to it. Until the dump is complete, the volume is out of service and
    /// is deleted with its transaction.
    fn work<W: World>(run: &mut Run<'_, Restore, W>) -> Step {
        let Restore { file, name, to, offline, .. } = run.request().clone();
        run.check_name_is_free(&name)?;
        let parent = run.number_volume()?;
        let volume = run.job.restored();
        run.cell.check_is_free(to, volume)?;
        let (full_name, kind) = (run.restored_name(&name), run.restored_kind());
        let new = run.create_new(to, &full_name, volume, kind, parent)?;
        run.send_dump(new, &name, &file, false)?;
        run.cell.set_flags(new, out_of_service(offline))?;
        run.end(new)?;
        run.record(StateEvent::Prepared)
    }

    /// Registers the new volume in the location database.
    fn switch<W: World>(run: &mut Run<'_, Restore, W>) -> Step {
        let RestoreState::Switching { new, .. } = run.state() else { return Ok(()) };
        let Restore { name, to, readonly, also, .. } = run.request().clone();
        let mut entry = new_entry(&name, new, to);
        if readonly {
            make_read_only(&mut entry, &also);
        }
        run.register(&name, entry)?;
        run.record_registered()
    }

    /// Removes the new volume, unless it is registered.
    fn revert<W: World>(run: &mut Run<'_, Restore, W>) -> Step {
        let mut outcome = run.end_all();
        if let Some(new) = run.state().new_volume().begun() {
            if run.cell.has_entry(new)? {
                return run.record_registered();
            }
            keep_first(&mut outcome, run.remove_new(run.request().to, run.job.restored()));
        }
        outcome
    }

    fn is_read_only(&self) -> bool {
        self.readonly
    }

    fn restored(&self, state: RestoreState, _: u32) -> u32 {
        state.new_volume().id().map_or(0, |id| id + u32::from(self.readonly))
    }

    fn created_volume(state: RestoreState) -> Option<u32> {
        Some(state.new_volume().id().unwrap_or(0))
    }
}

impl<W: World> Run<'_, Restore, W> {
    /// Continues after the new volume has been registered. Further sites get their contents from the first
    /// one.
    fn record_registered(&mut self) -> Step {
        let is_last = self.request().also.is_empty();
        self.record(if is_last { StateEvent::Switched } else { StateEvent::SitesLeft })
    }
}

/// Changes the entry to that of a volume without read-write site. Clients use only the first site until the
/// further ones have the contents.
fn make_read_only(entry: &mut NVldbEntry, further: &[Place]) {
    (entry.flags, entry.server_flags[0]) = (entry_flags::READ_ONLY_EXISTS, site_flags::READ_ONLY);
    for (site, place) in (1..SITES).zip(further) {
        entry.server_number[site] = place.server.into();
        entry.server_partition[site] = place.partition;
        entry.server_flags[site] = site_flags::READ_ONLY;
        entry.server_count += 1;
    }
    if !further.is_empty() {
        entry::set_only_new(entry, 0);
    }
}
