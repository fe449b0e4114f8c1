//! `cellar store analyze`: estimates the space that a tree would take.

mod measure;
mod walk;

use crate::output::{Format, Row, line};
use anyhow::{Context as _, Result};
use clap::Args;
use indicatif::{HumanBytes, HumanCount};
use measure::{Measured, Tally};
use serde::Serialize;
use std::path::PathBuf;
use store::Codec;
use walk::Tree;

/// Default policies. zstd:19 is left out: it would take ten times as long as all of these together.
const POLICIES: [Codec; 5] = [Codec::Raw, Codec::Lz4, Codec::Zstd(1), Codec::Zstd(3), Codec::Zstd(9)];

/// Estimate the space that a tree would take.
#[derive(Args)]
pub struct Analyze {
    /// Directory or file to analyze.
    path: PathBuf,
    /// Policies to try: raw, lz4, zstd:1 to zstd:19 [default: raw,lz4,zstd:1,zstd:3,zstd:9]
    #[arg(long, value_delimiter = ',', value_name = "POLICY")]
    policies: Vec<Codec>,
    /// Read only this percentage of the data, evenly distributed; the savings of deduplication are then
    /// unknown.
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(1..=99))]
    sample: Option<u8>,
    /// Number of threads; one per processor by default.
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=256))]
    threads: Option<u16>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Result of the analysis.
#[derive(Serialize)]
struct Analysis {
    path: String,
    files: u64,
    directories: u64,
    links: u64,
    /// Devices, sockets and the like, which AFS cannot store.
    others: u64,
    bytes: u64,
    /// Bytes of contents that would be stored inline in the metadata, uncompressed.
    inline_bytes: u64,
    chunks: u64,
    /// Percentage of the data analyzed.
    sampled: u8,
    seconds: f64,
    skipped: Vec<String>,
    policies: Vec<PolicyRow>,
}

/// Result for one policy.
#[derive(Serialize)]
struct PolicyRow {
    policy: String,
    /// Bytes on disk, including contents in the metadata.
    stored_bytes: u64,
    ratio: f64,
    /// Bytes saved by deduplication; `None` for a sample.
    deduplication_saves_bytes: Option<u64>,
    ratio_with_deduplication: Option<f64>,
    /// Megabytes (10^6 bytes, uncompressed) per second of processor time.
    compress_mb_s: f64,
    decompress_mb_s: f64,
}

impl Row for PolicyRow {
    const COLUMNS: &'static [&'static str] =
        &["POLICY", "STORED", "RATIO", "DEDUP SAVES", "RATIO WITH IT", "COMPRESS MB/s", "DECOMPRESS MB/s"];

    fn cells(&self) -> Vec<String> {
        let unknown = || "-".to_owned();
        vec![
            self.policy.clone(),
            HumanBytes(self.stored_bytes).to_string(),
            format!("{:.2}", self.ratio),
            self.deduplication_saves_bytes.map_or_else(unknown, |bytes| HumanBytes(bytes).to_string()),
            self.ratio_with_deduplication.map_or_else(unknown, |ratio| format!("{ratio:.2}")),
            rate(self.compress_mb_s),
            rate(self.decompress_mb_s),
        ]
    }
}

fn rate(mb_s: f64) -> String {
    if mb_s > 0.0 { format!("{mb_s:.0}") } else { "-".to_owned() }
}

/// Analyzes a tree and prints the results.
pub(super) fn run(analyze: &Analyze) -> Result<()> {
    let format = if analyze.json { Format::Json } else { Format::Text };
    let began = std::time::Instant::now();
    let tree =
        walk::look(&analyze.path).with_context(|| format!("cannot read {}", analyze.path.display()))?;
    let policies = if analyze.policies.is_empty() { &POLICIES[..] } else { &analyze.policies };
    let threads = analyze
        .threads
        .map_or_else(|| std::thread::available_parallelism().map_or(1, usize::from), usize::from);
    let measured = measure::measure(&tree, policies, analyze.sample, threads);
    let analysis = summarize(analyze, tree, &measured, began.elapsed().as_secs_f64());
    if format == Format::Json {
        return format.done(&analysis, "");
    }
    print(&analysis)
}

fn print(analysis: &Analysis) -> Result<()> {
    for skipped in &analysis.skipped {
        eprintln!("skipped: {skipped}");
    }
    let part = if analysis.sampled < 100 {
        format!(" ({} % of them read)", analysis.sampled)
    } else {
        String::new()
    };
    line(format!(
        "{}: {} files, {} directories, {} links; {} in files{part}, {} of that within the metadata, {} \
        chunks; {:.0} s",
        analysis.path,
        HumanCount(analysis.files),
        HumanCount(analysis.directories),
        HumanCount(analysis.links),
        HumanBytes(analysis.bytes),
        HumanBytes(analysis.inline_bytes),
        HumanCount(analysis.chunks),
        analysis.seconds,
    ))?;
    Format::Text.rows(&analysis.policies)
}

fn summarize(analyze: &Analyze, tree: Tree, measured: &Measured, seconds: f64) -> Analysis {
    // Scales the sample up to the whole tree.
    let scale = |bytes: u64| match measured.bytes {
        0 => bytes,
        read => (u128::from(bytes) * u128::from(tree.bytes) / u128::from(read)) as u64,
    };
    let is_whole = analyze.sample.is_none();
    let bytes = if is_whole { measured.bytes } else { tree.bytes };
    let row = |tally: &Tally| {
        let inline = if tally.is_ours() { measured.inline_bytes } else { 0 };
        let stored_bytes = scale_if(!is_whole, &scale, tally.stored_bytes + inline);
        let saved = (is_whole && tally.is_ours()).then_some(tally.duplicate_bytes);
        PolicyRow {
            policy: tally.name.clone(),
            stored_bytes,
            ratio: ratio(bytes, stored_bytes),
            deduplication_saves_bytes: saved,
            ratio_with_deduplication: saved.map(|saved| ratio(bytes, stored_bytes - saved)),
            compress_mb_s: megabytes_a_second(measured.tried_bytes(tally), tally.compressing.as_secs_f64()),
            decompress_mb_s: megabytes_a_second(
                measured.tried_bytes(tally),
                tally.decompressing.as_secs_f64(),
            ),
        }
    };
    let mut skipped = tree.skipped;
    skipped.extend(measured.skipped.iter().cloned());
    Analysis {
        path: analyze.path.display().to_string(),
        files: tree.files.len() as u64,
        directories: tree.directories,
        links: tree.links,
        others: tree.others,
        bytes,
        inline_bytes: scale_if(!is_whole, &scale, measured.inline_bytes),
        chunks: scale_if(!is_whole, &scale, measured.chunks),
        sampled: analyze.sample.unwrap_or(100),
        seconds,
        skipped,
        policies: measured.tallies.iter().map(row).collect(),
    }
}

fn scale_if(is_sample: bool, scale: &impl Fn(u64) -> u64, bytes: u64) -> u64 {
    if is_sample { scale(bytes) } else { bytes }
}

#[allow(clippy::cast_precision_loss, reason = "figures for people")]
fn ratio(bytes: u64, stored: u64) -> f64 {
    if stored == 0 { 1.0 } else { bytes as f64 / stored as f64 }
}

#[allow(clippy::cast_precision_loss, reason = "figures for people")]
fn megabytes_a_second(bytes: u64, seconds: f64) -> f64 {
    if seconds > 0.0 { bytes as f64 / seconds / 1e6 } else { 0.0 }
}
