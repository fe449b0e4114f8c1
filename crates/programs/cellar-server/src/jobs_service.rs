//! Gives remote administrators access to the job journal.

use ::jobs::Job;
use adminserver::JobKeeper;
use afs_idl::cellar::{GetJobReply, JOB_EVENTS_MAX, JobEvent, JobInfo};
use base::AbortCode;
use cell_client::CellClient;
use job_runner::journal::Journal;
use job_runner::traffic::{Transfers, of_job, of_jobs};
use std::sync::Arc;

/// Maximum length of a job's texts in replies, in bytes.
const TEXT_BYTES_MAX: usize = afs_idl::cellar::TEXT_MAX;

/// The journal of this machine's server.
pub(super) struct Jobs {
    pub(super) journal: Journal,
    pub(super) cell: Arc<CellClient>,
}

impl Jobs {
    fn read(&self, id: u32) -> Result<Job, AbortCode> {
        let jobs = self.journal.all().map_err(|error| broken(&error))?;
        jobs.into_iter().find(|job| job.id == id).ok_or(AbortCode::UAENOENT)
    }

    fn unfinished(&self, id: u32) -> Result<Job, AbortCode> {
        let job = self.read(id)?;
        if job.is_over() { Err(AbortCode::UAEINVAL) } else { Ok(job) }
    }

    fn is_running(&self, job: &Job) -> bool {
        !job.is_over() && self.journal.claim(job.id).is_ok_and(|claim| claim.is_none())
    }

    fn info(&self, job: &Job, transfers: Transfers) -> JobInfo {
        let text = |text: &str| cut(text).into();
        JobInfo {
            id: job.id,
            title: text(&job.title()),
            operation: job.verb().into(),
            volume: job.volume(),
            name: text(&job.name),
            stage: job.stage().name().into(),
            is_running: u32::from(self.is_running(job)),
            began: job.events.first().map_or(0, |event| event.at),
            latest: job.events.last().map_or(0, |event| event.at),
            doing: text(job.latest()),
            trouble: text(job.failure().unwrap_or_default()),
            total: transfers.traffic.total,
            done: transfers.traffic.done,
            sent: transfers.traffic.sent,
            rate: transfers.rate,
        }
    }
}

impl JobKeeper for Jobs {
    fn list(&self, after: u32, most: usize) -> Result<Vec<JobInfo>, AbortCode> {
        let jobs = self.journal.all().map_err(|error| broken(&error))?;
        let transfers_of = of_jobs(&self.cell);
        Ok(jobs
            .iter()
            .filter(|job| job.id > after)
            .take(most)
            .map(|job| self.info(job, transfers_of(job)))
            .collect())
    }

    fn get(&self, job: u32) -> Result<GetJobReply, AbortCode> {
        let job = self.read(job)?;
        let shown = job.events.iter().take(JOB_EVENTS_MAX);
        let events = shown.map(|event| JobEvent { at: event.at, what: cut(&event.what).into() }).collect();
        Ok(GetJobReply { info: self.info(&job, of_job(&self.cell, &job)), events })
    }

    fn cancel(&self, job: u32) -> Result<(), AbortCode> {
        let job = self.unfinished(job)?;
        self.journal.cancel(job.id).map_err(|error| broken(&error))
    }

    fn resume(&self, job: Option<u32>) -> Result<u32, AbortCode> {
        let jobs = match job {
            Some(job) => vec![self.unfinished(job)?],
            None => self.journal.all().map_err(|error| broken(&error))?,
        };
        let mut resumed = 0;
        for job in jobs.iter().filter(|job| !job.is_over()) {
            self.journal.request_resume(job.id).map_err(|error| broken(&error))?;
            resumed += 1;
        }
        Ok(resumed)
    }
}

fn broken(error: &anyhow::Error) -> AbortCode {
    tracing::error!("cannot read the job journal: {error:#}");
    AbortCode::UAEIO
}

/// Cuts a text to the maximum length.
fn cut(text: &str) -> &str {
    let end = (0..=TEXT_BYTES_MAX.min(text.len())).rev().find(|&end| text.is_char_boundary(end));
    &text[..end.unwrap_or(0)]
}
