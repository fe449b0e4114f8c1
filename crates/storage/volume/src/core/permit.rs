//! Whether replies about a partition may be sent that another server can take over.

use base::PartitionId;
use std::time::{Duration, Instant};
use store::StoreError;

/// How long a reply waits for its permit.
const PATIENCE: Duration = Duration::from_secs(20);

/// Interval at which it asks again.
const NAP: Duration = Duration::from_millis(10);

/// Whether this server may answer for a partition. Volumes answer some reads from memory, without their stores, so replies
/// ask for it, too; see [`Volumes::limit`](crate::Volumes::limit).
pub trait Permit: Send + Sync {
    /// Whether a reply may be sent that shows a state which was read before.
    fn may_answer(&self) -> bool;

    /// Whether none may be sent any more, because another server has the partition.
    fn has_ended(&self) -> bool;
}

/// Waits until a reply may be sent.
///
/// # Errors
/// `Fenced` if none may be any more; `Unavailable` after [`PATIENCE`].
pub(crate) fn wait(permit: &dyn Permit, partition: PartitionId) -> Result<(), StoreError> {
    let begun = Instant::now();
    while !permit.may_answer() {
        let place = || partition.to_string();
        if permit.has_ended() {
            return Err(StoreError::Fenced { place: place() });
        }
        if begun.elapsed() >= PATIENCE {
            let what = format!("its lease was not renewed within {PATIENCE:?}");
            return Err(StoreError::Unavailable { place: place(), what });
        }
        std::thread::sleep(NAP);
    }
    Ok(())
}
