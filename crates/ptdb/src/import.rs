//! Taking over the entries of another database.

use crate::entry::{Entry, Totals};
use crate::error::ProtectionError;
use crate::protection::{BUILT_IN, Protection, make_built_in};
use crate::tables::{List, Tables, opposite};
use base::{UnixTime, UserId};
use std::collections::{HashMap, HashSet};

/// What is taken over.
#[derive(Clone, Debug)]
pub struct Imported {
    /// Largest user id given out.
    pub max_user: UserId,
    /// Most negative group id given out.
    pub max_group: UserId,
    /// The entries in the order that lists are to have, each with its elements and supergroups. Their
    /// counts and positions are made anew.
    pub entries: Vec<(Entry, Vec<UserId>, Vec<UserId>)>,
}

/// A relation that stood on one side only and was left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OneSided {
    /// Whose list had it.
    pub holder: UserId,
    /// What stood there.
    pub element: UserId,
}

impl Protection {
    /// Takes over all entries of another database, in one change. This one must be new: it has no
    /// entries besides the built-in ones, which are replaced. A membership counts only if the user's
    /// and the group's list agree on it; what was left out is returned.
    ///
    /// # Errors
    /// `NotNew`, or what is wrong with an entry: `NameExists`, `IdExists`.
    pub fn import(&self, imported: &Imported, now: UnixTime) -> Result<Vec<OneSided>, ProtectionError> {
        self.write(|tables| {
            clear(tables)?;
            let lists = Lists::new(imported);
            let mut one_sided = Vec::new();
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
                    make_built_in(tables, id, name, now)?;
                }
            }
            let totals = tables.totals()?;
            let (max_user, max_group) = (imported.max_user, imported.max_group);
            tables.set_totals(&Totals { max_user, max_group, ..totals });
            Ok(one_sided)
        })
    }
}

/// Takes out what a new database has.
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

/// All lists, to see whether both sides of a relation have it.
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
