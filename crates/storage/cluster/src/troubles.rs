//! Objects that cannot be used, for the log: while nothing waits for a partition, no error is returned for them.

use base::Monotonic;
use std::collections::BTreeMap;
use std::time::Duration;

/// How often the same trouble is logged.
const PERIOD: Duration = Duration::from_secs(60);

/// Number of objects that are remembered; the troubles of others are logged each time.
const OBJECTS_MAX: usize = 256;

/// What was logged last about each object.
#[derive(Debug, Default)]
pub(crate) struct Troubles {
    last: BTreeMap<String, (String, Monotonic)>,
}

impl Troubles {
    /// Notes why an object cannot be used. Returns whether that is to be logged.
    pub(crate) fn is_news(&mut self, now: Monotonic, object: &str, why: &str) -> bool {
        let is_known = |(last, at): &(String, Monotonic)| last == why && now.since(*at) < PERIOD;
        if self.last.get(object).is_some_and(is_known) {
            return false;
        }
        if self.last.len() < OBJECTS_MAX || self.last.contains_key(object) {
            self.last.insert(object.to_owned(), (why.to_owned(), now));
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trouble_is_logged_once_a_minute() {
        let mut troubles = Troubles::default();
        let at = |seconds| Monotonic(1) + Duration::from_secs(seconds);
        assert!(troubles.is_news(at(0), "nodes/a", "version 2"));
        assert!(!troubles.is_news(at(59), "nodes/a", "version 2"));
        assert!(troubles.is_news(at(59), "nodes/a", "no checksum"));
        assert!(troubles.is_news(at(59), "b/owner", "version 2"));
        assert!(!troubles.is_news(at(118), "nodes/a", "no checksum"));
        assert!(troubles.is_news(at(119), "nodes/a", "no checksum"));
    }

    #[test]
    fn remembered_objects_are_bounded() {
        let mut troubles = Troubles::default();
        for object in 0..2 * OBJECTS_MAX {
            assert!(troubles.is_news(Monotonic(1), &object.to_string(), "refused"));
        }
        assert_eq!(troubles.last.len(), OBJECTS_MAX);
    }
}
