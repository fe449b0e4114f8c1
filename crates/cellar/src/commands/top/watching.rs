//! The terminal goes on whatever the server does: it is asked on a thread of its own.

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

/// What the loop waits for.
pub(super) enum Event {
    /// Bytes that the person typed.
    Typed(Vec<u8>),
    /// Nobody types any more.
    Closed,
    /// What the server answered to the question of that number.
    Answer(u64, Box<Result<Sample>>),
}

/// Asks the server; the answers come as events.
struct Looker(Sender<(u64, Pane, Source)>);

impl Looker {
    /// The thread ends when this is dropped, or with the process if the server keeps it waiting.
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

/// Two looks at the table that is shown.
struct Looks {
    /// The question that is not answered yet, and those that were.
    asked: Option<u64>,
    numbers: u64,
    now: Option<(Sample, Instant)>,
    before: Option<(Sample, Instant)>,
    /// When the next look is due.
    due: Instant,
    /// What the server last said in place of an answer, and since when it does.
    trouble: Option<(Error, Instant)>,
}

impl Looks {
    fn new() -> Looks {
        Looks { asked: None, numbers: 0, now: None, before: None, due: Instant::now(), trouble: None }
    }

    /// Asks anew, whatever is still asked.
    fn ask(&mut self, looker: &Looker, state: &State) {
        self.numbers += 1;
        self.asked = Some(self.numbers);
        // It fails only if the thread has panicked, which the person sees.
        let _ = looker.0.send((self.numbers, state.pane, state.source()));
    }

    /// Another table: what was seen of this one is of no use.
    fn change(&mut self, looker: &Looker, state: &State) {
        (self.now, self.before) = (None, None);
        self.ask(looker, state);
    }

    /// An answer has come, maybe to what nobody wants to know any more.
    fn hear(&mut self, number: u64, answer: Result<Sample>, interval: Duration) {
        if self.asked != Some(number) {
            return;
        }
        let now = Instant::now();
        (self.asked, self.due) = (None, now + interval);
        match answer {
            Ok(sample) => {
                // What came while nobody was told cannot be said by second.
                let last = self.now.replace((sample, now));
                self.before = if self.trouble.take().is_none() { last } else { None };
            }
            Err(error) => {
                let since = self.trouble.take().map_or(now, |(_, since)| since);
                self.trouble = Some((error, since));
            }
        }
    }

    /// Rates between the two looks; everything since the start until there are two.
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

    /// What is wrong, for people.
    fn trouble(&self) -> Option<String> {
        let (error, since) = self.trouble.as_ref()?;
        Some(format!("no answer for {} s: {error:#}; asked again and again", since.elapsed().as_secs()))
    }
}

/// Until the person has seen enough.
pub(super) fn watch(asker: Asker, interval: Duration) -> Result<()> {
    let mut state = State { is_foreign: asker.is_foreign(), ..State::default() };
    let about = format!("{} every {} s", asker.about(), interval.as_secs());
    // A server that tells nothing is an error like that of other commands.
    let first = asker.look(state.pane, state.source())?;
    let (sender, events) = channel();
    let looker = Looker::start(asker, sender.clone());
    let mut looks = Looks { asked: Some(0), ..Looks::new() };
    looks.hear(0, Ok(first), interval);
    // Gives the terminal back at the end.
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

/// A key, if one comes before something else happens.
fn next_key(
    waiting: &mut VecDeque<Key>,
    events: &Receiver<Event>,
    looks: &mut Looks,
    interval: Duration,
) -> Option<Key> {
    if let Some(key) = waiting.pop_front() {
        return Some(key);
    }
    // While it is waited for an answer the clock goes on, and the terminal may get another size.
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
