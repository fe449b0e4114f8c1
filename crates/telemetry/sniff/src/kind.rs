//! Identifies calls: service, procedure and volume.
//!
//! Names come from the interfaces in `idl/`. The first packet of a call identifies it. Of rxkad's levels,
//! only "clear" leaves this readable: "auth" encrypts the first 8 bytes, including the opcode, and "crypt"
//! encrypts everything.

use afs_idl::common::Fid;
use afs_idl::{bozo, cb, cellar, fs, pr, rxstats, vl, vol};
use serde::{Serialize, Serializer};
use std::fmt;
use xdr::{Decode, SliceSource};

/// Length of an opcode in bytes.
const OPCODE_BYTES: usize = 4;

/// Number of bytes that rxkad encrypts at level "auth".
const SEALED_BYTES: usize = 8;

/// Index of rxkad among security classes.
const RXKAD: u8 = 2;

/// Index of the null security class.
const NULL: u8 = 0;

/// Service numbers of OpenAFS's Ubik on each database port.
const UBIK_SERVICES: [(u16, Service); 2] = [(50, Service::UbikVote), (51, Service::UbikDisk)];

/// An AFS service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Service {
    /// The file service.
    File,
    /// The callback service of clients.
    Callback,
    /// The basic overseer service.
    Overseer,
    /// The protection service.
    Protection,
    /// The volume location service.
    Location,
    /// The volume service.
    Volume,
    /// Rx's own statistics service.
    RxStatistics,
    /// Cellar's own service.
    Cellar,
    /// Votes between OpenAFS's database servers.
    UbikVote,
    /// Transactions between OpenAFS's database servers.
    UbikDisk,
    /// Any other service, with its number.
    Other(u16),
}

/// The endpoints of a connection, which distinguish services with the same number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) service_id: u16,
    pub(crate) client_port: u16,
    pub(crate) server_port: u16,
}

impl Service {
    /// Returns the service of a connection. File, callback and overseer service have the same number. The
    /// file server calls back from its own port; its clients may be on any port.
    pub(crate) fn at(place: Place) -> Service {
        match (place.service_id, place.server_port) {
            (fs::SERVICE_ID, bozo::PORT) => Service::Overseer,
            (fs::SERVICE_ID, fs::PORT) => Service::File,
            (fs::SERVICE_ID, cb::PORT) => Service::Callback,
            (fs::SERVICE_ID, _) if place.client_port == fs::PORT => Service::Callback,
            (fs::SERVICE_ID, _) => Service::File,
            (pr::SERVICE_ID, _) => Service::Protection,
            (vl::SERVICE_ID, _) => Service::Location,
            (vol::SERVICE_ID, _) => Service::Volume,
            (rxstats::SERVICE_ID, _) => Service::RxStatistics,
            (cellar::SERVICE_ID, _) => Service::Cellar,
            (other, _) => UBIK_SERVICES
                .into_iter()
                .find_map(|(id, service)| (id == other).then_some(service))
                .unwrap_or(Service::Other(other)),
        }
    }

    fn procedure(self, opcode: u32) -> Option<&'static str> {
        match self {
            Service::File => fs::procedure_name(opcode),
            Service::Callback => cb::procedure_name(opcode),
            Service::Overseer => bozo::procedure_name(opcode),
            Service::Protection => pr::procedure_name(opcode),
            Service::Location => vl::procedure_name(opcode),
            Service::Volume => vol::procedure_name(opcode),
            Service::RxStatistics => rxstats::procedure_name(opcode),
            Service::Cellar => cellar::procedure_name(opcode),
            Service::UbikVote | Service::UbikDisk | Service::Other(_) => None,
        }
    }
}

impl fmt::Display for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Service::File => "fs",
            Service::Callback => "cb",
            Service::Overseer => "bos",
            Service::Protection => "pt",
            Service::Location => "vl",
            Service::Volume => "vol",
            Service::RxStatistics => "rxstats",
            Service::Cellar => "cellar",
            Service::UbikVote => "vote",
            Service::UbikDisk => "disk",
            Service::Other(number) => return write!(f, "service-{number}"),
        })
    }
}

/// A procedure, as far as known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Procedure {
    /// Name in the protocol.
    Named(&'static str),
    /// Opcode without a known name.
    Opcode(u32),
    /// Encrypted.
    Sealed,
    /// Unknown, since the call's first packet was not captured.
    Unseen,
}

/// Kind of call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Kind {
    /// The service.
    pub service: Service,
    /// Procedure of the service.
    pub procedure: Procedure,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let service = self.service;
        match self.procedure {
            Procedure::Named(name) => write!(f, "{service}.{name}"),
            Procedure::Opcode(opcode) => write!(f, "{service}.{opcode}"),
            Procedure::Sealed => write!(f, "{service} (sealed)"),
            Procedure::Unseen => write!(f, "{service} (begun before)"),
        }
    }
}

impl Serialize for Kind {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Returns the kind of a call and the volume it is about, read from its first packet.
pub(crate) fn read(service: Service, security_index: u8, body: &[u8]) -> (Kind, Option<u32>) {
    let kind = |procedure| Kind { service, procedure };
    let Some((opcode, arguments)) = body.split_first_chunk::<OPCODE_BYTES>() else {
        return (kind(Procedure::Unseen), None);
    };
    let opcode = u32::from_be_bytes(*opcode);
    match service.procedure(opcode) {
        Some(name) => (kind(Procedure::Named(name)), volume(service, opcode, arguments)),
        None if security_index == NULL => (kind(Procedure::Opcode(opcode)), None),
        None => (kind(Procedure::Sealed), sealed_volume(service, security_index, body)),
    }
}

/// Returns the volume in a call's arguments.
fn volume(service: Service, opcode: u32, arguments: &[u8]) -> Option<u32> {
    let mut source = SliceSource::new(arguments);
    match (service, opcode) {
        (Service::File, fs::GET_VOLUME_STATUS | fs::SET_VOLUME_STATUS) => u32::decode(&mut source).ok(),
        (Service::File, fs::BULK_STATUS | fs::INLINE_BULK_STATUS | fs::GIVE_UP_CALL_BACKS)
        | (Service::Callback, cb::CALL_BACK) => {
            // Takes the first item of the list.
            let count = u32::decode(&mut source).ok()?;
            if count == 0 { None } else { first_fid(&mut source) }
        }
        (Service::File, opcode) if begins_with_fid(opcode) => first_fid(&mut source),
        _ => None,
    }
}

fn first_fid(source: &mut SliceSource<'_>) -> Option<u32> {
    Some(Fid::decode(source).ok()?.volume)
}

/// Whether the procedure's first argument is a FID.
fn begins_with_fid(opcode: u32) -> bool {
    matches!(opcode, fs::FETCH_DATA..=fs::OLD_RELEASE_LOCK | fs::SET_LOCK..=fs::RELEASE_LOCK)
        || [fs::LOOKUP, fs::DFS_SYMLINK, fs::STORE_ACL, fs::FETCH_DATA64, fs::STORE_DATA64].contains(&opcode)
}

/// Returns the volume of a call at level "auth". The opcode is encrypted, but the arguments are not, and most
/// calls of the file service start with a FID. Arguments that do not look like one are taken for encrypted.
fn sealed_volume(service: Service, security_index: u8, body: &[u8]) -> Option<u32> {
    if service != Service::File || security_index != RXKAD {
        return None;
    }
    let fid = Fid::decode(&mut SliceSource::new(body.get(SEALED_BYTES..)?)).ok()?;
    // Volume ids start at 0x20000000; random words pass this check once in a million times.
    let is_likely = fid.volume >> 28 == 2 && fid.vnode >> 24 == 0 && fid.vnode != 0 && fid.unique >> 24 == 0;
    is_likely.then_some(fid.volume)
}

#[cfg(test)]
mod tests {
    use super::*;
    use afs_idl::fs::{FetchStatusRequest, GetVolumeStatusRequest, InlineBulkStatusRequest, RenameRequest};
    use xdr::Encode;

    const FID: Fid = Fid { volume: 0x2000_0007, vnode: 3, unique: 5 };

    fn request(opcode: u32, arguments: &impl Encode) -> Vec<u8> {
        [opcode.to_be_bytes().to_vec(), xdr::to_vec(arguments)].concat()
    }

    #[test]
    fn volumes_are_found_in_arguments() {
        let rename = RenameRequest { old_directory: FID, new_directory: FID, ..RenameRequest::default() };
        let status = GetVolumeStatusRequest { volume_id: FID.volume };
        let bulk = InlineBulkStatusRequest { fids: vec![FID, Fid::default()] };
        for (body, name) in [
            (request(fs::FETCH_STATUS, &FetchStatusRequest { fid: FID }), "FetchStatus"),
            (request(fs::RENAME, &rename), "Rename"),
            (request(fs::GET_VOLUME_STATUS, &status), "GetVolumeStatus"),
            (request(fs::INLINE_BULK_STATUS, &bulk), "InlineBulkStatus"),
        ] {
            let expected = Kind { service: Service::File, procedure: Procedure::Named(name) };
            assert_eq!(read(Service::File, 0, &body), (expected, Some(FID.volume)));
        }
        let none = request(fs::INLINE_BULK_STATUS, &InlineBulkStatusRequest { fids: vec![] });
        assert_eq!(read(Service::File, 0, &none).1, None);
        assert_eq!(read(Service::File, 0, &request(fs::GET_TIME, &FID)).1, None);
    }

    #[test]
    fn encrypted_data_is_labelled() {
        let auth = [&[0xe1; SEALED_BYTES][..], &xdr::to_vec(&FID)].concat();
        let (kind, volume) = read(Service::File, RXKAD, &auth);
        assert_eq!((kind.to_string().as_str(), volume), ("fs (sealed)", Some(FID.volume)));
        assert_eq!(read(Service::File, RXKAD, &[0xe1; 40]).1, None);
        assert_eq!(read(Service::File, 0, &auth).0.to_string(), "fs.3789677025");
        assert_eq!(read(Service::Location, 0, b"x").0.to_string(), "vl (begun before)");
        assert_eq!(read(Service::Other(9), 0, &[0, 0, 0, 7]).0.to_string(), "service-9.7");
    }

    #[test]
    fn services_with_number_1_are_distinguished_by_port() {
        let at = |client_port, server_port| Service::at(Place { service_id: 1, client_port, server_port });
        assert_eq!(at(7001, 7000), Service::File);
        assert_eq!(at(40000, 7000), Service::File);
        assert_eq!(at(7000, 7001), Service::Callback);
        assert_eq!(at(7000, 40000), Service::Callback);
        assert_eq!(at(40000, 7007), Service::Overseer);
        assert_eq!(
            Service::at(Place { service_id: 52, client_port: 1, server_port: 7003 }),
            Service::Location
        );
    }
}
