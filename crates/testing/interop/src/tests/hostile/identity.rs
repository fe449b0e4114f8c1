//! Hundreds of thousands of short connections while administrators make calls: no client without a token gets
//! an administrator's rights.

use crate::tests::soak;
use afs_idl::fs::{FetchStatusRequest, fetch_status};
use anyhow::{Context, Result, ensure};
use base::{AbortCode, Fid};
use cell_client::Network;
use cell_client::files::Attributes;
use interop::hostile::packet::{abort, call, first};
use interop::hostile::{ATTACKER, Client, Flood, SERVER, Shape, Target, at, uuid};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Number of calls, each followed by an abort. Unit tests of rx and rx-proto start just below the wraparound
/// of connection numbers; only the long form of this test sends enough to reach it.
const PAIRS: u32 = 100_000;
const PAIRS_LONG: u32 = 17_000_000;
const RATE: u32 = 40_000;
/// Number of anonymous clients, and of calls per client: low, because a server delays replies to clients
/// whose calls are repeatedly denied.
const CLIENTS: u32 = 60;
const CALLS: u32 = 8;
const ATTRIBUTES: Attributes = Attributes { mode: 0o644, modified: 1_000_000_000 };
/// EACCES, as sent to clients that do not translate errors.
const EACCES: AbortCode = AbortCode(13);

pub(super) fn identity() -> Result<()> {
    let target = Target::start()?;
    let create = "cellar volume create secret --quota 0 --acl system:administrators=rlidwka";
    target.cell.run(create)?.ok()?;
    let administrator = Arc::new(Client::administrator(ATTACKER, &target.cell)?);
    let cell = administrator.of_cell(SERVER)?;
    // As in OpenAFS, anyone may read a directory's status, but not that of a file in it.
    let file = cell.create(&cell.root_of("secret")?, b"file", ATTRIBUTES);
    let file = file.map_err(|code| anyhow::anyhow!("CreateFile: {code:?}"))?.fid;
    refuse_strangers(file, 1).context("before the attack")?;
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let administrators = scope.spawn(|| call_until(&administrator, file, &done));
        let attacked = attack(file);
        done.store(true, Ordering::Relaxed);
        let calls = administrators.join().map_err(|_| anyhow::anyhow!("the administrator panicked"))??;
        println!("hostile: {calls} calls of an administrator, each with its rights");
        attacked
    })
}

/// Makes calls on new connections until `done`; all must succeed.
fn call_until(client: &Client, file: Fid, done: &AtomicBool) -> Result<u64> {
    let mut calls = 0;
    while !done.load(Ordering::Relaxed) {
        let answer = look(client, file);
        ensure!(answer.is_ok(), "an administrator's call {calls}: {answer:?}");
        calls += 1;
    }
    Ok(calls)
}

fn attack(file: Fid) -> Result<()> {
    let pairs = if soak().is_some() { PAIRS_LONG } else { PAIRS };
    let datagram = |service_id, number: u32| {
        let pair = number / 2;
        if number.is_multiple_of(2) {
            call(service_id, pair, 132, &[0; 12])
        } else {
            abort(&first(service_id, pair), 0, -3)
        }
    };
    let flood = Flood::start(Shape {
        rate: RATE,
        datagrams_max: 2 * pairs,
        sources: 1,
        services: vec![(at(7000), 1)],
        datagram: Arc::new(datagram),
    })?;
    let flooded = flood.finish()?;
    println!("hostile: {} datagrams, {:.0} a second", flooded.sent, flooded.rate());
    refuse_strangers(file, CLIENTS)
}

/// Makes anonymous calls; all must be denied.
fn refuse_strangers(file: Fid, clients: u32) -> Result<()> {
    for number in 0..clients {
        let client = Client::anonymous(ATTACKER, uuid())?;
        for call in 0..CALLS {
            let answer = look(&client, file);
            let is_refused = matches!(answer, Err(EACCES | AbortCode::UAEACCES));
            ensure!(is_refused, "anonymous call {call} of client {number}: {answer:?}");
        }
    }
    Ok(())
}

fn look(client: &Client, file: Fid) -> Result<(), AbortCode> {
    let connection = client.connect((SERVER, 7000).into(), 1);
    fetch_status(&*connection, &FetchStatusRequest { fid: file.into() }).map(drop)
}
