//! Sends a log (BOZO_GetLog): its text without NULs, and a NUL at the end.

use crate::overseer::OverseerError;
use crate::server::BosServer;
use afs_idl::{CallStream, bozo};
use base::{AbortCode, Caller};
use bytes::Bytes;
use std::io::{ErrorKind, Read};

/// Number of bytes read at a time.
const PIECE_BYTES: usize = 16 * 1024;

/// The only path that restricted mode allows, requested by `bos salvage -showlog`. There is no salvager, and
/// so no such log.
const SALVAGE_LOG: &str = "/usr/afs/logs/SalvageLog";

/// Folders of OpenAFS's logs: the canonical one, which is used on the wire whatever the layout
/// (`ConstructLocalLogPath`), and that of distributions. Scripts use either.
const LOG_FOLDERS: [&str; 2] = ["/usr/afs/logs/", "/var/log/openafs/"];

impl BosServer {
    /// GetLog: sends the log with this name, with or without one of the folders. A name with another `/` could be any
    /// file of the machine and fails with BZACCESS, as in restricted mode.
    pub(crate) fn get_log(
        &self,
        caller: &Caller,
        request: bozo::GetLogRequest,
        stream: &mut dyn CallStream,
    ) -> Result<bozo::GetLogReply, AbortCode> {
        let overseer = self.administer(caller, "get_log")?;
        let name = request.name.as_str().ok_or(AbortCode::BZNOENT)?;
        if name == SALVAGE_LOG {
            return Err(AbortCode::BZNOENT);
        }
        let name = LOG_FOLDERS.iter().find_map(|folder| name.strip_prefix(folder)).unwrap_or(name);
        if name.contains('/') {
            return Err(AbortCode::BZACCESS);
        }
        let mut text = overseer.log(name).map_err(OverseerError::abort_code)?;
        send(&mut *text, stream)?;
        Ok(bozo::GetLogReply)
    }
}

fn send(text: &mut dyn Read, stream: &mut dyn CallStream) -> Result<(), AbortCode> {
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        match read(text, &mut piece)? {
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
