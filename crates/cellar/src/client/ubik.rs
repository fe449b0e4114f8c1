//! Which of a cell's database servers to ask: the part of a Ubik client that only thinks.
//!
//! OpenAFS replicates its databases: every server answers questions, one (the sync site) takes
//! changes, and while they vote for it nobody does. A server that is asked for too much says so
//! (UNOTSYNC, UNOQUORUM) and has done nothing, so that the same call can go to another one.
//!
//! A [`Search`] is one call's way through the servers; the [`Roster`] is what all calls have learned
//! about them. Begin a search, and until a verdict is [`Verdict::Final`] ask whom [`Roster::next`]
//! names and tell [`Roster::heard`] what came of it. A search asks every server at most once, and two
//! more because another one named them as sync site; a server that did not answer is left alone for
//! a moment and then tried by one call at a time. So a dead cell costs a caller little, however many
//! call.

use base::AbortCode;
use std::time::{Duration, Instant};

/// A server that did not answer is not asked for this time.
const REST: Duration = Duration::from_secs(5);
/// Whoever tries such a server again has this long before another one may.
const TRIAL: Duration = Duration::from_secs(60);
/// How often one search asks for the sync site.
const HINTS_MAX: u8 = 2;

/// What is known about the servers of one database; they are called by their places in its list.
#[derive(Debug)]
pub struct Roster {
    /// Until when each is left alone; `None` for those that answered last time, or were never asked.
    resting: Vec<Option<Instant>>,
    /// Who answered last: asked first.
    preferred: usize,
    /// Who took a change last.
    sync_site: Option<usize>,
}

/// One call's way through the servers.
#[derive(Debug)]
pub struct Search {
    asked: Vec<bool>,
    needs_sync_site: bool,
    hint: Option<usize>,
    hints_left: u8,
}

/// What to do with a server's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is the answer, be it a refusal.
    Final,
    /// Another server may do better.
    AskAnother,
    /// The same, and this server may know which; see [`Search::hint`].
    AskForSyncSite,
}

impl Roster {
    /// All servers are taken to be up.
    pub fn new(servers: usize) -> Roster {
        Roster { resting: vec![None; servers], preferred: 0, sync_site: None }
    }

    /// Begins a call.
    pub fn begin(&self) -> Search {
        let asked = vec![false; self.resting.len()];
        Search { asked, needs_sync_site: false, hint: None, hints_left: HINTS_MAX }
    }

    /// Whom to ask next; `None` if nobody is left.
    pub fn next(&mut self, search: &mut Search, now: Instant) -> Option<usize> {
        let known_site = self.sync_site.filter(|_| search.needs_sync_site);
        let named = search.hint.take().or(known_site.filter(|site| !search.asked[*site]));
        let server = named.or_else(|| self.in_turn(search, now))?;
        search.asked[server] = true;
        if self.resting[server].is_some() {
            self.resting[server] = Some(now + TRIAL);
        }
        Some(server)
    }

    /// Those that are up, the preferred one first; then those that have rested.
    fn in_turn(&self, search: &Search, now: Instant) -> Option<usize> {
        let count = self.resting.len();
        let left =
            (0..count).map(|step| (self.preferred + step) % count).filter(|place| !search.asked[*place]);
        let is_up = |place: &usize| self.resting[*place].is_none();
        let has_rested = |place: &usize| self.resting[*place].is_some_and(|until| until <= now);
        left.clone().find(is_up).or_else(|| left.clone().find(has_rested))
    }

    /// What came of asking `server`.
    pub fn heard(
        &mut self,
        search: &mut Search,
        server: usize,
        outcome: Result<(), AbortCode>,
        now: Instant,
    ) -> Verdict {
        let is_silent = outcome.is_err_and(is_silence);
        self.resting[server] = is_silent.then(|| now + REST);
        let is_site = self.sync_site == Some(server);
        match outcome {
            Err(code) if is_silent || code == AbortCode::UNOQUORUM => {
                self.sync_site = self.sync_site.filter(|_| !is_site);
                Verdict::AskAnother
            }
            Err(AbortCode::UNOTSYNC) => {
                self.sync_site = self.sync_site.filter(|_| !is_site);
                search.needs_sync_site = true;
                self.site_wanted(search)
            }
            _ if search.needs_sync_site => {
                self.sync_site = Some(server);
                Verdict::Final
            }
            _ => {
                self.preferred = server;
                Verdict::Final
            }
        }
    }

    fn site_wanted(&self, search: &mut Search) -> Verdict {
        let known = self.sync_site.is_some_and(|site| !search.asked[site]);
        if known || search.hints_left == 0 {
            return Verdict::AskAnother;
        }
        search.hints_left -= 1;
        Verdict::AskForSyncSite
    }
}

impl Search {
    /// A server named this one as sync site.
    pub fn hint(&mut self, server: usize) {
        self.hint = Some(server);
    }
}

/// Of two servers' refusals the one to report: that of a server that is there.
pub fn more_telling(before: AbortCode, now: AbortCode) -> AbortCode {
    if is_silence(now) && !is_silence(before) { before } else { now }
}

/// Whether a code comes from the transport and not from the service: nobody there, or not able to
/// serve. (Codes of the generated stubs, -450 and below, are answers.)
fn is_silence(code: AbortCode) -> bool {
    (AbortCode::RX_RESTARTING.0..0).contains(&code.0)
}

#[cfg(test)]
mod tests;
