//! Tests with dumps made by OpenAFS: see `crates/protocol/afs-format/testdata`.

use super::compare::{Depth, compare};
use super::contents::{Contents, Data, printable};
use super::extract::{Options, extract};
use afs_format::acl::Acl;
use afs_format::directory::{DirectoryBlob, EntryTarget};
use afs_format::dump::{
    DumpHeader, DumpVolume, DumpedVnode, VnodeAttributes, put_dump_header, put_end, put_vnode, put_volume,
};
use base::VnodeId;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

const DEEP: Depth = Depth { everything: true };

pub(crate) fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../protocol/afs-format/testdata/dump").join(name)
}

/// Writes a modified copy of the full dump to a temporary directory.
fn altered(change: impl FnOnce(&mut Vec<u8>)) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("dump");
    let mut bytes = fs::read(golden("full")).unwrap();
    change(&mut bytes);
    fs::write(&path, bytes).unwrap();
    (folder, path)
}

fn position(bytes: &[u8], what: &[u8]) -> usize {
    bytes.windows(what.len()).position(|window| window == what).unwrap()
}

/// Returns the differences between the golden dump and another.
fn differences(path: &Path, depth: Depth) -> Vec<String> {
    let (first, second) = (Contents::read(&golden("full")).unwrap(), Contents::read(path).unwrap());
    let found = compare(&first, &second, depth).unwrap();
    found.into_iter().map(|one| format!("{} {}", one.place, one.what)).collect()
}

#[test]
fn messages_that_are_not_utf_8_are_shown_escaped() {
    let put = |message: &[u8]| {
        let mut bytes = Vec::new();
        put_dump_header(&mut bytes, &DumpHeader::default());
        put_volume(&mut bytes, &DumpVolume { offline_message: message.to_vec(), ..DumpVolume::default() });
        put_end(&mut bytes);
        bytes
    };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("dump");
    fs::write(&path, put(b"gr\xfcn")).unwrap();
    let first = Contents::read(&path).unwrap();
    assert_eq!(first.volume.offline_message, b"gr\xfcn");
    fs::write(&path, put("gr\u{fc}n".as_bytes())).unwrap();
    let second = Contents::read(&path).unwrap();
    let [found] = &compare(&first, &second, DEEP).unwrap()[..] else { panic!() };
    assert_eq!((&found.first[..], &found.second[..]), ("gr\\xfcn", "gr\u{fc}n"));
}

#[test]
fn a_damaged_directory_is_refused_with_its_reason() {
    let (_folder, path) = altered(|bytes| {
        let at = position(bytes, &[0, 1, 4, 0xd2]);
        bytes[at + 3] = 0;
    });
    let refused = Contents::read(&path).err().unwrap().to_string();
    assert!(refused.ends_with("directory vnode 1: not a directory: a page header (page 0)"), "{refused}");
}

#[test]
fn a_dump_is_equal_to_itself() {
    assert_eq!(differences(&golden("full"), DEEP), Vec::<String>::new());
}

/// Returns path and vnode number of the first regular file with data.
fn some_file(contents: &Contents) -> (String, u32) {
    let paths = contents.paths().unwrap();
    let mut files = paths.into_iter().filter(|(_, vnode)| match contents.nodes.get(vnode) {
        Some(node) => matches!(node.data, Data::File(length, _) if length > 0),
        None => false,
    });
    let (path, vnode) = files.next().unwrap();
    (String::from_utf8(path).unwrap(), vnode)
}

#[test]
fn one_bit_of_a_files_data_is_found() {
    let whole = Contents::read(&golden("full")).unwrap();
    let (path, _) = some_file(&whole);
    let folder = tempfile::tempdir().unwrap();
    extract(&golden("full"), &folder.path().join("out"), Options::default()).unwrap();
    let data = fs::read(folder.path().join("out").join(&path[1..])).unwrap();
    let (_keep, other) = altered(|bytes| {
        let at = position(bytes, &data);
        bytes[at] ^= 1;
    });
    assert_eq!(differences(&other, Depth::default()), [format!("{path} data")]);
}

#[test]
fn a_name_is_a_difference_on_both_sides() {
    let whole = Contents::read(&golden("full")).unwrap();
    let (path, _) = some_file(&whole);
    let name = path.rsplit('/').next().unwrap().to_owned();
    let (_keep, other) = altered(|bytes| {
        let at = position(bytes, &[name.as_bytes(), &[0]].concat());
        bytes[at + name.len() - 1] = b'~';
    });
    let renamed = format!("{}~", &path[..path.len() - 1]);
    // A name in the wrong chain of the directory's hash table is rejected.
    match Contents::read(&other) {
        Ok(_) => assert_eq!(
            differences(&other, Depth::default()),
            [format!("{path} name"), format!("{renamed} name")]
        ),
        Err(error) => assert!(error.to_string().contains("byte"), "{error}"),
    }
}

#[test]
fn an_incremental_dump_lists_its_contents() {
    let changes = Contents::read(&golden("incremental")).unwrap();
    assert!(changes.is_incremental() && !Contents::read(&golden("full")).unwrap().is_incremental());
    assert!(changes.nodes.values().any(|node| node.attributes.is_none()), "vnodes as they were");
    assert!(!differences(&golden("incremental"), Depth::default()).is_empty());
}

#[test]
fn a_volume_is_made_of_a_whole_and_full_dump_only() {
    assert!(Contents::read_all(&golden("full")).is_ok());
    let refused = Contents::read_all(&golden("incremental")).err().unwrap().to_string();
    assert!(refused.contains("leaves out") && refused.contains("incremental"), "{refused}");
    let (_keep, cut) = altered(|bytes| bytes.truncate(9000));
    assert!(Contents::read_all(&cut).err().unwrap().to_string().contains("byte 9000"));
}

/// Creates a dump with these files in its root directory.
fn made(files: &[(&[u8], &[u8])]) -> (TempDir, PathBuf) {
    let root = EntryTarget { vnode: VnodeId(1), unique: 1 };
    let mut names = DirectoryBlob::new(root, root);
    let target =
        |index: usize| EntryTarget { vnode: VnodeId(2 * index as u32 + 2), unique: index as u32 + 2 };
    for (index, (name, _)) in files.iter().enumerate() {
        names.insert(name, target(index)).unwrap();
    }
    let mut bytes = Vec::new();
    put_dump_header(&mut bytes, &DumpHeader::default());
    put_volume(&mut bytes, &DumpVolume { id: 5, name: b"odd".to_vec(), ..DumpVolume::default() });
    let mut put = |EntryTarget { vnode, unique }, attributes: VnodeAttributes, data: &[u8]| {
        let attributes = VnodeAttributes { length: Some(data.len() as u64), mode: 0o755, ..attributes };
        put_vnode(&mut bytes, &DumpedVnode { vnode: vnode.0, unique, attributes: Some(attributes) });
        bytes.extend_from_slice(data);
    };
    let acl = Some(Acl::administrators());
    put(
        root,
        VnodeAttributes { kind: 2, links: 2, acl, ..VnodeAttributes::default() },
        &names.pages().concat(),
    );
    for (index, (_, data)) in files.iter().enumerate() {
        put(
            target(index),
            VnodeAttributes { kind: 1, links: 1, parent: 1, ..VnodeAttributes::default() },
            data,
        );
    }
    put_end(&mut bytes);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("dump");
    fs::write(&path, bytes).unwrap();
    (folder, path)
}

#[test]
fn an_empty_volume_odd_names_and_holes_are_shown_and_written() {
    let (folder, path) = made(&[]);
    let written = extract(&path, &folder.path().join("out"), Options::default()).unwrap();
    assert_eq!((written.directories, written.files, written.bytes), (1, 0, 0));

    let long = [0xff; 255];
    let sparse = [vec![0; 9 << 20], b"end".to_vec(), vec![0; 5 << 20]].concat();
    let files: [(&[u8], &[u8]); 4] =
        [(&long, b"long"), (b"new\nline", b""), ("\u{fc}".as_bytes(), b"umlaut"), (b"sparse", &sparse)];
    let (folder, path) = made(&files);
    let contents = Contents::read_all(&path).unwrap();
    let shown: Vec<String> = contents.paths().unwrap().keys().map(|path| printable(path)).collect();
    assert!(
        shown.contains(&format!("/{}", "\\xff".repeat(255))) && shown.contains(&"/\u{fc}".into()),
        "{shown:?}"
    );
    assert!(shown.contains(&"/new\\nline".into()), "{shown:?}");
    let out = folder.path().join("out");
    extract(&path, &out, Options::default()).unwrap();
    for (name, data) in files {
        assert!(fs::read(out.join(OsStr::from_bytes(name))).unwrap() == data, "{}", printable(name));
    }
    let taken = fs::metadata(out.join("sparse")).unwrap().blocks() * 512;
    assert!(taken < 1 << 20, "{taken} bytes for a few between holes");
    let (_keep, other) = made(&[(&long, b"lost"), (b"new\nline", b"")]);
    let found = compare(&contents, &Contents::read(&other).unwrap(), Depth::default()).unwrap();
    let whats: Vec<&str> = found.iter().map(|one| one.what).collect();
    assert_eq!(whats, ["name", "name", "data"], "{found:?}");
}

#[test]
fn a_truncated_dump_is_refused_wherever_it_ends() {
    let length = fs::read(golden("full")).unwrap().len();
    for end in (0..length).step_by(211).chain([length - 1]) {
        let (folder, path) = altered(|bytes| bytes.truncate(end));
        let error = Contents::read(&path).err().unwrap_or_else(|| panic!("{end} bytes are no dump"));
        assert!(error.to_string().contains("byte"), "{error}");
        let out = folder.path().join("out");
        assert!(extract(&path, &out, Options::default()).is_err() && !out.exists());
    }
}

#[test]
fn flipped_bits_never_panic_and_never_write_outside() {
    let length = fs::read(golden("full")).unwrap().len();
    for at in (0..length).step_by(97) {
        let (folder, path) = altered(|bytes| bytes[at] ^= 0x2f);
        let _ = extract(&path, &folder.path().join("out"), Options::default());
        let names: Vec<_> =
            fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert!(names.iter().all(|name| name == "dump" || name == "out"), "{names:?}");
    }
}

#[test]
fn files_are_written_with_data_mode_and_time() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let written = extract(&golden("full"), &out, Options::default()).unwrap();
    let whole = Contents::read(&golden("full")).unwrap();
    assert_eq!(written.files + written.directories + written.links, whole.nodes.len() as u64);
    let (path, vnode) = some_file(&whole);
    let status = whole.nodes[&vnode].attributes.as_ref().unwrap();
    let metadata = fs::metadata(out.join(&path[1..])).unwrap();
    assert_eq!(metadata.len(), status.length.unwrap());
    assert_eq!(
        metadata.permissions().mode() & 0o777,
        u32::from(status.mode) & 0o777 & !crate::umask::current()
    );
    let modified = metadata.modified().unwrap().duration_since(std::time::UNIX_EPOCH).unwrap();
    assert_eq!(modified.as_secs(), u64::from(status.client_modified.0));
    let again = extract(&golden("full"), &out, Options::default());
    assert!(again.unwrap_err().to_string().contains("is not empty"));
}
