//! The cluster's folder in the bucket, for threads that wait for each request.

use anyhow::{Context, Result, anyhow};
use object_store::ObjectStore;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

/// The folder, with a client of its own: connections belong to the runtime.
pub(super) struct Folder {
    client: Arc<dyn ObjectStore>,
    runtime: Runtime,
    name: String,
}

impl Folder {
    /// `client` is used for nothing else.
    ///
    /// # Errors
    /// If there are no resources for its requests.
    pub(super) fn new(client: Arc<dyn ObjectStore>, name: &str) -> Result<Folder> {
        let runtime = Builder::new_current_thread().enable_all().build().context("cannot start a runtime")?;
        Ok(Folder { client, runtime, name: name.to_owned() })
    }

    /// Waits for a request, which gets the client and the name of the folder, for `patience` at most.
    ///
    /// # Errors
    /// Those of the request, and if there is no answer in time.
    pub(super) fn ask<T, E: std::error::Error + Send + Sync + 'static>(
        &self,
        patience: Duration,
        request: impl AsyncFnOnce(&dyn ObjectStore, &str) -> Result<T, E>,
    ) -> Result<T> {
        let asked =
            self.runtime.block_on(async { timeout(patience, request(&*self.client, &self.name)).await });
        Ok(asked.map_err(|_| anyhow!("the bucket does not answer within {patience:?}"))??)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bucket::faulty::{Away, Faults, FaultyBucket};
    use cluster::{SurveyError, cluster_record};

    #[test]
    fn requests_end_in_time() {
        let bucket = Arc::new(FaultyBucket::new(1, Faults::default()));
        let folder = Folder::new(Arc::clone(&bucket) as Arc<dyn ObjectStore>, "cells/a").unwrap();
        let read =
            || folder.ask(Duration::from_millis(50), async |client, name| cluster_record(client, name).await);
        assert!(read().unwrap().is_none());
        bucket.set_away(Some(Away::Silent));
        assert_eq!(read().unwrap_err().to_string(), "the bucket does not answer within 50ms");
        bucket.set_away(Some(Away::Failing));
        assert!(read().unwrap_err().downcast::<SurveyError>().is_ok());
    }
}
