//! Seeded histories of a whole cell. `CELLAR_SEED_FIRST=n` sets the first seed, `CELLAR_SIM_TRACE=1` prints all
//! events.

use cell_sim::{History, Report, Sabotage};

/// Number of histories.
const COUNT: u64 = 160;

/// Number of histories in which a planted fault must be found.
const SABOTAGED: u64 = 32;

#[test]
fn servers_keep_their_promises() {
    let mut sum = Report::default();
    seeds::play(COUNT, |seed| match History::of(seed).run() {
        Ok((report, _)) => sum += report,
        Err(violation) => panic!("{:?}: {violation}", History::of(seed)),
    });
    println!("Seen: {sum:?}");
    assert!(sum.cached_reads > 1000 && sum.stores > 1000 && sum.entries > 100, "{sum:?}");
    assert!(sum.breaks > 100 && sum.resets > 100 && sum.excused > 0 && sum.at_once > 100, "{sum:?}");
    assert!(sum.crashes > 50 && sum.lost_commits > 0 && sum.partitions > 50 && sum.jumps > 50, "{sum:?}");
}

#[test]
fn a_seed_is_replayed_exactly() {
    seeds::play(16, |seed| {
        let [first, second] = [(); 2].map(|()| History::of(seed).run());
        assert_eq!(first, second, "seed {seed}");
    });
}

/// Returns a fault's violations with their seeds.
fn found(sabotage: Sabotage) -> Vec<(u64, String)> {
    let sabotaged = |seed| History { sabotage, ..History::of(seed) };
    (0..SABOTAGED).filter_map(|seed| Some((seed, sabotaged(seed).run().err()?))).collect()
}

fn is_found(sabotage: Sabotage, by: &str) {
    let found = found(sabotage);
    let first = found.first().map(|(seed, violation)| (*seed, violation.lines().next().unwrap_or_default()));
    println!("{sabotage:?}: {} of {SABOTAGED} histories, first {first:?}", found.len());
    assert!(found.iter().any(|(_, violation)| violation.contains(by)), "{sabotage:?}: {found:?}");
}

#[test]
fn breaks_that_are_not_sent_are_found() {
    is_found(Sabotage::BreaksNothing, "has acknowledged version");
}

#[test]
fn breaks_that_are_not_awaited_are_found() {
    is_found(Sabotage::BreaksLate, "has acknowledged version");
}

#[test]
fn clients_that_are_not_reset_are_found() {
    is_found(Sabotage::ResetsNobody, "under a promise");
}

#[test]
fn early_acknowledgements_are_found() {
    is_found(Sabotage::AcknowledgesEarly, "had version");
}

#[test]
fn lost_metadata_is_found() {
    is_found(Sabotage::LosesEverything, "cannot read");
}

#[test]
fn wrong_locations_are_found() {
    is_found(Sabotage::Misleads, "is not there");
}
