use super::*;

const EVENTS: [PhaseEvent; 14] = [
    PhaseEvent::OwnerSeen,
    PhaseEvent::OwnerSilent,
    PhaseEvent::Claim,
    PhaseEvent::Claimed,
    PhaseEvent::Outrun,
    PhaseEvent::Opened,
    PhaseEvent::NotOpened,
    PhaseEvent::AllReset,
    PhaseEvent::Release,
    PhaseEvent::Drained,
    PhaseEvent::Released,
    PhaseEvent::Lost,
    PhaseEvent::Superseded,
    PhaseEvent::Closed,
];

/// The events of each phase that change it, and the phase after them. Every other pair changes nothing.
const TABLE: &str = "
Remote     OwnerSilent Waiting   Claim Claiming
Waiting    OwnerSeen Remote      Claim Claiming
Claiming   Claimed Opening       Outrun Remote       Release Remote     Lost Waiting
Opening    Opened Resetting      NotOpened Claiming  Release Draining   Lost Fenced  Superseded Fenced
Resetting  AllReset Serving      Release Draining    Lost Fenced        Superseded Fenced
Serving    Release Draining      Lost Fenced         Superseded Fenced
Draining   Drained Releasing     Lost Fenced         Superseded Fenced
Releasing  Released Remote       Lost Remote
Fenced     Closed Remote
";

#[test]
fn every_event_in_every_phase_is_in_the_table() {
    let row = |phase: Phase| {
        let changes = EVENTS.iter().filter_map(|event| Some((event, phase.after(*event)?)));
        let words = changes.map(|(event, next)| format!(" {event:?} {next:?}"));
        format!("{phase:?}{}\n", words.collect::<String>())
    };
    let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let rows: String = Phase::ALL.into_iter().map(row).collect();
    assert_eq!(words(&rows), words(TABLE));
}

#[test]
fn answers_are_given_by_an_owner_with_an_open_database_only() {
    for phase in Phase::ALL {
        let answers =
            [CallKind::Read, CallKind::Change].map(|kind| (phase.accepts(kind), phase.answers(kind)));
        let expected = match phase {
            Phase::Serving => [(true, true), (true, true)],
            Phase::Resetting => [(true, true), (false, false)],
            Phase::Draining => [(false, true), (false, true)],
            _ => [(false, false), (false, false)],
        };
        assert_eq!(answers, expected, "{phase:?}");
        assert!(phase.has_database() || answers == [(false, false); 2]);
    }
}

/// A node that ends an ownership, in whatever way, passes through a phase in which the database is closed.
#[test]
fn no_phase_with_a_database_is_left_but_by_closing_it() {
    for (phase, event) in Phase::ALL.into_iter().flat_map(|phase| EVENTS.map(|event| (phase, event))) {
        let Some(next) = phase.after(event) else { continue };
        if phase.has_database() && !next.has_database() {
            let closes = matches!(event, PhaseEvent::Drained | PhaseEvent::Closed | PhaseEvent::NotOpened);
            assert!(closes, "{phase:?}, {event:?}");
        }
    }
}

#[test]
fn serving_follows_a_claim_an_open_and_the_resets_only() {
    let into = |target: Phase| {
        let all = Phase::ALL.into_iter().flat_map(|phase| EVENTS.map(|event| (phase, event)));
        all.filter(|(phase, event)| phase.after(*event) == Some(target)).collect::<Vec<_>>()
    };
    assert_eq!(into(Phase::Serving), [(Phase::Resetting, PhaseEvent::AllReset)]);
    assert_eq!(into(Phase::Resetting), [(Phase::Opening, PhaseEvent::Opened)]);
    assert_eq!(into(Phase::Opening), [(Phase::Claiming, PhaseEvent::Claimed)]);
}
