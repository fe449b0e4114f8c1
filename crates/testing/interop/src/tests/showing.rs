//! Progress bars on a terminal while a volume is sent, and their absence elsewhere.

use crate::Test;
use crate::tests::mixed::{all, copy};
use anyhow::{Context, Result, ensure};
use interop::cell::{Cell, Server};
use interop::means::Means;

pub(crate) fn tests() -> Vec<Test> {
    vec![Test { name: "progress-bars", needs: &[Means::Netns], run: progress_bars }]
}

/// Size of the volume, and the network rate: slower than the slowest machine, so that several intermediate
/// states appear.
const FILE_MIB: u64 = 48;
const RATE: &str = "64mbit";
const COLUMNS: usize = 120;

fn progress_bars() -> Result<()> {
    let first = Cell::start(Server::Cellar, "show1", "10.99.0.145")?;
    let second = Cell::start_cellar_joining(&first, "show2", "10.99.0.146", "10.99.0.147")?;
    let folder = first.scratch()?;
    let folder = folder.display();
    first.open_volume(Server::Cellar, "tree")?;
    first.shell(&format!("head -c {FILE_MIB}M /dev/urandom > {folder}/file"))?.ok()?;
    copy(&first, &format!("{folder}/file cell:tree/file"))?;
    all(&first, &[format!("vos addsite {} a tree -localauth", second.address)])?;
    first
        .shell(&format!(
            "for device in $(ls /sys/class/net); do \
                 tc qdisc replace dev $device root tbf rate {RATE} burst 256k latency 500ms || exit; \
             done"
        ))?
        .ok()
        .context("a slow network")?;
    let (here, there) = (first.address, second.address);
    for command in [
        format!("dump tree {folder}/dump"),
        format!("restore {folder}/dump again"),
        "release tree".to_owned(),
        format!("copy tree copied --to {there}"),
        format!("move tree --to {there}"),
    ] {
        on_a_terminal(&first, &command).with_context(|| command.clone())?;
    }
    without_one(&first, &format!("move tree --to {here}"))?;
    let json = seen(&first, &format!("dump tree {folder}/dump --json"))?;
    ensure!(!json.contains('\x1b') && json.trim_start().starts_with('{'), "JSON on a terminal: {json:?}");
    Ok(())
}

/// Returns the output of `cellar volume` on a terminal with [`COLUMNS`].
fn seen(cell: &Cell, command: &str) -> Result<String> {
    let typed = cell.scratch()?.join("typed");
    cell.shell(&format!(
        "TERM=xterm script -qefc 'stty rows 24 cols {COLUMNS}; exec cellar volume {command}' {} < /dev/null > /dev/null",
        typed.display()
    ))?
    .ok()
    .with_context(|| std::fs::read_to_string(&typed).unwrap_or_default())?;
    let all = std::fs::read_to_string(&typed)?;
    // The program's own output is between two lines of script(1).
    let (_, rest) = all.split_once('\n').context("no first line")?;
    Ok(rest.rsplit_once("\nScript done").map_or(rest, |(own, _)| own).to_owned())
}

fn on_a_terminal(cell: &Cell, command: &str) -> Result<()> {
    let written = seen(cell, command)?;
    let mut screen = Screen::default();
    let mut shown: Vec<String> = Vec::new();
    for step in written.split_inclusive(['\r', '\n']) {
        screen.write(step);
        shown.push(screen.text());
    }
    let under_way = |text: &&String| {
        let reported = ["[", "] ", "% ", "MiB", &format!("{FILE_MIB}.0"), "MiB/s"];
        reported.iter().all(|part| text.contains(part)) && !text.contains(" 0%") && !text.contains("100%")
    };
    let seen = shown.iter().find(under_way);
    let seen = seen.with_context(|| format!("no bar in {written:?}"))?;
    ensure!(seen.lines().all(|line| line.chars().count() <= COLUMNS), "it is broken into lines: {seen}");
    println!("{seen}");
    let left = screen.text();
    println!("{left}");
    ensure!(left.lines().count() == 1 && !left.contains('%') && !left.contains('['), "in the end: {left}");
    Ok(())
}

/// Checks that a command whose errors go to a file prints its message, and writes nothing to the file.
fn without_one(cell: &Cell, command: &str) -> Result<()> {
    let errors = cell.scratch()?.join("errors");
    let said = cell.shell(&format!("cellar volume {command} 2> {}", errors.display()))?.ok()?;
    ensure!(!said.contains('\x1b') && said.lines().count() == 1, "{command} without a terminal: {said:?}");
    let errors = std::fs::read_to_string(errors)?;
    ensure!(errors.is_empty(), "{command} without a terminal wrote {errors:?}");
    Ok(())
}

/// A terminal that supports what progress bars use: lines, cursor movement and erasing.
#[derive(Default)]
struct Screen {
    lines: Vec<Vec<char>>,
    row: usize,
    column: usize,
}

impl Screen {
    fn write(&mut self, text: &str) {
        let mut rest = text.chars();
        while let Some(character) = rest.next() {
            match character {
                '\r' => self.column = 0,
                '\n' => self.row += 1,
                '\x1b' => {
                    rest.next();
                    let mut number = String::new();
                    let letter = loop {
                        match rest.next() {
                            Some(part) if part.is_ascii_alphabetic() => break part,
                            Some(part) => number.push(part),
                            None => return,
                        }
                    };
                    self.obey(letter, number.parse().unwrap_or(1));
                }
                character => self.put(character),
            }
        }
    }

    fn obey(&mut self, letter: char, number: usize) {
        match letter {
            'A' => self.row = self.row.saturating_sub(number),
            'B' => self.row += number,
            'K' => {
                let begin = if number == 2 { 0 } else { self.column };
                if let Some(line) = self.lines.get_mut(self.row) {
                    line.truncate(begin);
                }
            }
            _ => {}
        }
    }

    fn put(&mut self, character: char) {
        if self.lines.len() <= self.row {
            self.lines.resize(self.row + 1, Vec::new());
        }
        let line = &mut self.lines[self.row];
        if line.len() <= self.column {
            line.resize(self.column + 1, ' ');
        }
        line[self.column] = character;
        self.column += 1;
    }

    /// Returns the lines that are not empty.
    fn text(&self) -> String {
        let lines = self.lines.iter().map(|line| line.iter().collect::<String>().trim_end().to_owned());
        lines.filter(|line| !line.is_empty()).collect::<Vec<_>>().join("\n")
    }
}
