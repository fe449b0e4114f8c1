//! Slow calls.

use crate::AdminServer;
use afs_idl::cellar::{GetSlowCallsReply, GetSlowCallsRequest, SlowCallInfo, SlowPart};
use base::{AbortCode, Caller};
use events::parts::PARTS;
use observe::SlowCall;

impl AdminServer {
    /// GetSlowCalls (opcode 501).
    pub(crate) fn get_slow_calls(
        &self,
        caller: &Caller,
        request: GetSlowCallsRequest,
    ) -> Result<GetSlowCallsReply, AbortCode> {
        if !self.parts.authority.is_superuser(caller) {
            self.administer(caller, "GetSlowCalls")?;
        }
        let (from_ns, calls) = self.parts.observed.slow();
        let news = calls.iter().filter(|(number, _)| *number > request.after);
        Ok(GetSlowCallsReply { from_ns, calls: news.map(|(number, call)| info(*number, call)).collect() })
    }
}

fn info(number: u64, call: &SlowCall) -> SlowCallInfo {
    let [host, user] = call.client.labels();
    let part = |(name, ns): (&str, u64)| SlowPart { name: name.into(), ns };
    SlowCallInfo {
        number,
        ended: call.ended.0,
        service: call.procedure.service.into(),
        procedure: call.procedure.name.into(),
        host: host.as_str().into(),
        user: user.as_str().into(),
        volume: call.volume,
        code: call.result.map_or_else(|code| code.0 as u32, |()| 0),
        received: call.received,
        sent: call.sent,
        total_ns: call.total_ns,
        cause: call.cause().0.into(),
        parts: PARTS.into_iter().zip(call.parts_ns).map(part).collect(),
    }
}
