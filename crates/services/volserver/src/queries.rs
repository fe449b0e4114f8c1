//! Queries about transactions and their volumes.

use crate::listing;
use crate::server::VolumeServer;
use afs_idl::vol;
use base::{AbortCode, CallContext, Caller};

impl VolumeServer {
    /// GetFlags: returns the flags of a transaction.
    pub(crate) fn get_flags(
        &self,
        caller: &CallContext<'_>,
        request: vol::GetFlagsRequest,
    ) -> Result<vol::GetFlagsReply, AbortCode> {
        let (flags, _) = self.query(caller, request.transaction, "GetFlags")?;
        Ok(vol::GetFlagsReply { flags })
    }

    /// GetName: returns the name of a transaction's volume.
    pub(crate) fn get_name(
        &self,
        caller: &CallContext<'_>,
        request: vol::GetNameRequest,
    ) -> Result<vol::GetNameReply, AbortCode> {
        let (_, volume) = self.query(caller, request.transaction, "GetName")?;
        Ok(vol::GetNameReply { name: volume.header().name.as_str().into() })
    }

    /// GetStatus: returns the header of a transaction's volume.
    pub(crate) fn get_status(
        &self,
        caller: &CallContext<'_>,
        request: vol::GetStatusRequest,
    ) -> Result<vol::GetStatusReply, AbortCode> {
        let (_, volume) = self.query(caller, request.transaction, "GetStatus")?;
        Ok(vol::GetStatusReply { status: listing::status(&volume.header()) })
    }

    /// Monitor: lists all transactions.
    pub(crate) fn monitor(
        &self,
        caller: &Caller,
        _: vol::MonitorRequest,
    ) -> Result<vol::MonitorReply, AbortCode> {
        self.check_query(caller)?;
        Ok(vol::MonitorReply { transactions: self.transactions().monitor() })
    }

    /// GetNthVolume. OpenAFS never implemented it either, and no client uses it.
    pub(crate) fn get_nth_volume(
        &self,
        _: &Caller,
        _: vol::GetNthVolumeRequest,
    ) -> Result<vol::GetNthVolumeReply, AbortCode> {
        Err(AbortCode::VOLSERNO_OP)
    }

    /// SignalRestore, which does nothing in OpenAFS either.
    pub(crate) fn signal_restore(
        &self,
        _: &Caller,
        _: vol::SignalRestoreRequest,
    ) -> Result<vol::SignalRestoreReply, AbortCode> {
        Ok(vol::SignalRestoreReply)
    }
}
