//! Tests that preflight predictions come true: each job is done as predicted, or refused for the predicted
//! reason, under all kinds of obstacles.

use super::history::{History, VOLUME, Volume, place, server};
use crate::{
    Copy, Gets, JobError, Move, Operation, Outlook, Overwrite, Place, Release, Restore, Split, Stage,
};
use afs_idl::vl::entry_flags;
use base::AbortCode;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

const SEEDS: u64 = 3000;
/// All obstacles are removed after this time; refusals happen long before.
const SECONDS: u32 = 5000;

/// An obstacle.
#[derive(Clone, Copy, Debug)]
enum Obstacle {
    Locked(i32),
    NoRights,
    /// A server rejects calls.
    Refused(u8),
    Down(u8),
    Full(u8),
    /// The volume, and its clone if one is needed, is out of service.
    OutOfService,
    /// A volume already exists at the destination.
    InTheWay,
    NotCellar,
    NoSites,
    /// One of the sites has an invalid partition.
    BadSite,
}

/// Returns a random destination, possibly one without a partition.
fn target(random: &mut StdRng) -> Place {
    match random.random_range(0..8) {
        0 => place(1),
        1 => Place { partition: 1, ..place(1) },
        2 => Place { partition: 7, ..place(2) },
        _ => place(2),
    }
}

fn operation(random: &mut StdRng) -> Operation {
    let to = target(random);
    let name: String = if random.random_bool(0.1) { "data".into() } else { "new".into() };
    let file: String = "/dump".into();
    match random.random_range(0..8) {
        0 | 1 => Operation::Move(Move { to }),
        2 => Operation::Copy(Copy { name, to }),
        3 | 4 => Operation::Release(Release { all: random.random_bool(0.3) }),
        5 => Operation::Backup,
        6 => Operation::Split(Split { directory: 7, path: "data/below".into(), name }),
        _ if random.random_bool(0.5) => {
            let readonly = random.random_bool(0.5);
            let also = if readonly { vec![place(3), place(4)] } else { Vec::new() };
            Operation::Restore(Restore { file, name, to, offline: false, readonly, also })
        }
        _ => Operation::Overwrite(Overwrite {
            file,
            changes: false,
            offline: false,
            readonly: random.random_bool(0.5),
        }),
    }
}

fn obstacle(random: &mut StdRng) -> Obstacle {
    let number = random.random_range(1..=4);
    let locks = [entry_flags::MOVE, entry_flags::BACKUP, entry_flags::DUMP];
    match random.random_range(0..13) {
        0 => Obstacle::Locked(locks[random.random_range(0..locks.len())]),
        1 => Obstacle::NoRights,
        2 | 3 => Obstacle::Refused(number),
        4 | 5 => Obstacle::Down(number),
        6 | 7 => Obstacle::Full(2),
        8 => Obstacle::InTheWay,
        9 => Obstacle::NotCellar,
        10 => Obstacle::NoSites,
        11 => Obstacle::OutOfService,
        _ => Obstacle::BadSite,
    }
}

fn put(obstacle: Obstacle, history: &History, operation: &Operation) {
    let mut state = history.state();
    let until = state.now + SECONDS;
    match (obstacle, operation) {
        (Obstacle::Locked(flag), _) => state.entries.get_mut(&VOLUME).unwrap().flags |= flag,
        (Obstacle::NoRights, _) => state.takes_no_changes = true,
        (Obstacle::Refused(number), _) => {
            state.hosts.get_mut(&server(number)).unwrap().refuses_until = until;
        }
        (Obstacle::Down(number), _) => state.hosts.get_mut(&server(number)).unwrap().down_until = until,
        (Obstacle::Full(number), _) => state.hosts.get_mut(&server(number)).unwrap().free_kib = 10,
        // The file server rejects a split before there is a job, and a restore puts the volume into service.
        (Obstacle::OutOfService, Operation::Split(_) | Operation::Restore(_) | Operation::Overwrite(_)) => {}
        (Obstacle::OutOfService, _) => {
            let first = state.hosts.get_mut(&server(1)).unwrap();
            first.volumes.get_mut(&(VOLUME, 0)).unwrap().in_service = false;
            state.is_taken_off = true;
        }
        (Obstacle::InTheWay, Operation::Move(Move { to })) if *to != place(1) => {
            let volume = Volume { partition: to.partition, ..Volume::default() };
            state.hosts.get_mut(&to.server).unwrap().volumes.insert((VOLUME, to.partition), volume);
        }
        (Obstacle::NotCellar, Operation::Split(_)) => {
            state.hosts.get_mut(&server(1)).unwrap().is_cellar = false;
        }
        (Obstacle::NoSites, Operation::Release(_)) => {
            state.entries.get_mut(&VOLUME).unwrap().server_count = 1;
        }
        (Obstacle::BadSite, Operation::Release(_)) => {
            state.entries.get_mut(&VOLUME).unwrap().server_partition[1] = 7;
        }
        _ => {}
    }
}

/// Returns the number of sites for each transfer.
fn transfers(outlook: &Outlook) -> Vec<usize> {
    let all = outlook.sites.iter().filter_map(|site| site.transfer);
    let last = all.clone().max().unwrap_or(0);
    (1..=last).map(|transfer| all.clone().filter(|&it| it == transfer).count()).collect()
}

fn check_done(history: &History, outlook: &Outlook) {
    let job = history.job();
    assert_eq!(job.stage(), Stage::Done, "predicted: {outlook:#?}");
    let waits = outlook.sites.iter().any(|site| matches!(site.gets, Gets::Later(_)));
    let has_waited = job.events.iter().any(|event| event.what.starts_with("some sites do not have it yet"));
    assert!(
        matches!(job.operation(), Operation::Restore(_) | Operation::Overwrite(_)) || waits == has_waited
    );
    if !waits && !outlook.sites.is_empty() {
        let sent: Vec<usize> = history.reads().into_iter().map(|(_, sites)| sites).collect();
        assert_eq!(sent, transfers(outlook), "predicted: {outlook:#?}");
    }
}

/// Runs a job after its preflight; returns whether it was expected to be refused.
fn play(seed: u64) -> bool {
    // A seed different from the cell's: the obstacles would otherwise depend on the choice of servers.
    let mut random = StdRng::seed_from_u64(!seed);
    let operation = operation(&mut random);
    let mut history = History::calm(seed, operation.clone());
    if random.random_bool(0.5) && matches!(operation, Operation::Release(_)) {
        history.run_to_the_end();
        history.reads();
        history.write();
        history.again(operation.clone());
    }
    let mut obstacles: Vec<Obstacle> =
        (0..random.random_range(0..3)).map(|_| obstacle(&mut random)).collect();
    // A server that is down at first is waited for, and would never have the partition.
    if obstacles.iter().any(|obstacle| matches!(obstacle, Obstacle::BadSite)) {
        obstacles = vec![Obstacle::BadSite];
    }
    for obstacle in obstacles {
        put(obstacle, &history, &operation);
    }
    history.state().busy_listings = random.random_range(0..3);
    let predicted = history.preflight();
    history.run_to_the_end();
    match &predicted {
        Ok(outlook) => check_done(&history, outlook),
        Err(trouble) => {
            let job = history.job();
            assert_eq!(job.stage(), Stage::Failed, "predicted: {trouble}");
            match trouble {
                // The preflight does not predict ids of new volumes.
                JobError::Call { code, .. } => {
                    assert_eq!(job.abort_code(), Some(*code), "predicted {trouble}, not {:?}", job.failure());
                }
                trouble => assert_eq!(job.failure(), Some(trouble.to_string().as_str())),
            }
        }
    }
    predicted.is_err()
}

#[test]
fn preflights_come_true_and_change_nothing() {
    let mut refused = 0;
    seeds::play(SEEDS, |seed| refused += u64::from(play(seed)));
    assert!((SEEDS / 5..SEEDS * 4 / 5).contains(&refused), "{refused} of {SEEDS} were refused");
}

#[test]
fn a_permanently_refusing_target_does_not_block_undoing() {
    let to = place(2);
    for operation in [
        Operation::Move(Move { to }),
        Operation::Copy(Copy { name: "new".into(), to }),
        Operation::Restore(Restore {
            file: "/dump".into(),
            name: "new".into(),
            to,
            offline: false,
            readonly: false,
            also: Vec::new(),
        }),
    ] {
        let mut history = History::calm(1, operation);
        history.state().hosts.get_mut(&server(2)).unwrap().refuses_until = u32::MAX;
        history.run_to_the_end();
        let job = history.job();
        assert_eq!((job.stage(), job.abort_code()), (Stage::Failed, Some(AbortCode::VOLSERBAD_ACCESS)));
    }
}
