//! Who may query the databases and the volume server, and the visibility of new entries in the protection
//! database.

use super::super::file::Origin;
use super::{SecuritySection, choice};
use anyhow::Result;
use base::Access;
use ptdb::{EntryFlags, Policy};
use toml::Spanned;

/// Names of classes of callers.
pub(crate) const CALLERS: [(&str, Access); 3] = [
    ("anyone", Access::Anyone),
    ("authenticated", Access::Authenticated),
    ("administrators", Access::Administrators),
];

/// Who may make read-only calls, and what the protection database permits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueryPolicy {
    /// Who may list the location database (`vlserver -restricted_query`).
    pub location: Access,
    /// Who may list volumes, partitions and transactions (`volserver -restricted_query`).
    pub volume: Access,
    /// Rules of the protection database (`ptserver -restricted`, `-restrict_anonymous`, `-default_access`).
    pub protection: Policy,
}

impl Default for QueryPolicy {
    fn default() -> QueryPolicy {
        let protection = Policy::default();
        QueryPolicy { location: Access::Anyone, volume: Access::Anyone, protection }
    }
}

impl QueryPolicy {
    pub(super) fn new(origin: &Origin<'_>, keys: &SecuritySection) -> Result<QueryPolicy> {
        let default = QueryPolicy::default();
        let callers = |text: &Option<Spanned<String>>, key: &str, default| {
            choice(origin, text.as_ref(), &format!("security.{key}"), &CALLERS, default)
        };
        Ok(QueryPolicy {
            location: callers(&keys.location_queries, "location_queries", default.location)?,
            volume: callers(&keys.volume_queries, "volume_queries", default.volume)?,
            protection: protection(origin, keys, default.protection)?,
        })
    }
}

fn protection(origin: &Origin<'_>, keys: &SecuritySection, default: Policy) -> Result<Policy> {
    let queries = [("anyone", false), ("authenticated", true)];
    let changes = [("owners", false), ("administrators", true)];
    let (asked, changed) = (keys.protection_queries.as_ref(), keys.protection_changes.as_ref());
    let (user_access, group_access) = match &keys.protection_default_access {
        None => (default.user_access, default.group_access),
        Some(texts) => {
            let [user, group] = texts.get_ref();
            (access(origin, texts, user)?, access(origin, texts, group)?)
        }
    };
    Ok(Policy {
        restrict_anonymous: choice(origin, asked, "security.protection_queries", &queries, false)?,
        restricted: choice(origin, changed, "security.protection_changes", &changes, false)?,
        user_access,
        group_access,
        ..default
    })
}

fn access(origin: &Origin<'_>, texts: &Spanned<[String; 2]>, text: &str) -> Result<u32> {
    EntryFlags::parse_access(text).ok_or_else(|| {
        let what = format!(
            "`{text}` does not consist of `S`, `s`, `O`, `M`, `m`, `A`, `a`, `r` and `-`, as in \
                `S-M--`"
        );
        origin.bad(texts, "security.protection_default_access", what)
    })
}
