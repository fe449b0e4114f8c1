//! Seeded histories: cells receive versions, are down, lose calls and corrupt data, while the process that
//! runs the promotion is killed repeatedly.

use crate::manifest::{Manifest, SigningKey};
use crate::{Digest, Done, Held, Home, Options, Outcome, Promotion, PromotionError, Record, Step, Task};
use jobs::Place;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

const SOURCE: &str = "source.example";
const KEEP: usize = 2;
const COPIES: usize = 3;
const FANOUT: usize = 3;
/// Upper bound of steps in a history.
const STEPS_MAX: u32 = 200_000;

fn place(cell: u8, server: u8) -> Place {
    Place { server: Ipv4Addr::new(10, 0, cell, server), partition: 0 }
}

fn digest(contents: u64) -> Digest {
    let mut hash = [0; 32];
    hash[..8].copy_from_slice(&contents.to_be_bytes());
    Digest { hash, vnodes: 1, bytes: contents }
}

/// A cell of the model. Contents 0 mean that there are none.
#[derive(Default)]
struct Cell {
    number: u8,
    is_made: bool,
    staging: u64,
    clones: BTreeMap<u32, u64>,
    /// Contents of each site, and whether clients may use it.
    sites: BTreeMap<Ipv4Addr, (u64, bool)>,
    next: u32,
    down: u32,
    /// Number of its servers that do not respond.
    silent: usize,
}

struct World {
    random: StdRng,
    cells: BTreeMap<String, Cell>,
    /// Contents by version.
    versions: BTreeMap<u32, u64>,
    key: SigningKey,
    faults: u32,
    journal: String,
    steps: u32,
    sends: BTreeMap<String, u32>,
}

fn name(number: u8) -> String {
    format!("c{number:02}.example")
}

impl World {
    fn new(seed: u64, cells: u8, faults: u32) -> World {
        let cell = |number| (name(number), Cell { number, next: 100, ..Cell::default() });
        let mut world = World {
            random: StdRng::seed_from_u64(seed),
            cells: (1..=cells).map(cell).collect(),
            versions: BTreeMap::new(),
            key: SigningKey::from_seed(&[5; 32]),
            faults,
            journal: String::new(),
            steps: 0,
            sends: BTreeMap::new(),
        };
        world.cells.insert(SOURCE.into(), Cell { is_made: true, ..Cell::default() });
        world.write(&Record::new("software", SOURCE, 7));
        world
    }

    fn write(&mut self, record: &Record) {
        self.journal = serde_json::to_string(record).unwrap();
    }

    fn record(&self) -> Record {
        serde_json::from_str(&self.journal).unwrap()
    }

    fn targets(&self) -> Vec<String> {
        self.cells.keys().filter(|name| *name != SOURCE).cloned().collect()
    }

    fn options(&self) -> Options {
        let trusted = BTreeMap::from([("release".to_owned(), self.key.public())]);
        let trusted = self.targets().into_iter().map(|name| (name, trusted.clone())).collect();
        Options { fanout: FANOUT, keep: KEEP, trusted }
    }

    /// Signs a version with new contents, and sets it for all cells.
    fn promote(&mut self) {
        let mut record = self.record();
        let version = record.latest + 1;
        let contents = u64::from(version) * 1000;
        let manifest = Manifest {
            volume: "software".into(),
            cell: SOURCE.into(),
            volume_id: 7,
            version,
            promoted_at: version * 100,
            cloned_at: version * 100,
            contents: digest(contents),
            signer: "release".into(),
        };
        let held = Held { place: place(0, 1), volume: 1000 + version };
        self.cells.get_mut(SOURCE).unwrap().clones.insert(held.volume, contents);
        self.versions.insert(version, contents);
        record.add_version(self.key.sign(manifest), held);
        record.want(version, &self.targets());
        self.targets().iter().for_each(|name| record.want_copies(name, COPIES));
        record.forget(KEEP);
        for held in std::mem::take(&mut record.loose) {
            self.cells.get_mut(SOURCE).unwrap().clones.remove(&held.volume);
        }
        self.write(&record);
    }

    fn chance(&mut self, rate: f64) -> bool {
        let is_so = self.faults > 0 && self.random.random_bool(rate);
        self.faults -= u32::from(is_so);
        is_so
    }

    /// Runs promotions from the journal until nothing is left to do, with kills and other faults.
    fn run(&mut self) {
        while !self.run_once() {}
    }

    fn run_once(&mut self) -> bool {
        let mut record = self.record();
        record.resume();
        let mut promotion = Promotion::new(record, self.options());
        let mut working: Vec<Task> = Vec::new();
        loop {
            self.steps += 1;
            assert!(self.steps < STEPS_MAX, "it does not end");
            let may_begin = working.len() < 6 && (working.is_empty() || self.random.random_bool(0.6));
            let begun = if may_begin { promotion.next_task() } else { None };
            if self.chance(0.01) {
                // Killed: tasks handed out may or may not be in the journal, and may or may not have run.
                for task in working {
                    if self.random.random_bool(0.5) {
                        let _ = self.perform(&task);
                    }
                }
                return false;
            }
            self.write(promotion.record());
            match begun {
                Some(task) => working.push(task),
                None if working.is_empty() => return true,
                None => {
                    let task = working.swap_remove(self.random.random_range(0..working.len()));
                    let outcome = self.attempt(&task);
                    promotion.finish(&task, outcome, self.steps);
                    self.write(promotion.record());
                    self.check(promotion.record());
                }
            }
        }
    }

    fn attempt(&mut self, task: &Task) -> Outcome {
        let cell = self.cells.get_mut(&task.cell).unwrap();
        cell.down = cell.down.saturating_sub(1);
        if cell.down > 0 {
            return Err(PromotionError::Passing("no answer".into()));
        }
        if self.chance(0.01) {
            self.cells.get_mut(&task.cell).unwrap().down = self.random.random_range(1..12);
        }
        if self.chance(0.03) {
            return Err(PromotionError::Passing("lost".into()));
        }
        let outcome = self.perform(task);
        if self.chance(0.03) { Err(PromotionError::Passing("answer lost".into())) } else { outcome }
    }

    fn perform(&mut self, task: &Task) -> Outcome {
        match &task.step {
            Step::Look => {
                return Ok(Done::Home(Home { volume: 1, read_only: 2, sites: self.places(&task.cell) }));
            }
            Step::Widen { home, copies } => {
                let mut sites = self.places(&task.cell);
                sites.retain(|site| !home.sites.contains(site));
                let scarce = (home.sites.len() + sites.len() < *copies).then(|| "no answer".into());
                return Ok(Done::Sites(sites, scarce));
            }
            Step::Send { source, from, since, .. } => return self.send(task, source, *from, *since),
            Step::Number => {
                let cell = self.cells.get_mut(&task.cell).unwrap();
                cell.next += 1;
                return Ok(Done::Number(cell.next));
            }
            Step::Digest(held) => {
                let contents = self.cells[&task.cell].clones.get(&held.volume);
                return contents.map_or(Err(PromotionError::Passing("no clone".into())), |contents| {
                    Ok(Done::Digest(digest(*contents)))
                });
            }
            _ => {}
        }
        let cell = self.cells.get_mut(&task.cell).unwrap();
        match &task.step {
            Step::Make(home) => {
                cell.is_made = true;
                home.sites.iter().for_each(|site| {
                    cell.sites.entry(site.server).or_default();
                });
            }
            Step::Freeze { clone, .. } => {
                cell.clones.entry(*clone).or_insert(cell.staging);
            }
            Step::Publish { home, verified } => {
                if cell.clones.get(&verified.volume) != Some(&cell.staging) {
                    return Err(PromotionError::Changed("staging".into()));
                }
                for (place, site) in &mut cell.sites {
                    *site =
                        if *place == home.sites[0].server { (cell.staging, true) } else { (site.0, false) };
                }
            }
            Step::Copy { from, to, .. } => {
                cell.sites.insert(to.server, (cell.clones[&from.volume], true));
            }
            Step::Drop(held) => drop(cell.clones.remove(&held.volume)),
            other => panic!("{other:?} is done elsewhere"),
        }
        Ok(Done::Well)
    }

    /// Returns a cell's sites, possibly fewer than wanted. The first site has the staging volume; its server
    /// always responds.
    fn places(&mut self, name: &str) -> Vec<Place> {
        let away = usize::from(self.chance(0.2));
        let cell = &self.cells[name];
        let there = COPIES - away.max(cell.silent);
        (1..=there as u8).map(|server| place(cell.number, server)).collect()
    }

    fn send(&mut self, task: &Task, source: &str, from: Held, since: u32) -> Outcome {
        let Some(&sent) = self.cells[source].clones.get(&from.volume) else {
            return Err(PromotionError::Passing("the clone is gone".into()));
        };
        *self.sends.entry(source.to_owned()).or_default() += 1;
        let is_wrong = self.chance(0.03);
        // Corrupts the holder's own clone if all of its sites have been served from it. A site whose reply
        // was lost is served again.
        let is_known = || self.record().cells.get(source).is_none_or(|cell| cell.lacking.is_empty());
        let is_served = self.cells[source].sites.values().all(|site| site.1) && is_known();
        if source != SOURCE && is_served && self.chance(0.01) {
            self.cells.get_mut(source).unwrap().clones.insert(from.volume, 13);
        }
        let staging = &mut self.cells.get_mut(&task.cell).unwrap().staging;
        let has = (*staging / 10) as u32;
        // An incremental transfer is valid only on a base that has all earlier changes.
        let is_apt = since == 0 || (staging.is_multiple_of(1000) && *staging > 0 && has + 2 >= since);
        *staging = if is_wrong || !is_apt { 77 } else { sent };
        Ok(Done::Sent(1))
    }

    /// Checks that clients can read only promoted, complete versions.
    fn check(&self, record: &Record) {
        let signed: BTreeSet<u64> = self.versions.values().copied().collect();
        for (name, cell) in &self.cells {
            for (place, (contents, is_used)) in &cell.sites {
                let is_right = *contents == 0 || signed.contains(contents);
                assert!(is_right, "{name} {place} shows {contents}");
                let used: Vec<u64> = cell.sites.values().filter(|site| site.1).map(|site| site.0).collect();
                assert!(!is_used || used.iter().all(|other| other == contents), "{name}: sites differ");
            }
        }
        for (name, cell) in &record.cells {
            assert!(cell.from.is_none() || cell.wanted != 0, "{name} gets nothing from somebody");
        }
    }

    fn assert_all_have(&self, version: u32) {
        let record = self.record();
        for name in self.targets() {
            let (cell, known) = (&self.cells[&name], &record.cells[&name]);
            assert!(known.is_current() && known.halt.is_none(), "{name}: {known:?}");
            assert_eq!(known.in_use(), version, "{name}");
            let home = known.home.as_ref().unwrap();
            assert!(home.sites.len() == COPIES && cell.sites.len() == COPIES, "{name}: {home:?}");
            assert!(cell.sites.values().all(|site| *site == (self.versions[&version], true)), "{name}");
            let held: BTreeSet<u32> = known.holds.values().map(|held| held.volume).collect();
            let there: BTreeSet<u32> = cell.clones.keys().copied().collect();
            assert!(held.is_subset(&there), "{name}: a clone is missing");
        }
    }
}

#[test]
fn without_faults_shares_are_kept_and_clones_are_few() {
    let mut world = World::new(1, 80, 0);
    for version in 1..=5 {
        world.promote();
        world.sends.clear();
        world.run();
        world.assert_all_have(version);
        assert_eq!(world.sends[SOURCE], FANOUT as u32);
        assert!(world.sends.values().all(|&count| count <= FANOUT as u32), "{:?}", world.sends);
        assert_eq!(world.sends.values().sum::<u32>(), 80);
    }
    for name in world.targets() {
        assert_eq!(world.cells[&name].clones.len(), KEEP + 1, "{name}");
    }
}

#[test]
fn going_back_sends_nothing_between_cells() {
    let mut world = World::new(2, 9, 0);
    for _ in 0..3 {
        world.promote();
        world.run();
    }
    let mut record = world.record();
    for (name, expected) in world.targets().iter().zip([2; 9]) {
        assert_eq!(record.roll_back(name), Some(expected));
    }
    world.write(&record);
    world.sends.clear();
    world.run();
    world.assert_all_have(2);
    assert!(!world.sends.contains_key(SOURCE) && world.sends.values().all(|&count| count == 1));
    world.promote();
    world.run();
    world.assert_all_have(4);
    assert_eq!(world.record().cells[&name(1)].former(), Some(2));
}

#[test]
fn histories_with_faults_never_show_unpromoted_contents() {
    seeds::play(150, |seed| {
        let mut world = World::new(seed, 7, 40);
        for _ in 0..3 {
            world.promote();
            world.run();
            if world.random.random_bool(0.3) {
                let mut record = world.record();
                let targets = world.targets();
                let one = targets.choose(&mut world.random).unwrap();
                record.roll_back(one);
                world.write(&record);
                world.run();
            }
        }
        world.promote();
        world.run();
        world.faults = 0;
        world.cells.values_mut().for_each(|cell| cell.down = 0);
        world.run();
        // Corruption is found now at the latest, when nothing hides it.
        world.run();
        world.assert_all_have(4);
    });
}

#[test]
fn children_of_an_absent_cell_are_served_by_others() {
    let mut world = World::new(3, 20, 0);
    world.promote();
    let away = name(1);
    world.cells.get_mut(&away).unwrap().down = u32::MAX;
    world.run();
    let record = world.record();
    assert!(record.cells[&away].is_behind() && record.cells[&away].in_use() == 0);
    for name in world.targets().into_iter().filter(|name| *name != away) {
        assert!(record.cells[&name].is_current(), "{name}");
    }
    world.cells.get_mut(&away).unwrap().down = 0;
    world.run();
    world.assert_all_have(1);
}

#[test]
fn missing_copies_are_made_once_their_servers_answer() {
    let mut world = World::new(6, 4, 0);
    let (short, alone) = (name(1), name(2));
    for (name, silent) in [(&short, 1), (&alone, 2)] {
        world.cells.get_mut(name).unwrap().silent = silent;
    }
    let sites = |world: &World, name: &str| world.record().cells[name].home.as_ref().unwrap().sites.len();
    let again = |world: &mut World| {
        let mut record = world.record();
        record.want(record.latest, &world.targets());
        world.write(&record);
        world.sends.clear();
        world.run();
    };
    world.promote();
    world.run();
    again(&mut world);
    for (name, count) in [(&short, 2), (&alone, 1)] {
        let known = &world.record().cells[name];
        assert!(known.is_current() && known.is_short() && known.scarce.is_some(), "{known:?}");
        assert_eq!(sites(&world, name), count);
    }
    world.cells.get_mut(&short).unwrap().silent = 0;
    again(&mut world);
    assert_eq!((sites(&world, &short), sites(&world, &alone)), (3, 1));
    assert!(!world.record().cells[&short].is_short() && world.record().cells[&short].scarce.is_none());
    world.cells.get_mut(&alone).unwrap().silent = 0;
    again(&mut world);
    assert!(world.sends.is_empty(), "{:?}", world.sends);
    world.assert_all_have(1);
}

#[test]
fn forged_and_foreign_manifests_leave_the_former_version_in_use() {
    let forger = SigningKey::from_seed(&[6; 32]);
    let forge: [fn(&mut Record, &SigningKey); 4] = [
        |record, _| record.versions.get_mut(&2).unwrap().manifest.contents.hash[0] ^= 1,
        |record, forger| {
            let manifest = record.versions[&2].manifest.clone();
            record.versions.insert(2, forger.sign(manifest));
        },
        |record, _| {
            let old = record.versions[&1].clone();
            record.versions.insert(2, old);
        },
        |record, _| drop(record.versions.remove(&2)),
    ];
    for (number, forge) in forge.iter().enumerate() {
        let mut world = World::new(4, 5, 0);
        world.promote();
        world.run();
        world.promote();
        let mut record = world.record();
        forge(&mut record, &forger);
        world.write(&record);
        world.sends.clear();
        world.run();
        let record = world.record();
        assert!(world.sends.is_empty(), "forgery {number}: something was sent");
        for name in world.targets() {
            assert!(record.cells[&name].is_refused(), "forgery {number}: {name}");
            assert!(world.cells[&name].sites.values().all(|site| *site == (1000, true)));
        }
    }
}

#[test]
fn wrong_contents_are_refused_and_the_old_version_stays() {
    let mut world = World::new(5, 3, 0);
    world.promote();
    world.run();
    world.promote();
    // The source's clone differs from what was signed.
    world.cells.get_mut(SOURCE).unwrap().clones.insert(1002, 13);
    world.run();
    let record = world.record();
    for name in world.targets() {
        let trouble = record.cells[&name].trouble().unwrap_or_default().to_owned();
        assert!(record.cells[&name].is_refused() && trouble.contains("manifest"), "{trouble}");
        assert_eq!(record.cells[&name].in_use(), 1);
        assert!(world.cells[&name].sites.values().all(|site| *site == (1000, true)));
    }
}
