//! Which automatic snapshots are made and kept. Nothing here asks a clock: the time is an argument.

use base::UnixTime;
use std::collections::BTreeSet;

const HOUR_SECONDS: u32 = 3600;
const DAY_SECONDS: u32 = 24 * HOUR_SECONDS;

/// A period of which one snapshot is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Period {
    /// Begins with every hour.
    Hour = 1,
    /// Begins at midnight, UTC.
    Day = 2,
    /// Begins on Monday at midnight, UTC.
    Week = 4,
    /// Begins on the first of the month at midnight, UTC.
    Month = 8,
}

impl Period {
    /// The shortest first.
    pub const ALL: [Period; 4] = [Period::Hour, Period::Day, Period::Week, Period::Month];

    /// When the period began that `now` is in.
    pub fn begin(self, now: UnixTime) -> UnixTime {
        let days = now.0 / DAY_SECONDS;
        UnixTime(match self {
            Period::Hour => now.0 - now.0 % HOUR_SECONDS,
            Period::Day => days * DAY_SECONDS,
            // The first of January 1970 was a Thursday, the third day after Monday.
            Period::Week => days.saturating_sub((days + 3) % 7) * DAY_SECONDS,
            Period::Month => (days + 1 - day_of_month(days)) * DAY_SECONDS,
        })
    }
}

/// The day of the month, from 1, of a day since the first of January 1970 (civil_from_days of
/// Howard Hinnant, of which only the day is needed).
fn day_of_month(days: u32) -> u32 {
    let shifted = days + 719_468;
    let day_of_era = shifted % 146_097;
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    day_of_year - (153 * month + 2) / 5 + 1
}

/// Of which periods a snapshot is kept as the one; none if it was not made automatically.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kept(u8);

impl Kept {
    /// As it is stored and sent.
    pub fn bits(self) -> u8 {
        self.0
    }

    /// From that; `None` if there are unknown bits.
    pub fn from_bits(bits: u8) -> Option<Kept> {
        (bits < 16).then_some(Kept(bits))
    }

    /// Whether it is kept for this period.
    pub fn has(self, period: Period) -> bool {
        self.0 & period as u8 != 0
    }

    /// With another period.
    #[must_use]
    pub fn with(self, period: Period) -> Kept {
        Kept(self.0 | period as u8)
    }

    /// Not automatic.
    pub fn is_none(self) -> bool {
        self.0 == 0
    }
}

/// How many snapshots of each kind are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// One of each hour.
    pub hourly: u16,
    /// One of each day.
    pub daily: u16,
    /// One of each week.
    pub weekly: u16,
    /// One of each month.
    pub monthly: u16,
}

impl Policy {
    /// How many are kept of a period.
    pub fn count(&self, period: Period) -> u16 {
        match period {
            Period::Hour => self.hourly,
            Period::Day => self.daily,
            Period::Week => self.weekly,
            Period::Month => self.monthly,
        }
    }

    /// Nothing is automatic.
    pub fn is_empty(&self) -> bool {
        Period::ALL.iter().all(|&period| self.count(period) == 0)
    }

    /// What is due at `now`. `automatic` are the automatic snapshots there are, in any order; `changes` tells
    /// how often the volume has changed. However long nobody asked, one snapshot makes up for all that was missed.
    ///
    /// When nothing has changed since the newest snapshot, it stands for the periods that have begun since: no
    /// other is made.
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

    /// Which of the automatic snapshots are not kept any more, by their places.
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

/// An automatic snapshot, as far as its keeping needs to know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Automatic {
    /// When it was made.
    pub made: UnixTime,
    /// For which periods.
    pub kept: Kept,
    /// How often the volume had changed.
    pub changes: u64,
}

/// What is to be done now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// Nothing.
    Nothing,
    /// Make a snapshot for these periods.
    Make(Kept),
    /// Keep the one made then for these periods: it shows what the volume still holds.
    Keep {
        /// Which.
        made: UnixTime,
        /// For which periods.
        kept: Kept,
    },
}

#[cfg(test)]
mod tests;
