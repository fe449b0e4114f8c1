//! Who asks: a caller's place in the protection database.

use crate::error::ProtectionError;
use base::{Caller, Identity, LocalAuthority, Principal, UserId};

/// The principal that the cell's own key belongs to; servers and `-localauth` are it.
const CELL_PRINCIPAL: &[u8] = b"afs";

/// How well a caller is known here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Proved nothing.
    Anonymous,
    /// Has an entry.
    Registered,
    /// Proved to be somebody, but has no entry.
    Unregistered,
}

/// A caller as the protection rules see it; made by [`identify`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Actor {
    /// Its id; [`UserId::ANONYMOUS`] if it has none.
    pub id: UserId,
    /// How well it is known.
    pub standing: Standing,
    /// The server's configuration trusts it whatever the database says.
    pub superuser: bool,
    /// The name `user@cell` of a caller from another cell.
    pub foreign_name: Option<Vec<u8>>,
}

impl Actor {
    /// A caller that proved nothing.
    pub fn anonymous() -> Actor {
        Actor { id: UserId::ANONYMOUS, standing: Standing::Anonymous, superuser: false, foreign_name: None }
    }

    /// A registered user.
    pub fn user(id: UserId) -> Actor {
        Actor { id, standing: Standing::Registered, superuser: false, foreign_name: None }
    }

    /// The cell itself: servers, `-localauth`, and this program's own administration.
    pub fn cell() -> Actor {
        Actor {
            id: UserId::ADMINISTRATORS,
            standing: Standing::Registered,
            superuser: true,
            foreign_name: None,
        }
    }

    /// Callers with a name but no entry get nothing at all (`PRPERM`), unlike anonymous ones.
    pub(crate) fn check_known(&self) -> Result<(), ProtectionError> {
        if self.standing == Standing::Unregistered { Err(ProtectionError::NotPermitted) } else { Ok(()) }
    }
}

/// The name by which a principal is registered: lower case, `name[.instance][@realm]`; the realm
/// only for those of other cells.
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

/// Who a caller is. Local principals are known by name alone, others by `name@realm`; `id_of_name`
/// looks such a name up, and its error is the answer.
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

/// Whether this is the holder of the cell's own key. A Kerberos principal of that name, whom a realm
/// vouches for, has a realm and is somebody else, even if the realm is a local one.
fn is_cell_principal(principal: &Principal) -> bool {
    principal.name.as_bytes() == CELL_PRINCIPAL && principal.instance.is_empty() && principal.realm.is_empty()
}
