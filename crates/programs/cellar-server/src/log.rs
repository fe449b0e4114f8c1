//! Destinations of log lines: standard error, and a file that `bos getlog` can show.

mod events;
mod json;
mod structure;

pub use self::events::EventLog;
use anyhow::{Context, Result, bail};
use cellar_config::files;
use json::JsonLines;
use std::ffi::OsStr;
use std::io::IsTerminal;
use std::path::Path;
use std::sync::Mutex;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer};

/// Name of the log file.
pub const LOG_FILE: &str = "CellarLog";
/// Name of the previous run's log file.
pub const OLD_LOG_FILE: &str = "CellarLog.old";
/// Both file names.
pub(crate) const FILES: [&str; 2] = [LOG_FILE, OLD_LOG_FILE];

/// Environment variable that selects the format of lines: `text` (the default) or `json`.
const FORM_VARIABLE: &str = "CELLAR_LOG_FORMAT";

/// Name of the field with all values of an event; in JSON they become fields of the object itself.
const EVENT_FIELDS: &str = "fields";

/// The part of the log that standard error shows. The file has all of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Console {
    /// Every line.
    All,
    /// Errors only.
    Errors,
}

impl Console {
    fn level(self) -> LevelFilter {
        match self {
            Console::All => LevelFilter::TRACE,
            Console::Errors => LevelFilter::ERROR,
        }
    }
}

/// Format of lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Text,
    Json,
}

impl Form {
    fn parse(chosen: Option<&OsStr>) -> Result<Form> {
        match chosen.map(OsStr::to_string_lossy).as_deref() {
            None | Some("" | "text") => Ok(Form::Text),
            Some("json") => Ok(Form::Json),
            Some(other) => bail!("{FORM_VARIABLE} is `{other}`; it may be `text` or `json`"),
        }
    }

    /// Returns a layer that writes lines in this format.
    fn layer<S, W>(self, writer: W, ansi: bool) -> Box<dyn Layer<S> + Send + Sync>
    where
        S: tracing::Subscriber + for<'a> LookupSpan<'a>,
        W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
    {
        let lines = tracing_subscriber::fmt::layer().with_writer(writer);
        match self {
            Form::Text => lines.with_ansi(ansi).boxed(),
            Form::Json => lines.event_format(JsonLines).boxed(),
        }
    }
}

/// What is logged by default. The client of buckets and its database report each repeated request at the level of `info`.
const FILTER: &str = "info,object_store=warn,slatedb=warn";

/// Starts logging. `CELLAR_LOG` filters (like `debug` or `rx=trace`; by default [`FILTER`]), and
/// `CELLAR_LOG_FORMAT` selects `text` or `json`. The previous run's log is kept as CellarLog.old.
pub fn start(folder: &Path, console: Console) -> Result<()> {
    let form = Form::parse(std::env::var_os(FORM_VARIABLE).as_deref())?;
    files::make_folder(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let path = folder.join(LOG_FILE);
    if path.exists() {
        std::fs::rename(&path, folder.join(OLD_LOG_FILE))?;
    }
    let file = files::create(&path).with_context(|| format!("cannot write {}", path.display()))?;
    let filter = EnvFilter::try_from_env("CELLAR_LOG").unwrap_or_else(|_| EnvFilter::new(FILTER));
    // Event lines are selected elsewhere, and a selected event must not be filtered out here.
    let filter = filter.add_directive("event=info".parse()?);
    tracing_subscriber::registry()
        .with(filter)
        .with(form.layer(std::io::stderr, std::io::stderr().is_terminal()).with_filter(console.level()))
        .with(form.layer(Mutex::new(file), false))
        .try_init()
        .context("logging runs already")
}

#[cfg(test)]
mod tests {
    use super::*;
    use ::events::FieldValue;
    use ::events::lines::Line;

    /// Returns what is written for an event.
    fn written(form: Form) -> String {
        let (roles, code) = (["fs", "vl"], Some(2));
        written_of(form, || {
            tracing::info!(volume = 7, name = "a\n\"b", ?roles, ?code, is_new = true, at = %"[1]", "it is made");
        })
    }

    fn written_of(form: Form, emit: impl FnOnce()) -> String {
        let file = tempfile::NamedTempFile::new().unwrap();
        let writer = Mutex::new(file.reopen().unwrap());
        let lines = tracing_subscriber::registry().with(form.layer(writer, false));
        tracing::subscriber::with_default(lines, emit);
        std::fs::read_to_string(file.path()).unwrap()
    }

    #[test]
    fn a_json_line_is_an_object_with_all_fields() {
        let text = written(Form::Json);
        assert_eq!(text.lines().count(), 1, "{text}");
        let line: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!((&line["level"], &line["message"]), (&"INFO".into(), &"it is made".into()));
        assert_eq!((&line["volume"], &line["name"]), (&7.into(), &"a\n\"b".into()));
        let reported = [&line["roles"], &line["code"], &line["is_new"], &line["at"]];
        assert_eq!(reported, [&serde_json::json!(["fs", "vl"]), &2.into(), &true.into(), &"[1]".into()]);
        assert!(text.starts_with("{\"timestamp\":") && line["target"].is_string(), "{text}");
        assert!(line["timestamp"].as_str().unwrap().ends_with('Z'), "{line}");
        assert!(written(Form::Text).contains("INFO"));
    }

    #[test]
    fn a_form_that_is_none_is_refused_by_name() {
        for (word, form) in [("", Form::Text), ("text", Form::Text), ("json", Form::Json)] {
            assert_eq!(Form::parse(Some(OsStr::new(word))).unwrap(), form);
        }
        assert_eq!(Form::parse(None).unwrap(), Form::Text);
        let refusal = Form::parse(Some(OsStr::new("jsno"))).unwrap_err().to_string();
        assert!(refusal.contains("CELLAR_LOG_FORMAT") && refusal.contains("`jsno`"), "{refusal}");
    }

    #[test]
    fn an_event_line_has_its_own_and_common_fields() {
        let reported = vec![
            ("access", "write".into()),
            ("time_ns", FieldValue::Number(7)),
            ("code", FieldValue::Code(-1)),
        ];
        let written =
            |form| written_of(form, || events::write(&Line { event: "disk", reported: reported.clone() }));
        let line: serde_json::Value = serde_json::from_str(&written(Form::Json)).unwrap();
        assert_eq!((&line["message"], &line["target"]), (&"disk".into(), &"event".into()));
        let reported = [&line["access"], &line["time_ns"], &line["code"]];
        assert_eq!(reported, [&serde_json::json!("write"), &7.into(), &(-1).into()]);
        let text = written(Form::Text);
        assert!(
            text.ends_with("event: disk fields=Event { access: \"write\", time_ns: 7, code: -1 }\n"),
            "{text}"
        );
    }
}
