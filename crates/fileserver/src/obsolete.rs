//! Calls that are answered with an error, always the same one, as OpenAFS does.

use crate::counters::Operation;
use crate::server::FileServer;
use base::{AbortCode, Caller};

impl FileServer {
    /// GetRootVolume (151): clients know their root volume by configuration.
    pub(crate) fn refuse_get_root_volume<T>(&self) -> Result<T, AbortCode> {
        self.counted(Operation::GetRootVolume, || Err(AbortCode::UAEOPNOTSUPP))
    }

    /// CheckToken (152): tokens are checked by Rx.
    pub(crate) fn refuse_check_token<T>(&self, caller: &Caller) -> Result<T, AbortCode> {
        self.call(caller, Operation::CheckToken, |_| Err(AbortCode::UAECONNREFUSED))
    }

    /// NGetVolumeInfo (154): ask the location service.
    pub(crate) fn refuse_n_get_volume_info<T>(&self) -> Result<T, AbortCode> {
        self.counted(Operation::NGetVolumeInfo, || Err(AbortCode::VNOVOL))
    }

    /// CallBackRxConnAddr (65541): callbacks follow the caller by themselves.
    pub(crate) fn refuse_call_back_rx_conn_addr<T>(&self, caller: &Caller) -> Result<T, AbortCode> {
        self.call(caller, Operation::CallBackRxConnAddr, |_| Err(AbortCode::UAEPERM))
    }
}
