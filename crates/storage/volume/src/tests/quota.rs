//! Tests quotas to the block. A block is 1 KiB; every vnode takes at least one, a directory two.

use super::support::*;
use crate::{Volume, VolumeError, VolumeOptions};
use base::{AbortCode, Fid, VolumeId};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

/// Creates a volume with this quota; the root directory takes two blocks.
fn volume(quota_kib: u64, options: VolumeOptions) -> (Server, Arc<Volume>) {
    let (server, volume) = Server::with_volume(options);
    volume.update_header(|header| header.quota_max_kib = quota_kib).unwrap();
    (server, volume)
}

fn create(volume: &Volume, directory: Fid, name: &str) -> Result<Fid, VolumeError> {
    let created = volume.create_file(&actor(1), directory, name.as_bytes(), &nothing());
    created.map(|created| created.status.fid(volume.id()))
}

fn used(volume: &Volume) -> u64 {
    let used = volume.header().used_kib;
    assert_eq!(volume.totals(volume.root()).unwrap().kib, used);
    used
}

#[test]
fn a_volume_can_be_filled_to_the_last_block_and_no_further() {
    let (_server, volume) = volume(10, options());
    let fid = create(&volume, volume.root(), "file").unwrap();
    assert_eq!(code(store_at(&volume, fid, 0, &[1; 8 * 1024 + 1], 0)), AbortCode::VOVERQUOTA);
    assert_eq!((used(&volume), volume.status(fid).unwrap().length), (3, 0), "nothing of it was stored");
    store_at(&volume, fid, 0, &[1; 8 * 1024], 0).unwrap();
    assert_eq!(used(&volume), 10);
    assert_eq!(code(create(&volume, volume.root(), "more")), AbortCode::VOVERQUOTA);
    let link = volume.create_symlink(&actor(1), volume.root(), b"link", b"file", &nothing());
    assert_eq!(code(link), AbortCode::VOVERQUOTA);
    assert_eq!(code(store_at(&volume, fid, 8 * 1024, b"x", u64::MAX)), AbortCode::VOVERQUOTA);
    store_at(&volume, fid, 0, &[2; 8 * 1024], u64::MAX).expect("overwriting takes no more");
    volume.link(&actor(1), volume.root(), b"name", fid).expect("another name takes no block");
    volume.rename(&actor(1), volume.root(), b"name", volume.root(), b"other").expect("nor does a rename");
    volume.set_status(&actor(1), fid, &nothing()).expect("nor a status");
    assert_eq!(used(&volume), 10);
}

#[test]
fn truncated_and_removed_space_is_reusable() {
    let (_server, volume) = volume(10, options());
    let root = volume.root();
    let fid = create(&volume, root, "file").unwrap();
    store_at(&volume, fid, 0, &[1; 8 * 1024], 0).unwrap();
    store_at(&volume, fid, 0, &[], 1025).unwrap();
    assert_eq!(used(&volume), 4);
    volume.make_directory(&actor(1), root, b"directory", &nothing()).unwrap();
    for number in 0..4 {
        create(&volume, root, &format!("{number}")).unwrap();
    }
    assert_eq!(code(create(&volume, root, "4")), AbortCode::VOVERQUOTA);
    volume.link(&actor(1), root, b"name", fid).unwrap();
    volume.remove_file(&actor(1), root, b"file").unwrap();
    assert_eq!(code(create(&volume, root, "4")), AbortCode::VOVERQUOTA, "it has another name");
    volume.remove_file(&actor(1), root, b"name").unwrap();
    volume.make_directory(&actor(1), root, b"d", &nothing()).unwrap();
    assert_eq!(used(&volume), 10);
    volume.rename(&actor(1), root, b"0", root, b"1").unwrap();
    assert_eq!(used(&volume), 9, "what was replaced is gone");
    assert_eq!(code(volume.make_directory(&actor(1), root, b"e", &nothing())), AbortCode::VOVERQUOTA);
    create(&volume, root, "5").unwrap();
}

#[test]
fn a_hole_counts_and_a_smaller_quota_stops_growth_only() {
    let (_server, volume) = volume(100, options());
    let fid = create(&volume, volume.root(), "file").unwrap();
    assert_eq!(code(store_at(&volume, fid, 98 * 1024, b"x", u64::MAX)), AbortCode::VOVERQUOTA);
    store_at(&volume, fid, 98 * 1024 - 1, b"x", u64::MAX).unwrap();
    assert_eq!(used(&volume), 100);
    volume.update_header(|header| header.quota_max_kib = 20).unwrap();
    store_at(&volume, fid, 50, b"in the middle", u64::MAX).unwrap();
    assert_eq!(code(create(&volume, volume.root(), "more")), AbortCode::VOVERQUOTA);
    store_at(&volume, fid, 0, &[], 30 * 1024).expect("cutting is allowed above the quota too");
    assert_eq!(used(&volume), 32);
    volume.update_header(|header| header.quota_max_kib = 0).unwrap();
    create(&volume, volume.root(), "more").expect("no quota");
}

#[test]
fn the_spare_is_for_stores_alone() {
    let (_server, volume) = volume(10, VolumeOptions { spare_kib: 5, ..options() });
    let fid = create(&volume, volume.root(), "file").unwrap();
    assert_eq!(code(store_at(&volume, fid, 0, &[1; 13 * 1024 + 1], 0)), AbortCode::VOVERQUOTA);
    store_at(&volume, fid, 0, &[1; 13 * 1024], 0).unwrap();
    assert_eq!(used(&volume), 15);
    assert_eq!(code(create(&volume, volume.root(), "more")), AbortCode::VOVERQUOTA);
}

#[test]
fn full_partitions_and_full_volumes_differ() {
    let (server, volume) = volume(100, options());
    let fid = create(&volume, volume.root(), "file").unwrap();
    server.space.lock().free_kib = 3;
    assert_eq!(code(store_at(&volume, fid, 0, &[1; 5 * 1024], 0)), AbortCode::VDISKFULL);
    assert_eq!(code(store_at(&volume, fid, 0, &vec![1; 200 * 1024], 0)), AbortCode::VDISKFULL);
    store_at(&volume, fid, 0, &[1; 4 * 1024], 0).unwrap();
    server.space.lock().free_kib = 1000;
    assert_eq!(code(store_at(&volume, fid, 0, &vec![1; 200 * 1024], 0)), AbortCode::VOVERQUOTA);
}

#[test]
fn concurrent_writers_never_exceed_the_quota() {
    const QUOTA: u64 = 300;
    let (server, volume) = volume(QUOTA, options());
    let refused = AtomicU64::new(0);
    thread::scope(|scope| {
        for writer in 0..4u64 {
            let (volume, refused) = (&volume, &refused);
            scope.spawn(move || {
                for round in 0..200 {
                    if write(volume, writer, round).is_err_and(|error| is_over_quota(&error)) {
                        refused.fetch_add(1, Ordering::Relaxed);
                    }
                    assert!(volume.header().used_kib <= QUOTA);
                }
            });
        }
    });
    assert!(refused.load(Ordering::Relaxed) > 0, "the quota was never reached");
    assert!(used(&volume) > QUOTA - 20, "hardly anything was stored");
    drop(server);
}

fn write(volume: &Volume, writer: u64, round: u64) -> Result<(), VolumeError> {
    let name = format!("{writer}.{round}");
    let fid = create(volume, volume.root(), &name)?;
    store_at(volume, fid, 0, &vec![1; (round * 977 % 9000) as usize], 0)?;
    if round % 5 == 4 {
        volume.remove_file(&actor(1), volume.root(), name.as_bytes())?;
    }
    Ok(())
}

fn is_over_quota(error: &VolumeError) -> bool {
    matches!(error, VolumeError::OverQuota { .. })
}

#[test]
fn a_clone_takes_nothing_of_the_quota() {
    let (server, volume) = volume(10, options());
    let fid = create(&volume, volume.root(), "file").unwrap();
    store_at(&volume, fid, 0, &[1; 8 * 1024], 0).unwrap();
    let clone = server.clone_rw(77);
    store_at(&volume, fid, 0, &[2; 8 * 1024], 0).unwrap();
    assert_eq!((used(&volume), used(&clone), clone.id()), (10, 10, VolumeId(77)));
}
