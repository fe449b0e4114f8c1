//! Simulates a promotion to many cells: how long it takes, what each link carries and what the source has to
//! do, with a tree and without one.
//!
//! ```text
//! cargo run --release -p promote --example eighty_cells
//! ```
//!
//! The tree is run by the production code ([`Promotion`]), with transfers that take time on a simulated
//! network: each cell has one link to the others, with the same rate in both directions, and inside a cell
//! each server has its own link. Transfers share links fairly (max-min). Data passes through the machine that
//! runs the promotion, or goes from server to server if cells have a key in common. Verification reads the
//! received copy over the links to that machine (OpenAFS servers), or in the cell at the rate of a disk
//! (Cellar). Without the tree the source sends everything to every copy, and nothing is verified.

use jobs::Place;
use promote::manifest::{Manifest, SigningKey};
use promote::{Digest, Done, Held, Home, Options, Promotion, Record, Step, Task};
use std::collections::BTreeMap;
use std::net::Ipv4Addr;

const CELLS: usize = 80;
const COPIES: usize = 3;
/// Number of cells processed concurrently: the default, and all of them.
const PARALLEL: usize = 64;
const ALL: usize = CELLS;
const GIB: f64 = 1_073_741_824.0;
const SIZE_BYTES: f64 = 10.0 * GIB;
/// Rates in bytes per second: 1 Gbit/s between cells, 10 Gbit/s inside, a disk.
const LINK: f64 = 125e6;
const LOCAL_LINK: f64 = 1250e6;
const DISK: f64 = 500e6;
/// Seconds that a few calls over a long distance take.
const CALLS_SECONDS: f64 = 0.5;
const SOURCE: &str = "source";
/// The machine that runs the promotion.
const RUNNER: &str = "runner";

/// Where the received copy is compared with the manifest.
#[derive(Clone, Copy, PartialEq)]
enum Verified {
    /// On the machine that runs the promotion, which reads it over the network.
    ByRunner,
    /// In the cell, at the rate of a disk.
    InCell,
}

/// The path of data from one cell to the other.
#[derive(Clone, Copy, PartialEq)]
enum Way {
    /// Through the machine that runs the promotion (the default).
    ThroughRunner,
    /// From server to server: `common_key = true`.
    Direct,
}

/// Parameters of a tree.
#[derive(Clone, Copy)]
struct Plan {
    fanout: usize,
    way: Way,
    verified: Verified,
    parallel: usize,
}

/// A resource that transfers share.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Link {
    Out(String),
    In(String),
    /// A server's own link, or its disk, used by nothing else.
    Own(String, u32),
}

/// An activity in progress.
struct Flow {
    task: Option<Task>,
    links: Vec<Link>,
    left: f64,
    /// Maximum rate in bytes per second, independent of the links.
    most: f64,
    rate: f64,
    /// Result of the task.
    done: Done,
}

/// Measurements.
#[derive(Default)]
struct Figures {
    carried: BTreeMap<Link, f64>,
    sends_of_source: usize,
    first_done: f64,
    last_done: f64,
    all_copies_done: f64,
}

fn capacity(link: &Link) -> f64 {
    match link {
        Link::Out(_) | Link::In(_) => LINK,
        Link::Own(..) => LOCAL_LINK,
    }
}

/// Computes max-min fair rates: the tightest link is divided equally among its flows, repeatedly.
fn share(flows: &mut [Flow]) {
    let mut room: BTreeMap<Link, (f64, f64)> = BTreeMap::new();
    for link in flows.iter().flat_map(|flow| &flow.links) {
        room.entry(link.clone()).or_insert((capacity(link), 0.0)).1 += 1.0;
    }
    let mut open: Vec<usize> = (0..flows.len()).collect();
    for flow in flows.iter_mut() {
        flow.rate = 0.0;
    }
    while !open.is_empty() {
        let fair = |flow: &Flow| {
            let parts = flow.links.iter().map(|link| room[link].0 / room[link].1);
            parts.fold(flow.most, f64::min)
        };
        let least = open.iter().map(|&flow| fair(&flows[flow])).fold(f64::INFINITY, f64::min);
        let (fixed, rest): (Vec<usize>, Vec<usize>) =
            open.iter().partition(|&&flow| fair(&flows[flow]) <= least * (1.0 + 1e-9));
        for &flow in &fixed {
            flows[flow].rate = least;
            for link in &flows[flow].links {
                if let Some((left, count)) = room.get_mut(link) {
                    *left -= least;
                    *count -= 1.0;
                }
            }
        }
        open = rest;
    }
}

/// Advances time until the next flow ends, and returns that flow.
fn advance(flows: &mut Vec<Flow>, now: &mut f64, figures: &mut Figures) -> Flow {
    share(flows);
    let seconds = flows.iter().map(|flow| flow.left / flow.rate).fold(f64::INFINITY, f64::min);
    *now += seconds;
    for flow in flows.iter_mut() {
        let moved = flow.rate * seconds;
        flow.left -= moved;
        flow.links.iter().for_each(|link| *figures.carried.entry(link.clone()).or_default() += moved);
    }
    let least = (0..flows.len()).min_by(|&a, &b| flows[a].left.total_cmp(&flows[b].left));
    flows.swap_remove(least.unwrap_or(0))
}

fn cell_name(number: usize) -> String {
    format!("cell{number:02}")
}

fn flow_of(task: Task, plan: Plan, sends_of_source: &mut usize) -> Flow {
    let cell = task.cell.clone();
    let calls = |done| (vec![], CALLS_SECONDS, 1.0, done);
    let place = |server: u8| Place { server: Ipv4Addr::new(10, 0, 0, server), partition: 0 };
    let (links, left, most, done) = match &task.step {
        Step::Look => {
            let sites = (1..=COPIES as u8).map(place).collect();
            calls(Done::Home(Home { volume: 1, read_only: 2, sites }))
        }
        Step::Number => calls(Done::Number(100)),
        Step::Send { source, .. } => {
            *sends_of_source += usize::from(source == SOURCE);
            let mut links = vec![Link::Out(source.clone()), Link::In(cell)];
            if plan.way == Way::ThroughRunner {
                links.extend([Link::In(RUNNER.into()), Link::Out(RUNNER.into())]);
            }
            (links, SIZE_BYTES, f64::INFINITY, Done::Sent(SIZE_BYTES as u64))
        }
        Step::Digest(_) => {
            let links = match plan.verified {
                Verified::ByRunner => vec![Link::Out(cell), Link::In(RUNNER.into())],
                Verified::InCell => vec![],
            };
            (links, SIZE_BYTES, DISK, Done::Digest(contents()))
        }
        Step::Copy { to, .. } => {
            let server = u32::from(to.server);
            (vec![Link::Own(cell, server)], SIZE_BYTES, f64::INFINITY, Done::Well)
        }
        _ => calls(Done::Well),
    };
    Flow { task: Some(task), links, left, most, rate: 0.0, done }
}

fn contents() -> Digest {
    Digest { hash: [1; 32], vnodes: 100_000, bytes: SIZE_BYTES as u64 }
}

/// Simulates a promotion to cells that have nothing yet, using the production code.
fn tree(plan: Plan) -> Figures {
    let key = SigningKey::from_seed(&[1; 32]);
    let manifest = Manifest {
        volume: "software".into(),
        cell: SOURCE.into(),
        volume_id: 1,
        version: 1,
        promoted_at: 1,
        cloned_at: 1,
        contents: contents(),
        signer: "release".into(),
    };
    let names: Vec<String> = (1..=CELLS).map(cell_name).collect();
    let held = Held { place: Place { server: Ipv4Addr::new(10, 0, 0, 1), partition: 0 }, volume: 9 };
    let mut record = Record::new("software", SOURCE, 1);
    record.add_version(key.sign(manifest), held);
    record.want(1, &names);
    let keys = BTreeMap::from([("release".to_owned(), key.public())]);
    let trusted = names.iter().map(|name| (name.clone(), keys.clone())).collect();
    let mut promotion = Promotion::new(record, Options { fanout: plan.fanout, keep: 2, trusted });
    let (mut figures, mut now, mut flows) = (Figures::default(), 0.0, Vec::new());
    loop {
        while flows.len() < plan.parallel
            && let Some(task) = promotion.next_task()
        {
            flows.push(flow_of(task, plan, &mut figures.sends_of_source));
        }
        if flows.is_empty() {
            assert!(names.iter().all(|name| promotion.record().cells[name].is_current()));
            return figures;
        }
        let flow = advance(&mut flows, &mut now, &mut figures);
        if let Some(task) = flow.task {
            if matches!(task.step, Step::Publish { .. }) {
                figures.first_done = if figures.first_done == 0.0 { now } else { figures.first_done };
                figures.last_done = now;
            }
            figures.all_copies_done = now;
            promotion.finish(&task, Ok(flow.done), now as u32);
        }
    }
}

/// Simulates the source sending to every copy in every cell, `at_once` at the same time, without
/// verification.
fn naive(at_once: usize) -> Figures {
    let (mut figures, mut now, mut flows) = (Figures::default(), 0.0, Vec::new());
    let mut waiting: Vec<usize> = (0..CELLS * COPIES).rev().collect();
    let mut have = [0; CELLS];
    while !(waiting.is_empty() && flows.is_empty()) {
        while flows.len() < at_once
            && let Some(copy) = waiting.pop()
        {
            let cell = cell_name(copy / COPIES + 1);
            figures.sends_of_source += 1;
            let links = vec![Link::Out(SOURCE.into()), Link::In(cell)];
            let (left, done) = (SIZE_BYTES, Done::Number((copy / COPIES) as u32));
            flows.push(Flow { task: None, links, left, most: f64::INFINITY, rate: 0.0, done });
        }
        let flow = advance(&mut flows, &mut now, &mut figures);
        if let Done::Number(cell) = flow.done {
            have[cell as usize] += 1;
            if have[cell as usize] == 1 {
                figures.first_done = if figures.first_done == 0.0 { now } else { figures.first_done };
                figures.last_done = now;
            }
        }
        figures.all_copies_done = now;
    }
    figures
}

impl Figures {
    /// Returns the GiB that a link carried.
    fn gib(&self, link: &Link) -> f64 {
        self.carried.get(link).copied().unwrap_or(0.0) / GIB
    }
}

fn row(name: &str, figures: &Figures) {
    let gib = |link: &Link| figures.gib(link);
    let cells = || (1..=CELLS).map(cell_name);
    let out = cells().map(|name| gib(&Link::Out(name))).fold(0.0, f64::max);
    let into = cells().map(|name| gib(&Link::In(name))).fold(0.0, f64::max);
    let minutes = |seconds: f64| format!("{:.1}", seconds / 60.0);
    println!(
        "| {name} | {} | {} | {} | {} | {:.0} | {out:.0} | {into:.0} | {:.0} | {:.0} |",
        minutes(figures.first_done),
        minutes(figures.last_done),
        minutes(figures.all_copies_done),
        figures.sends_of_source,
        gib(&Link::Out(SOURCE.into())),
        gib(&Link::In(RUNNER.into())),
        gib(&Link::Out(RUNNER.into())),
    );
}

fn main() {
    println!(
        "{CELLS} cells, {COPIES} copies in each, {:.0} GiB; a link of 1 Gbit/s for each cell\n",
        SIZE_BYTES / GIB
    );
    println!(
        "| plan | first cell, min | last cell, min | last copy, min | transfers of the source | \
         GiB out of the source | GiB out of the busiest other cell | GiB into each cell | GiB into the runner | \
         GiB out of the runner |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|");
    row("source to every copy, 8 at once", &naive(8));
    row("source to every copy, all at once", &naive(CELLS * COPIES));
    let flat = Plan { fanout: CELLS, way: Way::Direct, verified: Verified::ByRunner, parallel: ALL };
    row("source to every cell, copies inside, read back", &tree(flat));
    for (way, ways) in [(Way::ThroughRunner, "through the runner"), (Way::Direct, "server to server")] {
        for (verified, words) in [(Verified::ByRunner, "read back"), (Verified::InCell, "hashed in the cell")]
        {
            for fanout in [8, 4, 3, 2, 1] {
                let plan = Plan { fanout, way, verified, parallel: PARALLEL };
                row(&format!("tree, fan-out {fanout}, {ways}, {words}"), &tree(plan));
            }
            for parallel in [8, 32, ALL] {
                let plan = Plan { fanout: 3, way, verified, parallel };
                row(&format!("tree, fan-out 3, {ways}, {words}, {parallel} at once"), &tree(plan));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gib(figures: &Figures, link: &Link) -> usize {
        figures.gib(link).round() as usize
    }

    fn out_of_source(figures: &Figures) -> usize {
        gib(figures, &Link::Out(SOURCE.into()))
    }

    #[test]
    fn the_source_sends_the_volume_once_per_branch() {
        let naive = naive(CELLS * COPIES);
        assert_eq!((naive.sends_of_source, out_of_source(&naive)), (240, 2400));
        for way in [Way::ThroughRunner, Way::Direct] {
            for fanout in [2, 3] {
                let plan = Plan { fanout, way, verified: Verified::InCell, parallel: PARALLEL };
                let tree = tree(plan);
                assert_eq!((tree.sends_of_source, out_of_source(&tree)), (fanout, 10 * fanout));
                assert!(tree.all_copies_done < naive.all_copies_done / 2.0, "{}", tree.all_copies_done);
                for cell in (1..=CELLS).map(cell_name) {
                    assert_eq!(gib(&tree, &Link::In(cell.clone())), 10, "{cell}");
                    assert!(gib(&tree, &Link::Out(cell)) <= 10 * fanout);
                }
            }
        }
    }

    #[test]
    fn data_passes_through_the_runner_unless_cells_share_a_key() {
        let ends = |way, verified| {
            let figures = tree(Plan { fanout: 3, way, verified, parallel: PARALLEL });
            [Link::In(RUNNER.into()), Link::Out(RUNNER.into())].map(|link| gib(&figures, &link))
        };
        assert_eq!(ends(Way::ThroughRunner, Verified::InCell), [800, 800]);
        assert_eq!(ends(Way::ThroughRunner, Verified::ByRunner), [1600, 800]);
        assert_eq!(ends(Way::Direct, Verified::ByRunner), [800, 0]);
        assert_eq!(ends(Way::Direct, Verified::InCell), [0, 0]);
    }
}
