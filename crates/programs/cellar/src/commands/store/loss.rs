//! `cellar store accept-loss`: goes on without durable changes that the medium has lost.

use super::address;
use crate::commands::owner_guard::OwnerGuard;
use crate::output::Format;
use anyhow::{Result, anyhow, bail};
use clap::Args;
use serde::Serialize;
use std::path::{Path, PathBuf};
use store::partition::FOLDER;

/// Open a partition without the changes that it has lost.
#[derive(Args)]
pub struct AcceptLoss {
    /// Directory of the partition, like /vicepa, or of one of the cell's databases.
    place: PathBuf,
    /// Only show what is lost.
    #[arg(long)]
    dry_run: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Accepted {
    place: String,
    /// Where the first lost change was, and which are lost.
    loss: Option<String>,
    dry_run: bool,
}

/// Gives up what is lost.
pub(super) fn run(accept: &AcceptLoss) -> Result<()> {
    let place = accept.place.display();
    if address(&accept.place).is_some() {
        bail!(
            "{place} is in a bucket; only the log of a partition on a local disk can be damaged in this way"
        );
    }
    let loss = if accept.dry_run {
        store::loss(&accept.place)
    } else {
        let _owner = OwnerGuard::new(&folder(&accept.place));
        store::accept_loss(&accept.place)
    };
    let loss = loss.map_err(|error| anyhow!("{error}"))?;
    let sentence = match &loss {
        None => format!("{place}: nothing is known to be lost, and nothing was changed"),
        Some(loss) if accept.dry_run => format!("{place}: {loss}"),
        Some(loss) => format!("{place}: these changes and all later ones are given up: {loss}"),
    };
    let format = if accept.json { Format::Json } else { Format::Text };
    format.done(&Accepted { place: place.to_string(), loss, dry_run: accept.dry_run }, sentence)
}

/// Returns the folder that belongs to the server's user.
fn folder(place: &Path) -> PathBuf {
    let partition = place.join(FOLDER);
    if partition.is_dir() { partition } else { place.to_owned() }
}
