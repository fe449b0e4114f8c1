//! The bucket.

use super::clock::{MS, SECOND};
use cluster_proto::{Answer, Operation, Tag};
use rand::Rng;
use rand::rngs::SmallRng;
use std::collections::BTreeMap;

/// Longest time after which a request that was answered with an error is done nevertheless.
const LATE_MAX: u64 = 40 * SECOND;

#[derive(Default)]
pub(crate) struct Bucket {
    objects: BTreeMap<String, (u64, Vec<u8>)>,
    writes: u64,
    pub is_bad: bool,
    pub is_away: bool,
}

/// What becomes of a request.
pub(crate) struct Fate {
    /// Delay until it is done; `None` if it is not.
    pub done: Option<u64>,
    /// Delay until it is done again.
    pub again: Option<u64>,
    /// Delay until its answer arrives; `None` if there is none.
    pub answered: Option<u64>,
    /// The answer instead of the true one.
    pub lie: Option<Answer>,
}

impl Bucket {
    /// Decides about a request of a node that does not reach the bucket if `is_apart`.
    pub(crate) fn fate(&self, rng: &mut SmallRng, is_apart: bool) -> Fate {
        let (there, back) = (rng.random_range(MS / 5..20 * MS), rng.random_range(MS / 5..20 * MS));
        let good = Fate { done: Some(there), again: None, answered: Some(there + back), lie: None };
        let error = || Some(Answer::Unknown("503".into()));
        if is_apart {
            let answered = rng.random_bool(0.5).then_some(there + back);
            return Fate { done: None, answered, lie: error(), ..good };
        }
        if !self.is_bad {
            return good;
        }
        let late = rng.random_range(0..LATE_MAX);
        match rng.random_range(0..100) {
            0..5 => Fate { done: None, lie: error(), ..good },
            5..10 => Fate { lie: error(), ..good },
            10..14 => Fate { lie: Some(Answer::Conflict), ..good },
            14..20 => Fate { done: Some(late), lie: error(), ..good },
            20..25 => Fate { again: Some(there + late), ..good },
            25..35 => {
                let there = rng.random_range(0..3 * SECOND);
                Fate { done: Some(there), answered: Some(there + back), ..good }
            }
            35..40 => Fate { answered: Some(there + rng.random_range(0..3 * SECOND)), ..good },
            40..43 => Fate { answered: None, ..good },
            43..45 => Fate { done: None, answered: None, ..good },
            _ => good,
        }
    }

    /// Does a request.
    pub(crate) fn apply(&mut self, object: &str, operation: &Operation) -> Answer {
        let found = self.objects.get(object);
        let tag = |number: u64| Tag { e_tag: Some(number.to_string()), version: None };
        let bytes = match operation {
            Operation::Read => {
                return found
                    .map_or(Answer::Missing, |(number, bytes)| Answer::Found(tag(*number), bytes.clone()));
            }
            Operation::Create(bytes) if found.is_none() => bytes,
            Operation::Replace(expected, bytes)
                if found.is_some_and(|(number, _)| tag(*number) == *expected) =>
            {
                bytes
            }
            Operation::Create(_) | Operation::Replace(..) => return Answer::Conflict,
        };
        self.writes += 1;
        self.objects.insert(object.to_owned(), (self.writes, bytes.clone()));
        Answer::Written(tag(self.writes))
    }
}
