//! What the durable states of all procedures have in common.

use crate::Stage;
use crate::journal::Fields;
use std::fmt::Debug;

/// The durable state of a procedure: what it has done so far, and what it has, or may have, left on servers.
///
/// The journal has it as [`Fields`]. [`State::after`] is the table of all transitions.
pub(crate) trait State: Copy + Debug + PartialEq {
    /// The state of a job that has not started.
    const START: Self;

    /// Returns the stage that the state belongs to.
    fn stage(self) -> Stage;

    /// Returns the state after an event; `None` if the event cannot occur in this state.
    fn after(self, event: StateEvent) -> Option<Self>;

    /// Returns the state with these fields; `None` if there is none.
    fn decode(fields: Fields) -> Option<Self>;

    /// Returns the fields of the state.
    fn encode(self) -> Fields;

    /// Returns the temporary clone of the read-write volume.
    fn temporary_clone(self) -> Creation {
        Creation::Unnumbered
    }

    /// Returns the volume that the job creates; for a read-only volume, its id is one higher.
    fn new_volume(self) -> Creation {
        Creation::Unnumbered
    }
}

/// What changes the state of a procedure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StateEvent {
    /// The operation is permitted, and the entry is locked if necessary.
    Begun,
    /// The temporary clone got this id.
    CloneNumbered(u32),
    /// The temporary clone is about to be created.
    CloneBegun,
    /// The temporary clone was deleted.
    CloneRemoved,
    /// The new volume got this id; or the volume that is overwritten was found to have it.
    VolumeNumbered(u32),
    /// The new volume is about to be created; or the existing one is about to be overwritten.
    VolumeBegun,
    /// The server has certainly not created or overwritten the volume.
    VolumeRefused,
    /// The new volume was deleted.
    VolumeRemoved,
    /// The source is about to be taken out of service.
    SourceStopped,
    /// The source is in service again.
    SourceRestored,
    /// The contents are complete, and the switch can be made.
    Prepared,
    /// The switch is about to be requested.
    SwitchRequested,
    /// The switch was certainly rejected.
    SwitchRefused,
    /// The work has to be repeated before the switch.
    SwitchPostponed,
    /// The switch took effect.
    Switched,
    /// The switch took effect, or the contents were sent, but some read-only sites lack them.
    SitesLeft,
    /// All read-only sites have the contents, or need not get them from this job any more.
    SitesCurrent,
    /// The source and its backup were deleted.
    SourceRemoved,
    /// Nothing is left to remove.
    Cleaned,
    /// The job cannot be completed.
    GivenUp,
    /// Nothing is left of the job.
    Undone,
    /// The operator cancelled the job while some read-only sites lacked the contents.
    Abandoned,
}

/// A volume that a job creates. Its id is allocated first; from [`Creation::Begun`] on it may exist.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Creation {
    /// It has no id yet.
    #[default]
    Unnumbered,
    /// It has this id, and does not exist.
    Numbered(u32),
    /// It has this id, and may exist.
    Begun(u32),
}

impl Creation {
    /// Returns the creation with these values of the journal; `None` if the volume may exist without an id.
    pub(crate) fn decode(id: u32, begun: bool) -> Option<Creation> {
        match (id, begun) {
            (0, false) => Some(Creation::Unnumbered),
            (0, true) => None,
            (id, false) => Some(Creation::Numbered(id)),
            (id, true) => Some(Creation::Begun(id)),
        }
    }

    /// Returns the values of the journal.
    pub(crate) fn encode(self) -> (u32, bool) {
        (self.id().unwrap_or(0), self.begun().is_some())
    }

    /// Returns the id, if the volume has one.
    pub(crate) fn id(self) -> Option<u32> {
        match self {
            Creation::Unnumbered => None,
            Creation::Numbered(id) | Creation::Begun(id) => Some(id),
        }
    }

    /// Returns the id if the volume may exist.
    pub(crate) fn begun(self) -> Option<u32> {
        if let Creation::Begun(id) = self { Some(id) } else { None }
    }

    /// Returns the id if the volume has one and does not exist.
    pub(crate) fn numbered(self) -> Option<u32> {
        if let Creation::Numbered(id) = self { Some(id) } else { None }
    }

    /// Returns the clone after an event.
    pub(crate) fn after_clone_event(self, event: StateEvent) -> Option<Creation> {
        match event {
            StateEvent::CloneNumbered(id) if self == Creation::Unnumbered => Some(Creation::Numbered(id)),
            StateEvent::CloneBegun => self.numbered().map(Creation::Begun),
            event => self.after_clone_removal(event),
        }
    }

    /// Returns the clone after an event while it can only be removed.
    pub(crate) fn after_clone_removal(self, event: StateEvent) -> Option<Creation> {
        // A volume that is being deleted still occupies its id, so the next clone needs another one.
        let removed = self.begun().map(|_| Creation::Unnumbered);
        removed.filter(|_| event == StateEvent::CloneRemoved)
    }

    /// Returns the new volume after an event.
    pub(crate) fn after_volume_event(self, event: StateEvent) -> Option<Creation> {
        match event {
            StateEvent::VolumeNumbered(id) if self.begun().is_none() => Some(Creation::Numbered(id)),
            StateEvent::VolumeBegun => self.numbered().map(Creation::Begun),
            StateEvent::VolumeRefused => self.begun().map(Creation::Numbered),
            event => self.after_volume_removal(event),
        }
    }

    /// Returns the new volume after an event while it can only be removed.
    pub(crate) fn after_volume_removal(self, event: StateEvent) -> Option<Creation> {
        let removed = self.begun().map(Creation::Numbered);
        removed.filter(|_| event == StateEvent::VolumeRemoved)
    }
}
