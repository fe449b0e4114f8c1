//! UserList: the administrators of this server.
//!
//! UserList(5): one principal per line, `name`, `name.instance` or `name@REALM`. Lines that start with a
//! space contain identities of other security mechanisms in base 64; they are preserved when the file is
//! rewritten.

use base::Principal;

/// One line of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Line {
    Principal(Principal),
    Other(String),
}

/// Contents of the file, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UserList {
    lines: Vec<Line>,
}

/// Parses `name` or `name.instance`, either with `@REALM`.
pub fn parse_principal(text: &str) -> Option<Principal> {
    let (who, realm) = text.split_once('@').unwrap_or((text, ""));
    let (name, instance) = who.split_once('.').unwrap_or((who, ""));
    let valid = !name.is_empty() && !text.contains(char::is_whitespace) && text.len() <= 192;
    valid.then(|| Principal { name: name.into(), instance: instance.into(), realm: realm.into() })
}

impl UserList {
    /// Parses the file; lines that are not a principal are kept but grant nothing.
    pub fn parse(text: &str) -> UserList {
        let line = |raw: &str| match parse_principal(raw.trim_end()) {
            Some(principal) if !raw.starts_with([' ', '\t']) => Line::Principal(principal),
            _ => Line::Other(raw.into()),
        };
        UserList { lines: text.lines().filter(|raw| !raw.trim().is_empty()).map(line).collect() }
    }

    /// Returns the principals in order.
    pub fn principals(&self) -> impl Iterator<Item = &Principal> {
        self.lines.iter().filter_map(|line| match line {
            Line::Principal(principal) => Some(principal),
            Line::Other(_) => None,
        })
    }

    /// Returns whether `who` is listed. Local principals, listed or not, match without their realm; other
    /// realms match case-insensitively.
    pub fn contains(&self, who: &Principal, is_local: impl Fn(&Principal) -> bool) -> bool {
        let plain = |principal: &Principal| {
            let realm =
                if is_local(principal) { String::new() } else { principal.realm.to_ascii_lowercase() };
            Principal { realm, ..principal.clone() }
        };
        let who = plain(who);
        self.principals().any(|listed| plain(listed) == who)
    }

    /// Adds `who`; returns false if it is already listed.
    pub fn add(&mut self, who: Principal) -> bool {
        let new = !self.principals().any(|listed| *listed == who);
        if new {
            self.lines.push(Line::Principal(who));
        }
        new
    }

    /// Removes `who`; returns false if it is not listed.
    pub fn remove(&mut self, who: &Principal) -> bool {
        let before = self.lines.len();
        self.lines.retain(|line| *line != Line::Principal(who.clone()));
        self.lines.len() < before
    }

    /// Returns the text of the file.
    pub fn to_text(&self) -> String {
        self.lines
            .iter()
            .map(|line| match line {
                Line::Principal(principal) => format!("{principal}\n"),
                Line::Other(raw) => format!("{raw}\n"),
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listed_people_are_found_whatever_local_realm_they_carry() {
        let list = UserList::parse("admin\nann.admin\nbob@OTHER.EXAMPLE\nexcluded\n 0 YWJj name\n");
        let is_local = |principal: &Principal| {
            principal.realm.eq_ignore_ascii_case("TEST.EXAMPLE") && principal.name != "excluded"
        };
        let has = |text: &str| list.contains(&parse_principal(text).unwrap(), is_local);
        assert!(has("admin") && has("admin@test.example") && has("ann.admin") && has("bob@OTHER.EXAMPLE"));
        assert!(has("bob@other.example") && has("excluded") && !has("excluded@TEST.EXAMPLE"));
        assert!(!has("bob") && !has("ann") && !has("admin@OTHER.EXAMPLE"));
        assert_eq!(list.to_text(), "admin\nann.admin\nbob@OTHER.EXAMPLE\nexcluded\n 0 YWJj name\n");
    }

    #[test]
    fn people_are_added_once_and_removed() {
        let mut list = UserList::parse("");
        let ann = parse_principal("ann").unwrap();
        assert!(list.add(ann.clone()) && !list.add(ann.clone()));
        assert!(list.remove(&ann) && !list.remove(&ann));
        assert!(parse_principal("a b").is_none() && parse_principal("@X").is_none());
    }
}
