//! Access rights of directories (PRSFS_* in the file service's interface).

use std::fmt;
use std::ops::{BitAnd, BitOr, Not};
use std::str::FromStr;

/// A set of access rights.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Rights(u32);

const LETTERS: [(u32, char); 15] = [
    (1, 'r'),
    (8, 'l'),
    (4, 'i'),
    (16, 'd'),
    (2, 'w'),
    (32, 'k'),
    (64, 'a'),
    (1 << 24, 'A'),
    (1 << 25, 'B'),
    (1 << 26, 'C'),
    (1 << 27, 'D'),
    (1 << 28, 'E'),
    (1 << 29, 'F'),
    (1 << 30, 'G'),
    (1 << 31, 'H'),
];

impl Rights {
    /// No rights.
    pub const NONE: Rights = Rights(0);
    /// Read the data of files.
    pub const READ: Rights = Rights(1);
    /// Change the data and status of files.
    pub const WRITE: Rights = Rights(2);
    /// Add entries.
    pub const INSERT: Rights = Rights(4);
    /// List the directory, read its ACL, search through it.
    pub const LOOKUP: Rights = Rights(8);
    /// Remove entries.
    pub const DELETE: Rights = Rights(16);
    /// Lock files.
    pub const LOCK: Rights = Rights(32);
    /// Change the ACL.
    pub const ADMINISTER: Rights = Rights(64);
    /// All seven standard rights.
    pub const ALL: Rights = Rights(127);
    /// The eight rights that sites define themselves.
    pub const USER_DEFINED: Rights = Rights(0xff00_0000);

    /// Creates rights from wire bits; bits without a meaning are dropped.
    pub fn from_bits(bits: u32) -> Rights {
        Rights(bits & (Rights::ALL.0 | Rights::USER_DEFINED.0))
    }

    /// Returns the wire bits.
    pub fn bits(self) -> u32 {
        self.0
    }

    /// Whether all rights of `wanted` are included.
    pub fn contains(self, wanted: Rights) -> bool {
        self.0 & wanted.0 == wanted.0
    }
}

impl BitOr for Rights {
    type Output = Rights;
    fn bitor(self, other: Rights) -> Rights {
        Rights(self.0 | other.0)
    }
}

impl BitAnd for Rights {
    type Output = Rights;
    fn bitand(self, other: Rights) -> Rights {
        Rights(self.0 & other.0)
    }
}

impl Not for Rights {
    type Output = Rights;
    fn not(self) -> Rights {
        Rights::from_bits(!self.0)
    }
}

impl fmt::Display for Rights {
    /// Formats the rights like `fs listacl`: `rlidwka`, then `A` to `H`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        LETTERS.iter().filter(|(bit, _)| self.0 & bit != 0).try_for_each(|(_, letter)| write!(f, "{letter}"))
    }
}

impl FromStr for Rights {
    type Err = String;

    /// Parses letters as accepted by `fs setacl`, or one of its words `read`, `write`, `all`, `none`.
    fn from_str(text: &str) -> Result<Rights, String> {
        let letters = match text {
            "read" => "rl",
            "write" => "rlidwk",
            "all" => "rlidwka",
            "none" => "",
            letters => letters,
        };
        let bit = |letter: char| LETTERS.iter().find(|(_, known)| *known == letter).map(|(bit, _)| *bit);
        letters.chars().try_fold(Rights::NONE, |rights, letter| match bit(letter) {
            Some(bit) => Ok(rights | Rights(bit)),
            None => {
                Err(format!("`{letter}` in `{text}` is not a right; rights are letters of rlidwkaABCDEFGH"))
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rights_print_in_the_order_of_fs_listacl() {
        assert_eq!(Rights::ALL.to_string(), "rlidwka");
        assert_eq!((Rights::READ | Rights::LOOKUP).to_string(), "rl");
        assert!(!Rights::READ.contains(Rights::READ | Rights::WRITE));
        assert_eq!("rlidwka".parse(), Ok(Rights::ALL));
        assert_eq!("read".parse(), Ok(Rights::READ | Rights::LOOKUP));
        assert!("rx".parse::<Rights>().unwrap_err().contains("`x`"));
        assert_eq!(!Rights::READ & Rights::ALL, Rights::from_bits(126));
    }
}
