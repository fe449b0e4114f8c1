//! A token bucket, which limits the rate of an event.

use base::Monotonic;

/// One second in nanoseconds.
const SECOND: u64 = 1_000_000_000;

/// A token bucket that starts full, with the tokens of one second.
#[derive(Debug)]
pub(crate) struct TokenBucket {
    per_second: u64,
    /// Unused waiting time in nanoseconds, at most one second.
    saved: u64,
    at: Monotonic,
}

impl TokenBucket {
    /// Creates a bucket that provides `per_second` tokens per second; with 0 it never provides any.
    pub(crate) fn new(per_second: u32, now: Monotonic) -> TokenBucket {
        TokenBucket { per_second: per_second.into(), saved: SECOND, at: now }
    }

    /// Takes a token if one is available, and returns whether it did.
    pub(crate) fn take(&mut self, now: Monotonic) -> bool {
        let waited = now.since(self.at).as_nanos().min(u128::from(SECOND)) as u64;
        self.saved = (self.saved + waited).min(SECOND);
        self.at = now;
        let price = SECOND.checked_div(self.per_second);
        let left = price.and_then(|price| self.saved.checked_sub(price));
        self.saved = left.unwrap_or(self.saved);
        left.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gives_its_rate_and_no_more() {
        let mut bucket = TokenBucket::new(100, Monotonic(0));
        let given = |bucket: &mut TokenBucket, from: u64, until: u64| {
            (from..until).filter(|ms| bucket.take(Monotonic(ms * 1_000_000))).count()
        };
        assert_eq!((0..500).filter(|_| bucket.take(Monotonic(0))).count(), 100);
        assert_eq!(given(&mut bucket, 1, 1001), 100);
        assert_eq!(given(&mut bucket, 20_000, 20_100), 100);
        assert!(!TokenBucket::new(0, Monotonic(0)).take(Monotonic(5)));
    }
}
