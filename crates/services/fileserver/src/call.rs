//! One call of the file service, and the commits for which its reply has to wait.

use crate::counters::Operation;
use crate::pipeline::Session;
use crate::server::FileServer;
use base::{AbortCode, CallContext};
use volume::{Commits, Pending};

/// One call; serves it through [`afs_idl::fs::Server`]. Its changes need not be durable when a handler
/// returns, so it exists only within [`FileServer::serve`].
pub struct FileCall<'a> {
    pub(crate) server: &'a FileServer,
    pub(crate) commits: &'a Commits,
}

afs_idl::fs::impl_server!(FileCall<'_>);

impl FileServer {
    /// Serves a call. Its reply, or its error, must not be sent before the changes of the call are durable.
    pub fn serve<T>(&self, serve: impl FnOnce(&FileCall<'_>) -> T) -> Pending<T> {
        Commits::collect(|commits| serve(&FileCall { server: self, commits }))
    }
}

impl FileCall<'_> {
    /// Admits a call, runs `body`, and translates its error for the client.
    pub(crate) fn call<T>(
        &self,
        caller: &CallContext<'_>,
        operation: Operation,
        body: impl FnOnce(&Session<'_>) -> Result<T, AbortCode>,
    ) -> Result<T, AbortCode> {
        self.server.counted(operation, || {
            let session = self.server.session(caller, self.commits)?;
            body(&session).map_err(|code| session.for_client(code))
        })
    }
}
