//! `cellar web`: signs in to the server's web page.

use super::Context;
use anyhow::{Context as _, Result};
use clap::Subcommand;
use serde_json::json;
use std::time::{SystemTime, UNIX_EPOCH};
use web::{CODE_LIFETIME, Key};

/// Use the server's web page.
#[derive(Subcommand)]
pub enum Web {
    /// Print an address that signs a browser in, once, within five minutes. Anyone who can read the server's
    /// web key may do that.
    Login,
}

/// Runs a command.
pub fn run(context: &Context, Web::Login: &Web) -> Result<()> {
    let settings = context.settings()?;
    let web = settings.web.context("this server has no web page; `[web]` in its configuration enables it")?;
    let key = Key::load(&web.key_path).context("the server creates the key when it starts with `[web]`")?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).context("the clock is before 1970")?;
    let url = format!("{}#/login/{}", web.url(), key.code(now));
    let minutes = CODE_LIFETIME.as_secs() / 60;
    let json = json!({ "url": url, "lifetime_s": CODE_LIFETIME.as_secs() });
    context.format.done(&json, format!("{url}\n\nIt can be opened once, within {minutes} minutes."))
}
