//! Files and binary formats.

use crate::{Seed, seed, testdata};
use afs_format::acl::Acl;
use afs_format::directory::{DirectoryBlob, EntryTarget};
use afs_format::dump::{
    DumpHeader, DumpVolume, DumpedVnode, VnodeAttributes, put_dump_header, put_end, put_vnode, put_volume,
};
use afs_format::keyfile::{DesKey, KeyType, Secret, TypedKey, write_des, write_extended};
use afs_format::keytab::{self, KeytabEntry};
use afs_format::sysid::SysId;
use base::{HostUuid, UnixTime, VnodeId};

pub(crate) fn seeds() -> Vec<Seed> {
    let mut seeds = texts();
    seeds.extend(keys());
    seeds.extend(directories());
    seeds.extend(dumps());
    seeds.extend(namei());
    let id = SysId { uuid: HostUuid([7; 16]), addresses: vec![[10, 0, 0, 1].into(), [10, 0, 0, 2].into()] };
    seeds.push(seed("sysid", "two_addresses", id.to_bytes()));
    seeds
}

fn texts() -> Vec<Seed> {
    vec![
        seed("acl", "usual", "2\n1\nsystem:administrators\t127\nsystem:anyuser 9\nbad\t1\n\0"),
        seed("acl", "numbers", "1\n0\n-204\t255\n"),
        seed(
            "cellservdb",
            "two_cells",
            ">test.example   #a test\n10.0.0.1 #db1\n[10.0.0.2]\t#db2\n\n>b.example\n",
        ),
        seed("cellservdb", "this_cell", "test.example\n"),
        seed("cellservdb", "krb_conf", "R1 R2\nother\n"),
        seed("krb_conf", "realms", "R1 R2\njoe.admin@R1\nother@R2 more\n"),
        seed("names", "volume", "user.alice.readonly"),
        seed("names", "partition", "/vicepiv"),
        seed("names", "rights", "rlidwka"),
        seed("names", "number", "536870915"),
        seed("names", "principal", "alice/admin@TEST.EXAMPLE"),
        seed("names", "pattern", "^user\\.[a-m].*\\(x\\|y\\)\\{2,3\\}$\nuser.alice"),
        seed("netinfo", "networks", "10.99.0.72 eth0\n172.16/12 # inner\nf 10.0.0.0/8\n10.0.0.1.2\n"),
        seed("netinfo", "mixed", "10.0.0.1\nf 10.0.0.2\n# remark\n10.255.255.255\n192.168.0.0/16\n"),
        seed("userlist", "usual", "alice\nbob.admin\n # remark\n example 2 3\ncarol@OTHER.EXAMPLE\n"),
    ]
}

fn secret(length: u8) -> Secret {
    Secret::new(&(0..length).collect::<Vec<u8>>())
}

fn keys() -> Vec<Seed> {
    let typed = |subtype, length| TypedKey {
        key_type: KeyType::from_number(4),
        kvno: 3,
        subtype,
        secret: secret(length),
    };
    let des = [DesKey { kvno: 4, secret: secret(8) }];
    let entry = |name: &str, enctype, length| KeytabEntry {
        components: name.split('/').map(str::to_owned).collect(),
        realm: String::from("TEST.EXAMPLE"),
        name_type: 1,
        written: UnixTime(1_700_000_000),
        kvno: 300,
        enctype,
        secret: secret(length),
    };
    let entries = [entry("afs/test.example", 18, 32), entry("afs", 23, 16)];
    vec![
        seed("keyfile", "extended", write_extended(&[typed(18, 32), typed(17, 16)]).to_vec()),
        seed("keyfile", "des", write_des(&des).expect("a short list").to_vec()),
        seed("keyfile", "openafs_extended", testdata("../protocol/afs-format/testdata/KeyFileExt")),
        seed("keyfile", "openafs_des", testdata("../protocol/afs-format/testdata/KeyFile")),
        seed("keytab", "two_keys", keytab::write(&entries).expect("short names").to_vec()),
        seed("keytab", "heimdal", testdata("../protocol/afs-format/testdata/heimdal.keytab")),
    ]
}

fn directories() -> Vec<Seed> {
    let target = |vnode| EntryTarget { vnode: VnodeId(vnode), unique: vnode + 1 };
    let mut blob = DirectoryBlob::new(target(1), target(1));
    let empty = blob.pages().concat();
    for number in 0..100 {
        let name = format!("{number}{}", "x".repeat(number % 60));
        blob.insert(name.as_bytes(), target(number as u32 + 2)).expect("a small directory");
    }
    for number in (0..100).step_by(3) {
        blob.remove(format!("{number}{}", "x".repeat(number % 60)).as_bytes());
    }
    vec![seed("directory", "empty", empty), seed("directory", "holes", blob.pages().concat())]
}

/// Returns files of an OpenAFS partition, of every kind.
fn namei() -> impl Iterator<Item = Seed> {
    let special = |name: &str| format!("AFSIDat/+/++++U/special/{name}");
    let files = [
        ("header", "V0536870912.vol".to_owned()),
        ("info", special("zzzz5+++++0")),
        ("small", special("zzzz9+++++0")),
        ("large", special("zzzzD+++++0")),
        ("links", special("zzzzP+++++0")),
    ];
    let read = |path: &str| testdata(&format!("../protocol/afs-format/testdata/vicepa/{path}"));
    files.into_iter().map(move |(name, path)| seed("namei", name, read(&path)))
}

/// Returns dumps made by OpenAFS, and a minimal valid one.
fn dumps() -> Vec<Seed> {
    let golden = |name: &str| testdata(&format!("../protocol/afs-format/testdata/dump/{name}"));
    ["dump", "restored_dump"]
        .into_iter()
        .flat_map(|target| ["full", "incremental"].map(|name| seed(target, name, golden(name))))
        .chain([seed("restored_dump", "small", small_dump())])
        .collect()
}

/// Builds a dump of a root directory with one file.
fn small_dump() -> Vec<u8> {
    let target = |vnode| EntryTarget { vnode: VnodeId(vnode), unique: vnode };
    let mut blob = DirectoryBlob::new(target(1), target(1));
    blob.insert(b"file", target(2)).expect("an empty directory");
    let pages = blob.pages().concat();
    let mut out = Vec::new();
    put_dump_header(&mut out, &DumpHeader { volume: 7, name: b"home".to_vec(), dates: vec![] });
    put_volume(&mut out, &DumpVolume { id: 7, name: b"home".to_vec(), next_unique: 3, ..Default::default() });
    let directory = VnodeAttributes {
        kind: 2,
        links: 2,
        data_version: 1,
        acl: Some(Acl::administrators()),
        length: Some(pages.len() as u64),
        ..Default::default()
    };
    put_vnode(&mut out, &DumpedVnode { vnode: 1, unique: 1, attributes: Some(directory) });
    out.extend(pages);
    let file = VnodeAttributes { kind: 1, links: 1, parent: 1, length: Some(5), ..Default::default() };
    put_vnode(&mut out, &DumpedVnode { vnode: 2, unique: 2, attributes: Some(file) });
    out.extend(b"hello");
    put_end(&mut out);
    out
}
