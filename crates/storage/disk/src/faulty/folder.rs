//! One folder: its visible and its durable names, and the changes in between.

use rand::Rng;
use rand::rngs::SmallRng;
use std::collections::BTreeMap;

type Names = BTreeMap<String, usize>;

#[derive(Clone, Debug)]
enum Change {
    Link(String, usize),
    Unlink(String),
    Rename(String, String),
}

#[derive(Clone, Debug, Default)]
pub(super) struct Folder {
    current: Names,
    durable: Names,
    pending: Vec<Change>,
}

impl Change {
    /// Applies the change; does nothing if an earlier change that it depends on was lost.
    fn apply(&self, names: &mut Names) {
        match self {
            Change::Link(name, node) => {
                names.insert(name.clone(), *node);
            }
            Change::Unlink(name) => {
                names.remove(name);
            }
            Change::Rename(from, to) => {
                if let Some(node) = names.remove(from) {
                    names.insert(to.clone(), node);
                }
            }
        }
    }
}

impl Folder {
    pub(super) fn names(&self) -> &Names {
        &self.current
    }

    pub(super) fn link(&mut self, name: &str, node: usize) {
        self.change(Change::Link(name.to_owned(), node));
    }

    pub(super) fn unlink(&mut self, name: &str) {
        self.change(Change::Unlink(name.to_owned()));
    }

    pub(super) fn rename(&mut self, from: &str, to: &str) {
        self.change(Change::Rename(from.to_owned(), to.to_owned()));
    }

    fn change(&mut self, change: Change) {
        change.apply(&mut self.current);
        self.pending.push(change);
    }

    pub(super) fn sync(&mut self) {
        for change in self.pending.drain(..) {
            change.apply(&mut self.durable);
        }
    }

    pub(super) fn fail_sync(&mut self, rng: &mut SmallRng) {
        self.durable = self.after_crash(rng);
        self.pending.clear();
    }

    pub(super) fn crash(&self, rng: &mut SmallRng) -> Folder {
        let found = self.after_crash(rng);
        Folder { current: found.clone(), durable: found, pending: Vec::new() }
    }

    fn after_crash(&self, rng: &mut SmallRng) -> Names {
        let mut found = self.durable.clone();
        for change in &self.pending {
            if rng.random() {
                change.apply(&mut found);
            }
        }
        found
    }
}
