use super::*;

const POLICY: Policy = Policy { hourly: 3, daily: 2, weekly: 2, monthly: 1 };

/// Monday, 2 November 2026.
const MONDAY: u32 = 1_793_577_600;

fn hours(count: u32) -> UnixTime {
    UnixTime(MONDAY + count * HOUR_SECONDS)
}

fn kept(periods: &[Period]) -> Kept {
    periods.iter().fold(Kept::default(), |kept, &period| kept.with(period))
}

/// Applies the policy every `step` minutes for some hours; `changes` returns the volume's change count at a
/// minute.
fn run(policy: Policy, hours_total: u32, step: u32, changes: impl Fn(u32) -> u64) -> Vec<Automatic> {
    let mut all: Vec<Automatic> = Vec::new();
    for minute in (0..hours_total * 60).step_by(step as usize) {
        let (now, changes) = (UnixTime(MONDAY + minute * 60), changes(minute));
        match policy.due(now, changes, &all) {
            Due::Nothing => {}
            Due::Make(kept) => all.push(Automatic { made: now, kept, changes }),
            Due::Keep { made, kept } => {
                all.iter_mut().filter(|one| one.made == made).for_each(|one| one.kept = kept);
            }
        }
        let expired: Vec<UnixTime> = policy.expired(&all).iter().map(|&at| all[at].made).collect();
        all.retain(|one| !expired.contains(&one.made));
    }
    all
}

#[test]
fn periods_begin_where_the_calendar_says() {
    let thursday_noon = UnixTime(MONDAY + 3 * DAY_SECONDS + 12 * HOUR_SECONDS + 345);
    let begins = Period::ALL.map(|period| period.begin(thursday_noon).0);
    let day = MONDAY + 3 * DAY_SECONDS;
    assert_eq!(begins, [day + 12 * HOUR_SECONDS, day, MONDAY, MONDAY - DAY_SECONDS]);
    // 29 February and 1 March 2024, and the epoch.
    assert_eq!(Period::Month.begin(UnixTime(1_709_164_800 + 5)).0, 1_706_745_600);
    assert_eq!(Period::Month.begin(UnixTime(1_709_251_200)).0, 1_709_251_200);
    assert_eq!(Period::ALL.map(|period| period.begin(UnixTime(7)).0), [0; 4]);
}

#[test]
fn the_newest_of_each_period_are_kept() {
    // A volume that always changes, checked every ten minutes for three weeks.
    let all = run(POLICY, 21 * 24, 10, u64::from);
    let of = |period: Period| {
        all.iter().filter(move |one| one.kept.has(period)).map(|one| (one.made.0 - MONDAY) / HOUR_SECONDS)
    };
    let last = 21 * 24 - 1;
    let newest =
        |period, count: usize| of(period).collect::<Vec<_>>().into_iter().rev().take(count).collect();
    let (hourly, daily, weekly): (Vec<u32>, Vec<u32>, Vec<u32>) =
        (newest(Period::Hour, 3), newest(Period::Day, 2), newest(Period::Week, 2));
    assert_eq!(hourly, [last, last - 1, last - 2]);
    assert_eq!(daily, [20 * 24, 19 * 24]);
    assert_eq!(weekly, [14 * 24, 7 * 24]);
    // The monthly snapshot is the first one made in the month.
    assert_eq!(of(Period::Month).collect::<Vec<_>>(), [0]);
    assert_eq!(all.len(), 3 + 2 + 2 + 1);
}

#[test]
fn missed_snapshots_are_made_once() {
    let before = [Automatic { made: hours(0), kept: kept(&Period::ALL), changes: 1 }];
    let due = POLICY.due(hours(30), 2, &before);
    assert_eq!(due, Due::Make(kept(&[Period::Hour, Period::Day])));
    let after =
        [before[0], Automatic { made: hours(30), kept: kept(&[Period::Hour, Period::Day]), changes: 2 }];
    assert_eq!(POLICY.due(hours(30), 3, &after), Due::Nothing);
    // A clock that was set back causes no snapshot.
    assert_eq!(POLICY.due(hours(20), 3, &after), Due::Nothing);
}

#[test]
fn unchanged_volumes_have_one_snapshot() {
    let all = run(POLICY, 9 * 24, 60, |_| 7);
    assert_eq!(all, [Automatic { made: hours(0), kept: kept(&Period::ALL), changes: 7 }]);
    let changed_once = run(POLICY, 9 * 24, 60, |minute| u64::from(minute > 100));
    let made: Vec<u32> = changed_once.iter().map(|one| (one.made.0 - MONDAY) / HOUR_SECONDS).collect();
    assert_eq!(made, [0, 2]);
}

#[test]
fn a_policy_without_a_period_lets_go_of_its_snapshots() {
    let all = run(POLICY, 48, 60, u64::from);
    let none = Policy::default();
    assert!(none.is_empty() && none.due(hours(99), 1, &all) == Due::Nothing);
    assert_eq!(none.expired(&all).len(), all.len());
    let daily = Policy { daily: 9, ..none };
    assert!(daily.expired(&all).iter().all(|&at| !all[at].kept.has(Period::Day)));
}
