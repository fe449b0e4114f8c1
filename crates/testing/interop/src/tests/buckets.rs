//! Partitions in buckets, with and without a partition on a local disk. SeaweedFS, an S3 server, runs inside the cell.

use crate::Test;
use crate::tests::mixed::all;
use crate::tests::registering::{Entry, registered};
use crate::tests::series::Series;
use crate::tests::store::Writer;
use crate::tests::wait_for;
use afs_idl::fs::{self, FetchStatusReply, FetchStatusRequest};
use anyhow::{Context, Result, anyhow, ensure};
use cell_client::Network;
use cell_client::files::{Attributes, Node};
use interop::cell::Cell;
use interop::hostile::{Client, uuid};
use interop::means::Means;
use interop::seaweed::{SECRET, Seaweed};
use serde_json::Value;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

const NEEDS: &[Means] = &[Means::Netns, Means::Seaweed];

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test { name: "bucket-beside-local", needs: NEEDS, run: beside_local },
        Test { name: "bucket-away", needs: NEEDS, run: away },
        Test { name: "bucket-server-killed", needs: NEEDS, run: server_killed },
        Test { name: "bucket-away-for-long", needs: NEEDS, run: away_for_long },
        Test { name: "bucket-taken-over", needs: NEEDS, run: taken_over },
        Test { name: "bucket-clients-reset", needs: NEEDS, run: clients_reset },
    ]
}

/// Time limit for a server of buckets, or for a partition, to be there.
const LIMIT: Duration = Duration::from_secs(90);

/// How long the server of buckets is away while clients write: longer than the lease is trusted, 4.9 s, and
/// shorter than a reply waits for the lease, 20 s.
const AWAY: Duration = Duration::from_secs(6);

/// Times that the server of files is killed.
const KILLS: u32 = 3;

/// Acknowledged steps between two events.
const STEPS: u64 = 40;

/// Prepares a host with SeaweedFS, and a configuration with the partitions a, on its disk, and b, in the bucket.
fn prepare(name: &'static str, address: &'static str) -> Result<Cell> {
    let cell = Cell::prepare_configured(name, address, &in_bucket("127.0.0.1"))?;
    Seaweed::write_credentials(&cell)?;
    Ok(cell)
}

/// Returns the configuration of the partition b, whose bucket is on this host.
fn in_bucket(address: &str) -> String {
    format!(
        "[[partition]]\nname = \"b\"\nbucket = \"s3://cellar/cells/b\"\nendpoint = \"http://{address}:8333\"\n\
         allow_http = true\ncredentials_file = \"aws\"\ncache = \"cache-b\"\ncache_mb = 256\n"
    )
}

/// Starts the server, and waits until the partition in the bucket is open: a new one is probed first, which can take longer
/// than the server waits.
fn serve(cell: &mut Cell) -> Result<()> {
    cell.start_cellar()?;
    wait_for_partition(cell)
}

fn wait_for_partition(cell: &Cell) -> Result<()> {
    let list = format!("vos listpart {} -localauth", cell.address);
    wait_for(LIMIT, || Ok(cell.run(&list)?.text.contains("/vicepb"))).with_context(|| cell.cellar_log())
}

fn config(cell: &Cell) -> String {
    cell.path().join("cellar.toml").display().to_string()
}

fn create(cell: &Cell, volume: &str, partition: &str) -> Result<()> {
    let rights = "--quota 0 --acl system:anyuser=rlidwka";
    all(cell, &[format!("cellar volume create {volume} --partition {partition} {rights}")])
}

/// Checks both partitions, with all file data. The server is stopped.
fn check(cell: &Cell) -> Result<()> {
    let checked = cell.run(&format!("cellar store check --data --json --config {}", config(cell)))?.ok()?;
    let rows: Value = serde_json::from_str(&checked).context(checked)?;
    let places: Vec<&str> =
        rows.as_array().context("no rows")?.iter().filter_map(|row| row["partition"].as_str()).collect();
    ensure!(places == ["/vicepa", "s3://cellar/cells/b"], "{places:?}");
    ensure!(rows.as_array().is_some_and(|rows| rows.iter().all(|row| row["damage_count"] == 0)), "{rows:#}");
    Ok(())
}

fn beside_local() -> Result<()> {
    let mut cell = prepare("bucket1", "10.99.0.171")?;
    let weed = Seaweed::start(&cell, &["cellar"])?.log();
    probe(&cell)?;
    serve(&mut cell).with_context(|| weed)?;
    let log = || cell.cellar_log();
    commands(&cell).with_context(log)?;
    moves(&cell).with_context(log)?;
    dumps(&cell).with_context(log)?;
    shows_no_secret(&cell)?;
    cell.end_cellar("TERM")?;
    check(&cell)
}

/// The bucket passes the probe; a wrong key is a refusal without the key.
fn probe(cell: &Cell) -> Result<()> {
    let probed = cell.run(&format!("cellar bucket probe /vicepb --json --config {}", config(cell)))?.ok()?;
    let probed: Value = serde_json::from_str(&probed).context(probed)?;
    ensure!(probed["usable"] == true, "{probed}");
    ensure!(probed["operations"].as_array().is_some_and(|all| all.len() == 12), "{probed}");
    let wrong = format!(
        "AWS_ACCESS_KEY_ID=key AWS_SECRET_ACCESS_KEY=wr0ng-{SECRET} cellar bucket probe s3://cellar/x \
         --endpoint http://127.0.0.1:8333 --allow-http"
    );
    let refused = cell.shell(&wrong)?;
    ensure!(refused.status == 1 && !refused.text.contains(SECRET), "{}", refused.text);
    ensure!(refused.text.contains("reading an object right after it was created"), "{}", refused.text);
    Ok(())
}

/// OpenAFS's tools see an ordinary partition.
fn commands(cell: &Cell) -> Result<()> {
    let address = cell.address;
    create(cell, "data", "b")?;
    create(cell, "here", "a")?;
    let folder = cell.scratch()?;
    cell.shell(&format!(
        "mkdir {0}/tree && cp -r /etc/ssl /etc/apt {0}/tree/ && head -c 9M /dev/urandom > {0}/tree/big",
        folder.display()
    ))?
    .ok()?;
    let tree = folder.join("tree");
    all(cell, &[format!("cellar cp {}/ cell:data/tree", tree.display())])?;
    compare(cell, "data")?;
    let listed = cell.run(&format!("vos listpart {address} -localauth"))?.ok()?;
    ensure!(listed.contains("/vicepa") && listed.contains("/vicepb"), "{listed}");
    let room = cell.run(&format!("vos partinfo {address} b -localauth"))?.ok()?;
    ensure!(room.contains("Free space on partition /vicepb:"), "{room}");
    let examined = cell.run("vos examine data -localauth")?.ok()?;
    ensure!(examined.contains("/vicepb") && examined.contains("On-line"), "{examined}");
    all(
        cell,
        &[
            "vos backup data -localauth".into(),
            "cellar volume snapshot create data first".into(),
            format!("vos addsite {address} b data -localauth"),
            "vos release data -localauth".into(),
        ],
    )?;
    compare(cell, "data.readonly")?;
    compare(cell, "data.backup")
}

/// A volume moves to the disk, and back into the bucket, by both programs.
fn moves(cell: &Cell) -> Result<()> {
    let address = cell.address;
    create(cell, "roving", "b")?;
    let tree = cell.scratch()?.join("tree");
    all(cell, &[format!("cellar cp {}/ cell:roving/tree", tree.display())])?;
    let there = format!("cellar volume move roving --to {address} --partition a");
    let back = format!("cellar volume move roving --to {address} --partition b");
    for (step, place) in [
        (there, "/vicepa"),
        (back, "/vicepb"),
        (format!("vos move roving {address} b {address} a -localauth"), "/vicepa"),
        (format!("vos move roving {address} a {address} b -localauth"), "/vicepb"),
    ] {
        all(cell, &[step])?;
        let examined = cell.run("vos examine roving -localauth")?.ok()?;
        ensure!(examined.contains(place), "{examined}");
        compare(cell, "roving")?;
    }
    Ok(())
}

fn dumps(cell: &Cell) -> Result<()> {
    let (address, dump) = (cell.address, cell.scratch()?.join("dump"));
    let dump = dump.display();
    all(
        cell,
        &[
            format!("vos dump data -file {dump} -localauth"),
            format!("vos restore {address} b restored -file {dump} -localauth"),
            format!("vos restore {address} a restored.a -file {dump} -localauth"),
        ],
    )?;
    compare(cell, "restored")?;
    compare(cell, "restored.a")?;
    all(cell, &[format!("vos remove {address} b restored -localauth")])
}

/// Checks that `VOLUME/tree` is the tree that was copied in.
fn compare(cell: &Cell, volume: &str) -> Result<()> {
    let folder = cell.scratch()?;
    let (tree, copy) = (folder.join("tree"), folder.join("copy"));
    _ = std::fs::remove_dir_all(&copy);
    all(cell, &[format!("cellar cp cell:{volume}/tree {}", copy.display())])?;
    let compared = cell.shell(&format!("diff -r --no-dereference {} {}", tree.display(), copy.display()))?;
    compared.ok().with_context(|| format!("{volume} has other contents")).map(drop)
}

fn shows_no_secret(cell: &Cell) -> Result<()> {
    let shown = cell.run(&format!("cellar config show --effective --config {}", config(cell)))?.ok()?;
    ensure!(shown.contains("partition.b.credentials_file"), "{shown}");
    let log = std::fs::read_to_string(cell.path().join("cellar.log"))?;
    ensure!(!shown.contains(SECRET) && !log.contains(SECRET), "the secret is shown");
    Ok(())
}

/// SeaweedFS stops while clients write; then it is not there when the server starts.
fn away() -> Result<()> {
    let mut cell = prepare("bucket2", "10.99.0.172")?;
    _ = Seaweed::start(&cell, &["cellar"])?;
    serve(&mut cell)?;
    create(&cell, "data", "b")?;
    create(&cell, "here", "a")?;
    let done = stops_while_clients_write(&mut cell).with_context(|| cell.cellar_log())?;
    serve(&mut cell)?;
    for (volume, number) in [("data", 0), ("here", 1)] {
        Writer::compare_in(&cell, volume, number, done[number as usize])?;
    }
    cell.end_cellar("TERM")?;
    Seaweed::of(&cell).kill()?;

    // It serves without the bucket after 10 s.
    cell.start_cellar()?;
    let begun = Instant::now();
    let listed = cell.run(&format!("vos listpart {} -localauth", cell.address))?.ok()?;
    ensure!(listed.contains("/vicepa") && !listed.contains("/vicepb"), "{listed}");
    all(&cell, &[format!("cellar cp {} cell:here/configuration", config(&cell))])?;
    let refused = cell.run(&format!("cellar cp {} cell:data/configuration", config(&cell)))?;
    ensure!(refused.status != 0, "a volume of a bucket that is away serves: {}", refused.text);
    {
        let seaweed = Seaweed::of(&cell);
        seaweed.begin()?;
        seaweed.wait()?;
    }
    wait_for_partition(&cell)?;
    println!("interop: the partition came back {:.1} s after the start", begun.elapsed().as_secs_f64());
    all(&cell, &[format!("cellar cp {} cell:data/configuration", config(&cell))])?;
    cell.end_cellar("TERM")?;
    check(&cell)
}

/// Returns the acknowledged steps of two writers, which the end of the server has ended.
fn stops_while_clients_write(cell: &mut Cell) -> Result<[u64; 2]> {
    let mut far = Writer::start_in(cell, "data", 0, 0, u64::MAX)?;
    let mut near = Writer::start_in(cell, "here", 1, 0, u64::MAX)?;
    more(&far, STEPS)?;
    more(&near, STEPS)?;
    let before = (far.done()?, near.done()?);
    let span = Seaweed::of(cell).rest(AWAY)?;
    let between = (far.done()?, near.done()?);
    more(&far, STEPS)?;
    more(&near, STEPS)?;
    Seaweed::of(cell).rest(AWAY)?;
    more(&far, STEPS)?;
    cell.end_cellar("TERM")?;
    far.end()?;
    near.end()?;
    let done = [far.done()?.unwrap_or(0), near.done()?.unwrap_or(0)];
    println!(
        "interop: steps before {before:?} and after {between:?} the bucket was away for {:.1} s, {done:?} at the end",
        span.as_secs_f64()
    );
    Ok(done)
}

/// How long the server of buckets is away, by default: longer than a reply waits for the lease. Another number of seconds
/// comes from this variable.
const AWAY_FOR_LONG: Duration = Duration::from_secs(25);
const AWAY_SECONDS: &str = "CELLAR_BUCKET_AWAY_SECONDS";

/// How long after the return of the bucket a change without an answer has taken effect, or never will.
const SETTLED: Duration = Duration::from_secs(3);

/// What a call fails with when the bucket did not answer in time: UAETIMEDOUT, by number and by name.
const TIMED_OUT: [&str; 2] = ["49733484", "UAETIMEDOUT"];

/// SeaweedFS is away for longer than a call waits. Calls for the bucket's volumes fail with a timeout; other volumes serve
/// as before; afterwards everything acknowledged is there, without a restart.
fn away_for_long() -> Result<()> {
    let mut cell = prepare("bucket7", "10.99.0.177")?;
    _ = Seaweed::start(&cell, &["cellar"])?;
    serve(&mut cell)?;
    create(&cell, "data", "b")?;
    create(&cell, "here", "a")?;
    wait_it_out(&cell).with_context(|| cell.cellar_log())?;
    cell.end_cellar("TERM")?;
    check(&cell)
}

fn wait_it_out(cell: &Cell) -> Result<()> {
    let span = match std::env::var(AWAY_SECONDS) {
        Ok(seconds) => Duration::from_secs(seconds.parse().context(AWAY_SECONDS)?),
        Err(_) => AWAY_FOR_LONG,
    };
    let mut far = Writer::start_in(cell, "data", 0, 0, u64::MAX)?;
    let near = Writer::start_in(cell, "here", 1, 0, u64::MAX)?;
    more(&far, STEPS)?;
    more(&near, STEPS)?;
    Seaweed::of(cell).kill()?;
    let (begun, before) = (Instant::now(), near.done()?.unwrap_or(0));
    std::thread::sleep(span);
    let steps = near.done()?.unwrap_or(0) - before;
    ensure!(steps >= STEPS, "a volume on a disk has taken {steps} steps in {span:?}:\n{}", near.printed()?);
    Seaweed::of(cell).begin()?;
    Seaweed::of(cell).wait()?;
    let (away, back) = (begun.elapsed(), Instant::now());
    let has_ended = far.has_ended()?;
    if has_ended {
        let printed = far.printed()?;
        ensure!(TIMED_OUT.iter().any(|code| printed.contains(code)), "no timeout: {printed}");
        // The change that got no answer may still take effect.
        std::thread::sleep(SETTLED);
    } else {
        more(&far, STEPS)?;
    }
    // Another client has the same view, without a restart of the server.
    let mut done = far.kill()?;
    wait_for(LIMIT, || {
        let mut last = Writer::start_in(cell, "data", 0, done, done + 1)?;
        let is_good = last.end()?;
        done = last.done()?.unwrap_or(done);
        Ok(is_good)
    })?;
    println!(
        "interop: the bucket was away for {:.0} s, the writer {}; served {:.1} s after it was back; {steps} steps on the disk",
        away.as_secs_f64(),
        if has_ended { "got a timeout" } else { "waited" },
        back.elapsed().as_secs_f64()
    );
    Ok(())
}

/// Waits until a writer has done this many more steps.
fn more(writer: &Writer, steps: u64) -> Result<()> {
    let begun = writer.done()?.unwrap_or(0);
    wait_for(LIMIT, || Ok(writer.done()?.unwrap_or(0) >= begun + steps))
        .with_context(|| writer.printed().unwrap_or_default())
}

/// The server is killed again and again while a client writes into the bucket. A start does not wait for the end of the
/// lease of the process before, which has certainly ended.
fn server_killed() -> Result<()> {
    let mut cell = prepare("bucket3", "10.99.0.173")?;
    _ = Seaweed::start(&cell, &["cellar"])?;
    serve(&mut cell)?;
    create(&cell, "data", "b")?;
    let mut done = 0;
    for _ in 0..KILLS {
        let mut writer = Writer::start_in(&cell, "data", 0, done, u64::MAX)?;
        more(&writer, STEPS)?;
        cell.end_cellar("KILL")?;
        writer.end()?;
        done = writer.done()?.context("it has compared")?;
        let begun = Instant::now();
        serve(&mut cell)?;
        println!("interop: {done} steps; served again after {:.1} s", begun.elapsed().as_secs_f64());
    }
    Writer::compare_in(&cell, "data", 0, done)?;
    cell.end_cellar("TERM")?;
    check(&cell)
}

/// Addresses of two servers without a local partition.
const FIRST: &str = "10.99.0.175";
const SECOND: &str = "10.99.0.176";

/// Longest time from the kill of a server to the first answer of the other one.
const TAKEOVER: Duration = Duration::from_secs(19);

/// How long a call waits for packets: of a server that may not be there, and of one that is stopped.
const SHORT_MS: u64 = 1000;
const LONG_MS: u64 = 120_000;

fn standby(databases: &Cell, name: &'static str, address: &'static str) -> Result<Cell> {
    let cell = Cell::prepare_configured_joining(databases, name, address, &in_bucket(databases.address))?;
    Seaweed::write_credentials(&cell)?;
    Ok(cell)
}

/// Waits until a server has logged this often that it is on standby.
fn wait_for_standby(cell: &Cell, times: usize) -> Result<()> {
    let log = || std::fs::read_to_string(cell.path().join("cellar.log"));
    wait_for(LIMIT, || Ok(log()?.matches("this server is on standby").count() >= times))
        .with_context(|| cell.cellar_log())
}

/// Returns the entry of the server with exactly these addresses, in any order, as soon as there is one.
fn registered_as(databases: &Cell, addresses: &[&str]) -> Result<Entry> {
    let (mut found, mut expected) = (None, addresses.to_vec());
    expected.sort_unstable();
    wait_for(LIMIT, || {
        let mut entry = registered(databases, addresses[0])?;
        entry.addresses.sort_unstable();
        found = Some(entry);
        Ok(found.as_ref().is_some_and(|entry| entry.addresses == expected))
    })
    .with_context(|| format!("{found:?} instead of {expected:?}"))?;
    found.context("no entry")
}

/// Two servers with the same partition. The active one is killed, and then the other one stops for longer than its lease.
fn taken_over() -> Result<()> {
    let databases = Cell::start_configured("bucket4", "10.99.0.174", "")?;
    Seaweed::start(&databases, &["cellar"])?;
    let mut first = standby(&databases, "bucket5", FIRST)?;
    let mut second = standby(&databases, "bucket6", SECOND)?;
    first.start_cellar_alone()?;
    registered_as(&databases, &[FIRST]).with_context(|| first.cellar_log())?;
    let create = format!(
        "cellar volume create data --on {FIRST} --partition b --quota 0 --acl system:anyuser=rlidwka"
    );
    all(&databases, &[create])?;
    second.start_cellar_alone()?;
    wait_for_standby(&second, 1)?;
    // Clients know the address of the standby before the active server dies.
    let entry = registered_as(&databases, &[FIRST, SECOND]).with_context(|| first.cellar_log())?;
    let done = killed(&databases, &mut first, &second).with_context(|| second.cellar_log())?;
    let now = registered_as(&databases, &[SECOND])?;
    ensure!(now.uuid == entry.uuid, "{now:?} after {entry:?}");
    let done = Writer::compare_in(&databases, "data", 0, done)?;

    first.start_cellar_alone()?;
    wait_for_standby(&first, 1)?;
    let done = stopped(&databases, &first, &mut second, done)
        .with_context(|| format!("{}\n{}", first.cellar_log(), second.cellar_log()))?;
    let now = registered_as(&databases, &[FIRST])?;
    ensure!(now.uuid == entry.uuid, "{now:?} after {entry:?}");
    Writer::compare_in(&databases, "data", 0, done)?;
    first.end_cellar("TERM")?;
    let checked =
        first.run(&format!("cellar store check --data --json --config {}", config(&first)))?.ok()?;
    let rows: Value = serde_json::from_str(&checked).context(checked)?;
    ensure!(rows.as_array().is_some_and(|rows| rows.iter().all(|row| row["damage_count"] == 0)), "{rows:#}");
    Ok(())
}

/// Kills the active server while a client writes; returns the number of acknowledged steps.
fn killed(databases: &Cell, active: &mut Cell, other: &Cell) -> Result<u64> {
    let mut writer = Writer::start_in(databases, "data", 0, 0, u64::MAX)?;
    more(&writer, STEPS)?;
    let peek = Series::peek(databases, other.address, "data", SHORT_MS)?;
    let before = SystemTime::now();
    active.end_cellar("KILL")?;
    let taken = peek.after(before)?;
    registered_as(databases, &[other.address])?;
    let found = SystemTime::now().duration_since(before)?;
    println!(
        "interop: the other server answered {:.1} s after the kill, and was registered after {:.1} s",
        taken.as_secs_f64(),
        found.as_secs_f64()
    );
    ensure!(taken <= TAKEOVER, "it took {taken:?}");
    // It goes on at the other address if the kill struck a call that may be repeated, and fails otherwise.
    writer.stop()?.context("it has compared")
}

/// Stops the active server while a client writes, until the other one has taken over and has changed files. Then it goes
/// on, and must answer nothing. Returns the number of acknowledged steps.
fn stopped(databases: &Cell, other: &Cell, active: &mut Cell, done: u64) -> Result<u64> {
    let writer = Writer::start_in(databases, "data", 0, done, u64::MAX)?;
    more(&writer, STEPS)?;
    let late = Series::peek(databases, active.address, "data", LONG_MS)?;
    late.more(1)?;
    let next = Series::peek(databases, other.address, "data", SHORT_MS)?;
    let before = SystemTime::now();
    active.stop_cellar()?;
    let taken = next.after(before)?;
    registered_as(databases, &[other.address])?;
    let done = writer.kill()?;
    let writer = Writer::start_in(databases, "data", 0, done, u64::MAX)?;
    more(&writer, STEPS)?;
    let answers = late.rows()?.len();
    active.resume_cellar()?;
    wait_for(LIMIT, || active.has_ended())?;
    ensure!(late.rows()?.len() == answers, "a server answered after its tenure");
    more(&writer, STEPS)?;
    println!(
        "interop: a stopped server was replaced after {:.1} s, and answered nothing afterwards",
        taken.as_secs_f64()
    );
    writer.kill()
}

/// Addresses of the servers of [`clients_reset`], and of the clients.
const THIRD: &str = "10.99.0.178";
const FOURTH: &str = "10.99.0.179";
const CLIENTS: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 254);

/// Port of the file service.
const FILES: u16 = 7000;

/// A client that holds a promise of a server, and never calls again, is reset by the next server before that acknowledges
/// another client's change.
fn clients_reset() -> Result<()> {
    let databases = Cell::start_configured("bucket7", "10.99.0.177", "")?;
    Seaweed::start(&databases, &["cellar"])?;
    let mut first = standby(&databases, "bucket8", THIRD)?;
    let mut second = standby(&databases, "bucket9", FOURTH)?;
    first.start_cellar_alone()?;
    registered(&databases, THIRD).with_context(|| first.cellar_log())?;
    let create = format!(
        "cellar volume create data --on {THIRD} --partition b --quota 0 --acl system:anyuser=rlidwka"
    );
    all(&databases, &[create])?;
    second.start_cellar_alone()?;
    wait_for_standby(&second, 1)?;

    let [idle, gone, writer] = [(); 3].map(|()| Client::anonymous(CLIENTS, uuid()));
    let (idle, gone, writer) = (idle?, gone?, Arc::new(writer?));
    let cell = || writer.of_cell(databases.address.parse()?);
    let root = cell()?.root_of("data")?;
    for client in [&idle, &gone] {
        let promised = status(client, THIRD, &root)?.call_back.expiration_time;
        ensure!(promised > 0, "the server promises nothing");
    }
    drop(gone);
    let (resets, killed) = (idle.resets(), Instant::now());
    first.end_cellar("KILL")?;
    let mut attempts = 0;
    wait_for(LIMIT, || {
        attempts += 1;
        let name = format!("file-{attempts}");
        let cell = cell()?;
        let Ok(root) = cell.root_of("data") else { return Ok(false) };
        Ok(cell.create(&root, name.as_bytes(), ATTRIBUTES).is_ok())
    })
    .with_context(|| second.cellar_log())?;
    let (after, seen) = (killed.elapsed(), idle.resets());
    ensure!(seen > resets, "a change was acknowledged before the client was reset\n{}", second.cellar_log());
    let is_logged =
        || Ok(second.cellar_log().contains("reset the clients that may hold promises of its last owner"));
    wait_for(LIMIT, is_logged).with_context(|| second.cellar_log())?;
    println!("interop: the first change was acknowledged {:.1} s after the kill", after.as_secs_f64());
    let next = status(&idle, FOURTH, &root)?;
    ensure!(next.call_back.expiration_time > 0 && idle.resets() == seen, "it is reset once");
    second.end_cellar("TERM")?;
    let checked = second.run(&format!("cellar store check --json --config {}", config(&second)))?.ok()?;
    let rows: Value = serde_json::from_str(&checked).context(checked)?;
    ensure!(rows.as_array().is_some_and(|rows| rows.iter().all(|row| row["damage_count"] == 0)), "{rows:#}");
    Ok(())
}

const ATTRIBUTES: Attributes = Attributes { mode: 0o644, modified: 1_000_000_000 };

/// FetchStatus of a vnode at one server.
fn status(client: &Client, server: &str, node: &Node) -> Result<FetchStatusReply> {
    let files = client.connect((server.parse::<Ipv4Addr>()?, FILES).into(), 1);
    let answer = fs::fetch_status(&*files, &FetchStatusRequest { fid: node.fid.into() });
    answer.map_err(|code| anyhow!("FetchStatus at {server}: {code:?}"))
}
