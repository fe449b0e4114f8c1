//! Calls that took long, as evidence.

use crate::text::time;

/// A call that took long, as the server remembers it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SlowCall {
    /// The service, like `AFS`.
    pub service: String,
    /// The procedure.
    pub procedure: String,
    /// The first volume that it used; 0 for none.
    pub volume: u32,
    /// Who called.
    pub user: String,
    /// From where.
    pub host: String,
    /// Nanoseconds from its arrival to its end.
    pub total_ns: u64,
    /// What most of the time went to: one of [`events::current::PARTS`], or `work`.
    pub cause: String,
    /// Nanoseconds that went to that.
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

/// How many calls, how long together, and the longest of them; `None` without any.
pub(crate) fn evidence<'a>(calls: impl Iterator<Item = &'a SlowCall>, why: &str) -> Option<String> {
    let calls: Vec<&SlowCall> = calls.collect();
    let longest = calls.iter().max_by_key(|call| call.total_ns)?;
    let spent = calls.iter().fold(0, |sum: u64, call| sum.saturating_add(call.cause_ns));
    Some(format!(
        "{} slow calls lately {why}, {} in all; the longest: {}",
        calls.len(),
        time(spent),
        longest.sentence()
    ))
}
