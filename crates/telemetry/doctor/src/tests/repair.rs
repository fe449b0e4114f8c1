//! Plans for cells whose location database and volumes differ.

use super::cell::{header, home, transaction};
use crate::cell::{Cell, Entry, FileServer, Header, Site};
use crate::repair::{Action, Options, plan};
use std::net::Ipv4Addr;

const OTHER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);

/// A cell, and the steps and problems of its plan as text.
type Case = (&'static str, Box<dyn Fn(&mut Cell)>, &'static [&'static str], &'static [&'static str]);

/// A second server that has these volumes on its partition a.
fn other(volumes: Vec<Header>) -> FileServer {
    FileServer { addresses: vec![OTHER], partitions: vec!["a".into()], volumes, ..FileServer::default() }
}

fn silent() -> FileServer {
    FileServer { addresses: vec![OTHER], failure: Some("it is gone".into()), ..FileServer::default() }
}

fn case(
    name: &'static str,
    change: impl Fn(&mut Cell) + 'static,
    steps: &'static [&'static str],
    left: &'static [&'static str],
) -> Case {
    (name, Box::new(change), steps, left)
}

fn entry_cases() -> Vec<Case> {
    vec![
        case("a sound cell", |_| {}, &[], &[]),
        case(
            "a rename that ended midway",
            |cell| {
                cell.servers[0].volumes[0].name = Some("old".into());
                cell.servers[0].volumes[1].name = Some("old.readonly".into());
            },
            &[
                "rename old (100) on 10.0.0.1 /vicepa to home",
                "rename old.readonly (101) on 10.0.0.1 /vicepa to home.readonly",
            ],
            &[],
        ),
        case("a lock", |cell| cell.entries[0].is_locked = true, &["unlock the entry home"], &[]),
        case(
            "a lock, and a transaction that was not used for an hour",
            |cell| {
                cell.entries[0].is_locked = true;
                cell.servers[0].transactions.push(transaction(101, 3600));
            },
            &[],
            &["a transaction on it is open; `vos status` lists transactions"],
        ),
        case(
            "a lock, and a server that does not answer",
            |cell| {
                cell.entries[0].is_locked = true;
                cell.entries[0].sites[1].server = OTHER;
                cell.servers.push(silent());
            },
            &[],
            &["the entry is locked, and 10.0.0.2 does not answer: an operation may work there"],
        ),
        case(
            "a transaction on a sound volume",
            |cell| cell.servers[0].transactions.push(transaction(100, 0)),
            &[],
            &[],
        ),
        case(
            "a backup volume that was deleted",
            |cell| cell.entries[0].exists[2] = true,
            &["remove home.backup from the entry, no server has it"],
            &[],
        ),
    ]
}

fn site_cases() -> Vec<Case> {
    vec![
        case(
            "a copy that was deleted on its server",
            |cell| drop(cell.servers[0].volumes.pop()),
            &["remove the site 10.0.0.1 /vicepa of home.readonly, which is not there"],
            &[],
        ),
        case(
            "a copy on a partition that the server does not serve",
            |cell| cell.entries[0].sites[1].partition = "c".into(),
            &[],
            &[],
        ),
        case(
            "a site that no release has reached",
            |cell| {
                cell.servers[0].volumes.pop();
                cell.entries[0].sites[1].is_empty = true;
            },
            &[],
            &[],
        ),
        case(
            "a volume on another server than its entry says",
            |cell| {
                cell.servers[0].volumes.remove(0);
                cell.servers.push(other(vec![header(100, 100, "home")]));
            },
            &["change the site of home from 10.0.0.1 /vicepa, which does not have it, to 10.0.0.2 /vicepa"],
            &[],
        ),
        case(
            "a volume on two servers",
            |cell| cell.servers.push(other(vec![header(100, 100, "home")])),
            &[],
            &[
                "the volume is on 10.0.0.1 /vicepa and on 10.0.0.2 /vicepa: compare them with `vos examine`, and delete \
               the older with `vos zap -id 100`",
            ],
        ),
        case(
            "an entry whose volumes are gone",
            |cell| {
                cell.servers[0].volumes.clear();
                cell.entries[0].is_locked = true;
            },
            &["unlock the entry home", "remove the entry home, no server has its volumes"],
            &[],
        ),
        case(
            "an entry whose volumes are gone, or on a server that does not answer",
            |cell| {
                cell.servers[0].volumes.clear();
                cell.servers.push(silent());
            },
            &["remove the site 10.0.0.1 /vicepa of home.readonly, which is not there"],
            &[
                "10.0.0.1 /vicepa does not have the volume, and another server or a copy may: restore it (`vos restore`), \
               make it of a copy (`vos convertROtoRW`), or remove the entry (`vos delentry -id home`)",
            ],
        ),
        case(
            "an entry of which only the copy is left",
            |cell| drop(cell.servers[0].volumes.remove(0)),
            &[],
            &[
                "10.0.0.1 /vicepa does not have the volume, and another server or a copy may: restore it (`vos restore`), \
               make it of a copy (`vos convertROtoRW`), or remove the entry (`vos delentry -id home`)",
            ],
        ),
        case(
            "an entry of copies that are gone",
            |cell| {
                cell.servers[0].volumes.clear();
                cell.entries[0].exists[0] = false;
                cell.entries[0].sites.remove(0);
            },
            &["remove the entry home, no server has its volumes"],
            &[],
        ),
    ]
}

fn orphan_cases() -> Vec<Case> {
    vec![
        case(
            "a volume without an entry, with its clones",
            |cell| {
                cell.servers[0].volumes.push(header(202, 200, "lost.backup"));
                cell.servers[0].volumes.push(header(200, 200, "lost"));
                cell.servers.push(other(vec![header(201, 200, "lost.readonly")]));
            },
            &[
                "make an entry for lost (200), lost.readonly (201), lost.backup (202) on 10.0.0.1 /vicepa, 10.0.0.2 /vicepa",
            ],
            &[],
        ),
        case(
            "a copy without an entry",
            |cell| cell.servers[0].volumes.push(header(201, 200, "lost.readonly")),
            &["make an entry for lost.readonly (201) on 10.0.0.1 /vicepa"],
            &[],
        ),
        case(
            "a volume without an entry that is in use",
            |cell| {
                cell.servers[0].volumes.push(header(200, 200, "lost"));
                cell.servers[0].transactions.push(transaction(200, 0));
            },
            &[],
            &["a transaction on it is open; `vos status` lists transactions"],
        ),
        case(
            "a volume without an entry whose name is taken",
            |cell| cell.servers[0].volumes.push(header(200, 200, "home")),
            &[],
            &["without an entry (200 on 10.0.0.1 /vicepa): another volume has this name"],
        ),
        case(
            "two volumes without an entry and with one name",
            |cell| {
                cell.servers[0].volumes.push(header(200, 200, "lost"));
                cell.servers[0].volumes.push(header(300, 300, "lost"));
            },
            &[],
            &[
                "without an entry (200 on 10.0.0.1 /vicepa): another volume has this name",
                "without an entry (300 on 10.0.0.1 /vicepa): another volume has this name",
            ],
        ),
        case(
            "a volume without an entry on two servers",
            |cell| {
                cell.servers[0].volumes.push(header(200, 200, "lost"));
                cell.servers.push(other(vec![header(200, 200, "lost")]));
            },
            &[],
            &[
                "without an entry (200 on 10.0.0.1 /vicepa, 200 on 10.0.0.2 /vicepa): several volumes could be in the \
               entry: delete all but one with `vos zap`",
            ],
        ),
        case(
            "a clone without an entry and without its volume",
            |cell| cell.servers[0].volumes.push(header(203, 200, "lost.clone")),
            &[],
            &[
                "without an entry (203 on 10.0.0.1 /vicepa): neither a read-write nor a read-only volume was found: \
               `vos zap` deletes it",
            ],
        ),
        case(
            "a clone that a release left behind",
            |cell| cell.servers[0].volumes.push(header(103, 100, "home.relclone")),
            &[],
            &["the clone 103 on 10.0.0.1 /vicepa was left behind: --remove-clones deletes it"],
        ),
    ]
}

#[test]
fn each_difference_has_its_step_or_a_reason_against_one() {
    for (name, change, steps, left) in entry_cases().into_iter().chain(site_cases()).chain(orphan_cases()) {
        let mut cell = home();
        change(&mut cell);
        let plan = plan(&cell, &Options::default());
        let planned: Vec<String> = plan.steps.iter().map(ToString::to_string).collect();
        assert_eq!(planned, steps, "{name}");
        let reasons: Vec<&str> = plan.left.iter().map(|left| &left.reason[..]).collect();
        assert_eq!(reasons, left, "{name}");
    }
}

#[test]
fn clones_are_deleted_only_on_request_and_only_clones() {
    let mut cell = home();
    cell.servers[0].volumes.push(header(103, 100, "home.relclone"));
    let options = Options { removes_clones: true, ..Options::default() };
    let steps = plan(&cell, &options).steps;
    let [step] = &steps[..] else { panic!("{steps:?}") };
    assert_eq!(step.to_string(), "delete the clone 103 of home on 10.0.0.1 /vicepa");
    assert!(matches!(step.action, Action::RemoveClone { id: 103, parent: 100, .. }));
    for change in [
        // A read-write volume that names another one as its own: a shadow.
        |header: &mut Header| header.is_clone = false,
        |header: &mut Header| header.name = Some("home.readonly".into()),
        |header: &mut Header| header.name = None,
    ] {
        let mut cell = cell.clone();
        change(&mut cell.servers[0].volumes[2]);
        let plan = plan(&cell, &options);
        assert!(plan.steps.is_empty() && plan.left.len() == 1, "{plan:?}");
    }
    cell.servers[0].transactions.push(transaction(103, 0));
    assert_eq!(plan(&cell, &options).steps, []);
}

#[test]
fn volumes_with_an_unfinished_job_are_left_to_it() {
    let mut cell = home();
    cell.entries[0].is_locked = true;
    let options = Options { jobs: [100].into(), ..Options::default() };
    let plan = plan(&cell, &options);
    assert_eq!(plan.steps, []);
    assert_eq!(plan.left[0].reason, "a job works on it; `cellar volume jobs` lists jobs");
}

/// The plan of a cell in which the steps of the first plan were executed is empty.
#[test]
fn one_pass_is_enough() {
    let mut cell = home();
    cell.servers[0].volumes.push(header(200, 200, "lost"));
    cell.servers[0].volumes.remove(1);
    let steps = plan(&cell, &Options::default()).steps;
    assert_eq!(steps.len(), 2, "{steps:?}");
    for step in steps {
        match step.action {
            Action::RemoveSite { .. } => {
                cell.entries[0].sites.retain(|site| site.is_read_write);
                cell.entries[0].exists[1] = false;
            }
            Action::Register { ids, exists, sites } => {
                let sites: Vec<Site> = sites;
                cell.entries.push(Entry { name: step.volume, ids, exists, sites, is_locked: false });
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(plan(&cell, &Options::default()), crate::repair::Plan::default());
}
