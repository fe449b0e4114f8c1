//! The audit in OpenAFS's form beside what OpenAFS's own servers write for the same commands.

use crate::Test;
use crate::tests::own_file;
use anyhow::{Context, Result, ensure};
use interop::cell::{Cell, Server, cellar_program};
use interop::means::Means;
use regex::Regex;
use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

pub(crate) fn tests() -> Vec<Test> {
    vec![Test { name: "audit-openafs", needs: &[Means::Netns], run: compare }]
}

/// Cellar writes everything, as OpenAFS does.
const SINK: &str = "[audit.openafs]\nfile = \"/var/log/openafs/Audit\"\nformat = \"openafs\"\nevents = [\"all\"]\npolicy = \"block\"";

/// What is done to both; some of it is denied or fails. CELLAR is Cellar's program, as a client.
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
    "CELLAR cp SUITES/ cell:open.1/first/",
    "CELLAR cp SUITES/ cell:open.1/first/",
    "CELLAR cp cell:open.1/first/ $SCRATCH/back/",
];

/// Whose lines are compared with each other: one client's calls of one service are in order.
const SERVICES: [&str; 5] = ["AFS_PTS_", "AFS_VS_", "AFS_VL_", "AFS_BOS_", "AFS_SRX_"];

fn compare() -> Result<()> {
    let openafs = Cell::start_with(Server::OpenAfs, "afs1", "10.99.0.1", &["-A"])?;
    let cellar = Cell::start_configured("cellar1", "10.99.0.4", SINK)?;
    // OpenAFS's cell has it already.
    cellar.run("pts createuser admin -id 1 -localauth")?.ok()?;
    let all = [lines(&openafs)?, lines(&cellar)?];
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
    ensure!(report.is_empty(), "{report}\nCellar's log ends:\n{}", cellar.cellar_log());
    println!("interop: audit-openafs: {compared} lines are the same");
    Ok(())
}

/// What the commands leave in a cell's audit, normalised.
fn lines(cell: &Cell) -> Result<Vec<String>> {
    cell.open_volume(Server::OpenAfs, "open.1")?;
    std::thread::sleep(Duration::from_secs(1));
    let before = read(cell)?;
    let (scratch, suites) = (cell.scratch()?, own_file("suites"));
    for command in COMMANDS {
        let command = command
            .replace("$ADDR", cell.address)
            .replace("CELLAR", &cellar_program()?.display().to_string())
            .replace("$SCRATCH", &scratch.display().to_string())
            .replace("SUITES", &suites.display().to_string());
        cell.run(&command)?;
    }
    // The last line is in the file some milliseconds after its call has ended.
    std::thread::sleep(Duration::from_secs(1));
    let after = read(cell)?;
    let news = after.iter().zip(&before).map(|(after, before)| {
        after.strip_prefix(&before[..]).context("a server started a new file of its audit")
    });
    let text = news.collect::<Result<Vec<&str>>>()?.join("\n");
    normalised(&text, cell.address)
}

/// The files of the audit, as they are now.
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

/// Without times, threads and addresses, with transactions' numbers and the id of who holds the cell's key taken
/// out: each server has its own.
fn normalised(text: &str, address: &str) -> Result<Vec<String>> {
    let transaction = Regex::new(
        "^(EVENT AFS_VS_(?:CrVol|DelVol|Clone|ReClone|TransCr|EndTrn|SetFlgs|GetFlgs|SetInfo|SetIdTy|SetDate|\
         GetStat|GetName|Dump|Restore|Forward) .*?HOST \\S+ LONG )[1-9][0-9]*",
    )?;
    let key = Regex::new("^(EVENT AFS_SRX_\\S+ CODE \\S+ NAME afs HOST \\S+ ID )-?[0-9]+")?;
    let lines = text.lines().filter_map(|line| Some(&line[line.find("EVENT ")?..]));
    let plain = |line: &str| {
        let line = transaction.replace(line, "${1}T");
        key.replace(&line, "${1}KEY").replace(address, "ADDR")
    };
    Ok(lines.map(plain).collect())
}

/// The lines about a service, and what is said beforehand of callers without a token. What OpenAFS's file
/// server itself asks the protection server is left out: Cellar's has the database in the same process. Files
/// are copied by several calls at a time, in any order.
fn of(lines: &[String], service: &str) -> Vec<String> {
    let of_file_server = ["AFS_PTS_GetCPS", "AFS_PTS_GetHCPS", "_Start ", "_Finish ", "STR afs ID 32766"];
    let is_of = |line: &&String| {
        line.starts_with(&format!("EVENT {service}"))
            || line.starts_with(&format!("EVENT AFS_Aud_Unauth CODE -1 STR {service}"))
    };
    let mut found = Vec::new();
    let mut is_asking = false;
    for line in lines.iter().filter(is_of) {
        // The call's own line stands behind those of the names that it asks for.
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
