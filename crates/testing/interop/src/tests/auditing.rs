//! Compares the audit log in OpenAFS's format with that of OpenAFS's own servers for the same commands.

use crate::Test;
use crate::tests::kafs::token;
use crate::tests::{own_file, wait_for};
use anyhow::{Context, Result, bail, ensure};
use interop::cell::{Cell, Server};
use interop::means::Means;
use regex::Regex;
use serde_json::Value;
use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test { name: "audit-openafs", needs: &[Means::Netns], run: compare },
        Test { name: "audit-journal", needs: &[Means::Netns, Means::Journald], run: journal },
    ]
}

/// Starts a journal for the cell only: with a private /run and machine id, in memory, without kernel
/// messages, and without a rate limit.
const BEGIN_JOURNAL: &str = "
    set -e
    if [ ! -e /run/machine-id ]; then
        mount -t tmpfs none /run
        mkdir -p /run/systemd/journal /run/systemd/journald.conf.d /run/log/journal
        echo 0123456789abcdef0123456789abcdef >/run/machine-id
        mount --bind /run/machine-id /etc/machine-id
        # `ip netns exec` has covered it.
        mountpoint -q /sys/fs/cgroup || mount -t cgroup2 none /sys/fs/cgroup
        printf '[Journal]\nStorage=volatile\nReadKMsg=no\nAudit=no\nRateLimitIntervalSec=0\n' \
            >/run/systemd/journald.conf.d/cell.conf
    fi
    rm -f /run/systemd/journal/socket
    SYSTEMD_LOG_TARGET=console setsid /lib/systemd/systemd-journald </dev/null >>/run/journald.log 2>&1 &
    echo $! >/run/journald.pid
    for i in $(seq 600); do
        kill -0 $! || break
        [ ! -S /run/systemd/journal/socket ] || exit 0
        sleep 0.1
    done
    echo 'systemd-journald does not run:'; cat /run/journald.log; exit 1";
const END_JOURNAL: &str = "
    journal=$(cat /run/journald.pid); kill $journal || exit
    for i in $(seq 600); do kill -0 $journal 2>/dev/null || exit 0; sleep 0.1; done
    echo 'systemd-journald does not end'; exit 1";

/// Makes Cellar record all events, as OpenAFS does.
const SINK: &str = "[audit.openafs]\nfile = \"/var/log/openafs/Audit\"\nformat = \"openafs\"\nevents = [\"all\"]\npolicy = \"block\"";

/// Commands for both servers; some are denied or fail. CELLAR is Cellar's program, as a client.
const COMMANDS: [&str; 34] = [
    "pts createuser ann -localauth",
    "pts creategroup ann:friends -owner ann -localauth",
    "pts adduser ann ann:friends -localauth",
    "pts removeuser ann ann:friends -localauth",
    "pts setfields ann -groupquota 7 -localauth",
    "pts chown ann:friends admin -localauth",
    "pts rename admin:friends -newname admin:others -localauth",
    "pts setmax -group -300 -localauth",
    "pts membership ann -localauth",
    "pts examine ann -localauth",
    "pts listowned admin -localauth",
    "pts listentries -localauth",
    "pts createuser zoe -noauth",
    "pts delete admin:others -localauth",
    "pts delete nobody.there -localauth",
    "vos create $ADDR a work -maxquota 5000 -localauth",
    "vos backup work -localauth",
    "vos setfields work -maxquota 6000 -localauth",
    "vos lock work -localauth",
    "vos unlock work -localauth",
    "vos rename work job -localauth",
    "vos dump job -file /dev/null -localauth",
    "vos create $ADDR a denied -noauth",
    "vos partinfo $ADDR -noauth",
    "vos remove -id job -localauth",
    "vos remove -id job -localauth",
    "bos adduser $ADDR zoe -localauth",
    "bos removeuser $ADDR zoe -noauth",
    "bos removeuser $ADDR zoe -localauth",
    "bos restart $ADDR nosuch -localauth",
    "bos setcellname $ADDR other.example -noauth",
    "cellar cp --jobs 1 SUITES/ cell:open.1/first/",
    "cellar cp --jobs 1 SUITES/ cell:open.1/first/",
    "cellar cp --jobs 1 cell:open.1/first/ $SCRATCH/back/",
];

/// Services whose lines are compared separately, since only calls of one client to one service are in order.
const SERVICES: [&str; 5] = ["AFS_PTS_", "AFS_VS_", "AFS_VL_", "AFS_BOS_", "AFS_SRX_"];

/// Number of attempts: once in dozens of runs OpenAFS's volume server fails to dump a volume
/// (VOLSERDUMPERROR).
const ATTEMPTS: usize = 3;

fn compare() -> Result<()> {
    for _ in 0..ATTEMPTS {
        if is_compared()? {
            return Ok(());
        }
        println!("interop: audit-openafs: OpenAFS could not dump a volume; again");
    }
    bail!("OpenAFS could not dump a volume {ATTEMPTS} times")
}

/// Compares both logs. Returns false if an OpenAFS server failed to do what it was asked.
fn is_compared() -> Result<bool> {
    let openafs = Cell::start_with(Server::OpenAfs, "audit1", "10.99.0.97", &["-A"])?;
    let cellar = Cell::start_configured("audit2", "10.99.0.98", SINK)?;
    // OpenAFS's cell already has this user.
    cellar.run("pts createuser admin -id 1 -localauth")?.ok()?;
    cellar.run("pts adduser admin system:administrators -localauth")?.ok()?;
    let all = [lines(&openafs)?, lines(&cellar)?];
    let is_failed_dump = |line: &String| line.contains("AFS_VS_Dump ") && !line.contains("CODE 0 ");
    if all[0].iter().any(is_failed_dump) {
        return Ok(false);
    }
    let mut report = String::new();
    let mut compared = 0;
    for service in SERVICES {
        let [theirs, ours] = [&all[0], &all[1]].map(|lines| of(lines, service));
        ensure!(!theirs.is_empty(), "OpenAFS wrote nothing of {service}");
        compared += theirs.len();
        if theirs != ours {
            let [theirs, ours] = [theirs, ours].map(|lines| lines.join("\n"));
            writeln!(report, "== {service}\n-- OpenAFS\n{theirs}\n-- Cellar\n{ours}")?;
        }
    }
    let cells = [&openafs, &cellar];
    let [theirs, ours] = [privileged(cells[0])?, privileged(cells[1])?];
    ensure!(
        theirs.iter().any(|line| event(line).starts_with("EVENT AFS_Priv")),
        "OpenAFS wrote nothing of privileges"
    );
    compared += theirs.len();
    if theirs != ours {
        let [theirs, ours] = [theirs, ours].map(|lines| lines.join("\n"));
        writeln!(report, "== an administrator\n-- OpenAFS\n{theirs}\n-- Cellar\n{ours}")?;
    }
    ensure!(report.is_empty(), "{report}\nCellar's log ends:\n{}", cellar.cellar_log());
    println!("interop: audit-openafs: {compared} lines are the same");
    Ok(true)
}

/// Checks that the real journal has every record, with its search fields, even those from while it was not
/// running.
fn journal() -> Result<()> {
    let cell = Cell::start_configured("audit3", "10.99.0.99", "[audit.journal]\njournal = true")?;
    let shell = |script: &str| cell.shell(script)?.ok();
    let create = |name: &str| cell.run(&format!("vos create {} a {name} -localauth", cell.address))?.ok();
    create("before")?;
    shell(BEGIN_JOURNAL)?;
    let tells = |entry: &Value, word: &str| entry["MESSAGE"].as_str().is_some_and(|line| line.contains(word));
    entries(&cell, |entries| Ok(entries.iter().any(|entry| tells(entry, "before"))))?;
    ensure!(cell.run(&format!("vos create {} a denied -noauth", cell.address))?.status != 0);
    shell(END_JOURNAL)?;
    create("meanwhile")?;
    shell(BEGIN_JOURNAL)?;
    let calls =
        |entries: &[Value]| entries.iter().filter(|entry| tells(entry, "\"procedure\":")).count() as u64;
    // The sink tries again after a pause. In addition to the calls, a line records the start of the audit log.
    let mut counted = Value::Null;
    let entries = entries(&cell, |entries| {
        counted = serde_json::from_str(&shell("cellar stat audit --json")?)?;
        let is_idle = counted[0]["queued"] == 0 && counted[0]["failing"] == 0;
        Ok(is_idle && counted[0]["records"] == calls(entries))
    })
    .with_context(|| counted.to_string())?;
    let records = calls(&entries);
    shell(END_JOURNAL)?;

    let mut denied = 0;
    for entry in &entries {
        let line: Value = serde_json::from_str(entry["MESSAGE"].as_str().context("a message")?)?;
        let is_denied = line["outcome"] == "denied";
        denied += u64::from(is_denied);
        let reported =
            ["PRIORITY", "SYSLOG_FACILITY", "_COMM"].map(|key| entry[key].as_str().unwrap_or_default());
        ensure!(reported == [if is_denied { "5" } else { "6" }, "13", "cellar"], "{entry}");
    }
    ensure!(denied > 0, "none of {records} denied, {counted}");
    ensure!(
        entries.iter().any(|entry| tells(entry, "meanwhile")),
        "nothing of the time without it: {entries:?}"
    );
    ensure!(counted[0]["dropped"] == 0, "{counted}");
    println!("interop: audit-journal: {records} records in the journal, {denied} of what was denied");
    Ok(())
}

/// Returns the audit records in the journal, once they are complete.
fn entries(cell: &Cell, mut is_whole: impl FnMut(&[Value]) -> Result<bool>) -> Result<Vec<Value>> {
    let mut entries = Vec::new();
    for _ in 0..600 {
        let text = cell.shell("journalctl -q -o json SYSLOG_IDENTIFIER=cellar-audit")?.text;
        entries = text
            .lines()
            .map(|line| serde_json::from_str(line).with_context(|| line.to_owned()))
            .collect::<Result<Vec<Value>>>()?;
        if is_whole(&entries)? {
            return Ok(entries);
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    bail!("the journal has no more than {entries:?}\n{}", cell.cellar_log())
}

/// Returns the results of calls that only administrators may make, and the file server's audit lines for
/// them, in order.
fn privileged(cell: &Cell) -> Result<Vec<String>> {
    let program = std::env::current_exe()?.display().to_string();
    let token = token(cell, "admin")?;
    let mut said = String::new();
    let written = written(cell, || {
        said = cell.run(&format!("{program} privileged {0} {0} open.1 {token}", cell.address))?.ok()?;
        Ok(())
    })?;
    let is_of =
        |line: &&String| ["EVENT AFS_SRX_", "EVENT AFS_Priv"].iter().any(|of| event(line).starts_with(of));
    Ok(said.lines().map(str::to_owned).chain(written.iter().filter(is_of).cloned()).collect())
}

/// Returns the normalised audit lines of a cell for the commands.
fn lines(cell: &Cell) -> Result<Vec<String>> {
    cell.open_volume(Server::OpenAfs, "open.1")?;
    written(cell, || commands(cell))
}

fn commands(cell: &Cell) -> Result<()> {
    let (scratch, suites) = (cell.scratch()?, own_file("suites"));
    for command in COMMANDS {
        let command = command
            .replace("$ADDR", cell.address)
            .replace("$SCRATCH", &scratch.display().to_string())
            .replace("SUITES", &suites.display().to_string());
        cell.run(&command)?;
    }
    Ok(())
}

/// Returns the normalised audit lines that `act` adds to a cell's audit log.
fn written(cell: &Cell, act: impl FnOnce() -> Result<()>) -> Result<Vec<String>> {
    let before = read_settled(cell)?;
    act()?;
    let after = read_settled(cell)?;
    let news = after.iter().zip(&before).map(|(after, before)| {
        after.strip_prefix(&before[..]).context("a server started a new file of its audit")
    });
    let mut lines = Vec::new();
    for text in news {
        lines.extend(normalised(text?, cell.address)?);
    }
    Ok(lines)
}

/// Pause between two readings of the audit files, and the time limit for two that are equal.
const PAUSE: Duration = Duration::from_secs(2);
const SETTLING_LIMIT: Duration = Duration::from_secs(120);

/// Reads the audit files as soon as nothing more is written to them: the last line is written after its call has ended.
fn read_settled(cell: &Cell) -> Result<Vec<String>> {
    let mut last = read(cell)?;
    wait_for(SETTLING_LIMIT, || {
        std::thread::sleep(PAUSE);
        let before = std::mem::replace(&mut last, read(cell)?);
        Ok(last == before)
    })
    .context("the audit files still grow")?;
    Ok(last)
}

/// Reads the audit files.
fn read(cell: &Cell) -> Result<Vec<String>> {
    let folder = cell.path().join("log");
    let mut names: Vec<_> = std::fs::read_dir(&folder)?
        .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
        .collect::<Result<Vec<String>>>()?;
    names.retain(|name| name.ends_with("Audit"));
    names.sort();
    names.iter().map(|name| text(&folder.join(name))).collect()
}

fn text(path: &Path) -> Result<String> {
    let bytes = std::fs::read(path).with_context(|| path.display().to_string())?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Removes values that differ between servers: times, thread ids, addresses and transaction ids.
fn normalised(text: &str, address: &str) -> Result<Vec<String>> {
    let transaction = Regex::new(
        "^((?:\\[T\\] )?EVENT AFS_VS_(?:CrVol|DelVol|Clone|ReClone|TransCr|EndTrn|SetFlgs|GetFlgs|SetInfo|SetIdTy|SetDate|\
         GetStat|GetName|Dump|Restore|Forward) .*?HOST \\S+ LONG )[1-9][0-9]*",
    )?;
    let plain = |line: String| sorted_fids(&transaction.replace(&line, "${1}T").replace(address, "ADDR"));
    Ok(records(text)?.into_iter().map(plain).collect())
}

/// Sorts the FIDs of a call for many: clients list a directory in no particular order.
fn sorted_fids(line: &str) -> String {
    let Some((head, fids)) = line.split_once(" FIDS ") else { return line.to_owned() };
    let mut fids: Vec<&str> = fids.split(" FID ").map(str::trim).collect();
    fids[1..].sort_unstable();
    format!("{head} FIDS {}", fids.join(" FID "))
}

/// Returns each record as one line without its time, with `[T] ` for a thread id. OpenAFS writes access lists
/// unescaped, over several lines; Cellar escapes control characters.
fn records(text: &str) -> Result<Vec<String>> {
    let beginning =
        Regex::new("^[A-Z][a-z]{2} [A-Z][a-z]{2} [ 0-9]{2} [0-9:]{8} [0-9]{4} (\\[[0-9]+\\] )?(EVENT .*)$")?;
    let mut found: Vec<String> = Vec::new();
    for line in text.lines() {
        match (beginning.captures(line), found.last_mut()) {
            (Some(parts), _) => {
                let thread = if parts.get(1).is_some() { "[T] " } else { "" };
                found.push(format!("{thread}{}", &parts[2]));
            }
            (None, Some(record)) => {
                record.push_str("\\n");
                record.push_str(&line.replace('\t', "\\t"));
            }
            (None, None) if line.is_empty() => {}
            (None, None) => bail!("the audit begins with {line:?}"),
        }
    }
    Ok(found)
}

/// Returns a line without its thread id.
fn event(line: &str) -> &str {
    line.strip_prefix("[T] ").unwrap_or(line)
}

/// Returns the lines of a service, including the preceding ones about unauthenticated callers. Omits the
/// queries of OpenAFS's file server to the protection server, since Cellar's file server has the database in
/// the same process. Sorts the file server's lines: files are copied by several concurrent calls.
fn of(lines: &[String], service: &str) -> Vec<String> {
    let of_file_server = ["AFS_PTS_GetCPS", "AFS_PTS_GetHCPS", "_Start ", "_Finish ", "STR afs ID 32766"];
    let is_of = |line: &&String| {
        let event = event(line);
        event.starts_with(&format!("EVENT {service}"))
            || event.starts_with(&format!("EVENT AFS_Aud_Unauth CODE -1 STR {service}"))
    };
    let mut found = Vec::new();
    let mut is_asking = false;
    for line in lines.iter().filter(is_of) {
        // A call's own line follows those of the names that it looks up.
        let is_own = of_file_server.iter().any(|own| line.contains(own));
        if !is_own && !is_asking {
            found.push(line.clone());
        }
        is_asking = is_own && line.contains("STR afs ID");
    }
    if service == "AFS_SRX_" {
        found.sort();
    }
    found
}
