//! The volume location database: which volumes there are, and on which servers.
//!
//! [`Locations`] is the whole of it; the VL service translates calls into its methods. Entries name
//! servers by their place in the table of servers ([`Servers`]), so that a server's change of
//! addresses changes no entry. Entries are found by id, by name and by server through secondary
//! keys, so that every look-up costs the same however many volumes there are; the records are drawn
//! in `docs/reference/formats/locations.md`.
//!
//! Behaviour is that of OpenAFS 1.8 with these deliberate differences: an id belongs to one volume
//! whatever its type, names that could never be looked up are refused, entries keep their place in
//! lists for ever so that lists in steps neither repeat nor miss entries, and no call looks at
//! more than a bounded number of entries.

mod changing;
mod codec;
mod draft;
pub mod entry;
pub mod error;
mod import;
pub mod listing;
pub mod locations;
mod lookup;
pub mod pattern;
mod selection;
pub mod servers;

#[cfg(test)]
mod tests;

pub use changing::{EntryForm, NewLocation, NewSite, SiteUpdate, Update};
pub use codec::Totals;
pub use entry::{
    EntryNumber, Location, ServerNumber, Site, VolumeQuery, entry_flags, release, site_flags, volume_type,
    without_suffix,
};
pub use error::LocationError;
pub use import::Imported;
pub use listing::{Filter, LIST_ENTRIES_MAX, Match, Step};
pub use locations::Locations;
pub use pattern::NamePattern;
pub use selection::Selection;
pub use servers::{Displaced, SERVERS_MAX, Server, Servers};
