//! Searches in cells with servers that are down, in an election, or replicas.

use super::*;
use proptest::prelude::*;

/// Behaviour of a test server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Dead,
    NoQuorum,
    Replica,
    Site,
}

use Kind::{Dead, NoQuorum, Replica, Site};

/// Makes a call; returns the servers asked and the result. Servers name `named` as sync site.
fn call(
    roster: &mut Roster,
    cell: &[Kind],
    is_change: bool,
    named: Option<usize>,
    now: Instant,
) -> (Vec<usize>, Result<(), AbortCode>) {
    let (mut search, mut asked) = (roster.begin(), Vec::new());
    let mut last = Err(AbortCode::RX_CALL_DEAD);
    while let Some(server) = roster.next(&mut search, now) {
        asked.push(server);
        last = match cell[server] {
            Dead => Err(AbortCode::RX_CALL_DEAD),
            NoQuorum => Err(AbortCode::UNOQUORUM),
            Replica if is_change => Err(AbortCode::UNOTSYNC),
            Replica | Site => Ok(()),
        };
        match roster.heard(&mut search, server, last, now) {
            Verdict::Final => break,
            Verdict::AskAnother => {}
            Verdict::AskForSyncSite => named.into_iter().for_each(|site| search.hint(site)),
        }
    }
    (asked, last)
}

#[test]
fn the_last_responder_is_tried_first() {
    let (mut roster, start) = (Roster::new(3), Instant::now());
    let cell = [Dead, Replica, Site];
    assert_eq!(call(&mut roster, &cell, false, None, start), (vec![0, 1], Ok(())));
    assert_eq!(call(&mut roster, &cell, false, None, start), (vec![1], Ok(())));
    let later = start + REST;
    assert_eq!(call(&mut roster, &[Replica, Dead, Dead], false, None, later).0, [1, 2, 0], "it has rested");
    assert_eq!(call(&mut roster, &[Replica, Dead, Dead], false, None, later).0, [0]);
}

#[test]
fn a_dead_cell_costs_only_one_call_its_time() {
    let (mut roster, start) = (Roster::new(2), Instant::now());
    let dead = (vec![0, 1], Err(AbortCode::RX_CALL_DEAD));
    assert_eq!(call(&mut roster, &[Dead; 2], false, None, start), dead);
    assert_eq!(call(&mut roster, &[Dead; 2], false, None, start).0, [0; 0], "both rest");
    // One call tries the first server; a concurrent one tries the second, and a third tries none.
    let (mut one, mut two, mut three) = (roster.begin(), roster.begin(), roster.begin());
    let later = start + REST;
    assert_eq!(roster.next(&mut one, later), Some(0));
    assert_eq!(roster.next(&mut two, later), Some(1));
    assert_eq!(roster.next(&mut three, later), None);
    assert_eq!(roster.heard(&mut one, 0, Ok(()), later), Verdict::Final);
    assert_eq!(call(&mut roster, &[Site, Dead], false, None, later), (vec![0], Ok(())));
}

#[test]
fn the_sync_site_is_asked_for_and_remembered() {
    let (mut roster, now) = (Roster::new(4), Instant::now());
    let cell = [Replica, Replica, Replica, Site];
    assert_eq!(call(&mut roster, &cell, true, Some(3), now), (vec![0, 3], Ok(())));
    assert_eq!(call(&mut roster, &cell, true, None, now), (vec![0, 3], Ok(())), "without asking again");
    assert_eq!(call(&mut roster, &cell, false, None, now).0, [0], "questions go to anybody");
    // The sync site has moved, and the servers asked do not know where.
    let moved = [Replica, Replica, Site, Replica];
    assert_eq!(call(&mut roster, &moved, true, None, now), (vec![0, 3, 1, 2], Ok(())));
    // A wrong hint costs one call, but the search still succeeds.
    let mut roster = Roster::new(3);
    let (asked, outcome) = call(&mut roster, &[Replica, Replica, Site], true, Some(0), now);
    assert_eq!((asked, outcome), (vec![0, 0, 0, 1, 2], Ok(())));
}

#[test]
fn a_server_takes_changes_for_a_while_after_taking_one() {
    let (mut roster, start) = (Roster::new(3), Instant::now());
    let cell = [Replica, Site, Replica];
    let electorate: Vec<usize> = roster.electorate(start);
    assert_eq!((roster.in_office(start), electorate), (None, vec![0, 1, 2]));
    assert_eq!(call(&mut roster, &cell, true, None, start).1, Ok(()));
    assert_eq!(roster.in_office(start), Some(1));
    assert_eq!(roster.in_office(start + OFFICE), None, "it may have lost its votes");
    assert_eq!(roster.electorate(start + OFFICE)[0], 1, "but is asked first");
    // An error from the service does not end the certainty about the sync site; silence does.
    let mut search = roster.begin();
    roster.heard(&mut search, 1, Err(AbortCode::UNOTSYNC), start);
    roster.heard(&mut search, 2, Err(AbortCode::VL_PERM), start);
    assert_eq!(roster.in_office(start), None);
    roster.heard_of_office(2, Ok(true), start);
    assert_eq!(roster.in_office(start), Some(2));
    roster.heard_of_office(2, Err(AbortCode::VL_NOENT), start);
    assert_eq!(roster.in_office(start), Some(2), "an answer of the service");
    roster.heard_of_office(2, Err(AbortCode::RX_CALL_DEAD), start);
    assert_eq!(roster.in_office(start), None);
    assert_eq!(call(&mut roster, &cell, false, None, start).0, [0]);
}

#[test]
fn service_codes_are_answers_and_transport_codes_are_not() {
    for (code, verdict) in [
        (AbortCode::RX_CALL_DEAD, Verdict::AskAnother),
        (AbortCode::RX_CALL_TIMEOUT, Verdict::AskAnother),
        (AbortCode::RX_INVALID_OPERATION, Verdict::AskAnother),
        (AbortCode::RX_RESTARTING, Verdict::AskAnother),
        (AbortCode::UNOQUORUM, Verdict::AskAnother),
        (AbortCode::UNOTSYNC, Verdict::AskForSyncSite),
        (AbortCode::RXGEN_OPCODE, Verdict::Final),
        (AbortCode::PRNOENT, Verdict::Final),
        (AbortCode::VL_MULTIPADDR, Verdict::Final),
        (AbortCode::RXKADUNKNOWNKEY, Verdict::Final),
    ] {
        let mut roster = Roster::new(2);
        let mut search = roster.begin();
        assert_eq!(roster.heard(&mut search, 0, Err(code), Instant::now()), verdict, "{code}");
    }
}

#[test]
fn a_refusal_outranks_a_timeout() {
    let (silence, refusal) = (AbortCode::RX_CALL_DEAD, AbortCode::UNOTSYNC);
    assert_eq!(more_informative(silence, refusal), refusal);
    assert_eq!(more_informative(refusal, silence), refusal);
    assert_eq!(more_informative(AbortCode::UNOQUORUM, refusal), refusal);
    assert_eq!(more_informative(silence, AbortCode::RX_CALL_TIMEOUT), AbortCode::RX_CALL_TIMEOUT);
}

proptest! {
    /// For all servers and hints: a search ends, asks each server at most once plus the hints, and succeeds
    /// if any server can serve the call.
    #[test]
    fn searches_end_and_find_a_capable_server(
        kinds in prop::collection::vec(prop::sample::select(vec![Dead, NoQuorum, Replica, Site]), 1..7),
        calls in prop::collection::vec((any::<bool>(), prop::option::of(0_usize..7), 0_u64..20), 1..12),
    ) {
        let (mut roster, mut now) = (Roster::new(kinds.len()), Instant::now());
        for (is_change, named, seconds) in calls {
            now += Duration::from_secs(seconds);
            let named = named.filter(|server| *server < kinds.len());
            let (asked, outcome) = call(&mut roster, &kinds, is_change, named, now);
            prop_assert!(asked.len() <= kinds.len() + usize::from(HINTS_MAX));
            let can = |kind: &Kind| *kind == Site || (*kind == Replica && !is_change);
            prop_assert_eq!(outcome.is_ok(), kinds.iter().any(can), "{:?} {:?}", asked, outcome);
        }
    }
}
