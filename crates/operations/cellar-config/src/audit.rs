//! `[audit.NAME]`: the audit sinks. docs/guide/audit.md describes them.

use super::file::Origin;
use ::audit::{Filter, SinkSettings, Target};
use anyhow::Result;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use toml::Spanned;

/// Default maximum number of records queued for a sink.
const QUEUE_RECORDS: usize = 16_384;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AuditSection {
    file: Option<PathBuf>,
    pipe: Option<PathBuf>,
    socket: Option<PathBuf>,
    journal: Option<bool>,
    format: Option<Spanned<String>>,
    events: Option<Spanned<Vec<String>>>,
    policy: Option<Spanned<String>>,
    queue: Option<Spanned<usize>>,
}

/// Builds the sinks; relative paths are relative to `folder`.
pub(super) fn resolve(
    origin: &Origin<'_>,
    folder: &Path,
    sections: BTreeMap<Spanned<String>, AuditSection>,
) -> Result<Vec<SinkSettings>> {
    sections.into_iter().map(|(name, section)| sink(origin, folder, &name, &section)).collect()
}

fn sink(
    origin: &Origin<'_>,
    folder: &Path,
    name: &Spanned<String>,
    section: &AuditSection,
) -> Result<SinkSettings> {
    let key = |of: &str| format!("audit.{}{of}", name.get_ref());
    let filter = match &section.events {
        None => Filter::default(),
        Some(events) => Filter::parse(events.get_ref().iter().map(String::as_str))
            .map_err(|what| origin.bad(events, &key(".events"), what))?,
    };
    let queue_key = key(".queue");
    let queue_records = origin.bounded(section.queue.as_ref(), &queue_key, QUEUE_RECORDS, 16, 1 << 20)?;
    Ok(SinkSettings {
        name: name.get_ref().clone(),
        form: parsed(origin, section.format.as_ref(), &key(".format"))?,
        policy: parsed(origin, section.policy.as_ref(), &key(".policy"))?,
        filter,
        queue_records,
        target: target(folder, section).map_err(|what| origin.bad(name, &key(""), what))?,
    })
}

fn parsed<T: Default + FromStr<Err = String>>(
    origin: &Origin<'_>,
    text: Option<&Spanned<String>>,
    key: &str,
) -> Result<T> {
    let parse = |text: &Spanned<String>| text.get_ref().parse().map_err(|what| origin.bad(text, key, what));
    text.map_or_else(|| Ok(T::default()), parse)
}

fn target(folder: &Path, section: &AuditSection) -> Result<Target, &'static str> {
    let journal = || section.journal.filter(|is_wanted| *is_wanted).map(|_| Target::JOURNAL.into());
    let below = |path: &Option<PathBuf>| path.as_ref().map(|path| folder.join(path));
    let all = [
        below(&section.file).map(Target::File),
        below(&section.pipe).map(Target::Pipe),
        below(&section.socket).map(Target::Socket),
        journal().map(Target::Journal),
    ];
    let mut named = all.into_iter().flatten();
    match (named.next(), named.next()) {
        (Some(target), None) => Ok(target),
        (None, _) => Err("needs `file`, `pipe`, `socket` or `journal`"),
        (Some(_), Some(_)) => {
            Err("has more than one of `file`, `pipe`, `socket`, `journal`; it needs one of them")
        }
    }
}
