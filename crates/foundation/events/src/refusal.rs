//! Reasons for refusing callers before their call is dispatched.

/// Why a server rejects a proof of identity, or a caller without one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// The ticket is longer than rxkad allows.
    TicketLength,
    /// The server has no key of that version.
    UnknownKey,
    /// The key has a broken encryption type.
    WeakEnctype,
    /// The ticket has expired.
    Expired,
    /// The ticket is not valid yet.
    NotYetValid,
    /// The first component of the principal contains a dot.
    DottedPrincipal,
    /// The ticket cannot be decrypted with the server's key of that version, or is inconsistent.
    BadTicket,
    /// The caller's security level is below the one that the service requires.
    SecurityLevel,
    /// The service requires a ticket.
    NoTicket,
    /// The response is damaged, forged or belongs to another connection.
    Malformed,
}

impl Refusal {
    /// All reasons.
    pub const ALL: [Refusal; 10] = [
        Refusal::TicketLength,
        Refusal::UnknownKey,
        Refusal::WeakEnctype,
        Refusal::Expired,
        Refusal::NotYetValid,
        Refusal::DottedPrincipal,
        Refusal::BadTicket,
        Refusal::SecurityLevel,
        Refusal::NoTicket,
        Refusal::Malformed,
    ];

    /// Returns the name in figures and logs.
    pub fn name(self) -> &'static str {
        match self {
            Refusal::TicketLength => "ticket-length",
            Refusal::UnknownKey => "unknown-key",
            Refusal::WeakEnctype => "weak-enctype",
            Refusal::Expired => "expired",
            Refusal::NotYetValid => "not-yet-valid",
            Refusal::DottedPrincipal => "dotted-principal",
            Refusal::BadTicket => "bad-ticket",
            Refusal::SecurityLevel => "security-level",
            Refusal::NoTicket => "no-ticket",
            Refusal::Malformed => "malformed",
        }
    }

    /// Returns the reason with this name.
    pub fn of_name(name: &str) -> Option<Refusal> {
        Refusal::ALL.into_iter().find(|refusal| refusal.name() == name)
    }

    /// Returns what an administrator can do about it; `None` for damaged or forged responses.
    pub fn remedy(self) -> Option<&'static str> {
        Some(match self {
            Refusal::TicketLength => {
                "configure the KDC to leave the PAC out of tickets for this service (NO_AUTH_DATA_REQUIRED)"
            }
            Refusal::UnknownKey => {
                "add the key version to the key files (`asetkey add`), or have the client get a new ticket"
            }
            Refusal::WeakEnctype => {
                "give the service a key of a secure type, or allow this one with `security.weak_enctypes`"
            }
            Refusal::Expired => "have the client get a new ticket, and compare the clocks",
            Refusal::NotYetValid => {
                "synchronise the clocks of this server and the KDC, or raise `security.clock_skew_seconds`"
            }
            Refusal::DottedPrincipal => {
                "rename the principal, or set `security.dotted_principals`, which makes a.b and a/b one user"
            }
            Refusal::BadTicket => "compare the key files with the KDC's key of this version",
            Refusal::SecurityLevel => {
                "encrypt (`vos -encrypt`, `fs setcrypt on`), or lower the level in `security.levels`"
            }
            Refusal::NoTicket => "get a ticket, or set `anonymous = true` in `security.levels`",
            Refusal::Malformed => return None,
        })
    }
}
