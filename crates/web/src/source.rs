//! Whom the page asks.

use observe::Observed;
use serde_json::Value;

/// What server this is.
#[derive(Clone, Debug, Default)]
pub struct About {
    /// The cell's name.
    pub cell: String,
    /// The server's addresses, for people.
    pub server: String,
    /// What the program calls itself.
    pub version: String,
}

/// A running server, as far as the page shows it. Nothing here changes anything.
pub trait Source: Send + Sync {
    /// What server this is.
    fn about(&self) -> About;

    /// What it counts.
    fn observed(&self) -> &dyn Observed;

    /// The name of a volume, if that is known without asking the disk.
    fn volume_name(&self, id: u32) -> Option<String>;

    /// What is known about a volume, with its snapshots; `None` if there is none.
    fn volume(&self, id: u32) -> Option<Value>;

    /// The volumes of the server from this number on, and whether there are more.
    fn volumes(&self, from: u32) -> Value;

    /// Jobs, the latest first, or why they cannot be told.
    fn jobs(&self) -> Result<Value, String>;

    /// Whether a history of probes is configured.
    fn has_probes(&self) -> bool;

    /// What probes found lately, or why that cannot be told.
    fn probes(&self) -> Result<Value, String>;
}
