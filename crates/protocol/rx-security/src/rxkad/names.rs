//! Principal names: conversion from Kerberos 5 to AFS's Kerberos 4 style, and the cell's own realms.

use base::Principal;

use crate::SecurityError;

/// Maximum length of a name, instance or realm in bytes (`MAXKTCNAMELEN` without its NUL).
const NAME_BYTES_MAX: usize = 63;

/// Services with a short host name in Kerberos 4 and a full one in Kerberos 5.
const HOST_SERVICES: &[&str] = &[
    "abs",
    "acap",
    "afpserver",
    "argus",
    "changepw",
    "daemon",
    "discuss",
    "ecat",
    "ftp",
    "gdss",
    "gnats",
    "http",
    "imap",
    "irc",
    "khttp",
    "ldap",
    "lmtp",
    "mandarin",
    "mandarin-agent",
    "moira",
    "mupdate",
    "news",
    "nfs",
    "olc",
    "palladium",
    "pgpsigner",
    "pop",
    "prms",
    "register",
    "rfs",
    "rvdsrv",
    "sample",
    "sis",
    "smtp",
    "sms",
    "tftp",
    "write",
];

/// Decodes a part of a name. Refuses characters that would make names ambiguous in AFS: control characters,
/// and `@`, which separates a realm.
pub(super) fn text(bytes: &[u8]) -> Result<String, SecurityError> {
    if bytes.len() > NAME_BYTES_MAX {
        return Err(SecurityError::BadTicket("name is too long"));
    }
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.chars().any(|letter| letter.is_control() || letter == '@') => Ok(text.to_owned()),
        _ => Err(SecurityError::BadTicket("name has letters that are not allowed")),
    }
}

/// Returns name and instance of a Kerberos 5 principal.
///
/// The first component must not have a dot unless `dots_allowed`: AFS writes `name.instance`, so that the
/// principals `joe.admin` and `joe/admin` would be the same user.
pub(super) fn from_kerberos_5(
    components: &[Vec<u8>],
    dots_allowed: bool,
) -> Result<(String, String), SecurityError> {
    let (first, second) = match components {
        [name] => (text(name)?, String::new()),
        [name, instance] => (text(name)?, text(instance)?),
        _ => return Err(SecurityError::BadTicket("name has not one or two components")),
    };
    if first.is_empty() {
        return Err(SecurityError::BadTicket("name is empty"));
    }
    if first.contains('.') && !dots_allowed {
        return Err(SecurityError::DottedName);
    }
    if components.len() == 1 {
        return Ok((first, second));
    }
    let short_host = || match second.split_once('.') {
        Some((host, _)) => Ok(host.to_owned()),
        None => Err(SecurityError::BadTicket("service's host name is not a full one")),
    };
    match first.as_str() {
        "host" => Ok(("rcmd".to_owned(), short_host()?)),
        service if HOST_SERVICES.contains(&service) => Ok((first, short_host()?)),
        _ => Ok((first, second)),
    }
}

/// The realms whose users are the cell's own (krb.conf), and the exceptions (krb.excl).
#[derive(Clone, Debug, Default)]
pub struct LocalRealms {
    /// The cell's name is first. Comparison ignores case.
    realms: Vec<String>,
    excluded: Vec<String>,
}

impl LocalRealms {
    /// Creates the set with the realm that has the cell's name, in any case.
    pub fn of_cell(cell: &str) -> LocalRealms {
        LocalRealms { realms: vec![cell.to_owned()], excluded: Vec::new() }
    }

    /// Adds the realms of a krb.conf: the words of its first line.
    #[must_use]
    pub fn with_krb_conf(mut self, text: &str) -> LocalRealms {
        let first = text.lines().next().unwrap_or("");
        self.realms.extend(first.split_whitespace().map(str::to_owned));
        self
    }

    /// Excludes the principals of a krb.excl: the first word of each line, `name.instance@REALM`. They count
    /// as users of a foreign cell.
    #[must_use]
    pub fn with_krb_excl(mut self, text: &str) -> LocalRealms {
        let words = text.lines().filter_map(|line| line.split_whitespace().next());
        self.excluded.extend(words.map(str::to_owned));
        self
    }

    /// Returns the principal as services see it: with an empty realm for the cell's own users, and a
    /// lower-case one for others (as users of foreign cells are written).
    ///
    /// The name `afs` without instance and realm identifies servers in tickets that they seal with the cell's
    /// own key, and has all privileges. A principal of that name in a realm therefore keeps its realm, even
    /// if that is local.
    pub(super) fn principal(&self, name: String, instance: String, realm: &str) -> Principal {
        let full = Principal { name, instance, realm: realm.to_owned() };
        let impostor = full.name == SERVER_NAME && full.instance.is_empty();
        let realm =
            if self.is_local(&full) && !impostor { String::new() } else { realm.to_ascii_lowercase() };
        Principal { realm, ..full }
    }

    /// Whether the principal is one of the cell's own users. As in OpenAFS, exclusions do not apply to the
    /// realm with the cell's name (`afsconf_IsLocalRealmMatch`).
    pub fn is_local(&self, principal: &Principal) -> bool {
        let named = |known: &String| known.eq_ignore_ascii_case(&principal.realm);
        principal.realm.is_empty()
            || self.realms.first().is_some_and(named)
            || self.realms.iter().any(named) && !self.excluded.iter().any(|name| same(name, principal))
    }
}

/// Name in tickets that servers make for themselves (`AUTH_SUPERUSER`).
pub(super) const SERVER_NAME: &str = "afs";

/// Whether `name.instance@REALM` is the principal, ignoring the case of the realm.
fn same(text: &str, principal: &Principal) -> bool {
    let full = principal.to_string();
    match (text.split_once('@'), full.split_once('@')) {
        (Some((name, realm)), Some((other_name, other_realm))) => {
            name == other_name && realm.eq_ignore_ascii_case(other_realm)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn convert(parts: &[&str], dots: bool) -> Option<(String, String)> {
        let parts: Vec<Vec<u8>> = parts.iter().map(|part| part.as_bytes().to_vec()).collect();
        from_kerberos_5(&parts, dots).ok()
    }

    #[test]
    fn kerberos_5_names() {
        for (parts, expected) in [
            (&["alice"][..], Some(("alice", ""))),
            (&["alice", "admin"], Some(("alice", "admin"))),
            (&["host", "www.test.example"], Some(("rcmd", "www"))),
            (&["host", "www"], None),
            (&["imap", "mail.test.example"], Some(("imap", "mail"))),
            (&["kadmin", "host.test.example"], Some(("kadmin", "host.test.example"))),
            (&["rcmd", "www.test.example"], Some(("rcmd", "www.test.example"))),
            (&["host"], Some(("host", ""))),
            (&["joe.admin"], None),
            (&["joe@other"], None),
            (&["joe", "x@y"], None),
            (&["joe\0"], None),
            (&[""], None),
            (&[], None),
            (&["a", "b", "c"], None),
        ] {
            let expected = expected.map(|(name, instance)| (name.to_owned(), instance.to_owned()));
            assert_eq!(convert(parts, false), expected, "{parts:?}");
        }
        assert_eq!(convert(&["joe.admin"], true), Some(("joe.admin".to_owned(), String::new())));
        assert!(convert(&["a".repeat(63).as_str()], false).is_some());
        assert!(convert(&["a".repeat(64).as_str()], false).is_none());
    }

    #[test]
    fn local_and_foreign_realms() {
        let realms = LocalRealms::of_cell("test.example")
            .with_krb_conf("OTHER.REALM  THIRD\nNOT.THIS\n")
            .with_krb_excl("root.admin@OTHER.REALM\nguest@Third junk\nbob@TEST.EXAMPLE\n");
        for (name, instance, realm, shown) in [
            ("alice", "", "TEST.EXAMPLE", "alice"),
            ("alice", "admin", "other.realm", "alice.admin"),
            ("alice", "", "NOT.THIS", "alice@not.this"),
            ("root", "admin", "OTHER.REALM", "root.admin@other.realm"),
            ("bob", "", "TEST.EXAMPLE", "bob"),
            ("guest", "", "THIRD", "guest@third"),
            ("afs", "", "TEST.EXAMPLE", "afs@test.example"),
            ("afs", "test", "TEST.EXAMPLE", "afs.test"),
            ("afs", "", "", "afs"),
        ] {
            let principal = realms.principal(name.to_owned(), instance.to_owned(), realm);
            assert_eq!(principal.to_string(), shown);
        }
    }
}
