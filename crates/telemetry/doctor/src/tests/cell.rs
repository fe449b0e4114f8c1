//! Cells whose location database and volumes differ.

use super::*;
use crate::cell::{Cell, Entry, FileServer, Header, Site, Transaction};
use std::net::Ipv4Addr;

const SERVER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);

pub(super) fn header(id: u32, parent: u32, name: &str) -> Header {
    Header { id, parent, name: Some(name.into()), partition: "a".into(), is_clone: id != parent }
}

fn cell(change: impl FnOnce(&mut Cell)) -> Snapshot {
    let mut cell = home();
    change(&mut cell);
    with(|snapshot| snapshot.cell = Some(cell))
}

/// Returns an entry of a volume with a read-only copy at the same site, and both volumes.
pub(super) fn home() -> Cell {
    let site = |is_read_write| Site { server: SERVER, partition: "a".into(), is_read_write, is_empty: false };
    let entry = Entry {
        name: "home".into(),
        ids: [100, 101, 102],
        exists: [true, true, false],
        sites: vec![site(true), site(false)],
        is_locked: false,
    };
    let server = FileServer {
        addresses: vec![SERVER],
        partitions: vec!["a".into(), "b".into()],
        volumes: vec![header(100, 100, "home"), header(101, 100, "home.readonly")],
        ..FileServer::default()
    };
    Cell { entries: vec![entry], servers: vec![server] }
}

pub(super) fn transaction(volume: u32, idle_seconds: u32) -> Transaction {
    Transaction { id: 7, volume, partition: "a".into(), idle_seconds }
}

pub(super) fn cases() -> Vec<Case> {
    vec![
        (
            "names-differ",
            cell(|cell| cell.servers[0].volumes[1].name = Some("old.readonly".into())),
            "old.readonly (101) on 10.0.0.1 /vicepa should be home.readonly: `vos rename home home.tmp` and \
            `vos rename home.tmp home`",
            cell(|cell| {
                cell.servers[0].volumes[1].name = Some("old.readonly".into());
                cell.servers[0].transactions.push(transaction(100, 3));
            }),
        ),
        (
            "orphan-volumes",
            cell(|cell| cell.servers[0].volumes.push(header(200, 200, "lost"))),
            "lost (200) on 10.0.0.1 /vicepa has no entry: `vos syncvldb -server 10.0.0.1 -partition a \
            -volume 200`",
            cell(|cell| {
                cell.servers[0].volumes.push(header(200, 200, "lost"));
                cell.servers[0].transactions.push(transaction(200, 599));
            }),
        ),
        (
            "orphan-volumes",
            cell(|cell| {
                cell.servers[0].volumes.push(Header { partition: "b".into(), ..header(100, 100, "home") });
            }),
            "home (100) on 10.0.0.1 /vicepb is not at a site of its entry: `vos zap -server 10.0.0.1 \
            -partition b -id 100`",
            cell(|_| {}),
        ),
        (
            "abandoned-clones",
            cell(|cell| cell.servers[0].volumes.push(header(103, 100, "home.relclone"))),
            "home.relclone (103) on 10.0.0.1 /vicepa is a clone of home: `vos zap -server 10.0.0.1 \
            -partition a -id 103`",
            cell(|cell| {
                cell.servers[0].volumes.push(header(103, 100, "home.relclone"));
                cell.servers[0].transactions.push(transaction(100, 0));
            }),
        ),
        (
            "missing-volumes",
            cell(|cell| cell.servers[0].volumes.clear()),
            "home (100) is not on 10.0.0.1 /vicepa: restore it (`vos restore`), or `vos delentry -id home`\n\
             home.readonly (101) is not on 10.0.0.1 /vicepa: `vos release home`",
            // No release has reached the site yet, and the backup volume does not exist.
            cell(|cell| {
                cell.servers[0].volumes.pop();
                cell.entries[0].sites[1].is_empty = true;
            }),
        ),
        (
            "silent-servers",
            cell(|cell| cell.servers[0] = FileServer { failure: Some("it is gone".into()), ..silent() }),
            "10.0.0.1: it is gone; entries have 2 volumes there: `bos status 10.0.0.1 -long`",
            // No entry has a site on this server.
            cell(|cell| {
                cell.servers.push(FileServer {
                    addresses: vec![Ipv4Addr::new(10, 0, 0, 2)],
                    failure: Some("it is gone".into()),
                    ..FileServer::default()
                });
            }),
        ),
        (
            "stale-locks",
            cell(|cell| cell.entries[0].is_locked = true),
            "home: `vos unlock home`",
            cell(|cell| {
                cell.entries[0].is_locked = true;
                cell.servers[0].transactions.push(transaction(101, 3));
            }),
        ),
        (
            "abandoned-transactions",
            cell(|cell| cell.servers[0].transactions.push(transaction(100, 3600))),
            "10.0.0.1 /vicepa: transaction 7 on volume 100, idle for 60 minutes: `vos endtrans 10.0.0.1 7`",
            cell(|cell| cell.servers[0].transactions.push(transaction(100, 599))),
        ),
    ]
}

/// A server that did not answer.
fn silent() -> FileServer {
    FileServer { addresses: vec![SERVER], ..FileServer::default() }
}

#[test]
fn a_sound_cell_has_no_problem() {
    assert_eq!(diagnose(&cell(|_| {})), []);
}

#[test]
fn a_server_that_does_not_answer_misses_nothing() {
    let snapshot = cell(|cell| cell.servers[0] = FileServer { failure: Some("gone".into()), ..silent() });
    let problems: Vec<&str> = diagnose(&snapshot).iter().map(|finding| finding.problem).collect();
    assert_eq!(problems, ["silent-servers"]);
}

#[test]
fn evidence_is_bounded() {
    let snapshot = cell(|cell| {
        cell.servers[0].volumes.extend((200..300).map(|id| header(id, id, "lost")));
    });
    let finding = &diagnose(&snapshot)[0];
    assert_eq!((finding.evidence.len(), &finding.evidence[20][..]), (21, "and 80 more"));
}
