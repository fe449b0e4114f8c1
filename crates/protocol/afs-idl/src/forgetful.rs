//! The callback service (RXAFSCB) of a client without a cache. It accepts every call, since a callback break
//! cannot affect it.

use crate::cb::{
    CallBackReply, CallBackRequest, InitCallBackState3Reply, InitCallBackState3Request,
    InitCallBackStateReply, InitCallBackStateRequest, ProbeReply, ProbeRequest, ProbeUuidReply,
    ProbeUuidRequest, Server, TellMeAboutYourselfReply, TellMeAboutYourselfRequest, WhoAreYouReply,
    WhoAreYouRequest,
};
use crate::common::InterfaceAddr;
use base::{AbortCode, CallContext, HostUuid};
use std::net::Ipv4Addr;

/// Result of ProbeUuid for another client's UUID (afscbint.xg: 1).
const ANOTHER: AbortCode = AbortCode(1);

/// The callback service.
#[derive(Clone, Debug)]
pub struct Forgetful {
    /// UUID of the client.
    pub uuid: HostUuid,
    /// Addresses that the client reports.
    pub addresses: Vec<Ipv4Addr>,
    /// Capabilities that the client reports (`CLIENT_CAPABILITY_*`).
    pub capabilities: Vec<u32>,
}

impl Forgetful {
    /// Creates a client with this UUID, without addresses and capabilities.
    pub fn new(uuid: HostUuid) -> Forgetful {
        Forgetful { uuid, addresses: Vec::new(), capabilities: Vec::new() }
    }

    fn about(&self) -> InterfaceAddr {
        InterfaceAddr::new(self.uuid, &self.addresses)
    }
}

impl Server for Forgetful {
    fn call_back(&self, _: &CallContext<'_>, _: CallBackRequest) -> Result<CallBackReply, AbortCode> {
        Ok(CallBackReply)
    }

    fn init_call_back_state(
        &self,
        _: &CallContext<'_>,
        _: InitCallBackStateRequest,
    ) -> Result<InitCallBackStateReply, AbortCode> {
        Ok(InitCallBackStateReply)
    }

    fn probe(&self, _: &CallContext<'_>, _: ProbeRequest) -> Result<ProbeReply, AbortCode> {
        Ok(ProbeReply)
    }

    fn init_call_back_state3(
        &self,
        _: &CallContext<'_>,
        _: InitCallBackState3Request,
    ) -> Result<InitCallBackState3Reply, AbortCode> {
        Ok(InitCallBackState3Reply)
    }

    fn who_are_you(&self, _: &CallContext<'_>, _: WhoAreYouRequest) -> Result<WhoAreYouReply, AbortCode> {
        Ok(WhoAreYouReply { addresses: self.about() })
    }

    fn probe_uuid(
        &self,
        _: &CallContext<'_>,
        request: ProbeUuidRequest,
    ) -> Result<ProbeUuidReply, AbortCode> {
        if request.client_uuid == self.uuid { Ok(ProbeUuidReply) } else { Err(ANOTHER) }
    }

    fn tell_me_about_yourself(
        &self,
        _: &CallContext<'_>,
        _: TellMeAboutYourselfRequest,
    ) -> Result<TellMeAboutYourselfReply, AbortCode> {
        Ok(TellMeAboutYourselfReply { addresses: self.about(), capabilities: self.capabilities.clone() })
    }
}
