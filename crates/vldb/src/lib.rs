//! The volume location database.
