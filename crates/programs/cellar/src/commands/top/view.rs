//! Lays out the lines of the screen.

use super::screen::{Grid, GridRow};
use super::state::{KEYS, Pane, State};

/// Columns and lines of the terminal.
pub(super) type Size = (u16, u16);

/// Start and end of highlighted text.
const REVERSE: &str = "\x1b[7m";
const PLAIN: &str = "\x1b[0m";

/// Number of lines other than rows: title, tables, headings, help.
const OTHER_LINES: usize = 4;

/// Gap between columns.
const GAP: &str = "  ";

/// Help line, and its variant for narrow terminals.
const HELP: &str = "q quit  ? keys  0-9 Tab tables  arrows row, sort  r reverse  / filter  Enter clients  \
    Esc back  a all  space pause";
const SHORT_HELP: &str = "q quit  ? keys  0-9 tables  arrows row, sort  / filter";

/// All keys.
const ALL_KEYS: [&str; 16] = [
    "",
    "1 to 9, 0, Tab choose a table (Shift-Tab the previous one)",
    "up, down select a row (also Page Up, Page Down)",
    "left, right      choose the column that rows are sorted by",
    "r                reverse the order",
    "/                show only rows whose names contain a text",
    "Enter            from a volume to its clients, from one of them to its calls",
    "Escape go back; clear the filter",
    "a                totals since the server's start, or rates",
    "space            pause and resume",
    "q, Ctrl-C quit",
    "",
    "Calls, bytes and sums of times are per second. MEAN, P50, P99, MAX and LONGEST",
    "cover the calls since the last sample (LONGEST up to 16 s more). Connections,",
    "threads and usage are current values.",
    "docs/guide/observe.md describes the columns.",
];

/// Text above the table.
pub(super) struct About<'a> {
    /// Server and interval.
    pub(super) whom: &'a str,
    /// Why the figures are out of date.
    pub(super) trouble: Option<String>,
}

/// Lays out the whole screen, with lines cut to the terminal's width. Limits the selection to the existing
/// rows.
pub(super) fn lines(
    state: &mut State,
    grid: &Grid,
    is_rate: bool,
    about: &About<'_>,
    size: Size,
) -> Vec<String> {
    let (width, height) = (usize::from(size.0), usize::from(size.1));
    let mut lines = vec![title(state, is_rate, about, width), tabs(state, width)];
    let room = height.saturating_sub(OTHER_LINES).max(1);
    if state.helping {
        lines.extend(ALL_KEYS.iter().take(room + 1).map(|line| cut(line, width)));
    } else {
        lines.extend(table(state, grid, width, room));
    }
    lines.resize(height.saturating_sub(1).max(lines.len()), String::new());
    lines.push(cut(&help(state, width), width));
    lines
}

/// Lays out headings and rows.
fn table(state: &mut State, grid: &Grid, width: usize, room: usize) -> Vec<String> {
    let rows = grid.sorted(state.sort, state.ascending, &state.filter);
    state.selected = state.selected.min(rows.len().saturating_sub(1));
    let first = (state.selected + 1).saturating_sub(room);
    let texts: Vec<Vec<String>> = rows.iter().map(|row: &GridRow| grid.text(row)).collect();
    let headings = headings(state, grid);
    let widths = widths(&headings, &texts);
    let shown = shown(&widths, grid.label_count(), grid.label_count() + state.sort, width);
    let line = |cells: &[String]| cut(&join(cells, &widths, grid.label_count(), &shown), width);
    let mut lines = vec![line(&headings)];
    for (place, text) in texts.iter().enumerate().skip(first).take(room) {
        let marked = place == state.selected;
        lines.push(if marked { format!("{REVERSE}{}{PLAIN}", line(text)) } else { line(text) });
    }
    lines
}

/// Selects the columns to display: labels, and numeric columns from the first one at which the sort column
/// still fits.
fn shown(widths: &[usize], labels: usize, sort: usize, width: usize) -> Vec<usize> {
    let columns = |first: usize| (0..labels).chain(first..widths.len());
    let end = |first: usize| -> usize {
        columns(first).filter(|column| *column <= sort).map(|column| widths[column] + GAP.len()).sum()
    };
    let first = (labels..sort).find(|first| end(*first) <= width + GAP.len()).unwrap_or(sort.max(labels));
    columns(first).collect()
}

fn title(state: &State, is_rate: bool, about: &About<'_>, width: usize) -> String {
    let span = if is_rate { "by second" } else { "since the start" };
    let paused = if state.paused { ", paused" } else { "" };
    let volume = match (&state.volume, &state.client) {
        (None, _) => String::new(),
        (Some((id, name)), None) => format!(", clients of volume {id} {name}"),
        (Some((id, name)), Some(client)) => {
            format!(", calls of {} at {} in volume {id} {name}", client.user, client.host)
        }
    };
    match &about.trouble {
        None => cut(&format!("cellar top: {}, {span}{paused}{volume}", about.whom), width),
        Some(trouble) => {
            format!("{REVERSE}{}{PLAIN}", cut(&format!("cellar top: {}: {trouble}", about.whom), width))
        }
    }
}

/// Lays out the table names with their keys. In a narrow terminal they are closer together, and leading names
/// are left out until the selected one fits.
fn tabs(state: &State, width: usize) -> String {
    let text = |(index, pane): (usize, &Pane), wide: bool| {
        let key = match index {
            0..KEYS => format!("{} ", (index + 1) % KEYS),
            KEYS => "Tab ".to_owned(),
            _ => String::new(),
        };
        if wide { format!(" {key}{} ", pane.name()) } else { format!("{key}{} ", pane.name()) }
    };
    let texts =
        |wide: bool| state.panes().iter().enumerate().map(|tab| text(tab, wide)).collect::<Vec<String>>();
    let length = |texts: &[String]| texts.iter().map(String::len).sum::<usize>();
    let wide = texts(true);
    let texts = if length(&wide) <= width { wide } else { texts(false) };
    let chosen = state.place();
    let first = (0..chosen).find(|first| length(&texts[*first..=chosen]) <= width).unwrap_or(chosen);
    let mut room = width;
    let mut line = String::new();
    for (index, text) in texts.iter().enumerate().skip(first) {
        let text = cut(text, room);
        room -= text.chars().count();
        if index == chosen {
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

/// Joins cells, with labels left-aligned and numbers right-aligned.
fn join(cells: &[String], widths: &[usize], labels: usize, shown: &[usize]) -> String {
    let pad = |column: &usize| {
        let (width, cell) = (widths[*column], cells.get(*column).map_or("", String::as_str));
        if *column < labels { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
    };
    shown.iter().map(pad).collect::<Vec<_>>().join(GAP)
}

fn help(state: &State, width: usize) -> String {
    if state.helping {
        return "press any key to return to the table".to_owned();
    }
    if state.filtering {
        return format!("filter: {}_  (Enter keeps it, Escape drops it)", state.filter);
    }
    let filter = if state.filter.is_empty() { String::new() } else { format!("filter: {}  ", state.filter) };
    let whole = format!("{filter}{HELP}");
    if whole.len() <= width { whole } else { format!("{filter}{SHORT_HELP}") }
}

/// Cuts a line to a width and removes control characters.
fn cut(line: &str, width: usize) -> String {
    line.chars().filter(|c| !c.is_control()).take(width).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use events::catalogue::UsageFigures;
    use observe::Table;

    fn grid(rows: u64) -> Grid {
        let row = |id: u64| {
            let figures = UsageFigures { calls: id, sent: id << 20, ..UsageFigures::default() };
            (vec![format!("10.0.0.{id}"), "a\x1b[2Jb".to_owned()], figures)
        };
        Grid::new(&["host", "user"], &((1..=rows).map(row).collect(), UsageFigures::default()), None)
    }

    fn about(whom: &str) -> About<'_> {
        About { whom, trouble: None }
    }

    fn bare(line: &str) -> String {
        line.replace(REVERSE, "").replace(PLAIN, "")
    }

    #[test]
    fn the_screen_has_its_size_and_the_marked_row() {
        let mut state = State { pane: Pane::Of(Table::Clients), selected: 99, ..State::default() };
        let lines = lines(&mut state, &grid(30), true, &about("192.0.2.1 every 2 s"), (80, 24));
        assert_eq!((lines.len(), state.selected), (24, 29));
        assert_eq!(lines[0], "cellar top: 192.0.2.1 every 2 s, by second");
        assert!(lines[2].starts_with("HOST") && lines[2].contains("CALLSv"), "{}", lines[2]);
        let marked: Vec<&String> = lines[3..].iter().filter(|line| line.starts_with(REVERSE)).collect();
        assert!(marked.len() == 1 && marked[0].contains("10.0.0.1 "), "{marked:?}");
        assert!(lines.iter().all(|line| bare(line).chars().count() <= 80));
        assert!(lines.iter().all(|line| !bare(line).contains('\x1b')), "names move no cursor");
    }

    #[test]
    fn a_narrow_terminal_shows_the_sort_key_and_the_chosen_table() {
        for (index, pane) in State::default().panes().iter().copied().enumerate() {
            let key = if index < KEYS { format!("{} ", (index + 1) % 10) } else { String::new() };
            for sort in 0..grid(1).column_count() {
                let mut state = State { pane, sort, ..State::default() };
                let lines = lines(&mut state, &grid(3), true, &about("x"), (44, 10));
                let chosen = lines[1].split_once(REVERSE).unwrap().1;
                assert!(chosen.starts_with(&key) && chosen.contains(pane.name()), "{lines:?}");
                assert!(lines[2].contains("HOST") && lines[2].contains('v'), "{sort}: {lines:?}");
                assert!(lines.iter().all(|line| bare(line).chars().count() <= 44), "{lines:?}");
            }
        }
        let mut state = State::default();
        assert!(lines(&mut state, &grid(3), true, &about("x"), (80, 10))[9].contains("? keys"));
    }

    #[test]
    fn trouble_and_help_are_shown() {
        let trouble = About { whom: "x", trouble: Some("no answer".into()) };
        let mut state = State { helping: true, ..State::default() };
        let lines = lines(&mut state, &grid(3), true, &trouble, (80, 24));
        assert_eq!(lines[0], format!("{REVERSE}cellar top: x: no answer{PLAIN}"));
        assert!(
            lines.len() == 24 && lines[3].contains("choose a table") && !lines.concat().contains("10.0.0.1")
        );
    }

    #[test]
    fn the_smallest_terminal_shows_something() {
        for size in [(0, 0), (1, 1), (20, 5), (300, 100)] {
            for rows in [0, 3] {
                let mut state = State { filtering: true, ..State::default() };
                assert!(!lines(&mut state, &grid(rows), false, &about("x"), size).is_empty());
                assert!(!lines(&mut state, &Grid::default(), false, &about("x"), size).is_empty());
            }
        }
    }
}
