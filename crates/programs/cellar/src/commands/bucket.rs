//! `cellar bucket`: tests whether a bucket can hold a partition.

use crate::output::Format;
use anyhow::{Context as _, Result, anyhow, bail};
use base::{BucketAddress, PartitionId};
use cellar_config::files::Exposure;
use cellar_config::{BucketSettings, Settings};
use clap::{Args, Subcommand};
use std::path::PathBuf;
use std::process::ExitCode;

/// Test buckets for partitions.
#[derive(Subcommand)]
pub enum Bucket {
    /// Test whether a bucket does everything that a partition relies on. Exit status: 0 it does, 1 it does not, or
    /// it could not be tested.
    ///
    /// Creates, replaces, lists and deletes some objects in a new folder below the address, several times by eight
    /// requests at once, and removes them. A server does the same before it creates a partition in a bucket. Credentials
    /// come from the environment (AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY), from a file, or from the machine's
    /// metadata service.
    Probe(Probe),
}

/// Test whether a bucket does everything that a partition relies on.
#[derive(Args)]
pub struct Probe {
    /// Address, like s3://BUCKET/PREFIX or file:///FOLDER, or a partition of the configuration, like /vicepb.
    bucket: String,
    /// Configuration of the server, for a partition.
    #[arg(long, env = "CELLAR_CONFIG")]
    config: Option<PathBuf>,
    #[command(flatten)]
    reach: Reach,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub fn run(command: &Bucket) -> ExitCode {
    let Bucket::Probe(probe) = command;
    let format = if probe.json { Format::Json } else { Format::Text };
    match probe.settings().and_then(|settings| outcome(&settings, format)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("cellar: {error:#}");
            ExitCode::FAILURE
        }
    }
}

impl Probe {
    /// Returns how to reach the bucket.
    fn settings(&self) -> Result<BucketSettings> {
        if let Some(id) = self.bucket.strip_prefix('/').and_then(|name| name.parse().ok()) {
            let settings = super::context::load_settings(self.config.as_deref())?;
            return of_partition(&settings, id);
        }
        self.reach.settings(self.bucket.parse()?)
    }
}

/// How a bucket on a server is reached.
#[derive(Args, Clone, Debug, Default)]
pub struct Reach {
    /// Server, like https://s3.example.org; Amazon's by default.
    #[arg(long, value_name = "URL", env = "AWS_ENDPOINT_URL")]
    pub(super) endpoint: Option<String>,
    /// Region.
    #[arg(long)]
    pub(super) region: Option<String>,
    /// Certificates in PEM of authorities that the system does not know.
    #[arg(long, value_name = "FILE")]
    pub(super) ca_file: Option<PathBuf>,
    /// Use a server without TLS.
    #[arg(long)]
    pub(super) allow_http: bool,
    /// File with the key, in the format of ~/.aws/credentials.
    #[arg(long, value_name = "FILE")]
    pub(super) credentials_file: Option<PathBuf>,
}

impl Reach {
    /// Returns the settings of a bucket that is reached in this way.
    ///
    /// # Errors
    /// If the endpoint is not valid.
    pub(super) fn settings(&self, address: BucketAddress) -> Result<BucketSettings> {
        if let Some(endpoint) = &self.endpoint {
            BucketSettings::check_endpoint(endpoint, self.allow_http)
                .map_err(|what| anyhow!("the endpoint {what}"))?;
        }
        Ok(BucketSettings {
            endpoint: self.endpoint.clone(),
            region: self.region.clone(),
            ca_file: self.ca_file.clone(),
            allow_http: self.allow_http,
            credentials_file: self.credentials_file.clone().map(|path| (path, Exposure::default())),
            ..BucketSettings::of(address)
        })
    }
}

fn of_partition(settings: &Settings, id: PartitionId) -> Result<BucketSettings> {
    let found = settings.partitions.iter().find(|partition| partition.id == id);
    let found = found.with_context(|| format!("{} has no partition {id}", settings.source))?;
    match found.place.bucket() {
        Some(bucket) => Ok(bucket.clone()),
        None => bail!("{id} is on a local disk, {}", found.place),
    }
}

/// Probes the bucket, prints the result and returns whether the bucket can be used.
#[cfg(feature = "bucket")]
fn outcome(settings: &BucketSettings, format: Format) -> Result<bool> {
    use bucket::probe::probe_once;
    use serde_json::json;

    let address = settings.address.to_string();
    let client = bucket::open(&settings.address, &cellar_server::buckets::access(settings)?)?;
    let report = match probe_once(client, settings.address.prefix()) {
        Ok(report) => report,
        Err(error) => {
            let json = json!({
                "bucket": address, "usable": false, "failed": error.operation.name(), "why": error.what,
            });
            format.done(&json, format!("{address}: {error}"))?;
            return Ok(false);
        }
    };
    show(&address, &report, format)?;
    Ok(true)
}

/// Prints what a bucket did that can be used.
#[cfg(feature = "bucket")]
fn show(address: &str, report: &bucket::probe::ProbeReport, format: Format) -> Result<()> {
    use serde_json::json;

    let operation = |(operation, time): &(bucket::probe::Operation, std::time::Duration)| {
        json!({
            "operation": operation.name(),
            "requires": operation.to_string(),
            "milliseconds": time.as_secs_f64() * 1e3,
        })
    };
    let operations: Vec<_> = report.times.iter().map(operation).collect();
    let json = json!({
        "bucket": address,
        "usable": true,
        "operations": operations,
        "unclear": report.unclear,
        "versions": report.has_versions,
    });
    let row = |(operation, time): &(bucket::probe::Operation, std::time::Duration)| {
        vec![operation.name().into(), format!("{:.1}", time.as_secs_f64() * 1e3), operation.to_string()]
    };
    let headings = ["OPERATION", "MS", "REQUIRES"].map(str::to_owned).to_vec();
    format.table(headings, report.times.iter().map(row).collect(), &json)?;
    if format == Format::Text {
        let unclear = report.unclear;
        crate::output::line(format!(
            "{address} can hold a partition; competing requests answered with other errors: {unclear}"
        ))?;
        if report.has_versions {
            crate::output::line(format!("note: {}", bucket::probe::VERSIONS_KEPT))?;
        }
    }
    Ok(())
}

#[cfg(not(feature = "bucket"))]
fn outcome(_: &BucketSettings, _: Format) -> Result<bool> {
    bail!(cellar_server::buckets::WITHOUT)
}
