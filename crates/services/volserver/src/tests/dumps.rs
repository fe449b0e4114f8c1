use super::support::{Cell, LARGE, START, actor, admin, anybody, fid, read, write};
use afs_format::acl::{Acl, AclEntry};
use afs_idl::MemoryStream;
use afs_idl::vol::{self, attach_mode, volume_flags, volume_state};
use base::{AbortCode, Rights, UnixTime, UserId, VnodeId, VolumeId, VolumeType};
use std::sync::Arc;
use volume::{SetStatus, Volume};

const RW: u32 = 536_870_915;
const RO: u32 = 536_870_916;
const BK: u32 = 536_870_917;
const ENOENT: AbortCode = AbortCode(2);
const EXDEV: AbortCode = AbortCode(18);
const ENODEV: AbortCode = AbortCode(19);

/// `vos dump` of a volume by OpenAFS 1.8.9.
const FULL: &[u8] = include_bytes!("../../../../protocol/afs-format/testdata/dump/full");
/// Changes of that volume after the full dump.
const INCREMENTAL: &[u8] = include_bytes!("../../../../protocol/afs-format/testdata/dump/incremental");

/// Returns the entries of the root directory with their contents.
fn tree(volume: &Arc<Volume>) -> Vec<(String, Vec<u8>)> {
    let mut names = Vec::new();
    volume.entries(volume.root(), &mut |name, found| names.push((name.to_vec(), found))).unwrap();
    let read = |(name, found): (Vec<u8>, volume::Found)| {
        (String::from_utf8(name).unwrap(), volume.read(fid(volume, found), 0, 1 << 24).unwrap().1.concat())
    };
    names.into_iter().filter(|(name, _)| !name.starts_with(b".")).map(read).collect()
}

fn fill(volume: &Volume) {
    write(volume, UnixTime(START), "small", b"hello");
    write(volume, UnixTime(START), "large", &vec![b'x'; 700_000]);
    write(volume, UnixTime(START), "hole", &vec![0; 300_000]);
    let root = volume.root();
    let made = volume.make_directory(&actor(UnixTime(START)), root, b"sub", &SetStatus::default()).unwrap();
    let entry = |id, bits| AclEntry { id: UserId(id), rights: Rights::from_bits(bits) };
    let acl = Acl::new(&[entry(-204, 0x7f), entry(3, 1)], &[entry(4, 8), entry(5, 2)]).unwrap();
    volume.set_acl(&actor(UnixTime(START)), made.status.fid(volume.id()), acl).unwrap();
    volume.create_symlink(&actor(UnixTime(START)), root, b"link", b"small", &SetStatus::default()).unwrap();
}

struct Site {
    cell: Cell,
}

impl Site {
    fn new() -> Site {
        let cell = Cell::new();
        cell.vos_create(LARGE, "home", RW);
        fill(&cell.volumes.get(VolumeId(RW)).unwrap());
        Site { cell }
    }

    fn volume(&self, id: u32) -> Arc<Volume> {
        self.cell.volumes.get_any_state(VolumeId(id)).unwrap()
    }

    /// Runs `work` within a transaction.
    fn within<T>(&self, id: u32, flags: i32, work: impl FnOnce(i32) -> T) -> T {
        let transaction = self.cell.open(id, LARGE, flags).unwrap();
        let result = work(transaction);
        self.cell.end(transaction).unwrap();
        result
    }

    fn clone(&self, transaction: i32, id: u32, new_type: i32, name: &str) -> Result<(), AbortCode> {
        let request = vol::CloneVolumeRequest {
            transaction,
            purge_volume_id: 0,
            new_type,
            new_name: name.into(),
            new_volume_id: id,
        };
        self.cell.server.clone_volume(&admin(), request).map(|reply| assert_eq!(reply.new_volume_id, id))
    }

    /// Clones as `vos clone` and `vos release` do.
    fn clone_into_service(&self, id: u32, kind: i32, name: &str) {
        self.within(RW, attach_mode::BUSY, |transaction| self.clone(transaction, id, kind, name).unwrap());
        assert!(self.cell.list(LARGE).iter().all(|entry| entry.volume_id != id), "not finished");
        self.within(id, attach_mode::OFFLINE, |transaction| self.cell.set_flags(transaction, 0).unwrap());
    }

    fn reclone(&self, id: u32) -> Result<(), AbortCode> {
        self.within(RW, attach_mode::BUSY, |transaction| {
            let request = vol::ReCloneRequest { transaction, clone_id: id };
            self.cell.server.re_clone(&admin(), request).map(drop)
        })
    }

    fn dump(&self, id: u32, since: u32, flags: i32) -> Vec<u8> {
        let (dump, size) = self.within(id, attach_mode::BUSY, |transaction| {
            let mut stream = MemoryStream::default();
            let request = vol::DumpV2Request { transaction, from_date: since, flags };
            self.cell.server.dump_v2(&admin(), request, &mut stream).unwrap();
            let request = vol::GetSizeRequest { transaction, from_date: since };
            (stream.outgoing, self.cell.server.get_size(&admin(), request).unwrap().size.dump_size)
        });
        if flags == 0 {
            assert_eq!(size, dump.len() as u64);
        }
        dump
    }

    fn restore(&self, transaction: i32, name: &str, dump: &[u8]) -> Result<(), AbortCode> {
        let cookie = vol::RestoreCookie { name: name.into(), ..Default::default() };
        let request = vol::RestoreRequest { transaction, flags: 0, cookie };
        let mut stream = MemoryStream::new(dump, 1000);
        self.cell.server.restore(&admin(), request, &mut stream).map(drop)
    }

    fn restore_new(&self, id: u32, name: &str, dump: &[u8]) -> Result<(), AbortCode> {
        let transaction = self.cell.create(LARGE, name, id, id).unwrap();
        let result = self.restore(transaction, name, dump);
        if result.is_ok() {
            self.cell.set_flags(transaction, 0).unwrap();
        }
        self.cell.end(transaction).unwrap();
        result
    }
}

/// Returns a dump from its first vnode on, without the parts that a restore changes.
fn vnodes(dump: &[u8]) -> &[u8] {
    let first = dump.windows(10).position(|bytes| bytes == [3, 0, 0, 0, 1, 0, 0, 0, 1, b't']);
    &dump[first.unwrap()..]
}

#[test]
fn a_dump_restored_and_dumped_again_is_the_same() {
    let site = Site::new();
    let dump = site.dump(RW, 0, 0);
    assert_eq!(site.restore_new(900, "copy", &dump), Ok(()));
    let (original, copy) = (site.volume(RW), site.volume(900));
    assert_eq!(tree(&original), tree(&copy));
    assert_eq!(vnodes(&dump), vnodes(&site.dump(900, 0, 0)));
    let (left, right) = (original.header(), copy.header());
    assert_eq!(
        (left.used_kib, left.file_count, left.directory_count),
        (right.used_kib, right.file_count, right.directory_count)
    );
    assert_eq!((right.name.as_str(), right.kind, right.destroy_me), ("copy", VolumeType::ReadWrite, 0));
    assert_eq!(site.cell.file_service(900), None);
    write(&copy, UnixTime(START), "after", b"it can be written to");
    assert_eq!(tree(&copy).len(), tree(&original).len() + 1);
    site.cell.check();
}

#[test]
fn a_dump_of_openafs_is_restored_and_dumped_equivalent() {
    let site = Site::new();
    assert_eq!(site.restore_new(900, "theirs", FULL), Ok(()));
    assert_eq!(vnodes(&site.dump(900, 0, 0)), vnodes(FULL));
    let names: Vec<String> = tree(&site.volume(900)).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["dir", "hello", "link", "sparse"]);
    site.cell.check();
}

#[test]
fn an_incremental_dump_brings_a_volume_up_to_date() {
    let site = Site::new();
    site.restore_new(900, "theirs", FULL).unwrap();
    site.within(900, attach_mode::OFFLINE, |transaction| {
        assert_eq!(site.restore(transaction, "theirs", INCREMENTAL), Ok(()));
    });
    let names: Vec<String> = tree(&site.volume(900)).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["dir", "link", "new", "sparse"]);
    let before = site.dump(RW, 0, 0);
    site.restore_new(901, "copy", &before).unwrap();
    let volume = site.volume(RW);
    write(&volume, UnixTime(START + 100), "small", b"changed");
    write(&volume, UnixTime(START + 100), "added", b"new");
    volume.remove_file(&actor(UnixTime(START + 100)), volume.root(), b"link").unwrap();
    let changes = site.dump(RW, START + 50, vol::dump_flags::OMIT_DIRECTORIES);
    assert!(changes.len() < 10_000, "{}", changes.len());
    site.within(901, attach_mode::OFFLINE, |transaction| {
        assert_eq!(site.restore(transaction, "copy", &changes), Ok(()));
    });
    assert_eq!(tree(&site.volume(901)), tree(&volume));
    assert!(site.restore_new(902, "nothing", &changes).is_err(), "there is nothing to keep");
    site.cell.check();
}

/// Overwrites the file `x` and returns its data version.
fn overwrite(site: &Site, data: &[u8]) -> u64 {
    let volume = site.volume(RW);
    let file = write(&volume, site.cell.now(), "x", data);
    volume.status(file).unwrap().data_version
}

/// Calls `restore` between the stores of BBBB and CCCC to one file. Returns the data versions of both, and
/// the uniquifiers of files created before and after.
fn versions_around(restore: impl FnOnce(&Site, &[u8])) -> ([u64; 2], [u32; 2]) {
    let site = Site::new();
    let make = |name: &str| write(&site.volume(RW), site.cell.now(), name, b"");
    make("x");
    overwrite(&site, b"AAAA");
    let dump = site.dump(RW, 0, 0);
    let (before, made_before) = (overwrite(&site, b"BBBB"), make("made before"));
    site.cell.heard.take();
    restore(&site, &dump);
    assert!(site.cell.heard.take().contains(&RW), "callbacks are broken");
    assert_eq!(read(&site.volume(RW), "x"), b"AAAA");
    let (after, made_after) = (overwrite(&site, b"CCCC"), make("made after"));
    site.cell.check();
    ([before, after], [made_before.unique, made_after.unique])
}

#[test]
fn no_restore_reuses_versions_or_uniquifiers() {
    let over = |site: &Site, dump: &[u8]| {
        site.within(RW, attach_mode::OFFLINE, |transaction| {
            assert_eq!(site.restore(transaction, "home", dump), Ok(()));
        });
    };
    // Like `vos restore -overwrite full`.
    let anew = |site: &Site, dump: &[u8]| {
        site.cell.vos_delete(RW, LARGE);
        assert_eq!(site.restore_new(RW, "home", dump), Ok(()));
    };
    let incremental = |site: &Site, dump: &[u8]| {
        over(site, dump);
        let nothing_changed = site.dump(RW, u32::MAX, 0);
        overwrite(site, b"between");
        over(site, dump);
        over(site, &nothing_changed);
    };
    let around = [versions_around(over), versions_around(anew), versions_around(incremental)];
    for (number, ([before, after], [made_before, made_after])) in around.into_iter().enumerate() {
        assert!(before < after, "case {number}: data version {after} after {before}");
        assert!(made_before < made_after, "case {number}: uniquifier {made_after} after {made_before}");
    }
}

#[test]
fn a_change_after_the_clock_went_back_is_not_missed() {
    let site = Site::new();
    let day = 86_400;
    site.cell.pass(day);
    write(&site.volume(RW), site.cell.now(), "x", b"old");
    site.clone_into_service(RO, 1, "home.readonly");
    let released = site.volume(RO).header().created.0;
    site.cell.set_now(UnixTime(START));
    write(&site.volume(RW), site.cell.now(), "x", b"new contents");
    assert!(site.volume(RW).header().updated.0 >= released, "as late as the clone");
    let changes = site.dump(RW, released, 0);
    assert!(changes.windows(12).any(|bytes| bytes == b"new contents"), "an incremental dump has it");
    site.reclone(RO).unwrap();
    assert!(site.volume(RO).header().created.0 >= released, "the clone's date does not go back");
}

#[test]
fn the_numbers_of_clones_survive_a_restore() {
    let site = Site::new();
    site.clone_into_service(RO, 1, "home.readonly");
    site.clone_into_service(BK, 2, "home.backup");
    let named = || {
        let header = site.volume(RW).header();
        (header.clone, header.backup)
    };
    assert_eq!(named(), (VolumeId(RO), VolumeId(BK)));
    let dump = site.dump(RW, 0, 0);
    site.within(RW, attach_mode::OFFLINE, |transaction| {
        assert_eq!(site.restore(transaction, "home", &dump), Ok(()));
    });
    assert_eq!(named(), (VolumeId(RO), VolumeId(BK)), "after a restore");
}

#[test]
fn a_broken_dump_leaves_the_volume_as_it_was() {
    let site = Site::new();
    let (volume, before) = (site.volume(RW), site.dump(RW, 0, 0));
    let contents = tree(&volume);
    site.cell.heard.take();
    let transaction = site.cell.open(RW, LARGE, attach_mode::OFFLINE).unwrap();
    let mut broken: Vec<Vec<u8>> = (0..FULL.len()).step_by(97).map(|cut| FULL[..cut].to_vec()).collect();
    broken.push([FULL, b"more"].concat());
    broken.push(INCREMENTAL.to_vec());
    // A name without a vnode, a vnode without a name, a wrong link count.
    let mut wrong = FULL.to_vec();
    let at = wrong
        .windows(6)
        .rposition(|bytes| bytes[0] == 3 && bytes[1..4] == [0, 0, 0] && bytes[5] == 0)
        .unwrap();
    wrong[at + 4] ^= 0x40;
    broken.push(wrong);
    for dump in &broken {
        let refused = site.restore(transaction, "home", dump);
        assert_eq!(refused, Err(AbortCode::VOLSERREAD_DUMPERROR), "{} bytes", dump.len());
    }
    assert!(Arc::ptr_eq(&site.volume(RW), &volume));
    site.cell.end(transaction).unwrap();
    assert_eq!((tree(&volume), site.dump(RW, 0, 0)), (contents, before));
    site.cell.check();
}

/// Gives an entry of the root directory a name that clients cannot give it.
fn rename_by_restore(site: &Site, from: &str, to: &str) {
    let (volume, volumes) = (site.volume(RW), &site.cell.volumes);
    let mut found = Vec::new();
    volume
        .vnodes(VnodeId(0), &mut |status| {
            found.push((status.vnode, status.unique));
            true
        })
        .unwrap();
    let (status, acl) = volume.status_and_acl(volume.root()).unwrap();
    let mut blob = volume.reader(volume.root(), 0, u64::MAX).unwrap().directory().unwrap();
    let target = blob.remove(from.as_bytes()).unwrap();
    blob.insert(to.as_bytes(), target).unwrap();
    let mut restoration = volumes.restore(VolumeId(RW)).unwrap();
    restoration.directory(status, Acl::clone(&acl), &blob).unwrap();
    for (vnode, unique) in found.into_iter().filter(|&(vnode, _)| vnode != VnodeId::ROOT) {
        restoration.keep(vnode, unique).unwrap();
    }
    restoration.finish(volumes, volume.header(), UnixTime(START)).unwrap();
}

#[test]
fn names_of_256_bytes_are_dumped_and_restored() {
    let site = Site::new();
    write(&site.volume(RW), UnixTime(START), "short", b"long");
    let name = "x".repeat(256);
    rename_by_restore(&site, "short", &name);
    let dump = site.dump(RW, 0, 0);
    site.restore_new(900, "copy", &dump).unwrap();
    assert_eq!(tree(&site.volume(900)), tree(&site.volume(RW)));
    assert!(site.volume(900).lookup(site.volume(900).root(), name.as_bytes()).is_ok());
    assert_eq!(vnodes(&site.dump(900, 0, 0)), vnodes(&dump));
    site.cell.check();
}

#[test]
fn messages_stay_bytes_and_are_cut_where_openafs_cuts_them() {
    let site = Site::new();
    let message = vec![0xfc; 127];
    site.volume(RW).update_header(|header| header.offline_message.clone_from(&message)).unwrap();
    let dump = site.dump(RW, 0, 0);
    let at = dump.windows(127).position(|bytes| bytes == message).unwrap();
    assert_eq!((dump[at - 1], dump[at + 127]), (b'O', 0));
    let long = [&dump[..at], &[0xfc; 300][..], &dump[at + 127..]].concat();
    for (id, name, dump) in [(900, "same", &dump), (901, "long", &long)] {
        site.restore_new(id, name, dump).unwrap();
        assert_eq!(site.volume(id).header().offline_message, message);
        let field = [&b"O"[..], &message, &[0]].concat();
        assert!(site.dump(id, 0, 0).windows(129).any(|bytes| bytes == field), "{name}");
        assert_eq!(tree(&site.volume(id)), tree(&site.volume(RW)));
    }
    site.cell.check();
}

#[test]
fn clones_show_the_past_until_refreshed() {
    let site = Site::new();
    let volume = site.volume(RW);
    site.clone_into_service(RO, 1, "home.readonly");
    site.clone_into_service(BK, 2, "home.backup");
    let header = volume.header();
    assert_eq!((header.clone, header.backup), (VolumeId(RO), VolumeId(BK)));
    assert_eq!(header.backed_up, UnixTime(START));
    let old = tree(&volume);
    site.cell.pass(60);
    write(&volume, UnixTime(START + 60), "small", b"changed");
    assert_eq!((tree(&site.volume(RO)), tree(&site.volume(BK))), (old.clone(), old.clone()));
    assert_eq!(site.reclone(BK), Ok(()));
    assert_eq!((tree(&site.volume(RO)), tree(&site.volume(BK))), (old, tree(&volume)));
    let header = site.volume(BK).header();
    assert_eq!((header.created, header.backed_up), (UnixTime(START + 60), UnixTime(START + 60)));
    assert_eq!((header.copied, header.name.as_str()), (UnixTime(START), "home.backup"));
    assert_eq!(volume.header().backed_up, UnixTime(START + 60));
    assert_eq!(site.reclone(RO), Ok(()));
    site.cell.check();
    write(&volume, UnixTime(START + 61), "small", b"once more");
    assert_eq!(tree(&site.volume(RO)), tree(&site.volume(BK)));
    assert!(site.cell.heard.take().contains(&BK));
    assert_eq!(site.cell.list_one(LARGE, BK).unwrap().status, volume_state::OK);
}

#[test]
fn invalid_clones_are_refused() {
    let site = Site::new();
    site.cell.vos_create(LARGE, "other", 5);
    let of = |id: u32| site.within(RW, attach_mode::BUSY, |transaction| site.clone(transaction, id, 1, "c"));
    assert_eq!(of(5), Err(AbortCode::VVOLEXISTS));
    let held = site.cell.open(5, LARGE, attach_mode::OFFLINE).unwrap();
    assert_eq!(of(5), Err(AbortCode::VOLSERVOLBUSY));
    site.cell.end(held).unwrap();
    assert_eq!(site.reclone(5), Err(EXDEV));
    assert_eq!(site.reclone(6), Err(AbortCode::VNOVOL));
    assert_eq!(site.clone(1, 6, 1, "c"), Err(ENOENT));
    site.within(RW, attach_mode::BUSY, |transaction| {
        site.cell.set_flags(transaction, volume_flags::OUT_OF_SERVICE).unwrap();
        assert_eq!(site.clone(transaction, 6, 1, "c"), Err(AbortCode::VOFFLINE));
    });
    let request = vol::CloneVolumeRequest::default();
    assert_eq!(site.cell.server.clone_volume(&anybody(), request), Err(AbortCode::VOLSERBAD_ACCESS));
}

#[test]
fn a_read_only_volume_becomes_the_read_write_one() {
    let site = Site::new();
    let convert = |id| {
        let request = vol::ConvertRoToRwVolumeRequest { partition: LARGE, volume_id: id };
        site.cell.server.convert_ro_to_rw_volume(&admin(), request).map(drop)
    };
    for with_backup in [false, true] {
        site.clone_into_service(RO, 1, "home.readonly");
        let old = tree(&site.volume(RO));
        assert_eq!(convert(RO), Err(AbortCode::VVOLEXISTS));
        let volume = site.volume(RW);
        write(&volume, UnixTime(START + 1), "small", if with_backup { b"lost too" } else { b"lost" });
        if with_backup {
            site.clone_into_service(BK, 2, "home.backup");
        }
        site.within(RW, attach_mode::OFFLINE, |transaction| site.cell.delete(transaction).unwrap());
        assert_eq!(convert(RO), Ok(()));
        assert_eq!(convert(RO), Err(ENODEV));
        let volume = site.volume(RW);
        assert_eq!(tree(&volume), old, "backup: {with_backup}");
        assert_eq!((volume.header().name.as_str(), volume.kind()), ("home", VolumeType::ReadWrite));
        write(&volume, UnixTime(START + 2), "small", b"goes on");
        site.cell.check();
        assert_eq!(tree(&volume).iter().find(|(name, _)| name == "small").unwrap().1, b"goes on");
    }
    assert_ne!(tree(&site.volume(BK)), tree(&site.volume(RW)));
}
