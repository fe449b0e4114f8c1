//! What callers give to volumes and get from them: options, partitions, sources of data, parameters and
//! results, errors.

pub(crate) mod error;
pub(crate) mod options;
pub(crate) mod partition;
pub(crate) mod requests;
pub(crate) mod source;
