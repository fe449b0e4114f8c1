//! Typed access to the protection records; keeps entries and secondary keys consistent.

use crate::codec::{
    Table, decode_entry, decode_totals, encode_entry, encode_totals, id_key, id_value, last_id, name_key,
    position_key, prefix,
};
use crate::entry::{Entry, Totals};
use crate::error::{ProtectionError, shown};
use crate::overlay::Overlay;
use base::{UnixTime, UserId};
use std::collections::BTreeSet;
use std::ops::ControlFlow;
use store::{Batch, MetaStore};

/// Default number of levels of nested groups that `is_member` and the protection set follow (`-depth`).
pub(crate) const DEPTH_DEFAULT: u32 = 5;

/// One of the two lists of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum List {
    /// Members of a group, or groups of a user.
    Elements,
    /// Groups that a group is in.
    Supergroups,
}

impl List {
    fn table(self) -> Table {
        match self {
            List::Elements => Table::Elements,
            List::Supergroups => Table::Supergroups,
        }
    }

    fn count(self, entry: &mut Entry) -> &mut u32 {
        match self {
            List::Elements => &mut entry.count,
            List::Supergroups => &mut entry.supergroup_count,
        }
    }
}

/// All tables, including the uncommitted changes of one operation.
pub(crate) struct Tables<'a>(Overlay<'a>);

impl<'a> Tables<'a> {
    pub(crate) fn new(meta: &'a dyn MetaStore) -> Tables<'a> {
        Tables(Overlay::new(meta))
    }

    pub(crate) fn into_batch(self) -> Batch {
        self.0.into_batch()
    }

    /// Returns the totals; `None` if the database was never initialised.
    pub(crate) fn stored_totals(&self) -> Result<Option<Totals>, ProtectionError> {
        self.0.get(&prefix(Table::Totals))?.map(|value| decode_totals(&value)).transpose()
    }

    pub(crate) fn totals(&self) -> Result<Totals, ProtectionError> {
        Ok(self.stored_totals()?.unwrap_or(Totals::EMPTY))
    }

    pub(crate) fn set_totals(&mut self, totals: &Totals) {
        self.0.put(prefix(Table::Totals), encode_totals(totals));
    }

    pub(crate) fn entry(&self, id: UserId) -> Result<Option<Entry>, ProtectionError> {
        self.0.get(&id_key(Table::Entries, &[id]))?.map(|value| decode_entry(&value)).transpose()
    }

    /// Returns the entry, or an error if it does not exist.
    pub(crate) fn need(&self, id: UserId) -> Result<Entry, ProtectionError> {
        self.entry(id)?.ok_or(ProtectionError::NoEntry(id))
    }

    pub(crate) fn id_of(&self, name: &[u8]) -> Result<Option<UserId>, ProtectionError> {
        self.0.get(&name_key(name))?.map(|value| id_value(&value)).transpose()
    }

    pub(crate) fn id_at(&self, position: u32) -> Result<Option<UserId>, ProtectionError> {
        self.0.get(&position_key(position))?.map(|value| id_value(&value)).transpose()
    }

    /// Adds a new entry at the next position and counts it.
    pub(crate) fn insert(&mut self, mut entry: Entry) -> Result<(), ProtectionError> {
        if self.entry(entry.id)?.is_some() {
            return Err(ProtectionError::IdExists(entry.id));
        }
        if self.id_of(&entry.name)?.is_some() {
            return Err(ProtectionError::NameExists(shown(&entry.name)));
        }
        let mut totals = self.totals()?;
        entry.position = totals.next_position;
        totals.next_position = entry.position.checked_add(1).ok_or(ProtectionError::NoIds)?;
        let counter = totals.counter(&entry);
        *counter = counter.saturating_add(1);
        self.set_totals(&totals);
        self.write(&entry);
        Ok(())
    }

    /// Replaces `old` by `new`, which keeps the position. The lists remain under the old id.
    pub(crate) fn update(&mut self, old: &Entry, new: &Entry) {
        self.erase(old);
        self.write(new);
    }

    /// Removes the entry. Its lists must be empty.
    pub(crate) fn remove(&mut self, entry: &Entry) -> Result<(), ProtectionError> {
        let mut totals = self.totals()?;
        let counter = totals.counter(entry);
        *counter = counter.saturating_sub(1);
        self.set_totals(&totals);
        self.erase(entry);
        Ok(())
    }

    fn write(&mut self, entry: &Entry) {
        let id = entry.id.0.to_be_bytes();
        self.0.put(id_key(Table::Entries, &[entry.id]), encode_entry(entry));
        self.0.put(name_key(&entry.name), id);
        self.0.put(position_key(entry.position), id);
        if entry.is_group() {
            self.0.put(id_key(Table::Owned, &[entry.owner, entry.id]), []);
        }
    }

    fn erase(&mut self, entry: &Entry) {
        self.0.delete(id_key(Table::Entries, &[entry.id]));
        self.0.delete(name_key(&entry.name));
        self.0.delete(position_key(entry.position));
        self.0.delete(id_key(Table::Owned, &[entry.owner, entry.id]));
    }

    pub(crate) fn has(&self, list: List, holder: UserId, element: UserId) -> Result<bool, ProtectionError> {
        Ok(self.0.get(&id_key(list.table(), &[holder, element]))?.is_some())
    }

    /// Adds `element` to a list of `holder`, and updates the holder's count and time of the last addition.
    pub(crate) fn add(
        &mut self,
        list: List,
        holder: UserId,
        element: UserId,
        now: UnixTime,
    ) -> Result<(), ProtectionError> {
        if holder == element {
            return Err(ProtectionError::Inconsistent(holder));
        }
        if self.has(list, holder, element)? {
            return Err(ProtectionError::IdExists(element));
        }
        let mut entry = self.need(holder)?;
        let count = list.count(&mut entry);
        *count = count.saturating_add(1);
        entry.added = now;
        self.write(&entry);
        self.0.put(id_key(list.table(), &[holder, element]), []);
        Ok(())
    }

    /// Removes `element` from a list of `holder`, and updates the holder's count and time of the last
    /// removal.
    pub(crate) fn take(
        &mut self,
        list: List,
        holder: UserId,
        element: UserId,
        now: UnixTime,
    ) -> Result<(), ProtectionError> {
        if holder == element {
            return Err(ProtectionError::Inconsistent(holder));
        }
        let mut entry = self.need(holder)?;
        if !self.has(list, holder, element)? {
            return Err(ProtectionError::NoElement { holder, element });
        }
        let count = list.count(&mut entry);
        *count = count.saturating_sub(1);
        entry.removed = now;
        self.write(&entry);
        self.0.delete(id_key(list.table(), &[holder, element]));
        Ok(())
    }

    /// Moves a list to a new holder, and replaces the old holder in the lists of its elements.
    pub(crate) fn rename_in_lists(
        &mut self,
        list: List,
        old: UserId,
        new: UserId,
    ) -> Result<(), ProtectionError> {
        for element in self.elements(list, old, usize::MAX)? {
            let other = opposite(list, old, element);
            self.0.delete(id_key(list.table(), &[old, element]));
            self.0.delete(id_key(other.table(), &[element, old]));
            self.0.put(id_key(list.table(), &[new, element]), []);
            self.0.put(id_key(other.table(), &[element, new]), []);
        }
        Ok(())
    }

    /// Returns up to `limit` elements of a list in ascending order.
    pub(crate) fn elements(
        &self,
        list: List,
        holder: UserId,
        limit: usize,
    ) -> Result<Vec<UserId>, ProtectionError> {
        self.ids_under(&id_key(list.table(), &[holder]), &[], limit, |_| true)
    }

    /// Returns the groups among a group's members.
    fn member_groups(&self, group: UserId) -> Result<Vec<UserId>, ProtectionError> {
        self.ids_under(&id_key(Table::Elements, &[group]), &[], usize::MAX, UserId::is_group)
    }

    /// Returns up to `limit` groups that `owner` owns (0: orphans), starting at group `from`.
    pub(crate) fn owned(
        &self,
        owner: UserId,
        from: Option<UserId>,
        limit: usize,
    ) -> Result<Vec<UserId>, ProtectionError> {
        let from = from.map(|from| id_key(Table::Owned, &[owner, from])).unwrap_or_default();
        self.ids_under(&id_key(Table::Owned, &[owner]), &from, limit, |_| true)
    }

    /// Returns the ids at the end of the keys under `prefix` in ascending order, up to the first that is not
    /// `wanted`.
    fn ids_under(
        &self,
        prefix: &[u8],
        from: &[u8],
        limit: usize,
        wanted: fn(UserId) -> bool,
    ) -> Result<Vec<UserId>, ProtectionError> {
        let mut found = Vec::new();
        let mut failed = None;
        self.0.scan(prefix, from, &mut |key, _| match last_id(key) {
            Ok(id) if found.len() < limit && wanted(id) => {
                found.push(id);
                ControlFlow::Continue(())
            }
            Ok(_) => ControlFlow::Break(()),
            Err(error) => {
                failed = Some(error);
                ControlFlow::Break(())
            }
        })?;
        failed.map_or(Ok(found), Err)
    }

    /// Visits positions and ids, starting at `position`.
    pub(crate) fn positions(
        &self,
        position: u32,
        visit: &mut dyn FnMut(u32, UserId) -> ControlFlow<()>,
    ) -> Result<(), ProtectionError> {
        self.0.scan(&prefix(Table::Positions), &position_key(position), &mut |key, value| {
            let position = key.last_chunk::<4>().map(|bytes| u32::from_be_bytes(*bytes));
            match (position, id_value(value)) {
                (Some(position), Ok(id)) => visit(position, id),
                _ => ControlFlow::Break(()),
            }
        })
    }

    /// Whether `id` is in `group`, directly or through a chain of at most `depth` groups including `group`.
    pub(crate) fn is_member(&self, id: UserId, group: UserId, depth: u32) -> Result<bool, ProtectionError> {
        if group == UserId::ANYUSER || (group == UserId::AUTHUSER && id != UserId::ANONYMOUS) {
            return Ok(true);
        }
        if group == UserId::ADMINISTRATORS && id == UserId::ADMINISTRATORS {
            return Ok(true);
        }
        if id.0 == 0 || !group.is_group() {
            return Ok(false);
        }
        self.is_nested_member(id, group, depth)
    }

    /// Searches level by level downwards. Reads only the groups among the members, so the cost does not grow
    /// with the number of users in them.
    fn is_nested_member(&self, id: UserId, group: UserId, depth: u32) -> Result<bool, ProtectionError> {
        let mut level = vec![group];
        let mut seen = BTreeSet::from([group]);
        for _ in 0..depth {
            let mut next = Vec::new();
            for &group in &level {
                if self.holds(group, id)? {
                    return Ok(true);
                }
                next.extend(self.member_groups(group)?.into_iter().filter(|&inner| seen.insert(inner)));
            }
            level = next;
        }
        Ok(false)
    }

    /// Whether the members of `group` include `id`, or a pseudo group that `id` belongs to.
    fn holds(&self, group: UserId, id: UserId) -> Result<bool, ProtectionError> {
        Ok(self.has(List::Elements, group, id)?
            || self.has(List::Elements, group, UserId::ANYUSER)?
            || (id != UserId::ANONYMOUS && self.has(List::Elements, group, UserId::AUTHUSER)?))
    }

    /// Returns the groups of `id` and, up to `depth` levels, the groups that contain them.
    pub(crate) fn groups_of(&self, id: UserId, depth: u32) -> Result<BTreeSet<UserId>, ProtectionError> {
        let mut level = self.elements(List::Elements, id, usize::MAX)?;
        let mut found: BTreeSet<UserId> = level.iter().copied().collect();
        for _ in 0..depth {
            let mut next = Vec::new();
            for &group in &level {
                let above = self.elements(List::Supergroups, group, usize::MAX)?;
                next.extend(above.into_iter().filter(|&group| found.insert(group)));
            }
            level = next;
        }
        Ok(found)
    }
}

/// Returns the list of `element` that contains `holder` if `list` of `holder` contains `element`.
pub(crate) fn opposite(list: List, holder: UserId, element: UserId) -> List {
    let both_groups = holder.is_group() && element.is_group();
    match list {
        List::Elements if both_groups => List::Supergroups,
        List::Elements | List::Supergroups => List::Elements,
    }
}
