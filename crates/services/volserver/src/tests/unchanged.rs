//! Tests of releases of an unchanged volume to another server, as `vos release` makes them (UV_ReleaseVolume).

use super::network::{Network, Other};
use super::support::{Cell, DOOMED, Disks, LARGE, actor, admin, fid, read, unchanged, write};
use afs_idl::MemoryStream;
use afs_idl::vol::{self, attach_mode, volume_type};
use base::{UnixTime, VolumeId};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use volume::{SetStatus, Volume};

const ID: u32 = 900;
const READ_ONLY: u32 = 902;
/// The temporary clone.
const CLONE: u32 = 903;

/// A read-write volume on one server, and its read-only site on another one.
struct World {
    disks: [Disks; 2],
    cell: Cell,
    site: Arc<Cell>,
    network: Arc<Network>,
}

impl World {
    fn new(files: usize) -> World {
        let disks = [Disks::default(), Disks::default()];
        let (mut cell, site) = (Cell::on(&disks[0]), Arc::new(Cell::on(&disks[1])));
        let network = Arc::new(Network::of_cellars());
        cell.server = cell.server.with_other_servers(Arc::new(Other::new(&site, &network)));
        cell.vos_create(LARGE, "home", ID);
        let world = World { disks, cell, site, network };
        for file in 0..files {
            world.write(&format!("file{file}"), "first");
        }
        world.pass(100);
        world
    }

    fn volume(&self) -> Arc<Volume> {
        self.cell.volumes.get_any_state(VolumeId(ID)).unwrap()
    }

    fn released(&self) -> Arc<Volume> {
        self.site.volumes.get_any_state(VolumeId(READ_ONLY)).unwrap()
    }

    fn write(&self, name: &str, text: &str) {
        write(&self.volume(), self.cell.now(), name, text.repeat(1000).as_bytes());
    }

    fn pass(&self, seconds: u32) {
        self.cell.pass(seconds);
        self.site.pass(seconds);
    }

    fn clone(&self) -> i32 {
        let transaction = self.cell.open(ID, LARGE, attach_mode::BUSY).unwrap();
        let request = vol::CloneVolumeRequest {
            transaction,
            purge_volume_id: 0,
            new_name: "readonly-clone-temp".into(),
            new_type: volume_type::READ_ONLY,
            new_volume_id: CLONE,
        };
        self.cell.server.clone_volume(&admin(), request).unwrap();
        self.cell.end(transaction).unwrap();
        self.cell.open(CLONE, LARGE, attach_mode::BUSY).unwrap()
    }

    /// Opens the site's volume, creating it if necessary; returns the date since which it lacks changes.
    fn open_site(&self) -> (i32, u32) {
        if let Ok(transaction) = self.site.open(READ_ONLY, LARGE, attach_mode::OFFLINE) {
            let request = vol::GetStatusRequest { transaction };
            let status = self.site.server.get_status(&admin(), request).unwrap().status;
            return (transaction, status.update_date - 2);
        }
        let request = vol::CreateVolumeRequest {
            partition: LARGE,
            name: "home.readonly".into(),
            volume_type: volume_type::READ_ONLY,
            parent_id: ID,
            volume_id: READ_ONLY,
        };
        let transaction = self.site.server.create_volume(&admin(), request).unwrap().transaction;
        self.site.set_flags(transaction, DOOMED).unwrap();
        (transaction, 0)
    }

    /// Releases the volume; returns how many streams were sent for it.
    fn release(&self) -> usize {
        self.release_from(None)
    }

    /// Releases the volume, with its changes since a date.
    fn release_from(&self, date: Option<u32>) -> usize {
        self.network.streams();
        let source = self.clone();
        let (transaction, since) = self.open_site();
        let server = vol::DestServer { host: 0x0a00_0001, port: 7005, security_index: 2 };
        let cookie = vol::RestoreCookie {
            name: "home.readonly".into(),
            volume_type: volume_type::READ_ONLY,
            parent_id: ID,
            ..Default::default()
        };
        let request = vol::ForwardMultipleRequest {
            transaction: source,
            from_date: date.unwrap_or(since),
            destinations: vec![vol::Replica { transaction, server }],
            spare: 0,
            cookie,
        };
        assert_eq!(self.cell.server.forward_multiple(&admin(), request).unwrap().results, [0]);
        let made = self.cell.volumes.get_any_state(VolumeId(CLONE)).unwrap().header();
        let request = vol::SetIdsTypesRequest {
            transaction,
            name: "home.readonly".into(),
            volume_type: volume_type::READ_ONLY,
            parent_id: ID,
            clone_id: 0,
            backup_id: 0,
        };
        self.site.server.set_ids_types(&admin(), request).unwrap();
        self.site.set_flags(transaction, 0).unwrap();
        self.site.end(transaction).unwrap();
        self.cell.end(source).unwrap();
        self.cell.vos_delete(CLONE, LARGE);
        let header = self.released().header();
        assert_eq!((header.created, header.updated), (made.created, made.updated), "the dates of the clone");
        assert!(header.in_service && header.name.as_str() == "home.readonly");
        self.network.streams().len()
    }

    /// Returns the number of records of metadata that `work` reads on both servers.
    fn records_read(&self, work: impl FnOnce()) -> usize {
        let records = || self.disks.iter().map(|disks| disks.records.load(Ordering::Relaxed)).sum::<usize>();
        let before = records();
        work();
        records() - before
    }

    fn purge(&self) {
        for cell in [&self.cell, &*self.site] {
            while cell.volumes.purge_step().unwrap() {}
        }
    }

    /// Checks that the site has the read-write volume's files.
    fn check(&self) {
        let (from, to) = (self.volume(), self.released());
        let statuses = |volume: &Volume| {
            let mut found = Vec::new();
            let take = &mut |status: &volume::VnodeStatus| {
                found.push((status.vnode, status.unique, status.data_version, status.mode, status.length));
                true
            };
            volume.vnodes(base::VnodeId(0), take).unwrap();
            found
        };
        assert_eq!(statuses(&from), statuses(&to));
        self.purge();
        self.cell.check();
        self.site.check();
    }
}

#[test]
fn an_unchanged_release_reads_the_same_for_any_number_of_files() {
    let read = [1, 1000].map(|files| {
        let world = World::new(files);
        let first = world.records_read(|| assert_eq!(world.release(), 1));
        assert!(first > files, "{first} records read for the first release of {files} files");
        world.pass(100);
        // The first release has left work to the purgers.
        let unpurged = world.records_read(|| assert_eq!(world.release(), 0));
        world.purge();
        world.pass(100);
        let purged = world.records_read(|| assert_eq!(world.release(), 0));
        assert_eq!(read(&world.released(), "file0"), "first".repeat(1000).as_bytes());
        world.check();
        [unpurged, purged]
    });
    assert_eq!(read[0], read[1], "records read for 1 file and for 1,000 files");
    assert!(read[0].iter().all(|&records| records < 10), "{read:?}");
}

/// Releases a volume, changes something, and releases it again; returns the number of streams of the second release.
fn released_after(change: impl FnOnce(&World)) -> usize {
    let world = World::new(3);
    assert_eq!(world.release(), 1);
    change(&world);
    let sent = world.release();
    world.check();
    assert_eq!(world.released().header().quota_max_kib, world.volume().header().quota_max_kib);
    sent
}

#[test]
fn every_change_is_released() {
    assert_eq!(released_after(|_| {}), 0, "no change");
    assert_eq!(released_after(|world| world.pass(100_000)), 0, "no change for a day");
    assert_eq!(released_after(|world| world.write("file1", "later")), 1, "in the second of the clone");
    let after_a_reset = released_after(|world| {
        world.cell.set_now(UnixTime(world.cell.now().0 - 1000));
        world.write("file1", "later");
    });
    assert_eq!(after_a_reset, 1, "the clock was set back");
    let after_removal = released_after(|world| {
        let volume = world.volume();
        volume.remove_file(&actor(world.cell.now()), volume.root(), b"file1").unwrap();
    });
    assert_eq!(after_removal, 1, "a file was removed");
    let after_chmod = released_after(|world| {
        let volume = world.volume();
        let file = fid(&volume, volume.lookup(volume.root(), b"file1").unwrap());
        let set = SetStatus { mode: Some(0o600), ..SetStatus::default() };
        volume.set_status(&actor(world.cell.now()), file, &set).unwrap();
    });
    assert_eq!(after_chmod, 1, "a mode was changed");
    let after_quota = released_after(|world| {
        let transaction = world.cell.open(ID, LARGE, attach_mode::BUSY).unwrap();
        let info = vol::VolintInfo { max_quota: 9000, ..unchanged() };
        world.cell.server.set_info(&admin(), vol::SetInfoRequest { transaction, info }).unwrap();
        world.cell.end(transaction).unwrap();
    });
    assert_eq!(after_quota, 1, "the quota was changed");
}

#[test]
fn a_site_with_another_name_or_date_is_sent_the_volume() {
    let set = |change: fn(&mut volume::VolumeHeader)| {
        released_after(|world| drop(world.released().update_header(change).unwrap()))
    };
    assert_eq!(set(|header| header.name = "renamed.readonly".parse().unwrap()), 1);
    assert_eq!(set(|header| header.created = UnixTime(header.updated.0 + 2)), 1, "perhaps cloned before");
    assert_eq!(set(|header| header.created = UnixTime(header.created.0 + 1)), 1, "cloned after this clone");
    assert_eq!(set(|header| header.updated = UnixTime(header.updated.0 - 1)), 1);
    assert_eq!(set(|header| header.owner += 1), 1);
}

#[test]
fn everything_is_sent_if_that_is_asked_for() {
    let world = World::new(3);
    assert_eq!([world.release(), world.release_from(Some(0)), world.release()], [1, 1, 0]);
    world.check();
}

#[test]
fn contents_that_were_restored_here_are_sent_until_they_change() {
    let world = World::new(3);
    assert_eq!(world.release(), 1);
    let transaction = world.cell.open(ID, LARGE, attach_mode::OFFLINE).unwrap();
    let mut dump = MemoryStream::default();
    world.cell.server.dump(&admin(), vol::DumpRequest { transaction, from_date: 0 }, &mut dump).unwrap();
    let cookie = vol::RestoreCookie { name: "home".into(), parent_id: ID, ..Default::default() };
    let request = vol::RestoreRequest { transaction, flags: 0, cookie };
    world.cell.server.restore(&admin(), request, &mut MemoryStream::new(&dump.outgoing, 1000)).unwrap();
    world.cell.end(transaction).unwrap();
    assert_eq!([world.release(), world.release()], [1, 1]);
    world.pass(100);
    world.write("file1", "later");
    world.pass(100);
    assert_eq!([world.release(), world.release()], [1, 0]);
    world.check();
}
