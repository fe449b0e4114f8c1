//! A dump with everything that a volume can hold, for OpenAFS to restore.

use afs_format::acl::{Acl, AclEntry};
use afs_format::directory::{DirectoryBlob, EntryTarget};
use afs_format::dump::{
    DumpHeader, DumpVolume, DumpedVnode, VnodeAttributes, put_dump_header, put_end, put_vnode, put_volume,
};
use anyhow::{Context, Result};
use base::{Rights, UnixTime, UserId, VnodeId};

/// Length of /dir/victim, which no other file has.
pub(crate) const VICTIM_BYTES: u64 = 54_321;

const TIME: u32 = 1_600_000_000;

/// Size of the contents.
#[derive(Clone, Copy)]
pub(crate) struct Size {
    /// Number of names in the large directory.
    pub(crate) many: u32,
    /// Length of a file that only has data at both ends.
    pub(crate) sparse_bytes: usize,
}

/// A vnode. Directories have odd numbers, everything else has even ones.
pub(crate) struct Node {
    pub(crate) vnode: u32,
    pub(crate) attributes: VnodeAttributes,
    pub(crate) data: Vec<u8>,
    /// Entries of a directory.
    pub(crate) names: Vec<(String, u32)>,
}

fn target(vnode: u32) -> EntryTarget {
    EntryTarget { vnode: VnodeId(vnode), unique: unique(vnode) }
}

fn unique(vnode: u32) -> u32 {
    if vnode == 1 { 1 } else { vnode + 10 }
}

fn directory(
    vnode: u32,
    parent: u32,
    subdirectories: u16,
    names: &[(String, u32)],
    acl: Acl,
) -> Result<Node> {
    let above = if parent == 0 { vnode } else { parent };
    let mut blob = DirectoryBlob::new(target(vnode), target(above));
    for (name, vnode) in names {
        blob.insert(name.as_bytes(), target(*vnode)).with_context(|| name.clone())?;
    }
    let attributes = VnodeAttributes {
        kind: 2,
        links: 2 + subdirectories,
        data_version: names.len() as u32 + 3,
        acl: Some(acl),
        ..status(vnode, parent, 0o755)
    };
    Ok(Node { vnode, attributes, data: blob.pages().concat(), names: names.to_vec() })
}

fn file(vnode: u32, parent: u32, mode: u16, data: Vec<u8>) -> Node {
    let attributes =
        VnodeAttributes { kind: 1, links: 1, data_version: vnode, ..status(vnode, parent, mode) };
    Node { vnode, attributes, data, names: Vec::new() }
}

fn link(vnode: u32, parent: u32, mode: u16, to: &str) -> Node {
    let attributes = VnodeAttributes { kind: 3, links: 1, ..status(vnode, parent, mode) };
    Node { vnode, attributes, data: to.into(), names: Vec::new() }
}

fn status(vnode: u32, parent: u32, mode: u16) -> VnodeAttributes {
    VnodeAttributes {
        client_modified: UnixTime(TIME + vnode),
        server_modified: UnixTime(TIME + 2 * vnode),
        author: 1000 + vnode,
        owner: 2000 + vnode,
        group: vnode % 3,
        mode,
        parent,
        ..VnodeAttributes::default()
    }
}

/// Returns the contents of the volume, starting with the root directory.
pub(crate) fn nodes(size: Size) -> Result<Vec<Node>> {
    let name = |name: &str, vnode| (name.to_owned(), vnode);
    let entry = |id, bits| AclEntry { id: UserId(id), rights: Rights::from_bits(bits) };
    let lists = Acl::new(
        &[entry(-204, 0x7f), entry(-101, 9), entry(7, 0xff00_0001)],
        &[entry(8, 2), entry(-205, 1)],
    )?;
    let open = Acl::new(&[entry(-204, 0x7f), entry(-101, 0x7f)], &[])?;
    let root = [name("dir", 3), name("many", 5), name("sparse", 2), name("link", 4), name("mount", 6)];
    let inner =
        [name("victim", 8), name("one", 10), name("two", 10), name("empty", 12), name("\u{e9}\u{e8}", 14)];
    let many: Vec<(String, u32)> =
        (0..size.many).map(|n| (format!("a name of some length {n}"), 100 + 2 * n)).collect();
    let mut out = vec![
        directory(1, 0, 2, &root, open)?,
        directory(3, 1, 0, &inner, lists.clone())?,
        directory(5, 1, 0, &many, lists)?,
    ];
    let mut sparse = vec![0; size.sparse_bytes];
    sparse[0] = b'a';
    sparse[size.sparse_bytes - 1] = b'z';
    let victim = (0..VICTIM_BYTES).map(|at| ((at * at) >> 7) as u8).collect();
    let mut twice = file(10, 3, 0o4711, b"under two names".to_vec());
    twice.attributes.links = 2;
    out.extend([
        file(2, 1, 0o600, sparse),
        link(4, 1, 0o777, "dir/one"),
        link(6, 1, 0o644, "#root.cell."),
        file(8, 3, 0o644, victim),
        twice,
        file(12, 3, 0o000, Vec::new()),
        file(14, 3, 0o644, b"\0\xff".to_vec()),
    ]);
    out.extend((0..size.many).map(|n| file(100 + 2 * n, 5, 0o644, format!("{n}").into_bytes())));
    Ok(out)
}

/// Returns the dump.
pub(crate) fn dump(size: Size) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    put_dump_header(
        &mut out,
        &DumpHeader { volume: 7, name: b"whole".to_vec(), dates: vec![(UnixTime(0), UnixTime(TIME))] },
    );
    let nodes = nodes(size)?;
    // OpenAFS takes this sum from the dump.
    let used = nodes.iter().map(|node| (node.data.len() as u32).div_ceil(1024).max(1)).sum();
    let volume = DumpVolume {
        id: 7,
        version: 1,
        name: b"whole".to_vec(),
        in_service: 1,
        blessed: 1,
        next_unique: 20_000,
        parent: 7,
        used_kib: used,
        account: 3,
        owner: 4,
        created: UnixTime(TIME),
        updated: UnixTime(TIME + 1),
        accessed: UnixTime(TIME + 2),
        ..DumpVolume::default()
    };
    put_volume(&mut out, &volume);
    for Node { vnode, mut attributes, data, .. } in nodes {
        attributes.length = Some(data.len() as u64);
        put_vnode(&mut out, &DumpedVnode { vnode, unique: unique(vnode), attributes: Some(attributes) });
        out.extend(data);
    }
    put_end(&mut out);
    Ok(out)
}
