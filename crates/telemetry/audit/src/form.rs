//! Formats records as lines.

use crate::kept::Kept;
use crate::record::{Found, Record};
use crate::sink::Batch;
use crate::{json, text};
use base::LocalAuthority;
use jiff::Timestamp;

/// Format of the records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Form {
    /// One JSON object per line.
    #[default]
    Json,
    /// The format of OpenAFS's servers.
    OpenAfs,
}

impl std::str::FromStr for Form {
    type Err = String;

    fn from_str(text: &str) -> Result<Form, String> {
        match text {
            "json" => Ok(Form::Json),
            "openafs" => Ok(Form::OpenAfs),
            _ => Err(format!("`{text}` is neither `json` nor `openafs`")),
        }
    }
}

/// Content of a line.
pub(crate) enum Entry<'a> {
    /// A call.
    Call(Record<'a>),
    /// The audit itself.
    Trail(Notice),
}

/// A message of the audit about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Notice {
    /// The audit started.
    On,
    /// A program started.
    Started(Program),
    /// The audit ended.
    Off,
    /// Number of records lost since the previous message.
    Lost(u64),
}

impl Notice {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Notice::On => "AFS_Aud_On",
            Notice::Started(Program::Protection) => "AFS_PTS_Start",
            Notice::Started(Program::Volumes) => "AFS_VS_Start",
            Notice::Off => "AFS_Aud_Off",
            Notice::Lost(_) => "CELLAR_Aud_Lost",
        }
    }

    pub(crate) fn lost(self) -> Option<u64> {
        match self {
            Notice::Lost(count) => Some(count),
            Notice::On | Notice::Started(_) | Notice::Off => None,
        }
    }
}

/// A program whose start OpenAFS's audit records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// The protection server.
    Protection,
    /// The volume server.
    Volumes,
}

/// Times as text. Most lines have the same second as the line before.
#[derive(Debug, Default)]
pub(crate) struct Times {
    /// Start of the cached second, if any, in nanoseconds since 1970.
    begun_ns: Option<u64>,
    text: String,
}

const SECOND_NS: u64 = 1_000_000_000;

impl Times {
    /// Returns the text that `make` produces for the second of `at_ns`, in nanoseconds since 1970, and the
    /// remaining microseconds.
    pub(crate) fn of(&mut self, at_ns: u64, make: impl FnOnce(Timestamp) -> String) -> (&str, u32) {
        let within = |begun_ns: u64| at_ns.checked_sub(begun_ns).filter(|ns| *ns < SECOND_NS);
        let ns = self.begun_ns.and_then(within).unwrap_or_else(|| {
            self.text = make(Timestamp::from_second((at_ns / SECOND_NS) as i64).unwrap_or_default());
            self.begun_ns = Some(at_ns - at_ns % SECOND_NS);
            at_ns % SECOND_NS
        });
        (&self.text, ns as u32 / 1000)
    }
}

/// What formatting a line requires.
pub(crate) struct Writing<'a> {
    pub(crate) form: Form,
    pub(crate) authority: &'a dyn LocalAuthority,
    pub(crate) memory: &'a mut Memory,
}

/// State that a writer keeps across lines.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    pub(crate) times: Times,
    /// Buffers for decoded arguments.
    pub(crate) found: Found,
    /// Cached text for procedures and callers.
    pub(crate) kept: Kept,
}

impl Writing<'_> {
    /// Appends the lines of an entry to a batch; `at_ns` is its time in nanoseconds since 1970.
    pub(crate) fn add(&mut self, batch: &mut Batch, entry: &Entry<'_>, at_ns: u64) {
        match self.form {
            Form::Json => json::add(batch, entry, at_ns, self),
            Form::OpenAfs => text::add(batch, entry, at_ns, self),
        }
    }
}
