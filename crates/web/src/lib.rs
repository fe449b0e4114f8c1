//! What a server shows of itself to browsers.
//!
//! [`Server`] speaks HTTP for a [`Handler`], everything bounded; metrics use it too. [`Site`] is the handler of
//! the web page: who asks is checked first ([`Key`], sessions), then the page's files, or what [`Source`] tells
//! as JSON, are sent. It changes nothing but its own
//! sessions, and begins and ends profiles for who has signed in. The page itself stands in `assets/`, plain
//! HTML, CSS and JavaScript, and is built into the program. Tables are declared once in
//! `events::catalogue`; `tables.rs` lists them with their names, and the page draws whatever is listed.
//!
//! To use it: [`Site::new`], [`Server::open`] with it, [`Site::begin`] once all services answer, and from then
//! on [`Site::sample`] every [`PERIOD`].

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
