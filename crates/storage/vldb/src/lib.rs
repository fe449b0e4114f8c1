//! The volume location database: which volumes exist, and on which servers.
//!
//! [`Locations`] is the whole interface; the VL service translates calls into its methods. Entries refer to
//! servers by their index in the table of servers ([`Servers`]), so that a change of a server's addresses
//! changes no entry. Secondary keys find entries by id, name and server, so that the cost of a lookup does
//! not depend on the number of volumes. The records are described in `docs/reference/formats/locations.md`.
//!
//! Behaviour is that of OpenAFS 1.8 with these deliberate differences: an id belongs to one volume whatever
//! its type; names that could never be looked up are rejected; entries keep their position in listings, so
//! that a listing in steps neither repeats nor misses entries; and no call examines more than a bounded
//! number of entries.

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

use store::Family;

/// The family of the database's records. Number and name are part of the format.
pub const FAMILY: Family = Family::new(6, "locations");
