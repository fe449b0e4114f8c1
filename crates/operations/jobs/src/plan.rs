//! Describes the steps of a job for display.

use crate::job::places;
use crate::{Gets, Job, Operation, Outlook, Place, SiteOutlook};

/// Returns the steps of a job in order, given the current state.
pub(crate) fn steps(job: &Job, outlook: &Outlook) -> Vec<String> {
    let (name, from) = (&job.name, job.from);
    match &job.operation {
        Operation::Move { to } => vec![
            format!("lock the entry of {name} in the location database"),
            format!("clone {name} on {from}, which stays in use"),
            format!("send the clone to a new volume on {to}"),
            format!("send what changed meanwhile, while clients of {name} wait"),
            if from.server == to.server {
                format!("take {name} on {from} out of service")
            } else {
                format!("take {name} on {from} out of service, and into service on {to}")
            },
            if from.server == to.server {
                format!("let the entry point to {to}, and take {name} into service there")
            } else {
                format!("let the entry point to {to}")
            },
            match outlook.backup {
                Some(_) => format!("remove {name}, its backup and the clone on {from}, and unlock the entry"),
                None => format!("remove {name} and the clone on {from}, and unlock the entry"),
            },
        ],
        Operation::Copy { name: new, to } => vec![
            format!("get numbers for {new}"),
            format!("clone {name} on {from}, which stays in use"),
            format!("send the clone to {new} on {to}"),
            format!("make the entry of {new}"),
            format!("remove the clone on {from}"),
        ],
        Operation::Release { .. } => releasing(job, &outlook.sites),
        Operation::Restore { file, name: new, to, offline, readonly, also } => {
            let made = if *readonly { "read-only and out of service" } else { "out of service" };
            let made = format!("make {new} on {to}, {made}, and send {file} to it");
            let mut steps = restoring(new, made, *offline);
            if let [second, further @ ..] = &also[..] {
                steps.push(format!("send it from there to {}", places(*second, further)));
            }
            steps
        }
        Operation::Overwrite { file, changes, offline, .. } => vec![
            format!("lock the entry of {name} in the location database"),
            if *changes {
                format!("apply the changes in {file} to {name} on {from}, while its clients wait")
            } else {
                format!("replace what {name} on {from} has by {file}, while its clients wait")
            },
            format!("take {name} {} service, and unlock the entry", if *offline { "out of" } else { "into" }),
        ],
        Operation::Split { path, name: new, .. } => vec![
            format!("get numbers for {new}"),
            format!("make {new} on {from}, empty, and its entry"),
            format!("copy {path} with everything below it to {new}, while clients of {name} wait"),
            format!("put a mount point of {new} in the place of {path}, and remove what was copied"),
        ],
        Operation::Backup => vec![
            format!("lock the entry of {name} in the location database"),
            match outlook.backup {
                Some(_) => format!("bring {name}.backup on {from} up to date"),
                None => format!("clone {name} on {from} as {name}.backup"),
            },
            "unlock the entry".into(),
        ],
    }
}

fn releasing(job: &Job, sites: &[SiteOutlook]) -> Vec<String> {
    let (name, from) = (&job.name, job.from);
    let mut steps = vec![
        format!("lock the entry of {name} in the location database"),
        "ask all read-only sites what they have".into(),
    ];
    if sites.iter().all(|site| site.gets == Gets::Nothing) {
        steps.push("unlock the entry: nothing has changed, and all sites have it".into());
        return steps;
    }
    let beside = sites.iter().find(|site| site.place == from);
    match beside.map(|site| &site.gets) {
        Some(Gets::Nothing) => {}
        Some(_) => steps.push(format!("clone {name} on {from} as its read-only volume there")),
        None => steps.push(format!("clone {name} on {from}, which stays in use")),
    }
    for transfer in 1.. {
        let is_in = |site: &&SiteOutlook| site.transfer == Some(transfer);
        let Some(first) = sites.iter().find(is_in) else { break };
        let further: Vec<Place> = sites.iter().filter(is_in).skip(1).map(|site| site.place).collect();
        let what = if first.gets == Gets::Everything { "everything" } else { "what changed" };
        let to = places(first.place, &further);
        steps.push(format!("send {what} to {to}, take it into use there and say so in the entry"));
    }
    if beside.is_none() {
        steps.push("remove the clone".into());
    }
    steps.push("unlock the entry".into());
    let later = sites.iter().filter(|site| matches!(site.gets, Gets::Later(_)));
    steps.extend(later.map(|site| format!("send it to {} when that is possible", site.place)));
    steps
}

fn restoring(name: &str, made: String, offline: bool) -> Vec<String> {
    let mut steps = vec![format!("get numbers for {name}"), made];
    steps.extend((!offline).then(|| format!("take {name} into service")));
    steps.push(format!("make the entry of {name}"));
    steps
}
