//! `cellar volume jobs resume|cancel --dry-run`: predicts the effect on a job from its stage.

use super::Jobs;
use super::job_view::JobView;
use crate::commands::Context;
use crate::output::Row;
use anyhow::Result;
use jobs::Stage;
use serde::Serialize;

/// What would be done with a job.
#[derive(Serialize)]
pub(super) struct Preview {
    job: u32,
    title: String,
    stage: Stage,
    is_running: bool,
    would: &'static str,
}

impl Row for Preview {
    const COLUMNS: &'static [&'static str] = &["JOB", "WHAT", "IT WOULD"];

    fn cells(&self) -> Vec<String> {
        vec![self.job.to_string(), self.title.clone(), self.would.into()]
    }
}

impl Preview {
    /// Predicts the effect of resuming a job.
    pub(super) fn resume(shown: JobView) -> Preview {
        let would = if shown.is_running { "wait no longer" } else { going_on(shown.stage) };
        Preview::new(shown, would)
    }

    /// Predicts the effect of cancelling a job.
    pub(super) fn cancel(shown: JobView) -> Preview {
        let would = cancelled(shown.stage, shown.operation == "release");
        Preview::new(shown, would)
    }

    fn new(shown: JobView, would: &'static str) -> Preview {
        let JobView { job, title, stage, is_running, .. } = shown;
        Preview { job, title, stage, is_running, would }
    }
}

impl Jobs {
    /// Returns whether this is a dry run.
    pub(super) fn is_dry(&self) -> bool {
        matches!(self, Jobs::Resume { dry_run: true, .. } | Jobs::Cancel { dry_run: true, .. })
    }
}

/// Prints what would be done with these jobs.
pub(super) fn print(context: &Context, all: &[Preview], nothing: &str) -> Result<()> {
    if all.is_empty() { context.format.done(&all, nothing) } else { context.format.rows(all) }
}

fn going_on(stage: Stage) -> &'static str {
    match stage {
        Stage::Beginning => "begin",
        Stage::Working => "undo the interrupted work, and start again",
        Stage::Switching => "be finished",
        Stage::Cleaning => "be finished: only cleaning up is left",
        Stage::Undoing => "be undone",
        Stage::CatchingUp => "send to the sites that lack it, as far as they can be reached",
        Stage::Done | Stage::Failed => "do nothing: it has ended",
    }
}

fn cancelled(stage: Stage, is_release: bool) -> &'static str {
    match stage {
        Stage::Beginning | Stage::Working if is_release => "be undone; sites that already have it keep it",
        Stage::Beginning | Stage::Working => "be undone",
        Stage::Switching | Stage::Cleaning => "be finished: it is too late to undo it",
        Stage::Undoing => "be undone, as it is anyway",
        Stage::CatchingUp => "end; the sites that lack it will not get it",
        Stage::Done | Stage::Failed => "do nothing: it has ended",
    }
}
