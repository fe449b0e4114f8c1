//! How many calls wait for their hosts.

use base::{AbortCode, Identity};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Calls that wait until another call has finished talking to their common host. Verified and anonymous callers have
/// places of their own: hosts that never answer, which anybody can invent, take none from verified callers.
pub(crate) struct WaitingCalls {
    verified: AtomicUsize,
    anonymous: AtomicUsize,
    max: usize,
}

/// A place, given back when dropped.
pub(crate) struct Place<'a>(&'a AtomicUsize);

impl WaitingCalls {
    /// With `max` places for each kind of caller.
    pub(crate) fn new(max: usize) -> WaitingCalls {
        WaitingCalls { verified: AtomicUsize::new(0), anonymous: AtomicUsize::new(0), max }
    }

    /// Takes a place.
    ///
    /// # Errors
    /// VBUSY if callers of this kind have taken all.
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
