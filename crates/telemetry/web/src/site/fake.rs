//! A fake server with a few calls.

use crate::{About, Source};
use events::catalogue::{
    CacheCounts, CallFigures, DiskFigures, LaneFigures, ProcessFigures, TakeoverFigures, WorkerFigures,
};
use observe::{Observed, Recorder, Sheet, SlowCall, Snapshot, Table};
use parking_lot::Mutex;
use serde_json::{Value, json};

/// Counts its calls; all other tables are as empty as possible.
#[derive(Default)]
pub(crate) struct FakeServer {
    calls: Mutex<CallFigures>,
    recorder: Recorder,
    is_node: bool,
}

impl FakeServer {
    /// Returns a server that may be a node of a cluster.
    pub(crate) fn node(is_node: bool) -> FakeServer {
        FakeServer { is_node, ..FakeServer::default() }
    }

    /// Adds `count` calls of a millisecond each.
    pub(crate) fn add_calls(&self, count: u64) {
        let mut calls = self.calls.lock();
        calls.calls += count;
        (0..count).for_each(|_| calls.run.record(1_000_000));
    }
}

fn one<F: events::Declared + Default>(labels: &'static [&'static str]) -> Sheet<F> {
    let mut sheet = Sheet::new(labels);
    sheet.push(labels.iter().map(|_| "<script>"), F::default());
    sheet
}

impl Observed for FakeServer {
    fn snapshot(&self) -> Snapshot {
        self.recorder.snapshot()
    }

    fn calls(&self) -> Sheet<CallFigures> {
        let mut sheet = Sheet::new(&["service", "procedure"]);
        sheet.push(["AFS", "FetchStatus"], self.calls.lock().clone());
        sheet
    }

    fn slow(&self) -> (u64, Vec<(u64, SlowCall)>) {
        (1, Vec::new())
    }

    fn lanes(&self) -> Sheet<LaneFigures> {
        one(&["port", "lane"])
    }

    fn workers(&self) -> Sheet<WorkerFigures> {
        one(&["port"])
    }

    fn disks(&self) -> Sheet<DiskFigures> {
        one(&["partition", "access"])
    }

    fn caches(&self) -> Sheet<CacheCounts> {
        one(&["cache"])
    }

    fn process(&self) -> Sheet<ProcessFigures> {
        one(&[])
    }

    fn is_node(&self) -> bool {
        self.is_node
    }

    fn takeovers(&self) -> Sheet<TakeoverFigures> {
        if self.is_node { one(Table::Takeovers.labels()) } else { Sheet::new(Table::Takeovers.labels()) }
    }
}

impl Source for FakeServer {
    fn about(&self) -> About {
        About::default()
    }

    fn observed(&self) -> &dyn Observed {
        self
    }

    fn volume_name(&self, _: u32) -> Option<String> {
        None
    }

    fn volume(&self, id: u32) -> Option<Value> {
        (id == 7).then(|| json!({ "id": 7 }))
    }

    fn volumes(&self, _: u32) -> Value {
        json!({})
    }

    fn jobs(&self) -> Result<Value, String> {
        Err("no journal".into())
    }

    fn has_probes(&self) -> bool {
        false
    }

    fn probes(&self) -> Result<Value, String> {
        Err("no history".into())
    }
}
