//! The lines of the screen.

use super::screen::{Grid, GridRow};
use super::state::{Pane, State};

/// Columns and lines of the terminal.
pub(super) type Size = (u16, u16);

/// Begins and ends what stands out.
const REVERSE: &str = "\x1b[7m";
const PLAIN: &str = "\x1b[0m";

/// Lines that are no rows: title, tables, headings, help.
const OTHER_LINES: usize = 4;

/// The whole screen, each line as wide as the terminal at most. Keeps the marked row among those that
/// there are.
pub(super) fn lines(state: &mut State, grid: &Grid, is_rate: bool, about: &str, size: Size) -> Vec<String> {
    let (width, height) = (usize::from(size.0), usize::from(size.1));
    let rows = grid.sorted(state.sort, state.ascending, &state.filter);
    state.selected = state.selected.min(rows.len().saturating_sub(1));
    let room = height.saturating_sub(OTHER_LINES).max(1);
    let first = (state.selected + 1).saturating_sub(room);
    let texts: Vec<Vec<String>> = rows.iter().map(|row: &GridRow| grid.text(row)).collect();
    let headings = headings(state, grid);
    let widths = widths(&headings, &texts);
    let mut lines = vec![cut(&title(state, is_rate, about), width), tabs(state, width)];
    lines.push(cut(&join(&headings, &widths, grid.label_count()), width));
    for (place, text) in texts.iter().enumerate().skip(first).take(room) {
        let line = cut(&join(text, &widths, grid.label_count()), width);
        let marked = place == state.selected;
        lines.push(if marked { format!("{REVERSE}{line}{PLAIN}") } else { line });
    }
    lines.resize(height.saturating_sub(1).max(lines.len()), String::new());
    lines.push(cut(&help(state), width));
    lines
}

fn title(state: &State, is_rate: bool, about: &str) -> String {
    let span = if is_rate { "by second" } else { "since the start" };
    let paused = if state.paused { ", paused" } else { "" };
    let volume = match (&state.volume, &state.client) {
        (None, _) => String::new(),
        (Some((id, name)), None) => format!(", clients of volume {id} {name}"),
        (Some((id, name)), Some(client)) => {
            format!(", calls of {} at {} in volume {id} {name}", client.user, client.host)
        }
    };
    format!("cellar top: {about}, {span}{paused}{volume}")
}

fn tabs(state: &State, width: usize) -> String {
    let mut room = width;
    let mut line = String::new();
    for (index, &pane) in state.panes().iter().enumerate() {
        let key = if pane == Pane::Figures { "Tab".to_owned() } else { ((index + 1) % 10).to_string() };
        let text = cut(&format!(" {key} {} ", pane.name()), room);
        room -= text.chars().count();
        if pane == state.pane {
            line.extend([REVERSE, text.as_str(), PLAIN]);
        } else {
            line.push_str(&text);
        }
    }
    line
}

fn headings(state: &State, grid: &Grid) -> Vec<String> {
    let mut headings = grid.headings();
    if let Some(heading) = headings.get_mut(grid.label_count() + state.sort) {
        heading.push(if state.ascending { '^' } else { 'v' });
    }
    headings
}

fn widths(headings: &[String], texts: &[Vec<String>]) -> Vec<usize> {
    let width = |column: usize| {
        let cells = texts.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count());
        cells.chain([headings[column].chars().count()]).max().unwrap_or(0)
    };
    (0..headings.len()).map(width).collect()
}

/// Labels to the left, numbers to the right.
fn join(cells: &[String], widths: &[usize], labels: usize) -> String {
    let pad = |(column, cell): (usize, &String)| {
        let width = widths[column];
        if column < labels { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
    };
    cells.iter().enumerate().map(pad).collect::<Vec<_>>().join("  ")
}

fn help(state: &State) -> String {
    if state.filtering {
        return format!("filter: {}_  (Enter keeps it, Escape drops it)", state.filter);
    }
    let filter = if state.filter.is_empty() { String::new() } else { format!("filter: {}  ", state.filter) };
    format!(
        "{filter}q quit  0-9 Tab tables  arrows row, sort  r reverse  / filter  Enter clients  Esc back  a all  space pause"
    )
}

/// The beginning of a line, without what a terminal would take for commands.
fn cut(line: &str, width: usize) -> String {
    line.chars().filter(|c| !c.is_control()).take(width).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use events::catalogue::UsageFigures;

    fn grid(rows: u64) -> Grid {
        let row = |id: u64| {
            let figures = UsageFigures { calls: id, sent: id << 20, ..UsageFigures::default() };
            (vec![format!("10.0.0.{id}"), "a\x1b[2Jb".to_owned()], figures)
        };
        Grid::new(&["host", "user"], &((1..=rows).map(row).collect(), UsageFigures::default()), None)
    }

    #[test]
    fn the_screen_has_its_size_and_the_marked_row() {
        let mut state = State { pane: Pane::Clients, selected: 99, ..State::default() };
        let lines = lines(&mut state, &grid(30), true, "192.0.2.1 every 2 s", (80, 24));
        assert_eq!((lines.len(), state.selected), (24, 29));
        assert_eq!(lines[0], "cellar top: 192.0.2.1 every 2 s, by second");
        assert!(lines[2].starts_with("HOST") && lines[2].contains("CALLSv"), "{}", lines[2]);
        let marked: Vec<&String> = lines[3..].iter().filter(|line| line.starts_with(REVERSE)).collect();
        assert!(marked.len() == 1 && marked[0].contains("10.0.0.1 "), "{marked:?}");
        let bare = |line: &str| line.replace(REVERSE, "").replace(PLAIN, "");
        assert!(lines.iter().all(|line| bare(line).chars().count() <= 80));
        assert!(lines.iter().all(|line| !bare(line).contains('\x1b')), "names move no cursor");
    }

    #[test]
    fn the_smallest_terminal_shows_something() {
        for size in [(0, 0), (1, 1), (20, 5), (300, 100)] {
            for rows in [0, 3] {
                let mut state = State { filtering: true, ..State::default() };
                assert!(!lines(&mut state, &grid(rows), false, "x", size).is_empty());
            }
        }
    }
}
