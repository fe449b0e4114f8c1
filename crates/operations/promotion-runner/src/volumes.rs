//! Volumes that belong to promotions: opened, cloned, read and sent with standard calls.

use afs_idl::vol::{self, TransDebugInfo, VolintInfo, attach_mode, volume_flags};
use afs_idl::{CallStream, ClientConnection};
use base::AbortCode;
use bytes::Bytes;
use cell_client::{CellClient, Interface};
use jobs::{ENODEV, ENOENT, Place};
use promote::PromotionError;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Number of attempts to open a busy volume, and the pause between them.
const BUSY_TRIES: u32 = 30;
const BUSY_PAUSE: Duration = Duration::from_secs(2);
/// Number of attempts after which a reading transaction counts as stale too, see [`is_stale`].
const READER_TRIES: u32 = 5;
const PIECE_BYTES: usize = 256 << 10;
/// Errors that waiting does not resolve.
const LASTING: [AbortCode; 9] = [
    AbortCode::VL_PERM,
    AbortCode::VL_NAMEEXIST,
    AbortCode::VL_BADNAME,
    AbortCode::VOLSERBAD_ACCESS,
    AbortCode::VOLSERILLEGAL_PARTITION,
    AbortCode::VOLSERBADNAME,
    AbortCode::VDISKFULL,
    AbortCode::RXKADUNKNOWNKEY,
    AbortCode::RX_INVALID_OPERATION,
];

/// Flags of a volume that is offline and stays so after a restart.
pub(super) const OFFLINE: i32 = volume_flags::OUT_OF_SERVICE;
/// Flags of a volume that is offline and removed by a restart.
pub(super) const DOOMED: i32 = volume_flags::OUT_OF_SERVICE | volume_flags::DELETE_ON_SALVAGE;

pub(super) type Step<T = ()> = Result<T, PromotionError>;

/// Classifies a failed call as temporary or permanent.
pub(super) fn failed(doing: impl Into<String>) -> impl FnOnce(AbortCode) -> PromotionError {
    move |code| {
        let why = format!("cannot {}: {}", doing.into(), cell_client::describe::describe(code));
        if LASTING.contains(&code) { PromotionError::Lasting(why) } else { PromotionError::Passing(why) }
    }
}

/// A transaction on a volume; dropping it ends it, so that nothing stays locked.
pub(super) struct Open {
    pub(super) server: Arc<dyn ClientConnection>,
    pub(super) id: i32,
    pub(super) volume: u32,
    is_ended: bool,
}

/// Returns whether to end a transaction that is in the way. A reading transaction is spared at first, because
/// it may be a user's dump. But it may also be left over from a promotion that was killed while sending, and
/// the server would end it only after ten minutes. A dump in progress finishes even if its transaction is
/// ended.
fn is_stale(info: &TransDebugInfo, volume: u32, tried: u32) -> bool {
    let procedure = info.last_procedure.to_string();
    let reads = ["Dump", "Forward", "GetSize"].iter().any(|name| procedure.contains(name));
    info.volume_id == volume && (!reads || tried >= READER_TRIES)
}

/// Access to volume servers, with the user's request to stop.
#[derive(Clone, Copy)]
pub(super) struct Volumes<'a> {
    pub(super) cell: &'a CellClient,
    pub(super) stop: &'a AtomicBool,
}

impl Drop for Open {
    fn drop(&mut self) {
        if !self.is_ended {
            let _ = vol::end_trans(&*self.server, &vol::EndTransRequest { transaction: self.id });
        }
    }
}

impl Open {
    /// Ends the transaction and makes its changes effective.
    pub(super) fn end(mut self) -> Step {
        self.is_ended = true;
        let reply = vol::end_trans(&*self.server, &vol::EndTransRequest { transaction: self.id });
        let doing = format!("end the transaction on the volume {}", self.volume);
        match reply {
            Ok(reply) if reply.code == 0 => Ok(()),
            Ok(reply) => Err(failed(doing)(AbortCode(reply.code))),
            Err(code) => Err(failed(doing)(code)),
        }
    }

    pub(super) fn set_flags(&self, flags: i32) -> Step {
        let request = vol::SetFlagsRequest { transaction: self.id, flags };
        let doing = format!("set the flags of the volume {}", self.volume);
        vol::set_flags(&*self.server, &request).map(drop).map_err(failed(doing))
    }

    pub(super) fn status(&self) -> Step<vol::VolserStatus> {
        let reply = vol::get_status(&*self.server, &vol::GetStatusRequest { transaction: self.id });
        reply.map(|reply| reply.status).map_err(failed(format!("examine the volume {}", self.volume)))
    }

    /// Creates a read-only clone, which a restart removes until its flags are set.
    pub(super) fn clone_as(&self, name: &str, clone: u32) -> Step {
        let request = vol::CloneVolumeRequest {
            transaction: self.id,
            purge_volume_id: 0,
            new_type: vol::volume_type::READ_ONLY,
            new_name: name.into(),
            new_volume_id: clone,
        };
        let doing = format!("clone the volume {}", self.volume);
        vol::clone_volume(&*self.server, &request).map(drop).map_err(failed(doing))
    }

    pub(super) fn reclone(&self, clone_id: u32) -> Step {
        let request = vol::ReCloneRequest { transaction: self.id, clone_id };
        let doing = format!("clone the volume {} again", self.volume);
        vol::re_clone(&*self.server, &request).map(drop).map_err(failed(doing))
    }

    pub(super) fn delete(self) -> Step {
        self.set_flags(DOOMED)?;
        let doing = format!("delete the volume {}", self.volume);
        vol::delete_volume(&*self.server, &vol::DeleteVolumeRequest { transaction: self.id })
            .map_err(failed(doing))?;
        self.end()
    }

    /// Has the server send the volume to another volume server, which accepts that server's tickets.
    pub(super) fn forward(&self, since: u32, to: &Open, at: Place, cookie: &vol::RestoreCookie) -> Step {
        let destination = vol::DestServer { host: at.server.into(), port: 7005, security_index: 1 };
        let request = vol::ForwardRequest {
            transaction: self.id,
            from_date: since,
            destination,
            destination_transaction: to.id,
            cookie: cookie.clone(),
        };
        let doing = format!("send the volume {} to {}", self.volume, at.server);
        vol::forward(&*self.server, &request).map(drop).map_err(failed(doing))
    }

    /// Returns the approximate size of a dump in bytes.
    pub(super) fn size(&self, since: u32) -> u64 {
        let request = vol::GetSizeRequest { transaction: self.id, from_date: since };
        vol::get_size(&*self.server, &request).map_or(0, |reply| reply.size.dump_size)
    }
}

impl Volumes<'_> {
    fn server(&self, place: Place) -> Arc<dyn ClientConnection> {
        self.cell.connection(place.server, Interface::Volumes)
    }

    pub(super) fn check_cancelled(&self) -> Step {
        if self.stop.load(Ordering::Relaxed) {
            Err(PromotionError::Passing("interrupted".into()))
        } else {
            Ok(())
        }
    }

    /// Returns a server's information about a volume; `None` if the volume does not exist there.
    pub(super) fn look(&self, place: Place, volume: u32) -> Step<Option<VolintInfo>> {
        let request = vol::ListOneVolumeRequest { partition: place.partition, volume_id: volume };
        match vol::list_one_volume(&*self.server(place), &request) {
            Ok(reply) => Ok(reply.entries.into_iter().next()),
            Err(ENOENT | ENODEV | AbortCode::VNOVOL) => Ok(None),
            Err(code) => Err(failed(format!("read the volume {volume} on {place}"))(code)),
        }
    }

    /// Opens a volume that belongs to a promotion, ending transactions left by an earlier run.
    pub(super) fn open(&self, place: Place, volume: u32, flags: i32) -> Step<Open> {
        self.open_patiently(place, volume, flags, true)
    }

    /// Opens a volume that others use as well.
    pub(super) fn open_of_others(&self, place: Place, volume: u32, flags: i32) -> Step<Open> {
        self.open_patiently(place, volume, flags, false)
    }

    fn open_patiently(&self, place: Place, volume: u32, flags: i32, is_ours: bool) -> Step<Open> {
        let server = self.server(place);
        let request = vol::TransCreateRequest { volume_id: volume, partition: place.partition, flags };
        for tried in 0..BUSY_TRIES {
            self.check_cancelled()?;
            match vol::trans_create(&*server, &request) {
                Ok(reply) => return Ok(Open { server, id: reply.transaction, volume, is_ended: false }),
                Err(AbortCode::VOLSERVOLBUSY | AbortCode::VBUSY) if is_ours && tried > 0 => {
                    self.end_stale(place, volume, tried);
                }
                Err(AbortCode::VOLSERVOLBUSY | AbortCode::VBUSY) => {}
                Err(code) => return Err(failed(format!("open the volume {volume} on {place}"))(code)),
            }
            std::thread::sleep(BUSY_PAUSE);
        }
        Err(failed(format!("open the volume {volume} on {place}"))(AbortCode::VOLSERVOLBUSY))
    }

    /// Ends stale transactions. Only promotions change these volumes, one at a time, so an open transaction
    /// was left by an earlier run or belongs to a dump.
    fn end_stale(&self, place: Place, volume: u32, tried: u32) {
        let server = self.server(place);
        let Ok(reply) = vol::monitor(&*server, &vol::MonitorRequest) else { return };
        for info in reply.transactions.iter().filter(|info| is_stale(info, volume, tried)) {
            let _ = vol::end_trans(&*server, &vol::EndTransRequest { transaction: info.transaction });
        }
    }

    /// Creates an empty volume and opens it; a restart removes it until its flags are set.
    pub(super) fn create(&self, place: Place, name: &str, volume: u32, kind: i32, parent: u32) -> Step<Open> {
        let request = vol::CreateVolumeRequest {
            partition: place.partition,
            name: name.into(),
            volume_type: kind,
            parent_id: parent,
            volume_id: volume,
        };
        let server = self.server(place);
        let made = vol::create_volume(&*server, &request)
            .map_err(failed(format!("make the volume {volume} on {place}")))?;
        let open = Open { server, id: made.transaction, volume, is_ended: false };
        open.set_flags(DOOMED)?;
        Ok(open)
    }

    /// Removes a volume if it exists.
    pub(super) fn remove(&self, place: Place, volume: u32) -> Step {
        if self.look(place, volume)?.is_none() {
            return Ok(());
        }
        self.open(place, volume, attach_mode::OFFLINE)?.delete()
    }

    pub(super) fn piece(&self, stream: &mut dyn CallStream, most: usize) -> Result<Bytes, AbortCode> {
        match self.check_cancelled() {
            Ok(()) => stream.read_chunk(most),
            Err(_) => Err(AbortCode::RX_USER_ABORT),
        }
    }

    /// Copies a dump from an open volume of one cell to one of another; returns the number of bytes.
    pub(super) fn relay(&self, from: &Open, since: u32, to: &Open, cookie: vol::RestoreCookie) -> Step<u64> {
        let restore = vol::RestoreRequest { transaction: to.id, flags: i32::from(since != 0), cookie };
        let dump = vol::DumpRequest { transaction: from.id, from_date: since };
        let (mut bytes, mut reading) = (0, None);
        let restored = vol::restore(&*to.server, &restore, |out| {
            let dumped = vol::dump(&*from.server, &dump, |stream| {
                loop {
                    let piece = self.piece(stream, PIECE_BYTES)?;
                    if piece.is_empty() {
                        return Ok(());
                    }
                    bytes += piece.len() as u64;
                    out.write(piece)?;
                }
            });
            reading = dumped.as_ref().err().copied();
            dumped.map(drop)
        });
        if let (Some(code), Err(_)) = (reading, &restored) {
            return Err(failed(format!("pass the volume {} on", from.volume))(code));
        }
        restored.map_err(failed(format!("restore the volume {}", to.volume)))?;
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_killed_promotions_transactions_are_ended() {
        let left = |volume_id, procedure: &str| TransDebugInfo {
            volume_id,
            last_procedure: procedure.into(),
            ..TransDebugInfo::default()
        };
        let table = [
            (left(7, "TransCreate"), 1, true),
            (left(7, "SetFlags"), 1, true),
            (left(7, "Dump"), 1, false),
            (left(7, "Forward"), READER_TRIES - 1, false),
            (left(7, "GetSize"), READER_TRIES, true),
            (left(7, "Dump"), READER_TRIES, true),
            (left(8, "TransCreate"), READER_TRIES, false),
        ];
        for (info, tried, expected) in table {
            assert_eq!(is_stale(&info, 7, tried), expected, "{info:?} after {tried} tries");
        }
    }
}
