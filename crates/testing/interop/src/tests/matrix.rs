//! Every volume operation in every direction between OpenAFS's and Cellar's servers, with OpenAFS's `vos` and
//! with `cellar volume`. After each, a client without a cache reads everything, and the volume is dumped;
//! both must equal the source.
//!
//! The client is `afsd.fuse`. It does not show access lists; the dumps do.

pub(crate) mod seen;
mod table;

use crate::Test;
use crate::tests::import::content::{Size, dump, nodes};
use anyhow::{Context, Result, ensure};
use interop::cell::{Cell, Server};
use interop::means::Means;
use seen::{Seen, compare_lines, dump_of, expected, through_client};
use std::path::PathBuf;
use table::Table;

pub(crate) fn tests() -> Vec<Test> {
    vec![Test { name: "volume-matrix", needs: &[Means::Netns, Means::Fuse], run: matrix }]
}

/// OpenAFS's host, which has the databases of all servers.
const OPENAFS: (&str, &str) = ("afs6", "10.99.0.71");
/// Cellar's file servers in the cell.
const CELLAR: [(&str, &str); 2] = [("cellar6", "10.99.0.72"), ("cellar7", "10.99.0.73")];
/// An unused address, which Cellar's CellServDB has as its first database server.
const NOBODY: &str = "10.99.0.74";

const SIZE: Size = Size { many: 300, sparse_bytes: 1 << 20 };
/// Texts written by the changes.
const FIRST_TEXT: &str = "written before the second release\n";
const SECOND_TEXT: &str = "written before the third\n";

/// Message for a bug of OpenAFS 1.8.9's volume server: it converts the read-only volume, and then returns the
/// length of a path as an error (`namei_ConvertROtoRWvolume`), so that `vos` leaves the entry unchanged.
const LENGTH_AS_CODE: &str = "to RW volume failed with code";

/// Commands by which a client changes the volume, as one line each; their output is ignored.
const CHANGE: [&str; 2] = [
    "printf 'written before the second release\\n' >new && mkdir made && yes cellar | head -c 300000 >made/blob \
     && ln new hard && ln -s made/blob soft && mv sparse moved && rm link && chmod 640 new",
    "printf 'written before the third\\n' >new && truncate -s 100000 moved && rm made/blob && rmdir made && \
     mkdir again && mv soft again/soft && printf '%0500d' 0 >again/file",
];

fn matrix() -> Result<()> {
    let openafs = Cell::start(Server::OpenAfs, OPENAFS.0, OPENAFS.1)?;
    let join = |(name, address)| Cell::start_cellar_joining(&openafs, name, address, NOBODY);
    let cellars = [join(CELLAR[0])?, join(CELLAR[1])?];
    let golden = openafs.scratch()?.join("golden");
    std::fs::write(&golden, dump(SIZE)?)?;
    let directions = [
        ("OpenAFS to Cellar", "oc", &openafs, &cellars[0]),
        ("Cellar to OpenAFS", "co", &cellars[0], &openafs),
        ("Cellar to Cellar", "cc", &cellars[0], &cellars[1]),
    ];
    let clients = [&openafs, &cellars[0], &cellars[1]];
    let mut table = Table::default();
    let outcomes = std::thread::scope(|scope| {
        let running = directions.iter().zip(clients).map(|(&(title, short, from, to), client)| {
            let way = Way { title, short, from, to, host: &openafs, client, golden: &golden };
            scope.spawn(move || way.all())
        });
        let running: Vec<_> = running.collect();
        running.into_iter().map(std::thread::ScopedJoinHandle::join).collect::<Vec<_>>()
    });
    for ((title, ..), outcome) in directions.iter().zip(outcomes) {
        let rows = outcome.map_err(|_| anyhow::anyhow!("{title}: panicked"))?;
        let logs = || cellars.iter().map(Cell::cellar_log).collect::<Vec<_>>().join("\n--\n");
        table.add(title, rows.with_context(|| format!("{title}; Cellar's logs end:\n{}", logs()))?);
    }
    print!("{table}");
    table.is_whole(directions.len())?;
    nothing_is_left(&openafs, &clients)
}

/// Checks that no entry is locked, and that no volume needs repair.
fn nothing_is_left(openafs: &Cell, servers: &[&Cell]) -> Result<()> {
    let locked = openafs.run("vos listvldb -locked -localauth")?.ok()?;
    ensure!(locked.contains("Total entries: 0"), "{locked}");
    for server in servers {
        let listed = openafs.run(&format!("vos listvol {} -localauth", server.address))?.ok()?;
        ensure!(listed.contains("Total volumes offLine 0 ; Total busy 0"), "{listed}");
    }
    Ok(())
}

/// One direction. Its client runs in the namespace of one of the servers.
struct Way<'a> {
    title: &'static str,
    short: &'static str,
    from: &'a Cell,
    to: &'a Cell,
    /// The host of the databases.
    host: &'a Cell,
    client: &'a Cell,
    golden: &'a PathBuf,
}

/// Operations, and what was compared after each.
type Rows = Vec<(&'static str, String)>;

impl Way<'_> {
    fn all(&self) -> Result<Rows> {
        let mut rows = self.with_vos().context("vos")?;
        rows.extend(self.with_cellar().context("cellar volume")?);
        Ok(rows)
    }

    /// Runs a command on the databases' host, in which `@FROM` and `@TO` stand for the servers.
    fn run(&self, command: &str) -> Result<String> {
        let end = if command.starts_with("vos ") { " -localauth" } else { "" };
        let command = command.replace("@FROM", self.from.address).replace("@TO", self.to.address);
        self.host.shell(&format!("{command}{end}"))?.ok().context(command)
    }

    fn file(&self, name: &str) -> Result<String> {
        Ok(self.host.scratch()?.join(name).display().to_string())
    }

    fn look(&self, volume: &str, server: &Cell) -> Result<Seen> {
        Seen::look(self.client, self.host, volume, server.address)
            .with_context(|| format!("{volume} on {}", server.address))
    }

    /// Compares the volume on the target with the expected contents, and returns a row of the table.
    fn same(&self, what: &'static str, volume: &str, wanted: &Seen) -> Result<(&'static str, String)> {
        self.same_on(self.to, what, volume, wanted)
    }

    fn same_on(
        &self,
        server: &Cell,
        what: &'static str,
        volume: &str,
        wanted: &Seen,
    ) -> Result<(&'static str, String)> {
        let found = self.look(volume, server)?;
        found.compare(wanted).with_context(|| format!("{what}: {volume} on {}", server.address))?;
        println!("interop: {}: {what}: same", self.title);
        Ok((what, found.extent()))
    }

    /// A row, if the volume on the target, whose history the restored contents do not continue, holds what it should.
    /// Cellar's servers continue data versions then.
    fn replaced(&self, what: &'static str, volume: &str, wanted: &Seen) -> Result<(&'static str, String)> {
        if self.to.name == OPENAFS.0 {
            return self.same(what, volume, wanted);
        }
        let found = self.look(volume, self.to)?;
        found.compare_contents(wanted).with_context(|| format!("{what}: {volume} on {}", self.to.address))?;
        println!("interop: {}: {what}: same contents", self.title);
        Ok((what, found.extent()))
    }

    /// Changes the read-write volume through the client; returns the new contents, which must differ from the
    /// old ones.
    fn change(&self, volume: &str, number: usize, server: &Cell, before: &Seen) -> Result<Seen> {
        through_client(self.client, &format!("test.example:{volume}"), CHANGE[number])?;
        let after = self.look(volume, server)?;
        ensure!(after.compare(before).is_err(), "the client has changed {volume}, but nothing is different");
        let text = [FIRST_TEXT, SECOND_TEXT].get(number);
        ensure!(text.is_none_or(|text| after.holds("new", text.as_bytes())), "`new` has other contents");
        Ok(after)
    }

    /// Compares a volume restored on the source with the contents of the dump.
    fn made(&self, volume: &str) -> Result<Seen> {
        let made = self.look(volume, self.from)?;
        compare_lines(&made.listing, &expected(&nodes(SIZE)?)?).context("not what the dump was made of")?;
        Ok(made)
    }

    fn id(&self, volume: &str) -> Result<String> {
        let entry = self.run(&format!("vos examine {volume} -noresolve"))?;
        let id = entry.split_whitespace().nth(1).with_context(|| entry.clone())?;
        Ok(id.to_owned())
    }

    fn is_on(&self, server: &Cell, id: &str) -> Result<bool> {
        let listed = self.run(&format!("vos listvol {} -fast -noresolve", server.address))?;
        Ok(listed.split_whitespace().any(|word| word == id))
    }

    fn with_vos(&self) -> Result<Rows> {
        let volume = &format!("vos.{}", self.short);
        let mut rows = self.copied_with_vos(volume)?;
        rows.push(self.converted(&format!("{volume}.x"))?);
        rows.extend(self.moved_with_vos(&format!("{volume}.m"))?);
        Ok(rows)
    }

    /// Runs the operations that leave the volume on the source.
    fn copied_with_vos(&self, volume: &str) -> Result<Rows> {
        let golden = self.golden.display();
        self.run(&format!("vos restore @FROM a {volume} -file {golden}"))?;
        let first = self.made(volume)?;
        let (full, part) = (self.file(&format!("{volume}.full"))?, self.file(&format!("{volume}.part"))?);
        self.run(&format!("vos copy {volume} @FROM a {volume}.copy @TO a"))?;
        let mut rows = vec![self.same("vos copy", &format!("{volume}.copy"), &first)?];
        self.run(&format!("vos addsite @TO a {volume}"))?;
        self.run(&format!("vos release {volume}"))?;
        let copy = &format!("{volume}.readonly");
        rows.push(self.same("vos release, first", copy, &first)?);
        let restored = &format!("{volume}.r");
        self.run(&format!("vos dump {volume} -file {full}"))?;
        self.run(&format!("vos restore @TO a {restored} -file {full}"))?;
        rows.push(self.same("vos dump and restore, full", restored, &first)?);
        rows.push(self.shadow("vos shadow, new", volume, "", &first)?);

        let since = self.run("sleep 1; date '+%m/%d/%Y %H:%M:%S'; sleep 1")?;
        let second = self.change(volume, 0, self.from, &first)?;
        self.same("the read-only volume, before its release", copy, &first)?;
        self.run(&format!("vos release {volume}"))?;
        rows.push(self.same("vos release, changed", copy, &second)?);
        self.run(&format!("vos release {volume}"))?;
        rows.push(self.same("vos release, unchanged", copy, &second)?);
        self.run(&format!("vos dump {volume} -time '{}' -file {part}", since.trim()))?;
        let [full, some] = [&full, &part].map(std::fs::metadata);
        ensure!(some?.len() < full?.len(), "the incremental dump is no smaller than the full one");
        self.run(&format!("vos restore @TO a {restored} -file {part} -overwrite incremental"))?;
        rows.push(self.same("vos dump and restore, incremental", restored, &second)?);
        rows.push(self.shadow("vos shadow, incremental", volume, "-incremental", &second)?);

        let third = self.change(volume, 1, self.from, &second)?;
        self.run(&format!("vos release {volume} -force"))?;
        rows.push(self.same("vos release -force", copy, &third)?);
        Ok(rows)
    }

    /// Makes a shadow, which has no entry: during the comparison the volume's entry has the shadow's site.
    fn shadow(
        &self,
        what: &'static str,
        volume: &str,
        options: &str,
        wanted: &Seen,
    ) -> Result<(&'static str, String)> {
        self.run(&format!("vos shadow {volume} @FROM a @TO a {options}"))?;
        self.run(&format!("vos changeloc @TO a {volume}"))?;
        let row = self.same(what, volume, wanted)?;
        self.run(&format!("vos changeloc @FROM a {volume}"))?;
        Ok(row)
    }

    /// Removes the read-write volume, converts a read-only one to replace it, and writes to it.
    fn converted(&self, volume: &str) -> Result<(&'static str, String)> {
        self.run(&format!("vos restore @FROM a {volume} -file {}", self.golden.display()))?;
        let first = self.made(volume)?;
        let id = self.id(volume)?;
        self.run(&format!("vos addsite @TO a {volume}"))?;
        self.run(&format!("vos release {volume}"))?;
        self.run(&format!("vos zap @FROM a {id}"))?;
        match self.run(&format!("vos convertROtoRW @TO a {volume} -force")) {
            Err(error) if self.to.name == OPENAFS.0 && format!("{error:#}").contains(LENGTH_AS_CODE) => {
                self.run(&format!("vos remsite @TO a {volume}"))?;
                self.run(&format!("vos changeloc @TO a {volume}"))?;
            }
            outcome => _ = outcome?,
        }
        let row = self.same("vos convertROtoRW", volume, &first)?;
        self.change(volume, 0, self.to, &first)?;
        Ok(row)
    }

    /// Moves a volume, and makes clones before and after.
    fn moved_with_vos(&self, volume: &str) -> Result<Rows> {
        self.run(&format!("vos restore @FROM a {volume} -file {}", self.golden.display()))?;
        let first = self.made(volume)?;
        let (id, backup) = (self.id(volume)?, &format!("{volume}.backup"));
        self.run(&format!("vos backup {volume}"))?;
        let second = self.change(volume, 0, self.from, &first)?;
        let mut rows = vec![self.same_on(self.from, "vos backup, before the move", backup, &first)?];
        self.run(&format!("vos move {volume} @FROM a @TO a"))?;
        rows.push(self.same("vos move", volume, &second)?);
        ensure!(!self.is_on(self.from, &id)?, "the moved volume is still on {}", self.from.address);
        self.run(&format!("vos backup {volume}"))?;
        self.run(&format!("vos clone {volume} -readwrite -toname {volume}.c"))?;
        self.change(volume, 1, self.to, &second)?;
        rows.push(self.same("vos backup, after the move", backup, &second)?);
        rows.push(self.clone_row("vos clone, after the move", &format!("{volume}.c"), &second)?);
        Ok(rows)
    }

    /// Compares a clone by its dump only, since it has no entry by which a client could find it.
    fn clone_row(&self, what: &'static str, clone: &str, wanted: &Seen) -> Result<(&'static str, String)> {
        let listed = self.run("vos listvol @TO a -noresolve")?;
        let line = listed.lines().find(|line| line.split_whitespace().next() == Some(clone));
        let id = line.and_then(|line| line.split_whitespace().nth(1)).with_context(|| listed.clone())?;
        let (vnodes, _) = dump_of(self.host, id, self.to.address)?;
        ensure!(vnodes == wanted.vnodes, "{what}: {clone} on {} is something else", self.to.address);
        println!("interop: {}: {what}: same", self.title);
        Ok((what, format!("dump of {} KiB", vnodes.len() >> 10)))
    }

    fn with_cellar(&self) -> Result<Rows> {
        let volume = &format!("ours.{}", self.short);
        let golden = self.golden.display();
        self.run(&format!("cellar volume restore {golden} {volume} --on @FROM"))?;
        let first = self.made(volume)?;
        let (full, part) = (self.file(&format!("{volume}.full"))?, self.file(&format!("{volume}.part"))?);
        self.run(&format!("cellar volume copy {volume} {volume}.copy --to @TO"))?;
        let mut rows = vec![self.same("cellar volume copy", &format!("{volume}.copy"), &first)?];
        self.run(&format!("vos addsite @TO a {volume}"))?;
        self.run(&format!("cellar volume release {volume}"))?;
        let copy = &format!("{volume}.readonly");
        rows.push(self.same("cellar volume release, first", copy, &first)?);
        let restored = &format!("{volume}.r");
        self.run(&format!("cellar volume dump {volume} {full}"))?;
        self.run(&format!("cellar volume restore {full} {restored} --on @TO"))?;
        rows.push(self.same("cellar volume dump and restore, full", restored, &first)?);
        self.run(&format!("cellar volume backup {volume}"))?;

        let since = self.run("sleep 1; date +%s; sleep 1")?;
        let second = self.change(volume, 0, self.from, &first)?;
        let backup = &format!("{volume}.backup");
        rows.push(self.same_on(self.from, "cellar volume backup, before the move", backup, &first)?);
        self.run(&format!("cellar volume release {volume}"))?;
        rows.push(self.same("cellar volume release, changed", copy, &second)?);
        self.run(&format!("cellar volume release {volume}"))?;
        rows.push(self.same("cellar volume release, unchanged", copy, &second)?);
        self.run(&format!("cellar volume dump --since {} {volume} {part}", since.trim()))?;
        self.run(&format!("vos restore @TO a {restored} -file {part} -overwrite incremental"))?;
        rows.push(self.same("cellar volume dump --since, vos restore", restored, &second)?);
        self.run(&format!("cellar volume restore {full} {restored} --overwrite full"))?;
        rows.push(self.replaced("cellar volume restore --overwrite full", restored, &first)?);
        self.run(&format!("cellar volume restore {part} {restored} --overwrite incremental"))?;
        rows.push(self.replaced("cellar volume restore --overwrite incremental", restored, &second)?);
        let kept = &format!("{volume}.o");
        self.run(&format!("cellar volume restore {full} {kept} --on @TO --readonly --also-on @FROM/a"))?;
        let copies = &format!("{kept}.readonly");
        rows.push(self.same("cellar volume restore --readonly", copies, &first)?);
        rows.push(self.same_on(self.from, "the same, its second site", copies, &first)?);
        self.run(&format!("cellar volume restore {part} {kept} --overwrite incremental --readonly"))?;
        rows.push(self.same("the same, --overwrite incremental", copies, &second)?);
        rows.push(self.same_on(self.from, "the same, then its second site", copies, &second)?);
        let kept_id = self.id(copies)?;
        self.run(&format!("cellar volume remove {kept} --copies"))?;
        for server in [self.from, self.to] {
            ensure!(!self.is_on(server, &kept_id)?, "{copies} is still on {}", server.address);
        }
        self.run(&format!("cellar volume release {volume} --all"))?;
        rows.push(self.same("cellar volume release --all", copy, &second)?);

        let id = self.id(volume)?;
        self.run(&format!("cellar volume move {volume} --to @TO"))?;
        rows.push(self.same("cellar volume move", volume, &second)?);
        ensure!(!self.is_on(self.from, &id)?, "the moved volume is still on {}", self.from.address);
        self.run(&format!("cellar volume backup {volume}"))?;
        self.change(volume, 1, self.to, &second)?;
        rows.push(self.same("cellar volume backup, after the move", backup, &second)?);
        Ok(rows)
    }
}
