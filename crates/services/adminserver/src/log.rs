//! Selection of the events in the server's log.

use crate::AdminServer;
use afs_idl::cellar::{SetLoggedEventsReply, SetLoggedEventsRequest};
use base::{AbortCode, Caller};
use events::LINES;
use events::lines::{Choice, PER_SECOND};

impl AdminServer {
    /// SetLoggedEvents (opcode 540).
    pub(crate) fn set_logged_events(
        &self,
        caller: &Caller,
        request: SetLoggedEventsRequest,
    ) -> Result<SetLoggedEventsReply, AbortCode> {
        let words: Vec<String> = request.events.iter().map(|event| event.word.to_string()).collect();
        self.administer(caller, &format!("SetLoggedEvents {}", words.join(" ")))?;
        let choice = Choice::parse(words.iter().map(String::as_str)).map_err(|_| AbortCode::UAEINVAL)?;
        let per_second = u64::from(request.per_second);
        if !PER_SECOND.contains(&per_second) {
            return Err(AbortCode::UAEINVAL);
        }
        LINES.choose(&choice, per_second);
        Ok(SetLoggedEventsReply)
    }
}
