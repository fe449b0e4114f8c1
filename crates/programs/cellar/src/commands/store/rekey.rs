//! `cellar store rekey`: replaces the master key, or adds a data key.

use super::{address, in_bucket};
use crate::commands::context::load_settings;
use crate::commands::owner_guard::OwnerGuard;
use crate::output::Format;
use anyhow::{Context as _, Result, anyhow};
use cellar_config::Settings;
use cellar_config::encryption::KeySource;
use cellar_config::files::Exposure;
use clap::Args;
use serde::Serialize;
use std::path::{Path, PathBuf};
use store::Partition;
use store::partition::FOLDER;

/// Change the keys of an encrypted partition.
#[derive(Args)]
pub struct Rekey {
    /// Directory of the partition, like /vicepa, or its address in a bucket, like s3://cellar/b, which the configuration
    /// must name.
    partition: PathBuf,
    /// Configuration of the server, which names the present master key; OpenAFS's in /etc/openafs/server by
    /// default.
    #[arg(long, env = "CELLAR_CONFIG")]
    config: Option<PathBuf>,
    /// File with the present master key, overriding the configuration.
    #[arg(long, value_name = "FILE", conflicts_with = "key_command")]
    key_file: Option<PathBuf>,
    /// Command that prints the present master key.
    #[arg(long, value_name = "COMMAND")]
    key_command: Option<String>,
    /// File with the new master key; the master key stays the same by default.
    #[arg(long, value_name = "FILE", conflicts_with = "new_key_command")]
    new_key_file: Option<PathBuf>,
    /// Command that prints the new master key.
    #[arg(long, value_name = "COMMAND")]
    new_key_command: Option<String>,
    /// Encrypt new data with a new data key.
    #[arg(long)]
    new_data_key: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Rekeyed {
    partition: String,
    data_keys: usize,
}

/// Returns the key source that the configuration names for the partition in `path`.
pub(super) fn configured(settings: &Settings, path: &Path) -> Option<KeySource> {
    let is_it = |known: &Path| known == path || known.canonicalize().ok() == path.canonicalize().ok();
    let mut known = settings.partitions.iter();
    known.find(|known| known.place.folder().is_some_and(is_it)).and_then(|known| known.key.clone())
}

/// Wraps the data keys with the new master key.
pub(super) fn run(rekey: &Rekey) -> Result<()> {
    let present = present(rekey)?;
    let next = match (&rekey.new_key_file, &rekey.new_key_command) {
        (None, None) => present.clone(),
        (file, command) => KeySource::from_either(file.clone(), command.clone(), Exposure::Refused)?,
    };
    let (old, new) = (present.load()?, next.load()?);
    let data_keys = match address(&rekey.partition) {
        None => {
            let _owner = OwnerGuard::new(&rekey.partition.join(FOLDER));
            Partition::rekey(&rekey.partition, &old, &new, rekey.new_data_key)
                .map_err(|error| anyhow!("{error}"))?
        }
        Some(address) => {
            let settings = load_settings(rekey.config.as_deref())?;
            let bucket = in_bucket(&settings, &address)?.place.bucket().context("not in a bucket")?;
            cellar_server::buckets::rekey(bucket, (&old, &new), rekey.new_data_key)?
        }
    };
    let partition = rekey.partition.display().to_string();
    let format = if rekey.json { Format::Json } else { Format::Text };
    let sentence = format!("{partition}: {data_keys} data keys are wrapped with the key from {next}");
    format.done(&Rekeyed { partition, data_keys }, sentence)
}

fn present(rekey: &Rekey) -> Result<KeySource> {
    if rekey.key_file.is_some() || rekey.key_command.is_some() {
        return KeySource::from_either(rekey.key_file.clone(), rekey.key_command.clone(), Exposure::Refused);
    }
    let settings = load_settings(rekey.config.as_deref())?;
    let known = match address(&rekey.partition) {
        None => configured(&settings, &rekey.partition),
        Some(address) => in_bucket(&settings, &address)?.key.clone(),
    };
    known.with_context(|| format!("the configuration names no master key for {}", rekey.partition.display()))
}
