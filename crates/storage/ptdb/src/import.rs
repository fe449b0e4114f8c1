//! Import of the entries of another database.

use crate::entry::{Entry, Totals};
use crate::error::ProtectionError;
use crate::protection::{BUILT_IN, Protection, make_built_in};
use crate::tables::{List, Tables, opposite};
use base::{UnixTime, UserId};
use std::collections::{HashMap, HashSet};

/// The contents to import.
#[derive(Clone, Debug)]
pub struct Imported {
    /// Largest user id assigned so far.
    pub max_user: UserId,
    /// Most negative group id assigned so far.
    pub max_group: UserId,
    /// The entries in listing order, each with its elements and supergroups. Their counts and positions are
    /// recomputed.
    pub entries: Vec<(Entry, Vec<UserId>, Vec<UserId>)>,
}

/// A relation that was recorded on one side only, and was not imported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OneSided {
    /// The entry whose list had the element.
    pub holder: UserId,
    /// The element of that list.
    pub element: UserId,
}

/// What an import left out or added.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Relations that were left out.
    pub one_sided: Vec<OneSided>,
    /// Built-in entries that were missing and were made.
    pub built_in: Vec<UserId>,
}

impl Protection {
    /// Imports all entries of another database, in one change. The database must be new: its built-in entries
    /// are replaced, and there must be no others. A membership is imported only if the lists of both sides
    /// have it; those left out are returned.
    ///
    /// # Errors
    /// `NotNew`, or an entry's error: `NameExists`, `IdExists`.
    pub fn import(&self, imported: &Imported, now: UnixTime) -> Result<Outcome, ProtectionError> {
        self.write(|tables| {
            clear(tables)?;
            let lists = Lists::new(imported);
            let Outcome { mut one_sided, mut built_in } = Outcome::default();
            for (entry, _, _) in &imported.entries {
                tables.insert(Entry { count: 0, supergroup_count: 0, ..entry.clone() })?;
            }
            for (entry, elements, supergroups) in &imported.entries {
                for (list, wanted) in [(List::Elements, elements), (List::Supergroups, supergroups)] {
                    for &element in wanted {
                        if !lists.agree(list, entry.id, element) {
                            one_sided.push(OneSided { holder: entry.id, element });
                        } else if !tables.has(list, entry.id, element)? {
                            tables.add(list, entry.id, element, entry.added)?;
                        }
                    }
                }
            }
            for (id, name) in BUILT_IN {
                if tables.entry(id)?.is_none() {
                    built_in.push(id);
                    make_built_in(tables, id, name, now)?;
                }
            }
            let totals = tables.totals()?;
            let (max_user, max_group) = (imported.max_user, imported.max_group);
            tables.set_totals(&Totals { max_user, max_group, ..totals });
            Ok(Outcome { one_sided, built_in })
        })
    }
}

/// Removes the entries of a new database.
fn clear(tables: &mut Tables<'_>) -> Result<(), ProtectionError> {
    let totals = tables.totals()?;
    let count = totals.users as usize + totals.groups as usize + totals.foreign_users as usize;
    let mut built_in = Vec::new();
    for (id, _) in BUILT_IN {
        built_in.extend(tables.entry(id)?);
    }
    let used = |entry: &Entry| entry.count > 0 || entry.supergroup_count > 0;
    if count != built_in.len() || built_in.iter().any(used) {
        return Err(ProtectionError::NotNew);
    }
    for entry in &built_in {
        tables.remove(entry)?;
    }
    tables.set_totals(&Totals::EMPTY);
    Ok(())
}

/// All lists, to check whether both sides of a relation have it.
struct Lists(HashMap<UserId, [HashSet<UserId>; 2]>);

impl Lists {
    fn new(imported: &Imported) -> Lists {
        let sets = |(entry, elements, supergroups): &(Entry, Vec<UserId>, Vec<UserId>)| {
            let [elements, supergroups] = [elements, supergroups].map(|list| list.iter().copied().collect());
            (entry.id, [elements, supergroups])
        };
        Lists(imported.entries.iter().map(sets).collect())
    }

    fn has(&self, list: List, holder: UserId, element: UserId) -> bool {
        self.0.get(&holder).is_some_and(|lists| lists[list as usize].contains(&element))
    }

    fn agree(&self, list: List, holder: UserId, element: UserId) -> bool {
        holder != element && self.has(opposite(list, holder, element), element, holder)
    }
}
