//! The protection service (PR).
