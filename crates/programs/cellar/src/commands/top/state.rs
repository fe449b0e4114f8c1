//! State of the display, and how keys change it. It is pure, so that it can be tested without a terminal.

use super::keys::Key;
use super::screen::Grid;
use crate::commands::stat::figures::Source;
use observe::Table;

/// A table that can be selected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pane {
    Of(Table),
    /// Remaining figures of a foreign server.
    Figures,
}

/// Tables of Cellar servers: all tables.
const OWN: [Pane; Table::ALL.len()] = panes();

/// Number of tables of servers that are no nodes of a cluster.
const PLAIN: usize = {
    let mut count = 0;
    while count < Table::ALL.len() && !Table::ALL[count].is_of_cluster() {
        count += 1;
    }
    count
};

/// Tables of foreign servers: those with keys, and the remaining figures.
const FOREIGN: [Pane; KEYS + 1] = panes();

/// Number of tables with a digit key.
pub(super) const KEYS: usize = 10;

/// Returns the first tables, in the order of their keys, followed by [`Pane::Figures`] if there is room.
const fn panes<const N: usize>() -> [Pane; N] {
    let mut panes = [Pane::Figures; N];
    let mut place = 0;
    while place < Table::ALL.len() && (place < KEYS || N == Table::ALL.len()) {
        panes[place] = Pane::Of(Table::ALL[place]);
        place += 1;
    }
    panes
}

impl Default for Pane {
    fn default() -> Pane {
        OWN[0]
    }
}

impl Pane {
    /// Returns the table's name.
    pub(super) fn name(self) -> &'static str {
        match self {
            Pane::Of(table) => table.name(),
            Pane::Figures => "figures",
        }
    }

    /// Returns the title above the table.
    pub(super) fn title(self) -> &'static str {
        match self {
            Pane::Of(table) => table.title(),
            Pane::Figures => "Figures",
        }
    }

    /// Returns the label headings.
    pub(super) fn headings(self) -> &'static [&'static str] {
        match self {
            Pane::Of(table) => table.labels(),
            Pane::Figures => &["source", "figure"],
        }
    }

    /// Returns the source of the table on Cellar servers.
    pub(super) fn source(self) -> Source {
        match self {
            Pane::Of(table) => Source::Table(table),
            // Cellar servers have no table of remaining figures.
            Pane::Figures => Source::Table(Table::Calls),
        }
    }
}

/// What to do after a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// Quit.
    Quit,
    /// Redraw the same figures.
    Show,
    /// Fetch another table.
    Change,
}

/// A client of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Client {
    pub(super) host: String,
    pub(super) user: String,
}

/// What is displayed, and how.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct State {
    /// Whether the server is a foreign one.
    pub(super) is_foreign: bool,
    /// Whether the server is a node of a cluster.
    pub(super) is_node: bool,
    pub(super) pane: Pane,
    /// Volume whose clients are displayed in place of the volumes.
    pub(super) volume: Option<(u32, String)>,
    /// Client of that volume whose calls are displayed in place of the clients.
    pub(super) client: Option<Client>,
    /// Index of the numeric column to sort by.
    pub(super) sort: usize,
    pub(super) ascending: bool,
    pub(super) filter: String,
    /// Whether keys edit the filter.
    pub(super) filtering: bool,
    /// Index of the selected row among the displayed rows.
    pub(super) selected: usize,
    /// Whether totals since the server's start are displayed in place of rates.
    pub(super) absolute: bool,
    pub(super) paused: bool,
    /// Whether the list of keys is displayed in place of the table.
    pub(super) helping: bool,
}

/// Rows per page.
const PAGE: usize = 10;
/// Maximum length of a filter, in characters.
const FILTER_MAX: usize = 64;

impl State {
    /// Returns the available tables.
    pub(super) fn panes(&self) -> &'static [Pane] {
        match (self.is_foreign, self.is_node) {
            (true, _) => &FOREIGN,
            (false, true) => &OWN,
            (false, false) => &OWN[..PLAIN],
        }
    }

    /// Returns the index of the displayed table.
    pub(super) fn place(&self) -> usize {
        self.panes().iter().position(|pane| *pane == self.pane).unwrap_or(0)
    }

    /// Returns the source of the displayed table.
    pub(super) fn source(&self) -> Source {
        match (&self.volume, &self.client) {
            (None, _) => self.pane.source(),
            (Some((id, _)), None) => Source::ClientsOf(*id),
            (Some((id, _)), Some(_)) => Source::CallsOf(*id),
        }
    }

    /// Returns the label headings of the displayed table.
    pub(super) fn headings(&self) -> &'static [&'static str] {
        match (&self.volume, &self.client) {
            (None, _) => self.pane.headings(),
            (Some(_), None) => Table::Clients.labels(),
            (Some(_), Some(_)) => Table::Calls.labels(),
        }
    }

    /// Handles a key that was pressed while `grid` was displayed.
    pub(super) fn key(&mut self, key: Key, grid: &Grid) -> Action {
        if self.filtering {
            return self.filter_key(key);
        }
        if self.helping && key != Key::Interrupt {
            self.helping = false;
            return Action::Show;
        }
        match key {
            Key::Char('q') | Key::Interrupt => return Action::Quit,
            Key::Char('?' | 'h') => self.helping = true,
            Key::Char(digit @ '1'..='9') => return self.choose(digit as usize - '1' as usize),
            Key::Char('0') => return self.choose(9),
            Key::Tab => return self.choose(self.place() + 1),
            Key::BackTab => return self.choose(self.place() + self.panes().len() - 1),
            Key::Enter => return self.enter(grid),
            Key::Escape => return self.back(),
            Key::Char('r') => self.ascending = !self.ascending,
            Key::Char('a') => self.absolute = !self.absolute,
            Key::Char('/') => self.filtering = true,
            Key::Char(' ') => self.paused = !self.paused,
            Key::Up => self.selected = self.selected.saturating_sub(1),
            Key::Down => self.selected += 1,
            Key::PageUp => self.selected = self.selected.saturating_sub(PAGE),
            Key::PageDown => self.selected += PAGE,
            Key::Left => self.sort = self.sort.saturating_sub(1),
            Key::Right => self.sort += 1,
            Key::Char(_) | Key::Backspace => {}
        }
        self.sort = self.sort.min(grid.column_count().saturating_sub(1));
        Action::Show
    }

    fn filter_key(&mut self, key: Key) -> Action {
        match key {
            Key::Interrupt => return Action::Quit,
            Key::Char(letter) if self.filter.chars().count() < FILTER_MAX => self.filter.push(letter),
            Key::Backspace => {
                self.filter.pop();
            }
            Key::Enter => self.filtering = false,
            Key::Escape => {
                self.filtering = false;
                self.filter.clear();
            }
            _ => {}
        }
        self.selected = 0;
        Action::Show
    }

    fn choose(&mut self, pane: usize) -> Action {
        let State { is_foreign, is_node, absolute, paused, .. } = *self;
        let (panes, others) = (self.panes(), State::default());
        *self = State { is_foreign, is_node, pane: panes[pane % panes.len()], absolute, paused, ..others };
        Action::Change
    }

    /// Opens the clients of the selected volume, or the calls of the selected client.
    fn enter(&mut self, grid: &Grid) -> Action {
        if self.pane != Pane::Of(Table::Volumes) || self.client.is_some() {
            return Action::Show;
        }
        let rows = grid.sorted(self.sort, self.ascending, &self.filter);
        let Some(row) = rows.get(self.selected.min(rows.len().saturating_sub(1))) else {
            return Action::Show;
        };
        let [first, second] = [0, 1].map(|place| row.labels.get(place).cloned().unwrap_or_default());
        if self.volume.is_some() {
            self.client = Some(Client { host: first, user: second });
        } else {
            let Ok(id) = first.parse() else { return Action::Show };
            self.volume = Some((id, second));
        }
        self.filter.clear();
        self.selected = 0;
        Action::Change
    }

    /// Clears the filter; without a filter, returns from calls to clients or from clients to volumes.
    fn back(&mut self) -> Action {
        if !self.filter.is_empty() {
            self.filter.clear();
            return Action::Show;
        }
        self.selected = 0;
        let is_back = self.client.take().is_some() || self.volume.take().is_some();
        if is_back { Action::Change } else { Action::Show }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use events::catalogue::UsageFigures;

    /// A grid of volumes 1 to 4 with 10 to 40 calls.
    fn volumes() -> Grid {
        let row = |id: u64| {
            let figures = UsageFigures { calls: id * 10, failed: 5 - id, ..UsageFigures::default() };
            (vec![id.to_string(), format!("home.{id}")], figures)
        };
        Grid::new(&["volume", "name"], &((1..5).map(row).collect(), UsageFigures::default()), None)
    }

    fn shown(state: &State, grid: &Grid) -> String {
        let rows = grid.sorted(state.sort, state.ascending, &state.filter);
        rows.iter().map(|row| row.labels[0].clone()).collect()
    }

    /// Presses keys and returns the last action.
    fn press(state: &mut State, keys: &[Key]) -> Action {
        let grid = volumes();
        keys.iter().fold(Action::Show, |_, key| state.key(*key, &grid))
    }

    #[test]
    fn digits_and_tab_choose_tables() {
        let mut state = State::default();
        assert_eq!(press(&mut state, &[Key::Char('2')]), Action::Change);
        assert_eq!(state.source(), Source::Table(Table::Volumes));
        press(&mut state, &[Key::Tab; 8]);
        assert_eq!(state.pane, Pane::Of(Table::Hosts));
        press(&mut state, &[Key::Char('9')]);
        assert_eq!(state.pane, Pane::Of(Table::Peers));
        press(&mut state, &[Key::Char('0')]);
        assert_eq!(state.pane, Pane::Of(Table::Hosts));
        press(&mut state, &[Key::Tab; 7]);
        assert_eq!(state.pane, Pane::Of(Table::Events));
        press(&mut state, &[Key::Tab]);
        assert_eq!(state.pane, Pane::Of(Table::Calls));
        press(&mut state, &[Key::BackTab, Key::BackTab]);
        assert_eq!(state.pane, Pane::Of(Table::Audit));
        state.is_node = true;
        press(&mut state, &[Key::Tab; 2]);
        assert_eq!((state.pane, state.is_node), (Pane::Of(Table::Cluster), true), "only nodes have it");
        state.is_foreign = true;
        press(&mut state, &[Key::Char('0'), Key::Tab]);
        assert_eq!(state.pane, Pane::Figures);
        press(&mut state, &[Key::Tab]);
        assert_eq!(state.pane, Pane::Of(Table::Calls));
        assert_eq!(press(&mut state, &[Key::Char('q')]), Action::Quit);
    }

    #[test]
    fn rows_are_sorted_by_any_column_in_both_directions() {
        let (mut state, grid) = (State::default(), volumes());
        assert_eq!(shown(&state, &grid), "4321");
        press(&mut state, &[Key::Char('r')]);
        assert_eq!(shown(&state, &grid), "1234");
        press(&mut state, &[Key::Char('r')]);
        press(&mut state, &[Key::Right; 7]);
        assert_eq!(
            (grid.headings()[2 + state.sort].as_str(), shown(&state, &grid)),
            ("FAILED", "1234".into())
        );
        press(&mut state, &[Key::Right; 99]);
        assert_eq!(state.sort, grid.column_count() - 1);
        press(&mut state, &[Key::Left; 99]);
        assert_eq!(state.sort, 0);
    }

    #[test]
    fn any_key_ends_the_help() {
        let mut state = State::default();
        press(&mut state, &[Key::Char('?')]);
        assert!(state.helping);
        assert_eq!(press(&mut state, &[Key::Char('q')]), Action::Show);
        assert!(!state.helping);
        assert_eq!(press(&mut state, &[Key::Char('h'), Key::Interrupt]), Action::Quit);
    }

    #[test]
    fn letters_of_a_filter_are_no_commands() {
        let (mut state, grid) = (State::default(), volumes());
        press(&mut state, &[Key::Char('/'), Key::Char('E'), Key::Char('.'), Key::Char('q'), Key::Backspace]);
        press(&mut state, &[Key::Char('3'), Key::Enter]);
        assert_eq!((state.filter.as_str(), shown(&state, &grid)), ("E.3", "3".into()));
        assert_eq!(press(&mut state, &[Key::Escape]), Action::Show);
        assert_eq!(shown(&state, &grid), "4321");
    }

    #[test]
    fn navigation_goes_from_a_volume_to_clients_to_calls() {
        let mut state = State::default();
        press(&mut state, &[Key::Char('2'), Key::Down]);
        assert_eq!(press(&mut state, &[Key::Enter]), Action::Change);
        assert_eq!((state.source(), state.headings()), (Source::ClientsOf(3), &["host", "user"][..]));
        assert_eq!(state.volume, Some((3, "home.3".to_owned())));
        // The grid of this test has volumes in place of hosts.
        assert_eq!(press(&mut state, &[Key::Enter]), Action::Change);
        let client = Client { host: "4".into(), user: "home.4".into() };
        assert_eq!((state.source(), &state.client), (Source::CallsOf(3), &Some(client)));
        assert_eq!(state.headings(), ["service", "procedure"]);
        assert_eq!(press(&mut state, &[Key::Enter]), Action::Show, "and no further");
        assert_eq!(press(&mut state, &[Key::Escape]), Action::Change);
        assert_eq!(state.source(), Source::ClientsOf(3));
        assert_eq!(press(&mut state, &[Key::Escape]), Action::Change);
        assert_eq!(state.source(), Source::Table(Table::Volumes));
        let mut calls = State::default();
        assert_eq!(press(&mut calls, &[Key::Enter]), Action::Show);
    }
}
