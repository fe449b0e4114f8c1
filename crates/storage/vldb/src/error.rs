//! Errors of the location database, and their wire codes.

use base::{AbortCode, HostUuid, VolumeId};
use std::net::Ipv4Addr;
use store::StoreError;
use thiserror::Error;

/// Reason why an operation failed; nothing was changed.
#[derive(Debug, Error)]
pub enum LocationError {
    /// The volume id is in use.
    #[error("volume id {0} is in use")]
    IdExists(VolumeId),
    /// The name is in use.
    #[error("the volume name `{0}` is in use")]
    NameExists(String),
    /// No volume or server matches the request.
    #[error("no such entry")]
    NoEntry,
    /// Not a valid volume name.
    #[error("`{0}` is not a volume name")]
    BadName(String),
    /// Not a volume type.
    #[error("{0} is not a volume type")]
    BadVolumeType(i32),
    /// No sites, too many sites, or an impossible server address.
    #[error("bad server or number of servers")]
    BadServer,
    /// Not a partition number.
    #[error("{0} is not a partition")]
    BadPartition(i32),
    /// Invalid flags of a site.
    #[error("{0:#x} are not flags of a site")]
    BadSiteFlags(i32),
    /// The entry is inconsistent in itself, or with the entry that it replaces.
    #[error("bad entry: {0}")]
    BadEntry(&'static str),
    /// More volume ids requested than are available.
    #[error("cannot give out {0} volume ids")]
    BadBump(u32),
    /// The entry is locked.
    #[error("the entry is locked")]
    Locked,
    /// The entry has no lock but still records an unfinished release.
    #[error("an unfinished release is noted in the entry")]
    Rerelease,
    /// Not an operation that an entry can be locked for.
    #[error("{0:#x} is not an operation that locks an entry")]
    BadOperation(i32),
    /// Not a valid combination of parts of a lock to release.
    #[error("{0:#x} is not a way to release a lock")]
    BadRelease(i32),
    /// The site to change is not in the entry.
    #[error("the volume has no such site")]
    NoSite,
    /// The site to add is already in the entry.
    #[error("the volume has this site already")]
    SiteExists,
    /// No room for another site or server, or more sites than fit in the caller's form.
    #[error("no space for more sites or servers")]
    Full,
    /// The addresses belong to several servers.
    #[error("the addresses belong to more than one server")]
    AddressConflict,
    /// A registration would take addresses from a server that is still running.
    #[error(
        "server {newcomer} may not register: it would take {} from server {holder}, which serves at \
        {address}; exclude the address on both (NetRestrict, or `announce` in cellar.toml), or remove the \
        old entry with `vos changeaddr`",
        list(lost)
    )]
    StillServing {
        /// The registering server.
        newcomer: HostUuid,
        /// The server that has the addresses: its UUID, or its address if it never registered.
        holder: String,
        /// Address at which that server answers.
        address: Ipv4Addr,
        /// The addresses that it would lose.
        lost: Vec<Ipv4Addr>,
    },
    /// Two servers have the same UUID.
    #[error(
        "server {uuid} may not register other addresses: another server with this UUID serves at {address}; \
        the sysid file was copied: remove it on the new machine and restart the server there"
    )]
    SharedUuid {
        /// The shared UUID.
        uuid: HostUuid,
        /// Address at which the other server answers.
        address: Ipv4Addr,
    },
    /// The server to remove still has volumes.
    #[error("volume entries refer to this server")]
    ServerInUse,
    /// A server index outside the table, or no address.
    #[error("out of range")]
    OutOfRange,
    /// A mask that does not select exactly one way to identify a server.
    #[error("bad mask {0:#x}")]
    BadMask(u32),
    /// An import needs a database without volumes.
    #[error("the database has volumes already")]
    NotNew,
    /// The reply would exceed the limit.
    #[error("more than {0} entries")]
    TooLong(usize),
    /// A stored record is not in the format that this version writes.
    #[error("damaged location record: {0}")]
    Damaged(String),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl LocationError {
    /// Returns the abort code (vl_errors.et).
    pub fn abort_code(&self) -> AbortCode {
        match self {
            LocationError::IdExists(_) | LocationError::NotNew | LocationError::ServerInUse => {
                AbortCode::VL_IDEXIST
            }
            LocationError::NameExists(_) => AbortCode::VL_NAMEEXIST,
            LocationError::NoEntry => AbortCode::VL_NOENT,
            LocationError::BadName(_) => AbortCode::VL_BADNAME,
            LocationError::BadVolumeType(_) => AbortCode::VL_BADVOLTYPE,
            LocationError::BadServer => AbortCode::VL_BADSERVER,
            LocationError::BadPartition(_) => AbortCode::VL_BADPARTITION,
            LocationError::BadSiteFlags(_) => AbortCode::VL_BADSERVERFLAG,
            LocationError::BadEntry(_) => AbortCode::VL_BADENTRY,
            LocationError::BadBump(_) => AbortCode::VL_BADVOLIDBUMP,
            LocationError::Locked => AbortCode::VL_ENTRYLOCKED,
            LocationError::Rerelease => AbortCode::VL_RERELEASE,
            LocationError::BadOperation(_) => AbortCode::VL_BADVOLOPER,
            LocationError::BadRelease(_) => AbortCode::VL_BADRELLOCKTYPE,
            LocationError::NoSite => AbortCode::VL_NOREPSERVER,
            LocationError::SiteExists => AbortCode::VL_DUPREPSERVER,
            LocationError::Full => AbortCode::VL_REPSFULL,
            LocationError::AddressConflict
            | LocationError::StillServing { .. }
            | LocationError::SharedUuid { .. } => AbortCode::VL_MULTIPADDR,
            LocationError::OutOfRange => AbortCode::VL_INDEXERANGE,
            LocationError::BadMask(_) => AbortCode::VL_BADMASK,
            LocationError::TooLong(_) => AbortCode::VL_SIZEEXCEEDED,
            LocationError::Damaged(_) => AbortCode::VL_DBBAD,
            LocationError::Store(_) => AbortCode::VL_IO,
        }
    }
}

fn list(addresses: &[Ipv4Addr]) -> String {
    addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}
