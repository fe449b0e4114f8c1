//! Totals of directories: counting them, and reading them with recent changes.

pub(crate) mod counter;
pub(crate) mod reader;
