//! Admission of callers to a service, by level of protection (`[security.levels]`).

use super::authority::Authority;
use super::refusals::Refusals;
use base::{AbortCode, Caller, Identity, LocalAuthority, SecurityLevel};
use cellar_config::security::{CallerClass, ServiceLevels};
use events::Refusal;
use std::sync::Arc;

/// Decides whether a service serves a caller.
pub(super) struct Admission {
    service: &'static str,
    levels: ServiceLevels,
    /// The highest of the levels required of callers with a ticket: callers at this level are always
    /// admitted.
    highest: SecurityLevel,
    authority: Arc<Authority>,
    refusals: Arc<Refusals>,
}

impl Admission {
    pub(super) fn new(
        service: &'static str,
        levels: ServiceLevels,
        authority: Arc<Authority>,
        refusals: Arc<Refusals>,
    ) -> Admission {
        let highest = levels.users.max(levels.administrators).max(levels.cell);
        Admission { service, levels, highest, authority, refusals }
    }

    /// Returns whether the caller is served.
    pub(super) fn is_open(&self, caller: &Caller) -> bool {
        if caller.identity == Identity::Anonymous {
            return self.levels.anonymous;
        }
        caller.level >= self.highest
            || self.levels.least(self.class(caller)).is_some_and(|least| caller.level >= least)
    }

    /// Rejects a caller that is not served, and logs it.
    ///
    /// # Errors
    /// If the caller has no ticket (RXKADNOAUTH), or its level is too low (RXKADLEVELFAIL).
    pub(super) fn check(&self, caller: &Caller) -> Result<(), AbortCode> {
        if self.is_open(caller) {
            return Ok(());
        }
        let (code, refusal, what) = match caller.identity {
            Identity::Anonymous => (AbortCode::RXKADNOAUTH, Refusal::NoTicket, "the caller has no ticket"),
            Identity::Known(_) => {
                (AbortCode::RXKADLEVELFAIL, Refusal::SecurityLevel, "the level of protection is too low")
            }
        };
        if self.refusals.refuse(caller.peer.ip(), refusal, rx::now()) {
            let (service, caller_name) = (self.service, caller.identity.to_string());
            let (reason, remedy) = (refusal.name(), refusal.remedy().unwrap_or_default());
            tracing::warn!(peer = %caller.peer, caller = caller_name, level = ?caller.level, service, reason,
                "a call is refused: {what}; {remedy}");
        }
        Err(code)
    }

    fn class(&self, caller: &Caller) -> CallerClass {
        if Authority::is_cell(caller) {
            CallerClass::Cell
        } else if self.authority.is_superuser(caller) {
            CallerClass::Administrator
        } else {
            CallerClass::User
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Principal;
    use rx_security::LocalRealms;

    fn caller(name: Option<&str>, level: SecurityLevel) -> Caller {
        let principal =
            |name: &str| Principal { name: name.into(), instance: String::new(), realm: String::new() };
        let identity = name.map_or(Identity::Anonymous, |name| Identity::Known(principal(name)));
        let peer = "192.0.2.1:7001".parse().unwrap();
        Caller {
            identity,
            level,
            peer,
            local: "192.0.2.2".parse().unwrap(),
            connection: base::Connection::new(),
        }
    }

    #[test]
    fn each_class_needs_its_level() {
        let (clear, auth, crypt) =
            (SecurityLevel::Clear, SecurityLevel::Authenticated, SecurityLevel::Encrypted);
        let levels = ServiceLevels { anonymous: false, users: clear, administrators: auth, cell: crypt };
        let authority = Arc::new(Authority::of_list("ann\n", LocalRealms::of_cell("t.example")));
        let admission = Admission::new("test", levels, authority.clone(), Arc::default());
        let refused = Err(AbortCode::RXKADLEVELFAIL);
        for (name, level, outcome) in [
            (None, clear, Err(AbortCode::RXKADNOAUTH)),
            (Some("bob"), clear, Ok(())),
            (Some("ann"), clear, refused),
            (Some("ann"), auth, Ok(())),
            (Some("afs"), auth, refused),
            (Some("afs"), crypt, Ok(())),
        ] {
            assert_eq!(admission.check(&caller(name, level)), outcome, "{name:?} at {level:?}");
        }
        let open = ServiceLevels { anonymous: true, ..levels };
        let admission = Admission::new("test", open, authority, Arc::default());
        assert_eq!(admission.check(&caller(None, clear)), Ok(()));
    }
}
