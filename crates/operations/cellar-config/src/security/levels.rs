//! `[security.levels]`: minimum protection of calls, by service and class of caller.

use super::super::Role;
use super::super::file::Origin;
use super::choice;
use anyhow::Result;
use base::SecurityLevel;
use serde::Deserialize;
use toml::Spanned;

/// Names of rxkad's levels, as in OpenAFS's tools.
pub(crate) const LEVELS: [(&str, SecurityLevel); 3] = [
    ("clear", SecurityLevel::Clear),
    ("auth", SecurityLevel::Authenticated),
    ("crypt", SecurityLevel::Encrypted),
];

/// `[security.levels]`: levels for all services, with a table for each service that overrides them.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LevelsSection {
    anonymous: Option<bool>,
    users: Option<Spanned<String>>,
    administrators: Option<Spanned<String>>,
    cell: Option<Spanned<String>>,
    fs: Option<ClassesSection>,
    pt: Option<ClassesSection>,
    vl: Option<ClassesSection>,
    vol: Option<ClassesSection>,
    bos: Option<ClassesSection>,
    cellar: Option<ClassesSection>,
}

/// `[security.levels.SERVICE]`.
#[derive(Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct ClassesSection {
    anonymous: Option<bool>,
    users: Option<Spanned<String>>,
    administrators: Option<Spanned<String>>,
    cell: Option<Spanned<String>>,
}

impl LevelsSection {
    /// Returns the levels for all services.
    fn classes(&self) -> ClassesSection {
        ClassesSection {
            anonymous: self.anonymous,
            users: self.users.clone(),
            administrators: self.administrators.clone(),
            cell: self.cell.clone(),
        }
    }
}

impl ClassesSection {
    /// Resolves the levels of one service; `prefix` is `SERVICE.` for the service's own table.
    fn resolve(&self, origin: &Origin<'_>, prefix: &str, default: ServiceLevels) -> Result<ServiceLevels> {
        let level = |text: &Option<Spanned<String>>, class: &str, default| {
            choice(origin, text.as_ref(), &format!("security.levels.{prefix}{class}"), &LEVELS, default)
        };
        Ok(ServiceLevels {
            anonymous: self.anonymous.unwrap_or(default.anonymous),
            users: level(&self.users, "users", default.users)?,
            administrators: level(&self.administrators, "administrators", default.administrators)?,
            cell: level(&self.cell, "cell", default.cell)?,
        })
    }
}

/// How far a caller is trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CallerClass {
    /// A caller without a ticket.
    Anonymous,
    /// A caller with a ticket.
    User,
    /// A caller listed in UserList.
    Administrator,
    /// A holder of the cell's key: the cell's servers, and tools with `-localauth`.
    Cell,
}

/// Requirements of one service for its callers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServiceLevels {
    /// Whether callers without a ticket are served.
    pub anonymous: bool,
    /// Minimum level of users' calls.
    pub users: SecurityLevel,
    /// Minimum level of administrators' calls.
    pub administrators: SecurityLevel,
    /// Minimum level of calls with the cell's key.
    pub cell: SecurityLevel,
}

impl ServiceLevels {
    /// Levels that AFS clients and tools use by default: any. They choose the level themselves and do not
    /// raise it when a server requires more, so that a higher default would reject them.
    const AFS: ServiceLevels = ServiceLevels {
        anonymous: true,
        users: SecurityLevel::Clear,
        administrators: SecurityLevel::Clear,
        cell: SecurityLevel::Clear,
    };

    /// Levels of the protection service: `pts -localauth` and OpenAFS's file servers always encrypt.
    const PROTECTION: ServiceLevels =
        ServiceLevels { cell: SecurityLevel::Authenticated, ..ServiceLevels::AFS };

    /// Levels of Cellar's own service, whose clients are Cellar's own and always encrypt.
    const CELLAR: ServiceLevels = ServiceLevels {
        administrators: SecurityLevel::Encrypted,
        cell: SecurityLevel::Encrypted,
        ..ServiceLevels::AFS
    };

    /// Returns the minimum level of a class's calls; `None` if the class is not served.
    pub fn least(&self, class: CallerClass) -> Option<SecurityLevel> {
        match class {
            CallerClass::Anonymous => self.anonymous.then_some(SecurityLevel::Clear),
            CallerClass::User => Some(self.users),
            CallerClass::Administrator => Some(self.administrators),
            CallerClass::Cell => Some(self.cell),
        }
    }
}

/// Requirements of each service for its callers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LevelPolicy {
    /// File server.
    pub fs: ServiceLevels,
    /// Protection server.
    pub pt: ServiceLevels,
    /// Volume location server.
    pub vl: ServiceLevels,
    /// Volume server.
    pub vol: ServiceLevels,
    /// Basic overseer.
    pub bos: ServiceLevels,
    /// Cellar's own service, on the ports of the file and the volume server.
    pub cellar: ServiceLevels,
}

impl Default for LevelPolicy {
    fn default() -> LevelPolicy {
        let (afs, pt) = (ServiceLevels::AFS, ServiceLevels::PROTECTION);
        LevelPolicy { fs: afs, pt, vl: afs, vol: afs, bos: afs, cellar: ServiceLevels::CELLAR }
    }
}

impl LevelPolicy {
    /// Returns the requirements on a role's port, for Cellar's own service or for the others there.
    pub fn of(&self, role: Role, is_cellars_own: bool) -> ServiceLevels {
        match role {
            _ if is_cellars_own => self.cellar,
            Role::Fs => self.fs,
            Role::Pt => self.pt,
            Role::Vl => self.vl,
            Role::Vol => self.vol,
            Role::Bos => self.bos,
        }
    }

    /// Resolves the levels of a section. Servers configured to call each other at a lower level than the
    /// default also accept that level from each other.
    pub(super) fn new(
        origin: &Origin<'_>,
        section: &LevelsSection,
        own_calls: SecurityLevel,
    ) -> Result<LevelPolicy> {
        let mut default = LevelPolicy::default();
        for levels in [&mut default.pt, &mut default.cellar] {
            levels.cell = levels.cell.min(own_calls);
        }
        let resolve = |name: &str, own: &Option<ClassesSection>, default: ServiceLevels| {
            let all = section.classes().resolve(origin, "", default)?;
            own.as_ref().map_or(Ok(all), |own| own.resolve(origin, &format!("{name}."), all))
        };
        Ok(LevelPolicy {
            fs: resolve("fs", &section.fs, default.fs)?,
            pt: resolve("pt", &section.pt, default.pt)?,
            vl: resolve("vl", &section.vl, default.vl)?,
            vol: resolve("vol", &section.vol, default.vol)?,
            bos: resolve("bos", &section.bos, default.bos)?,
            cellar: resolve("cellar", &section.cellar, default.cellar)?,
        })
    }
}
