//! Output of jobs.

use crate::commands::Context;
use crate::output::Row;
use afs_idl::cellar::JobInfo;
use anyhow::Result;
use indicatif::HumanBytes;
use job_runner::traffic::Transfers;
use jobs::{Event, Job, Stage};
use serde::Serialize;
use xdr::XdrString;

/// A job as displayed.
#[derive(Serialize)]
pub(super) struct JobView {
    pub(super) job: u32,
    pub(super) operation: String,
    volume: u32,
    name: String,
    pub(super) title: String,
    pub(super) stage: Stage,
    pub(super) is_running: bool,
    began: Option<u32>,
    latest: Option<u32>,
    doing: String,
    trouble: Option<String>,
    /// Bytes to transfer, bytes that the targets have, and bytes sent.
    total: u64,
    done: u64,
    sent: u64,
    /// Rate of `done` in bytes per second.
    rate: u64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    events: Vec<Event>,
}

impl JobView {
    /// Builds the display of a local journal's job.
    pub(super) fn new(job: &Job, is_running: bool, transfers: Transfers) -> JobView {
        JobView {
            job: job.id,
            operation: job.verb().into(),
            volume: job.volume(),
            name: job.name.clone(),
            title: job.title(),
            stage: job.stage(),
            is_running,
            began: job.events.first().map(|event| event.at),
            latest: job.events.last().map(|event| event.at),
            doing: job.latest().into(),
            trouble: job.failure().map(String::from),
            total: transfers.traffic.total,
            done: transfers.traffic.done,
            sent: transfers.traffic.sent,
            rate: transfers.rate,
            events: Vec::new(),
        }
    }

    /// Builds the display of a remote server's job; `None` if a newer version reports an unknown stage.
    pub(super) fn from_info(info: &JobInfo) -> Option<JobView> {
        let text = |text: &XdrString| text.to_string();
        let some = |at: u32| (at != 0).then_some(at);
        Some(JobView {
            job: info.id,
            operation: text(&info.operation),
            volume: info.volume,
            name: text(&info.name),
            title: text(&info.title),
            stage: Stage::named(info.stage.as_str()?)?,
            is_running: info.is_running != 0,
            began: some(info.began),
            latest: some(info.latest),
            doing: text(&info.doing),
            trouble: some(info.trouble.0.len() as u32).map(|_| text(&info.trouble)),
            total: info.total,
            done: info.done,
            sent: info.sent,
            rate: info.rate,
            events: Vec::new(),
        })
    }

    /// Prints the job with its history.
    pub(super) fn show(self, context: &Context, events: Vec<Event>) -> Result<()> {
        if context.format == crate::output::Format::Json {
            return context.format.done(&JobView { events, ..self }, "");
        }
        let sent = if self.total > 0 { format!("; {}", self.progress()) } else { String::new() };
        let sentence = format!("{}: {}{sent}", self.title, state(self.stage, self.is_running));
        context.format.done(&(), sentence)?;
        context.format.rows(&events.into_iter().map(HistoryEvent).collect::<Vec<_>>())
    }

    /// Describes the progress of the transfer.
    fn progress(&self) -> String {
        if self.total == 0 {
            return "-".into();
        }
        let (done, total) = (HumanBytes(self.done), HumanBytes(self.total));
        let rate = if self.rate > 0 { format!(", {}/s", HumanBytes(self.rate)) } else { String::new() };
        if self.is_running {
            let percent = u128::from(self.done) * 100 / u128::from(self.total.max(1));
            return format!("{percent} % of {total}{rate}");
        }
        format!("{done}, sent {}", HumanBytes(self.sent))
    }
}

impl Row for JobView {
    const COLUMNS: &'static [&'static str] = &["JOB", "WHAT", "STARTED (UTC)", "STATE", "DATA", "LATEST"];

    fn cells(&self) -> Vec<String> {
        vec![
            self.job.to_string(),
            self.title.clone(),
            self.began.map_or_else(|| "-".into(), time),
            state(self.stage, self.is_running).into(),
            self.progress(),
            self.trouble.clone().unwrap_or_else(|| self.doing.clone()),
        ]
    }
}

/// An event in a job's history.
#[derive(Serialize)]
struct HistoryEvent(Event);

impl Row for HistoryEvent {
    const COLUMNS: &'static [&'static str] = &["WHEN (UTC)", "WHAT"];

    fn cells(&self) -> Vec<String> {
        vec![time(self.0.at), self.0.what.clone()]
    }
}

fn time(seconds: u32) -> String {
    jiff::Timestamp::from_second(seconds.into())
        .map_or_else(|_| seconds.to_string(), |at| at.strftime("%F %T").to_string())
}

fn state(stage: Stage, is_running: bool) -> &'static str {
    match stage {
        Stage::Done => "done",
        Stage::Failed => "failed",
        _ if !is_running => "interrupted",
        Stage::Undoing => "being undone",
        Stage::CatchingUp => "waits for sites",
        _ => "running",
    }
}
