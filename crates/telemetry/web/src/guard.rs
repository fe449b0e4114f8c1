//! Sessions, and limits on attempts to sign in.

use crate::key::{Key, Nonce, from_hex, to_hex};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

/// Lifetime of a session.
pub(crate) const SESSION_LIFETIME: Duration = Duration::from_secs(12 * 3600);
/// Maximum number of sessions; the oldest is removed for a new one.
const SESSIONS_MAX: usize = 64;
/// Length of a session's secret in bytes.
const SECRET_BYTES: usize = 32;
/// Maximum number of failed attempts per address in [`ATTEMPTS_TIME`].
const ATTEMPTS_MAX: u32 = 10;
const ATTEMPTS_TIME: Duration = Duration::from_secs(60);
/// Maximum number of addresses whose attempts are counted.
const ADDRESSES_MAX: usize = 256;

/// Result of an attempt to sign in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Attempt {
    /// Success, with the session's secret.
    Fine(String),
    /// The code is invalid, expired, or already used.
    Wrong,
    /// Too many failed attempts.
    TooMany,
}

/// Manages sessions. Times are since 1970. Only hashes of secrets are stored, so that the time of a lookup
/// does not depend on the secret.
pub(crate) struct Guard {
    key: Key,
    /// Guards the mutable state; nothing blocks under the lock.
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// End of each session, by the hash of its secret.
    sessions: HashMap<[u8; 32], Duration>,
    /// Used codes with the time in seconds at which they expire. Only holders of the key can add any.
    used: HashMap<Nonce, u64>,
    attempts: HashMap<IpAddr, (u32, Duration)>,
}

impl Guard {
    pub(crate) fn new(key: Key) -> Guard {
        Guard { key, state: Mutex::default() }
    }

    /// Signs in with a code.
    pub(crate) fn sign_in(&self, code: &str, peer: IpAddr, now: Duration) -> Attempt {
        let mut state = self.state.lock();
        if !state.may_try(peer, now) {
            return Attempt::TooMany;
        }
        state.used.retain(|_, expiry| *expiry >= now.as_secs());
        let fresh = self.key.check(code, now).filter(|(nonce, _)| !state.used.contains_key(nonce));
        let Some((nonce, expiry)) = fresh else {
            state.note_failure(peer, now);
            return Attempt::Wrong;
        };
        state.used.insert(nonce, expiry);
        let secret: [u8; SECRET_BYTES] = rand::random();
        state.add_session(hash(&secret), now);
        Attempt::Fine(to_hex(&secret))
    }

    /// Whether a session with this secret exists.
    pub(crate) fn is_signed_in(&self, secret: &str, now: Duration) -> bool {
        let Some(secret) = from_hex::<SECRET_BYTES>(secret) else { return false };
        self.state.lock().sessions.get(&hash(&secret)).is_some_and(|end| *end > now)
    }

    /// Whether the text is the key itself, sent by a program; `None` if the address has to wait.
    pub(crate) fn is_key(&self, text: &str, peer: IpAddr, now: Duration) -> Option<bool> {
        let mut state = self.state.lock();
        if !state.may_try(peer, now) {
            return None;
        }
        let is_key = self.key.is(text);
        if !is_key {
            state.note_failure(peer, now);
        }
        Some(is_key)
    }

    /// Ends a session.
    pub(crate) fn sign_out(&self, secret: &str) {
        if let Some(secret) = from_hex::<SECRET_BYTES>(secret) {
            self.state.lock().sessions.remove(&hash(&secret));
        }
    }
}

impl State {
    fn may_try(&self, peer: IpAddr, now: Duration) -> bool {
        match self.attempts.get(&peer) {
            Some((count, since)) => *count < ATTEMPTS_MAX || now.saturating_sub(*since) >= ATTEMPTS_TIME,
            None => true,
        }
    }

    fn note_failure(&mut self, peer: IpAddr, now: Duration) {
        if self.attempts.len() >= ADDRESSES_MAX && !self.attempts.contains_key(&peer) {
            self.attempts.retain(|_, (_, since)| now.saturating_sub(*since) < ATTEMPTS_TIME);
            // An attacker with that many addresses would not be stopped by the counts anyway; codes cannot be
            // guessed.
            if self.attempts.len() >= ADDRESSES_MAX {
                self.attempts.clear();
            }
        }
        let entry = self.attempts.entry(peer).or_insert((0, now));
        if now.saturating_sub(entry.1) >= ATTEMPTS_TIME {
            *entry = (0, now);
        }
        entry.0 += 1;
    }

    fn add_session(&mut self, secret: [u8; 32], now: Duration) {
        self.sessions.retain(|_, end| *end > now);
        if self.sessions.len() >= SESSIONS_MAX {
            let oldest = self.sessions.iter().min_by_key(|(_, end)| **end).map(|(secret, _)| *secret);
            oldest.and_then(|secret| self.sessions.remove(&secret));
        }
        self.sessions.insert(secret, now + SESSION_LIFETIME);
    }
}

fn hash(secret: &[u8; SECRET_BYTES]) -> [u8; 32] {
    *blake3::hash(secret).as_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    const NOW: Duration = Duration::from_secs(1_000_000);

    fn guard() -> (tempfile::TempDir, Key, Guard) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        let guard = Guard::new(Key::load_or_make(&path).unwrap());
        (folder, Key::load(&path).unwrap(), guard)
    }

    fn peer(last: u8) -> IpAddr {
        Ipv4Addr::new(10, 0, 0, last).into()
    }

    #[test]
    fn a_code_signs_in_once_for_a_while() {
        let (_folder, key, guard) = guard();
        let code = key.code(NOW);
        let Attempt::Fine(secret) = guard.sign_in(&code, peer(1), NOW) else { panic!("refused") };
        assert_eq!(guard.sign_in(&code, peer(1), NOW), Attempt::Wrong, "it was used");
        assert!(guard.is_signed_in(&secret, NOW) && guard.is_signed_in(&secret, NOW + SESSION_LIFETIME / 2));
        assert!(!guard.is_signed_in(&secret, NOW + SESSION_LIFETIME) && !guard.is_signed_in("", NOW));
        guard.sign_out(&secret);
        assert!(!guard.is_signed_in(&secret, NOW));
    }

    #[test]
    fn only_failing_clients_are_delayed() {
        let (_folder, key, guard) = guard();
        for _ in 0..ATTEMPTS_MAX {
            assert_eq!(guard.sign_in("guess", peer(1), NOW), Attempt::Wrong);
        }
        assert_eq!(guard.sign_in(&key.code(NOW), peer(1), NOW), Attempt::TooMany);
        assert_eq!(guard.is_key("guess", peer(1), NOW), None);
        assert!(matches!(guard.sign_in(&key.code(NOW), peer(2), NOW), Attempt::Fine(_)));
        let later = NOW + ATTEMPTS_TIME;
        assert!(matches!(guard.sign_in(&key.code(later), peer(1), later), Attempt::Fine(_)));
    }

    #[test]
    fn memory_is_bounded() {
        let (_folder, key, guard) = guard();
        let secrets: Vec<Attempt> = (0..SESSIONS_MAX as u64 + 5)
            .map(|at| guard.sign_in(&key.code(NOW), peer(1), NOW + Duration::from_secs(at)))
            .collect();
        let signed_in =
            |attempt: &&Attempt| matches!(attempt, Attempt::Fine(secret) if guard.is_signed_in(secret, NOW));
        assert_eq!(secrets.iter().filter(signed_in).count(), SESSIONS_MAX);
        for number in 0..2000_u32 {
            guard.sign_in("guess", Ipv4Addr::from(number).into(), NOW);
        }
        assert!(guard.state.lock().attempts.len() <= ADDRESSES_MAX);
    }
}
