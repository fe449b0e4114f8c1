//! `--dry-run` of operations that are jobs: what would be done, or why it would be refused.

use super::{following, time};
use crate::commands::Context;
use anyhow::{Result, bail};
use cell_client::CellClient;
use indicatif::{HumanBytes, HumanCount};
use job_runner::world::CellWorld;
use jobs::{Gets, Job, JobError, Operation, Outlook, Place, SiteOutlook, VolumeSummary};
use serde::Serialize;

/// What would be done.
#[derive(Serialize)]
struct Plan<'a> {
    operation: Operation,
    volume: u32,
    name: &'a str,
    from: Place,
    #[serde(flatten)]
    outlook: &'a Outlook,
    is_done: bool,
}

/// Prints what a job would do.
pub(super) fn preflight(context: &Context, cell: &CellClient, job: &Job) -> Result<()> {
    let outlook = &ask(cell, job)?;
    let Job { name, from, .. } = job;
    let (operation, volume) = (job.operation(), job.volume());
    let plan = Plan { operation, volume, name, from: *from, outlook, is_done: false };
    context.format.done(&plan, format!("would do the {}\n{}", job.title(), lines(job, outlook).join("\n")))
}

/// Runs the preflight checks of a job; fails if it would be refused.
pub(super) fn ask(cell: &CellClient, job: &Job) -> Result<Outlook> {
    match jobs::preflight(job, &CellWorld::for_preflight(cell)) {
        Ok(outlook) => Ok(outlook),
        Err(trouble) => {
            let code = if let JobError::Call { code, .. } = &trouble { Some(*code) } else { None };
            let why = following::explain(&trouble.to_string(), code);
            bail!("the {} would be refused: {why}", job.title())
        }
    }
}

/// Formats the results as lines of text.
pub(super) fn lines(job: &Job, outlook: &Outlook) -> Vec<String> {
    let mut lines = Vec::new();
    lines.extend(outlook.source.as_ref().map(|reported| volume(&job.name, reported)));
    if job.operation() == Operation::Backup {
        let backup = outlook.backup.as_ref();
        let reported = backup.map(|reported| format!("  {}.backup is of {}", job.name, time(reported.made)));
        lines.push(reported.unwrap_or_else(|| format!("  {} has no backup yet", job.name)));
    }
    let free = |kib: u64| HumanBytes(kib.saturating_mul(1024));
    lines.extend(
        outlook.partitions.iter().map(|space| format!("  {} has {} free", space.place, free(space.free_kib))),
    );
    lines.extend(outlook.sites.iter().map(site));
    lines.extend(outlook.cautions.iter().map(|caution| format!("  but {caution}")));
    lines.extend((1..).zip(&outlook.steps).map(|(number, step)| format!("{number}. {step}")));
    lines
}

fn volume(name: &str, reported: &VolumeSummary) -> String {
    let (size, files) = (HumanBytes(reported.size_kib.saturating_mul(1024)), HumanCount(reported.files));
    format!(
        "  {name} has {size}, {files} files and directories, and was last changed at {}",
        time(reported.changed)
    )
}

fn site(site: &SiteOutlook) -> String {
    let place = site.place;
    match &site.gets {
        Gets::Nothing => format!("  {place} already has it"),
        Gets::Clone => format!("  {place} gets a clone"),
        Gets::ChangesSince(date) => format!("  {place} gets what changed since {}", time(*date)),
        Gets::Everything => format!("  {place} gets everything"),
        Gets::Later(why) => format!("  {place} gets it later: {why}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use jobs::PartitionSpace;
    use std::net::Ipv4Addr;

    #[test]
    fn each_site_has_a_line_with_its_outcome() {
        let place = |last| Place { server: Ipv4Addr::new(192, 0, 2, last), partition: 0 };
        let site = |last, gets| SiteOutlook { place: place(last), gets, transfer: None };
        let reported = VolumeSummary { volume: 7, size_kib: 2048, files: 1234, made: 1, changed: 86_400 };
        let outlook = Outlook {
            source: Some(reported),
            partitions: vec![PartitionSpace { place: place(4), free_kib: 1024 }],
            sites: vec![
                site(1, Gets::Clone),
                site(2, Gets::Nothing),
                site(3, Gets::ChangesSince(60)),
                site(4, Gets::Everything),
                site(5, Gets::Later("it does not answer".into())),
            ],
            cautions: vec!["it may not fit".into()],
            steps: vec!["lock".into(), "unlock".into()],
            ..Outlook::default()
        };
        let job = Job::new(0, Operation::Release(jobs::Release { all: false }), 7, "data", place(1));
        let expected = [
            "  data has 2.00 MiB, 1,234 files and directories, and was last changed at 1970-01-02 00:00:00",
            "  192.0.2.4 /vicepa has 1.00 MiB free",
            "  192.0.2.1 /vicepa gets a clone",
            "  192.0.2.2 /vicepa already has it",
            "  192.0.2.3 /vicepa gets what changed since 1970-01-01 00:01:00",
            "  192.0.2.4 /vicepa gets everything",
            "  192.0.2.5 /vicepa gets it later: it does not answer",
            "  but it may not fit",
            "1. lock",
            "2. unlock",
        ];
        assert_eq!(lines(&job, &outlook), expected);
        let json = serde_json::to_value(&outlook).unwrap();
        assert_eq!(json["sites"][2]["gets"]["changes_since"], 60);
        assert_eq!(json["sites"][1]["gets"], "nothing");
    }
}
