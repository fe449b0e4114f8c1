//! Classes of calls, and filters that select calls for a sink.

use std::fmt;

/// Class of a call, by what it affects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// Changes access lists, owners, modes, or cached group memberships of users.
    Rights,
    /// Creates, removes or renames files, directories and links.
    Names,
    /// Changes users, groups and memberships.
    Users,
    /// Creates, changes, moves, copies, dumps or removes volumes, or changes their location entries.
    Volumes,
    /// Changes keys, administrators, hosts and programs of a server, or runs something there.
    Server,
    /// Reads or writes contents of files.
    Data,
    /// Reads status, access lists and statistics.
    Status,
    /// Locks files.
    Locks,
    /// Queries databases and volume servers.
    Lookups,
    /// Everything else.
    Other,
}

/// Names of [`Class`], in order.
pub const CLASSES: [&str; 10] =
    ["rights", "names", "users", "volumes", "server", "data", "status", "locks", "lookups", "other"];

/// Name in filters for denied calls of all classes.
const DENIED: &str = "denied";
/// Name in filters for all calls.
const ALL: &str = "all";

/// Selects calls for a sink: those of some classes, and possibly denied ones of any class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Filter(u16);

impl Default for Filter {
    /// Selects calls that change anything but the contents of files, and all denied calls.
    fn default() -> Filter {
        let classes = [Class::Rights, Class::Names, Class::Users, Class::Volumes, Class::Server];
        Filter(classes.iter().fold(Filter::DENIED, |bits, class| bits | 1 << *class as u16))
    }
}

impl Filter {
    const DENIED: u16 = 1 << CLASSES.len();

    /// Selects every call.
    pub const ALL: Filter = Filter(Filter::DENIED | (Filter::DENIED - 1));

    /// Parses a filter from a list of names.
    ///
    /// # Errors
    /// The unknown name and the valid names.
    pub fn parse<'a>(names: impl IntoIterator<Item = &'a str>) -> Result<Filter, String> {
        names.into_iter().try_fold(Filter(0), |filter, name| Ok(Filter(filter.0 | bits(name)?)))
    }

    /// Whether the filter selects a call.
    pub fn wants(self, class: Class, is_denied: bool) -> bool {
        self.0 & (1 << class as u16) != 0 || is_denied && self.0 & Filter::DENIED != 0
    }

    /// Returns a filter that selects what either of the two selects.
    pub(crate) fn or(self, other: Filter) -> Filter {
        Filter(self.0 | other.0)
    }

    pub(crate) const NOTHING: Filter = Filter(0);
}

fn bits(name: &str) -> Result<u16, String> {
    let place = CLASSES.iter().position(|class| *class == name);
    match (name, place) {
        (ALL, _) => Ok(Filter::ALL.0),
        (DENIED, _) => Ok(Filter::DENIED),
        (_, Some(place)) => Ok(1 << place),
        _ => Err(format!("unknown events `{name}`; valid are {}, {DENIED} and {ALL}", CLASSES.join(", "))),
    }
}

impl Class {
    pub(crate) fn name(self) -> &'static str {
        CLASSES[self as usize]
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_selects_the_named_events() {
        let filter = Filter::parse(["rights", "denied"]).unwrap();
        assert!(filter.wants(Class::Rights, false) && filter.wants(Class::Data, true));
        assert!(!filter.wants(Class::Data, false));
        assert!(!Filter::parse(["data"]).unwrap().wants(Class::Status, true));
        assert!(Filter::ALL.wants(Class::Other, false));
        assert!(!Filter::default().wants(Class::Status, false));
        assert!(Filter::default().wants(Class::Users, false));
        let refusal = Filter::parse(["rihgts"]).unwrap_err();
        assert!(refusal.contains("`rihgts`") && refusal.contains("rights, names"), "{refusal}");
        assert_eq!(CLASSES[Class::Other as usize], "other");
    }
}
