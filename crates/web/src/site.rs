//! The web page as a handler of requests: who may see what, and what every answer has in common.

use crate::guard::{Guard, SESSION_LIFETIME};
use crate::history::History;
use crate::http::{Handler, Reply};
use crate::key::Key;
use crate::request::{Method, Request};
use crate::{Source, assets};
use parking_lot::Mutex;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::OnceLock;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// What a page of this server may load, and from where: only its own files. Trusted types make the browser
/// refuse every way by which text becomes markup.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
     connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
     require-trusted-types-for 'script'; trusted-types 'none'";

/// How the page is reached.
#[derive(Clone, Debug, Default)]
pub struct SiteSettings {
    /// Names that it is reached by besides addresses and `localhost`.
    pub names: Vec<String>,
    /// Proxies that are reached over TLS. Only what they say of their clients is believed.
    pub tls_proxies: Vec<IpAddr>,
}

/// The page. It answers from its first moment on, and tells that the server is starting until [`Self::begin`].
pub struct Site {
    pub(crate) guard: Guard,
    settings: SiteSettings,
    source: OnceLock<Arc<dyn Source>>,
    /// Guards the last quarter of an hour; locked while a sample is taken or told.
    pub(crate) history: Mutex<History>,
    /// Cookies know no ports: its number is part of the name.
    cookie: OnceLock<String>,
}

impl Site {
    /// A page that signs in who has codes of this key.
    pub fn new(key: Key, settings: SiteSettings) -> Site {
        let (source, history, cookie) = Default::default();
        Site { guard: Guard::new(key), settings, source, history, cookie }
    }

    /// Where it was opened.
    pub fn opened(&self, address: SocketAddr) {
        let _ = self.cookie.set(format!("cellar_{}", address.port()));
    }

    /// All services answer.
    pub fn begin(&self, source: Arc<dyn Source>) {
        let _ = self.source.set(source);
    }

    /// Takes a sample for the charts. To be called every [`PERIOD`](crate::PERIOD).
    pub fn sample(&self) {
        if let Some(source) = self.source.get() {
            self.history.lock().look(source.observed(), now());
        }
    }

    pub(crate) fn source(&self) -> Option<&Arc<dyn Source>> {
        self.source.get()
    }

    fn cookie_name(&self) -> &str {
        self.cookie.get().map_or("cellar", String::as_str)
    }

    /// What makes a browser keep a session's secret, or forget it.
    pub(crate) fn cookie(&self, request: &Request, secret: Option<&str>) -> String {
        let (value, seconds) = secret.map_or(("", 0), |secret| (secret, SESSION_LIFETIME.as_secs()));
        let name = self.cookie_name();
        let secure = if self.is_proxy(request.peer) { "; Secure" } else { "" };
        format!("{name}={value}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}")
    }

    fn is_proxy(&self, peer: IpAddr) -> bool {
        self.settings.tls_proxies.contains(&peer)
    }

    /// Whether nobody on the way could read the request: it came over TLS, or from this machine.
    pub(crate) fn is_confidential(&self, request: &Request) -> bool {
        if self.is_proxy(request.peer) {
            return request
                .header("x-forwarded-proto")
                .is_some_and(|name| name.eq_ignore_ascii_case("https"));
        }
        request.peer.is_loopback()
    }

    /// The address whose attempts to sign in are counted.
    pub(crate) fn client(&self, request: &Request) -> IpAddr {
        let told = request.header("x-forwarded-for").filter(|_| self.is_proxy(request.peer));
        // The last one is the proxy's own; those before it are what its client said.
        let told = told.and_then(|list| list.rsplit(',').next()?.trim().parse().ok());
        told.unwrap_or(request.peer)
    }

    pub(crate) fn secret<'a>(&self, request: &'a Request) -> Option<&'a str> {
        request.cookie(self.cookie_name())
    }

    /// Whether who asks may see what is private: a browser that has signed in, or a program that has the
    /// key; what to answer if it tried too often.
    pub(crate) fn is_trusted(&self, request: &Request) -> Result<bool, Reply> {
        if let Some(text) = request.header("authorization").and_then(|text| text.strip_prefix("Bearer ")) {
            if !self.is_confidential(request) {
                return Err(in_clear());
            }
            let known = self.guard.is_key(text.trim(), self.client(request), now());
            return known.ok_or_else(too_many);
        }
        let is_signed_in = |secret| self.guard.is_signed_in(secret, now());
        Ok(self.is_confidential(request) && self.secret(request).is_some_and(is_signed_in))
    }

    /// A page elsewhere whose name was made to lead here must not read what this one tells.
    fn is_own_name(&self, host: &str) -> bool {
        let name = host.rsplit_once(':').filter(|(_, port)| port.bytes().all(|byte| byte.is_ascii_digit()));
        let name = name.map_or(host, |(name, _)| name).trim_start_matches('[').trim_end_matches(']');
        let is_named = |own: &String| own.eq_ignore_ascii_case(name);
        name.parse::<IpAddr>().is_ok()
            || name.eq_ignore_ascii_case("localhost")
            || self.settings.names.iter().any(is_named)
    }

    fn refusal(&self, request: &Request) -> Option<Reply> {
        let host = request.header("host").unwrap_or_default();
        if !self.is_own_name(host) {
            let words = "This server does not know the name it was asked by; `names` in [web] adds some.\n";
            return Some(Reply::text("421 Misdirected Request", words));
        }
        // Other pages cannot send this header, nor can forms.
        let is_change = request.method == Method::Post;
        let foreign = request.header("origin").is_some_and(|origin| !is_same(origin, host));
        if is_change && (foreign || request.header("x-cellar").is_none()) {
            return Some(Reply::text("403 Forbidden", "only the page itself may ask that\n"));
        }
        None
    }
}

impl Handler for Site {
    fn is_shared(&self, peer: IpAddr) -> bool {
        let peer = peer.to_canonical();
        peer.is_loopback() || self.is_proxy(peer)
    }

    fn answer(&self, request: &Request) -> Reply {
        let reply = self.refusal(request).unwrap_or_else(|| match assets::find(&request.path) {
            Some(_) if request.method == Method::Post => Reply::text("405 Method Not Allowed", "only GET\n"),
            Some(file) => file,
            None => self.api(request),
        });
        let common = [
            ("Content-Security-Policy", POLICY),
            ("Referrer-Policy", "no-referrer"),
            ("X-Frame-Options", "DENY"),
            ("Cross-Origin-Opener-Policy", "same-origin"),
            ("Cross-Origin-Resource-Policy", "same-origin"),
            ("Permissions-Policy", "camera=(), microphone=(), geolocation=()"),
        ];
        common.into_iter().fold(reply, |reply, (name, value)| reply.with(name, value))
    }
}

/// Whether an origin is that of the host.
fn is_same(origin: &str, host: &str) -> bool {
    let name = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
    name.is_some_and(|name| name.eq_ignore_ascii_case(host))
}

/// What who tried too often is told.
pub(crate) fn too_many() -> Reply {
    Reply::text("429 Too Many Requests", "too many attempts; wait a minute\n").with("Retry-After", "60")
}

/// The refusal of a key or a code that others could read on its way.
pub(crate) fn in_clear() -> Reply {
    Reply::text(
        "403 Forbidden",
        "Keys and codes are not taken from another machine without TLS: use `ssh -L`, or a proxy with TLS that \
         `tls_proxies` in [web] names. What was sent could be read on its way: remove the key's file and restart the \
         server if it was the key.\n",
    )
}

/// The time since 1970.
pub(crate) fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

#[cfg(test)]
pub(crate) mod fake;
#[cfg(test)]
mod tests;
