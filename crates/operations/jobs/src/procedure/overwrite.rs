//! Restores a dump file over a volume.

use super::{Procedure, check_id, check_read_write};
use crate::dump::out_of_service;
use crate::engine::Run;
use crate::journal::Fields;
use crate::rpc::{ENOENT, Step};
use crate::state::{Creation, State, StateEvent};
use crate::transaction::Transaction;
use crate::{Job, JobError, Outlook, Stage, VolumeSummary, World, entry};
use afs_idl::vl::{NVldbEntry, entry_flags};
use afs_idl::vol::{attach_mode, volume_flags};
use base::AbortCode;
use serde::{Deserialize, Serialize};

/// Restores a dump file over a volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Overwrite {
    /// Absolute path of the file, on the machine that runs the job.
    pub file: String,
    /// Whether the dump is incremental: data that it does not contain stays.
    pub changes: bool,
    /// Whether the volume is out of service afterwards.
    pub offline: bool,
    /// Whether it is a read-only volume without a read-write volume; its other sites are restored too. Missing
    /// in journals of older versions.
    #[serde(default)]
    pub readonly: bool,
}

/// State of a restore over a volume. `read_only` is the id of the read-only volume that is overwritten.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum OverwriteState {
    Beginning,
    Working(Target),
    /// The dump was received; the dates and flags of the volume are to be set.
    Switching {
        read_only: Option<u32>,
    },
    /// The further sites of the read-only volume lack the contents.
    CatchingUp {
        read_only: Option<u32>,
    },
    /// The volume is complete.
    Cleaning {
        read_only: Option<u32>,
    },
    Undoing(Target),
    Done {
        read_only: Option<u32>,
    },
    Failed(Target),
}

/// The volume that is overwritten.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Target {
    read_only: Option<u32>,
    /// Whether its contents may have changed.
    may_have_changed: bool,
}

impl Target {
    fn after(self, event: StateEvent) -> Option<Target> {
        match event {
            StateEvent::VolumeNumbered(id) => {
                Some(Target { read_only: Some(id).filter(|&id| id != 0), ..self })
            }
            StateEvent::VolumeBegun => Some(Target { may_have_changed: true, ..self }),
            StateEvent::VolumeRefused => Some(Target { may_have_changed: false, ..self }),
            _ => None,
        }
    }
}

fn changed(read_only: Option<u32>) -> Target {
    Target { read_only, may_have_changed: true }
}

impl OverwriteState {
    fn target(self) -> Target {
        match self {
            OverwriteState::Beginning => Target::default(),
            OverwriteState::Working(target)
            | OverwriteState::Undoing(target)
            | OverwriteState::Failed(target) => target,
            OverwriteState::Switching { read_only }
            | OverwriteState::CatchingUp { read_only }
            | OverwriteState::Cleaning { read_only }
            | OverwriteState::Done { read_only } => changed(read_only),
        }
    }
}

impl State for OverwriteState {
    const START: OverwriteState = OverwriteState::Beginning;

    fn stage(self) -> Stage {
        match self {
            OverwriteState::Beginning => Stage::Beginning,
            OverwriteState::Working(_) => Stage::Working,
            OverwriteState::Switching { .. } => Stage::Switching,
            OverwriteState::CatchingUp { .. } => Stage::CatchingUp,
            OverwriteState::Cleaning { .. } => Stage::Cleaning,
            OverwriteState::Undoing(_) => Stage::Undoing,
            OverwriteState::Done { .. } => Stage::Done,
            OverwriteState::Failed(_) => Stage::Failed,
        }
    }

    fn after(self, event: StateEvent) -> Option<OverwriteState> {
        use OverwriteState::{Beginning, CatchingUp, Cleaning, Done, Failed, Switching, Undoing, Working};
        match (self, event) {
            (Beginning, StateEvent::Begun) => Some(Working(Target::default())),
            (Beginning, StateEvent::GivenUp) => Some(Undoing(Target::default())),

            (Working(Target { read_only, may_have_changed: true }), StateEvent::Prepared) => {
                Some(Switching { read_only })
            }
            (Working(target), StateEvent::GivenUp) => Some(Undoing(target)),
            (Working(target), event) => target.after(event).map(Working),

            (Switching { read_only }, StateEvent::GivenUp) => Some(Undoing(changed(read_only))),

            (Switching { read_only } | CatchingUp { read_only }, StateEvent::SitesLeft) => {
                Some(CatchingUp { read_only })
            }
            (Switching { read_only }, StateEvent::Switched)
            | (CatchingUp { read_only }, StateEvent::SitesCurrent) => Some(Cleaning { read_only }),
            (CatchingUp { read_only }, StateEvent::Abandoned) => Some(Failed(changed(read_only))),

            (Undoing(target), StateEvent::Undone) => Some(Failed(target)),
            (Cleaning { read_only }, StateEvent::Cleaned) => Some(Done { read_only }),
            _ => None,
        }
    }

    fn decode(fields: Fields) -> Option<OverwriteState> {
        let read_only = fields.volume_id();
        let target = Target { read_only, may_have_changed: fields.new_begun };
        match fields.stage {
            Stage::Beginning => (target == Target::default()).then_some(OverwriteState::Beginning),
            Stage::Working => Some(OverwriteState::Working(target)),
            Stage::Switching => target.may_have_changed.then_some(OverwriteState::Switching { read_only }),
            Stage::CatchingUp => Some(OverwriteState::CatchingUp { read_only }),
            Stage::Cleaning => Some(OverwriteState::Cleaning { read_only }),
            Stage::Undoing => Some(OverwriteState::Undoing(target)),
            Stage::Done => Some(OverwriteState::Done { read_only }),
            Stage::Failed => Some(OverwriteState::Failed(target)),
        }
    }

    fn encode(self) -> Fields {
        let Target { read_only, may_have_changed } = self.target();
        let new_volume = read_only.unwrap_or(0);
        Fields { new_volume, new_begun: may_have_changed, ..Fields::of(self.stage()) }
    }

    fn new_volume(self) -> Creation {
        self.target().read_only.map_or(Creation::Unnumbered, Creation::Numbered)
    }
}

impl Procedure for Overwrite {
    type State = OverwriteState;

    const VERB: &'static str = "restore";
    const SENDS_FILE: bool = true;

    fn title(&self, job: &Job) -> String {
        format!("restore of {} over {} on {}", self.file, job.name, job.from)
    }

    fn plan(&self, job: &Job, _: &Outlook) -> Vec<String> {
        let (name, from, file) = (&job.name, job.from, &self.file);
        let service = if self.offline { "out of" } else { "into" };
        vec![
            format!("lock the entry of {name} in the location database"),
            if self.changes {
                format!("apply the changes in {file} to {name} on {from}, while its clients wait")
            } else {
                format!("replace what {name} on {from} has by {file}, while its clients wait")
            },
            format!("take {name} {service} service, and unlock the entry"),
        ]
    }

    fn preflight<W: World>(run: &Run<'_, Overwrite, W>, outlook: &mut Outlook) -> Step {
        let entry = run.checked_entry(outlook)?;
        let readonly = run.request().readonly;
        let kind = if readonly { entry::READ_ONLY } else { entry::READ_WRITE };
        let info = run.check_can_open(outlook, run.job.from, entry.volume_id[kind])?;
        outlook.source = info.as_ref().map(VolumeSummary::from);
        if !readonly {
            return Ok(());
        }
        for site in entry::read_only_sites(&entry) {
            let place = entry::place(&entry, site);
            if place == run.job.from {
                continue;
            }
            if let Err(error) = run.check_further_site(place, &run.job.name) {
                outlook.cautions.push(format!("{place} gets it later: {error}"));
            }
        }
        Ok(())
    }

    /// OpenAFS uses this flag for restores too.
    fn lock(&self) -> i32 {
        entry_flags::DUMP
    }

    fn check(&self, job: &Job, entry: &NVldbEntry) -> Step {
        if !self.readonly {
            return check_read_write(job, entry);
        }
        check_id(job, entry)?;
        match entry::only_read_only_site(entry, job.from) {
            Some(_) => Ok(()),
            None => Err(JobError::Refused(format!("{} is not only read-only on {}", job.name, job.from))),
        }
    }

    /// Restores the dump. If restores on the server are atomic, the volume is unchanged until the end. Otherwise
    /// it is overwritten from the first byte on, so it is out of service until it is complete.
    fn work<W: World>(run: &mut Run<'_, Overwrite, W>) -> Step {
        let Overwrite { file, changes, readonly, .. } = run.request().clone();
        let entry = run.locked_entry()?;
        if readonly {
            // Other programs give it an id that does not follow the read-write one.
            run.apply(StateEvent::VolumeNumbered(entry.volume_id[entry::READ_ONLY]))?;
        }
        let (from, name) = (run.job.from, run.job.name.clone());
        let open = run.open(from, run.job.restored(), attach_mode::OFFLINE)?;
        let is_at_once = run.cell.world.restores_atomically(from.server);
        let was_changed = run.state().target().may_have_changed;
        run.record(StateEvent::VolumeBegun)?;
        if !is_at_once {
            run.cell.set_flags(open, volume_flags::OUT_OF_SERVICE)?;
        }
        let sent = run.send_dump(open, &name, &file, changes);
        // A server that restarted during the call does not know the transaction, but may have executed the
        // call before.
        let is_unknown =
            |error: &JobError| error.is_silence() || matches!(error, JobError::Call { code: ENOENT, .. });
        if is_at_once && !was_changed && sent.as_ref().is_err_and(|error| !is_unknown(error)) {
            run.apply(StateEvent::VolumeRefused)?;
        }
        sent?;
        run.record(StateEvent::Prepared)?;
        run.complete(open)
    }

    /// Continues `work` after an interruption.
    fn switch<W: World>(run: &mut Run<'_, Overwrite, W>) -> Step {
        run.end_all()?;
        let open = run.open(run.job.from, run.job.restored(), attach_mode::OFFLINE);
        let open = open.map_err(|error| match error {
            JobError::Call { code: AbortCode::VNOVOL, .. } => {
                JobError::Refused(format!("{} was removed meanwhile", run.job.name))
            }
            error => error,
        })?;
        run.complete(open)
    }

    fn revert<W: World>(run: &mut Run<'_, Overwrite, W>) -> Step {
        run.end_all()
    }

    fn is_read_only(&self) -> bool {
        self.readonly
    }

    fn restored(&self, state: OverwriteState, source: u32) -> u32 {
        if self.readonly { state.target().read_only.unwrap_or(0) } else { source }
    }

    fn may_have_overwritten(state: OverwriteState) -> bool {
        state.target().may_have_changed
    }
}

impl<W: World> Run<'_, Overwrite, W> {
    /// Sets the creation date, which shows caches and read-only sites that the contents have changed, and the
    /// final flags. The date is from the server's clock, because it is compared with other dates of that
    /// server.
    fn complete(&mut self, open: Transaction) -> Step {
        let Overwrite { offline, readonly, .. } = *self.request();
        let made = self.cell.time_at(open)?.max(self.cell.world.now().0);
        self.cell.set_date(open, made)?;
        if !readonly {
            let entry = self.locked_entry()?;
            self.cell.set_family(open, &self.job.name, self.volume(), &entry)?;
        }
        self.cell.set_flags(open, out_of_service(offline))?;
        self.end(open)?;
        if !readonly {
            return self.record(StateEvent::Switched);
        }
        let mut entry = self.locked_entry()?;
        match entry::only_read_only_site(&entry, self.job.from) {
            Some(site) if entry::read_only_sites(&entry).len() > 1 => {
                entry::set_only_new(&mut entry, site);
                self.replace_entry(&entry)?;
                self.record(StateEvent::SitesLeft)
            }
            _ => self.record(StateEvent::Switched),
        }
    }
}
