//! File and data formats that AFS clients and servers share.

use afs_format::acl::{Acl, AclError, AclText};
use afs_format::cellservdb::{parse_cellservdb, parse_krb_conf, parse_thiscell};
use afs_format::directory::{DirectoryBlob, EntryTarget};
use afs_format::dump::{self as dumps, DumpHeader, Item};
use afs_format::namei::{IndexClass, NameiVnode, VolumeInfo, VolumePlaces, check_links};
use afs_format::netinfo::{announced, parse_netinfo, parse_netrestrict};
use afs_format::sysid::SysId;
use afs_format::userlist::UserList;
use afs_format::{keyfile as keys, keytab as tabs};
use base::{CellName, UserId, VnodeId};
use bytes::Bytes;
use std::net::Ipv4Addr;

/// Exercises access lists in the text form of the wire.
pub fn acl(data: &[u8]) {
    let Ok(text) = AclText::parse(data) else { return };
    assert_eq!(AclText::parse(&text.to_bytes()).as_ref(), Ok(&text));
    let id = |name: &[u8]| Ok::<_, AclError>(UserId(name.iter().map(|&byte| i32::from(byte)).sum()));
    if let Ok(list) = text.to_acl(id) {
        let _ = list.rights_of(&[UserId::ANYUSER, UserId(97)]);
        let again = list.to_text(|id| id.0.to_string().into_bytes());
        let number = |name: &[u8]| -> Result<UserId, AclError> {
            Ok(UserId(String::from_utf8_lossy(name).parse().expect("the number that was written above")))
        };
        assert_eq!(again.to_acl(number), Acl::new(list.positive(), list.negative()));
    }
}

/// Exercises directory blobs.
pub fn directory(data: &[u8]) {
    let Ok(mut blob) = DirectoryBlob::parse(&Bytes::copy_from_slice(data)) else { return };
    assert_eq!(blob.length_bytes(), data.len() as u64);
    let entries: Vec<_> = blob.entries().map(|(name, target)| (name.to_vec(), target)).collect();
    assert_eq!(entries.len(), blob.len());
    for (name, target) in &entries {
        assert_eq!(blob.lookup(name), Some(*target));
    }
    let _ = DirectoryBlob::rebuild(blob.pages().len(), blob.placed_entries());
    let _ = blob.slice(data.len() as u64 / 2, u64::MAX);
    let target = EntryTarget { vnode: VnodeId(5), unique: 6 };
    if blob.insert(b"a new name that takes more than one slot", target).is_ok() {
        for (name, target) in entries {
            assert_eq!(blob.remove(&name), Some(target));
        }
        assert_eq!(blob.len(), 1);
    }
}

/// Exercises CellServDB, ThisCell and krb.conf.
pub fn cellservdb(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let _ = parse_cellservdb(&text);
    let cell = parse_thiscell(&text).unwrap_or_else(|_| "test.example".parse::<CellName>().expect("a name"));
    let _ = parse_krb_conf(&text, &cell);
}

/// Exercises KeyFileExt and KeyFile.
pub fn keyfile(data: &[u8]) {
    if let Ok(parsed) = keys::parse_extended(data) {
        assert_eq!(keys::parse_extended(&keys::write_extended(&parsed)), Ok(parsed));
    }
    if let Ok(mut parsed) = keys::parse_des(data)
        && let Some(written) = keys::write_des(&parsed)
    {
        // It is written in order of key versions.
        parsed.sort_by_key(|key| key.kvno);
        assert_eq!(keys::parse_des(&written), Ok(parsed));
    }
}

/// Exercises keytabs.
pub fn keytab(data: &[u8]) {
    if let Ok(entries) = tabs::parse(data) {
        for entry in &entries {
            let _ = entry.principal();
        }
        if let Some(written) = tabs::write(&entries) {
            assert_eq!(tabs::parse(&written), Ok(entries));
        }
    }
}

/// Exercises NetInfo and NetRestrict.
pub fn netinfo(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let info = parse_netinfo(&text).value;
    let restrict = parse_netrestrict(&text).value;
    let have = [Ipv4Addr::LOCALHOST, Ipv4Addr::new(10, 0, 0, 1)];
    let announced = announced(&have, &info, &restrict);
    assert!(announced.len() <= have.len() + info.entries.len());
}

/// Exercises sysid files.
pub fn sysid(data: &[u8]) {
    if let Ok(id) = SysId::parse(data) {
        assert_eq!(SysId::parse(&id.to_bytes()), Ok(id));
    }
}

/// Exercises UserLists.
pub fn userlist(data: &[u8]) {
    let mut list = UserList::parse(&String::from_utf8_lossy(data));
    let principals: Vec<_> = list.principals().cloned().collect();
    let again = UserList::parse(&list.to_text());
    assert!(again.principals().eq(principals.iter()), "parsing the text gives other principals");
    for who in &principals {
        list.remove(who);
    }
    assert_eq!(list.principals().count(), 0);
}

/// Contents of a dump: its header, then every item with its data.
type Parts = (DumpHeader, Vec<(Item, Vec<u8>)>);

fn parts(data: &[u8]) -> Option<Parts> {
    let mut left = Bytes::copy_from_slice(data);
    let source = |most: usize| Ok::<_, ()>(left.split_to(most.min(1444).min(left.len())));
    let (mut reader, header) = dumps::Reader::open(source).ok()?;
    let mut parts = Vec::new();
    loop {
        let item = reader.next_item().ok()?;
        let mut data = Vec::new();
        loop {
            let piece = reader.data(1000).ok()?;
            if piece.is_empty() {
                break;
            }
            data.extend_from_slice(&piece);
        }
        let is_end = item == Item::End;
        parts.push((item, data));
        if is_end {
            return Some((header, parts));
        }
    }
}

/// Exercises volume dumps. A dump that was read and written again reads back the same.
pub fn dump(data: &[u8]) {
    let Some((header, parts_read)) = parts(data) else { return };
    let mut written = Vec::new();
    dumps::put_dump_header(&mut written, &header);
    for (item, data) in &parts_read {
        match item {
            Item::Volume(volume) => dumps::put_volume(&mut written, volume),
            Item::Vnode(vnode) => dumps::put_vnode(&mut written, vnode),
            Item::End => dumps::put_end(&mut written),
        }
        written.extend_from_slice(data);
    }
    assert_eq!(parts(&written), Some((header, parts_read)));
}

/// Exercises files of a namei partition: headers, volume information, records of both indexes, link tables.
pub fn namei(data: &[u8]) {
    let _ = VolumeInfo::parse(data);
    let _ = check_links(data);
    if let Ok(places) = VolumePlaces::parse(data) {
        assert!(places.info.is_special() && places.info.path(places.parent).is_ascii());
    }
    for class in [IndexClass::Large, IndexClass::Small] {
        let _ = class.check_stamp(data);
        for (place, record) in data.chunks(class.record_bytes()).enumerate() {
            let Ok(Some(vnode)) = NameiVnode::parse(class, record) else { continue };
            assert_eq!(vnode.acl.is_some(), class == IndexClass::Large);
            assert!(class.vnode(place as u32).is_some() && vnode.inode.path(7).is_ascii());
            let _ = vnode.inode.links([0xff, 0xff]);
        }
    }
}
