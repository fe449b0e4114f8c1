//! Load from verified clients.

use super::target::SERVER;
use crate::cell::Cell;
use anyhow::{Context, Result};
use serde_json::Value;

/// Results of `cellar bench fs`.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Successful calls per second.
    pub rate: f64,
    /// Share of packets that were retransmitted.
    pub repeated: f64,
    /// Number of calls that failed or had a wrong reply.
    pub failed: u64,
    /// Number of calls that the server rejected as busy.
    pub busy: u64,
}

impl Load {
    /// Runs clients with the cell's key on `host`, in a volume of the target. `mix` describes them
    /// (docs/guide/load.md).
    ///
    /// # Errors
    /// If the clients could not start.
    pub fn run(host: &Cell, volume: &str, mix: &str, seconds: u32) -> Result<Load> {
        let path = host.path().join("mix.toml");
        std::fs::write(&path, mix)?;
        let report = host.shell(&format!(
            "cellar bench fs {} --server {SERVER} --volume {volume} --level auth --threads 1 \
             --warm-up 2 --seconds {seconds} --json",
            path.display()
        ))?;
        let text = report.ok()?;
        let start = text.find('{').with_context(|| format!("no report: {text}"))?;
        Load::of(&serde_json::from_str(&text[start..]).with_context(|| text.clone())?)
    }

    fn of(report: &Value) -> Result<Load> {
        let groups = report["groups"].as_array().context("no groups")?;
        let kinds = groups.iter().filter_map(|group| group["kinds"].as_array()).flatten();
        let (mut failed, mut busy) = (0, 0);
        for kind in kinds {
            failed += kind["failed"].as_u64().context("failed")?;
            busy += kind["busy"].as_u64().context("busy")?;
        }
        let figure = |name: &'static str| report[name].as_f64().context(name);
        Ok(Load { rate: figure("calls_per_second")?, repeated: figure("repeated_share")?, failed, busy })
    }
}
