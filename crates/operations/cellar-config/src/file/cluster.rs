//! `[cluster]`: partitions in a bucket that several nodes serve as one file server.

use super::Origin;
use super::partitions::{BucketSection, LocalSection};
use super::reach::bucket_section;
use crate::cluster::{ClusterSettings, databases_in, host_node_name, partition_in};
use crate::files::Exposure;
use crate::partitions::{BucketSettings, PartitionSettings, Place};
use crate::{Role, afs_ports};
use anyhow::Result;
use base::PartitionId;
use cluster_proto::NodeName;
use std::net::Ipv4Addr;
use std::path::Path;
use toml::Spanned;

bucket_section! {
    /// `[cluster]`.
    ClusterSection {
        partitions: Spanned<Vec<Spanned<String>>>,
        node: Option<Spanned<String>>,
        address: Option<Spanned<String>>,
        port: Option<Spanned<u16>>,
        databases: Option<Spanned<bool>>,
    }
}

/// Returns the full name of a key.
fn key(of: &str) -> String {
    format!("cluster.{of}")
}

impl ClusterSection {
    /// Resolves the section. `announce` are the addresses that the file server registers; `local` and `others` are the other
    /// sections with partitions, which a node must not have.
    pub(super) fn resolve(
        &self,
        origin: &Origin<'_>,
        folder: &Path,
        exposure: Exposure,
        (roles, announce): (&[Role], &[Ipv4Addr]),
        (local, others): (&LocalSection, &[BucketSection]),
    ) -> Result<(ClusterSettings, Vec<PartitionSettings>)> {
        refuse_others(origin, local, others)?;
        if !roles.contains(&Role::Fs) {
            let what = "the nodes of a cluster serve files; add \"fs\" and \"vol\" to `server.roles`, or remove the \
                        section `[cluster]`";
            return Err(origin.bad(&self.bucket, &key("bucket"), what));
        }
        let bucket = self.reach().resolve(origin, folder, exposure, &key)?;
        let partitions = self.partitions(origin, &bucket)?;
        let node: NodeName = match &self.node {
            Some(name) => name.get_ref().parse().map_err(|error| origin.bad(name, &key("node"), error))?,
            None => host_node_name(),
        };
        let address = self.address(origin, announce)?;
        let databases = self.databases(origin, &bucket, roles)?.map(Box::new);
        Ok((ClusterSettings { bucket, node, address, port: self.port(origin)?, databases }, partitions))
    }

    /// Returns where the cell's databases are, if they are in the bucket.
    fn databases(
        &self,
        origin: &Origin<'_>,
        bucket: &BucketSettings,
        roles: &[Role],
    ) -> Result<Option<BucketSettings>> {
        let Some(given) = self.databases.as_ref().filter(|given| *given.get_ref()) else { return Ok(None) };
        if ![Role::Pt, Role::Vl].iter().all(|role| roles.contains(role)) {
            let what = "every node serves databases that are in the bucket; add \"pt\" and \"vl\" to `server.roles`, \
                        or remove this key";
            return Err(origin.bad(given, &key("databases"), what));
        }
        databases_in(bucket).map(Some).map_err(|error| origin.bad(&self.bucket, &key("bucket"), error))
    }

    /// Returns the partitions, each at its own place in the bucket, in the order of their letters.
    fn partitions(&self, origin: &Origin<'_>, bucket: &BucketSettings) -> Result<Vec<PartitionSettings>> {
        let names = self.partitions.get_ref();
        if names.is_empty() {
            let what = "is empty; a cluster has at least one partition, like [\"b\"]";
            return Err(origin.bad(&self.partitions, &key("partitions"), what));
        }
        let mut all: Vec<PartitionSettings> = Vec::new();
        for name in names {
            let bad = |what: String| origin.bad(name, &key("partitions"), what);
            let id: PartitionId = name.get_ref().parse().map_err(bad)?;
            if all.iter().any(|other| other.id == id) {
                return Err(bad(format!("`{}` is listed twice", id.letters())));
            }
            let place =
                partition_in(bucket, id).map_err(|error| origin.bad(&self.bucket, &key("bucket"), error))?;
            all.push(PartitionSettings { id, place: Place::Bucket(Box::new(place)), key: None });
        }
        all.sort_by_key(|partition| partition.id);
        Ok(all)
    }

    /// Returns the address at which other nodes call this one.
    fn address(&self, origin: &Origin<'_>, announce: &[Ipv4Addr]) -> Result<Ipv4Addr> {
        let Some(text) = &self.address else {
            return Ok(announce.first().copied().unwrap_or(Ipv4Addr::LOCALHOST));
        };
        let bad = |what: &str| {
            let shown = format!("`{}` {what}; give one of this machine's, like `192.0.2.1`", text.get_ref());
            origin.bad(text, &key("address"), shown)
        };
        let address: Ipv4Addr =
            text.get_ref().parse().map_err(|_| bad("is not an IPv4 address (the port is `cluster.port`)"))?;
        if address.is_unspecified() || address.is_multicast() || address.is_broadcast() {
            return Err(bad("is not the address of one machine"));
        }
        Ok(address)
    }

    /// Returns the port on which this node receives other nodes' calls.
    fn port(&self, origin: &Origin<'_>) -> Result<u16> {
        let port = origin.bounded(self.port.as_ref(), &key("port"), afs_idl::cluster::PORT, 1, u16::MAX)?;
        match &self.port {
            Some(given) if afs_ports().contains(&port) => {
                let what = format!(
                    "{port} is the port of another AFS service; the default is {}",
                    afs_idl::cluster::PORT
                );
                Err(origin.bad(given, &key("port"), what))
            }
            _ => Ok(port),
        }
    }
}

/// Refuses partitions that only this node has.
fn refuse_others(origin: &Origin<'_>, local: &LocalSection, others: &[BucketSection]) -> Result<()> {
    const WHY: &str = "all nodes of a cluster (`[cluster]`) are one file server with the same partitions, those in \
                       `cluster.partitions`; move the volumes of this one there and remove it, or remove `[cluster]`";
    if let Some(name) = local.keys().min_by_key(|name| name.span().start) {
        return Err(origin.bad(name, &format!("partitions.{}", name.get_ref()), WHY));
    }
    match others.first() {
        Some(section) => Err(origin.bad(section.name(), "partition.name", WHY)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{load_lines, load_lines_in, refusal};
    use super::*;

    const CLUSTER: &str = "[cluster]\nbucket = \"s3://cellar/example\"\npartitions = [\"c\", \"b\"]\n";

    #[test]
    fn a_cluster_has_a_place_for_each_partition() {
        let text = format!(
            "[server]\nannounce = [\"192.0.2.7\"]\n{CLUSTER}endpoint = \"https://s3.example.org\"\nregion = \"eu\"\n\
             cache = \"cache\"\ncache_mb = 100\nsize_mb = 2048\n[encryption.b]\nkey_command = \"x\"\n"
        );
        let folder = tempfile::tempdir().unwrap();
        let settings = load_lines_in(folder.path(), &text).unwrap();
        let cluster = settings.cluster.unwrap();
        assert_eq!(cluster.bucket.address.to_string(), "s3://cellar/example");
        let place = cluster.partition(settings.partitions[0].id);
        assert_eq!((cluster.folder(), place.as_str()), ("example", "example/b"));
        let own = &settings.partitions[0];
        assert_eq!(cluster.partition_settings(own.id, own.key.clone()).as_ref(), Ok(own));
        assert_eq!((cluster.node, cluster.port), (host_node_name(), 7010));
        assert_eq!(cluster.address, Ipv4Addr::new(192, 0, 2, 7));
        let found: Vec<String> =
            settings.partitions.iter().map(|one| format!("{} {}", one.id.letters(), one.place)).collect();
        assert_eq!(found, ["b s3://cellar/example/b", "c s3://cellar/example/c"]);
        assert!(settings.partitions[0].key.is_some() && settings.partitions[1].key.is_none());
        for (partition, letters) in settings.partitions.iter().zip(["b", "c"]) {
            let bucket = partition.place.bucket().unwrap();
            assert_eq!(bucket.cache.as_deref(), Some(&*folder.path().join("cache").join(letters)));
            assert_eq!((bucket.cache_bytes, bucket.size_bytes), (100 << 20, Some(2 << 30)));
            let (place, name) = bucket.lease_place().unwrap();
            assert_eq!(place.address, cluster.bucket.address, "one lease for all partitions");
            assert_eq!(name.to_string(), format!("example/{letters}"));
            assert_eq!(
                (bucket.endpoint.as_deref(), bucket.region.as_deref()),
                (Some("https://s3.example.org"), Some("eu"))
            );
            assert!(bucket.at.to_string().ends_with("cellar.toml, line 7"), "{}", bucket.at);
        }
    }

    #[test]
    fn a_node_has_its_own_name_and_address() {
        let lines = "[cluster]\nbucket = \"file:///srv/cellar\"\npartitions = [\"/vicepb\"]\nnode = \"n-1\"\n\
                     address = \"127.0.0.2\"\nport = 17010\n";
        let settings = load_lines(lines).unwrap();
        let cluster = settings.cluster.unwrap();
        assert_eq!(
            (cluster.node.as_str(), cluster.socket_address().to_string().as_str()),
            ("n-1", "127.0.0.2:17010")
        );
        assert_eq!(settings.partitions[0].place.to_string(), "file:///srv/cellar/b");
        assert_eq!((cluster.folder(), cluster.partition(settings.partitions[0].id).as_str()), ("", "b"));
        assert_eq!(load_lines("[partitions]\na = \"p\"").unwrap().cluster, None);
    }

    #[test]
    fn the_databases_have_a_place_of_their_own() {
        let text =
            format!("[server]\nannounce = [\"192.0.2.7\"]\n{CLUSTER}cache = \"cache\"\nsize_mb = 2048\n");
        let settings = load_lines(&format!("{text}databases = false\n")).unwrap();
        assert!(!settings.shares_databases() && settings.cluster.unwrap().databases_place().is_none());
        let settings = load_lines(&format!("{text}databases = true\n")).unwrap();
        assert!(settings.shares_databases());
        let cluster = settings.cluster.unwrap();
        assert_eq!(cluster.databases_place().unwrap().as_str(), "example/databases");
        let bucket = cluster.databases.unwrap();
        assert_eq!(bucket.address.to_string(), "s3://cellar/example/databases");
        assert_eq!((&bucket.cache, bucket.size_bytes), (&None, None));
        let (place, name) = bucket.lease_place().unwrap();
        assert_eq!((place.address, name.as_str()), (cluster.bucket.address, "example/databases"));
    }

    #[test]
    fn a_node_with_the_databases_asks_itself_first() {
        let list = "database_servers = [\"192.0.2.8\", \"192.0.2.7\", \"192.0.2.9\"]\n[server]\nannounce = [\"192.0.2.7\"]\n";
        for (databases, first, refused) in [(true, 7, 0), (false, 8, 1)] {
            let text = format!("{list}{CLUSTER}databases = {databases}\n");
            let settings = load_lines(&text).unwrap();
            let servers: Vec<u8> =
                settings.database_servers.iter().map(|server| server.address.octets()[3]).collect();
            assert_eq!((servers.len(), servers[0]), (3, first), "{servers:?}");
            assert_eq!(settings.roles_warning().iter().count(), refused);
        }
    }

    #[test]
    fn errors_have_line_and_key() {
        let with = |lines: &str| format!("{CLUSTER}{lines}");
        let of = |partitions: &str| format!("[cluster]\nbucket = \"s3://x\"\npartitions = {partitions}\n");
        let long = format!("[cluster]\nbucket = \"s3://x/{}\"\npartitions = [\"b\"]", "p".repeat(512));
        for (lines, words) in [
            (with("[partitions]\na = \"p\""), ["line 8", "partitions.a", "one file server"]),
            (
                with("[[partition]]\nname = \"d\"\nbucket = \"s3://x\""),
                ["line 8", "partition.name", "cluster.partitions"],
            ),
            ("[cluster]\npartitions = [\"b\"]".into(), ["line 4", "missing", "bucket"]),
            ("[cluster]\nbucket = \"s3://x\"".into(), ["line 4", "missing", "partitions"]),
            (of("[]"), ["line 6", "cluster.partitions", "at least one"]),
            (of("[\"b\", \"9\"]"), ["line 6", "cluster.partitions", "/vicepiv"]),
            (of("[\"b\", \"vicepb\"]"), ["line 6", "cluster.partitions", "twice"]),
            (long, ["line 5", "cluster.bucket", "s3://BUCKET/PREFIX"]),
            (with("colour = 1"), ["line 7", "colour", "`endpoint`"]),
            (with("node = \"A b\""), ["line 7", "cluster.node", "a-z"]),
            (with("address = \"fs1\""), ["line 7", "cluster.address", "192.0.2.1"]),
            (with("address = \"0.0.0.0\""), ["line 7", "cluster.address", "one machine"]),
            (with("port = 0"), ["line 7", "cluster.port", "1 to 65535"]),
            (with("port = 7000"), ["line 7", "cluster.port", "7010"]),
            (with("endpoint = \"http://x\""), ["line 7", "cluster.endpoint", "allow_http"]),
            (with("cache_mb = 1"), ["line 7", "cluster.cache_mb", "64 to 16777216"]),
            (with("[encryption.d]\nkey_file = \"k\""), ["line 7", "encryption", "no partition `d`"]),
            (with("[server]\nroles = [\"pt\", \"vl\"]"), ["line 5", "cluster.bucket", "server.roles"]),
            (
                with("databases = true\n[server]\nroles = [\"fs\", \"pt\", \"vol\"]"),
                ["line 7", "cluster.databases", "server.roles"],
            ),
        ] {
            let text = refusal(&lines);
            assert!(words.iter().all(|word| text.contains(word)), "{lines}: {text}");
        }
    }
}
