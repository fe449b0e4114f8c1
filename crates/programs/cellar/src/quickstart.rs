//! `cellar quickstart`: a whole cell on loopback in one directory, created on first use.

use crate::commands::context::load_settings;
use crate::commands::protection::create_entry;
use crate::commands::volume::{self, Create};
use afs_format::keyfile::{KeyType, Secret, TypedKey, write_extended};
use anyhow::{Context, Result};
use base::{CellName, VolumeName};
use cell_client::CellClient;
use cell_client::describe::failed;
use cell_client::network::{AfsNetwork, local_authentication};
use cellar_config::Settings;
use cellar_server::sockets::Sources;
use clap::Args;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// aes256-cts-hmac-sha1-96.
const KEY_TYPE: u32 = 18;

/// Start a whole cell on loopback, kept in one directory; created on first use.
#[derive(Args)]
pub struct Quickstart {
    /// Directory of the cell.
    #[arg(long, default_value = "cell")]
    dir: PathBuf,
    /// Name of a new cell.
    #[arg(long, default_value = "cell.localhost")]
    cell: CellName,
    /// Administrator of a new cell; you by default.
    #[arg(long, env = "USER", default_value = "admin")]
    user: String,
}

/// Creates the directory if necessary, serves the cell, and prints commands to try.
pub fn run(quickstart: &Quickstart) -> Result<()> {
    let config = quickstart.dir.join("cellar.toml");
    if !config.exists() {
        make(quickstart, &config)
            .with_context(|| format!("cannot make a cell in {}", quickstart.dir.display()))?;
    }
    let settings = load_settings(Some(&config))?;
    cellar_server::run_then(settings, Sources::default(), |settings| {
        let made = furnish(settings, &quickstart.user)?;
        print!("{}", welcome(settings, &config, &made));
        Ok(())
    })
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
         [server]\nbind = [\"127.0.0.1\"]\n\n[partitions]\na = \"vicepa\"\n\n[web]\n",
        quickstart.cell, quickstart.user
    );
    cellar_config::files::replace(config, text.as_bytes())?;
    Ok(())
}

/// Creates the user and the volumes of a new cell.
fn furnish(settings: &Settings, user: &str) -> Result<Vec<String>> {
    let network = AfsNetwork::start(Some(local_authentication(&settings.keys)?))?;
    let servers = settings.database_servers.iter().map(|server| server.address).collect();
    let cell = CellClient::new(Arc::new(network), servers)?;
    let home = format!("user.{user}");
    let person = format!("{user}=rlidwka");
    let volumes: [(&str, &[&str]); 3] = [
        ("root.afs", &["system:anyuser=rl"]),
        ("root.cell", &["system:anyuser=rl"]),
        (&home, &["system:anyuser=rl", &person]),
    ];
    if cell.find_volume(&home)?.is_none() {
        add_user(&cell, user)?;
    }
    let is_new = cell.find_volume("root.cell")?.is_none();
    for (name, acl) in volumes {
        if cell.find_volume(name)?.is_none() {
            let name: VolumeName = name.parse()?;
            volume::create_volume(&cell, &Create::with_acl(name, 0, acl))?;
        }
    }
    if is_new {
        volume::make_mount_point(&cell, &format!("root.afs/{}", settings.cell), "root.cell", false)?;
        volume::make_mount_point(&cell, &format!("root.cell/{user}"), &home, false)?;
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

fn welcome(settings: &Settings, config: &Path, volumes: &[String]) -> String {
    let addresses: Vec<String> = settings.announce.iter().map(ToString::to_string).collect();
    let config = config.display();
    let home = volumes.last().map_or("root.cell", String::as_str);
    let program = std::env::args().next().unwrap_or_else(|| "cellar".into());
    let page = settings.web.as_ref().map_or_else(String::new, |web| {
        format!(
            "\nOpen {} to see what it does; to see volumes and clients too:\n  \
             {program} web login --config {config}\n",
            web.url()
        )
    });
    format!(
        "\nThe cell {} serves on {}.\nVolumes: {}\n\nTry, in another terminal:\n  \
         {program} volume list --config {config}\n  \
         {program} cp --config {config} /usr/share/doc/ cell:{home}/doc\n  \
         rxdebug 127.0.0.1 7000 -version\n{page}\nCtrl-C stops it; everything stays in the folder.\n",
        settings.cell,
        addresses.join(", "),
        volumes.join(", ")
    )
}
