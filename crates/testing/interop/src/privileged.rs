//! Clients with a token: an administrator who makes calls that only administrators may make, and a user who
//! lists a volume. Tests start them as separate processes inside a cell.

use afs_idl::{ClientConnection, fs};
use anyhow::{Context, Result, ensure};
use base::{AbortCode, SecurityLevel, UnixTime};
use cell_client::files::{Attributes, Node};
use cell_client::network::AfsNetwork;
use cell_client::{CellClient, Interface};
use rx_security::{RxkadClient, SessionKey, Ticket};
use std::io::Cursor;
use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::Arc;

/// Length of a token file before its ticket (struct rxrpc_key_data_v1, as written by `kafs-token`).
const HEAD_BYTES: usize = 24;
/// Key type of DES, used for session keys of rxkad.
const DES: i32 = 1;

/// Makes a series of calls in a new directory, and prints the result of each. `databases` is a
/// comma-separated list of the addresses of the cell's databases.
pub(crate) fn call(databases: &str, server: Ipv4Addr, volume: &str, token: &Path) -> Result<()> {
    let cell = cell(databases, token)?;
    let files = cell.connection(server, Interface::Files);
    let root = cell.root_of(volume)?;
    let reported = |what: &str, result: Result<(), AbortCode>| match result {
        Ok(()) => println!("{what}: good"),
        Err(code) => println!("{what}: {}", code.0),
    };
    let directory = cell.make_directory(&root, b"privileged", mode(0o755)).map_err(failed("MakeDir"))?;
    let file = cell.create(&directory, b"file", mode(0o644)).map_err(failed("CreateFile"))?;
    let store = |bits: u32, data: &[u8]| {
        let stored = cell.store(&file, mode(bits), &mut Cursor::new(&data), data.len() as u64, &mut |_| ());
        println!("StoreData with mode {bits:o}: {}", stored.is_ok());
    };
    store(0o644, b"first");
    reported("StoreStatus, of whom it is executed", cell.set_attributes(&file, mode(0o4755)));
    reported("StoreStatus, not to be written", cell.set_attributes(&file, mode(0o444)));
    store(0o444, b"second");
    reported("StoreStatus, owner", own(&*files, &file, 32_766));
    for acl in ["0\n0\n\0", "1\n0\nsystem:anyuser 9\n\0"] {
        reported("StoreACL", cell.set_acl(&directory, acl.as_bytes()));
        reported("FetchACL", cell.acl(&directory).map(drop));
        reported("FetchStatus of the directory", look(&*files, &directory));
        reported("FetchStatus of the file", look(&*files, &file));
        reported("StoreStatus of the file", cell.set_attributes(&file, mode(0o640)));
        store(0o600, b"third");
        let fetched = cell.fetch(&file, &mut Vec::new(), &mut |_| ());
        println!("FetchData: {}", fetched.is_ok());
        reported("CreateFile", cell.create(&directory, b"denied", mode(0o644)).map(drop));
    }
    reported("StoreACL", cell.set_acl(&directory, b"1\n0\nsystem:administrators 127\n\0"));
    reported("RemoveFile", cell.remove(&directory, b"file"));
    Ok(())
}

/// Prints the names in the root directory of a volume, one per line.
pub(crate) fn list(databases: &str, volume: &str, token: &Path) -> Result<()> {
    let cell = cell(databases, token)?;
    for entry in cell.list(&cell.root_of(volume)?)? {
        println!("{}", String::from_utf8_lossy(&entry.name));
    }
    Ok(())
}

/// Connects to the cell with these database addresses, with a token.
fn cell(databases: &str, token: &Path) -> Result<CellClient> {
    let databases = databases.split(',').map(str::parse).collect::<Result<Vec<Ipv4Addr>, _>>()?;
    let security = RxkadClient::from_ticket(ticket(token)?, SecurityLevel::Encrypted)?;
    CellClient::new(Arc::new(AfsNetwork::start(Some(Arc::new(security)))?), databases)
}

fn mode(mode: u32) -> Attributes {
    Attributes { mode, modified: 1_000_000_000 }
}

fn failed(what: &str) -> impl Fn(AbortCode) -> anyhow::Error {
    move |code| anyhow::anyhow!("{what}: {}", code.0)
}

fn look(files: &dyn ClientConnection, node: &Node) -> Result<(), AbortCode> {
    fs::fetch_status(files, &fs::FetchStatusRequest { fid: node.fid.into() }).map(drop)
}

fn own(files: &dyn ClientConnection, file: &Node, owner: u32) -> Result<(), AbortCode> {
    let status = fs::StoreStatus { mask: fs::store_mask::OWNER, owner, ..Default::default() };
    fs::store_status(files, &fs::StoreStatusRequest { fid: file.fid.into(), status }).map(drop)
}

fn ticket(token: &Path) -> Result<Ticket> {
    let bytes = std::fs::read(token).with_context(|| token.display().to_string())?;
    ensure!(bytes.len() > HEAD_BYTES, "{} is not a token", token.display());
    let (head, sealed) = bytes.split_at(HEAD_BYTES);
    let expires = UnixTime(u32::from_ne_bytes(head[8..12].try_into()?));
    let kvno = u32::from_ne_bytes(head[12..16].try_into()?);
    let session_key = SessionKey::from_kerberos(DES, &head[16..])?;
    Ok(Ticket { kvno, bytes: sealed.to_vec(), session_key, expires })
}
