//! Folded stacks: one line for each, with functions from the outermost inwards separated by `;`, then
//! microseconds. All flame graph tools read this format.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt::Write as _;

/// One stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Line {
    pub(crate) frames: Vec<String>,
    pub(crate) us: u64,
}

/// Name for stacks without a line of their own.
const OTHERS: &str = "(others)";

/// Returns the text. Equal stacks are merged, those without time are omitted, and lines are sorted so that
/// equal input yields equal text.
pub(crate) fn text(lines: Vec<Line>, others_us: u64) -> String {
    let mut sums: BTreeMap<String, u64> = BTreeMap::new();
    for line in lines {
        *sums.entry(line.frames.join(";")).or_default() += line.us;
    }
    if others_us > 0 {
        sums.insert(OTHERS.to_owned(), others_us);
    }
    let mut text = String::new();
    for (stack, us) in sums.into_iter().filter(|(_, us)| *us > 0) {
        let _ = writeln!(text, "{stack} {us}");
    }
    text
}

/// Parses stacks from untrusted text; malformed lines are skipped.
pub(crate) fn parse(folded: &str) -> impl Iterator<Item = (&str, u64)> {
    folded.lines().filter_map(|line| {
        let (stack, us) = line.rsplit_once(' ')?;
        (!stack.is_empty()).then_some((stack, us.parse().ok()?))
    })
}

/// Time of one function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FunctionTime {
    /// Name of the function.
    pub name: String,
    /// Microseconds in which the function itself was running (or waiting).
    pub own_us: u64,
    /// Microseconds in which the function was active, including functions that it called.
    pub total_us: u64,
}

/// Returns the functions in folded stacks, ordered by decreasing own time.
pub fn functions(folded: &str) -> Vec<FunctionTime> {
    let mut times: HashMap<&str, (u64, u64)> = HashMap::new();
    for (stack, us) in parse(folded) {
        let frames: Vec<&str> = stack.split(';').collect();
        for frame in frames.iter().copied().collect::<HashSet<_>>() {
            let time = times.entry(frame).or_default();
            time.1 = time.1.saturating_add(us);
        }
        if let Some(time) = frames.last().and_then(|leaf| times.get_mut(leaf)) {
            time.0 = time.0.saturating_add(us);
        }
    }
    let of = |(name, (own_us, total_us)): (&str, (u64, u64))| FunctionTime {
        name: name.to_owned(),
        own_us,
        total_us,
    };
    let mut all: Vec<FunctionTime> = times.into_iter().map(of).collect();
    all.sort_by(|a, b| (b.own_us, b.total_us).cmp(&(a.own_us, a.total_us)).then_with(|| a.name.cmp(&b.name)));
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn own_time_and_total_time() {
        let line = |frames: &[&str], us| Line { frames: frames.iter().map(|&f| f.to_owned()).collect(), us };
        let lines = vec![line(&["t", "a", "b"], 5), line(&["t", "a"], 2), line(&["t", "a", "b", "a"], 4)];
        let folded = text([lines.clone(), lines, vec![line(&["t"], 0)]].concat(), 7);
        assert_eq!(folded, "(others) 7\nt;a 4\nt;a;b 10\nt;a;b;a 8\n");
        let reported: Vec<_> =
            functions(&folded).into_iter().map(|f| (f.name, f.own_us, f.total_us)).collect();
        let of = |name: &str, own, total| (name.to_owned(), own, total);
        assert_eq!(reported, [of("a", 12, 22), of("b", 10, 18), of(OTHERS, 7, 7), of("t", 0, 22)]);
    }

    proptest! {
        #[test]
        fn any_text_is_read(folded in "(?s).{0,200}") {
            let total: u128 = parse(&folded).map(|(_, us)| u128::from(us)).sum();
            let own: u128 = functions(&folded).iter().map(|f| u128::from(f.own_us)).sum();
            prop_assert!(own <= total);
        }
    }
}
