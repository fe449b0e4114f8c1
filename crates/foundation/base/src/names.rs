//! Names that are valid by construction.

use std::fmt;
use std::str::FromStr;
use thiserror::Error;

/// Reason why a text is not a valid name.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum NameError {
    /// The text is empty.
    #[error("the {kind} is empty")]
    Empty {
        /// Kind of name.
        kind: &'static str,
    },
    /// The text is too long.
    #[error("the {kind} `{text}` has {got} bytes; at most {most} are allowed")]
    TooLong {
        /// Kind of name.
        kind: &'static str,
        /// Text given.
        text: String,
        /// Its length in bytes.
        got: usize,
        /// Maximum length in bytes.
        most: usize,
    },
    /// The text contains an invalid character.
    #[error("the {kind} `{text}` has the character {character:?}; {allowed}")]
    Character {
        /// Kind of name.
        kind: &'static str,
        /// Text given.
        text: String,
        /// First invalid character.
        character: char,
        /// Description of the valid characters.
        allowed: &'static str,
    },
    /// The text has only digits and would be taken for a number.
    #[error("the {kind} `{text}` is all digits and would be taken for a number")]
    Number {
        /// Kind of name.
        kind: &'static str,
        /// Text given.
        text: String,
    },
}

fn check(
    kind: &'static str,
    text: &str,
    most: usize,
    allowed: &'static str,
    is_allowed: impl Fn(char) -> bool,
) -> Result<(), NameError> {
    if text.is_empty() {
        return Err(NameError::Empty { kind });
    }
    if text.len() > most {
        return Err(NameError::TooLong { kind, text: text.into(), got: text.len(), most });
    }
    match text.chars().find(|&c| !is_allowed(c)) {
        Some(character) => Err(NameError::Character { kind, text: text.into(), character, allowed }),
        None => Ok(()),
    }
}

/// A volume's name: 1 to 31 bytes of letters, digits, `.`, `-` and `_`, but not only digits
/// (VOLSER_MAXVOLNAME without its NUL; the characters are those that `vos create` accepts).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VolumeName(String);

impl VolumeName {
    /// Maximum length in bytes.
    pub const LENGTH_BYTES_MAX: usize = 31;

    /// Returns the name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for VolumeName {
    type Err = NameError;

    fn from_str(text: &str) -> Result<VolumeName, NameError> {
        let kind = "volume name";
        check(
            kind,
            text,
            VolumeName::LENGTH_BYTES_MAX,
            "letters, digits, `.`, `-` and `_` are allowed",
            |c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_'),
        )?;
        if text.bytes().all(|b| b.is_ascii_digit()) {
            return Err(NameError::Number { kind, text: text.into() });
        }
        Ok(VolumeName(text.into()))
    }
}

impl fmt::Display for VolumeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A snapshot's name: 1 to 64 bytes of letters, digits, `.`, `-` and `_`, but not only digits.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SnapshotName(String);

impl SnapshotName {
    /// Maximum length in bytes.
    pub const LENGTH_BYTES_MAX: usize = 64;

    /// Returns the name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for SnapshotName {
    type Err = NameError;

    fn from_str(text: &str) -> Result<SnapshotName, NameError> {
        let kind = "snapshot name";
        let allowed = "letters, digits, `.`, `-` and `_` are allowed";
        check(kind, text, SnapshotName::LENGTH_BYTES_MAX, allowed, |c| {
            c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_')
        })?;
        if text.bytes().all(|b| b.is_ascii_digit()) {
            return Err(NameError::Number { kind, text: text.into() });
        }
        Ok(SnapshotName(text.into()))
    }
}

impl fmt::Display for SnapshotName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A cell's name: a domain name of at most 63 bytes, stored in lower case.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CellName(String);

impl CellName {
    /// Returns the name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the cell's default Kerberos realm, which krb.conf may override.
    pub fn default_realm(&self) -> String {
        self.0.to_ascii_uppercase()
    }
}

impl FromStr for CellName {
    type Err = NameError;

    fn from_str(text: &str) -> Result<CellName, NameError> {
        check("cell name", text, 63, "letters, digits, `.`, `-` and `_` are allowed", |c| {
            c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_')
        })?;
        Ok(CellName(text.to_ascii_lowercase()))
    }
}

impl fmt::Display for CellName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_name_that_vos_would_refuse_is_refused() {
        assert!("root.cell".parse::<VolumeName>().is_ok());
        assert!("a".repeat(31).parse::<VolumeName>().is_ok());
        assert!(matches!("a".repeat(32).parse::<VolumeName>(), Err(NameError::TooLong { got: 32, .. })));
        assert!(matches!("536870912".parse::<VolumeName>(), Err(NameError::Number { .. })));
        assert!(matches!("a b".parse::<VolumeName>(), Err(NameError::Character { character: ' ', .. })));
        assert!(matches!("".parse::<VolumeName>(), Err(NameError::Empty { .. })));
    }

    #[test]
    fn a_snapshot_name_may_be_longer() {
        assert!("before-the-upgrade".parse::<SnapshotName>().is_ok());
        assert!("a".repeat(64).parse::<SnapshotName>().is_ok());
        assert!(matches!("a".repeat(65).parse::<SnapshotName>(), Err(NameError::TooLong { got: 65, .. })));
        assert!(matches!("a/b".parse::<SnapshotName>(), Err(NameError::Character { character: '/', .. })));
        assert!(matches!("7".parse::<SnapshotName>(), Err(NameError::Number { .. })));
    }

    #[test]
    fn a_cell_name_is_kept_in_lower_case() {
        let cell: CellName = "Example.ORG".parse().unwrap();
        assert_eq!(cell.as_str(), "example.org");
        assert_eq!(cell.default_realm(), "EXAMPLE.ORG");
    }
}
