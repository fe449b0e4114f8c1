//! What a job would do, in words.

use crate::job::places;
use crate::{Job, Operation};

/// The steps of a job, in their order.
pub fn steps(job: &Job) -> Vec<String> {
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
            format!("remove {name}, its backup and the clone on {from}, and unlock the entry"),
        ],
        Operation::Copy { name: new, to } => vec![
            format!("get numbers for {new}"),
            format!("clone {name} on {from}, which stays in use"),
            format!("send the clone to {new} on {to}"),
            format!("make the entry of {new}"),
            format!("remove the clone on {from}"),
        ],
        Operation::Release { all } => vec![
            format!("lock the entry of {name} in the location database"),
            "ask all read-only sites what they have".into(),
            format!("clone {name} on {from}, which stays in use"),
            if *all {
                "send everything to the read-only sites, to as many at once as can be".into()
            } else {
                "send what they lack to the read-only sites, to as many at once as can be, those that lack little first".into()
            },
            "mark each site in the entry when it has it".into(),
            "remove the clone if it is no read-only site's, and unlock the entry".into(),
        ],
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
            format!("clone {name} on {from} as {name}.backup, or bring that up to date"),
            "unlock the entry".into(),
        ],
    }
}

fn restoring(name: &str, made: String, offline: bool) -> Vec<String> {
    let mut steps = vec![format!("get numbers for {name}"), made];
    steps.extend((!offline).then(|| format!("take {name} into service")));
    steps.push(format!("make the entry of {name}"));
    steps
}
