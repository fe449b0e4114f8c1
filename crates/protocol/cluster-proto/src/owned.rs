//! What nodes own.

use base::PartitionId;
use std::fmt;
use std::str::FromStr;

/// Number of the databases where partitions are numbered.
const DATABASES_INDEX: u32 = u32::MAX;

/// Name of the databases where partitions are named.
const DATABASES: &str = "databases";

/// Something that one node of a cluster owns at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Owned {
    /// A partition.
    Partition(PartitionId),
    /// The cell's databases, which are in the bucket like a partition.
    Databases,
}

impl Owned {
    /// Returns what has a number in requests: 0 is `/vicepa`, 4294967295 the databases. `None` for other numbers above 255.
    pub fn from_index(index: u32) -> Option<Owned> {
        match index {
            DATABASES_INDEX => Some(Owned::Databases),
            _ => PartitionId::from_index(index).map(Owned::Partition),
        }
    }

    /// Returns the number for [`from_index`](Self::from_index).
    pub fn index(self) -> u32 {
        match self {
            Owned::Partition(partition) => partition.index(),
            Owned::Databases => DATABASES_INDEX,
        }
    }
}

impl FromStr for Owned {
    type Err = String;

    /// Parses `databases`, or a partition, like `b` or `/vicepb`.
    fn from_str(text: &str) -> Result<Owned, String> {
        if text == DATABASES {
            return Ok(Owned::Databases);
        }
        text.parse().map(Owned::Partition).map_err(|error: String| format!("{error}, and `{DATABASES}`"))
    }
}

impl fmt::Display for Owned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Owned::Partition(partition) => partition.fmt(f),
            Owned::Databases => f.write_str(DATABASES),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_and_databases_have_names_and_numbers() {
        let partition = Owned::Partition(PartitionId::from_index(1).unwrap());
        for (owned, name, index) in [(partition, "/vicepb", 1), (Owned::Databases, "databases", u32::MAX)] {
            assert_eq!(name.parse(), Ok(owned));
            assert_eq!(owned.to_string(), name);
            assert_eq!(owned.index(), index);
            assert_eq!(Owned::from_index(index), Some(owned));
        }
        assert_eq!("b".parse(), Ok(partition));
        for text in ["", "database", "Databases", "/vicepdatabases", "7"] {
            let error = text.parse::<Owned>().unwrap_err();
            assert!(error.ends_with("valid are /vicepa to /vicepiv, and `databases`"), "{error}");
        }
        for index in [256, u32::MAX - 1] {
            assert_eq!(Owned::from_index(index), None, "{index}");
        }
    }
}
