//! Data sent from one server to another is encrypted, and is only sent to file servers of the cell.

use afs_idl::vol::{self, DestServer, ForwardRequest, RestoreCookie, TransCreateRequest};
use anyhow::{Context, Result, anyhow, ensure};
use cell_client::Network;
use interop::cell::{Cell, Server};
use interop::hostile::{ATTACKER, Client, Listener, SERVER, Target, stranger};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Text that the file consists of, with a number between repetitions so that no two chunks are equal.
const MARKER: &str = "a secret that stays in its cell";
const LINES: u32 = 40_000;
const OTHER: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 5);
/// Time limit for the server to answer a request to send a volume.
const REFUSED: Duration = Duration::from_secs(20);
/// ITReadOnly: the transaction does not change the volume.
const READ_ONLY: i32 = 2;

pub(super) fn forward() -> Result<()> {
    let target = Target::start()?;
    let other = Cell::start_cellar_like(&target.cell, "cellar2", "10.99.0.5")?;
    target.cell.open_volume(Server::Cellar, "work.1")?;
    let lines: Vec<String> = (0..LINES).map(|number| format!("{number}: {MARKER}")).collect();
    std::fs::write(target.cell.path().join("secret"), lines.join("\n"))?;
    let copy = format!("cellar cp {}/secret cell:work.1/secret", target.cell.path().display());
    target.cell.run(&copy)?.ok()?;
    move_unread(&target)?;
    drop(other);
    Ok(())
}

/// Moves the volume to the other server and back.
fn move_unread(target: &Target) -> Result<()> {
    let mut listener = Listener::open(&target.link())?;
    let done = AtomicBool::new(false);
    let (between, readable) = std::thread::scope(|scope| {
        let eavesdropper = scope.spawn(|| listen(&mut listener, &done));
        let moved = run_moves(target);
        done.store(true, Ordering::Relaxed);
        let seen = eavesdropper.join().map_err(|_| anyhow!("the eavesdropper panicked"))??;
        moved.map(|()| seen)
    })?;
    println!("hostile: {between} bytes between the servers, {readable} datagrams with readable contents");
    ensure!(between > u64::from(LINES), "nothing was seen of the transfer: {between} bytes");
    ensure!(readable == 0, "{readable} datagrams between the servers had readable contents");
    Ok(())
}

fn run_moves(target: &Target) -> Result<()> {
    refuse_foreign(target)?;
    for (from, to) in [(SERVER, OTHER), (OTHER, SERVER)] {
        target.cell.run(&format!("vos move work.1 {from} a {to} a -localauth"))?.ok()?;
    }
    for (from, to) in [(SERVER, OTHER), (OTHER, SERVER)] {
        let command = format!("cellar volume move work.1 --to {to}");
        target.cell.run(&command)?.ok().with_context(|| format!("{command} from {from}"))?;
    }
    Ok(())
}

/// Returns the number of bytes sent between the servers, and of their datagrams that contain the marker.
fn listen(listener: &mut Listener, done: &AtomicBool) -> Result<(u64, u64)> {
    let (mut between, mut readable) = (0, 0);
    while !done.load(Ordering::Relaxed) {
        let unseen = listener.listen(Instant::now() + Duration::from_millis(200), |seen| {
            let ends = [*seen.from.ip(), *seen.to.ip()];
            if ends.contains(&SERVER) && ends.contains(&OTHER) {
                between += seen.payload.len() as u64;
                let has_marker = seen.payload.windows(MARKER.len()).any(|part| part == MARKER.as_bytes());
                readable += u64::from(has_marker);
            }
        })?;
        ensure!(unseen == 0, "{unseen} datagrams passed unseen");
    }
    Ok((between, readable))
}

/// An administrator of one server names hosts that are not file servers of the cell.
fn refuse_foreign(target: &Target) -> Result<()> {
    let mut listener = Listener::open(target.interface())?;
    let client = Client::administrator(ATTACKER, &target.cell)?;
    let foreign = stranger(1);
    let own_port = SocketAddrV4::new(OTHER, 7009);
    let (mut answers, mut sent) = (Vec::new(), 0_u64);
    for to in [foreign, own_port] {
        answers.push((to, send_to(&client, target, to)));
    }
    listener.listen(Instant::now() + Duration::from_millis(500), |seen| {
        sent += u64::from([foreign, own_port].contains(&seen.to));
    })?;
    ensure!(sent == 0, "the server sent {sent} datagrams where no file server is: {answers:?}");
    for (to, answer) in answers {
        ensure!(answer.is_err(), "Forward to {to} succeeded");
    }
    Ok(())
}

fn send_to(client: &Client, target: &Target, to: SocketAddrV4) -> Result<()> {
    let started = Instant::now();
    let volumes = client.connect((SERVER, 7005).into(), 4);
    let listed = target.cell.run("vos examine work.1 -localauth")?.ok()?;
    let volume_id = listed.split_whitespace().nth(1).context("no id")?.parse().context(listed.clone())?;
    let request = TransCreateRequest { volume_id, partition: 0, flags: READ_ONLY };
    let created = vol::trans_create(&*volumes, &request).map_err(|code| anyhow!("TransCreate: {code:?}"))?;
    let transaction = created.transaction;
    let destination = DestServer { host: (*to.ip()).into(), port: i32::from(to.port()), security_index: 1 };
    let cookie = RestoreCookie { name: "work.1".into(), ..RestoreCookie::default() };
    let request =
        ForwardRequest { transaction, from_date: 0, destination, destination_transaction: 1, cookie };
    let answer = vol::forward(&*volumes, &request);
    _ = vol::end_trans(&*volumes, &vol::EndTransRequest { transaction });
    ensure!(started.elapsed() < REFUSED, "Forward to {to} took {:?}: {answer:?}", started.elapsed());
    answer.map(drop).map_err(|code| anyhow!("{code:?}"))
}
