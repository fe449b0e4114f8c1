use super::*;
use crate::site::fake::FakeServer;

#[test]
fn rows_and_their_bounds_agree() {
    for power in 0..64 {
        for ns in [1_u64 << power, (1 << power) + ((1 << power) >> 1), (1 << power) | ((1 << power) - 1)] {
            let row = row_of(ns);
            let (upper, lower) = (upper_ns(row), row.checked_sub(1).map_or(0, upper_ns));
            assert!(ns >= lower && (upper == 0 || ns < upper), "{ns} is not within {lower} to {upper}");
        }
    }
    assert_eq!((row_of(0), row_of(u64::MAX)), (0, HEAT_ROWS - 1));
}

#[test]
fn all_lines_have_a_place() {
    assert_eq!(CHARTS.iter().map(|chart| chart.lines.len()).sum::<usize>(), LINES);
}

#[test]
fn samples_hold_changes_and_expire() {
    let server = FakeServer::default();
    let mut history = History::default();
    let at = |number: u64| Duration::from_secs(1_000_000 + 2 * number);
    server.add_calls(5);
    history.look(&server, at(0));
    assert_eq!(history.after(0), json!([]), "one look is no sample");
    server.add_calls(7);
    history.look(&server, at(1));
    let reported = history.after(0);
    assert_eq!(reported[0][0], 1);
    assert_eq!((&reported[0][2], &reported[0][3][0]), (&json!(2000), &json!(7)));
    let heat: Vec<u64> = serde_json::from_value(reported[0][4][0].clone()).unwrap();
    assert_eq!(heat.chunks(2).map(|pair| pair[1]).sum::<u64>(), 7);
    for number in 2..600 {
        history.look(&server, at(number));
    }
    let reported = history.after(0);
    assert_eq!(reported.as_array().unwrap().len(), SAMPLES_MAX);
    assert_eq!(reported[SAMPLES_MAX - 1][0], 599);
    assert_eq!(history.after(598).as_array().unwrap().len(), 1);
}

#[test]
fn its_memory_is_as_documented() {
    assert!(SAMPLES_MAX * size_of::<Sample>() <= 390 << 10, "{}", SAMPLES_MAX * size_of::<Sample>());
}
