//! Slow calls as evidence.

use crate::text::time;

/// A slow call as recorded by the server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SlowCall {
    /// Name of the service, like `AFS`.
    pub service: String,
    /// Name of the procedure.
    pub procedure: String,
    /// First volume that the call used; 0 for none.
    pub volume: u32,
    /// User that made the call.
    pub user: String,
    /// Host that the call came from.
    pub host: String,
    /// Nanoseconds from arrival to end.
    pub total_ns: u64,
    /// What took most of the time: one of [`events::parts::PARTS`], or `work`.
    pub cause: String,
    /// Nanoseconds spent on that.
    pub cause_ns: u64,
}

impl SlowCall {
    fn sentence(&self) -> String {
        let SlowCall { service, procedure, user, host, cause, .. } = self;
        let volume = if self.volume == 0 { String::new() } else { format!(" on volume {}", self.volume) };
        format!(
            "{service} {procedure}{volume} by {user} at {host}: {}, of which {cause} {}",
            time(self.total_ns),
            time(self.cause_ns)
        )
    }
}

/// Describes the number of calls, their total time, and the longest one; `None` without any.
pub(crate) fn evidence<'a>(calls: impl Iterator<Item = &'a SlowCall>, why: &str) -> Option<String> {
    let calls: Vec<&SlowCall> = calls.collect();
    let longest = calls.iter().max_by_key(|call| call.total_ns)?;
    let spent = calls.iter().fold(0, |sum: u64, call| sum.saturating_add(call.cause_ns));
    Some(format!(
        "{} recent slow calls {why}, {} in total; the longest: {}",
        calls.len(),
        time(spent),
        longest.sentence()
    ))
}
