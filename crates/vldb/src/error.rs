//! What can go wrong, whose fault it is, and the wire code for it.

use base::{AbortCode, HostUuid, VolumeId};
use std::net::Ipv4Addr;
use store::StoreError;
use thiserror::Error;

/// A location database operation that did not happen; nothing was changed.
#[derive(Debug, Error)]
pub enum LocationError {
    /// The volume id belongs to a volume already.
    #[error("volume id {0} is in use")]
    IdExists(VolumeId),
    /// The name belongs to a volume already.
    #[error("the volume name `{0}` is in use")]
    NameExists(String),
    /// No volume, or no server, is known by what was given.
    #[error("no such entry")]
    NoEntry,
    /// Not a name that a volume can have.
    #[error("`{0}` is not a volume name")]
    BadName(String),
    /// Not a volume type.
    #[error("{0} is not a volume type")]
    BadVolumeType(i32),
    /// No sites, too many, or a server that cannot be.
    #[error("bad server or number of servers")]
    BadServer,
    /// Not a partition.
    #[error("{0} is not a partition")]
    BadPartition(i32),
    /// Not flags of a site.
    #[error("{0:#x} are not flags of a site")]
    BadSiteFlags(i32),
    /// The entry contradicts itself or the one it is to replace.
    #[error("bad entry: {0}")]
    BadEntry(&'static str),
    /// More new volume ids wanted than there are.
    #[error("cannot give out {0} volume ids")]
    BadBump(u32),
    /// The entry is locked.
    #[error("the entry is locked")]
    Locked,
    /// The lock was given up, but a release was under way and is not finished.
    #[error("an unfinished release is noted in the entry")]
    Rerelease,
    /// Not an operation that an entry is locked for.
    #[error("{0:#x} is not an operation to lock for")]
    BadOperation(i32),
    /// Not a way to release a lock.
    #[error("{0:#x} is not a way to release a lock")]
    BadRelease(i32),
    /// The site to change is not in the entry.
    #[error("the volume has no such site")]
    NoSite,
    /// The site to add is in the entry already.
    #[error("the volume has this site already")]
    SiteExists,
    /// No room for another site or another server, or more sites than the caller's form holds.
    #[error("no room for more sites or servers")]
    Full,
    /// The addresses belong to other servers, too.
    #[error("the addresses belong to more than one server")]
    AddressConflict,
    /// A server that would lose addresses to a registration still serves.
    #[error(
        "server {newcomer} may not register: it would take {} from server {holder}, which serves at {address}; leave the \
         address out on both (NetRestrict, or `announce` in cellar.toml), or remove the old entry with `vos changeaddr`",
        list(lost)
    )]
    StillServing {
        /// Who registers.
        newcomer: HostUuid,
        /// Who has the addresses: a UUID, or an address of a server that never registered.
        holder: String,
        /// Where that one serves.
        address: Ipv4Addr,
        /// The addresses that it would lose.
        lost: Vec<Ipv4Addr>,
    },
    /// Two servers have one UUID.
    #[error(
        "server {uuid} may not register other addresses: another server with this UUID serves at {address}; the sysid \
         file was copied: remove it on the new machine and restart the server there"
    )]
    SharedUuid {
        /// The UUID.
        uuid: HostUuid,
        /// Where the other one serves.
        address: Ipv4Addr,
    },
    /// A server that is to be forgotten still has volumes.
    #[error("volume entries name this server")]
    ServerInUse,
    /// A server index outside the table, or no address at all.
    #[error("out of range")]
    OutOfRange,
    /// A mask that asks for none or several things.
    #[error("bad mask {0:#x}")]
    BadMask(u32),
    /// Another database can only be taken over by one that has no volumes of its own.
    #[error("the database has volumes already")]
    NotNew,
    /// The answer would be longer than the limit.
    #[error("more than {0} entries")]
    TooLong(usize),
    /// A stored record is not what this version writes.
    #[error("damaged location record: {0}")]
    Damaged(String),
    /// The store refused.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl LocationError {
    /// The wire code (vl_errors.et).
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
