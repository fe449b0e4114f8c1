//! Writes dumps. Each function appends what precedes the data of the files, which the caller sends.

use super::{
    ACL_BYTES, ACL_HEADER_BYTES, ACL_VERSION, BEGIN_MAGIC, DumpHeader, DumpVolume, DumpedVnode, END_MAGIC,
    TAG_DUMP, TAG_END, TAG_VNODE, TAG_VOLUME, VERSION, VnodeAttributes,
};
use crate::acl::{Acl, AclEntry};

fn byte(out: &mut Vec<u8>, tag: u8, value: u8) {
    out.extend_from_slice(&[tag, value]);
}

fn short(out: &mut Vec<u8>, tag: u8, value: u16) {
    out.push(tag);
    out.extend_from_slice(&value.to_be_bytes());
}

fn word(out: &mut Vec<u8>, tag: u8, value: u32) {
    out.push(tag);
    out.extend_from_slice(&value.to_be_bytes());
}

fn two_words(out: &mut Vec<u8>, tag: u8, first: u32, second: u32) {
    word(out, tag, first);
    out.extend_from_slice(&second.to_be_bytes());
}

fn words(out: &mut Vec<u8>, tag: u8, values: &[u32]) {
    short(out, tag, values.len() as u16);
    for value in values {
        out.extend_from_slice(&value.to_be_bytes());
    }
}

fn text(out: &mut Vec<u8>, tag: u8, value: &[u8]) {
    out.push(tag);
    out.extend(value.iter().take_while(|&&byte| byte != 0));
    out.push(0);
}

/// Appends the dump header.
pub fn put_dump_header(out: &mut Vec<u8>, header: &DumpHeader) {
    two_words(out, TAG_DUMP, BEGIN_MAGIC, VERSION);
    word(out, b'v', header.volume);
    text(out, b'n', &header.name);
    let dates: Vec<u32> = header.dates.iter().flat_map(|(from, to)| [from.0, to.0]).collect();
    words(out, b't', &dates);
}

/// Appends the volume header, in OpenAFS's order.
pub fn put_volume(out: &mut Vec<u8>, volume: &DumpVolume) {
    out.push(TAG_VOLUME);
    word(out, b'i', volume.id);
    word(out, b'v', volume.version);
    text(out, b'n', &volume.name);
    byte(out, b's', volume.in_service);
    byte(out, b'b', volume.blessed);
    word(out, b'u', volume.next_unique);
    byte(out, b't', volume.kind);
    word(out, b'p', volume.parent);
    word(out, b'c', volume.clone);
    word(out, b'q', volume.quota_max_kib);
    word(out, b'm', volume.quota_min_kib);
    word(out, b'd', volume.used_kib);
    word(out, b'f', volume.file_count);
    word(out, b'a', volume.account);
    word(out, b'o', volume.owner);
    word(out, b'C', volume.created.0);
    word(out, b'A', volume.accessed.0);
    word(out, b'U', volume.updated.0);
    word(out, b'E', volume.expires.0);
    word(out, b'B', volume.backed_up.0);
    text(out, b'O', &volume.offline_message);
    text(out, b'M', &volume.message_of_the_day);
    words(out, b'W', &volume.week_use);
    word(out, b'D', volume.day_use_date.0);
    word(out, b'Z', volume.day_use);
}

/// Appends a vnode up to its data. Exactly `length` bytes of data must follow.
pub fn put_vnode(out: &mut Vec<u8>, vnode: &DumpedVnode) {
    two_words(out, TAG_VNODE, vnode.vnode, vnode.unique);
    if let Some(attributes) = &vnode.attributes {
        put_attributes(out, attributes);
    }
}

fn put_attributes(out: &mut Vec<u8>, a: &VnodeAttributes) {
    byte(out, b't', a.kind);
    short(out, b'l', a.links);
    word(out, b'v', a.data_version);
    word(out, b'm', a.client_modified.0);
    word(out, b'a', a.author);
    word(out, b'o', a.owner);
    if a.group != 0 {
        word(out, b'g', a.group);
    }
    short(out, b'b', a.mode);
    word(out, b'p', a.parent);
    word(out, b's', a.server_modified.0);
    if let Some(acl) = &a.acl {
        out.push(b'A');
        put_acl(out, acl);
    }
    match a.length {
        Some(length) if length > u64::from(u32::MAX) => {
            two_words(out, b'h', (length >> 32) as u32, length as u32);
        }
        Some(length) => word(out, b'f', length as u32),
        None => {}
    }
}

/// Appends an access list: size, version, numbers of all, of positive and of negative entries, then the
/// positive entries in order and the negative ones in reverse.
fn put_acl(out: &mut Vec<u8>, acl: &Acl) {
    let end = out.len() + ACL_BYTES;
    let (positive, negative) = (acl.positive(), acl.negative());
    let total = positive.len() + negative.len();
    let numbers = [ACL_HEADER_BYTES + 8 * total, ACL_VERSION as usize, total, positive.len(), negative.len()];
    for number in numbers {
        out.extend_from_slice(&(number as u32).to_be_bytes());
    }
    for AclEntry { id, rights } in positive.iter().chain(negative.iter().rev()) {
        out.extend_from_slice(&id.0.to_be_bytes());
        out.extend_from_slice(&rights.bits().to_be_bytes());
    }
    out.resize(end, 0);
}

/// Appends the end mark.
pub fn put_end(out: &mut Vec<u8>) {
    word(out, TAG_END, END_MAGIC);
}
