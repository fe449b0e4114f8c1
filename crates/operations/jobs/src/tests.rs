//! Seeded histories: calls fail, replies get lost, and servers and the process that runs the job are killed
//! between any two steps.

mod golden;
mod history;
mod locations;
mod preflight;
mod servers;
pub(crate) mod states;
mod wire;

use crate::{Copy, Move, Operation, Overwrite, Place, Release, Restore, Split};
use base::AbortCode;
use history::{Extent, History, place};

/// Number of histories of each operation.
const SEEDS: u64 = 1500;

fn histories(operation: impl Fn(u64) -> Operation) {
    seeds::play(SEEDS, |seed| History::new(seed, operation(seed)).play());
}

#[test]
fn a_move_is_finished_or_undone_and_no_write_is_lost() {
    histories(|_| Operation::Move(Move { to: place(2) }));
}

#[test]
fn a_move_between_partitions_is_finished_or_undone() {
    let to = Place { partition: 1, ..place(1) };
    histories(|_| Operation::Move(Move { to }));
}

#[test]
fn a_copy_is_complete_or_absent() {
    histories(|_| Operation::Copy(Copy { name: "new".into(), to: place(2) }));
}

#[test]
fn a_copy_between_partitions_is_complete_or_absent() {
    let to = Place { partition: 1, ..place(1) };
    histories(|_| Operation::Copy(Copy { name: "new".into(), to }));
}

#[test]
fn a_restore_is_complete_or_absent() {
    histories(|seed| {
        let (file, name, to) = ("/dump".into(), "new".into(), place(2));
        let readonly = seed % 3 == 0;
        let also = if readonly && seed % 2 == 0 { vec![place(3), place(1)] } else { Vec::new() };
        let offline = seed % 5 == 0 && also.is_empty();
        Operation::Restore(Restore { file, name, to, offline, readonly, also })
    });
}

#[test]
fn a_file_is_sent_to_one_site_and_passed_on() {
    let (file, name) = ("/dump".to_string(), "new".to_string());
    let also = vec![place(3), place(4)];
    let new = Operation::Restore(Restore { file, name, to: place(2), offline: false, readonly: true, also });
    let mut history = History::quiet(new);
    history.run_to_the_end();
    history.check_end();
    assert_eq!((history.files_sent(), history.forwards()), (1, 2));
}

#[test]
fn a_restore_over_a_volume_is_finished_or_leaves_it_as_it_was() {
    histories(|seed| {
        Operation::Overwrite(Overwrite {
            file: "/dump".into(),
            changes: seed % 2 == 0,
            offline: seed % 5 == 0,
            readonly: seed % 3 == 0,
        })
    });
}

#[test]
fn a_split_is_complete_or_absent() {
    let split = Operation::Split(Split { directory: 7, path: "data/below".into(), name: "new".into() });
    histories(|_| split.clone());
}

#[test]
fn a_release_gives_all_sites_the_same_contents() {
    histories(|seed| Operation::Release(Release { all: seed % 5 == 0 }));
}

#[test]
fn a_backup_leaves_nothing_else() {
    histories(|_| Operation::Backup);
}

#[test]
fn a_release_of_an_unchanged_volume_sends_nothing() {
    let mut history = History::quiet(Operation::Release(Release { all: false }));
    history.run_to_the_end();
    let sent = history.forwards();
    assert!(sent > 0, "the first release sends");
    history.again(Operation::Release(Release { all: false }));
    history.run_to_the_end();
    assert_eq!(history.forwards(), sent, "the second does not");
    history.write();
    history.again(Operation::Release(Release { all: false }));
    history.run_to_the_end();
    assert!(history.forwards() > sent, "after a change it does");
    history.check_end();
}

#[test]
fn a_release_after_the_clock_went_back_misses_nothing() {
    const DAY: u32 = 86_400;
    let mut history = History::quiet_release(true);
    history.set_clock_ahead(DAY);
    history.write();
    history.run_to_the_end();
    history.check_released();
    history.set_clock_ahead(0);
    for _ in 0..3 {
        history.write();
        history.again(Operation::Release(Release { all: false }));
        history.run_to_the_end();
        history.check_released();
    }
    history.check_end();
}

#[test]
fn sites_that_lack_the_same_get_it_from_one_read() {
    use Extent::{Changes, Everything};
    // OpenAFS servers are offline while they receive, so one site goes first.
    for (are_cellars, all, changed, mixed) in [
        (true, vec![(Everything, 3)], vec![(Changes, 3)], vec![(Changes, 2), (Everything, 1)]),
        (
            false,
            vec![(Everything, 1), (Everything, 2)],
            vec![(Changes, 1), (Changes, 2)],
            vec![(Changes, 1), (Changes, 1), (Everything, 1)],
        ),
    ] {
        let mut history = History::quiet_release(are_cellars);
        let release = |history: &mut History| {
            history.run_to_the_end();
            history.check_end();
            history.write();
            history.again(Operation::Release(Release { all: false }));
            history.reads()
        };
        assert_eq!(release(&mut history), all, "no site has anything");
        assert_eq!(release(&mut history), changed, "all have the earlier contents");
        history.lose_site(4);
        assert_eq!(release(&mut history), mixed, "one has nothing");
        assert_eq!(release(&mut history), changed, "all have it again");
    }
}

#[test]
fn a_permanently_refused_dump_is_sent_once() {
    let (file, name) = ("/dump".to_string(), "new".to_string());
    let new = Operation::Restore(Restore {
        file: file.clone(),
        name,
        to: place(2),
        offline: false,
        readonly: false,
        also: Vec::new(),
    });
    let over = Operation::Overwrite(Overwrite { file, changes: false, offline: false, readonly: false });
    let sent = |operation: &Operation, code| History::quiet(operation.clone()).sent_if_refused(code);
    let lasting = [
        AbortCode::VOLSERREAD_DUMPERROR,
        AbortCode::VOLSERBADOP,
        AbortCode::VOLSERNO_OP,
        AbortCode::RXGEN_OPCODE,
        AbortCode::VDISKFULL,
    ];
    for operation in [new, over] {
        for code in lasting {
            assert_eq!(sent(&operation, code), 1, "{code}");
        }
        assert_eq!(sent(&operation, AbortCode::VOLSERNO_MEMORY), 3, "that passes");
    }
}
