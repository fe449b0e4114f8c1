//! Random histories against a model of open transactions and existing volumes.

use super::support::Cell;
use afs_idl::vol::attach_mode;
use base::AbortCode;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

#[derive(Clone, Copy, Debug)]
enum Step {
    Create { id: u32 },
    Open { id: u32, mode: i32 },
    Delete { id: u32 },
    Finish { id: u32 },
    End { id: u32 },
    Pass { seconds: u32 },
}

#[derive(Default)]
struct Model {
    /// Volumes, and whether they are complete.
    volumes: BTreeMap<u32, bool>,
    /// Open transactions by volume, with their idle time.
    open: BTreeMap<u32, (i32, u32)>,
}

fn step() -> impl Strategy<Value = Step> {
    let mode = prop_oneof![Just(attach_mode::OFFLINE), Just(attach_mode::BUSY), Just(attach_mode::CREATE)];
    prop_oneof![
        (1..5_u32).prop_map(|id| Step::Create { id }),
        (1..5_u32, mode).prop_map(|(id, mode)| Step::Open { id, mode }),
        (1..5_u32).prop_map(|id| Step::Delete { id }),
        (1..5_u32).prop_map(|id| Step::Finish { id }),
        (1..5_u32).prop_map(|id| Step::End { id }),
        (1..700_u32).prop_map(|seconds| Step::Pass { seconds }),
    ]
}

impl Model {
    /// Returns the transaction on a volume and resets its idle time; an unused number if there is none.
    fn used(&mut self, id: u32) -> i32 {
        self.open.get_mut(&id).map_or(0, |(transaction, idle)| {
            *idle = 0;
            *transaction
        })
    }

    fn take(&mut self, cell: &Cell, step: Step) {
        match step {
            Step::Create { id } => self.create(cell, id),
            Step::Open { id, mode } => self.begin(cell, id, mode),
            Step::Delete { id } => {
                let possible = self.open.contains_key(&id) && self.volumes.contains_key(&id);
                assert_eq!(cell.delete(self.used(id)).is_ok(), possible);
                if possible {
                    self.volumes.remove(&id);
                }
            }
            Step::Finish { id } => {
                let possible = self.open.contains_key(&id) && self.volumes.contains_key(&id);
                assert_eq!(cell.set_flags(self.used(id), 0).is_ok(), possible);
                if possible {
                    self.volumes.insert(id, true);
                }
            }
            Step::End { id } => {
                let transaction = self.used(id);
                assert_eq!(cell.end(transaction).is_ok(), self.open.remove(&id).is_some());
            }
            Step::Pass { seconds } => self.pass(cell, seconds),
        }
    }

    fn create(&mut self, cell: &Cell, id: u32) {
        let outcome = cell.create(0, &format!("v{id}"), id, 0);
        if self.open.contains_key(&id) {
            assert_eq!(outcome, Err(AbortCode::VOLSERVOLBUSY));
        } else if let Entry::Vacant(place) = self.volumes.entry(id) {
            place.insert(false);
            self.open.insert(id, (outcome.unwrap(), 0));
        } else {
            assert_eq!(outcome, Err(AbortCode::VVOLEXISTS));
        }
    }

    fn begin(&mut self, cell: &Cell, id: u32, mode: i32) {
        let outcome = cell.open(id, 0, mode);
        if self.open.contains_key(&id) {
            assert_eq!(outcome, Err(AbortCode::VOLSERVOLBUSY));
        } else if self.volumes.contains_key(&id) {
            self.open.insert(id, (outcome.unwrap(), 0));
        } else {
            assert_eq!(outcome, Err(AbortCode::VNOVOL));
        }
    }

    fn pass(&mut self, cell: &Cell, seconds: u32) {
        cell.pass(seconds);
        self.open.values_mut().for_each(|(_, idle)| *idle += seconds);
        let late: Vec<u32> =
            self.open.iter().filter(|(_, (_, idle))| *idle > 600).map(|(id, _)| *id).collect();
        assert_eq!(cell.server.expire_transactions(), late.len());
        for id in late {
            self.open.remove(&id);
            if self.volumes.get(&id) == Some(&false) {
                self.volumes.remove(&id);
            }
        }
    }

    fn check(&self, cell: &Cell) {
        for id in 1..5 {
            let reported = cell.file_service(id);
            match (self.volumes.get(&id), self.open.contains_key(&id)) {
                (None, _) => assert_eq!(reported, Some(AbortCode::VNOVOL)),
                (Some(true), false) => assert_eq!(reported, None),
                (Some(false), false) => assert_eq!(reported, Some(AbortCode::VOFFLINE)),
                (Some(_), true) => assert!(reported.is_some()),
            }
        }
    }
}

proptest! {
    #[test]
    fn histories_agree_with_the_model(steps in prop::collection::vec(step(), 1..60)) {
        let (cell, mut model) = (Cell::new(), Model::default());
        for step in steps {
            model.take(&cell, step);
            model.check(&cell);
        }
    }
}
