//! The interactive loop. The server is queried on a separate thread, so that the terminal stays responsive.

use super::keys::{Key, keys};
use super::sample::Sample;
use super::screen::Grid;
use super::state::{Action, Pane, State};
use super::terminal::{self, Terminal};
use super::{Asker, view};
use crate::commands::stat::figures::Source;
use anyhow::{Error, Result};
use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

/// Events handled by the loop.
pub(super) enum Event {
    /// Input from the terminal.
    Typed(Vec<u8>),
    /// End of the input.
    Closed,
    /// Answer to the query with this number.
    Answer(u64, Box<Result<Sample>>),
}

/// Queries the server on its own thread; answers arrive as events.
struct Looker(Sender<(u64, Pane, Source)>);

impl Looker {
    /// Starts the thread. It ends when this is dropped, or with the process if the server does not answer.
    fn start(asker: Asker, events: Sender<Event>) -> Looker {
        let (sender, questions) = channel::<(u64, Pane, Source)>();
        thread::spawn(move || {
            for (number, pane, source) in questions {
                if events.send(Event::Answer(number, Box::new(asker.look(pane, source)))).is_err() {
                    return;
                }
            }
        });
        Looker(sender)
    }
}

/// Two samples of the displayed table.
struct Looks {
    /// The pending query, and the number of queries so far.
    asked: Option<u64>,
    numbers: u64,
    now: Option<(Sample, Instant)>,
    before: Option<(Sample, Instant)>,
    /// Due time of the next sample.
    due: Instant,
    /// Last error, and the time of the first error in a row.
    trouble: Option<(Error, Instant)>,
}

impl Looks {
    fn new() -> Looks {
        Looks { asked: None, numbers: 0, now: None, before: None, due: Instant::now(), trouble: None }
    }

    /// Sends a new query, superseding a pending one.
    fn ask(&mut self, looker: &Looker, state: &State) {
        self.numbers += 1;
        self.asked = Some(self.numbers);
        // This fails only if the thread has panicked, which the user sees.
        let _ = looker.0.send((self.numbers, state.pane, state.source()));
    }

    /// Switches to another table and discards the samples of this one.
    fn change(&mut self, looker: &Looker, state: &State) {
        (self.now, self.before) = (None, None);
        self.ask(looker, state);
    }

    /// Handles an answer; ignores it if the query was superseded.
    fn hear(&mut self, number: u64, answer: Result<Sample>, interval: Duration) {
        if self.asked != Some(number) {
            return;
        }
        let now = Instant::now();
        (self.asked, self.due) = (None, now + interval);
        match answer {
            Ok(sample) => {
                // Rates are meaningless over a period with failed queries.
                let last = self.now.replace((sample, now));
                self.before = if self.trouble.take().is_none() { last } else { None };
            }
            Err(error) => {
                let since = self.trouble.take().map_or(now, |(_, since)| since);
                self.trouble = Some((error, since));
            }
        }
    }

    /// Returns rates between the two samples, or totals since the start until there are two.
    fn grid(&self, state: &State) -> (Grid, bool) {
        let Some((now, at)) = &self.now else { return (Grid::default(), false) };
        let news = self.before.as_ref().filter(|_| !state.absolute);
        let news = news.and_then(|(before, then)| Some((now.since(before)?, *at - *then)));
        let span = news.as_ref().map(|(_, span)| span.as_secs_f64());
        let sample = news.map_or_else(|| now.clone(), |(news, _)| news);
        let sample = match &state.client {
            Some(client) => sample.of_client(client),
            None => sample,
        };
        (sample.grid(state.headings(), span), span.is_some())
    }

    /// Describes the current error.
    fn trouble(&self) -> Option<String> {
        let (error, since) = self.trouble.as_ref()?;
        Some(format!("no answer for {} s: {error:#}; retrying", since.elapsed().as_secs()))
    }
}

/// Runs the loop until the user quits.
pub(super) fn watch(asker: Asker, interval: Duration) -> Result<()> {
    let mut state = asker.state();
    let about = format!("{} every {} s", asker.about(), interval.as_secs());
    // An initial error is reported as in other commands.
    let first = asker.look(state.pane, state.source())?;
    let (sender, events) = channel();
    let looker = Looker::start(asker, sender.clone());
    let mut looks = Looks { asked: Some(0), ..Looks::new() };
    looks.hear(0, Ok(first), interval);
    // Restores the terminal when dropped.
    let _terminal = Terminal::open()?;
    terminal::read_keys(sender);
    let mut waiting = VecDeque::new();
    loop {
        let (grid, is_rate) = looks.grid(&state);
        let about = view::About { whom: &about, trouble: looks.trouble() };
        Terminal::show(&view::lines(&mut state, &grid, is_rate, &about, Terminal::size()))?;
        let Some(key) = next_key(&mut waiting, &events, &mut looks, interval) else {
            if looks.asked.is_none() && looks.due <= Instant::now() {
                if state.paused { looks.due += interval } else { looks.ask(&looker, &state) }
            }
            continue;
        };
        match state.key(key, &grid) {
            Action::Quit => return Ok(()),
            Action::Show => {}
            Action::Change => looks.change(&looker, &state),
        }
    }
}

/// Returns the next key, if one is pressed before another event.
fn next_key(
    waiting: &mut VecDeque<Key>,
    events: &Receiver<Event>,
    looks: &mut Looks,
    interval: Duration,
) -> Option<Key> {
    if let Some(key) = waiting.pop_front() {
        return Some(key);
    }
    // While an answer is pending, the screen is still redrawn, for the clock and a changed terminal size.
    let until = if looks.asked.is_some() { Instant::now() + terminal::REDRAWN_EVERY } else { looks.due };
    let limit = until.saturating_duration_since(Instant::now()).min(terminal::REDRAWN_EVERY);
    match events.recv_timeout(limit) {
        Ok(Event::Typed(bytes)) => waiting.extend(keys(&bytes)),
        Ok(Event::Answer(number, answer)) => looks.hear(number, *answer, interval),
        Ok(Event::Closed) | Err(RecvTimeoutError::Disconnected) => return Some(Key::Interrupt),
        Err(RecvTimeoutError::Timeout) => {}
    }
    waiting.pop_front()
}

#[cfg(test)]
mod tests {
    use super::*;
    use events::catalogue::WorkerFigures;
    use observe::Table;

    fn sample(arrived: u64) -> Sample {
        let figures = WorkerFigures { arrived, threads: 1, ..WorkerFigures::default() };
        Sample::own((vec![(vec!["fileserver".to_owned()], figures)], WorkerFigures::default()))
    }

    fn shown(looks: &Looks) -> (String, bool) {
        let (grid, is_rate) = looks.grid(&State { pane: Pane::Of(Table::Workers), ..State::default() });
        (grid.texts().concat().join(" "), is_rate)
    }

    #[test]
    fn a_server_that_goes_and_comes_back() {
        let (looker, questions) = channel();
        let (looker, state) = (Looker(looker), State { pane: Pane::Of(Table::Workers), ..State::default() });
        let mut looks = Looks::new();
        looks.ask(&looker, &state);
        assert_eq!(looks.grid(&state).0.texts().len(), 0);
        looks.hear(1, Ok(sample(10)), Duration::ZERO);
        assert!(shown(&looks).0.contains("10") && !shown(&looks).1);
        looks.ask(&looker, &state);
        looks.hear(2, Ok(sample(30)), Duration::ZERO);
        assert!(shown(&looks).1 && looks.trouble().is_none());

        looks.ask(&looker, &state);
        looks.hear(3, Err(anyhow::anyhow!("gone")), Duration::ZERO);
        assert!(looks.trouble().unwrap().contains(": gone"), "it says so");
        assert!(shown(&looks).1, "and keeps what it had");
        looks.ask(&looker, &state);
        looks.hear(4, Ok(sample(3)), Duration::ZERO);
        assert!(looks.trouble().is_none() && shown(&looks).0.contains('3') && !shown(&looks).1);
        assert_eq!(questions.try_iter().map(|(number, ..)| number).collect::<Vec<_>>(), [1, 2, 3, 4]);
    }

    #[test]
    fn an_answer_about_another_table_is_not_shown() {
        let (looker, _questions) = channel();
        let (looker, state) = (Looker(looker), State::default());
        let mut looks = Looks::new();
        looks.ask(&looker, &state);
        looks.change(&looker, &state);
        looks.hear(1, Ok(sample(10)), Duration::ZERO);
        assert!(looks.now.is_none() && looks.asked == Some(2));
    }
}
