//! Decides which automatic snapshots are made and kept. Pure: the time is an argument.

use base::UnixTime;
use std::collections::BTreeSet;

const HOUR_SECONDS: u32 = 3600;
const DAY_SECONDS: u32 = 24 * HOUR_SECONDS;

/// A period for which one snapshot is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Period {
    /// Starts on the hour.
    Hour = 1,
    /// Starts at midnight UTC.
    Day = 2,
    /// Starts on Monday at midnight UTC.
    Week = 4,
    /// Starts on the first of the month at midnight UTC.
    Month = 8,
}

impl Period {
    /// All periods, shortest first.
    pub const ALL: [Period; 4] = [Period::Hour, Period::Day, Period::Week, Period::Month];

    /// Returns the start of the period that contains `now`.
    pub fn begin(self, now: UnixTime) -> UnixTime {
        let days = now.0 / DAY_SECONDS;
        UnixTime(match self {
            Period::Hour => now.0 - now.0 % HOUR_SECONDS,
            Period::Day => days * DAY_SECONDS,
            // 1 January 1970 was a Thursday, the third day after Monday.
            Period::Week => days.saturating_sub((days + 3) % 7) * DAY_SECONDS,
            Period::Month => (days + 1 - day_of_month(days)) * DAY_SECONDS,
        })
    }
}

/// Returns the day of the month, from 1, of a day counted from 1 January 1970 (Howard Hinnant's
/// `civil_from_days`, reduced to the day).
fn day_of_month(days: u32) -> u32 {
    let shifted = days + 719_468;
    let day_of_era = shifted % 146_097;
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    day_of_year - (153 * month + 2) / 5 + 1
}

/// Periods for which a snapshot is kept; empty if it was not made automatically.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kept(u8);

impl Kept {
    /// Returns the stored and transmitted form.
    pub fn bits(self) -> u8 {
        self.0
    }

    /// Decodes that form; `None` if there are unknown bits.
    pub fn from_bits(bits: u8) -> Option<Kept> {
        (bits < 16).then_some(Kept(bits))
    }

    /// Returns whether the snapshot is kept for this period.
    pub fn has(self, period: Period) -> bool {
        self.0 & period as u8 != 0
    }

    /// Adds a period.
    #[must_use]
    pub fn with(self, period: Period) -> Kept {
        Kept(self.0 | period as u8)
    }

    /// Returns whether the set is empty, as for a snapshot that was not made automatically.
    pub fn is_none(self) -> bool {
        self.0 == 0
    }
}

/// Number of snapshots kept for each period.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// Number of hourly snapshots.
    pub hourly: u16,
    /// Number of daily snapshots.
    pub daily: u16,
    /// Number of weekly snapshots.
    pub weekly: u16,
    /// Number of monthly snapshots.
    pub monthly: u16,
}

impl Policy {
    /// Returns the number of snapshots kept for a period.
    pub fn count(&self, period: Period) -> u16 {
        match period {
            Period::Hour => self.hourly,
            Period::Day => self.daily,
            Period::Week => self.weekly,
            Period::Month => self.monthly,
        }
    }

    /// Returns whether the policy keeps no automatic snapshots.
    pub fn is_empty(&self) -> bool {
        Period::ALL.iter().all(|&period| self.count(period) == 0)
    }

    /// Returns what is due at `now`. `automatic` are the existing automatic snapshots, in any order;
    /// `changes` is the volume's change count. However long ago the last call was, one snapshot makes up for
    /// all missed periods.
    ///
    /// When nothing has changed since the newest snapshot, that one is kept for the periods that have started
    /// since, and no other is made.
    pub fn due(&self, now: UnixTime, changes: u64, automatic: &[Automatic]) -> Due {
        let mut periods = Kept::default();
        for period in Period::ALL.into_iter().filter(|&period| self.count(period) > 0) {
            let begin = period.begin(now);
            if !automatic.iter().any(|snapshot| snapshot.kept.has(period) && snapshot.made >= begin) {
                periods = periods.with(period);
            }
        }
        let newest = automatic.iter().max_by_key(|snapshot| snapshot.made);
        let same = newest.filter(|newest| newest.changes == changes);
        match same {
            _ if periods.is_none() => Due::Nothing,
            Some(same) => {
                let missing = Period::ALL.into_iter().filter(|&period| periods.has(period));
                let all = missing.fold(same.kept, Kept::with);
                if all == same.kept { Due::Nothing } else { Due::Keep { made: same.made, kept: all } }
            }
            None => Due::Make(periods),
        }
    }

    /// Returns the indices of the automatic snapshots that are no longer kept.
    pub fn expired(&self, automatic: &[Automatic]) -> Vec<usize> {
        let mut newest_first: Vec<usize> = (0..automatic.len()).collect();
        newest_first.sort_by_key(|&at| std::cmp::Reverse(automatic[at].made));
        let kept_of = |period: Period| {
            let of_period = newest_first.iter().copied().filter(move |&at| automatic[at].kept.has(period));
            of_period.take(self.count(period).into())
        };
        let kept: BTreeSet<usize> = Period::ALL.into_iter().flat_map(kept_of).collect();
        (0..automatic.len()).filter(|at| !kept.contains(at)).collect()
    }
}

/// The attributes of an automatic snapshot that retention depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Automatic {
    /// Creation time.
    pub made: UnixTime,
    /// Periods it is kept for.
    pub kept: Kept,
    /// The volume's change count at that time.
    pub changes: u64,
}

/// What is due now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// Nothing is due.
    Nothing,
    /// Make a snapshot for these periods.
    Make(Kept),
    /// Keep the snapshot made at that time for these periods: its contents are still current.
    Keep {
        /// Creation time of the snapshot.
        made: UnixTime,
        /// Periods to keep it for.
        kept: Kept,
    },
}

#[cfg(test)]
mod tests;
