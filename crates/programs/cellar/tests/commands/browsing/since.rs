//! Compares the page's own computation of changes between two samples with that of the commands.

use super::browser::Browser;
use events::Longest;
use serde_json::{Value, json};

/// Number of random histories, and of values in each.
const HISTORIES: usize = 64;
const VALUES: usize = 12;

/// Compares the maxima between any two moments of random histories: large and small values, in consecutive
/// and in distant periods, and a server without periods.
pub(super) fn greatest_are_those_of_the_commands(browser: &mut Browser) {
    let mut looks = vec![[vec![50], vec![50]], [vec![50], vec![70]]];
    for _ in 0..HISTORIES {
        let states = history();
        let pairs = (0..states.len()).flat_map(|now| (0..=now).map(move |before| [before, now]));
        looks.extend(pairs.map(|pair| pair.map(|at| states[at].numbers())));
    }
    let page: Vec<u64> = serde_json::from_value(browser.evaluate(&format!(
        "import('/figures.js').then(({{ since }}) => {}.map((looks) => {{\
         const [before, now] = looks.map((numbers) => [{{ key: 'a', labels: ['a'], values: [numbers] }}]);\
         return since(now, before, [{{ kind: 'longest' }}])[0].values[0][0]; }}))",
        json!(looks)
    )))
    .unwrap();
    let expected: Vec<u64> = looks
        .iter()
        .map(|look| {
            let [before, now] = [&look[0], &look[1]].map(|numbers| Longest::from_numbers(numbers));
            now.since(&before).value()
        })
        .collect();
    let wrong: Vec<Value> = looks
        .iter()
        .zip(page.iter().zip(&expected))
        .filter(|(_, (page, expected))| page != expected)
        .map(|(look, (page, expected))| json!({ "looks": look, "page": page, "expected": expected }))
        .collect();
    assert!(
        wrong.is_empty() && page.len() == expected.len(),
        "{} are wrong: {:#?}",
        wrong.len(),
        wrong.first()
    );
}

/// Returns the states of a figure after each of several random steps.
fn history() -> Vec<Longest> {
    let (mut longest, mut period) = (Longest::default(), 1);
    let mut states = vec![longest.clone()];
    for _ in 0..VALUES {
        period += [0, 0, 1, 1, 2, 3, 4, 9][rand::random_range(0..8)];
        match rand::random_range(0..4) {
            0 => longest.begin(period),
            power => longest.record(rand::random_range(1..10_u64.pow(power)), period),
        }
        states.push(longest.clone());
    }
    states
}
