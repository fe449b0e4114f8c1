//! JSON lines: one object each, with `timestamp`, `level`, `target`, `message` and the other fields by name.

use super::{EVENT_FIELDS, structure};
use serde_json::Value;
use std::borrow::Cow;
use std::error::Error;
use std::fmt::{self, Debug};
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// Formats events as JSON lines.
pub(super) struct JsonLines;

impl<S, N> FormatEvent<S, N> for JsonLines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut now = String::new();
        SystemTime.format_time(&mut Writer::new(&mut now))?;
        let metadata = event.metadata();
        let mut reported = Fields::default();
        event.record(&mut reported);
        let level = metadata.level().as_str();
        let begin =
            [("timestamp", now.into()), ("level", level.into()), ("target", metadata.target().into())];
        let mut separator = '{';
        let begin = begin.map(|(name, value)| (Cow::Borrowed(name), value));
        for (name, value) in begin.into_iter().chain(reported.0) {
            write!(writer, "{separator}{}:{value}", Value::from(name))?;
            separator = ',';
        }
        writeln!(writer, "}}")
    }
}

/// Fields of an event, in order.
#[derive(Default)]
struct Fields(Vec<(Cow<'static, str>, Value)>);

impl Fields {
    fn add(&mut self, field: &Field, value: impl Into<Value>) {
        self.0.push((field.name().into(), value.into()));
    }
}

impl Visit for Fields {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.add(field, value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.add(field, value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.add(field, value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.add(field, value);
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.add(field, value);
    }

    fn record_error(&mut self, field: &Field, value: &(dyn Error + 'static)) {
        self.add(field, value.to_string());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        match structure::of(value) {
            Value::Object(all) if field.name() == EVENT_FIELDS => {
                self.0.extend(all.into_iter().map(|(name, value)| (name.into(), value)));
            }
            value => self.add(field, value),
        }
    }
}
