//! `cellar quickstart`: a whole cell on loopback in one directory, created on first use.

mod demo;
pub(crate) mod running;

use crate::commands::context::load_server_settings;
use crate::commands::protection::create_entry;
use crate::commands::volume::{self, Create};
use crate::output::line;
use afs_format::keyfile::{KeyType, Secret, TypedKey, write_extended};
use anyhow::{Context, Result};
use base::{CellName, VolumeName};
use cell_client::CellClient;
use cell_client::describe::failed;
use cell_client::network::{AfsNetwork, local_authentication};
use cellar_config::Settings;
use cellar_server::log::{Console, LOG_FILE};
use cellar_server::sockets::Sources;
use clap::Args;
use running::Running;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// aes256-cts-hmac-sha1-96.
const KEY_TYPE: u32 = 18;

/// Start a whole cell on loopback, kept in one directory; created on first use.
#[derive(Args)]
pub struct Quickstart {
    /// Directory of the cell.
    #[arg(long, default_value = running::FOLDER)]
    dir: PathBuf,
    /// Name of a new cell.
    #[arg(long, default_value = "cell.localhost")]
    cell: CellName,
    /// Loopback address of a new cell and its web page.
    #[arg(long, default_value_t = Ipv4Addr::LOCALHOST, value_parser = loopback)]
    address: Ipv4Addr,
    /// Administrator of a new cell; you by default.
    #[arg(long, env = "USER", default_value = "admin")]
    user: String,
    /// Fill the cell with users, volumes and files, and put a moderate load on it as long as it runs, so that
    /// the web page, `top`, `slow` and `doctor` have something to show.
    #[arg(long)]
    demo: bool,
    /// Show the log here; it is always in the directory.
    #[arg(long)]
    verbose: bool,
}

/// Parses a loopback address: a new cell has no protection against other machines.
fn loopback(text: &str) -> Result<Ipv4Addr, String> {
    let address: Option<Ipv4Addr> = text.parse().ok();
    address.filter(Ipv4Addr::is_loopback).ok_or_else(|| {
        format!("`{text}` is not a loopback address like 127.0.0.1; `cellar serve` uses others")
    })
}

/// Creates the directory if necessary, serves the cell, and prints commands to try.
pub fn run(quickstart: &Quickstart) -> Result<()> {
    running::make_folder(&quickstart.dir)?;
    let _running = Running::lock(&quickstart.dir)?;
    let config = quickstart.dir.join(running::CONFIG);
    if !config.exists() {
        make(quickstart, &config)
            .with_context(|| format!("cannot make a cell in {}", quickstart.dir.display()))?;
    }
    let mut settings = load_server_settings(Some(&config))?;
    if quickstart.demo {
        settings.slow_call_ms = settings.slow_call_ms.min(demo::SLOW_CALL_MS);
    }
    let console = if quickstart.verbose { Console::All } else { Console::Errors };
    let mut load = None;
    cellar_server::run_then(settings, Sources::default(), console, |settings| {
        let cell = client(settings)?;
        let made = furnish(&cell, settings, &quickstart.user)?;
        if quickstart.demo {
            demo::fill(&cell)?;
            load = Some(demo::Load::start(cell.default_server())?);
        }
        line(welcome(settings, quickstart, &made))
    })
}

fn client(settings: &Settings) -> Result<CellClient> {
    let network = AfsNetwork::start(Some(local_authentication(&settings.keys)?))?;
    let servers = settings.database_servers.iter().map(|server| server.address).collect();
    CellClient::new(Arc::new(network), servers)
}

fn make(quickstart: &Quickstart, config: &Path) -> Result<()> {
    let folder = &quickstart.dir;
    cellar_config::files::make_folder(&folder.join("vicepa"))?;
    let secret = Secret::new(&rand::random::<[u8; 32]>());
    let key = TypedKey { key_type: KeyType::RxkadKerberos5, kvno: 1, subtype: KEY_TYPE, secret };
    cellar_config::files::replace(&folder.join("KeyFileExt"), &write_extended(&[key]))?;
    let text = format!(
        "# A cell on loopback; docs/reference/configuration.md describes every key.\n\n\
         [cell]\nname = \"{}\"\nkeyfile = \"KeyFileExt\"\nadministrators = [\"{}\"]\n\n\
         [server]\nbind = [\"{}\"]\n\n[partitions]\na = \"vicepa\"\n\n[web]\naddress = \"{}\"\n",
        quickstart.cell, quickstart.user, quickstart.address, quickstart.address
    );
    cellar_config::files::replace(config, text.as_bytes())?;
    Ok(())
}

/// Creates the user and the volumes of a new cell.
fn furnish(cell: &CellClient, settings: &Settings, user: &str) -> Result<Vec<String>> {
    let home = format!("user.{user}");
    let person = format!("{user}=rlidwka");
    let volumes: [(&str, &[&str]); 3] = [
        ("root.afs", &["system:anyuser=rl"]),
        ("root.cell", &["system:anyuser=rl"]),
        (&home, &["system:anyuser=rl", &person]),
    ];
    if cell.find_volume(&home)?.is_none() {
        add_user(cell, user)?;
    }
    let is_new = cell.find_volume("root.cell")?.is_none();
    for (name, acl) in volumes {
        if cell.find_volume(name)?.is_none() {
            let name: VolumeName = name.parse()?;
            volume::create_volume(cell, &Create::with_acl(name, 0, acl))?;
        }
    }
    if is_new {
        volume::make_mount_point(cell, &format!("root.afs/{}", settings.cell), "root.cell", false)?;
        volume::make_mount_point(cell, &format!("root.cell/{user}"), &home, false)?;
    }
    Ok(volumes.iter().map(|(name, _)| (*name).to_owned()).collect())
}

fn add_user(cell: &CellClient, user: &str) -> Result<()> {
    use afs_idl::pr;
    use cell_client::Interface;
    let id = create_entry(cell, user, None, 0, 0)?;
    let request = pr::AddToGroupRequest { user: id, group: base::UserId::ADMINISTRATORS.0 };
    cell.database(Interface::Protection, |pr| pr::add_to_group(pr, &request))
        .map(drop)
        .map_err(failed(format!("make {user} an administrator")))
}

/// Returns the lines that introduce a running cell.
fn welcome(settings: &Settings, quickstart: &Quickstart, volumes: &[String]) -> String {
    let addresses: Vec<String> = settings.announce.iter().map(ToString::to_string).collect();
    let (folder, config) = (&quickstart.dir, quickstart.dir.join(running::CONFIG));
    let home = volumes.last().map_or("root.cell", String::as_str);
    let program = std::env::args().next().unwrap_or_else(|| "cellar".into());
    let is_found = running::is_found_from_here(folder);
    let option = if is_found { String::new() } else { format!(" --config {}", config.display()) };
    let here = if is_found { ", in this folder" } else { "" };
    let page = settings.web.as_ref().map_or_else(String::new, |web| {
        let url = web.url();
        format!("  {program} web login{option}  # for {url}, which shows only sums without it\n")
    });
    format!(
        "The cell {} serves on {}. It is kept in {}, with its log in {}.\n\
         Volumes: {}{}\n\nTry, in another terminal{here}:\n  \
         {program} volume list{option}\n  \
         {program} cp{option} /usr/share/doc/bash/ cell:{home}/doc\n  \
         {program} top{option}        # also slow, doctor, stat calls, profile cpu\n{page}\n\
         Ctrl-C stops it; everything stays in the folder. --verbose shows the log.",
        settings.cell,
        addresses.join(", "),
        folder.display(),
        settings.log_path.join(LOG_FILE).display(),
        volumes.join(", "),
        if quickstart.demo { ", and those of the demonstration" } else { "" },
    )
}
