//! The plan as a table: what is declared, what is observed, and the steps or conflicts that follow.

use super::declared::Declared;
use super::observed::{AccessList, Entry, Observed, Place, Policy, Published, Volume};
use super::plan::{Conflict, plan};
use base::{PartitionId, Rights};
use cell_client::location::Site;
use std::net::Ipv4Addr;
use std::path::Path;

const FS1: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const FS2: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);
/// Another address of FS2.
const FS2_ALIAS: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 2);

fn declared(text: &str) -> Declared {
    Declared::parse(Path::new("cell.toml"), text).unwrap()
}

/// A cell with the user ann (1001, in ann:friends), the volume `home` with a mount point, and `software` with
/// a released site.
fn cell() -> Observed {
    let mut observed = Observed { default_server: Some(FS1), ..Observed::default() };
    let mut entry = |name: &str, id, owner: &str, access, members: &[&str]| {
        let members = members.iter().map(|&member| member.into()).collect();
        observed.entries.insert(name.into(), Entry { id, owner: owner.into(), access, members });
    };
    entry("ann", 1001, "system:administrators", 0x80, &[]);
    entry("ben", 1002, "system:administrators", 0x80, &[]);
    entry("ann:friends", -210, "ann", 0x90, &["ben"]);
    entry("staff", -211, "ann", 0x90, &[]);
    entry("system:anyuser", -101, "system:administrators", 0, &[]);
    observed.volumes.insert("home".into(), volume(&[("ann", "rlidwka")]));
    let acl = [("system:anyuser", "rl")];
    let published = Published { owner: 0, acl: access_list(&acl) };
    let site = Site { server: FS2, partition: PartitionId::from_index(0).unwrap(), is_read_write: false };
    let software = Volume { sites: vec![site], published: Some(published), ..volume(&acl) };
    observed.volumes.insert("software".into(), software);
    observed.servers = vec![vec![FS1], vec![FS2, FS2_ALIAS]];
    observed
}

fn access_list(more: &[(&str, &str)]) -> AccessList {
    let entries = [("system:administrators", "rlidwka")].iter().chain(more);
    let granted = entries.map(|(who, rights)| ((*who).into(), rights.parse::<Rights>().unwrap())).collect();
    AccessList { granted, ..AccessList::default() }
}

fn volume(acl: &[(&str, &str)]) -> Volume {
    Volume {
        server: FS1,
        partition: PartitionId::from_index(0).unwrap(),
        quota_kib: 5000,
        owner: 0,
        acl: access_list(acl),
        policy: Some(Policy { compression: String::new(), deduplication: false, snapshots: [0; 4] }),
        sites: Vec::new(),
        published: None,
    }
}

fn steps(text: &str, observed: &Observed, prune: bool) -> Vec<String> {
    let steps = plan(&declared(text), observed, prune).unwrap();
    steps.iter().map(ToString::to_string).collect()
}

fn conflicts(text: &str, observed: &Observed) -> Vec<Conflict> {
    plan(&declared(text), observed, false).unwrap_err()
}

#[test]
fn missing_declared_objects_are_created() {
    for (text, expected) in [
        ("", &[][..]),
        ("[users.ann]\nid = 1001\naccess = \"S----\"", &[]),
        ("[users.cleo]\nid = 1003", &["create the user cleo with number 1003"]),
        ("[users.cleo]\naccess = \"SOM--\"", &["create the user cleo", "set the access of cleo to SOM--"]),
        ("[groups.\"ann:friends\"]\nmembers = [\"ben\"]", &[]),
        ("[groups.\"ann:friends\"]\naccess = \"-----\"", &["set the access of ann:friends to -----"]),
        ("[groups.\"ann:friends\"]\nmembers = [\"ann\"]", &["add ann to ann:friends"]),
        (
            "[groups.\"ben:team\"]\nmembers = [\"ann\"]",
            &["create the group ben:team of ben", "add ann to ben:team"],
        ),
        ("[groups.new]", &["create the group new"]),
        ("[groups.staff]\nowner = \"ben\"", &["give the group staff to ben"]),
        ("[volumes.home]\nquota = 5000\nserver = \"192.0.2.1\"\npartition = \"a\"", &[]),
        (
            "[volumes.home]\nquota = \"10M\"",
            &["give home a quota of 10.00 MiB instead of a quota of 4.88 MiB"],
        ),
        ("[volumes.home]\nowner = \"ann\"", &["give the root of home to ann"]),
        ("[volumes.home]\nacl = { ann = \"rlidwka\" }", &[]),
        (
            "[volumes.home]\nacl = { ann = \"\", ben = \"rl\" }",
            &["set the ACL of the root of home to ben=rl, system:administrators=rlidwka"],
        ),
        (
            "[volumes.home]\ndenied = { ben = \"w\" }",
            &["set the ACL of the root of home to ann=rlidwka, system:administrators=rlidwka; denied: ben=w"],
        ),
        ("[volumes.home]\ncompression = \"zstd:3\"", &["compress new data of home with zstd:3"]),
        ("[volumes.home]\ncompression = \"default\"\ndeduplication = false\nsnapshots = {}", &[]),
        ("[volumes.home]\ndeduplication = true", &["turn deduplication of new data of home on"]),
        (
            "[volumes.home]\nsnapshots = { hourly = 24, daily = 7 }",
            &["keep 24 hourly, 7 daily, 0 weekly and 0 monthly snapshots of home"],
        ),
        (
            "[volumes.new]\nquota = 0\nacl = { \"system:anyuser\" = \"rl\" }\nowner = \"ann\"\ndeduplication = true",
            &[
                "create the volume new on 192.0.2.1 with no quota",
                "turn deduplication of new data of new on",
                "give the root of new to ann",
                "set the ACL of the root of new to system:administrators=rlidwka, system:anyuser=rl",
            ],
        ),
        (
            "[volumes.new]\nserver = \"192.0.2.2\"\npartition = \"b\"",
            &["create the volume new on 192.0.2.2 /vicepb with a quota of 4.88 MiB"],
        ),
    ] {
        assert_eq!(steps(text, &cell(), false), expected, "{text}");
    }
}

#[test]
fn groups_are_created_after_their_owners() {
    let text =
        "[users.cleo]\n[groups.a]\nowner = \"c\"\n[groups.c]\nowner = \"cleo\"\n[groups.s]\nowner = \"s\"";
    let expected = [
        "create the user cleo",
        "create the group c of cleo",
        "create the group a of c",
        "create the group s",
        "give the group s to s",
    ];
    assert_eq!(steps(text, &cell(), false), expected);
}

#[test]
fn nothing_undeclared_is_removed_unless_it_is_pruned() {
    let text = "[groups.\"ann:friends\"]\nmembers = [\"ann\"]\n[groups.staff]\n[volumes.home]\n\
                acl = { ben = \"rl\" }\n[volumes.software]\n";
    let kept = [
        "add ann to ann:friends",
        "set the ACL of the root of home to ann=rlidwka, ben=rl, system:administrators=rlidwka",
    ];
    assert_eq!(steps(text, &cell(), false), kept);
    let pruned = [
        "add ann to ann:friends",
        "remove ben from ann:friends",
        "set the ACL of the root of home to ben=rl, system:administrators=rlidwka",
    ];
    assert_eq!(steps(text, &cell(), true), pruned);
}

#[test]
fn mount_points_are_made_where_there_is_room() {
    let text = "[mounts]\n\"home/doc\" = \"software\"\n";
    let with = |state: Place| {
        let mut observed = cell();
        observed.mounts.insert("home/doc".into(), state);
        observed
    };
    let mount = |contents: &str| Place::Mount { contents: contents.into(), is_published: true };
    assert_eq!(steps(text, &with(Place::Free), false), ["mount software at home/doc"]);
    assert_eq!(steps(text, &with(mount("#software")), false), [""; 0]);
    let read_write = text.replace("\"software\"", "\"%software\"");
    let expected = ["mount software at home/doc, always to the read-write volume"];
    assert_eq!(steps(&read_write, &with(Place::Free), false), expected);
    for (state, words) in [
        (mount("%software"), "the mount point there is `%software`"),
        (mount("#other"), "`cellar volume unmount home/doc`"),
        (Place::Occupied, "something other"),
        (Place::NoDirectory, "does not exist"),
    ] {
        let found = conflicts(text, &with(state));
        assert!(found.len() == 1 && found[0].line == 2 && found[0].what.contains(words), "{found:?}");
    }
    let deep = "[volumes.fresh]\n[mounts]\n\"fresh/a/doc\" = \"software\"";
    assert!(conflicts(deep, &cell())[0].what.contains("does not exist"), "a new volume has no directories");
    let new = "[volumes.fresh]\n[mounts]\n\"fresh/doc\" = \"software\"\n\"other/doc\" = \"software\"";
    let found = conflicts(new, &cell());
    assert_eq!((found.len(), found[0].line, &*found[0].key), (1, 4, "mounts.other/doc"));
    assert!(found[0].what.contains("no volume other"), "{found:?}");
}

#[test]
fn read_only_sites_are_added_and_released_to() {
    let released = "[volumes.software]\nread_only = [\"192.0.2.2/a\"]\n";
    assert_eq!(steps(released, &cell(), false), [""; 0]);
    let alias = released.replace("192.0.2.2", "198.51.100.2");
    assert_eq!(steps(&alias, &cell(), false), [""; 0], "the same server");
    let another = "[volumes.software]\nread_only = [\"192.0.2.2\", \"192.0.2.1\"]\n";
    let expected = ["add the read-only site 192.0.2.1 of software", "release software"];
    assert_eq!(steps(another, &cell(), false), expected);

    // A release that was interrupted is repeated.
    let mut unfinished = cell();
    unfinished.volumes.get_mut("software").unwrap().published = None;
    assert_eq!(steps(released, &unfinished, false), ["release software"]);

    // Changes inside a volume reach its copies, also if the release after them failed.
    let acl = format!("{released}acl = {{ ann = \"rl\" }}\n");
    let changed = steps(&acl, &cell(), false);
    assert!(changed.len() == 2 && changed[1] == "release software", "{changed:?}");
    let mut behind = cell();
    behind.volumes.get_mut("software").unwrap().acl = access_list(&[("system:anyuser", "rl"), ("ann", "rl")]);
    assert_eq!(steps(&acl, &behind, false), ["release software"]);
    let mount = format!("{released}[mounts]\n\"software/x\" = \"home\"\n");
    let mut behind = cell();
    let unpublished = Place::Mount { contents: "#home".into(), is_published: false };
    behind.mounts.insert("software/x".into(), unpublished);
    assert_eq!(steps(&mount, &behind, false), ["release software"]);
    behind.mounts.insert("software/x".into(), Place::Free);
    assert_eq!(steps(&mount, &behind, false), ["mount home at software/x", "release software"]);

    // Without declared sites, copies are the business of others.
    assert_eq!(steps("[volumes.software]\nacl = { ann = \"rl\" }\n", &cell(), false).len(), 1);
}

#[test]
fn contradictions_are_named_and_nothing_is_planned() {
    let mut foreign = cell();
    foreign.volumes.get_mut("home").unwrap().policy = None;
    for (observed, text, line, key, words) in [
        (&cell(), "[users.ann]\nid = 7", 2, "users.ann.id", "number 1001"),
        (&cell(), "[users.staff]", 1, "users.staff", "is a group"),
        (&cell(), "[groups.ann]", 1, "groups.ann", "is a user"),
        (&cell(), "[groups.staff]\nmembers = [\"eve\"]", 2, "groups.staff.members", "no user or group eve"),
        (&cell(), "[groups.\"eve:x\"]", 1, "groups.eve:x.owner", "declare it"),
        (
            &cell(),
            "[volumes.home]\nserver = \"192.0.2.2\"",
            2,
            "volumes.home.server",
            "volume move home --to 192.0.2.2",
        ),
        (&cell(), "[volumes.home]\npartition = \"b\"", 2, "volumes.home.partition", "--partition b"),
        (&cell(), "[volumes.home]\nowner = \"eve\"", 2, "volumes.home.owner", "eve"),
        (&cell(), "[volumes.home]\nacl = { eve = \"rl\" }", 2, "volumes.home.acl.eve", "eve"),
        (
            &cell(),
            "[volumes.software]\nread_only = [\"192.0.2.2/b\"]",
            2,
            "volumes.software.read_only",
            "/vicepa",
        ),
        (&foreign, "[volumes.home]\ndeduplication = true", 1, "volumes.home", "not a Cellar server"),
    ] {
        let found = conflicts(text, observed);
        assert_eq!((found.len(), found[0].line, &*found[0].key), (1, line, key), "{text}: {found:?}");
        assert!(found[0].what.contains(words), "{text}: {found:?}");
    }
    assert_eq!(steps("[volumes.home]\nquota = 5000", &foreign, false), [""; 0], "OpenAFS has quotas");
    // All are reported.
    assert_eq!(conflicts("[users.ann]\nid = 7\n[groups.ben]", &cell()).len(), 2);
}
