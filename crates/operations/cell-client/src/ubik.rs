//! Selection of a database server: the part of a Ubik client without I/O.
//!
//! OpenAFS replicates its databases. Every server answers queries; one server, the sync site, accepts
//! changes, and during an election none does. A server that cannot serve a call says so (UNOTSYNC, UNOQUORUM)
//! and has done nothing, so that the same call can go to another server.
//!
//! Every server answers from its own copy. After an outage, a server serves its old database until the sync
//! site has sent the new one: half a minute after it is back, and, as long as it may not vote yet (75 s),
//! half a minute after every change. Therefore a client whose answer turns out to be wrong asks the other
//! servers ([`Roster::heard_old_news`]), and a client that is about to make a change asks the sync site
//! ([`Roster::in_office`]).
//!
//! A [`Search`] is the path of one call through the servers; the [`Roster`] is what all calls have learned
//! about them. Begin a search. Until a verdict is [`Verdict::Final`], call the server returned by
//! [`Roster::next`] and pass the result to [`Roster::heard`]. A search asks every server at most once, and
//! two more servers because another one named them as sync site. A server that did not answer is avoided for
//! a while and then tried by one call at a time. An unreachable cell therefore costs each caller little time,
//! regardless of the number of callers.

use base::AbortCode;
use std::time::{Duration, Instant};

/// Time for which a server that did not answer is avoided.
const REST: Duration = Duration::from_secs(5);
/// Time reserved for one call to try such a server before another call may.
const TRIAL: Duration = Duration::from_secs(60);
/// Maximum number of times that one search asks for the sync site.
const HINTS_MAX: u8 = 2;
/// Time for which a server is certainly the sync site after it accepted a change or claimed to be it: its
/// voters vote for no other server for 75 s (BIGTIME), and their votes count for 60 s (SMALLTIME).
const OFFICE: Duration = Duration::from_secs(15);

/// State of the servers of one database, identified by their indices.
#[derive(Debug)]
pub struct Roster {
    /// Times until which servers are avoided; `None` for those that answered last time, or were never asked.
    resting: Vec<Option<Instant>>,
    /// The server that answered last; it is asked first.
    preferred: usize,
    /// The server that last accepted a change or claimed to be the sync site.
    sync_site: Option<usize>,
    /// Time until which it certainly is the sync site.
    in_office_until: Option<Instant>,
}

/// The path of one call through the servers.
#[derive(Debug)]
pub struct Search {
    asked: Vec<bool>,
    needs_sync_site: bool,
    hint: Option<usize>,
    hints_left: u8,
    /// Whether there is an answer: servers that may be down are no longer tried.
    has_answer: bool,
}

/// What to do with a server's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is the answer, even if an error.
    Final,
    /// Another server may do better.
    AskAnother,
    /// Another server may do better, and this one may know which; see [`Search::hint`].
    AskForSyncSite,
}

impl Roster {
    /// Creates a roster that assumes all servers are up.
    pub fn new(servers: usize) -> Roster {
        Roster { resting: vec![None; servers], preferred: 0, sync_site: None, in_office_until: None }
    }

    /// Begins a search for one call.
    pub fn begin(&self) -> Search {
        let asked = vec![false; self.resting.len()];
        Search { asked, needs_sync_site: false, hint: None, hints_left: HINTS_MAX, has_answer: false }
    }

    /// Returns the server to ask next; `None` if there are no more.
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

    /// Returns the servers that are up, starting with the preferred one, then those avoided long enough.
    fn places(&self, now: Instant) -> impl Iterator<Item = usize> {
        let count = self.resting.len();
        let all = (0..count).map(move |step| (self.preferred + step) % count);
        let is_up = |place: &usize| self.resting[*place].is_none();
        let has_rested = move |place: &usize| self.resting[*place].is_some_and(|until| until <= now);
        all.clone().filter(is_up).chain(all.filter(has_rested))
    }

    /// Records the result of a call to `server`.
    pub fn heard(
        &mut self,
        search: &mut Search,
        server: usize,
        outcome: Result<(), AbortCode>,
        now: Instant,
    ) -> Verdict {
        let is_silent = outcome.is_err_and(AbortCode::is_of_rx);
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
            // A server may reject a call before it checks whether it is the sync site.
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

    /// Records that the answer of `server` was out of date.
    pub fn heard_old_news(&mut self, search: &mut Search, server: usize) {
        self.resting[server] = None;
        search.has_answer = true;
    }

    /// Returns the server that certainly is the sync site, so that its answers are up to date.
    pub fn in_office(&self, now: Instant) -> Option<usize> {
        self.sync_site.filter(|_| self.in_office_until.is_some_and(|until| now < until))
    }

    /// Returns the servers to ask for the sync site, in order, until one claims to be it.
    pub fn electorate(&self, now: Instant) -> Vec<usize> {
        self.sync_site.into_iter().chain(self.places(now)).collect()
    }

    /// Records whether `server` claims to be the sync site, or an error of a call to it as the sync site.
    pub fn heard_of_office(&mut self, server: usize, outcome: Result<bool, AbortCode>, now: Instant) {
        match outcome {
            Ok(true) => self.takes_office(server, now),
            Ok(false) => self.leaves_office(server),
            Err(code) if code.is_of_rx() => {
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
    /// Records a server that another one named as sync site.
    pub fn hint(&mut self, server: usize) {
        self.hint = Some(server);
    }
}

/// Returns the more informative of two servers' errors: that of a server that answered.
pub fn more_informative(before: AbortCode, now: AbortCode) -> AbortCode {
    if now.is_of_rx() && !before.is_of_rx() { before } else { now }
}

#[cfg(test)]
mod tests;
