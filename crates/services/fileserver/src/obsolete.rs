//! Calls that are always answered with the same error, as in OpenAFS.

use crate::call::FileCall;
use crate::counters::Operation;
use afs_idl::fs as rxafs;
use base::{AbortCode, CallContext};

impl FileCall<'_> {
    /// GetRootVolume (151): clients have their root volume configured.
    pub(crate) fn get_root_volume(
        &self,
        _: &CallContext<'_>,
        _: rxafs::GetRootVolumeRequest,
    ) -> Result<rxafs::GetRootVolumeReply, AbortCode> {
        self.server.counted(Operation::GetRootVolume, || Err(AbortCode::UAEOPNOTSUPP))
    }

    /// CheckToken (152): Rx checks tokens.
    pub(crate) fn check_token(
        &self,
        caller: &CallContext<'_>,
        _: rxafs::CheckTokenRequest,
    ) -> Result<rxafs::CheckTokenReply, AbortCode> {
        self.call(caller, Operation::CheckToken, |_| Err(AbortCode::UAECONNREFUSED))
    }

    /// NGetVolumeInfo (154): superseded by the location service.
    pub(crate) fn n_get_volume_info(
        &self,
        _: &CallContext<'_>,
        _: rxafs::NGetVolumeInfoRequest,
    ) -> Result<rxafs::NGetVolumeInfoReply, AbortCode> {
        self.server.counted(Operation::NGetVolumeInfo, || Err(AbortCode::VNOVOL))
    }

    /// CallBackRxConnAddr (65541): callbacks always follow the caller's address.
    pub(crate) fn call_back_rx_conn_addr(
        &self,
        caller: &CallContext<'_>,
        _: rxafs::CallBackRxConnAddrRequest,
    ) -> Result<rxafs::CallBackRxConnAddrReply, AbortCode> {
        self.call(caller, Operation::CallBackRxConnAddr, |_| Err(AbortCode::UAEPERM))
    }

    /// DFSSymlink (163): for a translator to another file system.
    pub(crate) fn dfs_symlink(
        &self,
        _: &CallContext<'_>,
        _: rxafs::DFSSymlinkRequest,
    ) -> Result<rxafs::DFSSymlinkReply, AbortCode> {
        Err(AbortCode::UAEINVAL)
    }

    /// FsCmd (220): commands of a patched server.
    pub(crate) fn fs_cmd(
        &self,
        _: &CallContext<'_>,
        _: rxafs::FsCmdRequest,
    ) -> Result<rxafs::FsCmdReply, AbortCode> {
        Err(AbortCode::UAEINVAL)
    }
}
