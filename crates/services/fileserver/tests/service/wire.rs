//! Short forms of calls.

use crate::world::{Client, World};
use afs_idl::MemoryStream;
use afs_idl::fs::{self, Server};
use base::AbortCode;

/// Returns an AFSStoreStatus that sets a mode, or nothing.
pub(crate) fn mode(mode: Option<u32>) -> fs::StoreStatus {
    fs::StoreStatus {
        mask: mode.map_or(0, |_| fs::store_mask::MODE),
        unix_mode_bits: mode.unwrap_or(0),
        ..fs::StoreStatus::default()
    }
}

impl World {
    pub(crate) fn status(&self, client: &Client, fid: fs::Fid) -> Result<fs::FetchStatusReply, AbortCode> {
        self.serve(|call| call.fetch_status(&client.call(), fs::FetchStatusRequest { fid }))
    }

    pub(crate) fn create(
        &self,
        client: &Client,
        directory: fs::Fid,
        name: &str,
    ) -> Result<fs::Fid, AbortCode> {
        self.create_with(client, directory, name, mode(None)).map(|reply| reply.fid)
    }

    pub(crate) fn create_with(
        &self,
        client: &Client,
        directory: fs::Fid,
        name: &str,
        status: fs::StoreStatus,
    ) -> Result<fs::CreateFileReply, AbortCode> {
        let request = fs::CreateFileRequest { directory, name: name.into(), status };
        self.serve(|call| call.create_file(&client.call(), request))
    }

    pub(crate) fn make_dir(
        &self,
        client: &Client,
        directory: fs::Fid,
        name: &str,
    ) -> Result<fs::Fid, AbortCode> {
        self.make_dir_with(client, directory, name, mode(None)).map(|reply| reply.fid)
    }

    pub(crate) fn make_dir_with(
        &self,
        client: &Client,
        directory: fs::Fid,
        name: &str,
        status: fs::StoreStatus,
    ) -> Result<fs::MakeDirReply, AbortCode> {
        let request = fs::MakeDirRequest { directory, name: name.into(), status };
        self.serve(|call| call.make_dir(&client.call(), request))
    }

    /// Sets the mode. Returns the mode that the file server set.
    pub(crate) fn chmod(&self, client: &Client, fid: fs::Fid, bits: u32) -> Result<u32, AbortCode> {
        let request = fs::StoreStatusRequest { fid, status: mode(Some(bits)) };
        self.serve(|call| call.store_status(&client.call(), request))
            .map(|reply| reply.new_status.unix_mode_bits)
    }

    pub(crate) fn remove(
        &self,
        client: &Client,
        directory: fs::Fid,
        name: &str,
    ) -> Result<fs::FetchStatus, AbortCode> {
        let request = fs::RemoveFileRequest { directory, name: name.into() };
        self.serve(|call| call.remove_file(&client.call(), request)).map(|reply| reply.directory_status)
    }

    /// Replaces a file's contents.
    pub(crate) fn write(
        &self,
        client: &Client,
        fid: fs::Fid,
        data: &[u8],
    ) -> Result<fs::FetchStatus, AbortCode> {
        self.write_at(client, fid, 0, data, data.len() as u64)
    }

    pub(crate) fn write_at(
        &self,
        client: &Client,
        fid: fs::Fid,
        position: u64,
        data: &[u8],
        file_length: u64,
    ) -> Result<fs::FetchStatus, AbortCode> {
        let length = data.len() as u64;
        let request = fs::StoreData64Request { fid, status: mode(None), position, length, file_length };
        let mut stream = MemoryStream::new(data, 700);
        self.serve(|call| call.store_data64(&client.call(), request, &mut stream))
            .map(|reply| reply.new_status)
    }

    /// Reads through FetchData64.
    pub(crate) fn read(&self, client: &Client, fid: fs::Fid) -> Result<Vec<u8>, AbortCode> {
        self.read_at(client, fid, 0, i64::MAX / 2)
    }

    pub(crate) fn read_at(
        &self,
        client: &Client,
        fid: fs::Fid,
        position: i64,
        length: i64,
    ) -> Result<Vec<u8>, AbortCode> {
        let mut stream = MemoryStream::default();
        let request = fs::FetchData64Request { fid, position, length };
        self.serve(|call| call.fetch_data64(&client.call(), request, &mut stream))?;
        let (length, data) = stream.outgoing.split_at(8);
        assert_eq!(u64::from_be_bytes(length.try_into().unwrap()), data.len() as u64);
        Ok(data.to_vec())
    }

    pub(crate) fn set_acl(
        &self,
        client: &Client,
        fid: fs::Fid,
        acl: &str,
    ) -> Result<fs::FetchStatus, AbortCode> {
        let request = fs::StoreACLRequest { fid, access_list: acl.as_bytes().to_vec() };
        self.serve(|call| call.store_acl(&client.call(), request)).map(|reply| reply.status)
    }

    pub(crate) fn acl(&self, client: &Client, fid: fs::Fid) -> Result<String, AbortCode> {
        let reply = self.serve(|call| call.fetch_acl(&client.call(), fs::FetchACLRequest { fid }))?;
        Ok(String::from_utf8(reply.access_list).unwrap().trim_end_matches('\0').to_owned())
    }

    pub(crate) fn set_lock(&self, client: &Client, fid: fs::Fid, lock_type: i32) -> Result<(), AbortCode> {
        self.serve(|call| call.set_lock(&client.call(), fs::SetLockRequest { fid, lock_type })).map(drop)
    }
}
