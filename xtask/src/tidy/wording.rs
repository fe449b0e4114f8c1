//! Checks the wording of comments, the names of tests and the subjects of commits.
//!
//! Words that technical English does not use in this sense ("told" for "returned", "who" for a process) are
//! counted in the comments of each crate; the limits may only fall.

use super::SourceFile;
use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// File with the limits of the crates.
const LIMITS: &str = "xtask/wording.txt";

/// Words and phrases that are counted. Lower case; a phrase matches consecutive words.
const MARKERS: &[&str] = &[
    "beforehand",
    "heed",
    "hence",
    "is heard",
    "likewise",
    "lies in",
    "looked at",
    "looks at",
    "nobody",
    "of before",
    "of theirs",
    "so many",
    "somebody",
    "stands in",
    "tell",
    "tells",
    "thereafter",
    "thereby",
    "told",
    "whoever",
    "whom",
    "worse",
];

/// Words that the name of a function must not contain: the name says what happens, to which noun.
const NAME_MARKERS: &[&str] = &["heed", "told", "untold", "whoever", "whom"];

/// Words that the name of a test must not begin with.
const NAME_STARTS: &[&str] = &["what", "who"];

/// Maximum length of a test's name in bytes.
const TEST_NAME_MAX: usize = 60;
/// Maximum length of a commit's subject in characters.
const SUBJECT_MAX: usize = 72;
/// Number of last commits whose subjects are checked.
const COMMITS: &str = "30";

/// Checks everything. With `lower_limits`, limits above the present counts are lowered.
pub(crate) fn check(root: &Path, files: &[SourceFile], lower_limits: bool) -> Result<Vec<String>> {
    let own: Vec<&SourceFile> = files.iter().filter(|file| !file.is_generated()).collect();
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for file in &own {
        *counts.entry(file.crate_name().to_owned()).or_default() += markers(&file.all_lines).count();
    }
    let path = root.join(LIMITS);
    let limits = read(&std::fs::read_to_string(&path).context(LIMITS)?)?;
    if lower_limits {
        std::fs::write(&path, written(&counts, &limits))?;
    }
    let mut complaints = judge(&counts, &limits);
    complaints.extend(own.iter().flat_map(|file| wrong_test_names(file)));
    complaints.extend(own.iter().flat_map(|file| wrong_function_names(file)));
    complaints.extend(subjects(root).iter().filter_map(|subject| wrong_subject(subject)));
    Ok(complaints)
}

/// Returns the markers in comments that begin their lines.
pub(crate) fn markers(lines: &[String]) -> impl Iterator<Item = &'static str> {
    let comments = lines.iter().filter_map(|line| line.trim_start().strip_prefix("//"));
    comments.flat_map(|comment| {
        let lower = comment.to_lowercase();
        let words: Vec<&str> = lower.split(|c: char| !c.is_alphanumeric() && c != '_').collect();
        let text = format!(" {} ", words.join(" "));
        MARKERS
            .iter()
            .copied()
            .filter(move |marker| text.contains(&format!(" {marker} ")))
            .collect::<Vec<_>>()
    })
}

/// Parses the file of limits: a crate and a number per line, after a paragraph of text.
pub(crate) fn read(text: &str) -> Result<BTreeMap<String, usize>> {
    let lines = text.lines().skip_while(|line| !line.is_empty()).filter(|line| !line.is_empty());
    lines
        .map(|line| {
            let (name, count) = line.split_once(' ').with_context(|| format!("{LIMITS}: {line:?}"))?;
            Ok((name.to_owned(), count.parse().with_context(|| format!("{LIMITS}: {line:?}"))?))
        })
        .collect()
}

fn written(counts: &BTreeMap<String, usize>, limits: &BTreeMap<String, usize>) -> String {
    let head = "Words in comments that xtask/src/tidy/wording.rs lists, by crate; a crate that is not named has none.\n\
                The numbers may only fall (cargo xtask tidy --lower-limits).\n\n";
    let lowered = counts.iter().filter_map(|(name, count)| {
        let count = limits.get(name).map_or(0, |limit| *count.min(limit));
        (count > 0).then(|| format!("{name} {count}\n"))
    });
    head.to_owned() + &lowered.collect::<String>()
}

/// Returns a complaint for each crate above its limit.
pub(crate) fn judge(counts: &BTreeMap<String, usize>, limits: &BTreeMap<String, usize>) -> Vec<String> {
    let over = counts.iter().filter_map(|(name, count)| {
        let limit = limits.get(name).copied().unwrap_or(0);
        (*count > limit).then(|| {
            format!("comments of {name} have {count} words that xtask/src/tidy/wording.rs lists; at most {limit} may stay")
        })
    });
    over.collect()
}

/// Returns a complaint for each test whose name is too long or begins with a pronoun.
pub(crate) fn wrong_test_names(file: &SourceFile) -> Vec<String> {
    let after_attribute = file.all_lines.windows(2).filter(|pair| pair[0].trim() == "#[test]");
    let names = after_attribute.filter_map(|pair| pair[1].trim().strip_prefix("fn ")?.split('(').next());
    let fault = |name: &str| {
        let start = name.split('_').next().unwrap_or_default();
        if name.len() > TEST_NAME_MAX {
            Some(format!("has {} bytes; at most {TEST_NAME_MAX}", name.len()))
        } else if NAME_STARTS.contains(&start) {
            Some(format!("begins with `{start}` instead of a noun"))
        } else {
            None
        }
    };
    let wrong = names.filter_map(|name| Some((name, fault(name)?)));
    wrong.map(|(name, fault)| format!("{}: the test name {name} {fault}", file.path)).collect()
}

/// Returns a complaint for each function whose name contains one of [`NAME_MARKERS`].
pub(crate) fn wrong_function_names(file: &SourceFile) -> Vec<String> {
    let name = |line: &str| Some(line.split_once("fn ")?.1.split(['(', '<']).next()?.to_owned());
    let names = file.all_lines.iter().filter(|line| !line.trim_start().starts_with("//"));
    let marked = |name: &String| name.split('_').any(|word| NAME_MARKERS.contains(&word));
    let wrong = names.filter_map(|line| name(line)).filter(marked);
    wrong.map(|name| format!("{}: the name {name} has a word that is not used here", file.path)).collect()
}

/// Returns the subjects of the last commits; none without git or its history.
fn subjects(root: &Path) -> Vec<String> {
    let arguments = ["log", "--no-merges", "--format=%s", "-n", COMMITS];
    let output = Command::new("git").args(arguments).current_dir(root).output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

/// Returns a complaint if a subject is too long, ends with a full stop, or narrates instead of commanding.
pub(crate) fn wrong_subject(subject: &str) -> Option<String> {
    let length = subject.chars().count();
    let first =
        subject.rsplit_once(": ").map_or(subject, |(_, rest)| rest).split(' ').next().unwrap_or_default();
    let fault = if length > SUBJECT_MAX {
        format!("has {length} characters; at most {SUBJECT_MAX}")
    } else if subject.ends_with('.') {
        "ends with a full stop".to_owned()
    } else if ["who", "what", "which", "whoever", "added", "adds", "fixed", "fixes"].contains(&first) {
        format!("begins with `{first}` instead of a verb in the imperative")
    } else {
        return None;
    };
    Some(format!("the subject of a commit {fault}: {subject:?}"))
}
