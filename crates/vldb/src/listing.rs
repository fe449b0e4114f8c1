//! Lists of entries by server, partition, flags and name.

use crate::entry::{EntryNumber, Location, ServerNumber, Site, entry_flags, site_flags};
use crate::error::LocationError;
use crate::locations::Locations;
use crate::pattern::NamePattern;
use std::net::Ipv4Addr;
use std::ops::ControlFlow;

/// Most entries in one answer of the calls that answer with everything at once.
pub const LIST_ENTRIES_MAX: usize = 200_000;
/// Most entries looked at for one step of a list in steps, so that a pattern that hardly matches
/// does not hold a worker for long.
const STEP_ENTRIES_MAX: usize = 50_000;

/// Which entries to list; `None` does not narrow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// With a site on the server that has this address.
    pub server: Option<Ipv4Addr>,
    /// With a site (on that server) on this partition.
    pub partition: Option<i32>,
    /// With any of these [`entry_flags`].
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
    /// Which volume matched, as a site flag: read-write, read-only or backup.
    pub kind: u8,
    /// At which of the sites.
    pub site: usize,
}

/// One step of a list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// Matches in listing order.
    pub matches: Vec<Match>,
    /// Where to go on, if there may be more.
    pub next: Option<EntryNumber>,
}

impl Locations {
    /// The filter's server by number; `Err(())` if nothing can match.
    pub(crate) fn filter_server(&self, filter: &Filter) -> Result<Option<ServerNumber>, ()> {
        match filter.server {
            None => Ok(None),
            Some(address) => self.servers().by_address(address).map(Some).ok_or(()),
        }
    }

    /// At most `limit` entries behind `previous` of which a volume on a wanted site has a name that
    /// matches (VL_ListAttributesN2). A step may be short, even empty, without being the last.
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

/// The volume and site that match best, found as OpenAFS does: the last wanted site up to the
/// read-write site, or if there is none among those the first one behind it.
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
