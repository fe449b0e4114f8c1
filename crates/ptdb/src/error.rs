//! What can go wrong, whose fault it is, and the wire code for it.

use base::{AbortCode, UserId};
use store::StoreError;
use thiserror::Error;

/// A protection database operation that did not happen; nothing was changed.
#[derive(Debug, Error)]
pub enum ProtectionError {
    /// The name is taken.
    #[error("the name `{0}` is taken")]
    NameExists(String),
    /// The id is taken.
    #[error("the id {} is taken", .0.0)]
    IdExists(UserId),
    /// No free id was found.
    #[error("no free id")]
    NoIds,
    /// There is no entry with this id.
    #[error("there is no entry with id {}", .0.0)]
    NoEntry(UserId),
    /// The element is not in the list that it is to be taken from.
    #[error("{} is not in the list of {}", .element.0, .holder.0)]
    NoElement {
        /// Whose list.
        holder: UserId,
        /// What is not in it.
        element: UserId,
    },
    /// The caller may not do this.
    #[error("not permitted")]
    NotPermitted,
    /// A group is needed here.
    #[error("{} is not a group", .0.0)]
    NotGroup(UserId),
    /// The name breaks a rule for names.
    #[error("`{0}` is not allowed as a name here")]
    BadName(String),
    /// Another argument makes no sense.
    #[error("bad argument: {0}")]
    BadArgument(&'static str),
    /// The creator's group quota, or the cell's quota of foreign users, is used up.
    #[error("the quota of {} is used up", .0.0)]
    QuotaExceeded(UserId),
    /// A group without members can own no groups.
    #[error("the owning group {} is empty", .0.0)]
    GroupEmpty(UserId),
    /// An entry would be in its own list, or the id is one that no entry can have.
    #[error("{} cannot be related to itself", .0.0)]
    Inconsistent(UserId),
    /// Another database can only be taken over by one that has no entries of its own.
    #[error("the database has entries already")]
    NotNew,
    /// The answer would be longer than the protocol allows.
    #[error("more than {0} elements")]
    TooMany(usize),
    /// A stored record is not what this version writes.
    #[error("damaged protection record: {0}")]
    Damaged(String),
    /// The store refused.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl ProtectionError {
    /// The wire code (pterror.et).
    pub fn abort_code(&self) -> AbortCode {
        match self {
            ProtectionError::NameExists(_) => AbortCode::PREXIST,
            ProtectionError::IdExists(_) | ProtectionError::NotNew => AbortCode::PRIDEXIST,
            ProtectionError::NoIds => AbortCode::PRNOIDS,
            ProtectionError::NoEntry(_) | ProtectionError::NoElement { .. } => AbortCode::PRNOENT,
            ProtectionError::NotPermitted => AbortCode::PRPERM,
            ProtectionError::NotGroup(_) => AbortCode::PRNOTGROUP,
            ProtectionError::BadName(_) => AbortCode::PRBADNAM,
            ProtectionError::BadArgument(_) => AbortCode::PRBADARG,
            ProtectionError::QuotaExceeded(_) => AbortCode::PRNOMORE,
            ProtectionError::GroupEmpty(_) => AbortCode::PRGROUPEMPTY,
            ProtectionError::Inconsistent(_) => AbortCode::PRINCONSISTENT,
            ProtectionError::TooMany(_) => AbortCode::PRTOOMANY,
            ProtectionError::Damaged(_) => AbortCode::PRDBBAD,
            ProtectionError::Store(_) => AbortCode::PRDBFAIL,
        }
    }
}

/// A name as it goes into a message.
pub(crate) fn shown(name: &[u8]) -> String {
    String::from_utf8_lossy(name).into_owned()
}
