//! Sending a log (BOZO_GetLog): its text without NULs, and a NUL at the end.

use crate::overseer::{Overseer, OverseerError};
use afs_idl::CallStream;
use base::AbortCode;
use bytes::Bytes;
use std::io::{ErrorKind, Read};
use xdr::XdrString;

/// How much is read at a time.
const PIECE_BYTES: usize = 16 * 1024;

/// The one path that restricted mode lets through: `bos salvage -showlog` asks for it. There is no
/// salvager, and no such log.
const SALVAGE_LOG: &str = "/usr/afs/logs/SalvageLog";

/// Folders that OpenAFS keeps its logs in: the canonical one, which paths on the wire name whatever the layout
/// (`ConstructLocalLogPath`), and that of distributions. Scripts name either.
const LOG_FOLDERS: [&str; 2] = ["/usr/afs/logs/", "/var/log/openafs/"];

/// Sends the log called `name`, with or without a canonical folder. A name with another `/` would be another file
/// of the server's machine; in restricted mode that is BZACCESS.
pub(crate) fn send(
    overseer: &dyn Overseer,
    name: &XdrString,
    stream: &mut dyn CallStream,
) -> Result<(), AbortCode> {
    let name = name.as_str().ok_or(AbortCode::BZNOENT)?;
    if name == SALVAGE_LOG {
        return Err(AbortCode::BZNOENT);
    }
    let name = LOG_FOLDERS.iter().find_map(|folder| name.strip_prefix(folder)).unwrap_or(name);
    if name.contains('/') {
        return Err(AbortCode::BZACCESS);
    }
    let mut text = overseer.log(name).map_err(OverseerError::abort_code)?;
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        match read(&mut *text, &mut piece)? {
            0 => return stream.write(Bytes::from_static(&[0])),
            got => send_piece(&piece[..got], stream)?,
        }
    }
}

fn read(text: &mut dyn Read, piece: &mut [u8]) -> Result<usize, AbortCode> {
    loop {
        match text.read(piece) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            other => return other.map_err(|_| AbortCode::BZIO),
        }
    }
}

fn send_piece(piece: &[u8], stream: &mut dyn CallStream) -> Result<(), AbortCode> {
    let kept: Vec<u8> = piece.iter().copied().filter(|&byte| byte != 0).collect();
    if kept.is_empty() { Ok(()) } else { stream.write(kept.into()) }
}
