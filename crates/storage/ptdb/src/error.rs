//! Errors of the protection database, and their wire codes.

use base::{AbortCode, UserId};
use store::StoreError;
use thiserror::Error;

/// Reason why an operation failed; nothing was changed.
#[derive(Debug, Error)]
pub enum ProtectionError {
    /// The name is in use.
    #[error("the name `{0}` is taken")]
    NameExists(String),
    /// The id is in use.
    #[error("the id {} is taken", .0.0)]
    IdExists(UserId),
    /// No free id was found.
    #[error("no free id")]
    NoIds,
    /// No entry has this id.
    #[error("there is no entry with id {}", .0.0)]
    NoEntry(UserId),
    /// The element to remove is not in the list.
    #[error("{} is not in the list of {}", .element.0, .holder.0)]
    NoElement {
        /// The entry that the list belongs to.
        holder: UserId,
        /// The missing element.
        element: UserId,
    },
    /// The caller lacks the right for this operation.
    #[error("not permitted")]
    NotPermitted,
    /// The operation needs a group.
    #[error("{} is not a group", .0.0)]
    NotGroup(UserId),
    /// The name violates a rule for names.
    #[error("`{0}` is not allowed as a name here")]
    BadName(String),
    /// Another argument is invalid.
    #[error("bad argument: {0}")]
    BadArgument(&'static str),
    /// The creator's group quota, or the cell's quota of foreign users, is used up.
    #[error("the quota of {} is used up", .0.0)]
    QuotaExceeded(UserId),
    /// A group without members cannot own groups.
    #[error("the owning group {} is empty", .0.0)]
    GroupEmpty(UserId),
    /// An entry would be in its own list, or the id can never belong to an entry.
    #[error("{} cannot be related to itself", .0.0)]
    Inconsistent(UserId),
    /// An import needs a database without entries other than the built-in ones.
    #[error("the database has entries already")]
    NotNew,
    /// The reply would exceed the protocol's limit.
    #[error("more than {0} elements")]
    TooMany(usize),
    /// A stored record is not in the format that this version writes.
    #[error("damaged protection record: {0}")]
    Damaged(String),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl ProtectionError {
    /// Returns the abort code (pterror.et).
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

/// Formats a name for a message.
pub(crate) fn shown(name: &[u8]) -> String {
    base::text::escape(name)
}
