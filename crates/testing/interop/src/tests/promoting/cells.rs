//! Three cells of three Cellar servers each. Two of them receive the volume; the first of these sends it to
//! the second.

use crate::tests::dumps::dumped_from;
use crate::tests::mixed::copy;
use crate::tests::trees::compare;
use crate::tests::{calls, figure, own_file, wait_for};
use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use interop::cell::{Beside, Cell, Server};
use promote::{Digest, PublicKey, SignedManifest, digest};
use serde_json::Value;
use std::convert::Infallible;
use std::path::PathBuf;
use std::time::{Duration, Instant};

const VOLUME: &str = "software";
/// The servers of a cell; the first has its databases.
type Servers = [Cell; 3];
/// The key shared by two cells.
const COMMON: &[&str] = &["-k", "5c1e0d2f93a84b7660d1f2e3948576a7b8c9daebfc0d1e2f3041526374859607"];
/// Index of the server of a cell that receives a version first and sends it to the others; not that of the
/// databases.
const FIRST: usize = 1;
/// Size of a file that takes a while to send.
const BIG_FILE_MIB: u32 = 48;
/// More than a change of a few files needs, and much less than the whole volume.
const CHANGE_BYTES_MAX: u64 = 4 << 20;
/// Procedures by which a server receives a volume.
const RECEIVING: &[&str] = &["Restore", "TakeVolume"];
/// Maximum number of attempts to interrupt a transfer before it is complete.
const AIMS_MAX: u32 = 5;
/// Time limit for a promotion to start sending.
const PATIENCE: Duration = Duration::from_secs(120);

struct World {
    home: Servers,
    /// Shares a key with the source, so that servers of both cells can talk to each other.
    middle: Servers,
    last: Servers,
    cells: PathBuf,
    public: PublicKey,
    /// Number of versions so far.
    version: u32,
}

/// Promotes a volume, promotes a change, kills servers during both transfers, and rolls back.
pub(super) fn through() -> Result<()> {
    let mut world = World::start()?;
    world.home[0].open_volume(Server::Cellar, VOLUME)?;
    world.change(&format!(
        "cp -r {} NEW; head -c {BIG_FILE_MIB}M /dev/urandom >NEW/big",
        own_file("src").display()
    ))?;
    // A relayed dump of the changes since a version also includes changes up to two seconds before it.
    std::thread::sleep(Duration::from_secs(3));
    let before = world.sent()?;
    world.promote_all()?;
    let sent: Vec<u64> = world.sent()?.iter().zip(before).map(|(now, before)| now - before).collect();
    println!("interop: dumps that servers of each cell sent: {sent:?}");
    // The source sends once; the middle cell sends to the next cell and to two sites; the last cell sends to
    // two sites. Failed transfers are repeated.
    ensure!(sent[0] == 1 && sent[1] >= 3 && sent[2] >= 2, "dumps that servers of each cell sent: {sent:?}");
    let whole = world.received()?;
    world.everywhere(1)?;
    ensure!(whole.iter().all(|&bytes| bytes > u64::from(BIG_FILE_MIB) << 20), "received: {whole:?}");

    world.change(&format!("cp -r {} NEW", own_file("guest").display()))?;
    let before = world.received()?;
    world.promote_all()?;
    let changes: Vec<u64> = world.received()?.iter().zip(before).map(|(now, before)| now - before).collect();
    println!("interop: received by each copy: {whole:?} bytes, and then {changes:?}");
    ensure!(changes.iter().all(|&bytes| bytes < CHANGE_BYTES_MAX), "received of a change: {changes:?}");
    world.everywhere(2)?;

    world.kill("middle.example", &[FIRST], |world| calls(&world.home[0], &["Forward"]))?;
    world.kill("last.example", &[FIRST, 0, 2], |world| calls(&world.last[FIRST], RECEIVING))?;

    let former = world.version - 1;
    for cell in ["middle.example", "last.example"] {
        world.promote(&["rollback", VOLUME, "--in", cell])?;
    }
    world.everywhere(former)
}

/// Servers of the two cells that share a key.
const HOME: [&str; 3] = ["10.99.0.11", "10.99.0.12", "10.99.0.13"];
const MIDDLE: [&str; 3] = ["10.99.0.21", "10.99.0.22", "10.99.0.23"];

impl World {
    fn start() -> Result<World> {
        let home = servers("home.example", ["home1", "home2", "home3"], HOME, MIDDLE, COMMON)?;
        let middle = servers("middle.example", ["mid1", "mid2", "mid3"], MIDDLE, HOME, COMMON)?;
        let last = servers(
            "last.example",
            ["last1", "last2", "last3"],
            ["10.99.0.31", "10.99.0.32", "10.99.0.33"],
            [],
            &[],
        )?;
        let (key, cells) = (home[0].path().join("release.key"), home[0].path().join("promote.toml"));
        let new = format!("cellar promote key new {}", key.display());
        let public = home[0].run(&new)?.ok().context(new)?;
        let section = |name: &str, servers: &Servers, has_common: bool| {
            let [databases, first, other] = [0, FIRST, 2].map(|server| servers[server].address);
            format!(
                "[cell.\"{name}\"]\ndatabase_servers = [\"{databases}\"]\nkeyfile = \"{}\"\ncommon_key = {has_common}\n\
                 sites = [\"{first} a\", \"{other} a\", \"{databases} a\"]\n",
                servers[0].path().join("etc/server/KeyFileExt").display()
            )
        };
        let text = format!(
            "source = \"home.example\"\nsigning_key = \"release.key\"\nstate = \"state\"\nfanout = 1\n\
             [trusted]\nrelease = \"{}\"\n{}{}{}",
            public.trim(),
            section("home.example", &home, true),
            section("middle.example", &middle, true),
            section("last.example", &last, false)
        );
        std::fs::write(&cells, text)?;
        let public = public.trim().parse()?;
        Ok(World { home, middle, last, cells, public, version: 0 })
    }

    /// Returns the folder with the contents of a version.
    fn tree(&self, version: u32) -> Result<PathBuf> {
        Ok(self.home[0].scratch()?.join(format!("version{version}")))
    }

    /// Adds a folder to the volume, which `script` fills; NEW stands for its path.
    fn change(&mut self, script: &str) -> Result<()> {
        let (old, tree) = (self.tree(self.version)?, self.tree(self.version + 1)?);
        self.version += 1;
        let folder = format!("new{}", self.version);
        let script = script.replace("NEW", &tree.join(&folder).display().to_string());
        let (old, tree) = (old.display(), tree.display());
        let script = format!("set -e; mkdir -p {old}; cp -rl {old} {tree}; mkdir {tree}/{folder}; {script}");
        self.home[0].shell(&script)?.ok().context(script)?;
        copy(&self.home[0], &format!("{tree}/{folder}/ cell:{VOLUME}/{folder}/"))
    }

    fn begin(&self, words: &[&str]) -> Result<Beside> {
        let common = ["--json", "--cells", self.cells.to_str().context("path")?];
        self.home[0].start_beside(&[&["promote"], words, &common].concat())
    }

    fn begin_all(&self) -> Result<Beside> {
        self.begin(&[VOLUME, "--to", "middle.example", "last.example"])
    }

    /// Runs a promotion, and returns the JSON that it prints at its end.
    fn promote(&self, words: &[&str]) -> Result<Value> {
        let text = self.begin(words)?.wait()?.ok().with_context(|| words.join(" "))?;
        // Progress messages may precede it.
        let begin = text.find(['[', '{']).with_context(|| text.clone())?;
        serde_json::from_str(&text[begin..]).with_context(|| text.clone())
    }

    fn promote_all(&self) -> Result<()> {
        self.promote(&[VOLUME, "--to", "middle.example", "last.example"]).map(drop)
    }

    /// Returns the promotion's record in its journal.
    fn journal(&self) -> Result<Value> {
        let path = self.home[0].path().join(format!("state/home.example/{VOLUME}.json"));
        Ok(serde_json::from_slice::<Value>(&std::fs::read(path)?)?["record"].take())
    }

    /// Returns the number of dumps sent by the servers of each cell.
    fn sent(&self) -> Result<[u64; 3]> {
        let of = |servers: &Servers| {
            servers
                .iter()
                .map(|server| calls(server, &["Forward", "ForwardMultiple", "Dump"]))
                .sum::<Result<u64>>()
        };
        Ok([of(&self.home)?, of(&self.middle)?, of(&self.last)?])
    }

    /// Returns the number of bytes of dumps that each server of the two cells received.
    fn received(&self) -> Result<Vec<u64>> {
        self.middle
            .iter()
            .chain(&self.last)
            .map(|server| figure(server, RECEIVING, "received_bytes"))
            .collect()
    }

    /// Promotes a large change and kills these servers of the middle cell during the transfer to `to`. A
    /// transfer was interrupted if `transfers` increases by more than one.
    fn kill(&mut self, to: &str, victims: &[usize], transfers: fn(&World) -> Result<u64>) -> Result<()> {
        for _ in 0..AIMS_MAX {
            self.change(&format!("head -c {BIG_FILE_MIB}M /dev/urandom >NEW/big"))?;
            let before = transfers(self)?;
            let mut promotion = self.begin_all()?;
            let deadline = Instant::now() + PATIENCE;
            loop {
                let cell = &self.journal()?["cells"][to];
                if cell["stage"] == "sending" && !cell["from"].is_null() || promotion.has_ended()? {
                    break;
                }
                ensure!(Instant::now() < deadline, "it never sends to {to}");
                std::thread::sleep(Duration::from_millis(5));
            }
            for &victim in victims {
                self.middle[victim].end_cellar("KILL")?;
            }
            let mut order = victims.to_vec();
            order.sort_unstable();
            for victim in order {
                self.middle[victim].start_cellar()?;
            }
            let ended = promotion.wait()?;
            if ended.status != 0 {
                println!("interop: the cell was away too long:\n{}", ended.text);
                self.promote(&["resume", VOLUME])?;
            }
            self.everywhere(self.version)?;
            let count = transfers(self)? - before;
            println!(
                "interop: {victims:?} of middle.example killed while {to} was sent to: {count} transfers"
            );
            if count > 1 {
                return Ok(());
            }
        }
        bail!("no transfer to {to} was cut off")
    }

    /// Checks that both cells use the version: its signature is valid, each of the six copies matches the
    /// manifest, clients can read the tree, and nothing is left over.
    fn everywhere(&self, version: u32) -> Result<()> {
        let number = version.to_string();
        let manifest: SignedManifest =
            serde_json::from_value(self.promote(&["manifest", VOLUME, "--version", &number])?)?;
        manifest.is_of(VOLUME, "home.example", version)?;
        let rows = self.promote(&["status", VOLUME])?;
        let rows = rows.as_array().context("no rows")?;
        ensure!(rows.len() == 2, "{rows:?}");
        for (name, servers) in [("middle.example", &self.middle), ("last.example", &self.last)] {
            let row = rows.iter().find(|row| row["cell"] == name).context(name)?;
            ensure!(row["state"] == "current" && row["in_use"] == version, "{row}");
            manifest.verify(name, [("release", &self.public)])?;
            for server in servers {
                let dump = dumped_from(&servers[0], &format!("{VOLUME}.readonly"), server.address)?;
                let found = contents(std::fs::read(&dump)?)?;
                ensure!(
                    found == manifest.manifest.contents,
                    "{}: {found:?} and not {manifest:?}",
                    server.address
                );
            }
            let fetched = servers[0].scratch()?.join("fetched");
            copy(&servers[0], &format!("cell:{VOLUME}.readonly/ {}", fetched.display()))?;
            compare(&self.tree(version)?, &fetched)?;
            std::fs::remove_dir_all(fetched)?;
            let kept = row["kept"].as_array().context("kept")?.len();
            for (number, server) in servers.iter().enumerate() {
                let wanted = if number == FIRST { 2 + kept } else { 1 };
                nothing_is_left(&servers[0], server, wanted)?;
            }
        }
        let journal = self.journal()?;
        let kept = journal["holds"].as_object().context("holds")?.len();
        for (number, server) in self.home.iter().enumerate() {
            nothing_is_left(&self.home[0], server, if number == 0 { 1 + kept } else { 0 })?;
        }
        Ok(())
    }
}

fn servers(
    cell: &'static str,
    names: [&'static str; 3],
    addresses: [&'static str; 3],
    forwards: impl IntoIterator<Item = &'static str>,
    options: &[&str],
) -> Result<Servers> {
    let forwards: Vec<String> = forwards.into_iter().map(|address| format!("\"{address}\"")).collect();
    let script = format!(
        "printf '[security]\\nforward_destinations = [%s]\\n' '{}' > /etc/openafs/server/cellar-security.toml",
        forwards.join(", ")
    );
    let options = [&["-c", cell], options].concat();
    let host = Cell::start_on(names[0], addresses[0], &options, &script)?;
    let second = Cell::start_cellar_like(&host, names[1], addresses[1])?;
    let third = Cell::start_cellar_like(&host, names[2], addresses[2])?;
    Ok([host, second, third])
}

/// Checks that no entry of the cell is locked, that no transaction is open on the server, and that it has
/// this many volumes.
fn nothing_is_left(host: &Cell, server: &Cell, volumes: usize) -> Result<()> {
    let locked = host.run("vos listvldb -locked -localauth")?.ok()?;
    ensure!(locked.contains("Total entries: 0"), "{locked}");
    wait_for(Duration::from_secs(30), || {
        let status = host.run(&format!("vos status {} -localauth", server.address))?.ok()?;
        Ok(status.contains("No active transactions"))
    })
    .with_context(|| format!("transactions on {}", server.address))?;
    let listed = host.run(&format!("vos listvol {} -localauth", server.address))?.ok()?;
    let count = listed.lines().filter(|line| line.starts_with(VOLUME)).count();
    ensure!(count == volumes && !listed.contains("clone-temp"), "{volumes} volumes of {VOLUME}:\n{listed}");
    Ok(())
}

/// Returns the digest of a full dump.
fn contents(dump: Vec<u8>) -> Result<Digest> {
    let mut left = Bytes::from(dump);
    Ok(digest::of_dump(|most| Ok::<_, Infallible>(left.split_to(most.min(left.len()))))?)
}
