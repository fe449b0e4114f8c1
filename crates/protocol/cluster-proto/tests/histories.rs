//! Seeded histories of a cluster. `CELLAR_SEED_FIRST=n` sets the first seed, `CELLAR_CLUSTER_COUNT=n` the number of
//! histories, `CELLAR_SIM_TRACE=1` prints all events.

mod simulation;

use simulation::{History, Report, Sabotage};

/// Number of histories.
const COUNT: u64 = 200;

/// Number of histories in which a planted fault must be found.
const SABOTAGED: u64 = 256;

fn count() -> u64 {
    std::env::var("CELLAR_CLUSTER_COUNT")
        .map_or(COUNT, |text| text.parse().expect("CELLAR_CLUSTER_COUNT is a number"))
}

fn of(seed: u64) -> History {
    History { seed, sabotage: Sabotage::Nothing }
}

#[test]
fn a_cluster_keeps_its_promises() {
    let mut sum = Report::default();
    seeds::play(count(), |seed| match of(seed).run() {
        Ok((report, _)) => sum += report,
        Err(violation) => panic!("seed {seed}: {violation}"),
    });
    println!("Seen: {sum:?}");
    if count() < COUNT {
        return;
    }
    assert!(sum.lapses > 50 && sum.resumes > 20 && sum.losses > 20 && sum.evictions > 50, "{sum:?}");
    assert!(sum.takeovers > 100 && sum.moves > 50 && sum.stalls > 50 && sum.crashes > 50, "{sum:?}");
    assert!(sum.changes > 1000 && sum.cached_reads > 1000 && sum.forwards > 1000, "{sum:?}");
    assert!(sum.resets > 100 && sum.breaks > 100 && sum.fenced > 0 && sum.late_writes > 0, "{sum:?}");
    assert!(sum.repeats > 0 && sum.excused > 0 && sum.outages > 20 && sum.partings > 20, "{sum:?}");
}

#[test]
fn a_seed_is_replayed_exactly() {
    seeds::play(16, |seed| {
        let [first, second] = [(); 2].map(|()| of(seed).run());
        assert_eq!(first, second, "seed {seed}");
    });
}

/// Plants a fault; some history must end with this violation.
fn is_found(sabotage: Sabotage, by: &str) {
    let sabotaged = |seed| History { seed, sabotage };
    let found = |seed| sabotaged(seed).run().err().filter(|violation| violation.contains(by));
    let first = (0..SABOTAGED).find_map(|seed| Some((seed, found(seed)?)));
    println!("{sabotage:?}: {first:?}");
    assert!(first.is_some(), "none of {SABOTAGED} histories has found {sabotage:?}");
}

#[test]
fn deadlines_from_answers_are_found() {
    is_found(Sabotage::CountsFromAnswers, "may both answer");
}

#[test]
fn leases_that_are_not_awaited_are_found() {
    is_found(Sabotage::WaitsForNothing, "may both answer");
}

#[test]
fn deadlines_without_a_margin_are_found() {
    is_found(Sabotage::HasNoMargin, "may both answer");
}

#[test]
fn takeovers_without_an_eviction_are_found() {
    is_found(Sabotage::EvictsNobody, "may both answer");
}

#[test]
fn answers_after_the_deadline_are_found() {
    is_found(Sabotage::AnswersBlindly, "was known before");
}

#[test]
fn hosts_that_are_not_reset_are_found() {
    is_found(Sabotage::ResetsNobody, "under a promise");
}

#[test]
fn promises_before_the_record_are_found() {
    is_found(Sabotage::RecordsLate, "under a promise");
}

#[test]
fn writes_of_earlier_epochs_are_found() {
    is_found(Sabotage::IsNotFenced, "is written");
}
