//! Tests with a partition made by OpenAFS 1.8.9: the volume `home` with a read-only and a backup clone,
//! restored from `testdata/dump/full`.

use super::leftovers::leftovers;
use super::load::{LoadError, Target, is_same, is_unchanged, load, read, share};
use super::survey::{Survey, survey};
use super::{Source, Vicep};
use crate::dump::contents::{Contents, Data};
use afs_format::directory::DirectoryBlob;
use afs_format::namei::Inode;
use base::{Fid, PartitionId, UnixTime, UserId, VnodeId, VolumeId, VolumeType};
use cellar_server::handle;
use proptest::prelude::*;
use sha2::{Digest as _, Sha256};
use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use store::{Partition, PartitionConfig};
use tempfile::TempDir;
use volume::{Actor, SetStatus, VolumeOptions, Volumes};
use walkdir::WalkDir;

const VOLUME: u32 = 536_870_912;
const FOLDER: &str = "AFSIDat/+/++++U";

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../protocol/afs-format/testdata").join(name)
}

/// Returns a copy of the partition.
fn vicepa() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let from = golden("vicepa");
    for entry in WalkDir::new(&from).min_depth(1) {
        let entry = entry.unwrap();
        let to = folder.path().join(entry.path().strip_prefix(&from).unwrap());
        if entry.file_type().is_dir() {
            fs::create_dir(to).unwrap();
        } else {
            fs::copy(entry.path(), to).unwrap();
        }
    }
    folder
}

/// A new store with the partition /vicepa.
struct Store {
    volumes: Volumes,
    _partition: Arc<Partition>,
    _folder: TempDir,
}

impl Store {
    fn new() -> Store {
        let folder = tempfile::tempdir().unwrap();
        let config = PartitionConfig { families: &cellar_server::FAMILIES, ..PartitionConfig::default() };
        let partition = Partition::open(folder.path(), &config).unwrap();
        let partition = Arc::new(partition);
        let volumes = Volumes::open(vec![handle(a(), &partition)], VolumeOptions::default()).unwrap();
        Store { volumes, _partition: partition, _folder: folder }
    }

    fn target(&self) -> Target<'_> {
        Target { volumes: &self.volumes, partition: a(), now: UnixTime(1) }
    }
}

fn a() -> PartitionId {
    "a".parse().unwrap()
}

/// Checks that the volume in the store is what OpenAFS dumped.
fn compare_with_dump(store: &Store, id: u32) {
    let wanted = Contents::read(&golden("dump/full")).unwrap();
    let volume = store.volumes.get(VolumeId(id)).unwrap();
    let mut count = 0;
    for (&number, node) in &wanted.nodes {
        let fid = Fid { volume: VolumeId(id), vnode: VnodeId(number), unique: node.unique };
        let mut reader = volume.reader(fid, 0, u64::MAX).unwrap();
        let (found, status) = (*reader.status(), node.attributes.as_ref().unwrap());
        assert_eq!((found.mode, found.owner.0 as u32), (status.mode, status.owner));
        assert_eq!((found.links, found.data_version), (status.links.into(), status.data_version.into()));
        assert_eq!(
            (found.client_modified, found.server_modified),
            (status.client_modified, status.server_modified)
        );
        assert_eq!((found.parent.0, found.length), (status.parent, status.length.unwrap()));
        let bytes = reader.next(usize::MAX).unwrap().concat();
        match &node.data {
            Data::Directory(entries) => {
                let (_, acl) = volume.status_and_acl(fid).unwrap();
                assert_eq!(Some(&*acl), status.acl.as_ref());
                let blob = DirectoryBlob::parse(&bytes.into()).unwrap();
                assert_eq!(blob.len(), entries.len() + 2);
                for (name, target) in entries {
                    assert_eq!(blob.lookup(name).map(|found| found.vnode.0), Some(*target));
                }
            }
            Data::Link(target) => assert_eq!(&bytes, target),
            Data::File(length, digest) => {
                assert_eq!(
                    (bytes.len() as u64, <[u8; 32]>::from(Sha256::digest(&bytes))),
                    (*length, *digest)
                );
            }
            Data::None => panic!("vnode {number} has no data in the dump"),
        }
        count += 1;
    }
    let mut seen = 0;
    volume
        .vnodes(VnodeId(0), &mut |_| {
            seen += 1;
            true
        })
        .unwrap();
    assert_eq!(seen, count);
}

#[test]
fn every_kind_of_volume_is_brought_in() {
    let (folder, store) = (vicepa(), Store::new());
    let partition = Vicep::open(folder.path()).unwrap();
    assert_eq!(partition.volumes().unwrap(), [VOLUME, VOLUME + 1, VOLUME + 2]);
    for id in partition.volumes().unwrap() {
        let source = partition.source(id).unwrap();
        let found = survey(&source);
        assert_eq!(found.problems, []);
        assert_eq!((found.files, found.directories, found.links), (21, 3, 1));
        load(&source, store.target(), &|_| {}).unwrap();
        compare_with_dump(&store, id);
        let header = store.volumes.get(VolumeId(id)).unwrap().header();
        assert_eq!((header.kind, &header.name), (source.kind, &source.name));
        assert_eq!((header.created, header.updated), (source.info.created, source.info.updated));
        assert_eq!(header.copied, source.info.copied);
        assert_eq!(u64::from(source.info.used_kib), header.used_kib);
        assert_eq!(u64::from(source.info.file_count), header.file_count + 1);
        assert_eq!((header.destroy_me, &header.offline_message[..]), (0, &b""[..]));
    }
}

#[test]
fn unused_files_are_named() {
    let folder = vicepa();
    let partition = Vicep::open(folder.path()).unwrap();
    let sources = || -> Vec<_> {
        partition.volumes().unwrap().into_iter().map(|id| partition.source(id).unwrap()).collect()
    };
    assert_eq!(leftovers(&partition, &sources(), true).unwrap(), []);
    let unused = [
        "AFSIDat/+/++++U/+/+/0++++7",
        "AFSIDat/+/++++U/+/+/note",
        "AFSIDat/=/=++++U/special/zzzz5+++++0",
        "V536870912.vol",
    ];
    for path in unused {
        let path = folder.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "").unwrap();
    }
    fs::write(folder.path().join("AlwaysAttach"), "").unwrap();
    let mut found: Vec<_> =
        leftovers(&partition, &sources(), true).unwrap().into_iter().map(|problem| problem.place).collect();
    found.sort();
    assert_eq!(found, unused);
}

#[test]
fn numbers_are_those_of_file_names() {
    for file in files(&golden("vicepa").join("AFSIDat")) {
        let name = file.file_name().unwrap().to_str().unwrap();
        let inode = Inode::from_file_name(name).unwrap();
        assert!(file.to_str().unwrap().ends_with(&inode.path(VOLUME)), "{name}");
    }
    for name in ["", "a.b", "0++++6+++++++", "+++"] {
        assert_eq!(Inode::from_file_name(name), None, "{name}");
    }
}

#[test]
fn recomputed_values_are_noted() {
    let folder = vicepa();
    let info = format!("{FOLDER}/special/zzzz5+++++0");
    let source = |notes| survey_of(folder.path()).map(|found| assert_eq!(found.notes.len(), notes)).unwrap();
    source(0);
    change(folder.path(), &info, 152, 99);
    change(folder.path(), &info, 296, b'!');
    source(2);
}

#[test]
fn clones_with_the_same_contents_share_them() {
    let (folder, store) = (vicepa(), Store::new());
    let partition = Vicep::open(folder.path()).unwrap();
    let original = partition.source(VOLUME).unwrap();
    load(&original, store.target(), &|_| {}).unwrap();
    for (id, kind) in [(VOLUME + 1, VolumeType::ReadOnly), (VOLUME + 2, VolumeType::Backup)] {
        let source = partition.source(id).unwrap();
        assert!(is_same(&original, &source));
        share(&source, VolumeId(VOLUME), store.target()).unwrap();
        compare_with_dump(&store, id);
        let header = store.volumes.get(VolumeId(id)).unwrap().header();
        assert_eq!((header.kind, header.parent, &header.name), (kind, VolumeId(VOLUME), &source.name));
        assert_eq!((header.created, header.copied), (source.info.created, source.info.copied));
    }
    // A changed byte in a vnode of the clone: another data version.
    change(folder.path(), &format!("{FOLDER}/special/zzzz92++++0"), 64 + 12, 0xff);
    assert!(!is_same(&original, &partition.source(VOLUME + 1).unwrap()));
}

#[test]
fn a_volume_changed_after_its_import_is_detected() {
    let (folder, store) = (vicepa(), Store::new());
    let partition = Vicep::open(folder.path()).unwrap();
    let source = partition.source(VOLUME).unwrap();
    load(&source, store.target(), &|_| {}).unwrap();
    let volume = store.volumes.get(VolumeId(VOLUME)).unwrap();
    assert!(is_unchanged(&source, &volume.header()));
    // The clock shows the time of the volume's last change.
    let now = source.info.updated;
    let actor = Actor { user: UserId(1), privileged: true, in_transaction: false, call: None, now };
    let wanted = SetStatus { mode: Some(0o600), owner: None, group: None, client_modified: None };
    volume.set_status(&actor, volume.root(), &wanted).unwrap();
    assert!(!is_unchanged(&source, &volume.header()));
}

fn change(folder: &Path, file: &str, at: u64, byte: u8) {
    let file = File::options().write(true).open(folder.join(file)).unwrap();
    file.write_all_at(&[byte], at).unwrap();
}

fn survey_of(folder: &Path) -> Result<Survey, super::Problem> {
    let partition = Vicep::open(folder).unwrap();
    partition.source(VOLUME).map(|source| survey(&source))
}

/// A change to the partition, and the place and text of the reported problem.
type Damage = (fn(&Path), &'static str, &'static str);

const DAMAGES: &[Damage] = &[
    (|at| cut(at, "+/+/4++++M", 8999), "/dir/nine", "has 8999 bytes"),
    (|at| cut(at, "+/+/4++++M", 9001), "/dir/nine", "has 9001 bytes"),
    (|at| fs::remove_file(at.join(FOLDER).join("+/+/0++++6")).unwrap(), "/hello", "missing"),
    (|at| cut(at, "+/+/1++++A", 1000), "/dir", "cannot be read"),
    (|at| cut(at, "special/zzzz9+++++0", 100), "AFSIDat", "ends within a record"),
    (|at| cut(at, "special/zzzzD+++++0", 0), "AFSIDat", "byte 0: expected four bytes"),
    (|at| cut(at, "special/zzzz5+++++0", 500), "AFSIDat", "552 bytes"),
    (|at| cut(at, "special/zzzzP+++++0", 20), "/dir/nine", "the link table has no link to"),
    (|at| cut(at, "special/zzzzP+++++0", 3), "AFSIDat", "byte 3"),
    // Offsets in the record: link count, length, uniquifier, parent directory, number of the data, magic
    // number.
    (|at| record(at, 2, 7), "/hello", "count of links is 7; there are 1"),
    (|at| record(at, 4, 7), "/hello", "its length is 7"),
    (|at| record(at, 8, 9), "/hello", "does not exist"),
    (|at| record(at, 32, 3), "/hello", "is directory 3, not 1"),
    (|at| record(at, 16, 4), "/hello", "another vnode"),
    (|at| record(at, 36, 0), "AFSIDat", "byte 36: expected the mark of a vnode"),
    (|at| fs::write(at.join("V0536870912.vol"), "V").unwrap(), "V0536870912.vol", "expected"),
    (|at| change(at, "V0536870912.vol", 8, 1), "V0536870912.vol", "it is volume 536870913"),
    (|at| change(at, &format!("{FOLDER}/special/zzzz5+++++0"), 12, 0), "AFSIDat", "not a volume name"),
];

/// Sets the length of a file.
fn cut(folder: &Path, file: &str, length: u64) {
    let file = File::options().write(true).open(folder.join(FOLDER).join(file)).unwrap();
    file.set_len(length).unwrap();
}

/// Changes a byte in the record of /hello.
fn record(folder: &Path, at: u64, byte: u8) {
    change(folder, &format!("{FOLDER}/special/zzzz9+++++0"), 64 + at, byte);
}

#[test]
fn errors_name_their_place() {
    for (index, (damage, place, what)) in DAMAGES.iter().enumerate() {
        let folder = vicepa();
        damage(folder.path());
        let problems = match survey_of(folder.path()) {
            Ok(found) => found.problems,
            Err(problem) => vec![problem],
        };
        let is_notified =
            problems.iter().any(|reported| reported.place.starts_with(place) && reported.what.contains(what));
        assert!(is_notified, "damage {index}: wanted {place}: {what}, got {problems:?}");
    }
}

/// OpenAFS creates the index of files with its stamp alone, and the first file extends it.
#[test]
fn an_index_may_be_its_stamp_alone() {
    let folder = vicepa();
    cut(folder.path(), "special/zzzz9+++++0", 8);
    let found = survey_of(folder.path()).unwrap();
    assert_eq!((found.files, found.links, found.directories), (0, 0, 3));
    assert!(
        found.problems.iter().all(|reported| reported.what.contains("which does not exist")),
        "{found:?}"
    );
    assert_eq!(found.problems.len(), 22);
}

#[test]
fn a_volume_whose_data_cannot_be_read_leaves_nothing_behind() {
    let (folder, store) = (vicepa(), Store::new());
    let partition = Vicep::open(folder.path()).unwrap();
    let source = partition.source(VOLUME).unwrap();
    // After the survey.
    cut(folder.path(), "+/+/4++++M", 5000);
    let problem = read(&source, &|_| {}).unwrap_err();
    assert_eq!(problem.place, "/dir/nine");
    assert!(problem.what.contains("cannot be read at byte"), "{problem:?}");
    let Err(LoadError::Source(reported)) = load(&source, store.target(), &|_| {}) else {
        panic!("it was loaded")
    };
    assert_eq!(reported, problem);
    assert!(store.volumes.get_any_state(VolumeId(VOLUME)).is_err() && store.volumes.marked().is_empty());
    cut(folder.path(), "+/+/4++++M", 9000);
    load(&source, store.target(), &|_| {}).unwrap();
}

#[test]
fn a_partition_that_is_locked_is_refused() {
    let folder = vicepa();
    let _first = Vicep::open(folder.path()).unwrap();
    let error = Vicep::open(folder.path()).err().unwrap().to_string();
    assert!(error.contains("is locked"), "{error}");
    let empty = tempfile::tempdir().unwrap();
    let error = Vicep::open(empty.path()).unwrap().volumes().unwrap_err().to_string();
    assert!(error.contains("no volumes of OpenAFS"), "{error}");
}

#[test]
fn links_out_of_the_partition_are_not_followed() {
    let folder = vicepa();
    let file = folder.path().join(FOLDER).join("+/+/0++++6");
    let outside = tempfile::NamedTempFile::new().unwrap();
    fs::write(outside.path(), "secret").unwrap();
    fs::remove_file(&file).unwrap();
    std::os::unix::fs::symlink(outside.path(), file).unwrap();
    let problems = survey_of(folder.path()).unwrap().problems;
    assert!(problems.iter().any(|reported| reported.place == "/hello"), "{problems:?}");
}

#[test]
fn children_of_an_unreadable_directory_are_not_nameless() {
    let folder = vicepa();
    // Changes the first byte of a name in /dir, so that it is in the wrong hash chain.
    let file = File::open(folder.path().join(FOLDER).join("+/+/1++++A")).unwrap();
    let mut bytes = vec![0; file.metadata().unwrap().len() as usize];
    file.read_exact_at(&mut bytes, 0).unwrap();
    let at = bytes.windows(5).position(|name| name == b"nine\0").unwrap();
    change(folder.path(), &format!("{FOLDER}/+/+/1++++A"), at as u64, b'm');
    let problems = survey_of(folder.path()).unwrap().problems;
    let [problem] = &problems[..] else { panic!("{problems:?}") };
    assert_eq!(problem.place, "/dir");
    assert!(
        problem.what.contains("the entry `mine` (page 0) has a position in another name's chain"),
        "{problem:?}"
    );
    assert!(problem.what.contains("cannot be checked"), "{problem:?}");
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = WalkDir::new(folder).sort_by_file_name().into_iter().flatten();
    entries.filter(|entry| entry.file_type().is_file()).map(walkdir::DirEntry::into_path).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// For any contents of the files, a volume is either reported as damaged or imported.
    #[test]
    fn any_byte_may_be_wrong(file in any::<prop::sample::Index>(), at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let folder = vicepa();
        let files = files(folder.path());
        let file = file.get(&files);
        let length = fs::metadata(file).unwrap().len() as usize;
        if length > 0 {
            let file = File::options().write(true).open(file).unwrap();
            file.write_all_at(&[byte], at.index(length) as u64).unwrap();
        }
        let (partition, store) = (Vicep::open(folder.path()).unwrap(), Store::new());
        for id in partition.volumes().unwrap() {
            let Ok(source) = partition.source(id) else { continue };
            if survey(&source).problems.is_empty() {
                bring_in(&source, &store)?;
            }
        }
    }
}

fn bring_in(source: &Source<'_>, store: &Store) -> Result<(), TestCaseError> {
    let loaded = load(source, store.target(), &|_| {});
    // Only the store checks whether a directory's order of names and its data version are consistent.
    let is_right = matches!(loaded, Ok(()) | Err(LoadError::Store(volume::VolumeError::Unsound { .. })));
    prop_assert!(is_right, "{loaded:?}");
    Ok(())
}
