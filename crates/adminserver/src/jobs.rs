//! Jobs of the server's journal.

use crate::AdminServer;
use afs_idl::cellar::{
    CancelJobReply, CancelJobRequest, GetJobReply, GetJobRequest, JOBS_MAX, JobInfo, ListJobsReply,
    ListJobsRequest, ResumeJobReply, ResumeJobRequest,
};
use base::{AbortCode, Caller};

/// Who keeps the journal.
pub trait JobKeeper: Send + Sync {
    /// At most `most` jobs with numbers greater than `after`, the oldest first.
    ///
    /// # Errors
    /// UAEIO if the journal cannot be read.
    fn list(&self, after: u32, most: usize) -> Result<Vec<JobInfo>, AbortCode>;

    /// One job with its history.
    ///
    /// # Errors
    /// UAENOENT if there is none of this number.
    fn get(&self, job: u32) -> Result<GetJobReply, AbortCode>;

    /// Asks whoever runs a job to undo it.
    ///
    /// # Errors
    /// UAENOENT, UAEINVAL if it is over, UAEIO.
    fn cancel(&self, job: u32) -> Result<(), AbortCode>;

    /// Lets a job go on that waits, or that nobody runs; all if none is named. Returns how many.
    ///
    /// # Errors
    /// UAENOENT, UAEINVAL if it is over, UAEIO.
    fn resume(&self, job: Option<u32>) -> Result<u32, AbortCode>;
}

impl AdminServer {
    /// Says who keeps the jobs; to be called once, when the journal is open.
    pub fn set_jobs(&self, keeper: Box<dyn JobKeeper>) {
        // There is one journal: the first stays.
        let _ = self.jobs.set(keeper);
    }

    fn jobs(&self, caller: &Caller, what: &str) -> Result<&dyn JobKeeper, AbortCode> {
        self.administer(caller, what)?;
        self.jobs.get().map(|keeper| &**keeper).ok_or(AbortCode::VBUSY)
    }

    /// ListJobs (400).
    pub(crate) fn list_jobs_call(
        &self,
        caller: &Caller,
        request: ListJobsRequest,
    ) -> Result<ListJobsReply, AbortCode> {
        let jobs = self.jobs(caller, "ListJobs")?.list(request.after, JOBS_MAX)?;
        Ok(ListJobsReply { jobs })
    }

    /// GetJob (401).
    pub(crate) fn get_job_call(
        &self,
        caller: &Caller,
        request: GetJobRequest,
    ) -> Result<GetJobReply, AbortCode> {
        self.jobs(caller, "GetJob")?.get(request.job)
    }

    /// CancelJob (402).
    pub(crate) fn cancel_job_call(
        &self,
        caller: &Caller,
        request: CancelJobRequest,
    ) -> Result<CancelJobReply, AbortCode> {
        self.jobs(caller, &format!("CancelJob {}", request.job))?.cancel(request.job)?;
        Ok(CancelJobReply)
    }

    /// ResumeJob (403).
    pub(crate) fn resume_job_call(
        &self,
        caller: &Caller,
        request: ResumeJobRequest,
    ) -> Result<ResumeJobReply, AbortCode> {
        let job = (request.job != 0).then_some(request.job);
        let resumed = self.jobs(caller, &format!("ResumeJob {}", request.job))?.resume(job)?;
        Ok(ResumeJobReply { resumed })
    }
}
