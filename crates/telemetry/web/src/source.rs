//! Where the page gets its data.

use observe::Observed;
use serde_json::Value;

/// Identity of the server.
#[derive(Clone, Debug, Default)]
pub struct About {
    /// Name of the cell.
    pub cell: String,
    /// Addresses of the server, for display.
    pub server: String,
    /// Name and version of the program.
    pub version: String,
}

/// A running server, as far as the page shows it. All methods are read-only.
pub trait Source: Send + Sync {
    /// Returns the identity of the server.
    fn about(&self) -> About;

    /// Returns its figures.
    fn observed(&self) -> &dyn Observed;

    /// Returns the name of a volume, if it is known without a disk access.
    fn volume_name(&self, id: u32) -> Option<String>;

    /// Describes a volume and its snapshots; `None` if it does not exist.
    fn volume(&self, id: u32) -> Option<Value>;

    /// Lists the server's volumes from this number on, and whether there are more.
    fn volumes(&self, from: u32) -> Value;

    /// Lists jobs, the latest first; the error explains why they are not available.
    fn jobs(&self) -> Result<Value, String>;

    /// Whether a history of probes is configured.
    fn has_probes(&self) -> bool;

    /// Returns recent results of probes; the error explains why they are not available.
    fn probes(&self) -> Result<Value, String>;
}
