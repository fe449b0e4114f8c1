//! Lists of entries by server, partition, flags and name.

use crate::entry::{EntryNumber, Location, ServerNumber, Site, entry_flags, site_flags};
use crate::error::LocationError;
use crate::locations::Locations;
use crate::pattern::NamePattern;
use std::net::Ipv4Addr;
use std::ops::ControlFlow;

/// Maximum number of entries in the reply of a call that returns all entries.
pub const LIST_ENTRIES_MAX: usize = 200_000;
/// Maximum number of entries examined in one step of a listing, so that a pattern with few matches does not
/// occupy a worker for long.
const STEP_ENTRIES_MAX: usize = 50_000;

/// Criteria for entries to list; `None` matches every entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Only entries with a site on the server that has this address.
    pub server: Option<Ipv4Addr>,
    /// Only entries with a site on this partition (of that server).
    pub partition: Option<i32>,
    /// Only entries with any of these [`entry_flags`].
    pub flags: Option<u32>,
}

impl Filter {
    fn wants_site(&self, server: Option<ServerNumber>, site: Site) -> bool {
        server.is_none_or(|server| site.server == server)
            && self.partition.is_none_or(|partition| i32::from(site.partition) == partition)
    }

    fn wants_flags(&self, location: &Location) -> bool {
        self.flags.is_none_or(|flags| location.flags & flags != 0)
    }

    pub(crate) fn wants(&self, server: Option<ServerNumber>, location: &Location) -> bool {
        let any_site = server.is_none() && self.partition.is_none();
        self.wants_flags(location)
            && (any_site || location.sites.iter().any(|site| self.wants_site(server, *site)))
    }
}

/// An entry, and how it matched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Match {
    /// The entry.
    pub location: Location,
    /// The volume that matched, as a site flag: read-write, read-only or backup.
    pub kind: u8,
    /// Index of the site that matched.
    pub site: usize,
}

/// One step of a listing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// Matches in listing order.
    pub matches: Vec<Match>,
    /// The entry to continue after, if there may be more.
    pub next: Option<EntryNumber>,
}

impl Locations {
    /// Returns the number of the filter's server; `Err(())` if nothing can match.
    pub(crate) fn filter_server(&self, filter: &Filter) -> Result<Option<ServerNumber>, ()> {
        match filter.server {
            None => Ok(None),
            Some(address) => self.servers().by_address(address).map(Some).ok_or(()),
        }
    }

    /// Returns up to `limit` entries after `previous` that have a volume with a matching name on a wanted
    /// site (VL_ListAttributesN2). A step may be short or even empty without being the last.
    pub fn list_matching(
        &self,
        filter: &Filter,
        pattern: Option<&NamePattern>,
        previous: EntryNumber,
        limit: usize,
    ) -> Result<Step, LocationError> {
        let Ok(server) = self.filter_server(filter) else {
            return Ok(Step::default());
        };
        let mut step = Step::default();
        let mut looked_at = 0;
        self.lookup().entries(previous, server, &mut |number, location| {
            looked_at += 1;
            if filter.wants_flags(&location)
                && let Some((kind, site)) = best_match(&location, server, filter, pattern)
            {
                step.matches.push(Match { location, kind, site });
            }
            if step.matches.len() < limit && looked_at < STEP_ENTRIES_MAX {
                return ControlFlow::Continue(());
            }
            step.next = Some(number);
            ControlFlow::Break(())
        })?;
        Ok(step)
    }
}

/// Returns the volume and site that match best, by the rule of OpenAFS: the last wanted site up to the
/// read-write site, or the first wanted site after it if there is none.
fn best_match(
    location: &Location,
    server: Option<ServerNumber>,
    filter: &Filter,
    pattern: Option<&NamePattern>,
) -> Option<(u8, usize)> {
    let matches = |suffix: &str| pattern.is_none_or(|p| p.matches(&format!("{}{suffix}", location.name)));
    let mut best = None;
    let mut seen_rw_site = false;
    for (at, site) in location.sites.iter().enumerate() {
        let is_rw_site = site.flags & site_flags::READ_WRITE != 0;
        let kind = if is_rw_site {
            rw_or_backup(location, matches)
        } else {
            (site.flags & site_flags::READ_ONLY != 0 && matches(".readonly")).then_some(site_flags::READ_ONLY)
        };
        if let Some(kind) = kind.filter(|_| filter.wants_site(server, *site)) {
            best = Some((kind, at));
        }
        seen_rw_site |= is_rw_site;
        if seen_rw_site && best.is_some() {
            break;
        }
    }
    best
}

fn rw_or_backup(location: &Location, matches: impl Fn(&str) -> bool) -> Option<u8> {
    if location.flags & entry_flags::RW_EXISTS != 0 && matches("") {
        Some(site_flags::READ_WRITE)
    } else if location.flags & entry_flags::BACKUP_EXISTS != 0 && matches(".backup") {
        Some(site_flags::BACKUP)
    } else {
        None
    }
}
