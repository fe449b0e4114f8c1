//! Records as lines.

use crate::argument::Argument;
use crate::kept::Kept;
use crate::record::{CallerKey, Record, Who};
use crate::sink::Batch;
use crate::{json, text};
use base::LocalAuthority;
use jiff::Timestamp;
use std::time::Duration;

/// How records are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Form {
    /// An object on a line of its own.
    #[default]
    Json,
    /// As OpenAFS's servers write them.
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

/// What a line is about.
pub(crate) enum Entry<'a> {
    /// A call.
    Call(&'a Record),
    /// The audit itself.
    Trail(Notice),
}

/// What the audit says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Notice {
    /// It begins.
    On,
    /// A program began with it.
    Started(Program),
    /// It ends.
    Off,
    /// So many records were lost since it last said so.
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

/// A program of OpenAFS's whose start its audit tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// The protection server.
    Protection,
    /// The volume server.
    Volumes,
}

/// Times as text. Most lines are of the second of the line before.
#[derive(Debug, Default)]
pub(crate) struct Times {
    second: Option<u64>,
    text: String,
}

impl Times {
    /// What `make` makes of a second since 1970.
    pub(crate) fn of(&mut self, second: u64, make: impl FnOnce(Timestamp) -> String) -> &str {
        if self.second != Some(second) {
            self.text = make(Timestamp::from_second(second as i64).unwrap_or_default());
            self.second = Some(second);
        }
        &self.text
    }
}

/// Writes lines.
pub(crate) struct Writing<'a> {
    pub(crate) form: Form,
    pub(crate) authority: &'a dyn LocalAuthority,
    pub(crate) times: &'a mut Times,
    pub(crate) memory: &'a mut Memory,
}

/// What a writer keeps from line to line.
#[derive(Default)]
pub(crate) struct Memory {
    /// For the name of a caller.
    pub(crate) who: Who,
    /// For what a call was about.
    pub(crate) arguments: Vec<Argument>,
    /// What is said of callers.
    pub(crate) callers: Kept<CallerKey>,
    /// What is said of procedures.
    pub(crate) procedures: Kept<ProcedureKey>,
}

/// A procedure of a service, by the words that it is declared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProcedureKey([(usize, usize); 2]);

impl ProcedureKey {
    pub(crate) fn of(record: &Record) -> ProcedureKey {
        // Each is a constant of the program's, and found at one place as long as it runs.
        ProcedureKey([record.service, record.procedure].map(|word| (word.as_ptr().addr(), word.len())))
    }

    pub(crate) fn hint(&self) -> u64 {
        (self.0[0].0 ^ self.0[1].0) as u64
    }
}

impl Writing<'_> {
    /// Appends the lines of an entry to a batch.
    pub(crate) fn add(&mut self, batch: &mut Batch, entry: &Entry<'_>, now: Duration) {
        match self.form {
            Form::Json => json::add(batch, entry, now, self),
            Form::OpenAfs => text::add(batch, entry, now, self),
        }
    }
}
