//! The states of a call and of its sending half, and the events that change them. The tables are complete: an
//! event that a state does not expect changes nothing.

use base::AbortCode;

/// State of a call: how far it has come, and whether the application still holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Server: packets have arrived, but the peer has to prove its identity or address first. The application
    /// does not know the call yet.
    Waiting,
    /// The application reads and writes.
    Active,
    /// The application has released the call; the rest of its reply is being sent.
    Replying,
    /// Both directions are complete; the application still holds the call.
    Done,
    /// Both directions are complete and the application has released the call. Its last acknowledgement may
    /// not be sent yet.
    Lingering,
    /// The call has ended with this code; the application still holds it.
    Failed(AbortCode),
    /// The call has ended with this code, and the application does not hold it. Its abort may not be sent yet.
    Aborted(AbortCode),
}

/// What changes the state of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StateEvent {
    /// The peer has proved itself, and the call is announced to the application.
    Announced,
    /// The application has released the call.
    Released,
    /// Both directions are complete.
    Completed,
    /// The call has failed with this code.
    Failed(AbortCode),
}

impl State {
    /// Returns the state after an event; `None` if the event changes nothing.
    #[inline]
    pub(crate) fn after(self, event: StateEvent) -> Option<State> {
        use StateEvent::{Announced, Completed, Released};
        match (self, event) {
            (State::Waiting, Announced) => Some(State::Active),
            (State::Active, Released) => Some(State::Replying),
            (State::Active, Completed) => Some(State::Done),
            (State::Active, StateEvent::Failed(code)) => Some(State::Failed(code)),
            (State::Replying, Completed) | (State::Done, Released) => Some(State::Lingering),
            (State::Waiting | State::Replying, StateEvent::Failed(code))
            | (State::Failed(code), Released) => Some(State::Aborted(code)),
            (State::Waiting, Released | Completed)
            | (State::Active, Announced)
            | (State::Replying, Announced | Released)
            | (State::Done | State::Failed(_), Announced | Completed | StateEvent::Failed(_))
            | (State::Lingering | State::Aborted(_), _) => None,
        }
    }

    /// Whether the call still exchanges data.
    #[inline]
    pub(crate) fn is_running(self) -> bool {
        matches!(self, State::Waiting | State::Active | State::Replying)
    }

    /// Whether the call exchanges data and has been announced to the application.
    #[inline]
    pub(crate) fn is_active(self) -> bool {
        matches!(self, State::Active | State::Replying)
    }

    /// Whether both directions are complete.
    #[inline]
    pub(crate) fn is_done(self) -> bool {
        matches!(self, State::Done | State::Lingering)
    }

    /// Whether the application no longer holds the call.
    #[inline]
    pub(crate) fn is_released(self) -> bool {
        matches!(self, State::Replying | State::Lingering | State::Aborted(_))
    }
}

/// How far the data that a call sends has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SendStage {
    /// More data may be written.
    Open,
    /// All data has been written.
    Ended,
    /// The packet that carries LAST_PACKET has been cut.
    Cut,
    /// The peer wants no more data: what was not sent is dropped, and so is anything written.
    Muted,
}

/// What changes the stage of a call's sent data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SendEvent {
    /// The application has written everything.
    Ended,
    /// All written data has been cut into packets.
    Emptied,
    /// The peer wants no more data.
    Muted,
}

impl SendStage {
    /// Returns the stage after an event; `None` if the event changes nothing.
    #[inline]
    pub(crate) fn after(self, event: SendEvent) -> Option<SendStage> {
        match (self, event) {
            (SendStage::Open, SendEvent::Ended) => Some(SendStage::Ended),
            (SendStage::Ended, SendEvent::Emptied) => Some(SendStage::Cut),
            (SendStage::Open | SendStage::Ended | SendStage::Cut, SendEvent::Muted) => Some(SendStage::Muted),
            (SendStage::Open, SendEvent::Emptied)
            | (SendStage::Ended, SendEvent::Ended)
            | (SendStage::Cut, SendEvent::Ended | SendEvent::Emptied)
            | (SendStage::Muted, _) => None,
        }
    }
}

#[cfg(test)]
mod tests;
