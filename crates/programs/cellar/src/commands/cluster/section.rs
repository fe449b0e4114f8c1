//! The section `[cluster]` in the text of a configuration.

use super::NodeOptions;
use anyhow::{Context as _, Result, bail};
use base::{BucketAddress, PartitionId};
use cellar_config::encryption::KeySource;
use cluster_proto::NodeName;
use std::fmt::Write as _;
use std::ops::Range;
use std::path::{Path, PathBuf, absolute};
use toml::de::{DeTable, DeValue};
use toml::{Spanned, Value};

/// A configuration with the section added.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Added {
    /// The whole text.
    pub(super) text: String,
    /// Lines that became comments.
    pub(super) removed: Vec<String>,
}

/// Returns the text of the section. Paths in it are absolute, since the file is in another folder than the caller.
///
/// # Errors
/// If the current folder is not known.
pub(super) fn section(
    command: &str,
    bucket: &BucketAddress,
    (partitions, has_databases): (&[PartitionId], bool),
    (name, options): (&NodeName, &NodeOptions),
) -> Result<String> {
    let mut text = format!("\n# Added by `cellar cluster {command}`.\n[cluster]\n");
    let mut add =
        |key: &str, value: Value| writeln!(text, "{key} = {value}").expect("a string takes everything");
    let path = |path: &Option<PathBuf>| -> Result<Option<Value>> {
        let path = path.as_deref().map(absolute).transpose()?;
        Ok(path.map(|path| Value::from(path.display().to_string())))
    };
    add("bucket", bucket.to_string().into());
    let letters = partitions.iter().map(|partition| Value::from(partition.letters()));
    add("partitions", letters.collect::<Vec<_>>().into());
    if has_databases {
        add("databases", true.into());
    }
    add("node", name.as_str().into());
    let reach = &options.reach;
    // A folder is not reached through a server, whatever the environment names.
    let is_served = bucket.folder().is_none();
    let optional = [
        ("address", options.address.map(|address| Value::from(address.to_string()))),
        ("port", options.port.map(|port| Value::from(i64::from(port)))),
        ("endpoint", reach.endpoint.clone().filter(|_| is_served).map(Value::from)),
        ("region", reach.region.clone().filter(|_| is_served).map(Value::from)),
        ("ca_file", path(&reach.ca_file)?.filter(|_| is_served)),
        ("allow_http", (reach.allow_http && is_served).then_some(Value::from(true))),
        ("credentials_file", path(&reach.credentials_file)?.filter(|_| is_served)),
        ("cache", path(&options.cache)?),
        ("cache_mb", options.cache_mb.map(|mb| Value::from(i64::from(mb)))),
    ];
    for (key, value) in optional {
        if let Some(value) = value {
            add(key, value);
        }
    }
    let key = path(&options.encryption_key)?.map(|key| format!("key_file = {key}"));
    Ok(text + &encryption(partitions, key.as_deref()))
}

/// Returns the sections that give the partitions the key that this line names.
fn encryption(partitions: &[PartitionId], key: Option<&str>) -> String {
    let section = |partition: &PartitionId| {
        let letters = partition.letters();
        key.map(|key| format!("\n[encryption.{letters}]\n{key}\n")).unwrap_or_default()
    };
    partitions.iter().map(section).collect()
}

/// Adds a section at the end of a configuration. Entries of `[partitions]` whose folder does not exist become
/// comments: a node has no partitions but the cluster's.
///
/// # Errors
/// If there is a section already, or the file is not TOML.
pub(super) fn add(path: &Path, text: &str, section: &str) -> Result<Added> {
    let table = DeTable::parse(text).with_context(|| format!("in the configuration {}", path.display()))?;
    let mut absent = Vec::new();
    for (name, value) in table.get_ref() {
        match (name.get_ref().as_ref(), value.get_ref()) {
            ("cluster", _) => {
                bail!(
                    "{}, line {}: there is a section `[cluster]` already; remove it if this server is to be a node of \
                     another cluster",
                    path.display(),
                    1 + line_at(text, name.span().start)
                );
            }
            ("partitions", DeValue::Table(local)) => absent.extend(absent_folders(path, text, local)),
            _ => {}
        }
    }
    let mut added = Added { text: String::new(), removed: Vec::new() };
    for (number, line) in text.lines().enumerate() {
        if absent.contains(&number) {
            added.removed.push(line.trim().to_owned());
            added.text.push_str("# ");
        }
        added.text.push_str(line);
        added.text.push('\n');
    }
    added.text.push_str(section);
    Ok(added)
}

/// Returns the configuration of a node with these partitions, where those that are new get a key.
///
/// # Errors
/// If the file is not TOML, or has parts that cannot be changed.
pub(super) fn with_partitions(
    path: &Path,
    text: &str,
    partitions: &[PartitionId],
    key: Option<&KeySource>,
) -> Result<String> {
    let table = DeTable::parse(text).with_context(|| format!("in the configuration {}", path.display()))?;
    let cluster = value_of(table.get_ref(), "cluster").map(Spanned::get_ref);
    let listed = cluster.and_then(|cluster| value_of(cluster.as_table()?, "partitions"));
    let Some((span, DeValue::Array(before))) = listed.map(|listed| (listed.span(), listed.get_ref())) else {
        bail!("{} has no list `partitions` in a section `[cluster]`", path.display());
    };
    let before: Vec<PartitionId> =
        before.iter().filter_map(|one| one.get_ref().as_str()?.parse().ok()).collect();
    let mut changes = Vec::new();
    let mut sorted = before.clone();
    sorted.sort_unstable();
    if sorted != partitions {
        let letters = partitions.iter().map(|partition| Value::from(partition.letters()));
        changes.push((span, Value::from(letters.collect::<Vec<_>>()).to_string()));
    }
    let gone = before.iter().filter(|partition| !partitions.contains(partition));
    for partition in gone {
        let found = encryption_section(path, text, table.get_ref(), *partition)?;
        changes.extend(found.map(|section| (section, String::new())));
    }
    changes.sort_by_key(|(span, _)| std::cmp::Reverse(span.start));
    let mut text = text.to_owned();
    for (span, with) in changes {
        text.replace_range(span, &with);
    }
    if !text.ends_with('\n') {
        text.push('\n');
    }
    let is_new = |partition: &&PartitionId| !before.contains(partition);
    let new: Vec<PartitionId> = partitions.iter().filter(is_new).copied().collect();
    Ok(text + &encryption(&new, key.map(key_line).as_deref()))
}

/// Returns where the section with the key of a partition is, if there is one.
fn encryption_section(
    path: &Path,
    text: &str,
    table: &DeTable<'_>,
    partition: PartitionId,
) -> Result<Option<Range<usize>>> {
    let sections = value_of(table, "encryption").and_then(|sections| sections.get_ref().as_table());
    let is_its = |name: &str| name.parse() == Ok(partition);
    let found = sections.and_then(|all| all.iter().find(|(name, _)| is_its(name.get_ref())));
    let Some((name, keys)) = found.map(|(name, keys)| (name, keys.get_ref())) else { return Ok(None) };
    let start = text[..name.span().start].rfind('\n').map_or(0, |at| at + 1);
    let last = keys.as_table().into_iter().flatten().map(|(_, value)| value.span().end).max();
    let end = last.unwrap_or(name.span().end);
    if !text[start..].trim_start().starts_with('[') || end < start {
        bail!(
            "{}, line {}: remove the key of {partition} from `encryption`, and run the command again",
            path.display(),
            1 + line_at(text, start)
        );
    }
    let end = text[end..].find('\n').map_or(text.len(), |at| end + at + 1);
    Ok(Some(start..end))
}

/// Returns the line that names the source of a key.
fn key_line(source: &KeySource) -> String {
    match source {
        KeySource::File(path, _) => format!("key_file = {}", Value::from(path.display().to_string())),
        KeySource::Command(command) => format!("key_command = {}", Value::from(command.clone())),
    }
}

/// Returns the configuration of a node that serves the databases in the bucket.
///
/// # Errors
/// If the file is not TOML, or its section `[cluster]` is not one to which a line can be added.
pub(super) fn with_databases(path: &Path, text: &str) -> Result<String> {
    let table = DeTable::parse(text).with_context(|| format!("in the configuration {}", path.display()))?;
    let found = table.get_ref().iter().find(|(name, _)| name.get_ref() == "cluster");
    let Some((name, DeValue::Table(section))) = found.map(|(name, value)| (name, value.get_ref())) else {
        bail!("{} has no section `[cluster]`", path.display());
    };
    if let Some(given) = value_of(section, "databases") {
        let Range { start, end } = given.span();
        return with_database_roles(path, &format!("{}true{}", &text[..start], &text[end..]));
    }
    let line = text[..name.span().start].rfind('\n').map_or(0, |at| at + 1);
    let end = text[line..].find('\n').map_or(text.len(), |at| line + at);
    if !text[line..end].trim_start().starts_with('[') {
        bail!(
            "{}, line {}: add `databases = true` to `cluster`, and run the command again",
            path.display(),
            1 + line_at(text, line)
        );
    }
    with_database_roles(path, &format!("{}\ndatabases = true{}", &text[..end], &text[end..]))
}

/// Returns the configuration with the roles of a server that has the cell's databases, if it names its roles.
///
/// # Errors
/// If the file is not TOML.
pub(super) fn with_database_roles(path: &Path, text: &str) -> Result<String> {
    let table = DeTable::parse(text).with_context(|| format!("in the configuration {}", path.display()))?;
    let Some(DeValue::Table(server)) = value_of(table.get_ref(), "server").map(Spanned::get_ref) else {
        return Ok(text.to_owned());
    };
    let roles = value_of(server, "roles").map(|roles| (roles.span(), roles.get_ref()));
    let Some((span, DeValue::Array(named))) = roles else { return Ok(text.to_owned()) };
    let mut names: Vec<&str> = named.iter().filter_map(|role| role.get_ref().as_str()).collect();
    let missing: Vec<&str> = ["pt", "vl"].into_iter().filter(|role| !names.contains(role)).collect();
    if missing.is_empty() {
        return Ok(text.to_owned());
    }
    names.extend(missing);
    let roles = Value::from(names.into_iter().map(Value::from).collect::<Vec<_>>());
    Ok(format!("{}{roles}{}", &text[..span.start], &text[span.end..]))
}

fn value_of<'t, 'i>(table: &'t DeTable<'i>, key: &str) -> Option<&'t Spanned<DeValue<'i>>> {
    table.iter().find(|(name, _)| name.get_ref() == key).map(|(_, value)| value)
}

/// Returns the number of the line at an offset, from 0.
fn line_at(text: &str, offset: usize) -> usize {
    text[..offset.min(text.len())].matches('\n').count()
}

/// Returns the lines of local partitions whose folder does not exist, as far as each is a line of its own.
fn absent_folders(path: &Path, text: &str, local: &DeTable<'_>) -> Vec<usize> {
    let folder = path.parent().unwrap_or(Path::new("."));
    let is_absent =
        |value: &Spanned<DeValue<'_>>| value.get_ref().as_str().is_some_and(|at| !folder.join(at).is_dir());
    let is_own_line = |start: usize| {
        let line = text[..start].rfind('\n').map_or(0, |at| at + 1);
        text[line..start].trim().is_empty()
    };
    let found = local.iter().filter(|(name, value)| is_own_line(name.span().start) && is_absent(value));
    found.map(|(name, _)| line_at(text, name.span().start)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::bucket::Reach;
    use std::net::Ipv4Addr;

    fn name() -> NodeName {
        "fs1".parse().unwrap()
    }

    fn letters() -> Vec<PartitionId> {
        ["a", "b"].map(|letters| letters.parse().unwrap()).into()
    }

    #[test]
    fn a_section_has_what_was_given() {
        let bucket = "s3://cellar/example.org".parse().unwrap();
        let options = NodeOptions::default();
        let text = section("init", &bucket, (&letters(), true), (&name(), &options)).unwrap();
        assert!(text.ends_with("partitions = [\"a\", \"b\"]\ndatabases = true\nnode = \"fs1\"\n"), "{text}");
        let text = section("init", &bucket, (&letters(), false), (&name(), &options)).unwrap();
        assert_eq!(
            text,
            "\n# Added by `cellar cluster init`.\n[cluster]\nbucket = \"s3://cellar/example.org\"\n\
             partitions = [\"a\", \"b\"]\nnode = \"fs1\"\n"
        );
        let reach = Reach {
            endpoint: Some("https://s3.example.org".into()),
            region: Some("e\"u".into()),
            ca_file: Some("/ca.pem".into()),
            allow_http: true,
            credentials_file: Some("aws".into()),
        };
        let options = NodeOptions {
            node: None,
            address: Some(Ipv4Addr::new(192, 0, 2, 1)),
            port: Some(17010),
            cache: Some("/cache".into()),
            cache_mb: Some(100),
            encryption_key: Some("master.key".into()),
            reach,
        };
        let text = section("join", &bucket, (&letters(), false), (&name(), &options)).unwrap();
        let parsed: toml::Table = toml::from_str(&text).unwrap();
        let cluster = parsed["cluster"].as_table().unwrap();
        let here = std::env::current_dir().unwrap().join("aws").display().to_string();
        for (key, value) in [
            ("address", Value::from("192.0.2.1")),
            ("port", Value::from(17010)),
            ("endpoint", Value::from("https://s3.example.org")),
            ("region", Value::from("e\"u")),
            ("ca_file", Value::from("/ca.pem")),
            ("allow_http", Value::from(true)),
            ("credentials_file", Value::from(here)),
            ("cache", Value::from("/cache")),
            ("cache_mb", Value::from(100)),
        ] {
            assert_eq!(cluster[key], value, "{key}");
        }
        let key = std::env::current_dir().unwrap().join("master.key").display().to_string();
        for letters in ["a", "b"] {
            assert_eq!(parsed["encryption"][letters]["key_file"], Value::from(key.clone()), "{text}");
        }
        let folder = "file:///srv/cellar".parse().unwrap();
        let text = section("join", &folder, (&letters(), false), (&name(), &options)).unwrap();
        for key in ["endpoint", "region", "ca_file", "allow_http", "credentials_file"] {
            assert!(!text.contains(key), "{text}");
        }
        assert!(text.contains("cache = ") && text.contains("port = 17010"), "{text}");
    }

    #[test]
    fn the_rest_of_the_file_is_kept() {
        let path = Path::new("/etc/cellar/cellar.toml");
        let before = "# Comment.\n[cell]\nname = \"example.org\"   # here\n\n[rx]\nworkers = 3";
        let added = add(path, before, "\n[cluster]\n").unwrap();
        assert_eq!(added, Added { text: format!("{before}\n\n[cluster]\n"), removed: Vec::new() });
    }

    #[test]
    fn partitions_without_a_folder_become_comments() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("there")).unwrap();
        let path = folder.path().join("cellar.toml");
        let before = "[partitions]\n  a = \"absent\" # disk\nb = \"there\"\n[rx]\nworkers = 3\n";
        let added = add(&path, before, "[cluster]\n").unwrap();
        let text = "[partitions]\n#   a = \"absent\" # disk\nb = \"there\"\n[rx]\nworkers = 3\n[cluster]\n";
        assert_eq!((&*added.text, &*added.removed), (text, &["a = \"absent\" # disk".to_owned()][..]));
        let inline = "partitions = { a = \"absent\" }\n";
        assert_eq!(
            add(&path, inline, "").unwrap().text,
            inline,
            "the configuration refuses it with its line"
        );
    }

    #[test]
    fn a_server_that_names_its_roles_gets_those_of_the_databases() {
        let path = Path::new("/etc/cellar/cellar.toml");
        for (before, after) in [
            (
                "[server]\nroles = [\"fs\", \"vol\"] # why\n[rx]\n",
                "[server]\nroles = [\"fs\", \"vol\", \"pt\", \"vl\"] # why\n[rx]\n",
            ),
            (
                "[server]\nroles = [\n  \"vl\",\n  \"fs\",\n]\n",
                "[server]\nroles = [\"vl\", \"fs\", \"pt\"]\n",
            ),
            ("[server]\nroles = [\"pt\", \"vl\"]\n", "[server]\nroles = [\"pt\", \"vl\"]\n"),
            ("[server]\nstate = \"s\"\n", "[server]\nstate = \"s\"\n"),
            ("[cell]\n", "[cell]\n"),
        ] {
            assert_eq!(with_database_roles(path, before).unwrap(), after);
        }
        assert!(with_database_roles(path, "[cell\n").is_err());
    }

    #[test]
    fn the_databases_are_added_to_a_section() {
        let path = Path::new("/etc/cellar/cellar.toml");
        for (before, after) in [
            ("[cluster] # why\nnode = \"a\"\n", "[cluster] # why\ndatabases = true\nnode = \"a\"\n"),
            ("[cell]\n[cluster]", "[cell]\n[cluster]\ndatabases = true"),
            ("[cluster]\ndatabases = false # yet\n", "[cluster]\ndatabases = true # yet\n"),
            ("cluster = { databases = false }\n", "cluster = { databases = true }\n"),
            (
                "[server]\nroles = [\"fs\"]\n[cluster]\n",
                "[server]\nroles = [\"fs\", \"pt\", \"vl\"]\n[cluster]\ndatabases = true\n",
            ),
        ] {
            assert_eq!(with_databases(path, before).unwrap(), after);
        }
        for (text, why) in [
            ("\ncluster = { node = \"a\" }\n", "line 2: add `databases = true`"),
            ("[cell]\ncluster.node = \"a\"\n", "no section `[cluster]`"),
            ("[cell\n", "/etc/cellar/cellar.toml"),
        ] {
            let error = format!("{:#}", with_databases(path, text).unwrap_err());
            assert!(error.contains(why), "{error}");
        }
    }

    #[test]
    fn partitions_are_listed_with_their_keys() {
        let path = Path::new("/etc/cellar/cellar.toml");
        let [a, b, d] = ["a", "b", "d"].map(|letters| letters.parse().unwrap());
        let key = KeySource::File("/k".into(), cellar_config::files::Exposure::Refused);
        let before = "# Ours.\n[cluster]\npartitions = [\"b\", \"a\"] # two\nnode = \"x\"\n\n[encryption.a] # secret\n\
                      key_file = \"/k\" # here\n[encryption.b]\nkey_file = \"/k\"\n# End.\n[rx]\nworkers = 3";
        let with = |partitions: &[PartitionId], key| with_partitions(path, before, partitions, key).unwrap();
        assert_eq!(with(&[a, b], None), format!("{before}\n"));
        let listed = before.replace("[\"b\", \"a\"]", "[\"a\", \"b\", \"d\"]") + "\n";
        assert_eq!(with(&[a, b, d], None), listed);
        assert_eq!(with(&[a, b, d], Some(&key)), listed + "\n[encryption.d]\nkey_file = \"/k\"\n");
        let without = before
            .replace("[\"b\", \"a\"]", "[\"b\"]")
            .replace("[encryption.a] # secret\nkey_file = \"/k\" # here\n", "");
        assert_eq!(with(&[b], None), without + "\n");
        let command = with(&[a, b, d], Some(&KeySource::Command("get \"it\"".into())));
        assert!(command.ends_with("[encryption.d]\nkey_command = 'get \"it\"'\n"), "{command}");
        for (text, why) in [
            ("[cell]\n", "no list `partitions`"),
            ("[cluster]\nnode = \"x\"\n", "no list `partitions`"),
            ("[cell\n", "/etc/cellar/cellar.toml"),
            (
                "encryption = { a = { key_file = \"k\" } }\n[cluster]\npartitions = [\"a\", \"b\"]\n",
                "line 1: remove the key of /vicepa",
            ),
        ] {
            let error = format!("{:#}", with_partitions(path, text, &[b], None).unwrap_err());
            assert!(error.contains(why), "{error}");
        }
    }

    #[test]
    fn a_second_section_is_refused() {
        let path = Path::new("/etc/cellar/cellar.toml");
        let error = add(path, "[cell]\n[cluster]\nbucket = 1\n", "").unwrap_err().to_string();
        assert!(error.contains("/etc/cellar/cellar.toml, line 2") && error.contains("already"), "{error}");
        let error = format!("{:#}", add(path, "[cell\n", "").unwrap_err());
        assert!(error.contains("/etc/cellar/cellar.toml"), "{error}");
    }
}
