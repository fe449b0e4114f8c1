//! Restoration of volumes from dumps, also resumed and over existing contents, and splits of volumes.

pub(crate) mod continuation;
pub(crate) mod importing;
pub(crate) mod overlay;
pub(crate) mod receipts;
pub(crate) mod restoration;
pub(crate) mod split;
