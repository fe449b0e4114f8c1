//! Compares two dumps.

use super::contents::{Contents, Data, Node, printable};
use afs_format::acl::Acl;
use afs_format::dump::VnodeAttributes;
use anyhow::Result;
use serde::Serialize;
use std::collections::BTreeMap;

/// What is compared in addition to names, types and data.
#[derive(Clone, Copy, Debug, Default)]
pub struct Depth {
    /// Volume headers, server times, data versions, vnode numbers and uniquifiers, which differ between a
    /// volume and its copy without any meaning to users.
    pub everything: bool,
}

/// A difference between two dumps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// A path, or the name of a field in the volume's header.
    pub place: String,
    /// The property that differs: `name`, `data`, `mode`, `owner` ...
    pub what: &'static str,
    /// Value in the first dump.
    pub first: String,
    /// Value in the second dump.
    pub second: String,
}

/// Compares two dumps by path.
///
/// # Errors
/// If a directory has two names in one of them.
pub fn compare(first: &Contents, second: &Contents, depth: Depth) -> Result<Vec<Difference>> {
    let mut found = Found(Vec::new());
    if depth.everything {
        found.headers(first, second);
    }
    let paths = (first.paths()?, second.paths()?);
    let links = (LinkNames::new(&paths.0), LinkNames::new(&paths.1));
    for (path, vnode) in &paths.0 {
        let place = printable(path);
        let Some(other) = paths.1.get(path) else {
            found.add(&place, "name", "there".to_owned(), "missing".to_owned());
            continue;
        };
        match (first.nodes.get(vnode), second.nodes.get(other)) {
            (Some(one), Some(two)) => found.nodes(&place, one, two, depth),
            (None, None) => {}
            (one, _) => found.present(&place, one.is_some()),
        }
        found.compare(&place, "other names", &links.0.of(*vnode), &links.1.of(*other));
        if depth.everything {
            found.compare(&place, "vnode", vnode, other);
        }
    }
    for path in paths.1.keys().filter(|path| !paths.0.contains_key(*path)) {
        found.add(&printable(path), "name", "missing".to_owned(), "there".to_owned());
    }
    Ok(found.0)
}

/// Names of files with several names.
struct LinkNames(BTreeMap<u32, Vec<String>>);

impl LinkNames {
    fn new(paths: &BTreeMap<Vec<u8>, u32>) -> LinkNames {
        let mut names: BTreeMap<u32, Vec<String>> = BTreeMap::new();
        for (path, vnode) in paths {
            names.entry(*vnode).or_default().push(printable(path));
        }
        names.retain(|_, names| names.len() > 1);
        LinkNames(names)
    }

    fn of(&self, vnode: u32) -> String {
        self.0.get(&vnode).map(|names| names.join(" ")).unwrap_or_default()
    }
}

struct Found(Vec<Difference>);

impl Found {
    fn add(&mut self, place: &str, what: &'static str, first: String, second: String) {
        self.0.push(Difference { place: place.to_owned(), what, first, second });
    }

    fn compare<T: PartialEq + ToString>(&mut self, place: &str, what: &'static str, first: &T, second: &T) {
        if first != second {
            self.add(place, what, first.to_string(), second.to_string());
        }
    }

    fn present(&mut self, place: &str, in_first: bool) {
        let word = |there| if there { "in the dump" } else { "not in the dump" }.to_owned();
        self.add(place, "vnode", word(in_first), word(!in_first));
    }

    fn headers(&mut self, first: &Contents, second: &Contents) {
        let (one, two) = (&first.volume, &second.volume);
        let place = "volume header";
        for (what, one, two) in [
            ("name", &one.name, &two.name),
            ("offline message", &one.offline_message, &two.offline_message),
            ("message of the day", &one.message_of_the_day, &two.message_of_the_day),
        ] {
            self.compare(place, what, &printable(one), &printable(two));
        }
        for (what, one, two) in [
            ("id", one.id, two.id),
            ("parent", one.parent, two.parent),
            ("clone", one.clone, two.clone),
            ("kind", one.kind.into(), two.kind.into()),
            ("in service", one.in_service.into(), two.in_service.into()),
            ("next uniquifier", one.next_unique, two.next_unique),
            ("most KiB", one.quota_max_kib, two.quota_max_kib),
            ("least KiB", one.quota_min_kib, two.quota_min_kib),
            ("used KiB", one.used_kib, two.used_kib),
            ("files", one.file_count, two.file_count),
            ("owner", one.owner, two.owner),
            ("created", one.created.0, two.created.0),
            ("updated", one.updated.0, two.updated.0),
            ("accessed", one.accessed.0, two.accessed.0),
            ("expires", one.expires.0, two.expires.0),
            ("backed up", one.backed_up.0, two.backed_up.0),
        ] {
            self.compare(place, what, &one, &two);
        }
        let dates = |contents: &Contents| format!("{:?}", contents.header.dates);
        self.compare("dump header", "dates", &dates(first), &dates(second));
    }

    fn nodes(&mut self, place: &str, one: &Node, two: &Node, depth: Depth) {
        match (&one.attributes, &two.attributes) {
            (Some(one), Some(two)) => self.attributes(place, one, two, depth),
            (None, None) => {}
            (attributes, _) => self.present(place, attributes.is_some()),
        }
        // Directories are compared name by name.
        let is_directory = |node: &Node| matches!(node.data, Data::Directory(_));
        if one.data != two.data && !(is_directory(one) && is_directory(two)) {
            self.add(place, "data", described(&one.data), described(&two.data));
        }
        if depth.everything {
            self.compare(place, "uniquifier", &one.unique, &two.unique);
        }
    }

    fn attributes(&mut self, place: &str, one: &VnodeAttributes, two: &VnodeAttributes, depth: Depth) {
        self.compare(place, "kind", &one.kind, &two.kind);
        self.compare(place, "mode", &octal(one.mode), &octal(two.mode));
        self.compare(place, "owner", &one.owner, &two.owner);
        self.compare(place, "group", &one.group, &two.group);
        self.compare(place, "links", &one.links, &two.links);
        self.compare(place, "modified", &one.client_modified.0, &two.client_modified.0);
        if one.acl != two.acl {
            self.add(place, "access list", acl_text(one.acl.as_ref()), acl_text(two.acl.as_ref()));
        }
        if depth.everything {
            self.compare(place, "data version", &one.data_version, &two.data_version);
            self.compare(place, "author", &one.author, &two.author);
            self.compare(place, "server time", &one.server_modified.0, &two.server_modified.0);
        }
    }
}

fn octal(mode: u16) -> String {
    format!("{mode:o}")
}

/// Describes data briefly.
fn described(data: &Data) -> String {
    match data {
        Data::None => "no data".to_owned(),
        Data::File(length, digest) => {
            let beginning = u64::from_be_bytes(std::array::from_fn(|at| digest[at]));
            format!("{length} bytes, SHA-256 {beginning:016x}...")
        }
        Data::Directory(entries) => format!("{} names", entries.len()),
        Data::Link(target) => printable(target),
    }
}

/// Formats an access list in one line, with IDs as in the dump: `1=rl -203=rlidwka`; a `-` marks negative
/// rights.
pub fn acl_text(acl: Option<&Acl>) -> String {
    let Some(acl) = acl else { return String::new() };
    let mut words = Vec::new();
    for entry in acl.positive() {
        words.push(format!("{}={}", entry.id.0, entry.rights));
    }
    for entry in acl.negative() {
        words.push(format!("-({}={})", entry.id.0, entry.rights));
    }
    words.join(" ")
}
