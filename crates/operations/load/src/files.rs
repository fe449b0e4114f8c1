//! File operations, each checked as far as its reply permits.

use afs_idl::{CallStream, ClientConnection, common, fs};
use anyhow::{Context, Result, anyhow, bail, ensure};
use base::AbortCode;
use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;

pub use afs_idl::common::Fid;

/// One client's access to a file server. Cheap to clone.
#[derive(Clone)]
pub struct Files {
    connection: Arc<dyn ClientConnection>,
}

impl Files {
    /// Creates an instance that uses this connection.
    pub fn new(connection: Arc<dyn ClientConnection>) -> Files {
        Files { connection }
    }

    /// Returns the connection.
    pub fn connection(&self) -> &dyn ClientConnection {
        &*self.connection
    }

    /// Creates a directory.
    pub fn make_directory(&self, parent: Fid, name: &str) -> Result<Fid> {
        let request = fs::MakeDirRequest { directory: parent, name: name.into(), status: status(0o755) };
        let reply = patiently("MakeDir", || fs::make_dir(&*self.connection, &request))?;
        Ok(reply.fid)
    }

    /// Creates an empty file.
    pub fn create(&self, directory: Fid, name: &str) -> Result<Fid> {
        let request = fs::CreateFileRequest { directory, name: name.into(), status: status(0o644) };
        let reply = patiently("CreateFile", || fs::create_file(&*self.connection, &request))?;
        Ok(reply.fid)
    }

    /// Returns the file with this name.
    pub fn find(&self, directory: Fid, name: &str) -> Result<Fid> {
        let request = fs::LookupRequest { directory, name: name.into() };
        Ok(patiently("Lookup", || fs::lookup(&*self.connection, &request))?.fid)
    }

    /// Removes a file.
    pub fn remove(&self, directory: Fid, name: &str) -> Result<()> {
        let request = fs::RemoveFileRequest { directory, name: name.into() };
        patiently("RemoveFile", || fs::remove_file(&*self.connection, &request)).map(drop)
    }

    /// Removes an empty directory.
    pub fn remove_directory(&self, parent: Fid, name: &str) -> Result<()> {
        let request = fs::RemoveDirRequest { directory: parent, name: name.into() };
        patiently("RemoveDir", || fs::remove_dir(&*self.connection, &request)).map(drop)
    }

    /// Gives up all callback promises. Errors are ignored: the server will detect that the client is absent.
    pub fn give_up_callbacks(&self) {
        let _ = fs::give_up_all_call_backs(&*self.connection, &fs::GiveUpAllCallBacksRequest);
    }

    /// Fetches the status of a file and checks its length.
    pub fn check_status(&self, fid: Fid, length: u64) -> Result<()> {
        let request = fs::FetchStatusRequest { fid };
        let reply = patiently("FetchStatus", || fs::fetch_status(&*self.connection, &request))?;
        check_length(&reply.status, length)
    }

    /// Writes a whole file in one call.
    pub fn store(&self, fid: Fid, data: &Bytes) -> Result<()> {
        let length = data.len() as u64;
        let status =
            fs::StoreStatus { mask: fs::store_mask::MOD_TIME, client_mod_time: TIME, ..Default::default() };
        let request = fs::StoreData64Request { fid, status, position: 0, length, file_length: length };
        let reply = patiently("StoreData64", || {
            fs::store_data64(&*self.connection, &request, |stream| stream.write(data.clone()))
        })?;
        check_length(&reply.new_status, length)
    }

    /// Reads a file in calls of at most `call_bytes` and compares it with the expected data.
    pub fn fetch_and_compare(&self, fid: Fid, data: &Bytes, call_bytes: u64) -> Result<()> {
        let total = data.len() as u64;
        let mut position = 0;
        while position < total {
            let length = call_bytes.min(total - position);
            let expected = &data[position as usize..][..length as usize];
            self.fetch_part(fid, position, expected, total)?;
            position += length;
        }
        Ok(())
    }

    fn fetch_part(&self, fid: Fid, position: u64, expected: &[u8], total: u64) -> Result<()> {
        let request =
            fs::FetchData64Request { fid, position: position as i64, length: expected.len() as i64 };
        let mut is_right = false;
        let reply = patiently("FetchData64", || {
            fs::fetch_data64(&*self.connection, &request, |stream| {
                is_right = receive_and_compare(stream, expected)?;
                Ok(())
            })
        })?;
        ensure!(is_right, "FetchData64 at {position} returned other bytes than were stored");
        check_length(&reply.status, total)
    }
}

/// Reads the eight bytes of length and the data of FetchData64 and nothing of the rest of the reply.
/// Continues after wrong bytes.
fn receive_and_compare(stream: &mut dyn CallStream, expected: &[u8]) -> Result<bool, AbortCode> {
    let mut length = [0; 8];
    read_exact(stream, &mut length)?;
    let length = usize::try_from(u64::from_be_bytes(length)).map_err(|_| AbortCode::RXGEN_CC_UNMARSHAL)?;
    let (mut position, mut is_right) = (0, length == expected.len());
    while position < length {
        let piece = stream.read_chunk(length - position)?;
        if piece.is_empty() {
            return Err(AbortCode::RXGEN_CC_UNMARSHAL);
        }
        is_right &= expected.get(position..position + piece.len()) == Some(&piece[..]);
        position += piece.len();
    }
    Ok(is_right)
}

/// Fills `buffer`.
///
/// # Errors
/// `RXGEN_CC_UNMARSHAL` if the data ends first.
pub fn read_exact(stream: &mut dyn CallStream, mut buffer: &mut [u8]) -> Result<(), AbortCode> {
    while !buffer.is_empty() {
        match stream.read(buffer)? {
            0 => return Err(AbortCode::RXGEN_CC_UNMARSHAL),
            bytes => buffer = &mut buffer[bytes..],
        }
    }
    Ok(())
}

/// Returns the root directory of a volume's read-write site.
pub fn volume_root(locations: &dyn ClientConnection, volume: &str) -> Result<Fid> {
    let request = afs_idl::vl::GetEntryByNameNRequest { volume_name: volume.into() };
    let reply = patiently("GetEntryByNameN", || afs_idl::vl::get_entry_by_name_n(locations, &request))
        .with_context(|| format!("volume {volume}"))?;
    Ok(common::Fid { volume: reply.entry.volume_id[0], vnode: 1, unique: 1 })
}

fn status(mode: u32) -> fs::StoreStatus {
    fs::StoreStatus {
        mask: fs::store_mask::MODE | fs::store_mask::MOD_TIME,
        client_mod_time: TIME,
        unix_mode_bits: mode,
        ..fs::StoreStatus::default()
    }
}

fn check_length(status: &fs::FetchStatus, expected: u64) -> Result<()> {
    let got = u64::from(status.length_high) << 32 | u64::from(status.length);
    ensure!(got == expected, "the file has {got} bytes, not {expected}");
    Ok(())
}

/// Retries a call while the server is busy, as clients do. OpenAFS's file server is busy while more than a
/// few connections of one client wait to be identified.
pub fn patiently<T>(what: &str, mut call: impl FnMut() -> Result<T, AbortCode>) -> Result<T> {
    for _ in 0..BUSY_TRIES {
        match call() {
            Err(AbortCode::VBUSY) => std::thread::sleep(BUSY_PAUSE),
            result => return result.map_err(|code| anyhow!("{what}: {code:?}")),
        }
    }
    bail!("{what}: the server is always busy")
}

const BUSY_TRIES: u32 = 1000;
const BUSY_PAUSE: Duration = Duration::from_millis(10);

/// Modification time of all files; the value is arbitrary.
const TIME: u32 = 1_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;
    use afs_idl::MemoryStream;

    fn receive(expected: &[u8], reply: &[u8]) -> Result<bool, AbortCode> {
        receive_and_compare(&mut MemoryStream::new(reply, 3), expected)
    }

    #[test]
    fn right_and_wrong_data() {
        assert_eq!(receive(b"abc", b"\0\0\0\0\0\0\0\x03abcREST"), Ok(true));
        assert_eq!(receive(b"abc", b"\0\0\0\0\0\0\0\x03abdREST"), Ok(false));
        assert_eq!(receive(b"abc", b"\0\0\0\0\0\0\0\x02abREST"), Ok(false));
        assert_eq!(receive(b"abc", b"\0\0\0\0\0\0\0\x04abcdREST"), Ok(false));
        assert_eq!(receive(b"", b"\0\0\0\0\0\0\0\0REST"), Ok(true));
    }

    #[test]
    fn data_that_end_too_soon() {
        for reply in [&b""[..], b"\0\0\0", b"\0\0\0\0\0\0\0\x03ab", b"\xff\0\0\0\0\0\0\x03abc"] {
            assert_eq!(receive(b"abc", reply), Err(AbortCode::RXGEN_CC_UNMARSHAL));
        }
    }

    #[test]
    fn busy_servers_are_asked_again() {
        let mut answers = vec![Ok(7), Err(AbortCode::VBUSY), Err(AbortCode::VBUSY)];
        assert_eq!(patiently("X", || answers.pop().unwrap()).unwrap(), 7);
        assert!(patiently("X", || Err::<(), _>(AbortCode::VNOVNODE)).is_err());
    }

    #[test]
    fn lengths_have_two_halves() {
        let status = fs::FetchStatus { length: 7, length_high: 1, ..fs::FetchStatus::default() };
        assert!(check_length(&status, (1 << 32) + 7).is_ok());
        assert!(check_length(&status, 7).is_err());
    }
}
