//! Reading of files and of the statuses of many vnodes.

pub(crate) mod bulk_status;
pub(crate) mod reader;
mod small_files;
