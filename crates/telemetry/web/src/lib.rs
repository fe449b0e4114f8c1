//! The web page of a server.
//!
//! [`Server`] speaks HTTP for a [`Handler`], with everything bounded; metrics use it too. [`Site`] is the
//! handler of the page: it authenticates the request ([`Key`], sessions), then sends the page's files, or the
//! data of [`Source`] as JSON. It changes nothing except its own sessions, and starts and ends profiles for
//! signed-in users. The page itself is in `assets/`, plain HTML, CSS and JavaScript, built into the program.
//! Tables are declared once in `events::catalogue`; `tables.rs` lists them with their names, and the page
//! draws every table in the list.
//!
//! To use it: call [`Site::new`], [`Server::open`] with the site, [`Site::begin`] once all services answer,
//! and from then on [`Site::sample`] every [`PERIOD`].

mod api;
mod assets;
mod clients;
mod guard;
mod history;
mod http;
mod key;
mod profiles;
mod request;
mod site;
mod source;
mod tables;

pub use history::PERIOD;
pub use http::{Handler, Reply, Server};
pub use key::{CODE_LIFETIME, Key, KeyError};
pub use request::{Method, Request};
pub use site::{Site, SiteSettings};
pub use source::{About, Source};
