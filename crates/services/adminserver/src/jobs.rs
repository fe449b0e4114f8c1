//! Calls about the jobs in the server's journal.

use crate::AdminServer;
use afs_idl::cellar::{
    CancelJobReply, CancelJobRequest, GetJobReply, GetJobRequest, JOBS_MAX, JobInfo, ListJobsReply,
    ListJobsRequest, ResumeJobReply, ResumeJobRequest,
};
use base::{AbortCode, Caller};

/// Access to the journal of jobs.
pub trait JobKeeper: Send + Sync {
    /// Returns up to `most` jobs with numbers greater than `after`, oldest first.
    ///
    /// # Errors
    /// UAEIO if the journal cannot be read.
    fn list(&self, after: u32, most: usize) -> Result<Vec<JobInfo>, AbortCode>;

    /// Returns one job with its history.
    ///
    /// # Errors
    /// UAENOENT if no job has this number.
    fn get(&self, job: u32) -> Result<GetJobReply, AbortCode>;

    /// Asks the process that runs a job to undo it.
    ///
    /// # Errors
    /// UAENOENT, UAEINVAL if the job has ended, UAEIO.
    fn cancel(&self, job: u32) -> Result<(), AbortCode>;

    /// Continues a job that is waiting or that no process is running; all such jobs if `job` is `None`.
    /// Returns their number.
    ///
    /// # Errors
    /// UAENOENT, UAEINVAL if the job has ended, UAEIO.
    fn resume(&self, job: Option<u32>) -> Result<u32, AbortCode>;
}

impl AdminServer {
    /// Sets the journal; to be called once, when it is open.
    pub fn set_jobs(&self, keeper: Box<dyn JobKeeper>) {
        // There is only one journal; a second one is ignored.
        let _ = self.jobs.set(keeper);
    }

    fn jobs(&self, caller: &Caller, what: &str) -> Result<&dyn JobKeeper, AbortCode> {
        self.administer(caller, what)?;
        self.jobs.get().map(|keeper| &**keeper).ok_or(AbortCode::VBUSY)
    }

    /// ListJobs (opcode 400).
    pub(crate) fn list_jobs(
        &self,
        caller: &Caller,
        request: ListJobsRequest,
    ) -> Result<ListJobsReply, AbortCode> {
        let jobs = self.jobs(caller, "ListJobs")?.list(request.after, JOBS_MAX)?;
        Ok(ListJobsReply { jobs })
    }

    /// GetJob (opcode 401).
    pub(crate) fn get_job(&self, caller: &Caller, request: GetJobRequest) -> Result<GetJobReply, AbortCode> {
        self.jobs(caller, "GetJob")?.get(request.job)
    }

    /// CancelJob (opcode 402).
    pub(crate) fn cancel_job(
        &self,
        caller: &Caller,
        request: CancelJobRequest,
    ) -> Result<CancelJobReply, AbortCode> {
        self.jobs(caller, &format!("CancelJob {}", request.job))?.cancel(request.job)?;
        Ok(CancelJobReply)
    }

    /// ResumeJob (opcode 403).
    pub(crate) fn resume_job(
        &self,
        caller: &Caller,
        request: ResumeJobRequest,
    ) -> Result<ResumeJobReply, AbortCode> {
        let job = (request.job != 0).then_some(request.job);
        let resumed = self.jobs(caller, &format!("ResumeJob {}", request.job))?.resume(job)?;
        Ok(ResumeJobReply { resumed })
    }
}
