//! Whether replies about a partition may be sent that another server can take over.

use crate::VolumeError;
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

    /// Whether a reply may be sent that acknowledges a change which was made before: every host that may hold promises of
    /// earlier owners was reset, or does not answer.
    fn may_change(&self) -> bool;

    /// Whether none may be sent any more, because another server has the partition.
    fn has_ended(&self) -> bool;
}

/// What a reply does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ReplyKind {
    /// It shows what was read.
    #[default]
    Read,
    /// It acknowledges a change.
    Change,
}

impl ReplyKind {
    pub(crate) fn is_permitted(self, permit: &dyn Permit) -> bool {
        match self {
            ReplyKind::Read => permit.may_answer(),
            ReplyKind::Change => permit.may_change(),
        }
    }

    /// Returns the error of a call whose reply waited in vain for a commit.
    pub(crate) fn error(self, error: VolumeError) -> VolumeError {
        match (self, error) {
            // The change is another call's.
            (ReplyKind::Read, VolumeError::Store(StoreError::ReadOnly(_))) => VolumeError::Reverting,
            (_, error) => error,
        }
    }

    /// Waits until a reply of this kind may be sent.
    ///
    /// # Errors
    /// `Fenced` if none may be any more; `Unavailable` after [`PATIENCE`].
    pub(crate) fn wait(self, permit: &dyn Permit, partition: PartitionId) -> Result<(), StoreError> {
        let begun = Instant::now();
        while !self.is_permitted(permit) {
            let place = || partition.to_string();
            if permit.has_ended() {
                return Err(StoreError::Fenced { place: place() });
            }
            if begun.elapsed() >= PATIENCE {
                let reason = match self {
                    ReplyKind::Change if permit.may_answer() => "clients of its last owner were not reset",
                    _ => "its lease was not renewed",
                };
                let what = format!("{reason} within {PATIENCE:?}");
                return Err(StoreError::Unavailable { place: place(), what });
            }
            std::thread::sleep(NAP);
        }
        Ok(())
    }
}
