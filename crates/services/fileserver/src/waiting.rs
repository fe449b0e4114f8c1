//! Limits the number of calls that wait for their hosts.

use base::{AbortCode, Identity};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Counts calls that wait until another call has finished contacting their common host. Verified and
/// anonymous callers have separate limits: hosts that never answer, which anyone can invent, do not displace
/// verified callers.
pub(crate) struct WaitingCalls {
    verified: AtomicUsize,
    anonymous: AtomicUsize,
    max: usize,
}

/// One counted call, released when dropped.
pub(crate) struct Place<'a>(&'a AtomicUsize);

impl WaitingCalls {
    /// Allows `max` calls of each kind of caller.
    pub(crate) fn new(max: usize) -> WaitingCalls {
        WaitingCalls { verified: AtomicUsize::new(0), anonymous: AtomicUsize::new(0), max }
    }

    /// Counts a call as waiting.
    ///
    /// # Errors
    /// VBUSY if too many calls of this kind of caller wait.
    pub(crate) fn enter(&self, identity: &Identity) -> Result<Place<'_>, AbortCode> {
        let count = match identity {
            Identity::Known(_) => &self.verified,
            Identity::Anonymous => &self.anonymous,
        };
        let place = Place(count);
        if count.fetch_add(1, Relaxed) < self.max { Ok(place) } else { Err(AbortCode::VBUSY) }
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Principal;

    #[test]
    fn anonymous_callers_take_no_places_of_verified_ones() {
        let ann =
            Identity::Known(Principal { name: "ann".into(), instance: String::new(), realm: String::new() });
        let waiting = WaitingCalls::new(2);
        let anonymous = [0; 2].map(|_| waiting.enter(&Identity::Anonymous).unwrap());
        assert_eq!(waiting.enter(&Identity::Anonymous).err(), Some(AbortCode::VBUSY));
        let verified = [0; 2].map(|_| waiting.enter(&ann).unwrap());
        assert_eq!(waiting.enter(&ann).err(), Some(AbortCode::VBUSY));
        drop(anonymous);
        assert!(waiting.enter(&Identity::Anonymous).is_ok());
        assert_eq!(waiting.enter(&ann).err(), Some(AbortCode::VBUSY));
        drop(verified);
        assert!(waiting.enter(&ann).is_ok());
    }
}
