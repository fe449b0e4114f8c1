//! `cellar config`: checks the configuration, and shows it with the source of each value.

use super::context::{load_server_settings, load_settings};
use crate::output::{Format, Row, line};
use crate::quickstart::running;
use anyhow::Result;
use cellar_config::Settings;
use cellar_config::effective::{Setting, Source, effective};
use clap::{Args, Subcommand};
use serde::Serialize;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// Check and show the configuration of a server.
#[derive(Subcommand)]
pub enum Config {
    /// Check the configuration as `cellar serve` would read it, without starting anything. Exit status: 0
    /// valid, 1 invalid; warnings do not change it.
    Check(Which),
    /// Show the values that the configuration file sets, with their lines.
    Show {
        /// Show every value in effect, also defaults, environment and command line.
        #[arg(long)]
        effective: bool,
        /// Which configuration.
        #[command(flatten)]
        which: Which,
    },
}

/// A configuration.
#[derive(Args)]
pub struct Which {
    /// Configuration of the server. By default, that of a running `cellar quickstart` in this folder, or
    /// else OpenAFS's in /etc/openafs/server.
    #[arg(long, env = "CELLAR_CONFIG")]
    config: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

impl Which {
    fn format(&self) -> Format {
        if self.json { Format::Json } else { Format::Text }
    }

    /// Returns the configuration file, and how it was chosen; `None` for OpenAFS's files.
    fn chosen(&self) -> (Option<PathBuf>, Source) {
        match &self.config {
            Some(path) => (Some(path.clone()), named_by(path, std::env::var_os("CELLAR_CONFIG").as_deref())),
            None => match running::find() {
                Some(path) => (Some(path), Source::Derived("the running `cellar quickstart` in this folder")),
                None => (None, Source::Default),
            },
        }
    }
}

/// Returns whether the path was named by the command line or by the variable.
fn named_by(path: &Path, variable: Option<&OsStr>) -> Source {
    let is_option = |word: &std::ffi::OsString| {
        word == "--config" || word.to_str().is_some_and(|word| word.starts_with("--config="))
    };
    if variable == Some(path.as_os_str()) && !std::env::args_os().any(|word| is_option(&word)) {
        return Source::Environment("CELLAR_CONFIG");
    }
    Source::CommandLine("--config")
}

/// The result of a check.
#[derive(Serialize)]
struct Checked {
    configuration: String,
    cell: String,
    roles: Vec<&'static str>,
    partitions: usize,
    warnings: Vec<String>,
}

/// A setting as displayed.
#[derive(Serialize)]
#[serde(transparent)]
struct SettingView(Setting);

impl Row for SettingView {
    const COLUMNS: &'static [&'static str] = &["KEY", "VALUE", "SOURCE"];

    fn cells(&self) -> Vec<String> {
        vec![self.0.key.clone(), self.0.value.to_string(), self.0.source.to_string()]
    }
}

/// Runs the command.
pub fn run(command: &Config) -> Result<()> {
    match command {
        Config::Check(which) => check(which),
        Config::Show { effective, which } => show(which, *effective),
    }
}

fn check(which: &Which) -> Result<()> {
    let (path, _) = which.chosen();
    let settings = load_server_settings(path.as_deref())?;
    if let (Some(refusal), None) = (settings.roles_refusal(), &path) {
        anyhow::bail!("{}, `server.roles`: {refusal}", settings.source);
    }
    if let Some(refusal) = cellar_server::buckets::refusal(&settings) {
        anyhow::bail!(refusal);
    }
    let warnings: Vec<String> = settings.warnings.iter().cloned().chain(settings.roles_warning()).collect();
    if which.format() == Format::Text {
        warnings.iter().try_for_each(|warning| line(format!("warning: {warning}")))?;
    }
    let checked = Checked {
        configuration: settings.source.clone(),
        cell: settings.cell.to_string(),
        roles: settings.roles.iter().map(|role| role.instance()).collect(),
        partitions: settings.partitions.len(),
        warnings,
    };
    let sentence = format!(
        "{} is valid: the cell {}, roles {}; partitions: {}, warnings: {}",
        checked.configuration,
        checked.cell,
        checked.roles.join(", "),
        checked.partitions,
        checked.warnings.len()
    );
    which.format().done(&checked, sentence)
}

fn show(which: &Which, is_effective: bool) -> Result<()> {
    let (path, source) = which.chosen();
    let settings = load_settings(path.as_deref())?;
    let mut all = around(&settings, source);
    all.extend(effective(&settings, path.as_deref())?);
    let is_wanted =
        |setting: &Setting| is_effective || matches!(setting.source, Source::Line { .. } | Source::File(_));
    let shown: Vec<SettingView> = all.into_iter().filter(is_wanted).map(SettingView).collect();
    which.format().rows(&shown)
}

/// Returns what is set outside the configuration: which one it is, and the variables of the log.
fn around(settings: &Settings, source: Source) -> Vec<Setting> {
    let variable = |key: &str, name: &'static str, default: &str| {
        let (value, source) = match std::env::var(name) {
            Ok(value) => (value, Source::Environment(name)),
            Err(_) => (default.to_owned(), Source::Default),
        };
        Setting { key: key.into(), value: value.into(), source }
    };
    vec![
        Setting { key: "configuration".into(), value: settings.source.clone().into(), source },
        variable("log filter", "CELLAR_LOG", "info"),
        variable("log format", "CELLAR_LOG_FORMAT", "text"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_equal_to_the_variable_is_from_the_environment() {
        let by = |variable: &str| named_by(Path::new("a.toml"), Some(OsStr::new(variable)));
        assert_eq!(by("a.toml"), Source::Environment("CELLAR_CONFIG"));
        assert_eq!(by("b.toml"), Source::CommandLine("--config"));
        assert_eq!(named_by(Path::new("a.toml"), None), Source::CommandLine("--config"));
    }
}
