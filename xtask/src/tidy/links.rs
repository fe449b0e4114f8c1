//! Checks that links between documents resolve, and that documents named in sources, scripts and messages
//! exist.

use anyhow::{Context, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};
use walkdir::{DirEntry, WalkDir};

/// Folders of the repository that are checked; the others hold output of builds and test runs.
const FOLDERS: [&str; 9] = [".ci", ".cargo", "contrib", "crates", "docs", "fuzz", "idl", "scripts", "xtask"];

/// Subfolders that hold generated data.
const SKIPPED: [&str; 4] = ["target", "corpus", "artifacts", "testdata"];

/// Texts by path relative to the repository's root.
pub(crate) type Texts = BTreeMap<String, String>;

/// Checks every document and every mention of one.
pub(crate) fn check(root: &Path) -> Result<Vec<String>> {
    let texts = read_all(root)?;
    Ok(judge(&texts, &|path| root.join(path).exists()))
}

fn read_all(root: &Path) -> Result<Texts> {
    let mut texts = Texts::new();
    let folders = FOLDERS.iter().map(|folder| WalkDir::new(root.join(folder)));
    for entry in folders
        .chain([WalkDir::new(root).max_depth(1)])
        .flat_map(|walk| walk.into_iter().filter_entry(is_read))
    {
        let entry = entry?;
        if entry.file_type().is_file() {
            let name = entry.path().strip_prefix(root)?.to_string_lossy().into_owned();
            let bytes = std::fs::read(entry.path()).with_context(|| name.clone())?;
            texts.extend(String::from_utf8(bytes).ok().map(|text| (name, text)));
        }
    }
    Ok(texts)
}

fn is_read(entry: &DirEntry) -> bool {
    !entry.file_type().is_dir() || !SKIPPED.iter().any(|skipped| entry.file_name() == *skipped)
}

/// Returns the broken links and mentions. `exists` reports whether a path from the root exists that is not a
/// text.
pub(crate) fn judge(texts: &Texts, exists: &dyn Fn(&str) -> bool) -> Vec<String> {
    let mut complaints = Vec::new();
    for (path, text) in texts {
        if is_document(path) {
            let broken = links(text).into_iter().filter_map(|(line, link)| {
                wrong_link(path, &link, texts, exists).map(|wrong| format!("{path}:{line}: {wrong}"))
            });
            complaints.extend(broken);
        }
        let unknown = mentions(text).into_iter().filter(|(_, name)| !texts.contains_key(name));
        complaints.extend(unknown.map(|(line, name)| format!("{path}:{line}: there is no {name}")));
    }
    complaints
}

fn is_document(path: &str) -> bool {
    path.rsplit_once('.').is_some_and(|(_, extension)| extension == "md")
}

/// Returns the complaint about a document's link, if it is broken.
fn wrong_link(from: &str, link: &str, texts: &Texts, exists: &dyn Fn(&str) -> bool) -> Option<String> {
    if link.contains("://") || link.starts_with("mailto:") {
        return None;
    }
    let (file, anchor) = link.split_once('#').map_or((link, None), |(file, anchor)| (file, Some(anchor)));
    let Some(target) = resolve(from, file) else {
        return Some(format!("the link {link} leaves the repository"));
    };
    match (texts.get(&target), anchor) {
        (None, _) if !exists(&target) => {
            Some(format!("the link {link} leads to {target}, which is not there"))
        }
        (Some(text), Some(anchor)) if is_document(&target) && !anchors(text).contains(anchor) => {
            Some(format!("{target} has no heading for the link {link}"))
        }
        _ => None,
    }
}

/// Resolves a document's link to a path from the root.
fn resolve(from: &str, file: &str) -> Option<String> {
    if file.is_empty() {
        return Some(from.to_owned());
    }
    let mut path = PathBuf::from(from);
    path.pop();
    for component in Path::new(file).components() {
        match component {
            Component::ParentDir if !path.pop() => return None,
            Component::ParentDir | Component::CurDir => {}
            Component::Normal(name) => path.push(name),
            Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    Some(path.to_string_lossy().into_owned())
}

/// Returns a document's lines outside code blocks, with their numbers and without code spans.
fn prose(text: &str) -> Vec<(usize, String)> {
    let mut is_code = false;
    let mut lines = Vec::new();
    for (index, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
        } else if !is_code {
            lines.push((index + 1, line.split('`').step_by(2).collect::<Vec<_>>().join("``")));
        }
    }
    lines
}

/// Returns the targets of a document's links, with their line numbers.
pub(crate) fn links(text: &str) -> Vec<(usize, String)> {
    let mut all = Vec::new();
    for (number, line) in prose(text) {
        let targets = line.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
        all.extend(targets.map(|(target, _)| (number, target.to_owned())));
    }
    all
}

/// Returns the anchors of a document's headings, as GitHub derives them.
pub(crate) fn anchors(text: &str) -> BTreeSet<String> {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    let mut all = BTreeSet::new();
    for (heading, _) in headings(text) {
        let count = counts.entry(heading.clone()).or_default();
        all.insert(if *count == 0 { heading } else { format!("{heading}-{count}") });
        *count += 1;
    }
    all
}

/// Returns a document's headings: their anchors before numbers are appended, and their line numbers.
fn headings(text: &str) -> Vec<(String, usize)> {
    let numbers: BTreeSet<usize> = prose(text).into_iter().map(|(number, _)| number).collect();
    let lines = text.lines().enumerate().map(|(index, line)| (line, index + 1));
    lines
        .filter(|(line, number)| line.starts_with('#') && numbers.contains(number))
        .map(|(line, number)| (slug(line), number))
        .collect()
}

fn slug(heading: &str) -> String {
    let heading = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = heading.chars().filter(|char| char.is_alphanumeric() || matches!(char, ' ' | '-' | '_'));
    kept.map(|char| if char == ' ' { '-' } else { char }).collect()
}

/// Returns the names of documents in `docs` that a text mentions, with their line numbers.
pub(crate) fn mentions(text: &str) -> Vec<(usize, String)> {
    let mut all = Vec::new();
    for (index, line) in text.lines().enumerate() {
        for (at, _) in line.match_indices("docs/") {
            let is_part = line[..at].ends_with(|before: char| before.is_alphanumeric() || before == '-');
            let rest = &line[at..];
            let end = rest.find(|char: char| !char.is_ascii_alphanumeric() && !"-_./".contains(char));
            let name = rest[..end.unwrap_or(rest.len())].trim_end_matches('.');
            if !is_part && is_document(name) {
                all.push((index + 1, name.to_owned()));
            }
        }
    }
    all
}
