//! The form of a job in the journal (`docs/reference/formats/jobs.md`): one flat record for all operations.
//!
//! Fields that a state does not use have the values that the state implies in a job without interruptions,
//! or the initial ones; reading ignores them. A record whose other fields no state has is rejected.

use crate::job::Failure;
use crate::lock::Lock;
use crate::procedure::{AnyExecution, Operation};
use crate::state::Creation;
use crate::traffic::Counted;
use crate::transaction::{Requested, Transaction};
use crate::{Event, Job, Place, Stage};
use base::AbortCode;
use serde::{Deserialize, Serialize};

/// A job as recorded.
#[derive(Serialize, Deserialize)]
pub(crate) struct Record {
    id: u32,
    operation: Operation,
    volume: u32,
    name: String,
    from: Place,
    stage: Stage,
    events: Vec<Event>,
    trouble: Option<String>,
    code: Option<i32>,
    attempts: u32,
    waits: u32,
    lock: Lock,
    transactions: Vec<Transaction>,
    asked: Vec<Requested>,
    clone: u32,
    clone_begun: bool,
    new_volume: u32,
    new_begun: bool,
    source_off: bool,
    switch_asked: bool,
    source_gone: bool,
    /// Missing in journals of older versions.
    #[serde(default)]
    sent: Vec<Counted>,
}

/// The fields of a record that a state is encoded in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fields {
    pub(crate) stage: Stage,
    /// Id of the temporary clone; 0 if it has none yet.
    pub(crate) clone: u32,
    /// Whether the temporary clone may exist.
    pub(crate) clone_begun: bool,
    /// Id of the new volume; 0 if it has none yet, or the one of the source.
    pub(crate) new_volume: u32,
    /// Whether the new volume may exist, or the existing one may have been overwritten.
    pub(crate) new_begun: bool,
    /// Whether the source may be out of service.
    pub(crate) source_off: bool,
    /// Whether the switch was requested.
    pub(crate) switch_asked: bool,
    /// Whether the source was deleted.
    pub(crate) source_gone: bool,
}

impl Fields {
    /// Returns the fields of a state that has none but a stage.
    pub(crate) fn of(stage: Stage) -> Fields {
        Fields {
            stage,
            clone: 0,
            clone_begun: false,
            new_volume: 0,
            new_begun: false,
            source_off: false,
            switch_asked: false,
            source_gone: false,
        }
    }

    /// Sets the fields of the temporary clone.
    pub(crate) fn with_clone(self, clone: Creation) -> Fields {
        let (clone, clone_begun) = clone.encode();
        Fields { clone, clone_begun, ..self }
    }

    /// Sets the fields of the new volume.
    pub(crate) fn with_volume(self, volume: Creation) -> Fields {
        let (new_volume, new_begun) = volume.encode();
        Fields { new_volume, new_begun, ..self }
    }

    /// Returns the temporary clone; `None` if it may exist without an id.
    pub(crate) fn temporary_clone(&self) -> Option<Creation> {
        Creation::decode(self.clone, self.clone_begun)
    }

    /// Returns the new volume; `None` if it may exist without an id.
    pub(crate) fn volume(&self) -> Option<Creation> {
        Creation::decode(self.new_volume, self.new_begun)
    }

    /// Returns the id of the new volume, if it has one.
    pub(crate) fn volume_id(&self) -> Option<u32> {
        Some(self.new_volume).filter(|&id| id != 0)
    }
}

impl From<Job> for Record {
    fn from(job: Job) -> Record {
        let fields = job.execution.facts().fields();
        Record {
            id: job.id,
            operation: job.operation(),
            volume: job.volume(),
            name: job.name,
            from: job.from,
            stage: fields.stage,
            events: job.events,
            code: job.failure.as_ref().and_then(|failure| failure.code).map(|code| code.0),
            trouble: job.failure.map(|failure| failure.description),
            attempts: job.attempts,
            waits: job.waits,
            lock: job.lock,
            transactions: job.transactions,
            asked: job.requested,
            clone: fields.clone,
            clone_begun: fields.clone_begun,
            new_volume: fields.new_volume,
            new_begun: fields.new_begun,
            source_off: fields.source_off,
            switch_asked: fields.switch_asked,
            source_gone: fields.source_gone,
            sent: job.sent,
        }
    }
}

impl TryFrom<Record> for Job {
    type Error = String;

    fn try_from(record: Record) -> Result<Job, String> {
        let fields = Fields {
            stage: record.stage,
            clone: record.clone,
            clone_begun: record.clone_begun,
            new_volume: record.new_volume,
            new_begun: record.new_begun,
            source_off: record.source_off,
            switch_asked: record.switch_asked,
            source_gone: record.source_gone,
        };
        let execution = AnyExecution::decode(record.operation, fields)?;
        let code = record.code.map(AbortCode);
        Ok(Job {
            id: record.id,
            name: record.name,
            from: record.from,
            events: record.events,
            source: if execution.facts().created_volume().is_some() { 0 } else { record.volume },
            execution,
            failure: record.trouble.map(|description| Failure { description, code }),
            attempts: record.attempts,
            waits: record.waits,
            lock: record.lock,
            transactions: record.transactions,
            requested: record.asked,
            sent: record.sent,
        })
    }
}
