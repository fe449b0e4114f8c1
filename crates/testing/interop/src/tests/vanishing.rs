//! Clients that are killed while they have a transaction open on a volume: what is busy meanwhile, and that
//! nothing is left after the transaction has timed out.

use crate::Test;
use crate::tests::mixed::{all, copy};
use crate::tests::wait_for;
use anyhow::{Context, Result, ensure};
use interop::cell::{Cell, Server};
use interop::means::Means;
use std::time::{Duration, Instant};

pub(crate) fn tests() -> Vec<Test> {
    vec![Test { name: "clients-vanish", needs: &[Means::Netns], run: clients_vanish }]
}

/// Time limit of an unused transaction, the shortest that can be configured.
const IDLE_SECONDS: u64 = 120;
/// A pause that a client may make, for instance to change a tape. File servers have a shorter timeout.
const PAUSE: Duration = Duration::from_secs(70);
/// Time limit for the transactions to end, even on a slow machine; OpenAFS's own timeout is longer.
const LIMIT: Duration = Duration::from_secs(480);
/// Time limit for a client to reach the point where it blocks.
const BEGIN: Duration = Duration::from_secs(120);
/// More of a dump than pipes and Rx can buffer for a client that does not read.
const FILE_MIB: u64 = 16;
/// Size of the part of a dump that a restore can read.
const HALF_MIB: u64 = 8;

/// The volumes used by the clients, and the last procedure of their transactions.
const TAKEN: [(&str, &str); 4] =
    [("dumped", "Dump"), ("dumped.ours", "Dump"), ("overwritten", "Restore"), ("restored", "Restore")];

fn clients_vanish() -> Result<()> {
    let lines = format!("[volume_server]\nidle_transaction_seconds = {IDLE_SECONDS}");
    let ours = Cell::start_configured("gone1", "10.99.0.141", &lines)?;
    let theirs = Cell::start(Server::OpenAfs, "gone2", "10.99.0.142")?;
    prepare(&ours, Server::Cellar).context("Cellar")?;
    prepare(&theirs, Server::OpenAfs).context("OpenAFS")?;
    let theirs_said = begun(&theirs).context("OpenAFS")?;
    let start = Instant::now();
    let ours_said = begun(&ours).context("Cellar")?;
    std::thread::sleep(PAUSE);
    for (volume, _) in TAKEN {
        ensure!(is_running(&ours, volume)?, "{volume}'s client has given up: {}", said(&ours, volume)?);
    }
    TAKEN.iter().try_for_each(|(volume, _)| kill(&ours, volume))?;
    ensure!(ours_said == theirs_said, "while they last:\n{ours_said}\nand OpenAFS:\n{theirs_said}");

    wait_for(LIMIT, || Ok(status(&ours)?.contains("No active transactions")))?;
    let seconds = start.elapsed().as_secs();
    ensure!(seconds >= IDLE_SECONDS, "the transactions were ended after {seconds} s");
    println!("ended {seconds} s after the first began");
    nothing_is_left(&ours).with_context(|| ours.cellar_log())
}

/// Starts the clients; returns the output of other commands meanwhile.
fn begun(cell: &Cell) -> Result<String> {
    TAKEN.iter().try_for_each(|(volume, procedure)| begin(cell, volume, procedure))?;
    while_they_last(cell)
}

/// Creates volumes with one file each, and a dump.
fn prepare(cell: &Cell, server: Server) -> Result<()> {
    let folder = cell.scratch()?;
    let folder = folder.display();
    cell.shell(&format!("head -c {FILE_MIB}M /dev/urandom > {folder}/file"))?.ok()?;
    for (volume, _) in &TAKEN[..3] {
        cell.open_volume(server, volume)?;
        copy(cell, &format!("{folder}/file cell:{volume}/file"))?;
    }
    cell.run(&format!("vos dump dumped -file {folder}/dump -localauth"))?.ok()?;
    Ok(())
}

/// Starts a client whose output is never read, or whose input stops, and waits until it blocks.
fn begin(cell: &Cell, volume: &str, procedure: &str) -> Result<()> {
    let (folder, server) = (cell.scratch()?, cell.address);
    let folder = folder.display();
    let restore = |options: &str| {
        let half = format!("head -c {HALF_MIB}M {folder}/dump; exec sleep 9999");
        format!("vos restore {server} a {volume} {options} -localauth < <({half})")
    };
    let client = match volume {
        "dumped" => "vos dump dumped -localauth > >(exec sleep 9999)".to_owned(),
        // It writes to a pipe that is opened but never read.
        "dumped.ours" => {
            format!("sleep 9999 <> {folder}/ours & exec cellar volume dump {volume} {folder}/ours")
        }
        "overwritten" => restore("-overwrite incremental"),
        _ => restore(""),
    };
    let script = cell.path().join(format!("client-{volume}.sh"));
    std::fs::write(&script, format!("echo $$ > {folder}/{volume}.pid\n{}\n", with_exec(&client)))?;
    cell.shell(&format!(
        "[ -p {folder}/ours ] || mkfifo {folder}/ours; \
         setsid bash {} > {folder}/{volume}.said 2>&1 < /dev/null &",
        script.display()
    ))?
    .ok()?;
    let open = TAKEN.iter().position(|taken| taken.0 == volume).unwrap_or(0) + 1;
    let procedure = format!("procedure: {procedure}");
    wait_for(BEGIN, || {
        let status = status(cell)?;
        Ok(status.matches("transaction: ").count() == open && status.contains(&procedure))
    })
    .with_context(|| {
        format!("{volume}: {} {}", said(cell, volume).unwrap_or_default(), status(cell).unwrap_or_default())
    })
}

fn is_running(cell: &Cell, volume: &str) -> Result<bool> {
    // The command line of a zombie is empty.
    let pid = format!("$(cat {}/{volume}.pid)", cell.scratch()?.display());
    Ok(cell.shell(&format!("grep -q . /proc/{pid}/cmdline"))?.status == 0)
}

/// Returns the output of a client.
fn said(cell: &Cell, volume: &str) -> Result<String> {
    Ok(std::fs::read_to_string(cell.path().join(format!("scratch/{volume}.said")))?)
}

/// Replaces the shell by the client, so that its process id is known.
fn with_exec(client: &str) -> String {
    if client.starts_with("vos") { format!("exec {client}") } else { client.to_owned() }
}

fn status(cell: &Cell) -> Result<String> {
    cell.run(&format!("vos status {} -localauth", cell.address))?.ok()
}

/// Returns the output of other commands on the volumes, without digits.
fn while_they_last(cell: &Cell) -> Result<String> {
    let listed = cell.run(&format!("vos listvol {} a -localauth", cell.address))?.ok()?;
    let busy = listed.lines().filter(|line| line.contains("busy") || line.contains("Total volumes"));
    let mut said: Vec<String> = busy.map(str::to_owned).collect();
    for (volume, _) in &TAKEN[..3] {
        for command in [
            format!("vos backup {volume} -localauth"),
            format!("vos dump {volume} -file /dev/null -localauth"),
        ] {
            let refused = cell.run(&command)?;
            said.push(format!("{command}: {}\n{}", refused.status, refused.text));
        }
    }
    Ok(said.join("\n").chars().filter(|character| !character.is_ascii_digit()).collect())
}

/// Kills the client first, so that it never sees its pipe closed.
fn kill(cell: &Cell, volume: &str) -> Result<()> {
    let pid = std::fs::read_to_string(cell.scratch()?.join(format!("{volume}.pid")))?;
    let pid = pid.trim();
    cell.shell(&format!("kill -KILL {pid} && kill -KILL -- -{pid}"))?.ok()?;
    Ok(())
}

fn nothing_is_left(cell: &Cell) -> Result<()> {
    let server = cell.address;
    let listed = cell.run(&format!("vos listvol {server} a -localauth"))?.ok()?;
    ensure!(!listed.contains("restored") && !listed.contains("is busy"), "{listed}");
    ensure!(listed.contains("Total volumes onLine 3 ; Total volumes offLine 0 ; Total busy 0"), "{listed}");
    let locked = cell.run("vos listvldb -locked -localauth")?.ok()?;
    ensure!(locked.contains("Total entries: 0"), "{locked}");
    let folder = cell.scratch()?;
    for (volume, _) in &TAKEN[..3] {
        let fetched = folder.join(format!("{volume}.fetched"));
        copy(cell, &format!("cell:{volume}/file {}", fetched.display()))?;
        cell.shell(&format!("cmp {0}/file {1}", folder.display(), fetched.display()))?
            .ok()
            .context(*volume)?;
        copy(cell, &format!("{}/dump cell:{volume}/more", folder.display()))?;
    }
    all(
        cell,
        &[
            "vos backup dumped -localauth".into(),
            "vos backup dumped.ours -localauth".into(),
            "vos backup overwritten -localauth".into(),
            format!("vos restore {server} a restored -file {}/dump -localauth", folder.display()),
        ],
    )?;
    let log = std::fs::read_to_string(cell.path().join("cellar.log"))?;
    let ended = log.lines().filter(|line| line.contains("a transaction has timed out")).count();
    ensure!(ended == TAKEN.len(), "{ended} transactions have timed out:\n{log}");
    ensure!(log.contains("an unfinished volume is deleted"), "{log}");
    Ok(())
}
