//! Counts uses of a volume, today and on each of the seven days before.

use crate::VolumeHeader;
use base::UnixTime;
use volume_records::codec::Counters;

const DAY_SECONDS: u32 = 86_400;

/// Adds `count` accesses at `now`, after shifting the counts by the days that have passed.
pub(crate) fn count_accesses(header: &mut VolumeHeader, now: UnixTime, count: u32) {
    let days = now.0.saturating_sub(header.day_use_date.0) / DAY_SECONDS;
    if days > 0 {
        if header.day_use_date != UnixTime(0) {
            header.week_use.rotate_right(days.min(7) as usize);
            header.week_use[..days.min(7) as usize].fill(0);
            if days <= 7 {
                header.week_use[days as usize - 1] = header.day_use;
            }
        }
        header.day_use = 0;
        header.day_use_date = UnixTime(now.0 - now.0 % DAY_SECONDS);
        header.accessed = now;
    }
    header.day_use = header.day_use.saturating_add(count);
}

/// Copies dates and use counts.
pub(crate) fn copy(counters: &mut Counters, header: &VolumeHeader) {
    counters.updated = header.updated;
    counters.update_counter = header.update_counter;
    counters.accessed = header.accessed;
    counters.day_use = header.day_use;
    counters.day_use_date = header.day_use_date;
    counters.week_use = header.week_use;
}
