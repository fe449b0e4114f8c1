//! The settings in effect: every key of `cellar.toml` with its value and where that comes from.

use crate::encryption::KeySource;
use crate::file::Origin;
use crate::files::Exposure;
use crate::security::{AUDIENCES, CALLERS, LEVELS, ServiceLevels};
use crate::{BucketSettings, ClusterSettings, Place, Settings, openafs};
use anyhow::{Context as _, Result};
use audit::Target;
use base::SecurityLevel;
use ptdb::EntryFlags;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use toml::de::{DeTable, DeValue};
use toml::{Spanned, Value};

/// Text in place of a value that may contain a secret.
const HIDDEN: &str = "(not shown)";

/// Key whose value is shown as the file has it.
const REALMS: &str = "cell.realms";

/// Partitions in buckets, which are an array of tables.
const PARTITION: &str = "partition";

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Source {
    /// A line of the configuration file.
    Line {
        /// Path of the file.
        file: String,
        /// Line number, from 1.
        line: usize,
    },
    /// One of OpenAFS's files.
    File(String),
    /// The default, which is fixed.
    Default,
    /// A default that follows from something else.
    Derived(&'static str),
    /// An environment variable.
    Environment(&'static str),
    /// An option of the command line.
    CommandLine(&'static str),
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Line { file, line } => write!(f, "{file}, line {line}"),
            Source::File(file) => f.write_str(file),
            Source::Default => f.write_str("default"),
            Source::Derived(from) => write!(f, "default, from {from}"),
            Source::Environment(name) => write!(f, "environment, {name}"),
            Source::CommandLine(option) => write!(f, "command line, {option}"),
        }
    }
}

/// A key with its value.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Setting {
    /// The key with its sections, like `rx.lanes`.
    pub key: String,
    /// The value, as in TOML.
    pub value: Value,
    /// Where it comes from.
    pub source: Source,
}

/// Returns the settings in effect, in the order of the reference. `path` is the configuration file they were
/// loaded from; without one, they are from OpenAFS's files.
///
/// # Errors
/// If the file cannot be read any more.
pub fn effective(settings: &Settings, path: Option<&Path>) -> Result<Vec<Setting>> {
    let Some(path) = path else { return Ok(with_sources(settings, BTreeMap::new(), openafs_source)) };
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let named = lines(path, &text).with_context(|| format!("in {}", path.display()))?;
    Ok(with_sources(settings, named, |key| derived(settings, key)))
}

/// Returns the keys that a file sets.
///
/// # Errors
/// If it is not TOML.
fn lines(path: &Path, text: &str) -> Result<BTreeMap<String, (Value, Source)>> {
    let table = DeTable::parse(text)?;
    let mut found = BTreeMap::new();
    collect(&Origin::new(path, text), "", table.get_ref(), &mut found)?;
    Ok(found)
}

fn collect(
    origin: &Origin<'_>,
    prefix: &str,
    table: &DeTable<'_>,
    found: &mut BTreeMap<String, (Value, Source)>,
) -> Result<()> {
    for (name, value) in table {
        let key = format!("{prefix}{}", quoted(name.get_ref()));
        if let DeValue::Table(below) = value.get_ref() {
            collect(origin, &format!("{key}."), below, found)?;
            continue;
        }
        if key == PARTITION {
            collect_partitions(origin, value.get_ref(), found)?;
            continue;
        }
        let is_secret = key.ends_with(".key_command");
        let shown = if is_secret { Value::from(HIDDEN) } else { value_of(origin, value)? };
        found.insert(key, (shown, origin.source(name)));
    }
    Ok(())
}

/// Collects the keys of `[[partition]]`, each under the name of its partition.
fn collect_partitions(
    origin: &Origin<'_>,
    value: &DeValue<'_>,
    found: &mut BTreeMap<String, (Value, Source)>,
) -> Result<()> {
    let DeValue::Array(tables) = value else { return Ok(()) };
    for table in tables {
        let DeValue::Table(table) = table.get_ref() else { continue };
        let named = table.iter().find(|(key, _)| key.get_ref() == "name");
        let name = named.and_then(|(_, name)| name.get_ref().as_str()).unwrap_or_default();
        collect(origin, &format!("{PARTITION}.{}.", quoted(name)), table, found)?;
    }
    Ok(())
}

/// Parses a value again, by itself.
fn value_of(origin: &Origin<'_>, value: &Spanned<DeValue<'_>>) -> Result<Value> {
    let text = format!("value = {}", origin.text(value));
    let mut table: toml::Table = toml::from_str(&text)?;
    table.remove("value").context("a value is missing")
}

/// Returns a key as it is written in TOML.
fn quoted(name: &str) -> String {
    let is_bare = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if !name.is_empty() && name.chars().all(is_bare) { name.into() } else { Value::from(name).to_string() }
}

/// Joins the values in effect with their sources; `otherwise` is that of a key that the file does not set.
fn with_sources(
    settings: &Settings,
    mut named: BTreeMap<String, (Value, Source)>,
    otherwise: impl Fn(&str) -> Source,
) -> Vec<Setting> {
    let mut all = Vec::new();
    for (key, value) in values(settings) {
        let source = match named.remove(&key) {
            Some((given, source)) if key == REALMS => {
                all.push(Setting { key, value: given, source });
                continue;
            }
            Some((_, source)) => source,
            // Optional keys without a default.
            None if value == Value::from("") => continue,
            None => otherwise(&key),
        };
        all.push(Setting { key, value, source });
    }
    // Keys whose names sites choose: weights and levels of single services.
    all.extend(named.into_iter().map(|(key, (value, source))| Setting { key, value, source }));
    all
}

/// Returns the source of a value that `cellar.toml` does not set.
fn derived(settings: &Settings, key: &str) -> Source {
    match key {
        REALMS => Source::Derived("cell.name"),
        "cell.database_servers" | "cluster.address" => Source::Derived("server.announce"),
        "cell.userlist" | "server.logs" | "web.key_file" => Source::Derived("server.state"),
        "server.announce" if settings.bind.is_empty() => Source::Derived("the machine's addresses"),
        "server.announce" => Source::Derived("server.bind"),
        "store.status_cache_mb" | "store.directory_cache_mb" | "store.chunk_cache_mb" => {
            Source::Derived("the machine's memory")
        }
        "rx.lanes" => Source::Derived("the machine's processors"),
        "cluster.node" => Source::Derived("the machine's name"),
        _ if key.starts_with("security.levels.") => Source::Derived("security.levels and own_calls"),
        _ => Source::Default,
    }
}

/// Returns the source of a value of a server without `cellar.toml`.
fn openafs_source(key: &str) -> Source {
    let below = |name: &str| Source::File(format!("{}/{name}", openafs::SERVER_DIRECTORY));
    match key {
        "cell.name" => below("ThisCell"),
        "cell.database_servers" | "server.roles" => below("CellServDB"),
        "cell.keyfile" => below("KeyFileExt"),
        "cell.des_keyfile" => below("KeyFile"),
        "cell.keytab" => below("rxkad.keytab"),
        "cell.administrators" => below("UserList"),
        "server.announce" => Source::Derived("NetInfo, NetRestrict and the machine's addresses"),
        _ if key.starts_with("partitions.") => Source::Derived("the folders /vicepX"),
        _ if key.starts_with("security.") => below("cellar-security.toml, or default"),
        "store.status_cache_mb" | "store.directory_cache_mb" | "store.chunk_cache_mb" => {
            Source::Derived("the machine's memory")
        }
        "rx.lanes" => Source::Derived("the machine's processors"),
        _ => Source::Default,
    }
}

/// Collects keys and values.
#[derive(Default)]
struct Values(Vec<(String, Value)>);

impl Values {
    fn add(&mut self, key: &str, value: impl Into<Value>) {
        self.0.push((key.to_owned(), value.into()));
    }

    fn number(&mut self, key: &str, value: impl TryInto<i64>) {
        self.add(key, value.try_into().unwrap_or(i64::MAX));
    }

    fn path(&mut self, key: &str, path: Option<&Path>) {
        self.add(key, path.map(|path| path.display().to_string()).unwrap_or_default());
    }

    fn list<T: ToString>(&mut self, key: &str, items: impl IntoIterator<Item = T>) {
        self.add(key, items.into_iter().map(|item| Value::from(item.to_string())).collect::<Vec<_>>());
    }
}

/// Returns the name of a value in a table of words.
fn word<T: PartialEq>(words: &[(&'static str, T)], value: &T) -> &'static str {
    words.iter().find(|(_, known)| known == value).map_or("", |(word, _)| word)
}

/// Returns every key that always has a value, and those of this configuration's partitions, keys, sinks and
/// ports.
fn values(settings: &Settings) -> Vec<(String, Value)> {
    let mut values = Values::default();
    cell(&mut values, settings);
    server(&mut values, settings);
    partitions(&mut values, settings);
    store(&mut values, settings);
    rx(&mut values, settings);
    fairness(&mut values, settings);
    security(&mut values, settings);
    observe(&mut values, settings);
    audit_sinks(&mut values, settings);
    ports(&mut values, settings);
    values.0
}

fn cell(values: &mut Values, settings: &Settings) {
    let keys = &settings.key_files;
    values.add("cell.name", settings.cell.as_str());
    if settings.source != openafs::SERVER_DIRECTORY {
        values.list(REALMS, [settings.cell.default_realm()]);
    }
    values.path("cell.keyfile", keys.extended.as_deref());
    values.path("cell.des_keyfile", keys.des.as_deref());
    values.path("cell.keytab", keys.keytab.as_deref());
    values.list("cell.administrators", settings.userlist.principals());
    values.path("cell.userlist", Some(&settings.userlist_path));
    values.list("cell.database_servers", settings.database_servers.iter().map(|server| server.address));
}

fn server(values: &mut Values, settings: &Settings) {
    let role = |role: &crate::Role| format!("{role:?}").to_lowercase();
    values.list("server.roles", settings.roles.iter().map(role));
    values.list("server.bind", &settings.bind);
    values.list("server.announce", &settings.announce);
    let containers = settings.announce_rules.as_ref().is_some_and(|rules| rules.containers);
    values.add("server.announce_containers", containers);
    values.path("server.state", settings.database_path.parent());
    values.path("server.logs", Some(&settings.log_path));
    values.number("server.nice", settings.nice);
}

fn partitions(values: &mut Values, settings: &Settings) {
    if let Some(of) = &settings.cluster {
        cluster(values, settings, of);
    } else {
        for partition in &settings.partitions {
            let letters = partition.id.letters();
            match &partition.place {
                Place::Folder(path) => values.path(&format!("partitions.{letters}"), Some(path)),
                Place::Bucket(bucket) => {
                    let section = format!("{PARTITION}.{letters}");
                    values.add(&format!("{section}.name"), letters);
                    in_bucket(values, &section, bucket);
                }
            }
        }
    }
    for partition in &settings.partitions {
        let key = |of| format!("encryption.{}.{of}", partition.id.letters());
        match &partition.key {
            Some(KeySource::File(path, _)) => values.path(&key("key_file"), Some(path)),
            Some(KeySource::Command(_)) => values.add(&key("key_command"), HIDDEN),
            None => {}
        }
    }
}

/// Adds the keys of a cluster that always have a value.
fn cluster(values: &mut Values, settings: &Settings, cluster: &ClusterSettings) {
    in_bucket(values, "cluster", &cluster.bucket);
    values.list("cluster.partitions", settings.partitions.iter().map(|partition| partition.id.letters()));
    values.add("cluster.node", cluster.node.as_str());
    values.add("cluster.address", cluster.address.to_string());
    values.number("cluster.port", cluster.port);
    values.add("cluster.databases", cluster.databases.is_some());
}

/// Adds the keys of a bucket that always have a value.
fn in_bucket(values: &mut Values, section: &str, bucket: &BucketSettings) {
    let key = |of: &str| format!("{section}.{of}");
    values.add(&key("bucket"), bucket.address.to_string());
    if bucket.address.folder().is_none() {
        values.add(&key("allow_http"), bucket.allow_http);
    }
    if bucket.cache.is_some() {
        values.path(&key("cache"), bucket.cache.as_deref());
        values.number(&key("cache_mb"), bucket.cache_bytes >> 20);
    }
}

fn store(values: &mut Values, settings: &Settings) {
    let tuning = &settings.tuning;
    values.number("store.status_cache_mb", tuning.caches.status >> 20);
    values.number("store.directory_cache_mb", tuning.caches.directories >> 20);
    values.number("store.chunk_cache_mb", tuning.caches.chunks >> 20);
    values.number("store.loaded_volumes", tuning.loaded_volumes);
    values.add("store.durability", tuning.durability.to_string());
    values.add("store.compression", tuning.compression.to_string());
    values.number("store.compaction_mb_per_s", tuning.upkeep.compaction_bytes_per_s >> 20);
    values.number("store.compaction_dead_percent", tuning.upkeep.compaction.dead_percent);
    values.number("store.scrub_mb_per_s", tuning.upkeep.scrub_bytes_per_s >> 20);
    values.number("store.scrub_days", tuning.upkeep.scrub.period_seconds / crate::file::DAY_SECONDS);
    values.number("volume_server.idle_transaction_seconds", tuning.idle_transaction_seconds);
}

fn rx(values: &mut Values, settings: &Settings) {
    let tuning = &settings.tuning;
    values.number("rx.lanes", tuning.lanes);
    values.number("rx.workers", tuning.workers);
    values.number("rx.socket_buffer_mb", tuning.socket_buffer_bytes >> 20);
    values.number("rx.packet_bytes_max", tuning.packet_bytes_max);
}

fn fairness(values: &mut Values, settings: &Settings) {
    let fairness = &settings.tuning.fairness;
    values.number("fairness.user_percent", fairness.user_share_percent);
    values.number("fairness.volume_percent", fairness.volume_share_percent);
    values.number("fairness.small_calls_percent", fairness.small_calls_percent);
    values.number("fairness.verified_calls_percent", fairness.verified_calls_percent);
    values.number("fairness.anonymous_calls_percent", fairness.anonymous_calls_percent);
    values.number("fairness.stalled_calls", fairness.stalled_max);
    values.number("fairness.new_clients", fairness.strangers_max);
    values.number("fairness.waiting_calls", fairness.waiting_max);
    values.number("fairness.waiting_calls_per_user", fairness.waiting_of_user_max);
}

fn security(values: &mut Values, settings: &Settings) {
    let security = &settings.security;
    let level = |level: SecurityLevel| word(&LEVELS, &level);
    values.number("security.clock_skew_seconds", security.clock_skew_seconds);
    values.number("security.clock_warning_seconds", security.clock_warning_seconds);
    values.add("security.dotted_principals", security.dotted_principals);
    values.list("security.weak_enctypes", security.weak_enctypes.iter().map(|enctype| enctype.name()));
    values.add("security.own_calls", level(security.own_calls));
    values.list("security.forward_destinations", &security.forward_destinations);
    values.add("security.rxdebug", word(&AUDIENCES, &security.rxdebug));
    values.list("security.own_hosts", &security.own_hosts);
    queries(values, settings);
    values.add("security.loose_key_files", security.key_files == Exposure::Allowed);
    let levels = &security.levels;
    for (service, of) in [
        ("fs", &levels.fs),
        ("pt", &levels.pt),
        ("vl", &levels.vl),
        ("vol", &levels.vol),
        ("bos", &levels.bos),
        ("cellar", &levels.cellar),
    ] {
        let ServiceLevels { anonymous, users, administrators, cell } = *of;
        let key = |class| format!("security.levels.{service}.{class}");
        values.add(&key("anonymous"), anonymous);
        values.add(&key("users"), level(users));
        values.add(&key("administrators"), level(administrators));
        values.add(&key("cell"), level(cell));
    }
}

fn queries(values: &mut Values, settings: &Settings) {
    let queries = &settings.security.queries;
    let policy = &queries.protection;
    values.add("security.location_queries", word(&CALLERS, &queries.location));
    values.add("security.volume_queries", word(&CALLERS, &queries.volume));
    let who = |is_restricted, restricted, open| if is_restricted { restricted } else { open };
    values.add("security.protection_queries", who(policy.restrict_anonymous, "authenticated", "anyone"));
    values.add("security.protection_changes", who(policy.restricted, "administrators", "owners"));
    let access = [policy.user_access, policy.group_access].map(|bits| EntryFlags(bits).access_text());
    values.list("security.protection_default_access", access);
}

fn observe(values: &mut Values, settings: &Settings) {
    values.number("observe.slow_call_ms", settings.slow_call_ms);
    values.add("observe.count_calls", settings.count_calls);
    values.list("observe.log_events", settings.event_lines.choice.words());
    values.number("observe.log_events_per_second", settings.event_lines.per_second);
}

/// Adds the number of queued records of each sink; their other keys are in the file or optional.
fn audit_sinks(values: &mut Values, settings: &Settings) {
    for sink in &settings.audit {
        let key = |of| format!("audit.{}.{of}", quoted(&sink.name));
        match &sink.target {
            Target::File(path) => values.path(&key("file"), Some(path)),
            Target::Pipe(path) => values.path(&key("pipe"), Some(path)),
            Target::Socket(path) => values.path(&key("socket"), Some(path)),
            Target::Journal(_) => values.add(&key("journal"), true),
        }
        values.number(&key("queue"), sink.queue_records);
    }
}

fn ports(values: &mut Values, settings: &Settings) {
    if let Some(address) = settings.metrics {
        values.number("metrics.port", address.port());
        values.add("metrics.address", address.ip().to_string());
    }
    if let Some(web) = &settings.web {
        values.number("web.port", web.address.port());
        values.add("web.address", web.address.ip().to_string());
        values.list("web.tls_proxies", &web.tls_proxies);
        values.list("web.names", &web.names);
        values.path("web.key_file", Some(&web.key_path));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use afs_format::keyfile::{KeyType, Secret, TypedKey, write_extended};
    use std::collections::BTreeSet;

    fn load(text: &str) -> (tempfile::TempDir, Vec<Setting>) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cellar.toml");
        std::fs::create_dir(folder.path().join("p")).unwrap();
        let secret = Secret::new(&[7; 32]);
        let key = TypedKey { key_type: KeyType::RxkadKerberos5, kvno: 1, subtype: 18, secret };
        crate::files::replace(&folder.path().join("KeyFileExt"), &write_extended(&[key])).unwrap();
        std::fs::write(&path, text).unwrap();
        let settings = crate::file::load(&path).unwrap();
        let all = effective(&settings, Some(&path)).unwrap();
        (folder, all)
    }

    fn setting<'a>(all: &'a [Setting], key: &str) -> &'a Setting {
        all.iter().find(|setting| setting.key == key).unwrap_or_else(|| panic!("no {key} in {all:#?}"))
    }

    const TEXT: &str = "[cell]\nname = \"t.example\"\nkeyfile = \"KeyFileExt\"\n\
        [server]\nbind = [\"127.0.0.1\"]\n\n[partitions]\na = \"p\"\n\
        [encryption.a]\nkey_command = \"vault read secret\"\n\
        [rx]\nworkers = 32\n[fairness.weights]\n\"192.0.2.80\" = 400\n\
        [security.levels.vol]\ncell = \"auth\"\n[audit.trail]\nfile = \"audit\"\n";

    #[test]
    fn values_have_the_lines_that_set_them() {
        let (folder, all) = load(TEXT);
        let file = folder.path().join("cellar.toml").display().to_string();
        for (key, value, line) in [
            ("cell.name", "\"t.example\"", 2),
            ("server.bind", "[\"127.0.0.1\"]", 5),
            ("rx.workers", "32", 12),
            ("fairness.weights.\"192.0.2.80\"", "400", 14),
            ("security.levels.vol.cell", "\"auth\"", 16),
            ("encryption.a.key_command", "\"(not shown)\"", 10),
        ] {
            let found = setting(&all, key);
            assert_eq!(found.value.to_string(), value, "{key}");
            assert_eq!(found.source, Source::Line { file: file.clone(), line }, "{key}");
        }
        assert!(!format!("{all:?}").contains("vault"));
    }

    #[test]
    fn keys_of_partitions_in_buckets_have_their_lines() {
        let bucket = "[[partition]]\nname = \"b\"\nbucket = \"s3://x/b\"\nregion = \"eu\"\n";
        let (_folder, all) = load(&format!("{TEXT}{bucket}"));
        let at = TEXT.lines().count() + 3;
        for (key, value, line) in [("bucket", "\"s3://x/b\"", at), ("region", "\"eu\"", at + 1)] {
            let found = setting(&all, &format!("partition.b.{key}"));
            assert_eq!(found.value.to_string(), value);
            assert!(matches!(found.source, Source::Line { line: of, .. } if of == line), "{found:?}");
        }
        assert_eq!(setting(&all, "partition.b.allow_http").source, Source::Default);
        assert!(!all.iter().any(|setting| setting.key == "partition"), "{all:#?}");
    }

    #[test]
    fn keys_of_a_cluster_have_their_lines_or_origins() {
        let local = "\n[partitions]\na = \"p\"\n";
        let section = "\n[cluster]\nbucket = \"s3://x/cell\"\npartitions = [\"c\", \"b\"]\ncache = \"/c\"\n";
        let text = TEXT.replace(local, section).replace("[encryption.a]", "[encryption.b]");
        let (_folder, all) = load(&text);
        let host = crate::cluster::host_node_name().to_string();
        for (key, value) in [
            ("cluster.bucket", "\"s3://x/cell\""),
            ("cluster.partitions", "[\"b\", \"c\"]"),
            ("cluster.cache", "\"/c\""),
            ("cluster.cache_mb", "10240"),
            ("cluster.node", &format!("\"{host}\"")),
            ("cluster.address", "\"127.0.0.1\""),
            ("cluster.port", "7010"),
            ("cluster.databases", "false"),
            ("encryption.b.key_command", "\"(not shown)\""),
        ] {
            assert_eq!(setting(&all, key).value.to_string(), value, "{key}");
        }
        assert!(matches!(setting(&all, "cluster.bucket").source, Source::Line { line: 8, .. }));
        assert_eq!(setting(&all, "cluster.address").source, Source::Derived("server.announce"));
        assert_eq!(setting(&all, "cluster.port").source, Source::Default);
        assert!(!all.iter().any(|setting| setting.key.starts_with("partition")), "{all:#?}");
    }

    #[test]
    fn defaults_name_their_origin() {
        let (folder, all) = load(TEXT);
        for (key, value, source) in [
            ("rx.packet_bytes_max", "1472", Source::Default),
            ("store.durability", "\"always\"", Source::Default),
            ("server.announce", "[\"127.0.0.1\"]", Source::Derived("server.bind")),
            ("cell.database_servers", "[\"127.0.0.1\"]", Source::Derived("server.announce")),
            ("security.protection_default_access", "[\"S----\", \"S-M--\"]", Source::Default),
            ("audit.trail.queue", "16384", Source::Default),
        ] {
            let found = setting(&all, key);
            assert_eq!((found.value.to_string().as_str(), &found.source), (value, &source), "{key}");
        }
        let logs = folder.path().join("state/log").display().to_string();
        assert_eq!(setting(&all, "server.logs").value.as_str(), Some(&*logs));
        assert!(!all.iter().any(|setting| setting.key == "cell.keytab"), "it is not set");
        let keys: BTreeSet<&String> = all.iter().map(|setting| &setting.key).collect();
        assert_eq!(keys.len(), all.len(), "no key twice");
    }

    /// The reference and this list have the same keys.
    #[test]
    fn every_key_of_the_reference_is_shown() {
        let page = include_str!("../../../../docs/reference/configuration.md");
        let example = page.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
        let documented = lines(Path::new("cellar.toml"), example).unwrap();
        let bucket = "[[partition]]\nname = \"b\"\nbucket = \"s3://x/b\"\ncache = \"c\"\n";
        let (_folder, all) = load(&format!("{TEXT}{bucket}[metrics]\nport = 1\n[web]\n"));
        let shown: BTreeSet<&str> = all.iter().map(|setting| &*setting.key).collect();
        // Without a default: shown only if they are set.
        let optional = [
            "audit.trail.events",
            "audit.trail.format",
            "audit.trail.policy",
            "cell.des_keyfile",
            "cell.foreign",
            "cell.keytab",
            "encryption.a.key_file",
            "fairness.weights.batch",
            "metrics.probe_history",
            "partition.b.ca_file",
            "partition.b.credentials_file",
            "partition.b.endpoint",
            "partition.b.region",
            "partition.b.size_mb",
            "security.levels.administrators",
            "security.levels.anonymous",
            "security.levels.cell",
            "security.levels.users",
            "web.probe_history",
        ];
        for key in documented.keys() {
            assert!(shown.contains(&**key) || optional.contains(&&**key), "{key} is not shown");
        }
        // The other sections with partitions exclude a cluster, so it has an example of its own.
        let example =
            page.split("```toml\n[cluster]").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
        let example = format!("[cluster]{example}");
        let documented = lines(Path::new("cellar.toml"), &example).unwrap();
        let given: Vec<&str> = example.lines().filter(|line| !line.contains("_file =")).collect();
        let given = given.join("\n");
        let (_folder, all) =
            load(&format!("[cell]\nname = \"t.example\"\nkeyfile = \"KeyFileExt\"\n{given}"));
        let shown: BTreeSet<&str> = all.iter().map(|setting| &*setting.key).collect();
        for key in documented.keys() {
            assert!(shown.contains(&**key) || key.ends_with("_file"), "{key} is not shown");
        }
    }
}
