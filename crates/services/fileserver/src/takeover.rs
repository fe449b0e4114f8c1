//! The hosts that may hold promises of an earlier owner of a partition, and the removal of hosts from its list.

use crate::hosts::OwedResets;
use crate::server::FileServer;
use base::{Fid, Monotonic, PartitionId};
use callbacks::PROMISE_MAX;
use std::net::SocketAddr;
use std::time::Duration;
use volume::{ListedHost, VolumeError};

impl FileServer {
    /// Requires resets of the hosts in the durable list of a partition. To be called before its volumes are online.
    pub fn owe_resets(&self, hosts: &[ListedHost]) -> OwedResets {
        self.hosts().owe_resets(hosts.iter().map(|host| (host.address, host.uuid)))
    }

    /// Sends the resets, many at a time, and returns when all hosts were reset or have timed out. Calls `done` for
    /// each host at the address in the list, with whether it was reset, from several threads. One that was not is reset
    /// before its next call is executed.
    pub fn send_resets(&self, resets: OwedResets, done: &(dyn Fn(SocketAddr, bool) + Sync)) {
        self.hosts().send_resets(resets, done);
    }

    /// Restores the locks that a partition has recorded. To be called when its volumes are online, before calls about them
    /// are answered. Records of other volumes' files, which were moved or deleted, are deleted.
    pub fn restore_locks(&self, partition: PartitionId, records: Vec<(Fid, i32)>) {
        let is_here = |volume| match self.volumes().get_any_state(volume) {
            Ok(volume) => volume.partition() == partition,
            Err(error) => !matches!(error, VolumeError::NoVolume(_)),
        };
        let (present, gone): (Vec<_>, Vec<_>) = records.into_iter().partition(|(fid, _)| is_here(fid.volume));
        self.locks().restore(self.clock().monotonic(), partition, &present);
        self.volumes().forget_locks(partition, || gone.into_iter().map(|(fid, _)| fid).collect());
    }

    /// Deletes the records of expired locks.
    pub(crate) fn forget_expired_locks(&self, now: Monotonic) {
        let partitions = self.locks().partitions_with_expired(now);
        for partition in partitions {
            self.volumes().forget_locks(partition, || self.locks().take_expired(now, partition));
        }
    }

    /// Removes hosts from the durable lists of partitions that hold no promises any more.
    pub(crate) fn forget_hosts(&self, now: Monotonic) {
        self.volumes().forget_hosts(now, &|hosts| {
            let state = self.hosts().state();
            let may_leave = |(address, idle): &(SocketAddr, Duration)| match state.may_hold(*address) {
                Some(may_hold) => !may_hold,
                // It was removed, perhaps while it did not answer.
                None => *idle >= PROMISE_MAX,
            };
            hosts.iter().map(may_leave).collect()
        });
    }
}
