//! Records of a volume in the metadata: keys, encodings, versions, and the values that they hold.

pub(crate) mod codec;
pub(crate) mod epochs;
pub(crate) mod error;
pub mod families;
pub(crate) mod header;
pub(crate) mod keys;
pub(crate) mod options;
pub(crate) mod partition;
pub(crate) mod past;
pub mod policy;
pub mod quota;
pub(crate) mod read_view;
pub(crate) mod receipt;
pub(crate) mod rows;
pub(crate) mod source;
pub(crate) mod splitting;
pub(crate) mod status;
pub(crate) mod totals;
pub(crate) mod usage;
