//! Output of the program as shown in docs/guide/diagnose.md, in blocks between lines like `<!-- bench NAME
//! -->`. If `CELLAR_SHOW` names a directory, each block is written to a file of its name there;
//! `scripts/stories` inserts them into the page.

use super::place::cellar;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

/// Maximum number of lines shown of a table or list.
const ROWS_MAX: usize = 6;

/// Directory for the blocks, if they are to be written.
fn folder() -> Option<PathBuf> {
    std::env::var_os("CELLAR_SHOW").map(PathBuf::from)
}

/// Returns whether blocks are written, rather than compared with the page.
pub(crate) fn is_wanted() -> bool {
    folder().is_some()
}

/// A block, which is compared with the page or written when it is dropped; without a name, neither.
pub(crate) struct Block {
    name: String,
    text: String,
}

impl Block {
    pub(crate) fn new(name: &str) -> Block {
        Block { name: name.to_owned(), text: String::new() }
    }

    /// Adds the output of a command.
    pub(crate) fn add(&mut self, command: &str, printed: &str) {
        let gap = if self.text.is_empty() { "" } else { "\n" };
        self.text.extend([gap, "$ cellar ", command, "\n", printed.trim_end(), "\n"]);
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        if thread::panicking() || self.name.is_empty() || self.text.is_empty() {
            return;
        }
        if let Some(folder) = folder() {
            std::fs::write(folder.join(&self.name), format!("```\n{}```\n", self.text)).unwrap();
            return;
        }
        let page = documented(&self.name);
        for heading in headings(&self.text) {
            assert!(
                headings(&page).contains(&heading),
                "docs/guide/diagnose.md, {}: no {heading:?}",
                self.name
            );
        }
    }
}

/// Returns the block of that name in the page.
pub(crate) fn documented(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/guide/diagnose.md");
    let page = std::fs::read_to_string(path).unwrap();
    let block = page.split_once(&format!("<!-- bench {name} -->\n"));
    let block = block.and_then(|(_, rest)| rest.split_once(&format!("<!-- /bench {name} -->\n")));
    block.unwrap_or_else(|| panic!("docs/guide/diagnose.md has no block {name}")).0.to_owned()
}

/// Returns the column headings of tables: lines without numbers that begin with a space and a capitalised
/// word.
pub(crate) fn headings(text: &str) -> Vec<Vec<String>> {
    let is_heading = |line: &&str| {
        let word = line.strip_prefix(' ').and_then(|line| line.split(' ').next()).unwrap_or_default();
        word.len() >= 4 && word.chars().all(|letter| letter.is_ascii_uppercase())
    };
    let columns = |line: &str| {
        line.split("  ").map(|cell| cell.trim().to_owned()).filter(|cell| !cell.is_empty()).collect()
    };
    let is_number = |cell: &String| cell.starts_with(|letter: char| letter.is_ascii_digit());
    let lines = text.lines().filter(is_heading).map(columns);
    lines.filter(|cells: &Vec<String>| !cells.iter().any(is_number)).collect()
}

/// Returns the first section of the output, and those that begin with one of these words, each cut to its
/// first lines.
pub(crate) fn shortened(printed: &str, sections: &[&str]) -> String {
    let mut text = String::new();
    for (index, section) in printed.trim_end().split("\n\n").enumerate() {
        if index > 0 && !sections.iter().any(|word| section.trim_start().starts_with(word)) {
            if !text.ends_with("...\n") {
                text += "...\n";
            }
            continue;
        }
        let lines: Vec<&str> = section.lines().collect();
        lines.iter().take(ROWS_MAX).for_each(|line| text.extend([line, "\n"]));
        if lines.len() > ROWS_MAX {
            text += "...\n";
        }
    }
    text
}

/// A `cellar sniff` that captures until this is dropped, if blocks are written. Needs root.
pub(crate) struct Sniffing(Option<(Child, Block)>);

impl Sniffing {
    pub(crate) fn start(name: &str) -> Sniffing {
        let start = |_| {
            let mut command = cellar(&["sniff", "-i", "lo", "--seconds", "100", "--top", "4"]);
            command.stdout(Stdio::piped());
            let child = command.spawn().unwrap();
            // Wait until the capture has started.
            thread::sleep(Duration::from_secs(1));
            (child, Block::new(&format!("{name}-sniff")))
        };
        Sniffing(folder().filter(|_| !name.is_empty()).map(start))
    }
}

impl Drop for Sniffing {
    fn drop(&mut self) {
        let Some((mut child, mut block)) = self.0.take() else { return };
        _ = Command::new("kill").args(["-INT", &child.id().to_string()]).status();
        let mut printed = String::new();
        child.stdout.take().unwrap().read_to_string(&mut printed).unwrap();
        _ = child.wait();
        block.add(
            "sniff -i lo --seconds 100 --top 4",
            &shortened(&printed, &["CALLS", "VOLUMES", "FINDINGS"]),
        );
    }
}
