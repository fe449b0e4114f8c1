//! Reading of files, of the statuses of many vnodes, and of all records of a partition.

pub(crate) mod bulk_status;
pub(crate) mod partition_reader;
pub(crate) mod reader;
mod small_files;
