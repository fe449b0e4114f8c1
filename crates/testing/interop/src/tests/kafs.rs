//! The Linux kernel's AFS client mounts Cellar's volumes and runs scripts.

use crate::Test;
use crate::tests::{script, wait_for};
use anyhow::{Context, Result, bail, ensure};
use interop::cell::{Cell, Server};
use interop::means::{BACKPORTS, Means};
use interop::vm::Guest;
use std::path::Path;
use std::time::Duration;

pub(crate) const NEEDS: &[Means] = &[Means::Netns, Means::Emulation];
/// Requirements of tests with the newest kernel.
pub(crate) const NEEDS_NEWEST: &[Means] = &[Means::Netns, Means::Emulation, Means::Backports];
/// Option for the default kernel of a guest, Debian 12's.
pub(crate) const OWN: &[&str] = &[];
/// Option for the newest kernel in Debian.
pub(crate) const NEWEST: &[&str] = &["--kernel", BACKPORTS];

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test { name: "kafs-files", needs: NEEDS, run: || files(OWN, 5000) },
        Test { name: "kafs-files-newest", needs: NEEDS_NEWEST, run: || files(NEWEST, 1000) },
        Test { name: "kafs-mount-points", needs: NEEDS, run: mount_points },
        Test { name: "kafs-users", needs: NEEDS, run: users },
        Test { name: "kafs-two-clients", needs: NEEDS, run: two_clients },
        Test { name: "kafs-snapshots", needs: NEEDS, run: snapshots },
        Test { name: "kafs-restored-over", needs: NEEDS, run: restored_over },
        Test { name: "kafs-server-restart", needs: NEEDS, run: || server_restart(OWN) },
        Test { name: "kafs-server-restart-newest", needs: NEEDS_NEWEST, run: || server_restart(NEWEST) },
        Test { name: "kafs-server-killed", needs: NEEDS, run: server_killed },
        Test { name: "kafs-server-supervised", needs: NEEDS, run: server_supervised },
        Test { name: "kafs-big-file", needs: NEEDS, run: big_file },
    ]
}

fn cellar() -> Result<Cell> {
    Cell::start(Server::Cellar, "cellar1", "10.99.0.4")
}

fn run_script(cell: &Cell, name: &str, prelude: &str, parts: &[&str], seconds: u32) -> Result<()> {
    run_in(Guest::new(cell, name, seconds), cell, &script(cell, name, prelude, parts)?)
}

/// Runs a script in a guest with the host's tools and the volume `data`.
fn run_in(guest: Guest<'_>, cell: &Cell, script: &Path) -> Result<()> {
    let output = guest.with(&["--hostroot"]).mount("data", "/mnt").run(script)?;
    print!("{}", output.text);
    output.ok().with_context(|| format!("Cellar's log ends:\n{}", cell.cellar_log())).map(drop)
}

/// Runs the file scripts, with `many` files in one directory.
fn files(kernel: &[&str], many: u32) -> Result<()> {
    let cell = cellar()?;
    cell.open_volume(Server::Cellar, "data")?;
    let script = script(&cell, "files", &format!("MANY={many}"), &["files.sh", "tree.sh"])?;
    run_in(Guest::new(&cell, "files", 400).with(kernel), &cell, &script)
}

fn big_file() -> Result<()> {
    let cell = cellar()?;
    cell.open_volume(Server::Cellar, "data")?;
    run_script(&cell, "big", "BIG_MB=256 FAR_MB=5120", &["big.sh"], 900)
}

fn mount_points() -> Result<()> {
    let cell = cellar()?;
    for volume in ["data", "other", "small"] {
        cell.open_volume(Server::Cellar, volume)?;
    }
    std::fs::write(cell.path().join("inside"), "in the other volume\n")?;
    for command in [
        "cellar volume mount data/other other".to_owned(),
        "cellar volume mount data/small small".to_owned(),
        format!("cellar cp {} cell:other/inside", cell.path().join("inside").display()),
        "vos setfields small -maxquota 1000 -localauth".to_owned(),
    ] {
        cell.run(&command)?.ok().with_context(|| command)?;
    }
    run_script(&cell, "mounts", "", &["mounts.sh"], 120)
}

/// Users with Kerberos tickets, forged with the cell's key as a KDC would issue them: rights, groups and
/// owners, over connections encrypted by rxkad.
fn users() -> Result<()> {
    let cell = cellar()?;
    cell.open_volume(Server::Cellar, "data")?;
    users_of(&cell).with_context(|| format!("Cellar's log ends:\n{}", cell.cellar_log()))
}

/// Tests users in the cell with the databases of `cell`; its volume `data` must be open to everyone.
pub(crate) fn users_of(cell: &Cell) -> Result<()> {
    for command in [
        "pts createuser u1 -id 1001 -localauth",
        "pts createuser u2 -id 1002 -localauth",
        "pts createuser u3 -id 1003 -localauth",
        "pts creategroup u1:friends -owner u1 -localauth",
        "pts adduser u2 u1:friends -localauth",
    ] {
        cell.run(command)?.ok().context(command)?;
    }
    let mut files = Vec::new();
    for user in ["admin", "u1", "u2", "u3"] {
        files.push("--file".to_owned());
        files.push(format!("{}:/token.{user}", token(cell, user)?));
    }
    let files: Vec<&str> = files.iter().map(String::as_str).collect();
    let output = Guest::new(cell, "users", 300)
        .with(&["--hostroot"])
        .with(&files)
        .mount("data", "/mnt")
        .run(&script(cell, "users", "CELL=test.example", &["users.sh"])?)?;
    print!("{}", output.text);
    output.ok().map(drop)
}

/// Creates a token file for `user`, with a ticket made with the cell's key.
pub(crate) fn token(cell: &Cell, user: &str) -> Result<String> {
    let path = |name: &str| cell.path().join(format!("{name}.{user}")).display().to_string();
    let (cache, token) = (path("ccache"), path("token"));
    let keytab = cell.path().join("rxkad.keytab");
    let forge = format!(
        "kimpersonate --krb5 --keytab=FILE:{} --server=afs/test.example@TEST.EXAMPLE \
         --client={user}@TEST.EXAMPLE --enc-type=aes256-cts-hmac-sha1-96 --ccache=FILE:{cache}",
        keytab.display()
    );
    cell.run(&forge)?.ok().context(forge)?;
    let convert = format!("{} {cache} {token}", interop::cell::tools().join("kafs-token").display());
    cell.run(&convert)?.ok().context(convert)?;
    Ok(token)
}

fn two_clients() -> Result<()> {
    let cell = cellar()?;
    cell.open_volume(Server::Cellar, "data")?;
    let out = cell.path().join("out");
    std::fs::create_dir(&out)?;
    let share = out.to_str().context("path")?;
    let start = |role: &str, address: &str| {
        Guest::new(&cell, role, 200)
            .with(&["--hostroot", "--share", share, "--net", "tap", "--guest-ip", address])
            .mount("data", "/mnt")
            .start(&script(&cell, role, &format!("ROLE={role}"), &["two.sh"])?)
    };
    let one = start("one", "10.99.77.2")?;
    let two = start("two", "10.99.77.3")?;
    let outputs = [one.finish()?, two.finish()?];
    for output in &outputs {
        print!("{}", output.text);
    }
    for output in outputs {
        output.ok().with_context(|| format!("Cellar's log ends:\n{}", cell.cellar_log()))?;
    }
    Ok(())
}

/// Makes, mounts and rolls back to snapshots while a client has the volume mounted.
fn snapshots() -> Result<()> {
    let cell = cellar()?;
    cell.open_volume(Server::Cellar, "data")?;
    let out = cell.path().join("out");
    std::fs::create_dir(&out)?;
    let guest = Guest::new(&cell, "snapshots", 200)
        .with(&["--hostroot", "--share", out.to_str().context("path")?])
        .mount("data", "/mnt")
        .start(&script(&cell, "snapshots", "", &["snapshots.sh"])?)?;
    let turns = [
        ("written", "mounted", &["create data monday", "mount data/snap data monday"][..]),
        ("seen", "rolled-back", &["rollback data monday"]),
        ("written-again", "mounted-again", &["mount data/snap data monday"]),
    ];
    let taken = turns.iter().try_for_each(|(theirs, ours, commands)| {
        wait_for(Duration::from_secs(100), || Ok(out.join(theirs).exists())).context(*theirs)?;
        for command in *commands {
            let command = format!("cellar volume snapshot {command}");
            cell.run(&command)?.ok().context(command)?;
        }
        std::fs::write(out.join(ours), "").context(*ours)
    });
    let output = guest.finish()?;
    print!("{}", output.text);
    taken.context("taking turns with the guest")?;
    output.ok().with_context(|| format!("Cellar's log ends:\n{}", cell.cellar_log())).map(drop)
}

/// A way to dump the volume `data` to a file and to restore that file over it.
struct Way {
    name: &'static str,
    dump: &'static str,
    restore: &'static str,
}

/// `FILE` is the dump's path, `SERVER` the server's address, `YESTERDAY` a date as `vos` expects it. Everything has
/// changed since yesterday, so the incremental dump is complete, too. `cellar volume restore --overwrite incremental`
/// refuses it, because the contents are changed after the dump.
const WAYS: [Way; 3] = [
    Way {
        name: "vos-full",
        dump: "vos dump data -file FILE -localauth",
        restore: "vos restore SERVER a data -file FILE -overwrite full -localauth",
    },
    Way {
        name: "cellar-full",
        dump: "cellar volume dump data FILE",
        restore: "cellar volume restore FILE data --overwrite full",
    },
    Way {
        name: "vos-incremental",
        dump: "vos dump data -time YESTERDAY -file FILE -localauth",
        restore: "vos restore SERVER a data -file FILE -overwrite incremental -localauth",
    },
];

/// Restores dumps over a volume that a client has cached, and changes it from another client.
fn restored_over() -> Result<()> {
    let cell = cellar()?;
    cell.open_volume(Server::Cellar, "data")?;
    let out = cell.path().join("out");
    std::fs::create_dir(&out)?;
    let yesterday = cell.run("date -d yesterday +%m/%d/%Y")?.ok()?;
    let prelude = format!("WAYS='{}'", WAYS.map(|way| way.name).join(" "));
    let guest = Guest::new(&cell, "restored", 300)
        .with(&["--hostroot", "--share", out.to_str().context("path")?])
        .mount("data", "/mnt")
        .start(&script(&cell, "restored", &prelude, &["restored.sh"])?)?;
    let other = cell.scratch()?;
    std::fs::write(other.join("x"), "CCCC\n")?;
    std::fs::write(other.join("c"), "cccc\n")?;
    let done = WAYS.iter().try_for_each(|Way { name, dump, restore }| {
        let file = cell.path().join(name).display().to_string();
        let filled = |command: &str| {
            let command = command.replace("FILE", &file).replace("SERVER", cell.address);
            command.replace("YESTERDAY", yesterday.trim())
        };
        let store = |from, to| format!("cellar cp {} cell:data/{to}", other.join(from).display());
        let stores =
            [("x", format!("{name}/x")), ("c", format!("{name}/c")), ("x", format!("read-{name}/y"))];
        let stores = stores.map(|(from, to)| store(from, to));
        for (theirs, ours, commands) in [
            ("written", "dumped", &[filled(dump)][..]),
            ("cached", "restored", &[filled(restore)]),
            ("seen", "stored", &stores),
        ] {
            let theirs = format!("{theirs}-{name}");
            wait_for(Duration::from_secs(100), || Ok(out.join(&theirs).exists())).context(theirs.clone())?;
            for command in commands {
                cell.run(command)?.ok().with_context(|| command.clone())?;
            }
            std::fs::write(out.join(format!("{ours}-{name}")), "").context(ours)?;
        }
        Ok::<(), anyhow::Error>(())
    });
    let output = guest.finish()?;
    print!("{}", output.text);
    done.context("taking turns with the guest")?;
    output.ok().with_context(|| format!("Cellar's log ends:\n{}", cell.cellar_log())).map(drop)
}

/// Function in which Linux 6.1 dereferences a null pointer if a call is rejected before its sendmsg() has
/// returned.
const REFUSAL_BUG: &str = "afs_process_async_call";

/// Runs a test, and repeats it once if [`REFUSAL_BUG`] crashed its guest.
pub(crate) fn again_if_guest_fell(test: fn() -> Result<()>) -> Result<()> {
    match test() {
        Err(error) if format!("{error:#}").contains(REFUSAL_BUG) => {
            println!("interop: the guest's kernel fell over; once more");
            test()
        }
        outcome => outcome,
    }
}

fn server_restart(kernel: &[&str]) -> Result<()> {
    let mut cell = cellar()?;
    cell.open_volume(Server::Cellar, "data")?;
    let out = cell.path().join("out");
    std::fs::create_dir(&out)?;
    let mut guest = Guest::new(&cell, "restart", 200)
        .with(kernel)
        .with(&["--hostroot", "--share", out.to_str().context("path")?])
        .mount("data", "/mnt")
        .start(&script(&cell, "restart", "", &["restart.sh"])?)?;
    wait_for(Duration::from_secs(90), || {
        Ok(guest.printed().contains("client ready") || !guest.is_running()?)
    })?;
    cell.end_cellar("TERM")?;
    cell.start_cellar()?;
    std::fs::write(out.join("restarted"), "")?;
    let output = guest.finish()?;
    print!("{}", output.text);
    output.ok().with_context(|| format!("Cellar's log ends:\n{}", cell.cellar_log())).map(drop)
}

/// Kills the server while a client appends lines, and its supervisor keeps the sockets: the client sees no
/// error, and no line is lost.
fn server_supervised() -> Result<()> {
    let mut cell = cellar()?;
    cell.open_volume(Server::Cellar, "data")?;
    cell.end_cellar("TERM")?;
    cell.start_cellar_supervised()?;
    let out = cell.path().join("out");
    std::fs::create_dir(&out)?;
    let mut guest = Guest::new(&cell, "supervised", 280)
        .with(&["--hostroot", "--share", out.to_str().context("path")?])
        .mount("data", "/mnt")
        .start(&script(&cell, "supervised", "", &["lines.sh"])?)?;
    let synced = |printed: &str| printed.lines().filter(|line| line.starts_with("synced ")).count();
    for kill in 1..=KILLS {
        wait_for(Duration::from_secs(120), || {
            Ok(synced(&guest.printed()) > 10 * kill || !guest.is_running()?)
        })
        .with_context(|| format!("before kill {kill} the guest printed:\n{}", guest.printed()))?;
        cell.kill_supervised()?;
    }
    let before = synced(&guest.printed());
    wait_for(Duration::from_secs(120), || Ok(synced(&guest.printed()) > before + 10 || !guest.is_running()?))
        .context("the client goes on")?;
    std::fs::write(out.join("stop"), "")?;
    let output = guest.finish()?;
    print!("{}", output.text);
    output.ok().with_context(|| format!("Cellar's log ends:\n{}", cell.cellar_log())).map(drop)
}

/// Number of times that the server is killed while the client writes.
const KILLS: usize = 3;

/// Returns the numbers of the records that the script reported as written.
pub(crate) fn acknowledged(printed: &str) -> Vec<u32> {
    let number = |line: &str| line.trim().strip_prefix("acknowledged ")?.parse().ok();
    printed.lines().filter_map(number).collect()
}

/// Kills the server several times while a client writes; every record whose write was acknowledged must be
/// complete after the last start.
///
/// Linux 6.1 occasionally dereferences a null pointer when its probe of the killed server is rejected before
/// sendmsg() has returned. In that case the acknowledged records are checked, and another guest continues.
fn server_killed() -> Result<()> {
    let mut cell = cellar()?;
    let (mut kills, mut survived) = (0, 0);
    for guest in 1..=GUESTS_MAX {
        let volume = format!("data{guest}");
        cell.open_volume(Server::Cellar, &volume)?;
        let written = write_under_kills(&mut cell, &volume, KILLS - kills)?;
        cell.end_cellar("KILL")?;
        cell.start_cellar()?;
        check_records(&cell, &volume, &written.acknowledged)?;
        kills += written.kills;
        survived += written.acknowledged.len();
        if written.ended {
            ensure!(survived > 50, "only {survived} records were acknowledged");
            println!("interop: {survived} acknowledged records survived {} kills", kills + guest);
            return Ok(());
        }
        println!("interop: the guest's kernel fell over; another guest goes on");
    }
    bail!("the kernels of {GUESTS_MAX} guests fell over")
}

const GUESTS_MAX: usize = 6;

/// Result of a guest that wrote while the server was killed.
struct Written {
    acknowledged: Vec<u32>,
    kills: usize,
    /// Whether it completed its script.
    ended: bool,
}

fn write_under_kills(cell: &mut Cell, volume: &str, kills: usize) -> Result<Written> {
    let out = cell.path().join(format!("out-{volume}"));
    std::fs::create_dir(&out)?;
    let mut guest = Guest::new(cell, volume, 1200)
        .with(&["--hostroot", "--share", out.to_str().context("path")?])
        .mount(volume, "/mnt")
        .start(&script(cell, volume, "", &["writer.sh"])?)?;
    let mut done = 0;
    loop {
        wait_for(Duration::from_secs(600), || {
            Ok(acknowledged(&guest.printed()).len() > 25 * (done + 1) || !guest.is_running()?)
        })
        .with_context(|| format!("after {done} kills the guest printed:\n{}", guest.printed()))?;
        if done == kills || !guest.is_running()? {
            break;
        }
        cell.end_cellar("KILL")?;
        cell.start_cellar()?;
        done += 1;
    }
    std::fs::write(out.join("stop"), "")?;
    let printed = guest.finish()?.text;
    let ended = printed.contains("writer done");
    ensure!(ended || printed.contains(REFUSAL_BUG), "the writer did not finish:\n{printed}");
    Ok(Written { acknowledged: acknowledged(&printed), kills: done, ended })
}

pub(crate) fn check_records(cell: &Cell, volume: &str, acknowledged: &[u32]) -> Result<()> {
    let copy = cell.path().join(format!("copy-{volume}"));
    cell.run(&format!("cellar cp cell:{volume}/ {}", copy.display()))?.ok()?;
    for number in acknowledged {
        let text = std::fs::read_to_string(copy.join(format!("record.{number}")))
            .with_context(|| format!("record {number} was acknowledged and is gone"))?;
        ensure!(text == format!("record {number:06}\n"), "record {number} holds {text:?}");
    }
    Ok(())
}
