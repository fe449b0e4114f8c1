//! A cell with three OpenAFS database servers whose sync site fails and recovers.
//!
//! OpenAFS's timers cannot be configured. The first sync site accepts changes a minute and a half after the
//! start. If it fails, the others wait 75 s before they vote for another one, which delays its first change
//! until the lost site cannot have any votes left: three minutes in all. A server that has recovered may not
//! vote for 75 s. Until then it misses every change; it receives the database at most half a minute later.

use crate::Test;
use crate::tests::joining::nothing_is_left_on;
use crate::tests::mixed::{all, copy, fetch_and_compare};
use crate::tests::{own_file, wait_for};
use anyhow::{Context, Result};
use interop::cell::Cell;
use interop::databases::{Database, Databases};
use interop::means::Means;
use std::time::{Duration, Instant};

pub(crate) fn tests() -> Vec<Test> {
    vec![Test { name: "electing-databases", needs: &[Means::Netns], run: electing }]
}

const HOSTS: [(&str, &str); 3] = [("ubik1", "10.99.0.31"), ("ubik2", "10.99.0.32"), ("ubik3", "10.99.0.33")];
/// OpenAFS's file server, whose host also runs the clients.
const OPENAFS: (&str, &str) = ("afs6", "10.99.0.34");
const CELLAR: (&str, &str) = ("cellar6", "10.99.0.35");

/// Time limit for an election: if two candidates vote for themselves at the same time, all servers wait once
/// more.
const ELECTION: Duration = Duration::from_secs(420);
/// Time limit for a recovered server to catch up.
const CATCHING_UP: Duration = Duration::from_secs(150);

struct Site {
    databases: Databases,
    openafs: Cell,
    cellar: Cell,
    began: Instant,
}

fn electing() -> Result<()> {
    let began = Instant::now();
    let databases = Databases::start(&HOSTS)?;
    wait_for(ELECTION, || databases.follows(1, 0)).context("the first election")?;
    let openafs = Cell::start_joining(&databases.hosts[1], OPENAFS.0, OPENAFS.1)?;
    let cellar = Cell::start_cellar_like(&databases.hosts[1], CELLAR.0, CELLAR.1)?;
    let mut site = Site { databases, openafs, cellar, began };
    let outcome = site.go_through();
    outcome.with_context(|| format!("Cellar's log ends:\n{}", site.cellar.cellar_log()))
}

impl Site {
    fn go_through(&mut self) -> Result<()> {
        self.say("both file servers have joined");
        let tree = own_file("src");
        let create = format!("cellar volume create tree --on {} --quota 0", CELLAR.1);
        self.all(&[
            &format!("pts createuser {} -localauth", OPENAFS.1),
            "pts creategroup system:lab -localauth",
            &format!("pts adduser {} system:lab -localauth", OPENAFS.1),
            &format!("{create} --acl system:lab=rlidwka --acl system:anyuser=rl"),
        ])?;
        copy(&self.openafs, &format!("{}/ cell:tree/first/", tree.display()))?;
        self.without_sync_site()?;
        fetch_and_compare(&self.openafs, "first", &tree)?;

        self.move_to(OPENAFS.1)?;
        self.say("moved, by the second server");
        fetch_and_compare(&self.openafs, "first", &tree)?;

        self.databases.start_server(0, Database::Locations)?;
        self.databases.signal(0, Database::Protection, "CONT")?;
        self.say("the first server is back");
        for to in [CELLAR.1, OPENAFS.1, CELLAR.1] {
            self.move_to(to)?;
            self.say(&format!("moved to {to}; the first server says: {}", self.place_of_tree(0)?));
            fetch_and_compare(&self.openafs, "first", &tree)?;
        }
        self.work(99)?;
        wait_for(CATCHING_UP, || self.agree()).with_context(|| self.differences())?;
        self.say("all three have the same");
        nothing_is_left_on(&self.openafs, &[&self.openafs, &self.cellar])
    }

    fn say(&self, what: &str) {
        println!("interop: {:5.0} s: {what}", self.began.elapsed().as_secs_f64());
    }

    fn all(&self, commands: &[&str]) -> Result<()> {
        let commands: Vec<String> = commands.iter().map(|&command| command.to_owned()).collect();
        all(&self.openafs, &commands)
    }

    /// Kills the sync site of locations, and suspends that of protection. A file server that starts now has
    /// no cached entries, and still serves users whose rights come from a host's group.
    fn without_sync_site(&mut self) -> Result<()> {
        self.work(0)?;
        self.databases.signal(0, Database::Locations, "KILL")?;
        self.databases.signal(0, Database::Protection, "STOP")?;
        self.say("the sync site is gone");
        self.cellar.end_cellar("TERM")?;
        self.cellar.start_cellar_alone()?;
        let mut round = 1;
        wait_for(ELECTION, || {
            self.work(round).with_context(|| format!("{:?} after the start", self.began.elapsed()))?;
            round += 1;
            self.databases.follows(2, 1)
        })
        .context("the second election")?;
        self.say(&format!("there is another one; people worked {round} times meanwhile"));
        Ok(())
    }

    /// Writes a file and reads it, without a token.
    fn work(&self, round: u32) -> Result<()> {
        let folder = self.openafs.scratch()?;
        let (file, copied) = (folder.join("work"), folder.join("copied"));
        std::fs::write(&file, format!("round {round}\n"))?;
        self.all(&[
            &format!("cellar cp --noauth {} cell:tree/work", file.display()),
            &format!("cellar cp --noauth cell:tree/work {}", copied.display()),
            &format!("cmp {} {}", file.display(), copied.display()),
        ])
    }

    fn move_to(&self, address: &str) -> Result<()> {
        self.all(&[&format!("cellar volume move tree --to {address}")])
    }

    /// Runs a command that uses a single location server.
    fn ask(&self, host: usize, command: &str) -> Result<String> {
        let folder = self.openafs.scratch()?.join(HOSTS[host].0);
        std::fs::create_dir_all(&folder)?;
        std::fs::write(folder.join("ThisCell"), "test.example\n")?;
        let (name, address) = HOSTS[host];
        std::fs::write(folder.join("CellServDB"), format!(">test.example\n{address} #{name}\n"))?;
        let command = format!("timeout 20 {command} -noauth -config {}", folder.display());
        self.openafs.run(&command).map(|output| output.text)
    }

    fn place_of_tree(&self, host: usize) -> Result<String> {
        let listed = self.ask(host, "vos listvldb tree -noresolve")?;
        let site = listed.lines().find(|line| line.contains("RW Site")).unwrap_or(&listed);
        Ok(site.trim().to_owned())
    }

    /// Returns the contents of both databases on each server.
    fn contents(&self) -> Result<Vec<[String; 2]>> {
        let of_host = |host| {
            let locations = self.ask(host, "vos listvldb -noresolve")?;
            Ok([locations, self.ask(host, &format!("pts examine {}", OPENAFS.1))?])
        };
        (0..HOSTS.len()).map(of_host).collect()
    }

    /// Whether all servers have the same contents and version.
    fn agree(&self) -> Result<bool> {
        let mut are_same = true;
        for database in Database::ALL {
            let versions = self.databases.versions(database)?;
            are_same &= versions.iter().all(|version| *version == versions[0]);
        }
        let contents = self.contents()?;
        let has_tree = contents[0][0].contains(CELLAR.1);
        Ok(are_same && has_tree && contents.iter().all(|host| *host == contents[0]))
    }

    fn differences(&self) -> String {
        let versions = Database::ALL.map(|database| self.databases.versions(database));
        format!("{versions:?}\n{:#?}", self.contents())
    }
}
