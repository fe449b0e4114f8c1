//! The server's end of rxkad.

use std::sync::Arc;

use base::{Identity, SecurityLevel, UnixTime};

use super::names::LocalRealms;
use super::packet::RxkadProtection;
use super::response::{Challenge, Claims, Response};
use super::{NEVER, RXKAD_INDEX, ticket, times};
use crate::key::KeySource;
use crate::{ConnectionFacts, SecurityError, ServerHandshake, ServerSecurity, Verified};

/// Default clock skew in seconds, as in OpenAFS (`KTC_TIME_UNCERTAINTY`).
const CLOCK_SKEW_SECONDS: u32 = 900;

/// Accepts connections whose peers hold a ticket for the cell.
#[derive(Clone)]
pub struct RxkadServer {
    settings: Arc<Settings>,
}

#[derive(Clone)]
struct Settings {
    keys: Arc<dyn KeySource>,
    realms: LocalRealms,
    level_min: SecurityLevel,
    clock_skew_seconds: u32,
    dots_allowed: bool,
}

impl RxkadServer {
    /// Creates a server with these keys. Users of these realms are users of the cell. By default it accepts
    /// every level, tolerates a clock skew of 15 minutes, and refuses names with dots.
    pub fn new(keys: Arc<dyn KeySource>, realms: LocalRealms) -> RxkadServer {
        let settings = Settings {
            keys,
            realms,
            level_min: SecurityLevel::Clear,
            clock_skew_seconds: CLOCK_SKEW_SECONDS,
            dots_allowed: false,
        };
        RxkadServer { settings: Arc::new(settings) }
    }

    /// Refuses levels below `level_min`.
    #[must_use]
    pub fn with_level_min(self, level_min: SecurityLevel) -> RxkadServer {
        self.with(|settings| settings.level_min = level_min)
    }

    /// Sets the tolerated clock skew: by how many seconds a ticket may start in the future.
    #[must_use]
    pub fn with_clock_skew(self, clock_skew_seconds: u32) -> RxkadServer {
        self.with(|settings| settings.clock_skew_seconds = clock_skew_seconds)
    }

    /// Allows principals with a dot in the first component, although `joe.admin` is then the same user as
    /// `joe/admin` (OpenAFS: `-allow-dotted-principals`).
    #[must_use]
    pub fn with_dotted_names(self) -> RxkadServer {
        self.with(|settings| settings.dots_allowed = true)
    }

    fn with(mut self, change: impl FnOnce(&mut Settings)) -> RxkadServer {
        change(Arc::make_mut(&mut self.settings));
        self
    }
}

impl ServerSecurity for RxkadServer {
    fn index(&self) -> u8 {
        RXKAD_INDEX
    }

    fn needs_challenge(&self) -> bool {
        true
    }

    fn accept(&self, connection: ConnectionFacts, nonce: [u8; 16]) -> Box<dyn ServerHandshake> {
        let [a, b, c, d, ..] = nonce;
        Box::new(RxkadAccept {
            settings: Arc::clone(&self.settings),
            connection,
            nonce: u32::from_be_bytes([a, b, c, d]),
        })
    }
}

/// The server's end of one connection until it is verified.
struct RxkadAccept {
    settings: Arc<Settings>,
    connection: ConnectionFacts,
    nonce: u32,
}

impl ServerHandshake for RxkadAccept {
    fn challenge(&mut self) -> Vec<u8> {
        Challenge { nonce: self.nonce, level: self.settings.level_min as u32 }.encode()
    }

    fn verify(&mut self, response: &[u8], now: UnixTime) -> Result<Verified, SecurityError> {
        let settings = &self.settings;
        let response = Response::decode(response)?;
        let keys = &*settings.keys;
        let opened = ticket::open(response.kvno, response.ticket, keys, settings.dots_allowed)?;
        times::check(opened.start, opened.end, now, settings.clock_skew_seconds)?;
        let claims = response.open(self.connection, &opened.session_key)?;
        let level = self.check(claims)?;
        let protection = RxkadProtection::new(self.connection, &opened.session_key, level);
        let principal = settings.realms.principal(opened.name, opened.instance, &opened.realm);
        Ok(Verified {
            protection: Box::new(protection),
            identity: Identity::Known(principal),
            level,
            begins: (opened.start != 0).then_some(UnixTime(opened.start)),
            expires: (opened.end != NEVER).then_some(UnixTime(opened.end)),
            lease: Some(opened.lease),
            call_numbers: Some(claims.call_numbers),
        })
    }
}

impl RxkadAccept {
    /// Returns the negotiated level if the response answers this connection's challenge.
    fn check(&self, claims: Claims) -> Result<SecurityLevel, SecurityError> {
        let (expected, got) = (self.nonce.wrapping_add(1), claims.nonce);
        if expected != got {
            return Err(SecurityError::OutOfSequence { expected, got });
        }
        let level = match claims.level {
            0 => SecurityLevel::Clear,
            1 => SecurityLevel::Authenticated,
            2 => SecurityLevel::Encrypted,
            got => return Err(SecurityError::LevelUnknown { got }),
        };
        if level < self.settings.level_min {
            let expected = self.settings.level_min as u32;
            return Err(SecurityError::LevelTooLow { expected, got: claims.level });
        }
        Ok(level)
    }
}
