//! Where log lines go: standard error, and a file that `bos getlog` can show.

use anyhow::{Context, Result};
use std::fs::File;
use std::io::IsTerminal;
use std::path::Path;
use std::sync::Mutex;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// The file's name.
pub const LOG_FILE: &str = "CellarLog";
/// That of the run before.
pub const OLD_LOG_FILE: &str = "CellarLog.old";

/// Starts logging; `CELLAR_LOG` filters (like `debug` or `rx=trace`), by default `info`. The log of
/// the run before is kept as CellarLog.old.
pub fn start(folder: &Path) -> Result<()> {
    std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let path = folder.join(LOG_FILE);
    if path.exists() {
        std::fs::rename(&path, folder.join(OLD_LOG_FILE))?;
    }
    let file = File::create(&path).with_context(|| format!("cannot write {}", path.display()))?;
    let filter = EnvFilter::try_from_env("CELLAR_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::registry()
        .with(filter)
        .with(
            tracing_subscriber::fmt::layer()
                .with_ansi(std::io::stderr().is_terminal())
                .with_writer(std::io::stderr),
        )
        .with(tracing_subscriber::fmt::layer().with_ansi(false).with_writer(Mutex::new(file)))
        .try_init()
        .context("logging runs already")
}
