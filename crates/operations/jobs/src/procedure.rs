//! Procedures: how each operation is carried out. Each is one file with its request, its durable state and its
//! steps, and one line in the register below.
//!
//! ```text
//!    Beginning --> Working <--> Switching --> Cleaning --> Done
//!        |            |             |            ^
//!        |            |             +--> CatchingUp --> Failed
//!        +------------+--> Undoing --> Failed
//! ```
//!
//! Which of these transitions a procedure makes, and what each of its states holds, is in its
//! [`State`](crate::state::State); the test `state_table` lists all of them in `tests/states.txt`.

mod backup;
mod copy;
mod r#move;
mod overwrite;
mod release;
mod restore;
mod split;

pub(crate) use backup::Backup;
pub use copy::Copy;
pub use r#move::Move;
pub use overwrite::Overwrite;
pub use release::Release;
pub use restore::Restore;
pub use split::Split;

use crate::engine::{End, Run};
use crate::journal::Fields;
use crate::rpc::Step;
use crate::state::{State, StateEvent};
use crate::{Job, JobError, Outlook, Stage, World, entry};
use afs_idl::vl::NVldbEntry;
use serde::{Deserialize, Serialize};
use std::fmt::Debug;

/// An operation: its parameters, its durable state, and its steps. A step may be interrupted and repeated at
/// any point.
///
/// The engine calls `begin` once; then, until one succeeds, `revert` and `work` for each attempt; `switch` until
/// the location database has been changed; and `clean`. If the work cannot be completed it calls `undo`. Each
/// step records the [`StateEvent`] that leads to the next stage.
pub(crate) trait Procedure: Registered + Clone + Debug + PartialEq {
    /// Durable state.
    type State: State;

    /// One-word description.
    const VERB: &'static str;
    /// Whether the contents come from a file, which does not change when the work is repeated.
    const SENDS_FILE: bool = false;

    /// Describes the job, like `release of projects`.
    fn title(&self, job: &Job) -> String;

    /// Returns the steps of the job in order, for display.
    fn plan(&self, job: &Job, outlook: &Outlook) -> Vec<String>;

    /// Determines what would become of the job, and changes nothing.
    fn preflight<W: World>(run: &Run<'_, Self, W>, outlook: &mut Outlook) -> Step;

    /// Returns the lock on the entry that the operation needs; 0 if it needs none.
    fn lock(&self) -> i32;

    /// Rejects a volume whose entry does not permit the operation.
    fn check(&self, job: &Job, entry: &NVldbEntry) -> Step {
        check_read_write(job, entry)
    }

    /// Checks whether the operation is permitted, and takes the lock.
    fn begin<W: World>(run: &mut Run<'_, Self, W>) -> Step {
        run.check_entry(&run.entry()?)?;
        // The entry may have changed until it was locked.
        let entry = run.locked_entry()?;
        run.check_entry(&entry)?;
        run.note("begun");
        run.record(StateEvent::Begun)
    }

    /// Makes one attempt.
    fn work<W: World>(run: &mut Run<'_, Self, W>) -> Step;

    /// Makes the change that other clients see, and that cannot be undone.
    fn switch<W: World>(run: &mut Run<'_, Self, W>) -> Step {
        run.record(StateEvent::Switched)
    }

    /// Removes what the job has left after the switch. If that fails, it is called again.
    fn clean<W: World>(run: &mut Run<'_, Self, W>) -> Step {
        Self::revert(run)
    }

    /// Removes what an attempt has left. If that fails, it is called again. May detect that the attempt has
    /// succeeded, and then changes the stage.
    fn revert<W: World>(run: &mut Run<'_, Self, W>) -> Step;

    /// Removes what the last attempt has left. May change the stage, like `revert`.
    fn undo<W: World>(run: &mut Run<'_, Self, W>) -> Step {
        Self::revert(run)
    }

    /// Returns whether a read-only volume without a read-write volume is restored.
    fn is_read_only(&self) -> bool {
        false
    }

    /// Returns the id of the restored volume; 0 if it has none yet.
    fn restored(&self, state: Self::State, source: u32) -> u32 {
        let _ = source;
        state.new_volume().id().unwrap_or(0)
    }

    /// Returns the id of the read-write volume, or 0 if it has none yet, if the job creates it.
    fn created_volume(state: Self::State) -> Option<u32> {
        let _ = state;
        None
    }

    /// Returns whether an existing volume may have been overwritten.
    fn may_have_overwritten(state: Self::State) -> bool {
        let _ = state;
        false
    }
}

/// A procedure in progress.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Execution<P: Procedure> {
    pub(crate) request: P,
    pub(crate) state: P::State,
}

impl<P: Procedure> Eq for Execution<P> {}

/// Ties a procedure to its variants of the enums that cover all procedures.
pub(crate) trait Registered: Sized {
    /// Returns the operation with these parameters.
    fn operation(self) -> Operation;
    /// Returns an execution as one of any procedure.
    fn wrap(execution: Execution<Self>) -> AnyExecution
    where
        Self: Procedure;
}

/// What all executions can be asked without a [`World`].
pub(crate) trait Facts {
    fn operation(&self) -> Operation;
    fn verb(&self) -> &'static str;
    fn stage(&self) -> Stage;
    fn fields(&self) -> Fields;
    fn title(&self, job: &Job) -> String;
    fn is_read_only(&self) -> bool;
    fn restored(&self, source: u32) -> u32;
    fn created_volume(&self) -> Option<u32>;
    fn may_have_overwritten(&self) -> bool;
}

impl<P: Procedure> Facts for Execution<P> {
    fn operation(&self) -> Operation {
        self.request.clone().operation()
    }

    fn verb(&self) -> &'static str {
        P::VERB
    }

    fn stage(&self) -> Stage {
        self.state.stage()
    }

    fn fields(&self) -> Fields {
        self.state.encode()
    }

    fn title(&self, job: &Job) -> String {
        self.request.title(job)
    }

    fn is_read_only(&self) -> bool {
        self.request.is_read_only()
    }

    fn restored(&self, source: u32) -> u32 {
        self.request.restored(self.state, source)
    }

    fn created_volume(&self) -> Option<u32> {
        P::created_volume(self.state)
    }

    fn may_have_overwritten(&self) -> bool {
        P::may_have_overwritten(self.state)
    }
}

impl<P: Procedure> Execution<P> {
    /// Returns the execution with these fields of the journal.
    fn decode(request: P, fields: Fields) -> Result<Execution<P>, String> {
        let state = P::State::decode(fields).ok_or_else(|| {
            format!(
                "no {} at this stage has these fields, which must agree with each other: {fields:?}",
                P::VERB
            )
        })?;
        Ok(Execution { request, state })
    }
}

/// Registers all procedures: those whose request has parameters, and those without.
macro_rules! register {
    (
        parameters { $($(#[$docs:meta])* $name:ident,)* }
        none { $($(#[$plain_docs:meta])* $plain:ident,)* }
    ) => {
        /// A requested operation.
        #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum Operation {
            $($(#[$docs])* $name($name),)*
            $($(#[$plain_docs])* $plain,)*
        }

        /// A procedure in progress, of any kind.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub(crate) enum AnyExecution {
            $($name(Execution<$name>),)*
            $($plain(Execution<$plain>),)*
        }

        impl AnyExecution {
            /// Returns the execution of an operation that has not started.
            pub(crate) fn start(operation: Operation) -> AnyExecution {
                match operation {
                    $(Operation::$name(request) => $name::wrap(Execution { request, state: State::START }),)*
                    $(Operation::$plain => {
                        $plain::wrap(Execution { request: $plain, state: State::START })
                    })*
                }
            }

            /// Returns the execution of an operation with these fields of the journal.
            ///
            /// # Errors
            /// No state has these fields.
            pub(crate) fn decode(operation: Operation, fields: Fields) -> Result<AnyExecution, String> {
                match operation {
                    $(Operation::$name(request) => Execution::decode(request, fields).map($name::wrap),)*
                    $(Operation::$plain => Execution::decode($plain, fields).map($plain::wrap),)*
                }
            }

            pub(crate) fn facts(&self) -> &dyn Facts {
                match self {
                    $(AnyExecution::$name(execution) => execution,)*
                    $(AnyExecution::$plain(execution) => execution,)*
                }
            }

            pub(crate) fn run<W: World>(self, job: &mut Job, world: &W) -> End {
                match self {
                    $(AnyExecution::$name(execution) => Run::new(job, execution, world).run(),)*
                    $(AnyExecution::$plain(execution) => Run::new(job, execution, world).run(),)*
                }
            }

            pub(crate) fn preflight<W: World>(self, job: &mut Job, world: &W) -> Result<Outlook, JobError> {
                match self {
                    $(AnyExecution::$name(execution) => Run::new(job, execution, world).preflight(),)*
                    $(AnyExecution::$plain(execution) => Run::new(job, execution, world).preflight(),)*
                }
            }
        }

        $(impl Registered for $name {
            fn operation(self) -> Operation {
                Operation::$name(self)
            }

            fn wrap(execution: Execution<$name>) -> AnyExecution {
                AnyExecution::$name(execution)
            }
        })*

        $(impl Registered for $plain {
            fn operation(self) -> Operation {
                Operation::$plain
            }

            fn wrap(execution: Execution<$plain>) -> AnyExecution {
                AnyExecution::$plain(execution)
            }
        })*

        /// Returns the table of all transitions of each procedure.
        #[cfg(test)]
        pub(crate) fn state_tables() -> Vec<String> {
            vec![
                $(crate::tests::states::table::<<$name as Procedure>::State>(stringify!($name)),)*
                $(crate::tests::states::table::<<$plain as Procedure>::State>(stringify!($plain)),)*
            ]
        }
    };
}

register! {
    parameters {
        /// Move the read-write volume to another site.
        Move,
        /// Create a read-write volume with the same contents.
        Copy,
        /// Bring the read-only copies to the read-write volume's contents.
        Release,
        /// Create a volume from a dump file.
        Restore,
        /// Restore a dump file over a volume.
        Overwrite,
        /// Turn a directory into a separate volume, next to the volume that contains it.
        Split,
    }
    none {
        /// Bring the backup volume to the read-write volume's current contents.
        Backup,
    }
}

/// Rejects an entry unless the volume of the job is its read-write volume, and on the job's site.
pub(crate) fn check_read_write(job: &Job, entry: &NVldbEntry) -> Step {
    check_id(job, entry)?;
    if entry::read_write_place(entry) == Some(job.from) {
        return Ok(());
    }
    Err(JobError::Refused(format!("the read-write volume {} is not on {}", job.name, job.from)))
}

/// Rejects an entry unless its read-write id is that of the job.
pub(crate) fn check_id(job: &Job, entry: &NVldbEntry) -> Step {
    if entry.volume_id[entry::READ_WRITE] == job.volume() {
        return Ok(());
    }
    Err(JobError::Refused(format!("{} is not the read-write volume", job.volume())))
}
