//! The durable states of all procedures: `states.txt` lists, for each state that can be reached, what each event
//! leads to. Events that a state does not list cannot occur in it.
//!
//! `CELLAR_UPDATE_TABLES=1 cargo test -p jobs state_table` writes the file anew.

use crate::engine::Run;
use crate::procedure::{Execution, state_tables};
use crate::state::{State, StateEvent};
use crate::tests::history::{History, place};
use crate::{Job, JobError, Move, Stage};
use std::collections::VecDeque;
use std::fmt::Write;

const TABLE: &str = include_str!("states.txt");
const TABLE_PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/tests/states.txt");

/// All events, with ids that are easy to recognise.
const EVENTS: [StateEvent; 22] = [
    StateEvent::Begun,
    StateEvent::CloneNumbered(77),
    StateEvent::CloneBegun,
    StateEvent::CloneRemoved,
    StateEvent::VolumeNumbered(99),
    StateEvent::VolumeBegun,
    StateEvent::VolumeRefused,
    StateEvent::VolumeRemoved,
    StateEvent::SourceStopped,
    StateEvent::SourceRestored,
    StateEvent::Prepared,
    StateEvent::SwitchRequested,
    StateEvent::SwitchRefused,
    StateEvent::SwitchPostponed,
    StateEvent::Switched,
    StateEvent::SitesLeft,
    StateEvent::SitesCurrent,
    StateEvent::SourceRemoved,
    StateEvent::Cleaned,
    StateEvent::GivenUp,
    StateEvent::Undone,
    StateEvent::Abandoned,
];

/// Returns all states that can be reached, by stage.
fn reachable<S: State>() -> Vec<S> {
    let mut found = vec![S::START];
    let mut queue = VecDeque::from([S::START]);
    while let Some(state) = queue.pop_front() {
        for next in EVENTS.into_iter().filter_map(|event| state.after(event)) {
            if !found.contains(&next) {
                found.push(next);
                queue.push_back(next);
            }
        }
    }
    found.sort_by_key(|state| state.stage() as u8);
    found
}

/// Returns the table of a procedure, after checking that the journal distinguishes its states.
pub(crate) fn table<S: State>(name: &str) -> String {
    let mut text = format!("# {name}\n");
    for state in reachable::<S>() {
        assert_eq!(S::decode(state.encode()), Some(state), "{name}: the journal keeps the state");
        assert_eq!(state.encode().stage, state.stage());
        writeln!(text, "\n{state:?}").unwrap();
        for event in EVENTS {
            if let Some(next) = state.after(event) {
                writeln!(text, "    {event:?} -> {next:?}").unwrap();
            }
        }
        let is_final = EVENTS.into_iter().all(|event| state.after(event).is_none());
        assert_eq!(is_final, state.stage().is_over(), "{name}: {state:?}");
    }
    text
}

#[test]
fn state_table() {
    let actual = state_tables().join("\n");
    if std::env::var_os("CELLAR_UPDATE_TABLES").is_some() {
        std::fs::write(TABLE_PATH, &actual).unwrap();
        return;
    }
    for (line, (actual, expected)) in (1..).zip(actual.lines().zip(TABLE.lines())) {
        assert_eq!(actual, expected, "states.txt, line {line}");
    }
    assert_eq!(actual.lines().count(), TABLE.lines().count(), "lines of states.txt");
}

#[test]
fn an_impossible_event_stops_the_job_and_changes_nothing() {
    let request = Move { to: place(2) };
    let history = History::quiet(crate::Operation::Move(request.clone()));
    let mut job = history.job().clone();
    let execution = Execution { request, state: State::START };
    let mut run = Run::new(&mut job, execution, history.world());
    let refused = run.apply(StateEvent::Switched);
    assert!(matches!(refused, Err(JobError::Stopped(why)) if why.contains("Switched in Beginning")));
    assert_eq!(&job, history.job());
}

#[test]
fn a_record_that_no_state_has_is_rejected() {
    let job = Job::new(1, crate::Operation::Move(Move { to: place(2) }), 100, "data", place(1));
    let record = serde_json::to_value(&job).unwrap();
    let load = |changes: &[(&str, serde_json::Value)]| {
        let mut record = record.clone();
        for (field, value) in changes {
            record[*field] = value.clone();
        }
        serde_json::from_value::<Job>(record).map_err(|error| error.to_string())
    };
    let stage = |stage: Stage| ("stage", stage.name().into());
    let complete = [("clone", 7.into()), ("clone_begun", true.into()), ("new_begun", true.into())];
    let switching = [&complete[..], &[stage(Stage::Switching), ("source_off", true.into())]].concat();
    assert_eq!(load(&switching).map(|job| job.stage()), Ok(Stage::Switching));
    for changes in [
        vec![stage(Stage::CatchingUp)],
        [&complete[..], &[stage(Stage::Switching)]].concat(),
        vec![stage(Stage::Working), ("clone_begun", true.into())],
        vec![stage(Stage::Undoing), ("switch_asked", true.into())],
        vec![("source_off", true.into())],
    ] {
        let error = load(&changes).unwrap_err();
        assert!(error.contains("no move") && error.contains("source_off"), "{error}");
    }
}
