//! Cells that earlier versions wrote (`golden/`, made by `tools/golden-cell`): each later version must open them,
//! find everything in them, and go on from there.

use crate::Test;
use crate::tests::{own_file, wait_for};
use anyhow::{Context, Result, ensure};
use interop::cell::cellar_program;
use interop::means::Means;
use serde_json::Value;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);

pub(crate) fn tests() -> Vec<Test> {
    vec![Test { name: "upgrade-from-each-version", needs: &[Means::Netns], run: from_each_version }]
}

fn from_each_version() -> Result<()> {
    let mut versions = 0;
    for entry in fs::read_dir(own_file("golden"))? {
        let path = entry?.path();
        upgrade(&path).with_context(|| path.display().to_string())?;
        println!("{} works", path.file_name().unwrap_or_default().display());
        versions += 1;
    }
    ensure!(versions > 0, "there is no cell of an earlier version");
    Ok(())
}

/// A cell of an earlier version, served by the program under test.
struct Served {
    folder: PathBuf,
    server: Child,
}

impl Served {
    fn start(folder: &Path) -> Result<Served> {
        let log = File::options().create(true).append(true).open(folder.join("log"))?;
        let server = Command::new(cellar_program()?)
            .args(["serve", "--config"])
            .arg(folder.join("cell/cellar.toml"))
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()?;
        let mut served = Served { folder: folder.to_owned(), server };
        wait_for(LIMIT, || {
            if let Some(status) = served.server.try_wait()? {
                ensure!(false, "it ended with {status}:\n{}", fs::read_to_string(folder.join("log"))?);
            }
            Ok(served.cellar("volume list").is_ok())
        })?;
        Ok(served)
    }

    /// Runs a command, given as words separated by blanks, and returns what it prints.
    fn cellar(&self, words: &str) -> Result<String> {
        cellar(&self.folder, words)
    }

    /// Compares the output of a command with that of the earlier version. Values may have further fields.
    fn compare(&self, words: &str, expected: &str) -> Result<()> {
        let expected = fs::read_to_string(self.folder.join("expected").join(expected))?;
        let found: Value = serde_json::from_str(&self.cellar(&format!("{words} --json"))?)?;
        let lost = lost(&serde_json::from_str(&expected)?, &found);
        ensure!(lost.is_empty(), "cellar {words} differs in {lost:?}:\n{found}");
        Ok(())
    }

    fn end(mut self) -> Result<()> {
        let kill = Command::new("kill").arg(self.server.id().to_string()).status()?;
        ensure!(kill.success(), "kill: {kill}");
        let status = self.server.wait()?;
        ensure!(status.success(), "the server ended with {status}");
        Ok(())
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

fn cellar(folder: &Path, words: &str) -> Result<String> {
    let output = Command::new(cellar_program()?)
        .args(words.split_whitespace())
        .env("CELLAR_CONFIG", folder.join("cell/cellar.toml"))
        .current_dir(folder)
        .stdin(Stdio::null())
        .output()?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "cellar {words}: {}\n{errors}", output.status);
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Returns the places of values in `expected` that `found` lacks or has otherwise. Lists of objects with names
/// may be in another order.
fn lost(expected: &Value, found: &Value) -> Vec<String> {
    let inside = |place: &str, found: Vec<String>| -> Vec<String> {
        found.into_iter().map(|below| format!("{place}.{below}")).collect()
    };
    match (expected, found) {
        (Value::Object(expected), Value::Object(found)) => {
            expected.iter().flat_map(|(key, value)| inside(key, lost(value, &found[key]))).collect()
        }
        (Value::Array(expected), Value::Array(found)) if expected.len() == found.len() => {
            let expected = expected.iter().enumerate();
            let same = |value: &&Value, index: usize| found.get(index).is_some_and(|found| found == *value);
            expected
                .filter(|(index, value)| !same(value, *index))
                .flat_map(|(index, value)| {
                    let named = value.get("name").and_then(|name| found.iter().find(|f| f["name"] == *name));
                    inside(&index.to_string(), lost(value, named.unwrap_or(&found[index])))
                })
                .collect()
        }
        _ if expected == found => Vec::new(),
        _ => vec![format!(" {expected} is now {found}")],
    }
}

fn upgrade(archive: &Path) -> Result<()> {
    let scratch = tempfile::tempdir()?;
    let folder = scratch.path();
    let unpacked = Command::new("tar").arg("-xzf").arg(archive).arg("-C").arg(folder).status()?;
    ensure!(unpacked.success(), "tar: {unpacked}");
    // Once with the formats of the earlier version, once with what this one has made of them.
    for round in 0..2 {
        let served = Served::start(folder)?;
        check_contents(&served, round).with_context(|| format!("round {round}"))?;
        served.end()?;
        let check = cellar(folder, "store check --data")?;
        println!("{}", check.trim());
    }
    Ok(())
}

fn check_contents(served: &Served, round: u32) -> Result<()> {
    for place in ["user.admin/tree", "work/one", "work/two"] {
        let copy = format!("copy-{round}-{}", place.replace('/', "-"));
        served.cellar(&format!("cp cell:{place}/ {copy}/"))?;
        let expected = served.folder.join("expected/tree");
        let compared = ["-r", "--no-dereference"];
        let difference =
            Command::new("diff").args(compared).arg(expected).arg(served.folder.join(&copy)).output()?;
        ensure!(difference.status.success(), "{place}: {}", String::from_utf8_lossy(&difference.stdout));
    }
    served.compare("user list", "users.json")?;
    served.compare("group examine admin:friends", "group.json")?;
    served.compare("volume snapshot list user.admin", "snapshots.json")?;
    if round == 0 {
        served.compare("volume list", "volumes.json")?;
        fs::write(served.folder.join("new"), "of the later version")?;
        served.cellar("cp new cell:work/new")?;
        served.cellar("volume snapshot create work after")?;
        served.cellar("volume snapshot rollback user.admin before")?;
        served.cellar("cp cell:user.admin/tree/numbers old-numbers")?;
        let numbers = fs::read_to_string(served.folder.join("old-numbers"))?;
        ensure!(
            numbers.starts_with("1\n2\n") && numbers.ends_with("\n60000\n"),
            "not the snapshot's contents"
        );
        // Back to what is expected of the second round.
        served.cellar("cp expected/tree/numbers cell:user.admin/tree/numbers")?;
        served.cellar("user create ben")?;
        served.cellar("user remove ben")?;
    } else {
        served.cellar("cp cell:work/new new-again")?;
        ensure!(fs::read_to_string(served.folder.join("new-again"))? == "of the later version", "lost");
    }
    Ok(())
}
