//! Changes of vnodes and directories, each one transaction.

pub(crate) mod attributes;
pub(crate) mod entries;
pub(crate) mod file_data;
pub(crate) mod quota;
pub(crate) mod rename;
pub(crate) mod results;
pub(crate) mod totals;
pub(crate) mod transaction;
