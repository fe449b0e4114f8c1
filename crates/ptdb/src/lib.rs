//! The protection database.
