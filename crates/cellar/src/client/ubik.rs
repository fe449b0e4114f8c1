//! Which of a cell's database servers to ask: the part of a Ubik client that only thinks.
//!
//! OpenAFS replicates its databases: every server answers questions, one (the sync site) takes
//! changes, and while they vote for it nobody does. A server that is asked for too much says so
//! (UNOTSYNC, UNOQUORUM) and has done nothing, so that the same call can go to another one.
//!
//! Every server answers with what it has. One that was away serves its old database until the sync
//! site has sent it the new one: half a minute after it is back, and, as long as it may not vote yet (75 s),
//! half a minute after every change. So whom an answer leads to where nothing is asks the others
//! ([`Roster::heard_old_news`]), and who is about to change things asks the sync site
//! ([`Roster::in_office`]).
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
/// No other server takes changes for this time after one took a change, or said that it does: those who voted for it vote
/// for nobody else for 75 s (BIGTIME), and their votes count for 60 s (SMALLTIME).
const OFFICE: Duration = Duration::from_secs(15);

/// What is known about the servers of one database; they are called by their places in its list.
#[derive(Debug)]
pub struct Roster {
    /// Until when each is left alone; `None` for those that answered last time, or were never asked.
    resting: Vec<Option<Instant>>,
    /// Who answered last: asked first.
    preferred: usize,
    /// Who took a change last, or said last that it does.
    sync_site: Option<usize>,
    /// Until when nobody else does.
    in_office_until: Option<Instant>,
}

/// One call's way through the servers.
#[derive(Debug)]
pub struct Search {
    asked: Vec<bool>,
    needs_sync_site: bool,
    hint: Option<usize>,
    hints_left: u8,
    /// There is an answer: nobody is waited for who may be dead.
    has_answer: bool,
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
        Roster { resting: vec![None; servers], preferred: 0, sync_site: None, in_office_until: None }
    }

    /// Begins a call.
    pub fn begin(&self) -> Search {
        let asked = vec![false; self.resting.len()];
        Search { asked, needs_sync_site: false, hint: None, hints_left: HINTS_MAX, has_answer: false }
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

    fn in_turn(&self, search: &Search, now: Instant) -> Option<usize> {
        let may_be_asked =
            |place: &usize| !search.asked[*place] && (!search.has_answer || self.resting[*place].is_none());
        self.places(now).find(may_be_asked)
    }

    /// Those that are up, the preferred one first; then those that have rested.
    fn places(&self, now: Instant) -> impl Iterator<Item = usize> {
        let count = self.resting.len();
        let all = (0..count).map(move |step| (self.preferred + step) % count);
        let is_up = |place: &usize| self.resting[*place].is_none();
        let has_rested = move |place: &usize| self.resting[*place].is_some_and(|until| until <= now);
        all.clone().filter(is_up).chain(all.filter(has_rested))
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
        match outcome {
            Err(code) if is_silent || code == AbortCode::UNOQUORUM => {
                self.leaves_office(server);
                Verdict::AskAnother
            }
            Err(AbortCode::UNOTSYNC) => {
                self.leaves_office(server);
                search.needs_sync_site = true;
                self.site_wanted(search)
            }
            Ok(()) if search.needs_sync_site => {
                self.takes_office(server, now);
                Verdict::Final
            }
            // Who refuses may do so before it looks whether it is the sync site.
            Err(_) if search.needs_sync_site => {
                if self.sync_site != Some(server) {
                    (self.sync_site, self.in_office_until) = (Some(server), None);
                }
                Verdict::Final
            }
            _ => {
                self.preferred = server;
                Verdict::Final
            }
        }
    }

    /// The answer of `server` turned out to be older than what is so.
    pub fn heard_old_news(&mut self, search: &mut Search, server: usize) {
        self.resting[server] = None;
        search.has_answer = true;
    }

    /// The server that takes changes, if that is certain: what it answers is not behind.
    pub fn in_office(&self, now: Instant) -> Option<usize> {
        self.sync_site.filter(|_| self.in_office_until.is_some_and(|until| now < until))
    }

    /// Whom to ask who takes changes, until one says that it does itself.
    pub fn electorate(&self, now: Instant) -> Vec<usize> {
        self.sync_site.into_iter().chain(self.places(now)).collect()
    }

    /// What came of asking `server` whether it is the one who takes changes, or of asking it because it was.
    pub fn heard_of_office(&mut self, server: usize, outcome: Result<bool, AbortCode>, now: Instant) {
        match outcome {
            Ok(true) => self.takes_office(server, now),
            Ok(false) => self.leaves_office(server),
            Err(code) if is_silence(code) => {
                self.resting[server] = Some(now + REST);
                self.leaves_office(server);
            }
            Err(_) => {}
        }
    }

    fn takes_office(&mut self, server: usize, now: Instant) {
        self.resting[server] = None;
        self.sync_site = Some(server);
        self.in_office_until = Some(now + OFFICE);
    }

    fn leaves_office(&mut self, server: usize) {
        if self.sync_site == Some(server) {
            (self.sync_site, self.in_office_until) = (None, None);
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
