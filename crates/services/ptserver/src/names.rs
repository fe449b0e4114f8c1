//! Translation between names and ids.

use crate::service::PtService;
use crate::wire::abort_code;
use afs_idl::ReplyWriter;
use afs_idl::pr::{self, NAME_LENGTH};
use base::{AbortCode, Caller, Identity, Principal, UserId};

/// Maximum number of ids that IDToName translates for an unauthenticated caller (PR_MAXLIST). Authenticated
/// callers may request every member of the largest group, as `pts membership` does.
const ANONYMOUS_IDS_MAX: usize = 5000;
/// Number of ids whose names are read while holding the database's lock once.
const NAMES_STEP: usize = 128;

impl PtService {
    /// NameToID: translates names to ids, for everyone, whatever the policy for anonymous callers.
    pub(crate) fn name_to_id(
        &self,
        _: &Caller,
        r: pr::NameToIDRequest,
    ) -> Result<pr::NameToIDReply, AbortCode> {
        let id = |name: &xdr::XdrString| {
            let id = self.protection.id_of_name(self.local_name(name.as_bytes()));
            id.map(|id| id.unwrap_or(UserId::ANONYMOUS).0).map_err(|error| abort_code(&error))
        };
        Ok(pr::NameToIDReply { ids: r.names.iter().map(id).collect::<Result<_, _>>()? })
    }

    /// IDToName: translates ids to names, in pieces.
    pub(crate) fn id_to_name(
        &self,
        caller: &Caller,
        r: pr::IDToNameRequest,
        reply: &mut ReplyWriter<'_>,
    ) -> Result<(), AbortCode> {
        let ids: Vec<_> = r.ids.into_iter().map(UserId).collect();
        if caller.identity == Identity::Anonymous && ids.len() > ANONYMOUS_IDS_MAX {
            return Err(AbortCode::PRTOOMANY);
        }
        let actor = self.ask(caller, |p, actor| p.names(actor, &[]).map(|_| actor.clone()))?;
        reply.put(&(ids.len() as u32))?;
        for step in ids.chunks(NAMES_STEP) {
            for name in self.protection.names(&actor, step).map_err(|error| abort_code(&error))? {
                reply.put_with(|out| xdr::chars::encode(&name.into(), out, NAME_LENGTH))?;
            }
        }
        Ok(())
    }

    /// Returns the name without its realm if that is one of the cell's realms.
    fn local_name<'n>(&self, name: &'n [u8]) -> &'n [u8] {
        let Some(at) = name.iter().position(|&byte| byte == b'@') else {
            return name;
        };
        let (user, realm) = (&name[..at], &name[at + 1..]);
        let principal = Principal {
            name: String::from_utf8_lossy(user).into_owned(),
            instance: String::new(),
            realm: String::from_utf8_lossy(realm).into_owned(),
        };
        if realm.is_empty() || self.authority.is_local_realm(&principal) { user } else { name }
    }
}
