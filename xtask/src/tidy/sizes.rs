//! Checks the lengths of files and functions; the limits for functions may only fall.

use super::SourceFile;
use super::source::indentation;
use anyhow::{Context, Result, ensure};
use std::path::Path;

/// Maximum length of a file in lines.
const FILE_LINES_MAX: usize = 1000;

/// File with the limits for functions.
const LIMITS: &str = "xtask/function-lengths.txt";

/// Number of longest functions that are printed.
const SHOWN: usize = 5;

/// A function outside tests.
#[derive(Debug, PartialEq)]
pub(crate) struct Function {
    pub(crate) place: String,
    pub(crate) lines: usize,
}

/// Median, 99th percentile and maximum length, in lines.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Lengths {
    pub(crate) median: usize,
    pub(crate) p99: usize,
    pub(crate) longest: usize,
}

/// Checks files and functions, and prints the lengths of functions.
pub(crate) fn check(root: &Path, files: &[SourceFile], lower_limits: bool) -> Result<Vec<String>> {
    let own: Vec<&SourceFile> = files.iter().filter(|file| !file.is_generated()).collect();
    let mut complaints: Vec<String> = own.iter().filter_map(|file| wrong_size(file)).collect();
    let mut functions: Vec<Function> = own.iter().flat_map(|file| functions(file)).collect();
    functions.sort_by_key(|function| std::cmp::Reverse(function.lines));
    let lengths = measure(&functions);
    show(&functions, lengths);
    let path = root.join(LIMITS);
    let limits = read(&std::fs::read_to_string(&path).context(LIMITS)?)?;
    complaints.extend(judge(lengths, limits));
    if lower_limits {
        std::fs::write(&path, written(lower(lengths, limits)))?;
    }
    Ok(complaints)
}

/// Returns a complaint if the file is empty or too long.
pub(crate) fn wrong_size(file: &SourceFile) -> Option<String> {
    let SourceFile { path, length, .. } = file;
    if file.all_lines.iter().all(|line| line.trim().is_empty()) {
        return Some(format!("{path} is empty: write what its name promises, or remove it"));
    }
    (*length > FILE_LINES_MAX)
        .then(|| format!("{path} has {length} lines; at most {FILE_LINES_MAX} are good"))
}

/// Returns the file's functions that have a body.
pub(crate) fn functions(file: &SourceFile) -> Vec<Function> {
    let starts = (0..file.lines.len()).filter(|&index| begins_function(&file.lines[index]));
    starts
        .filter_map(|start| {
            let lines = function_length(&file.lines[start..])?;
            Some(Function { place: format!("{}:{}", file.path, start + 1), lines })
        })
        .collect()
}

fn begins_function(line: &str) -> bool {
    let qualifiers = ["pub", "const", "async", "unsafe", "extern", "pub(crate)", "pub(super)", "\"C\""];
    line.split_whitespace().find(|word| !qualifiers.contains(word)) == Some("fn")
}

/// Returns the length of the function that starts at the first line, in lines; `None` if it has no body.
/// Relies on rustfmt: signature and body end at the indentation of the first line.
fn function_length(lines: &[String]) -> Option<usize> {
    let indent = indentation(&lines[0]);
    let mut own =
        lines.iter().enumerate().filter(|(_, line)| !line.is_empty() && indentation(line) == indent);
    let head = own.find(|(_, line)| line.ends_with(['{', '}', ';']))?;
    match head.1.chars().next_back()? {
        ';' => None,
        '}' => Some(head.0 + 1),
        _ => own.find(|(_, line)| line.trim_start().starts_with('}')).map(|(index, _)| index + 1),
    }
}

/// Summarises functions that are sorted by length, longest first.
pub(crate) fn measure(functions: &[Function]) -> Lengths {
    let at = |share: usize| functions.get(functions.len() * share / 100).map_or(0, |function| function.lines);
    Lengths { median: at(50), p99: at(1), longest: at(0) }
}

fn show(functions: &[Function], lengths: Lengths) {
    let Lengths { median, p99, longest } = lengths;
    println!("tidy: {} functions: median {median}, p99 {p99}, longest {longest} lines", functions.len());
    for Function { place, lines } in functions.iter().take(SHOWN) {
        println!("tidy:   {lines:4}  {place}");
    }
}

/// Parses the file of limits.
pub(crate) fn read(text: &str) -> Result<Lengths> {
    let value = |name: &str| -> Result<usize> {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        Ok(line.with_context(|| format!("{LIMITS} has no `{name}`"))?.trim().parse()?)
    };
    let limits = Lengths { median: value("median ")?, p99: value("p99 ")?, longest: value("longest ")? };
    ensure!(limits.median <= limits.p99 && limits.p99 <= limits.longest, "the limits are not in order");
    Ok(limits)
}

fn written(limits: Lengths) -> String {
    let Lengths { median, p99, longest } = limits;
    format!(
        "Lengths of functions in lines that must not be exceeded; they may only fall\n\
         (cargo xtask tidy --lower-limits). Tests and generated code do not count.\n\n\
         median {median}\np99 {p99}\nlongest {longest}\n"
    )
}

fn lower(lengths: Lengths, limits: Lengths) -> Lengths {
    Lengths {
        median: lengths.median.min(limits.median),
        p99: lengths.p99.min(limits.p99),
        longest: lengths.longest.min(limits.longest),
    }
}

/// Returns a complaint for each limit that is exceeded.
pub(crate) fn judge(lengths: Lengths, limits: Lengths) -> Vec<String> {
    let pairs = [
        ("median", lengths.median, limits.median),
        ("99th percentile", lengths.p99, limits.p99),
        ("maximum", lengths.longest, limits.longest),
    ];
    let over = pairs.into_iter().filter(|(_, got, most)| got > most);
    over.map(|(name, got, most)| {
        format!("the {name} of functions has {got} lines; {most} were reached before")
    })
    .collect()
}
