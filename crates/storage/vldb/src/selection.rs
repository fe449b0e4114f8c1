//! Long lists of entries that are read while they are sent.

use crate::FAMILY;
use crate::codec::{Table, decode_location, end_of, entry_key, last_word, on_server_key};
use crate::entry::{EntryNumber, Location, ServerNumber};
use crate::error::LocationError;
use crate::listing::{Filter, LIST_ENTRIES_MAX};
use crate::locations::Locations;
use std::ops::ControlFlow;
use store::{KeyRange, Snapshot};

/// The entries that a filter selects in one state of the database.
///
/// Holds a snapshot and the numbers of the entries; the entries themselves are read on demand. The database
/// can be changed meanwhile.
pub struct Selection<'a> {
    snapshot: Box<dyn Snapshot + 'a>,
    numbers: Vec<EntryNumber>,
}

impl Locations {
    /// Selects the entries that match the filter (VL_ListAttributes, VL_ListAttributesN, VL_LinkedList,
    /// VL_LinkedListN).
    ///
    /// # Errors
    /// `TooLong` if there are more than [`LIST_ENTRIES_MAX`], and errors of the store.
    pub fn select(&self, filter: &Filter) -> Result<Selection<'_>, LocationError> {
        let mut selection = Selection { snapshot: self.snapshot(), numbers: Vec::new() };
        if let Ok(server) = self.filter_server(filter) {
            selection.fill(filter, server)?;
        }
        Ok(selection)
    }

    /// Returns all entries that [`select`](Locations::select) finds.
    ///
    /// # Errors
    /// As for [`select`](Locations::select).
    pub fn list(&self, filter: &Filter) -> Result<Vec<Location>, LocationError> {
        let selection = self.select(filter)?;
        let mut found = Vec::with_capacity(selection.len());
        selection.visit(|location| {
            found.push(location);
            Ok::<_, LocationError>(())
        })?;
        Ok(found)
    }
}

impl Selection<'_> {
    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        self.numbers.len()
    }

    /// Whether the selection has no entries.
    pub fn is_empty(&self) -> bool {
        self.numbers.is_empty()
    }

    /// Returns the memory held by the numbers, in bytes.
    pub fn held_bytes(&self) -> usize {
        size_of_val(&*self.numbers)
    }

    /// Reads the entries one by one, until `visit` fails.
    ///
    /// # Errors
    /// Errors of `visit` and of the store.
    pub fn visit<E: From<LocationError>>(
        &self,
        mut visit: impl FnMut(Location) -> Result<(), E>,
    ) -> Result<(), E> {
        for &number in &self.numbers {
            let location = self.location(number)?.ok_or(LocationError::NoEntry)?;
            visit(location)?;
        }
        Ok(())
    }

    fn fill(&mut self, filter: &Filter, server: Option<ServerNumber>) -> Result<(), LocationError> {
        let mut numbers = Vec::new();
        let mut add = |number| {
            numbers.push(number);
            if numbers.len() > LIST_ENTRIES_MAX { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        match server {
            None => {
                self.scan(&entry_key(EntryNumber(0)), &end_of(Table::Entries), |key, value| {
                    let wanted = filter.wants(None, &decode_location(value)?);
                    let number = EntryNumber(last_word(key, 0)?);
                    Ok(if wanted { add(number) } else { ControlFlow::Continue(()) })
                })?;
            }
            Some(on) => {
                let ends = [EntryNumber(0), EntryNumber(u32::MAX)].map(|number| on_server_key(on, number));
                self.scan(&ends[0], &ends[1], |key, _| {
                    let number = EntryNumber(last_word(key, 1)?);
                    let location = self.location(number)?;
                    let wanted = location.is_some_and(|location| filter.wants(server, &location));
                    Ok(if wanted { add(number) } else { ControlFlow::Continue(()) })
                })?;
            }
        }
        if numbers.len() > LIST_ENTRIES_MAX {
            return Err(LocationError::TooLong(LIST_ENTRIES_MAX));
        }
        self.numbers = numbers;
        Ok(())
    }

    fn location(&self, number: EntryNumber) -> Result<Option<Location>, LocationError> {
        let Some(next) = number.0.checked_add(1).map(EntryNumber) else { return Ok(None) };
        let mut found = None;
        self.scan(&entry_key(number), &entry_key(next), |_, value| {
            found = Some(decode_location(value)?);
            Ok(ControlFlow::Break(()))
        })?;
        Ok(found)
    }

    fn scan(
        &self,
        from: &[u8],
        to: &[u8],
        mut visit: impl FnMut(&[u8], &[u8]) -> Result<ControlFlow<()>, LocationError>,
    ) -> Result<(), LocationError> {
        let mut outcome = Ok(());
        self.snapshot.scan(FAMILY, KeyRange::ascending(from, to), &mut |key, value| {
            visit(key, value).unwrap_or_else(|error| {
                outcome = Err(error);
                ControlFlow::Break(())
            })
        })?;
        outcome
    }
}
