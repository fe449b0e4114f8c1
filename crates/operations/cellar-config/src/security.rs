//! `[security]`: permitted callers, required protection of calls and trusted keys.
//! docs/reference/configuration.md describes every key.

mod levels;
mod queries;

use super::file::Origin;
use crate::files::Exposure;
use anyhow::{Context, Result};
use base::SecurityLevel;
pub(crate) use levels::LEVELS;
use levels::LevelsSection;
pub use levels::{CallerClass, LevelPolicy, ServiceLevels};
pub(crate) use queries::CALLERS;
pub use queries::QueryPolicy;
use rx_proto::DebugAudience;
use rx_security::Enctype;
use serde::Deserialize;
use std::net::{IpAddr, Ipv4Addr, SocketAddrV4};
use std::path::Path;
use toml::Spanned;

/// Default maximum by which the clock of a Kerberos server may be ahead, in seconds, as in OpenAFS.
const CLOCK_SKEW_SECONDS: u32 = 900;

/// Clock difference in seconds from which the log has a warning: Kerberos's own limit.
const CLOCK_WARNING_SECONDS: u32 = 300;

/// UDP port of volume servers.
const VOLUME_SERVER_PORT: u16 = 7005;

/// Values of `rxdebug`.
pub(crate) const AUDIENCES: [(&str, DebugAudience); 3] = [
    ("anyone", DebugAudience::Anyone),
    ("own-hosts", DebugAudience::OwnHosts),
    ("nobody", DebugAudience::Nobody),
];

/// The `[security]` section of `cellar.toml`.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SecuritySection {
    clock_skew_seconds: Option<Spanned<u32>>,
    clock_warning_seconds: Option<Spanned<u32>>,
    dotted_principals: Option<bool>,
    weak_enctypes: Option<Vec<Spanned<String>>>,
    own_calls: Option<Spanned<String>>,
    forward_destinations: Option<Vec<Spanned<String>>>,
    rxdebug: Option<Spanned<String>>,
    own_hosts: Option<Vec<Spanned<String>>>,
    location_queries: Option<Spanned<String>>,
    volume_queries: Option<Spanned<String>>,
    protection_queries: Option<Spanned<String>>,
    protection_changes: Option<Spanned<String>>,
    protection_default_access: Option<Spanned<[String; 2]>>,
    loose_key_files: Option<bool>,
    #[serde(default)]
    levels: LevelsSection,
}

/// Requirements for callers, and for the server's own calls to others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecuritySettings {
    /// Maximum time by which a ticket's start may be in the future, in seconds.
    pub clock_skew_seconds: u32,
    /// Time from which the log warns of such a ticket that is accepted, in seconds.
    pub clock_warning_seconds: u32,
    /// Whether the first component of a Kerberos principal may contain a dot.
    pub dotted_principals: bool,
    /// Broken encryption types that are still accepted in keys and tickets.
    pub weak_enctypes: Vec<Enctype>,
    /// Security level of this server's calls to other servers.
    pub own_calls: SecurityLevel,
    /// Permitted destinations of volumes, in addition to the file servers in the location database.
    pub forward_destinations: Vec<SocketAddrV4>,
    /// What to do with key files that other users of the machine can access.
    pub key_files: Exposure,
    /// Who may send DEBUG and VERSION packets (`rxdebug`).
    pub rxdebug: DebugAudience,
    /// Hosts that receive full answers, in addition to this one.
    pub own_hosts: Vec<IpAddr>,
    /// Minimum level of calls, by service and class of caller.
    pub levels: LevelPolicy,
    /// Who may query the databases and the volume server.
    pub queries: QueryPolicy,
}

impl Default for SecuritySettings {
    fn default() -> SecuritySettings {
        SecuritySettings {
            clock_skew_seconds: CLOCK_SKEW_SECONDS,
            clock_warning_seconds: CLOCK_WARNING_SECONDS,
            dotted_principals: false,
            weak_enctypes: Vec::new(),
            own_calls: SecurityLevel::Encrypted,
            forward_destinations: Vec::new(),
            rxdebug: DebugAudience::default(),
            own_hosts: Vec::new(),
            key_files: Exposure::Refused,
            levels: LevelPolicy::default(),
            queries: QueryPolicy::default(),
        }
    }
}

/// A file with only this section, for servers with OpenAFS's configuration files.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SecurityFile {
    #[serde(default)]
    security: SecuritySection,
}

impl SecuritySettings {
    /// Returns whether keys of this type are used.
    pub fn allows(&self, enctype: Enctype) -> bool {
        let is_single_des = |enctype| matches!(enctype, Enctype::DesCbcCrc | Enctype::DesCbcMd5);
        let is_meant = |weak: &Enctype| *weak == enctype || is_single_des(*weak) && is_single_des(enctype);
        !enctype.is_weak() || self.weak_enctypes.iter().any(is_meant)
    }

    /// Loads the settings from a file with only this section; the defaults if the file does not exist.
    ///
    /// # Errors
    /// If the file cannot be read or parsed.
    pub fn load(path: &Path) -> Result<SecuritySettings> {
        let Some(text) = super::openafs::read_optional(path)? else { return Ok(SecuritySettings::default()) };
        let file: SecurityFile = toml::from_str(&text).with_context(|| format!("in {}", path.display()))?;
        SecuritySettings::new(&Origin::new(path, &text), &file.security)
    }

    /// Resolves the settings of a section.
    pub(super) fn new(origin: &Origin<'_>, section: &SecuritySection) -> Result<SecuritySettings> {
        let default = SecuritySettings::default();
        let own_calls = choice(
            origin,
            section.own_calls.as_ref(),
            "security.own_calls",
            &levels::LEVELS,
            default.own_calls,
        )?;
        Ok(SecuritySettings {
            clock_skew_seconds: origin.bounded(
                section.clock_skew_seconds.as_ref(),
                "security.clock_skew_seconds",
                default.clock_skew_seconds,
                0,
                3600,
            )?,
            clock_warning_seconds: origin.bounded(
                section.clock_warning_seconds.as_ref(),
                "security.clock_warning_seconds",
                default.clock_warning_seconds,
                1,
                3600,
            )?,
            dotted_principals: section.dotted_principals.unwrap_or(default.dotted_principals),
            weak_enctypes: weak_enctypes(origin, section.weak_enctypes.as_deref().unwrap_or_default())?,
            own_calls,
            forward_destinations: destinations(origin, section.forward_destinations.as_deref())?,
            key_files: exposure(section.loose_key_files),
            rxdebug: choice(
                origin,
                section.rxdebug.as_ref(),
                "security.rxdebug",
                &AUDIENCES,
                default.rxdebug,
            )?,
            own_hosts: hosts(origin, section.own_hosts.as_deref().unwrap_or_default())?,
            levels: LevelPolicy::new(origin, &section.levels, own_calls)?,
            queries: QueryPolicy::new(origin, section)?,
        })
    }
}

/// Returns the meaning of `loose_key_files`.
pub fn exposure(loose: Option<bool>) -> Exposure {
    if loose == Some(true) { Exposure::Allowed } else { Exposure::Refused }
}

/// Returns the value of a key with a fixed set of words, or `default` if the key is absent. The error for an
/// unknown word lists the valid ones.
pub(super) fn choice<T: Copy>(
    origin: &Origin<'_>,
    text: Option<&Spanned<String>>,
    key: &str,
    words: &[(&str, T)],
    default: T,
) -> Result<T> {
    let Some(text) = text else { return Ok(default) };
    let known = words.iter().find(|(word, _)| word == text.get_ref());
    known.map(|(_, value)| *value).ok_or_else(|| {
        let valid: Vec<String> = words.iter().map(|(word, _)| format!("\"{word}\"")).collect();
        origin.bad(text, key, format!("`{}` is not known; valid are {}", text.get_ref(), valid.join(", ")))
    })
}

/// Parses the names. Both single DES types count as one, because their keys are identical. Kerberos 4
/// tickets need single DES too.
fn weak_enctypes(origin: &Origin<'_>, names: &[Spanned<String>]) -> Result<Vec<Enctype>> {
    let weak = Enctype::ALL.into_iter().filter(|enctype| enctype.is_weak());
    let words: Vec<(&str, Enctype)> = weak.map(|enctype| (enctype.name(), enctype)).collect();
    let parse = |name| choice(origin, Some(name), "security.weak_enctypes", &words, Enctype::DesCbcCrc);
    names.iter().map(parse).collect()
}

fn hosts(origin: &Origin<'_>, texts: &[Spanned<String>]) -> Result<Vec<IpAddr>> {
    let parse = |text: &Spanned<String>| {
        text.get_ref().parse().map_err(|_| {
            let what = format!("`{}` is not an address like `192.0.2.1`", text.get_ref());
            origin.bad(text, "security.own_hosts", what)
        })
    };
    texts.iter().map(parse).collect()
}

fn destinations(origin: &Origin<'_>, texts: Option<&[Spanned<String>]>) -> Result<Vec<SocketAddrV4>> {
    let alone = |text: &str| text.parse::<Ipv4Addr>().map(|host| SocketAddrV4::new(host, VOLUME_SERVER_PORT));
    let parse = |text: &Spanned<String>| {
        text.get_ref().parse().or_else(|_| alone(text.get_ref())).map_err(|_| {
            let what = format!("`{}` is not an address like `192.0.2.1` or `192.0.2.1:7005`", text.get_ref());
            origin.bad(text, "security.forward_destinations", what)
        })
    };
    texts.unwrap_or_default().iter().map(parse).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_its_own_has_the_section_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cellar-security.toml");
        assert_eq!(SecuritySettings::load(&path).unwrap(), SecuritySettings::default());
        std::fs::write(&path, "[security]\nclock_skew_seconds = 60\n").unwrap();
        assert_eq!(SecuritySettings::load(&path).unwrap().clock_skew_seconds, 60);
        for (text, words) in [
            ("[cell]\nname = \"x\"", ["cellar-security.toml", "line 1", "`security`"]),
            ("[security]\nown_calls = \"x\"", ["cellar-security.toml", "line 2", "security.own_calls"]),
        ] {
            std::fs::write(&path, text).unwrap();
            let refusal = format!("{:#}", SecuritySettings::load(&path).unwrap_err());
            assert!(words.iter().all(|word| refusal.contains(word)), "{refusal}");
        }
    }
}
