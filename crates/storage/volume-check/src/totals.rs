//! Checks the stored totals of directories against sums over the tree.

use base::VnodeId;
use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;
use volume_records::totals::{OwnSums, Totals, Unfolded, spread};

/// Location, and what is wrong there.
type Finding = (String, String);

/// Compares the totals in `stored` records with `sums`; `above` returns a directory's parent.
pub(crate) fn check(
    mut sums: OwnSums,
    stored: &HashMap<VnodeId, Totals>,
    unfolded: &Unfolded,
    above: impl Fn(VnodeId) -> Option<VnodeId>,
) -> Vec<Finding> {
    let expected: BTreeMap<VnodeId, Totals> = sums.totals().collect();
    let mut found = Vec::new();
    for (directory, _) in unfolded.iter().filter(|(directory, _)| !expected.contains_key(directory)) {
        let what = "the counters include totals, but there is no such directory";
        found.push((name(directory), what.to_owned()));
    }
    let Ok(overlay) = spread(unfolded.iter().collect(), |at| Ok::<_, Infallible>(above(at)));
    for (&directory, expected) in &expected {
        let Some(stored) = stored.get(&directory) else {
            found.push((name(directory), "there are no totals of this directory".to_owned()));
            continue;
        };
        let got = stored.plus(overlay.get(&directory).copied().unwrap_or_default());
        if got != *expected {
            found.push((name(directory), format!("totals: counted {expected:?}, stored {got:?}")));
        }
    }
    let mut strays: Vec<_> = stored.keys().filter(|directory| !expected.contains_key(directory)).collect();
    strays.sort_unstable();
    for directory in strays {
        found.push((name(*directory), "there are totals, but no such directory".to_owned()));
    }
    found
}

fn name(directory: VnodeId) -> String {
    format!("directory {}", directory.0)
}
