//! The declared state of a cell, from a file like `cell.toml`. docs/guide/apply.md describes every key.

use crate::commands::volume::{parse_compression, parse_quota, parse_site};
use anyhow::{Context as _, Result};
use base::limits::PROTECTION_NAME_BYTES_MAX;
use base::{CellName, PartitionId, Rights, VolumeName};
use cell_client::path::CellPath;
use cellar_config::file::Origin;
use ptdb::EntryFlags;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::net::Ipv4Addr;
use std::path::Path;
use toml::Spanned;

/// Prefix of the groups that belong to the administrators.
const SYSTEM: &str = "system";

/// Suffixes of volumes that servers make of others.
const DERIVED: [&str; 2] = [".readonly", ".backup"];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    cell: Option<Spanned<String>>,
    #[serde(default)]
    users: BTreeMap<Spanned<String>, UserSection>,
    #[serde(default)]
    groups: BTreeMap<Spanned<String>, GroupSection>,
    #[serde(default)]
    volumes: BTreeMap<Spanned<String>, VolumeSection>,
    #[serde(default)]
    mounts: BTreeMap<Spanned<String>, Spanned<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct UserSection {
    id: Option<Spanned<i32>>,
    access: Option<Spanned<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GroupSection {
    owner: Option<Spanned<String>>,
    access: Option<Spanned<String>>,
    members: Option<Vec<Spanned<String>>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct VolumeSection {
    server: Option<Spanned<String>>,
    partition: Option<Spanned<String>>,
    quota: Option<Spanned<QuotaValue>>,
    owner: Option<Spanned<String>>,
    acl: Option<BTreeMap<Spanned<String>, Spanned<String>>>,
    denied: Option<BTreeMap<Spanned<String>, Spanned<String>>>,
    #[serde(default)]
    read_only: Vec<Spanned<String>>,
    compression: Option<Spanned<String>>,
    deduplication: Option<bool>,
    snapshots: Option<SnapshotsSection>,
}

/// KiB, or a text with a unit.
#[derive(Deserialize)]
#[serde(untagged, expecting = "a number of KiB, or a text like \"2G\"")]
enum QuotaValue {
    Kib(u32),
    Text(String),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SnapshotsSection {
    #[serde(default)]
    hourly: u16,
    #[serde(default)]
    daily: u16,
    #[serde(default)]
    weekly: u16,
    #[serde(default)]
    monthly: u16,
}

/// A value and its line in the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Given<T> {
    pub(super) value: T,
    pub(super) line: usize,
}

/// Everything that the file declares.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Declared {
    /// Name of the cell that the file is for.
    pub(super) cell: Option<Given<CellName>>,
    pub(super) users: Vec<User>,
    pub(super) groups: Vec<Group>,
    pub(super) volumes: Vec<Volume>,
    /// Sorted by place, so that a mount point is after those above it.
    pub(super) mounts: Vec<Mount>,
}

/// A user. Undeclared properties, here and below, are `None` and stay as they are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct User {
    pub(super) name: String,
    pub(super) line: usize,
    pub(super) id: Option<Given<i32>>,
    /// Access bits as on the wire.
    pub(super) access: Option<u32>,
}

/// A group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Group {
    pub(super) name: String,
    pub(super) line: usize,
    /// For `OWNER:NAME` the owner in the name.
    pub(super) owner: Option<Given<String>>,
    /// Access bits as on the wire.
    pub(super) access: Option<u32>,
    pub(super) members: Option<Vec<Given<String>>>,
}

/// Rights by user or group.
pub(super) type Grants = BTreeMap<String, Given<Rights>>;

/// A read-only site; the partition is the server's first by default.
pub(super) type Site = Given<(Ipv4Addr, Option<PartitionId>)>;

/// A read-write volume, and the root directory in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Volume {
    pub(super) name: String,
    pub(super) line: usize,
    pub(super) server: Option<Given<Ipv4Addr>>,
    pub(super) partition: Option<Given<PartitionId>>,
    pub(super) quota_kib: Option<i32>,
    pub(super) owner: Option<Given<String>>,
    pub(super) acl: Option<Grants>,
    pub(super) denied: Option<Grants>,
    /// Read-only sites.
    pub(super) read_only: Vec<Site>,
    /// A codec; empty for the server's default.
    pub(super) compression: Option<Given<String>>,
    pub(super) deduplication: Option<bool>,
    /// Numbers of hourly, daily, weekly and monthly snapshots to keep.
    pub(super) snapshots: Option<[u32; 4]>,
}

/// A mount point.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mount {
    pub(super) place: CellPath,
    pub(super) line: usize,
    pub(super) volume: String,
    pub(super) read_write: bool,
}

impl Declared {
    /// Reads a file.
    ///
    /// # Errors
    /// The line and the key, what is wrong and what would be right.
    pub(super) fn load(path: &Path) -> Result<Declared> {
        let text =
            std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        Declared::parse(path, &text)
    }

    /// Parses the text of a file; `path` is for messages.
    pub(super) fn parse(path: &Path, text: &str) -> Result<Declared> {
        let file: File = toml::from_str(text).with_context(|| format!("in {}", path.display()))?;
        let origin = Origin::new(path, text);
        let cell =
            file.cell.map(|name| parsed(&origin, &name, "cell", name.get_ref().parse())).transpose()?;
        let users = file.users.iter().map(|(name, section)| user(&origin, name, section));
        let groups = file.groups.iter().map(|(name, section)| group(&origin, name, section));
        let volumes = file.volumes.into_iter().map(|(name, section)| volume(&origin, &name, section));
        let mounts = file.mounts.iter().map(|(place, volume)| mount(&origin, place, volume));
        let mut mounts = mounts.collect::<Result<Vec<_>>>()?;
        mounts.sort_by_key(|mount| (mount.place.components.len(), mount.place_text()));
        Ok(Declared {
            cell,
            users: users.collect::<Result<_>>()?,
            groups: groups.collect::<Result<_>>()?,
            volumes: volumes.collect::<Result<_>>()?,
            mounts,
        })
    }

    /// Returns every name of a user or group that occurs, without duplicates.
    pub(super) fn names(&self) -> Vec<String> {
        let mut names: Vec<&String> = self.users.iter().map(|user| &user.name).collect();
        for group in &self.groups {
            names.push(&group.name);
            names.extend(group.owner.iter().map(|owner| &owner.value));
            names.extend(group.members.iter().flatten().map(|member| &member.value));
        }
        for volume in &self.volumes {
            names.extend(volume.owner.iter().map(|owner| &owner.value));
            names.extend([&volume.acl, &volume.denied].into_iter().flatten().flat_map(BTreeMap::keys));
        }
        names.sort();
        names.dedup();
        names.into_iter().cloned().collect()
    }
}

impl Mount {
    /// Returns the place as `VOLUME/PATH`.
    pub(super) fn place_text(&self) -> String {
        format!("{}/{}", self.place.volume, self.place.components.join("/"))
    }
}

/// Converts a parsed value or the reason of its refusal.
fn parsed<T, V, E: Display>(
    origin: &Origin<'_>,
    at: &Spanned<V>,
    key: &str,
    value: Result<T, E>,
) -> Result<Given<T>> {
    match value {
        Ok(value) => Ok(Given { value, line: origin.line(at) }),
        Err(what) => Err(origin.bad(at, key, what)),
    }
}

/// Checks the name of a user or group.
fn name(origin: &Origin<'_>, at: &Spanned<String>, key: &str) -> Result<Given<String>> {
    let text = at.get_ref();
    let checked = match text.len() {
        0 => Err("a name is missing".to_owned()),
        length if length > PROTECTION_NAME_BYTES_MAX => {
            Err(format!("the name is longer than {PROTECTION_NAME_BYTES_MAX} bytes"))
        }
        _ if text.contains(|c: char| c.is_control() || c == ' ') => {
            Err(format!("`{}` has a space or a control character", base::text::escape(text.as_bytes())))
        }
        _ => Ok(text.clone()),
    };
    parsed(origin, at, key, checked)
}

fn access(origin: &Origin<'_>, at: Option<&Spanned<String>>, key: &str) -> Result<Option<u32>> {
    let Some(at) = at else { return Ok(None) };
    match EntryFlags::parse_access(at.get_ref()) {
        Some(bits) => Ok(Some(EntryFlags(bits).access_bits())),
        None => Err(origin.bad(
            at,
            key,
            format!("`{}` is not like `S-M--`: letters out of SsOMmAar, and `-`", at.get_ref()),
        )),
    }
}

fn user(origin: &Origin<'_>, at: &Spanned<String>, section: &UserSection) -> Result<User> {
    let key = format!("users.{}", at.get_ref());
    let Given { value, line } = name(origin, at, &key)?;
    if value.contains(':') {
        return Err(origin.bad(at, &key, "a user's name has no `:`; groups are declared in [groups]"));
    }
    let id_key = format!("{key}.id");
    let checked = |id: &Spanned<i32>| match *id.get_ref() {
        id @ 1.. => Ok(id),
        id => Err(format!("{id} is not a user id; those are positive")),
    };
    let id = section.id.as_ref().map(|id| parsed(origin, id, &id_key, checked(id))).transpose()?;
    Ok(User {
        name: value,
        line,
        id,
        access: access(origin, section.access.as_ref(), &format!("{key}.access"))?,
    })
}

fn group(origin: &Origin<'_>, at: &Spanned<String>, section: &GroupSection) -> Result<Group> {
    let key = format!("groups.{}", at.get_ref());
    let Given { value, line } = name(origin, at, &key)?;
    let owner_key = format!("{key}.owner");
    let mut owner = section.owner.as_ref().map(|owner| name(origin, owner, &owner_key)).transpose()?;
    if let Some((prefix, rest)) = value.split_once(':') {
        if prefix.is_empty() || rest.is_empty() || rest.contains(':') {
            return Err(origin.bad(at, &key, "a group is named `OWNER:NAME`, or `NAME` without `:`"));
        }
        if let (Some(section), Some(owner)) = (&section.owner, &owner)
            && owner.value != prefix
            && prefix != SYSTEM
        {
            let what = format!("is `{}`, but the name says that the owner is `{prefix}`", owner.value);
            return Err(origin.bad(section, &owner_key, what));
        }
        if prefix != SYSTEM {
            owner = Some(Given { value: prefix.to_owned(), line });
        }
    }
    let members_key = format!("{key}.members");
    let members = |all: &Vec<Spanned<String>>| {
        all.iter().map(|member| name(origin, member, &members_key)).collect::<Result<Vec<_>>>()
    };
    let members = section.members.as_ref().map(members).transpose()?;
    let access = access(origin, section.access.as_ref(), &format!("{key}.access"))?;
    Ok(Group { name: value, line, owner, access, members })
}

fn volume(origin: &Origin<'_>, at: &Spanned<String>, section: VolumeSection) -> Result<Volume> {
    let key = |of: &str| format!("volumes.{}{of}", at.get_ref());
    let Given { value, line } = parsed(origin, at, &key(""), volume_name(at.get_ref()))?;
    let server = |text: &Spanned<String>| {
        let wrong = |_| format!("`{}` is not an IPv4 address like `192.0.2.1`", text.get_ref());
        parsed(origin, text, &key(".server"), text.get_ref().parse().map_err(wrong))
    };
    let partition = |text: &Spanned<String>| parsed(origin, text, &key(".partition"), text.get_ref().parse());
    let quota = |quota: &Spanned<QuotaValue>| {
        let kib = match quota.get_ref() {
            QuotaValue::Kib(kib) => parse_quota(&kib.to_string()),
            QuotaValue::Text(text) => parse_quota(text),
        };
        parsed(origin, quota, &key(".quota"), kib).map(|quota| quota.value)
    };
    let compression = |text: &Spanned<String>| {
        parsed(origin, text, &key(".compression"), parse_compression(text.get_ref()))
    };
    Ok(Volume {
        name: value,
        line,
        server: section.server.as_ref().map(server).transpose()?,
        partition: section.partition.as_ref().map(partition).transpose()?,
        quota_kib: section.quota.as_ref().map(quota).transpose()?,
        owner: section.owner.as_ref().map(|owner| name(origin, owner, &key(".owner"))).transpose()?,
        acl: section.acl.as_ref().map(|all| grants(origin, all, &key(".acl"))).transpose()?,
        denied: section.denied.as_ref().map(|all| grants(origin, all, &key(".denied"))).transpose()?,
        read_only: sites(origin, &section.read_only, &key(".read_only"))?,
        compression: section.compression.as_ref().map(compression).transpose()?,
        deduplication: section.deduplication,
        snapshots: section.snapshots.map(|of| [of.hourly, of.daily, of.weekly, of.monthly].map(u32::from)),
    })
}

/// Checks the name of a read-write volume.
fn volume_name(text: &str) -> Result<String, String> {
    if let Some(suffix) = DERIVED.iter().find(|suffix| text.ends_with(*suffix)) {
        return Err(format!("`{text}` is not a read-write volume; declare it without `{suffix}`"));
    }
    text.parse::<VolumeName>().map(|name| name.to_string()).map_err(|error| error.to_string())
}

fn grants(
    origin: &Origin<'_>,
    all: &BTreeMap<Spanned<String>, Spanned<String>>,
    key: &str,
) -> Result<Grants> {
    let grant = |(who, rights): (&Spanned<String>, &Spanned<String>)| {
        let key = format!("{key}.{}", who.get_ref());
        let who = name(origin, who, &key)?.value;
        Ok((who, parsed(origin, rights, &key, rights.get_ref().parse::<Rights>())?))
    };
    all.iter().map(grant).collect()
}

fn sites(origin: &Origin<'_>, texts: &[Spanned<String>], key: &str) -> Result<Vec<Site>> {
    let mut sites: Vec<Site> = Vec::new();
    for text in texts {
        let site = parsed(origin, text, key, parse_site(text.get_ref()))?;
        if sites.iter().any(|other| other.value.0 == site.value.0) {
            let what = format!("names {} twice; a server has at most one read-only copy", site.value.0);
            return Err(origin.bad(text, key, what));
        }
        sites.push(site);
    }
    Ok(sites)
}

fn mount(origin: &Origin<'_>, at: &Spanned<String>, target: &Spanned<String>) -> Result<Mount> {
    let key = format!("mounts.{}", at.get_ref());
    let path = CellPath::parse(at.get_ref()).and_then(|path| {
        let is_root = path.split_last().is_none();
        if is_root {
            anyhow::bail!("is the root of a volume; name a place in it, like root.cell/doc");
        }
        volume_name(&path.volume).map_err(anyhow::Error::msg)?;
        Ok(path)
    });
    let Given { value: place, line } = parsed(origin, at, &key, path)?;
    let text = target.get_ref();
    let (volume, read_write) = match text.strip_prefix('%') {
        Some(rest) => (rest, true),
        None => (text.strip_prefix('#').unwrap_or(text), false),
    };
    let volume = parsed(origin, target, &key, volume.parse::<VolumeName>())?.value.to_string();
    Ok(Mount { place, line, volume, read_write })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Declared> {
        Declared::parse(Path::new("cell.toml"), text)
    }

    #[test]
    fn the_example_of_the_guide_is_complete() {
        let page = include_str!("../../../../../../docs/guide/apply.md");
        let example = page.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
        let declared = parse(example).unwrap();
        assert!(declared.cell.is_some() && declared.users.len() >= 2 && declared.groups.len() >= 2);
        let volumes = &declared.volumes;
        let has = |what: fn(&Volume) -> bool| assert!(volumes.iter().any(what));
        has(|volume| volume.server.is_some() && volume.partition.is_some());
        has(|volume| volume.quota_kib.is_some() && volume.owner.is_some() && volume.acl.is_some());
        has(|volume| volume.denied.is_some() && volume.snapshots.is_some());
        has(|volume| volume.compression.is_some() && volume.deduplication.is_some());
        has(|volume| !volume.read_only.is_empty());
        assert!(declared.mounts.iter().any(|mount| mount.read_write));
    }

    #[test]
    fn declarations_have_values_and_lines() {
        let declared = parse(
            "cell = \"t.example\"\n[users.ann]\nid = 1001\n[groups.\"ann:friends\"]\nmembers = [\"ben\"]\n\
             access = \"SOM--\"\n[volumes.home]\nquota = \"2M\"\nacl.\"system:anyuser\" = \"rl\"\n\
             read_only = [\"192.0.2.1/b\"]\ncompression = \"default\"\nsnapshots.daily = 7\n\
             [mounts]\n\"root.cell/a/b\" = \"%home\"\n\"root.cell/z\" = \"home\"\n",
        )
        .unwrap();
        assert_eq!(declared.users[0].id, Some(Given { value: 1001, line: 3 }));
        let group = &declared.groups[0];
        assert_eq!(group.owner.as_ref().unwrap().value, "ann");
        assert_eq!((group.access, group.members.as_ref().unwrap()[0].line), (Some(0xb0), 5));
        let volume = &declared.volumes[0];
        assert_eq!((volume.quota_kib, volume.snapshots), (Some(2048), Some([0, 7, 0, 0])));
        assert_eq!(volume.compression.as_ref().unwrap().value, "");
        let site = ([192, 0, 2, 1].into(), Some("b".parse().unwrap()));
        assert_eq!(volume.read_only, [Given { value: site, line: 10 }]);
        let mounts: Vec<_> =
            declared.mounts.iter().map(|mount| (mount.place_text(), mount.read_write)).collect();
        assert_eq!(mounts, [("root.cell/z".into(), false), ("root.cell/a/b".into(), true)]);
        assert_eq!(declared.names(), ["ann", "ann:friends", "ben", "system:anyuser"]);
    }

    #[test]
    fn mistakes_name_line_key_and_remedy() {
        for (text, words) in [
            ("colour = 1", ["line 1", "colour", "`users`"]),
            ("[users.ann]\nid = 0", ["line 2", "users.ann.id", "positive"]),
            ("[users.ann]\nname = \"x\"", ["line 2", "unknown field `name`", "`access`"]),
            ("[users.\"a:b\"]", ["line 1", "users.a:b", "[groups]"]),
            ("[users.ann]\naccess = \"x\"", ["line 2", "users.ann.access", "`S-M--`"]),
            ("[groups.g]\nmember = []", ["line 2", "unknown field `member`", "`members`"]),
            ("[groups.\"a:\"]", ["line 1", "groups.a:", "`OWNER:NAME`"]),
            ("[groups.\"a:b\"]\nowner = \"c\"", ["line 2", "groups.a:b.owner", "owner is `a`"]),
            ("[volumes.v]\nquota = \"2X\"", ["line 2", "volumes.v.quota", "500M"]),
            ("[volumes.v]\nquota = true", ["line 2", "quota", "number of KiB"]),
            ("[volumes.v]\nserver = \"fs1\"", ["line 2", "volumes.v.server", "192.0.2.1"]),
            ("[volumes.v]\npartition = \"9\"", ["line 2", "volumes.v.partition", "/vicepa"]),
            ("[volumes.v]\nacl = { ann = \"q\" }", ["line 2", "volumes.v.acl.ann", "rlidwka"]),
            ("[volumes.v]\nread_only = [\"x\"]", ["line 2", "volumes.v.read_only", "192.0.2.3/b"]),
            (
                "[volumes.v]\nread_only = [\"192.0.2.1/a\", \"192.0.2.1/b\"]",
                ["line 2", "volumes.v.read_only", "twice"],
            ),
            ("[volumes.v]\ncompression = \"gzip\"", ["line 2", "volumes.v.compression", "zstd:1"]),
            ("[volumes.v]\nsnapshots.yearly = 1", ["line 2", "yearly", "`monthly`"]),
            ("[volumes.\"v.readonly\"]", ["line 1", "volumes.v.readonly", "without `.readonly`"]),
            ("[mounts]\n\"root.cell\" = \"v\"", ["line 2", "mounts.root.cell", "root.cell/doc"]),
            ("[mounts]\n\"root.cell/x\" = \"a b\"", ["line 2", "mounts.root.cell/x", "a b"]),
        ] {
            let error = format!("{:#}", parse(text).unwrap_err());
            assert!(error.contains("cell.toml"), "{error}");
            assert!(words.iter().all(|word| error.contains(word)), "{text}: {error}");
        }
    }
}
