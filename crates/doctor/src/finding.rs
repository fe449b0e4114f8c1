//! What a rule says.

/// Findings of this weight and more: users cannot work, or data is in danger.
pub const CRITICAL: u8 = 80;

/// Findings of this weight and more: users notice.
pub const SERIOUS: u8 = 40;

/// A problem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Its short name, which stays the same: for scripts.
    pub problem: &'static str,
    /// How bad it is: 1 to 100.
    pub weight: u8,
    /// What it is, in a sentence.
    pub what: String,
    /// The numbers that show it.
    pub evidence: Vec<String>,
    /// Why it happens.
    pub cause: String,
    /// What helps.
    pub remedy: String,
}

impl Finding {
    /// The weight in a word.
    pub fn severity(&self) -> &'static str {
        match self.weight {
            CRITICAL.. => "critical",
            SERIOUS.. => "serious",
            _ => "notice",
        }
    }
}
