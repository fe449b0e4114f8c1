//! Calls that are always answered with the same error, as in OpenAFS.

use crate::call::FileCall;
use crate::counters::Operation;
use base::{AbortCode, Caller};

impl FileCall<'_> {
    /// GetRootVolume (151): clients have their root volume configured.
    pub(crate) fn refuse_get_root_volume<T>(&self) -> Result<T, AbortCode> {
        self.server.counted(Operation::GetRootVolume, || Err(AbortCode::UAEOPNOTSUPP))
    }

    /// CheckToken (152): Rx checks tokens.
    pub(crate) fn refuse_check_token<T>(&self, caller: &Caller) -> Result<T, AbortCode> {
        self.call(caller, Operation::CheckToken, |_| Err(AbortCode::UAECONNREFUSED))
    }

    /// NGetVolumeInfo (154): superseded by the location service.
    pub(crate) fn refuse_n_get_volume_info<T>(&self) -> Result<T, AbortCode> {
        self.server.counted(Operation::NGetVolumeInfo, || Err(AbortCode::VNOVOL))
    }

    /// CallBackRxConnAddr (65541): callbacks always follow the caller's address.
    pub(crate) fn refuse_call_back_rx_conn_addr<T>(&self, caller: &Caller) -> Result<T, AbortCode> {
        self.call(caller, Operation::CallBackRxConnAddr, |_| Err(AbortCode::UAEPERM))
    }
}
