//! `cellar volume jobs --on ADDRESS`: jobs of a remote server.

use super::Jobs;
use super::job_view::JobView;
use super::preflight::{self, Preview};
use crate::commands::Context;
use afs_idl::ClientConnection;
use afs_idl::cellar::{
    self, CancelJobRequest, GetJobReply, GetJobRequest, JobInfo, ListJobsRequest, ResumeJobRequest,
};
use anyhow::{Context as _, Result, anyhow};
use base::AbortCode;
use cell_client::Interface;
use cell_client::describe::describe;
use jobs::Event;
use std::net::Ipv4Addr;

pub(super) fn run(context: &Context, command: &Jobs, server: Ipv4Addr) -> Result<()> {
    let cell = context.client()?;
    let way = &*cell.connection(server, Interface::Cellar);
    let on = || format!("on {server}");
    match command {
        Jobs::List { .. } => context.format.rows(&list(way).with_context(on)?),
        Jobs::Show { job, .. } => {
            let reply = get(way, *job).with_context(on)?;
            let event = |event: cellar::JobEvent| Event { at: event.at, what: event.what.to_string() };
            shown(&reply.info)?.show(context, reply.events.into_iter().map(event).collect())
        }
        Jobs::Resume { job, .. } if command.is_dry() => {
            let jobs = match job {
                Some(job) => vec![unfinished(way, *job).with_context(on)?],
                None => list(way).with_context(on)?,
            };
            let jobs = jobs.into_iter().filter(|job| !job.stage.is_over());
            let jobs: Vec<_> = jobs.map(Preview::resume).collect();
            preflight::print(context, &jobs, &format!("no job of {server} is unfinished"))
        }
        Jobs::Cancel { job, .. } if command.is_dry() => {
            let job = unfinished(way, *job).with_context(on)?;
            preflight::print(context, &[Preview::cancel(job)], "")
        }
        Jobs::Resume { job, .. } => {
            let job = job.unwrap_or(0);
            let reply = cellar::resume_job(way, &ResumeJobRequest { job });
            let resumed = reply.map_err(|code| explained(job, code)).with_context(on)?.resumed;
            let sentence = match resumed {
                0 => format!("no job of {server} is unfinished"),
                1 => format!("1 job of {server} continues"),
                more => format!("{more} jobs of {server} continue"),
            };
            context.format.done(&resumed, sentence)
        }
        Jobs::Cancel { job, .. } => {
            let reply = cellar::cancel_job(way, &CancelJobRequest { job: *job });
            reply.map_err(|code| explained(*job, code)).with_context(on)?;
            context.format.done(&true, format!("asked {server} to undo job {job}"))
        }
    }
}

fn get(way: &dyn ClientConnection, job: u32) -> Result<GetJobReply> {
    cellar::get_job(way, &GetJobRequest { job }).map_err(|code| explained(job, code))
}

fn unfinished(way: &dyn ClientConnection, job: u32) -> Result<JobView> {
    let shown = shown(&get(way, job)?.info)?;
    if shown.stage.is_over() { Err(explained(job, AbortCode::UAEINVAL)) } else { Ok(shown) }
}

fn list(way: &dyn ClientConnection) -> Result<Vec<JobView>> {
    let mut all = Vec::new();
    let mut after = 0;
    loop {
        let reply = cellar::list_jobs(way, &ListJobsRequest { after });
        let jobs = reply.map_err(|code| explained(0, code))?.jobs;
        // Stop if a server repeats itself, rather than loop forever.
        let Some(last) = jobs.last().map(|job| job.id).filter(|&last| last > after) else { return Ok(all) };
        after = last;
        for info in &jobs {
            all.push(shown(info)?);
        }
    }
}

fn shown(info: &JobInfo) -> Result<JobView> {
    let stage = || anyhow!("the job {} is at `{}`, which this program does not know", info.id, info.stage);
    JobView::from_info(info).with_context(|| stage().to_string())
}

fn explained(job: u32, code: AbortCode) -> anyhow::Error {
    match code {
        AbortCode::UAENOENT => anyhow!("there is no job {job}"),
        AbortCode::UAEINVAL => anyhow!("the job {job} has ended"),
        AbortCode::RX_INVALID_OPERATION | AbortCode::RXGEN_OPCODE => {
            anyhow!("not a Cellar server that reports its jobs: {}", describe(code))
        }
        code => anyhow!("{}", describe(code)),
    }
}
