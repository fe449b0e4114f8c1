//! The result of a rule.

/// Minimum weight of critical findings: users cannot work, or data is at risk.
pub const CRITICAL: u8 = 80;

/// Minimum weight of serious findings: users notice the problem.
pub const SERIOUS: u8 = 40;

/// A problem found by a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Stable short name, for scripts.
    pub problem: &'static str,
    /// Severity from 1 to 100.
    pub weight: u8,
    /// Description in one sentence.
    pub what: String,
    /// Figures that demonstrate the problem.
    pub evidence: Vec<String>,
    /// Cause of the problem.
    pub cause: String,
    /// Recommended action.
    pub remedy: String,
}

impl Finding {
    /// Returns the severity as a word.
    pub fn severity(&self) -> &'static str {
        match self.weight {
            CRITICAL.. => "critical",
            SERIOUS.. => "serious",
            _ => "notice",
        }
    }
}
