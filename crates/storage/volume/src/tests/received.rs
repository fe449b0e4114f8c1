//! Tests how long the received part of an interrupted transfer is kept.

use super::support::*;
use crate::{Clock, Space};
use base::UnixTime;
use std::sync::Arc;

const GIB_IN_KIB: u64 = 1 << 20;

/// Returns whether a part survives an expiry on a partition of this size, in GiB.
fn is_kept(total_gib: u64, free_gib: u64) -> bool {
    let (server, _volume) = Server::with_volume(options());
    let clock: Clock = Arc::new(|| UnixTime(1000));
    server.volumes.receive(RW, RW, &clock).unwrap().keep_for_later().unwrap();
    *server.space.lock() = Space { total_kib: total_gib * GIB_IN_KIB, free_kib: free_gib * GIB_IN_KIB };
    server.volumes.expire_received(UnixTime(1000)).unwrap();
    server.volumes.received(RW, partition()).unwrap().is_some()
}

#[test]
fn a_nearly_full_partition_keeps_no_partial_transfer() {
    assert!(is_kept(20, 1));
    assert!(!is_kept(40, 1), "less than a twentieth");
    assert!(is_kept(1000, 4), "4 GiB are enough however large the partition is");
    assert!(!is_kept(1000, 3));
}
