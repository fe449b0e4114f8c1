//! Objects that cannot be used, for the log: while nothing waits for a partition, no error is returned for them; and
//! requests that fail.

use base::Monotonic;
use cluster_proto::Answer;
use std::collections::BTreeMap;
use std::fmt;
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
        let why = without_ids(why);
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

/// Returns an error without what is different in each answer of a server.
fn without_ids(why: &str) -> &str {
    why.split_once("<RequestId>").map_or(why, |(before, _)| before)
}

/// A request to the bucket that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestFailure {
    /// The object's name.
    pub object: String,
    /// The reason.
    pub why: String,
}

impl fmt::Display for RequestFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.object, self.why)
    }
}

/// The request that failed last.
#[derive(Debug, Default)]
pub(crate) struct Failures {
    last: Option<(RequestFailure, Monotonic)>,
    logged: Option<Monotonic>,
}

impl Failures {
    /// Notes the answer to a request about an object.
    pub(crate) fn answered(&mut self, now: Monotonic, object: String, answer: &Answer) {
        match answer {
            Answer::Unknown(why) | Answer::Refused(why) => {
                self.last = Some((RequestFailure { object, why: why.clone() }, now));
            }
            _ if self.last.as_ref().is_some_and(|(failure, _)| failure.object == object) => self.last = None,
            _ => {}
        }
    }

    /// Returns the failure if no later request about its object has succeeded, unless it is older than `age_max`: there
    /// may be no later one.
    pub(crate) fn recent(&self, now: Monotonic, age_max: Duration) -> Option<&RequestFailure> {
        self.last.as_ref().filter(|(_, at)| now.since(*at) <= age_max).map(|(failure, _)| failure)
    }

    /// Returns the failure if it is to be logged. Its text is not compared: servers put the request's number into it.
    pub(crate) fn news(&mut self, now: Monotonic) -> Option<&RequestFailure> {
        if self.logged.is_some_and(|logged| now.since(logged) < PERIOD) {
            return None;
        }
        self.logged = Some(now);
        self.last.as_ref().map(|(failure, _)| failure)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_trouble_is_logged_once_a_minute() {
        let mut troubles = Troubles::default();
        let mut is_news = |seconds, why: &str| {
            troubles.is_news(Monotonic(1) + Duration::from_secs(seconds), "nodes/a", why)
        };
        assert!(is_news(0, "403 <Code>AccessDenied</Code><RequestId>1</RequestId>"));
        assert!(!is_news(59, "403 <Code>AccessDenied</Code><RequestId>2</RequestId>"));
        assert!(is_news(60, "403 <Code>AccessDenied</Code><RequestId>3</RequestId>"));
        assert!(is_news(61, "404 <Code>NoSuchBucket</Code><RequestId>4</RequestId>"));
    }

    #[test]
    fn a_failure_counts_until_its_object_is_answered() {
        let mut failures = Failures::default();
        let (at, ttl) = (|seconds| Monotonic(1) + Duration::from_secs(seconds), Duration::from_secs(6));
        let shown =
            |failures: &Failures, now| failures.recent(now, ttl).map_or(String::new(), ToString::to_string);
        failures.answered(at(0), "nodes/a".into(), &Answer::Unknown("503".into()));
        failures.answered(at(1), "p/owner".into(), &Answer::Missing);
        assert_eq!(shown(&failures, at(1)), "nodes/a: 503");
        failures.answered(at(2), "nodes/a".into(), &Answer::Conflict);
        assert_eq!(shown(&failures, at(2)), "");
        failures.answered(at(3), "p/owner".into(), &Answer::Refused("403".into()));
        assert_eq!(
            (shown(&failures, at(9)), shown(&failures, at(10))),
            ("p/owner: 403".into(), String::new())
        );
    }

    #[test]
    fn a_failure_is_logged_at_once_and_then_once_a_minute() {
        let mut failures = Failures::default();
        let mut fails = |seconds, why: &str| {
            let now = Monotonic(1) + Duration::from_secs(seconds);
            failures.answered(now, "nodes/a".into(), &Answer::Unknown(why.into()));
            failures.news(now).map(|failure| failure.why.clone())
        };
        assert_eq!(fails(0, "request 1"), Some("request 1".into()));
        assert_eq!(fails(59, "request 2"), None);
        assert_eq!(fails(60, "request 3"), Some("request 3".into()));
    }

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
