//! Twelve thousand calls from unproven addresses to the file port. New connections of verified users are
//! served meanwhile.

use afs_idl::fs::{FetchStatusRequest, fetch_status};
use anyhow::{Result, ensure};
use cell_client::Network;
use interop::cell::Server;
use interop::hostile::packet::call;
use interop::hostile::{ATTACKER, Client, Flood, SERVER, Shape, Target, at};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Number of calls from unproven addresses, each from a different one.
const STRANGERS: u32 = 12_000;
/// Duration in which verified users make new connections.
const DURATION: Duration = Duration::from_secs(10);
/// Number of concurrent users.
const USERS: usize = 4;

pub(super) fn queue() -> Result<()> {
    let target = Target::start()?;
    target.cell.open_volume(Server::Cellar, "work.1")?;
    let administrator = Arc::new(Client::administrator(ATTACKER, &target.cell)?);
    let fid = afs_idl::common::Fid::from(administrator.of_cell(SERVER)?.root_of("work.1")?.fid);
    let arguments = xdr::to_vec(&fid);
    let flood = Flood::start(Shape {
        rate: 2 * STRANGERS,
        datagrams_max: STRANGERS,
        sources: STRANGERS,
        services: vec![(at(7000), 1)],
        datagram: Arc::new(move |service_id, number| call(service_id, number, 132, &arguments)),
    })?;
    let until = Instant::now() + DURATION;
    let calls = std::thread::scope(|scope| {
        let user = || -> Result<u64> {
            let mut calls = 0;
            while Instant::now() < until {
                let client = Client::administrator(ATTACKER, &target.cell)?;
                let connection = client.connect((SERVER, 7000).into(), 1);
                let answer = fetch_status(&*connection, &FetchStatusRequest { fid });
                ensure!(answer.is_ok(), "call {calls} of a verified user: {:?}", answer.err());
                calls += 1;
            }
            Ok(calls)
        };
        let users: Vec<_> = (0..USERS).map(|_| scope.spawn(user)).collect();
        let panicked = |_| anyhow::anyhow!("a user panicked");
        users.into_iter().map(|user| user.join().map_err(panicked)?).sum::<Result<u64>>()
    })?;
    println!("hostile: {} strangers, {calls} new verified connections", flood.finish()?.sent);
    Ok(())
}
