//! `cellar cluster`; here the bucket is a folder.

use crate::support::place::Place;
use std::process::Output;

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[cfg(not(feature = "bucket"))]
#[test]
fn a_cluster_needs_the_feature() {
    let output = Place::new("").output(&["cluster", "status"]);
    assert!(output.status.code() == Some(1) && stderr(&output).contains("cargo feature `bucket`"));
}

#[cfg(feature = "bucket")]
mod with {
    use super::*;
    use crate::support::place::address;
    use crate::support::soon;
    use cluster::{Member, MemberConfig};
    use serde_json::{Value, json};
    use std::os::unix::fs::MetadataExt;
    use std::path::Path;
    use std::sync::atomic::AtomicBool;
    use tempfile::TempDir;
    use tls_server::{Identity, TlsServer};

    fn bucket(folder: &TempDir) -> String {
        format!("file://{}", folder.path().display())
    }

    /// A server that has no partition yet, as after the installation of the package.
    fn fresh(place: Place) -> Place {
        std::fs::remove_dir(place.path("vicepa")).unwrap();
        place
    }

    /// Returns the error of a command that fails and changes nothing.
    fn refusal(place: &Place, arguments: &[&str]) -> String {
        let before = std::fs::read_to_string(&place.config).unwrap();
        let output = place.output(arguments);
        assert_eq!(
            output.status.code(),
            Some(1),
            "{arguments:?}: {}",
            String::from_utf8_lossy(&output.stdout)
        );
        assert_eq!(std::fs::read_to_string(&place.config).unwrap(), before);
        stderr(&output)
    }

    fn places(place: &Place) -> Vec<String> {
        place.settings().partitions.iter().map(|partition| partition.place.to_string()).collect()
    }

    #[test]
    fn a_cluster_is_created_and_joined() {
        let (folder, nodes) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let at = bucket(&folder);
        let first = fresh(Place::new(""));
        let init = ["cluster", "init", &at, "--partitions", "c,b", "--node", "fs1", "--local-databases"];
        let done = first.json(&init);
        assert_eq!(
            (&done["node"], &done["cell"], &done["partitions"]),
            (&json!("fs1"), &json!("t.example"), &json!(["b", "c"]))
        );
        assert_eq!(done["commented_out"], json!(["a = \"vicepa\""]));
        assert_eq!(done["databases"], json!(false));
        assert_eq!(done["next"].as_array().unwrap().len(), 2, "{done:#}");
        let expected = [format!("{at}/b"), format!("{at}/c")];
        assert_eq!(places(&first), expected);
        first.run(&["config", "check"]);
        assert!(expected.iter().all(|place| Path::new(&place["file://".len()..]).is_dir()));
        let error = refusal(&first, &init);
        assert!(error.contains("there is a section `[cluster]` already"), "{error}");

        let member = |name: &str, cell: &str| {
            fresh(Place::member(&nodes.path().join(name), cell, 7, address(), first.address))
        };
        let second = member("second", "t.example");
        let said = second.run(&[
            "cluster",
            "join",
            &at,
            "--node",
            "fs2",
            "--address",
            "127.0.0.9",
            "--port",
            "17010",
        ]);
        assert!(said.contains("fs2") && said.contains("cellar serve --config"), "{said}");
        let cluster = second.settings().cluster.clone().unwrap();
        assert_eq!(
            (cluster.node.as_str(), cluster.socket_address().to_string().as_str()),
            ("fs2", "127.0.0.9:17010")
        );
        assert_eq!(places(&second), expected);

        let error = refusal(&member("stranger", "other.example"), &["cluster", "join", &at]);
        assert!(error.contains("other.example") && error.contains("t.example"), "{error}");
        let whole = fresh(Place::new(""));
        let error = refusal(&whole, &["cluster", "join", &at]);
        assert!(error.contains("server.roles") && error.contains("cell.database_servers"), "{error}");
        let databases = fresh(Place::new(""));
        databases.run(&["cluster", "join", &at, "--node", "fs3", "--databases"]);
        assert_eq!(places(&databases), expected);
        let error = refusal(&whole, &["cluster", "init", &at, "--partitions", "d"]);
        assert!(error.contains("there is a cluster in") && error.contains("cellar cluster join"), "{error}");
        let local = Place::new("");
        let error = refusal(&local, &["cluster", "join", &at]);
        assert!(error.contains("`partitions.a`") && error.contains("one file server"), "{error}");
        let empty = tempfile::tempdir().unwrap();
        let error = refusal(&member("early", "t.example"), &["cluster", "join", &bucket(&empty)]);
        assert!(error.contains("there is no cluster") && error.contains("cellar cluster init"), "{error}");
        let error = refusal(&member("lost", "t.example"), &["cluster", "join", "file:///absent/folder"]);
        assert!(error.contains("/absent/folder"), "{error}");
    }

    /// As the package leaves it: the configuration is root's, and its key the server user's.
    #[test]
    fn root_creates_a_cluster_with_the_keys_of_the_servers_user() {
        let folder = tempfile::tempdir().unwrap();
        let place = fresh(Place::new(""));
        let key = place.path("KeyFileExt");
        // Only root can change the owner.
        if std::os::unix::fs::chown(&key, Some(4711), None).is_ok() {
            place.run(&["cluster", "init", &bucket(&folder), "--partitions", "b", "--node", "fs1"]);
            assert_eq!(std::fs::metadata(&key).unwrap().uid(), 4711);
        }
    }

    /// A server that runs as another user must be able to write what commands of root have created.
    #[test]
    fn files_of_root_belong_to_the_servers_user() {
        const OWNER: u32 = 4711;
        let folder = tempfile::tempdir().unwrap();
        let place = Place::new("");
        let databases = place.settings().database_path.clone();
        let state = databases.parent().unwrap();
        std::fs::create_dir_all(state).unwrap();
        let chown = |path: &Path| std::os::unix::fs::chown(path, Some(OWNER), Some(OWNER));
        // Only root can change the owner.
        if chown(state).is_err() {
            return;
        }
        chown(folder.path()).unwrap();
        let file = place.path("prdb.DB0");
        std::fs::write(&file, crate::importing::prdb()).unwrap();
        place.run(&["import", "prdb", &file.display().to_string()]);
        check_owner(&databases, OWNER);
        let place = fresh(place);
        place.run(&[
            "cluster",
            "init",
            &bucket(&folder),
            "--partitions",
            "b",
            "--node",
            "fs1",
            "--databases",
        ]);
        check_owner(&databases, OWNER);
        check_owner(folder.path(), OWNER);
    }

    fn check_owner(folder: &Path, owner: u32) {
        let entries: Vec<_> = walkdir::WalkDir::new(folder).into_iter().map(|entry| entry.unwrap()).collect();
        assert!(entries.len() > 5, "{entries:?}");
        let is_others = |entry: &&walkdir::DirEntry| entry.metadata().unwrap().uid() != owner;
        let others: Vec<&Path> = entries.iter().filter(is_others).map(walkdir::DirEntry::path).collect();
        assert!(others.is_empty(), "{others:?}");
    }

    #[test]
    fn new_databases_are_in_the_bucket() {
        let (folder, nodes) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let at = bucket(&folder);
        let first = fresh(Place::new(""));
        let said = first.run(&["cluster", "init", &at, "--partitions", "b", "--node", "fs1"]);
        assert!(said.contains("databases will be in the bucket"), "{said}");
        let place =
            |of: &Place| of.settings().cluster.clone().unwrap().databases.unwrap().address.to_string();
        assert_eq!(place(&first), format!("{at}/databases"));
        assert!(folder.path().join("databases").is_dir());

        // A server that had named its roles gets those of the databases.
        let member = |name: &str| {
            fresh(Place::member(&nodes.path().join(name), "t.example", 7, address(), first.address))
        };
        let second = member("second");
        let done = second.json(&["cluster", "join", &at, "--node", "fs2"]);
        assert_eq!(done["databases"], json!(true));
        assert_eq!(place(&second), place(&first));
        let text = std::fs::read_to_string(&second.config).unwrap();
        assert!(text.contains("roles = [\"fs\", \"vol\", \"bos\", \"pt\", \"vl\"]\n"), "{text}");
        let own = member("own");
        std::fs::create_dir_all(own.path("state/db")).unwrap();
        let error = refusal(&own, &["cluster", "join", &at]);
        assert!(error.contains("databases of its own") && error.contains("state/db"), "{error}");

        let other = member("other");
        let elsewhere = tempfile::tempdir().unwrap();
        let error = refusal(&other, &["cluster", "init", &bucket(&elsewhere), "--databases"]);
        assert!(error.contains("cannot be moved") && error.contains("server.roles"), "{error}");
    }

    #[test]
    fn an_unfinished_init_is_repeated() {
        let folder = tempfile::tempdir().unwrap();
        let at = bucket(&folder);
        let init = ["cluster", "init", &at, "--partitions", "b"];
        fresh(Place::new("")).run(&init);
        // The same cluster, and no node has been started.
        fresh(Place::new("")).run(&init);
        let config = MemberConfig::new("fs1".parse().unwrap());
        let member = Member::start(cellar_server::buckets::connect(&settings(&at)).unwrap(), config).unwrap();
        crate::support::soon("a lease", || member.has_lease().then_some(()));
        let error = refusal(&fresh(Place::new("")), &init);
        assert!(error.contains("already"), "{error}");
    }

    #[test]
    fn places_of_others_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let at = bucket(&folder);
        fresh(Place::new("")).run(&["cluster", "init", &at, "--partitions", "b"]);
        let below = format!("{at}/b");
        let error = refusal(&fresh(Place::new("")), &["cluster", "init", &below]);
        let words = format!("{below} belongs to the cluster of the cell t.example in {at}");
        assert!(error.contains(&words), "{error}");
        let used = tempfile::tempdir().unwrap();
        std::fs::create_dir(used.path().join("c")).unwrap();
        std::fs::write(used.path().join("c/data"), "").unwrap();
        let init = ["cluster", "init", &bucket(&used), "--partitions", "b,c"];
        let place = fresh(Place::new(""));
        let error = refusal(&place, &init);
        assert!(error.contains("there is data in the folder c") && error.contains("--adopt"), "{error}");
        place.run(&[&init[..], &["--adopt"]].concat());
        let other = tempfile::tempdir().unwrap();
        let partition = settings(&bucket(&other));
        let config = MemberConfig::new("alone".parse().unwrap());
        let member = Member::start(cellar_server::buckets::connect(&partition).unwrap(), config).unwrap();
        drop(member.acquire(&"".parse().unwrap(), &AtomicBool::new(false)).unwrap());
        let error = refusal(&fresh(Place::new("")), &["cluster", "init", &bucket(&other)]);
        assert!(error.contains("is a partition of another server"), "{error}");
    }

    #[test]
    fn a_bucket_that_does_not_exist_is_named() {
        let (folder, server) = (tempfile::tempdir().unwrap(), TlsServer::start(Identity::Good));
        let [key, ca] = ["key", "ca"].map(|name| folder.path().join(name));
        let text = b"aws_access_key_id = AKIDAKID\naws_secret_access_key = s3cret\n";
        cellar_config::files::replace(&key, text).unwrap();
        std::fs::write(&ca, server.authority()).unwrap();
        let endpoint = server.endpoint();
        let reach = ["--endpoint", &endpoint, "--ca-file", ca.to_str().unwrap()];
        let reach = [&reach[..], &["--credentials-file", key.to_str().unwrap()]].concat();
        let join = [&["cluster", "join", "s3://b/p"][..], &reach].concat();
        let place = fresh(Place::new(""));
        for (code, words) in
            [("NoSuchBucket", "404 Not Found: NoSuchBucket"), ("NoSuchKey", "there is no cluster in")]
        {
            server.always_answer("404 Not Found", &format!("<Error><Code>{code}</Code></Error>"));
            let error = refusal(&place, &join);
            assert!(error.contains(words) && error.lines().count() == 1, "{error}");
        }
    }

    #[test]
    fn an_address_of_another_machine_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let at = bucket(&folder);
        let init = |address| ["cluster", "init", &at, "--partitions", "b", "--address", address];
        let said = fresh(Place::new("")).run(&init("192.0.2.77"));
        assert!(said.contains("this machine has no address 192.0.2.77"), "{said}");
        let said = fresh(Place::new("")).run(&init("127.0.0.1"));
        assert!(!said.contains("has no address"), "{said}");
    }

    #[test]
    fn service_addresses_are_listed_and_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let at = bucket(&folder);
        let place = fresh(Place::new(""));
        let own = place.address.to_string();
        let init = ["cluster", "init", &at, "--partitions", "b", "--node", "fs1", "--service-addresses"];
        let error = refusal(&place, &[&init[..], &["127.0.0.1"]].concat());
        assert!(error.contains("127.0.0.1 cannot be a service address"), "{error}");
        let done = place.json(&[&init[..], &["192.0.2.12,192.0.2.11"]].concat());
        assert_eq!(done["service_addresses"], json!(["192.0.2.11", "192.0.2.12"]));
        let text = std::fs::read_to_string(&place.config).unwrap();
        assert!(text.ends_with(&format!("address = \"{own}\"\n")), "{text}");
        let listed = |place: &Place| place.json(&["cluster", "addresses"])["service_addresses"].clone();
        assert_eq!(listed(&place), json!(["192.0.2.11", "192.0.2.12"]));
        let shown = place.json(&["cluster", "status"]);
        let row = json!({"address": "192.0.2.12", "state": "never served", "node": null, "epoch": null});
        assert_eq!(shown["service_addresses"][1], row);
        let addresses = vec!["192.0.2.21:7010".parse().unwrap()];
        let folder = settings(&at).address.prefix().to_owned();
        let config = MemberConfig { folder, addresses, ..MemberConfig::new("fs2".parse().unwrap()) };
        let member = Member::start(cellar_server::buckets::connect(&settings(&at)).unwrap(), config).unwrap();
        soon("a lease", || member.has_lease().then_some(()));
        let error = refusal(&place, &["cluster", "addresses", "192.0.2.13,192.0.2.21"]);
        assert!(error.contains("it is an address of the node fs2"), "{error}");
        assert_eq!(listed(&place), json!(["192.0.2.11", "192.0.2.12"]));
        let said = place.run(&["cluster", "addresses", "192.0.2.13"]);
        assert!(said.contains("are 192.0.2.13; nodes follow"), "{said}");
        assert_eq!(listed(&place), json!(["192.0.2.13"]));
        assert!(place.run(&["cluster", "addresses", "--none"]).contains("no service addresses"));
        assert_eq!(listed(&place), json!([]));
    }

    fn settings(at: &str) -> cellar_config::BucketSettings {
        cellar_config::BucketSettings::of(at.parse().unwrap())
    }

    #[test]
    fn nodes_and_owners_are_shown() {
        let folder = tempfile::tempdir().unwrap();
        let at = bucket(&folder);
        let place = fresh(Place::new(""));
        place.run(&["cluster", "init", &at, "--partitions", "b,c", "--node", "fs1"]);
        assert!(place.run(&["cluster", "status"]).contains("no node has been started yet"));
        let error = refusal(&place, &["cluster", "move", "b", "fs2"]);
        assert!(error.contains("no running node owns /vicepb"), "{error}");

        let addresses = vec![(place.address, 7010).into()];
        let config = MemberConfig { addresses, ..MemberConfig::new("fs1".parse().unwrap()) };
        let member = Member::start(cellar_server::buckets::connect(&settings(&at)).unwrap(), config).unwrap();
        let owner = member.acquire(&"b".parse().unwrap(), &AtomicBool::new(false)).unwrap();
        owner.opened(Vec::new());
        let shown = soon("a lease that is renewed", || {
            let shown = place.json(&["cluster", "status"]);
            let changed = shown["nodes"][0]["lease_changed_seconds"].as_f64()?;
            (changed < 2.0).then_some(shown)
        });
        let [node] = &shown["nodes"].as_array().unwrap()[..] else { panic!("{shown:#}") };
        assert_eq!(
            (&node["node"], &node["state"], &node["partitions"]),
            (&json!("fs1"), &json!("live"), &json!(["b"]))
        );
        assert!(node["server"].as_str().unwrap().contains("does not answer"), "{node}");
        let partition = |number: usize, key: &str| shown["partitions"][number][key].clone();
        assert_eq!(
            (partition(0, "state"), partition(0, "owner"), partition(0, "epoch")),
            (json!("owner does not answer"), json!("fs1"), json!(1))
        );
        for (number, name) in [(1, "/vicepc"), (2, "databases")] {
            assert_eq!(partition(number, "partition"), json!(name));
            let found = (partition(number, "state"), partition(number, "owner"));
            assert_eq!(found, (json!("never served"), Value::Null));
        }
        let said = place.run(&["cluster", "status"]);
        assert!(said.contains("LEASE CHANGED") && said.contains("/vicepc"), "{said}");

        for (arguments, words) in [
            (&["cluster", "move", "b", "fs1"][..], "fs1 owns /vicepb already"),
            (&["cluster", "move", "b", "fs2"], "no node `fs2` runs; those that do are fs1"),
            (&["cluster", "move", "d", "fs1"], "no partition /vicepd; it has b, c"),
            (&["cluster", "move", "databases", "fs1"], "no running node owns databases now"),
            (&["cluster", "drain"], "no other node runs"),
            (&["cluster", "drain", "fs2"], "no node `fs2` runs"),
        ] {
            soon(words, || refusal(&place, arguments).contains(words).then_some(()));
        }
        let remove = |node: &str| refusal(&place, &["cluster", "remove", node]);
        soon("it runs", || remove("fs1").contains("fs1 runs: stop it first").then_some(()));
        assert!(remove("fs2").contains("has no node `fs2`; it has fs1"));
        drop(owner);
        member.leave();
        assert!(remove("fs1").contains("by another one that runs, and none runs"));
        let shown = place.json(&["cluster", "status"]);
        assert_eq!(
            (&shown["nodes"][0]["state"], &shown["nodes"][0]["server"]),
            (&json!("left"), &Value::Null)
        );
        assert_eq!(shown["partitions"][0]["state"], "free");
        drop(folder);
        let error = refusal(&place, &["cluster", "status"]);
        assert!(error.contains(&at), "{error}");
        let error = refusal(&Place::new(""), &["cluster", "status"]);
        assert!(
            error.contains("has no section `[cluster]`") && error.contains("cellar cluster join"),
            "{error}"
        );
    }
}
