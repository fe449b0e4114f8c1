//! Migration of a cell's databases and partitions: Cellar has the same contents as OpenAFS had.

pub(crate) mod content;
mod damaging;

use crate::Test;
use crate::tests::dumps::dumped;
use anyhow::{Context, Result, bail, ensure};
use interop::cell::{Cell, Output, Server};
use interop::means::Means;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test { name: "databases-taken-over", needs: &[Means::Netns, Means::Strace], run: taken_over },
        Test {
            name: "partition-taken-over",
            needs: &[Means::Netns, Means::Strace],
            run: partition_taken_over,
        },
    ]
}

/// More members than fit in an entry and its first continuation block.
const MEMBERS: u32 = 60;

/// Commands that must print the same in both cells.
const QUESTIONS: &[&str] = &[
    "pts listentries -users -groups -localauth",
    "pts membership many -localauth",
    "pts membership u7 -localauth",
    "pts membership outer -supergroups -localauth",
    "pts membership inner -supergroups -localauth",
    "pts examine u7 u7:own many system:administrators -localauth",
    "pts listowned u7 -localauth",
    "pts listmax -localauth",
    "vos listvldb -noresolve -localauth",
];

fn taken_over() -> Result<()> {
    let openafs = Cell::start(Server::OpenAfs, "afs1", "10.99.0.1")?;
    fill(&openafs)?;
    let before = answers(&openafs)?;
    let mut cellar = Cell::start(Server::Cellar, "cellar1", "10.99.0.4")?;
    let imports = ["prdb", "vldb"].map(|database| {
        let file = openafs.path().join(format!("var/db/{database}.DB0"));
        format!("cellar import {database} {}", file.display())
    });
    for sync in 1..=SYNCS_MAX {
        cellar.end_cellar("TERM")?;
        std::fs::remove_dir_all(cellar.path().join("var/db/cellar"))?;
        let mut killed = 0;
        for import in &imports {
            let (ran, was_killed) = run_until_sync(&cellar, import, sync)?;
            ensure!(was_killed || ran.status == 0, "{}", ran.text);
            killed += u32::from(was_killed);
            // Either nothing was imported, or everything.
            let again = cellar.run(import)?;
            let is_there = again.status != 0 && again.text.contains("already");
            ensure!(is_there || was_killed && again.status == 0, "a second time: {}", again.text);
        }
        cellar.start_cellar()?;
        for ((question, before), (_, after)) in before.iter().zip(answers(&cellar)?) {
            ensure!(*before == after, "{question}: OpenAFS said\n{before}\nCellar says\n{after}");
        }
        if killed == 0 {
            println!("interop: imports were killed at {} syncs", sync - 1);
            ensure!(sync > 2, "too few syncs");
            break;
        }
        ensure!(sync < SYNCS_MAX, "an import has no end");
    }
    // New ids continue after the imported ones.
    cellar.run("pts createuser after -localauth")?.ok()?;
    let id = cellar.run("pts examine after -localauth")?.ok()?;
    ensure!(id.contains(&format!("id: {}", 1000 + MEMBERS + 1)), "{id}");
    Ok(())
}

fn fill(cell: &Cell) -> Result<()> {
    let mut commands = vec![
        "pts creategroup many".to_owned(),
        "pts creategroup outer".to_owned(),
        "pts creategroup inner".to_owned(),
        "pts adduser inner outer".to_owned(),
        "pts creategroup gone".to_owned(),
    ];
    for number in 1..=MEMBERS {
        commands.push(format!("pts createuser u{number} -id {}", 1000 + number));
        commands.push(format!("pts adduser u{number} many"));
    }
    commands.extend([
        "pts creategroup u7:own -owner u7".to_owned(),
        "pts adduser u7 inner".to_owned(),
        "pts removeuser u9 many".to_owned(),
        "pts delete gone".to_owned(),
        "pts delete u8".to_owned(),
        "pts setfields u7 -access SOMar -groupquota 77".to_owned(),
        format!("vos create {} a first", cell.address),
        format!("vos create {} a second -maxquota 777", cell.address),
        format!("vos create {} a third", cell.address),
        format!("vos addsite {} a second", cell.address),
        "vos release second".to_owned(),
        "vos backup first".to_owned(),
        "vos remove -id third".to_owned(),
        "vos lock second".to_owned(),
    ]);
    for command in commands {
        cell.run(&format!("{command} -localauth"))?.ok().context(command)?;
    }
    Ok(())
}

fn answers(cell: &Cell) -> Result<Vec<(&'static str, String)>> {
    let ask = |question: &&'static str| Ok((*question, cell.run(question)?.ok().context(*question)?));
    QUESTIONS.iter().map(ask).collect()
}

/// A volume with everything that a volume can hold, its clones from before and after the last change, a new
/// volume, an offline one, and one to be damaged.
const VOLUMES: [&str; 6] = ["tree", "tree.readonly", "tree.backup", "new", "small.readonly", "victim"];

const SIZE: content::Size = content::Size { many: 3000, sparse_bytes: 20 << 20 };

fn partition_taken_over() -> Result<()> {
    let openafs = Cell::start(Server::OpenAfs, "afs1", "10.99.0.1")?;
    make_volumes(&openafs)?;
    let mut before = Vec::new();
    for volume in VOLUMES {
        before.push(dumped(&openafs, volume, volume)?);
    }
    let partition = openafs.path().join("vicepa");
    let mut cellar = Cell::start(Server::Cellar, "cellar1", "10.99.0.4")?;
    cellar.end_cellar("TERM")?;
    let import = |cell: &Cell, options: &str| {
        cell.run(&format!("cellar import vicep {} --to a {options}", partition.display()))
    };
    let used = import(&openafs, "--dry-run")?;
    ensure!(used.status != 0 && used.text.contains("in use by dafileserver"), "{}", used.text);
    let listed = openafs.run(&format!("vos listvol {} a -localauth", openafs.address))?.ok()?;
    openafs.run(&format!("bos shutdown {} -wait -localauth", openafs.address))?.ok()?;
    let numbers = damaging::numbers(&listed);
    damaging::each_is_named(&partition, &numbers, |options| import(&cellar, options))?;

    let data = file_of_length(&partition, content::VICTIM_BYTES)?;
    let whole = std::fs::read(&data)?;
    std::fs::File::options().write(true).open(&data)?.set_len(whole.len() as u64 / 2)?;
    let seen = files(&partition)?;
    interrupted(&cellar, &partition)?;
    for options in ["--dry-run", "", ""] {
        let result = import(&cellar, options)?;
        println!("interop: import vicep {options}\n{}", result.text);
        let reported = result.text.contains("(victim), /dir/victim: its length is");
        ensure!(result.status == 1 && reported, "{}", result.text);
        ensure!(result.text.contains("1 of 7 volumes cannot be imported"), "{}", result.text);
        if options.is_empty() {
            ensure!(!result.text.contains("would be"), "{}", result.text);
        }
    }
    ensure!(files(&partition)? == seen, "the import changed something in the partition");
    std::fs::write(&data, whole)?;
    let json: serde_json::Value = serde_json::from_str(&import(&cellar, "--json")?.ok()?)?;
    let outcomes = json.as_array().context("no list")?.iter();
    let mut outcomes: Vec<&str> = outcomes.filter_map(|volume| volume["outcome"].as_str()).collect();
    outcomes.sort_unstable();
    ensure!(
        outcomes
            == ["imported", "leftovers", "present", "present", "present", "present", "present", "present"],
        "{outcomes:?}"
    );

    cellar.start_cellar()?;
    let sync = format!("vos syncvldb {} -localauth", cellar.address);
    cellar.run(&sync)?.ok().context(sync)?;
    for (volume, before) in VOLUMES.iter().zip(before) {
        compare_dumps(&cellar, volume, &before)?;
    }
    Ok(())
}

/// More syncs than a thread makes during an import.
const SYNCS_MAX: usize = 100;

/// Repeats an import: strace kills it (SIGKILL) at the first sync of any of its threads, then at the second,
/// and so on, until one import completes. No kill may damage the store.
fn interrupted(cellar: &Cell, partition: &Path) -> Result<()> {
    // Syncs are counted for each thread.
    let import = format!("cellar import vicep {} --to a --jobs 1", partition.display());
    for sync in 1..=SYNCS_MAX {
        let (ran, was_killed) = run_until_sync(cellar, &import, sync)?;
        cellar.run("cellar store check --data")?.ok()?;
        if !was_killed {
            ensure!(ran.status == 1 && ran.text.contains("1 of 7 volumes cannot"), "{}", ran.text);
            let present = ran.text.matches("in the store already").count();
            println!("interop: the import was killed {} times; {present} volumes were there then", sync - 1);
            ensure!(sync > VOLUMES.len() && present > 0, "too few syncs: {}", ran.text);
            return Ok(());
        }
    }
    bail!("an import of {} volumes has no end", VOLUMES.len())
}

/// Runs a command, which strace kills (SIGKILL) at this sync of any of its threads; returns whether it did.
fn run_until_sync(cell: &Cell, command: &str, sync: usize) -> Result<(Output, bool)> {
    let trace = cell.scratch()?.join("trace");
    let inject = format!("-e trace=fsync,fdatasync -e inject=fsync,fdatasync:signal=SIGKILL:when={sync}");
    let ran = cell.run(&format!("strace -f -o {} {inject} {command}", trace.display()))?;
    Ok((ran, std::fs::read_to_string(&trace)?.contains("killed by SIGKILL")))
}

/// Checks that Cellar's dump equals OpenAFS's, including headers, numbers and times. OpenAFS's file count
/// includes the root directory only if the volume was restored; Cellar's never does. Clones that share
/// contents with their read-write volume have its next uniquifier, which is never assigned.
fn compare_dumps(cellar: &Cell, volume: &str, before: &Path) -> Result<()> {
    let after = dumped(cellar, volume, volume)?;
    let (before, after) = (before.display(), after.display());
    let command = format!("cellar dump diff --everything --json {before} {after}");
    let result = cellar.run(&command)?;
    // The number of differences follows the list.
    let mut values = serde_json::Deserializer::from_str(&result.text).into_iter::<serde_json::Value>();
    let found = values.next().with_context(|| result.text.clone())??;
    let is_meant = |difference: &serde_json::Value| match difference["what"].as_str() {
        Some("files") => difference["place"] == "volume header",
        // OpenAFS's servers leave it in the header; an import does not take it.
        Some("offline message") => difference["first"] == "A volume utility is running.",
        Some("next uniquifier") => volume.contains('.'),
        _ => false,
    };
    let other = found.as_array().context("no list")?.iter().find(|difference| !is_meant(difference));
    ensure!(other.is_none(), "{volume} is not what it was:\n{}", result.text);
    println!("interop: {volume} is what it was");
    Ok(())
}

fn make_volumes(cell: &Cell) -> Result<()> {
    let (address, scratch) = (cell.address, cell.scratch()?);
    let whole = scratch.join("whole");
    std::fs::write(&whole, content::dump(SIZE)?)?;
    let added = scratch.join("added");
    std::fs::write(&added, vec![b'+'; 3 << 20])?;
    for command in [
        format!("vos restore {address} a tree -file {} -localauth", whole.display()),
        format!("vos restore {address} a victim -file {} -localauth", whole.display()),
        format!("vos addsite {address} a tree -localauth"),
        "vos release tree -localauth".to_owned(),
        format!("cellar cp {} cell:tree/added", added.display()),
        "vos setfields tree -maxquota 4000000 -localauth".to_owned(),
        "vos backup tree -localauth".to_owned(),
        format!("vos create {address} a new -maxquota 777 -localauth"),
        format!("vos create {address} a small -localauth"),
        format!("vos addsite {address} a small -localauth"),
        "vos release small -localauth".to_owned(),
    ] {
        cell.run(&command)?.ok().context(command)?;
    }
    Ok(())
}

/// Returns a data file with this length. Two volumes have one; the result is that of `victim`.
fn file_of_length(partition: &Path, length: u64) -> Result<PathBuf> {
    let found = files(partition)?.into_iter().filter(|(_, (bytes, _))| *bytes == length);
    let mut found: Vec<PathBuf> = found.map(|(path, _)| path).collect();
    // The volume created last has the higher number, and its folder sorts last.
    found.sort();
    found.pop().context("no data file of the victim's length")
}

/// Returns all files with their lengths and modification times.
fn files(folder: &Path) -> Result<BTreeMap<PathBuf, (u64, SystemTime)>> {
    let mut out = BTreeMap::new();
    for entry in walkdir::WalkDir::new(folder) {
        let entry = entry?;
        let metadata = entry.metadata()?;
        if metadata.is_file() {
            out.insert(entry.into_path(), (metadata.len(), metadata.modified()?));
        }
    }
    Ok(out)
}
