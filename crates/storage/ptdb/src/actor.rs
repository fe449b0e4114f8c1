//! Maps callers to entries of the protection database.

use crate::error::ProtectionError;
use base::{Caller, Identity, LocalAuthority, Principal, UserId};

/// The principal of the cell's own key, used by servers and `-localauth`.
const CELL_PRINCIPAL: &[u8] = b"afs";

/// Whether a caller is authenticated and has an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Not authenticated.
    Anonymous,
    /// Authenticated, with an entry.
    Registered,
    /// Authenticated, but without an entry.
    Unregistered,
}

/// A caller as the protection rules see it; created by [`identify`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Actor {
    /// Id of its entry; [`UserId::ANONYMOUS`] if it has none.
    pub id: UserId,
    /// Whether the caller is authenticated and has an entry.
    pub standing: Standing,
    /// Whether the server's configuration gives it all rights, whatever the database contains.
    pub superuser: bool,
    /// The name `user@cell` of a caller from another cell.
    pub foreign_name: Option<Vec<u8>>,
}

impl Actor {
    /// Returns the actor of an unauthenticated caller.
    pub fn anonymous() -> Actor {
        Actor { id: UserId::ANONYMOUS, standing: Standing::Anonymous, superuser: false, foreign_name: None }
    }

    /// Returns the actor of a registered user.
    pub fn user(id: UserId) -> Actor {
        Actor { id, standing: Standing::Registered, superuser: false, foreign_name: None }
    }

    /// Returns the actor for the cell itself: servers, `-localauth` and this program's own administration.
    pub fn cell() -> Actor {
        Actor {
            id: UserId::ADMINISTRATORS,
            standing: Standing::Registered,
            superuser: true,
            foreign_name: None,
        }
    }

    /// Rejects authenticated callers without an entry, which have fewer rights than anonymous ones
    /// (`PRPERM`).
    pub(crate) fn check_known(&self) -> Result<(), ProtectionError> {
        if self.standing == Standing::Unregistered { Err(ProtectionError::NotPermitted) } else { Ok(()) }
    }
}

/// Returns the name under which a principal is registered, in lower case: `name[.instance][@realm]`, with the
/// realm only for principals of other cells.
pub fn registered_name(principal: &Principal, is_local: bool) -> Vec<u8> {
    let mut name = principal.name.clone();
    if !principal.instance.is_empty() {
        name.push('.');
        name.push_str(&principal.instance);
    }
    if !is_local {
        name.push('@');
        name.push_str(&principal.realm);
    }
    name.make_ascii_lowercase();
    name.into_bytes()
}

/// Identifies a caller. Local principals are registered by name alone, others as `name@realm`; `id_of_name`
/// looks up that name, and its error is passed on.
pub fn identify<E>(
    caller: &Caller,
    authority: &dyn LocalAuthority,
    id_of_name: impl FnOnce(&[u8]) -> Result<Option<UserId>, E>,
) -> Result<Actor, E> {
    let superuser = authority.is_superuser(caller);
    let Identity::Known(principal) = &caller.identity else {
        return Ok(if superuser { Actor::cell() } else { Actor::anonymous() });
    };
    let is_local = principal.realm.is_empty() || authority.is_local_realm(principal);
    if is_cell_principal(principal) {
        return Ok(Actor::cell());
    }
    let name = registered_name(principal, is_local);
    let id = id_of_name(&name)?;
    if id.is_none() && superuser {
        return Ok(Actor::cell());
    }
    Ok(Actor {
        id: id.unwrap_or(UserId::ANONYMOUS),
        standing: if id.is_some() { Standing::Registered } else { Standing::Unregistered },
        superuser,
        foreign_name: (!is_local).then_some(name),
    })
}

/// Whether this is the principal of the cell's own key. A Kerberos principal of that name has a realm, even
/// if it is a local one, and is a different principal.
fn is_cell_principal(principal: &Principal) -> bool {
    principal.name.as_bytes() == CELL_PRINCIPAL && principal.instance.is_empty() && principal.realm.is_empty()
}
