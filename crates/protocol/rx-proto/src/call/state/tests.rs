use super::*;
use std::fmt::Debug;

/// Code of calls that had failed before.
const OLD: AbortCode = AbortCode::VBUSY;
/// Code of the event.
const NEW: AbortCode = AbortCode::RX_CALL_DEAD;

const STATES: [State; 7] = [
    State::Waiting,
    State::Active,
    State::Replying,
    State::Done,
    State::Lingering,
    State::Failed(OLD),
    State::Aborted(OLD),
];

const EVENTS: [StateEvent; 4] =
    [StateEvent::Announced, StateEvent::Released, StateEvent::Completed, StateEvent::Failed(NEW)];

/// The state after each event, `-` if it stays.
const STATE_TABLE: &str = "
           Announced   Released     Completed  Failed(new)
Waiting    Active      -            -          Aborted(new)
Active     -           Replying     Done       Failed(new)
Replying   -           -            Lingering  Aborted(new)
Done       -           Lingering    -          -
Lingering  -           -            -          -
Failed     -           Aborted(old) -          -
Aborted    -           -            -          -
";

const STAGES: [SendStage; 4] = [SendStage::Open, SendStage::Ended, SendStage::Cut, SendStage::Muted];

const SEND_EVENTS: [SendEvent; 3] = [SendEvent::Ended, SendEvent::Emptied, SendEvent::Muted];

/// The stage after each event, `-` if it stays.
const STAGE_TABLE: &str = "
       Ended  Emptied  Muted
Open   Ended  -        Muted
Ended  -      Cut      Muted
Cut    -      -        Muted
Muted  -      -        -
";

/// Returns what is printed in a table.
fn name(value: impl Debug) -> String {
    let text = format!("{value:?}");
    text.replace(&format!("{OLD:?}"), "old").replace(&format!("{NEW:?}"), "new")
}

/// Returns the words of each row of a table: the state, and the states after each event.
fn rows<S: Copy + Debug, E: Copy + Debug>(
    states: &[S],
    events: &[E],
    after: impl Fn(S, E) -> Option<S>,
) -> Vec<Vec<String>> {
    let head = events.iter().map(name).collect();
    let row = |&state: &S| {
        let next = |&event: &E| after(state, event).map_or("-".to_owned(), name);
        let of_state = name(state).replace("(old)", "");
        std::iter::once(of_state).chain(events.iter().map(next)).collect()
    };
    std::iter::once(head).chain(states.iter().map(row)).collect()
}

fn words(table: &str) -> Vec<Vec<String>> {
    let lines = table.trim_start_matches('\n').lines();
    lines.map(|line| line.split_whitespace().map(str::to_owned).collect()).collect()
}

#[test]
fn every_event_in_every_state_is_in_the_table() {
    assert_eq!(rows(&STATES, &EVENTS, State::after), words(STATE_TABLE));
    assert_eq!(rows(&STAGES, &SEND_EVENTS, SendStage::after), words(STAGE_TABLE));
}

#[test]
fn a_state_changes_at_most_three_times_and_ends_released() {
    fn longest(state: State) -> u32 {
        let next = EVENTS.into_iter().filter_map(|event| state.after(event));
        let rest = next.map(|next| 1 + longest(next)).max();
        assert!(rest.is_some() || state.is_released(), "{state:?}");
        rest.unwrap_or(0)
    }
    assert_eq!(longest(State::Waiting), 3);
}

#[test]
fn an_event_never_makes_a_call_run_or_be_held_again() {
    for (state, event) in STATES.into_iter().flat_map(|state| EVENTS.map(|event| (state, event))) {
        let Some(next) = state.after(event) else { continue };
        assert!(state.is_running() || !next.is_running(), "{state:?}, {event:?}");
        assert!(!state.is_released() || next.is_released(), "{state:?}, {event:?}");
    }
}
