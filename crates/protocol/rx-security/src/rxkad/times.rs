//! Validity times of tickets (`tkt_CheckTimes`).

use base::UnixTime;

use super::NEVER;
use crate::SecurityError;

/// Maximum lifetime of a ticket in seconds (30 days), unless it has no start or no end.
pub(super) const LIFETIME_SECONDS_MAX: u32 = 30 * 24 * 3600;

/// Checks that a ticket is valid at `now`. A ticket with start 0 is already valid, one with end [`NEVER`]
/// does not expire. `skew` is the tolerated difference between clocks in seconds. It applies only to the
/// start: packets of expired tickets would be refused anyway.
pub(super) fn check(start: u32, end: u32, now: UnixTime, skew: u32) -> Result<(), SecurityError> {
    if start >= end {
        return Err(SecurityError::BadTicket("ticket ends before it begins"));
    }
    if start != 0 && end != NEVER && end - start > LIFETIME_SECONDS_MAX {
        return Err(SecurityError::BadTicket("ticket lifetime is too long"));
    }
    if end != NEVER && now.0 >= end {
        return Err(SecurityError::Expired { end: UnixTime(end), now });
    }
    if start > now.0.saturating_add(skew) {
        return Err(SecurityError::NotYetValid { start: UnixTime(start), now });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use base::AbortCode;

    use super::*;

    #[test]
    fn table() {
        const NOW: u32 = 1_700_000_000;
        let day = 24 * 3600;
        for (start, end, code) in [
            (NOW - 10, NOW + 10, None),
            (NOW + 300, NOW + 900, None),
            (NOW + 301, NOW + 900, Some(AbortCode::RXKADNOAUTH)),
            (NOW - 10, NOW, Some(AbortCode::RXKADEXPIRED)),
            (NOW - 10, NOW - 5, Some(AbortCode::RXKADEXPIRED)),
            (NOW, NOW, Some(AbortCode::RXKADBADTICKET)),
            (NOW + 10, NOW - 10, Some(AbortCode::RXKADBADTICKET)),
            (NOW - 10, NOW - 10 + 30 * day, None),
            (NOW - 10, NOW - 9 + 30 * day, Some(AbortCode::RXKADBADTICKET)),
            (0, 0x7fff_ffff, None),
            (0, NEVER, None),
            (NOW - 60 * day, NEVER, None),
            (0, 1, Some(AbortCode::RXKADEXPIRED)),
        ] {
            let result = check(start, end, UnixTime(NOW), 300).err().map(|error| error.abort_code());
            assert_eq!(result, code, "{start} to {end}");
        }
    }
}
