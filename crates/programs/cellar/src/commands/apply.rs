//! `cellar apply`: makes the cell what a file declares. docs/guide/apply.md describes the file.

mod declared;
mod execute;
mod observed;
mod plan;
#[cfg(test)]
mod tests;

use super::Context;
use crate::output::{Format, line};
use anyhow::{Context as _, Result, bail};
use clap::Args;
use declared::Declared;
use plan::{Conflict, Step};
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Exit status of a dry run that found changes to make. (2 is that of a wrong command line.)
const CHANGES_STATUS: u8 = 3;

/// Make the cell what a file declares.
#[derive(Args)]
pub struct Applying {
    /// File with the declarations, like cell.toml.
    file: PathBuf,
    /// Print the changes without making them.
    #[arg(long)]
    dry_run: bool,
    /// Remove members of declared groups, and entries of declared ACLs, that the file does not declare.
    #[arg(long)]
    prune: bool,
}

/// A step with its description.
#[derive(Serialize)]
struct Described<'a> {
    #[serde(flatten)]
    step: &'a Step,
    description: String,
    is_done: bool,
}

/// The result as printed for programs.
#[derive(Serialize)]
struct Outcome<'a> {
    steps: Vec<Described<'a>>,
    conflicts: &'a [Conflict],
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    is_dry_run: bool,
}

impl<'a> Outcome<'a> {
    fn new(steps: &'a [Step], done: usize, is_dry_run: bool) -> Outcome<'a> {
        let describe = |(number, step): (usize, &'a Step)| Described {
            step,
            description: step.to_string(),
            is_done: number < done,
        };
        let steps = steps.iter().enumerate().map(describe).collect();
        Outcome { steps, conflicts: &[], error: None, is_dry_run }
    }
}

/// Runs the command.
pub fn run(context: &Context, apply: &Applying) -> ExitCode {
    match apply_file(context, apply) {
        Ok(status) => status,
        Err(error) => {
            eprintln!("cellar: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn apply_file(context: &Context, apply: &Applying) -> Result<ExitCode> {
    let declared = Declared::load(&apply.file)?;
    check_cell(context, &apply.file, &declared)?;
    let cell = context.client()?;
    let observed = observed::observe(&cell, &declared, context.default_server(&cell))?;
    let steps = match plan::plan(&declared, &observed, apply.prune) {
        Ok(steps) => steps,
        Err(conflicts) => return refuse(context, apply, &conflicts),
    };
    if apply.dry_run {
        return show_plan(context, &steps);
    }
    carry_out(context, &steps, |step| execute::execute(context, &cell, step))
}

/// Fails if the file is for another cell than the one that the configuration belongs to.
fn check_cell(context: &Context, path: &Path, declared: &Declared) -> Result<()> {
    let (Some(wanted), Ok(settings)) = (&declared.cell, context.settings()) else { return Ok(()) };
    if wanted.value != settings.cell {
        bail!(
            "{}, line {}, `cell`: the file is for the cell {}, but {} belongs to {}",
            path.display(),
            wanted.line,
            wanted.value,
            settings.source,
            settings.cell
        );
    }
    Ok(())
}

/// Reports declarations that contradict the cell.
fn refuse(context: &Context, apply: &Applying, conflicts: &[Conflict]) -> Result<ExitCode> {
    if context.format == Format::Json {
        let outcome = Outcome { conflicts, ..Outcome::new(&[], 0, apply.dry_run) };
        context.format.done(&outcome, "")?;
    }
    for Conflict { line, key, what } in conflicts {
        eprintln!("cellar: {}, line {line}, `{key}`: {what}", apply.file.display());
    }
    bail!("nothing was changed; {} declarations contradict the cell", conflicts.len())
}

/// Prints the steps of a dry run.
fn show_plan(context: &Context, steps: &[Step]) -> Result<ExitCode> {
    if context.format == Format::Json {
        context.format.done(&Outcome::new(steps, 0, true), "")?;
    } else if steps.is_empty() {
        line("nothing to do")?;
    } else {
        steps.iter().try_for_each(|step| line(format!("would {step}")))?;
        line(format!("changes to make: {}", steps.len()))?;
    }
    Ok(if steps.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(CHANGES_STATUS) })
}

/// Executes the steps in order until one fails; reports what was done, and after a failure what was not.
fn carry_out(
    context: &Context,
    steps: &[Step],
    mut execute: impl FnMut(&Step) -> Result<()>,
) -> Result<ExitCode> {
    let mut done = 0;
    let mut made = Ok(());
    while made.is_ok() && done < steps.len() {
        made = execute(&steps[done]);
        if made.is_ok() {
            if context.format == Format::Text {
                line(format!("done: {}", steps[done]))?;
            }
            done += 1;
        }
    }
    let error = made.as_ref().err().map(|error| format!("{error:#}"));
    let outcome = Outcome { error, ..Outcome::new(steps, done, false) };
    let summary = match (&made, done) {
        (Ok(()), 0) => "nothing to do".to_owned(),
        (Ok(()), _) => format!("changes made: {done}"),
        (Err(_), _) => {
            let rest = steps[done..].iter().map(|step| format!("not done: {step}"));
            rest.collect::<Vec<_>>().join("\n")
        }
    };
    context.format.done(&outcome, summary)?;
    made.with_context(|| {
        let again = "when the cause is removed, the same command makes the rest";
        format!("made {done} of {} changes; {again}", steps.len())
    })?;
    Ok(ExitCode::SUCCESS)
}
