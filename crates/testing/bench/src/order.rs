//! Messages between the program and its load generators: one line of JSON each.

use crate::disturbed;
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// A request to run a workload once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Order {
    /// Name of the workload.
    pub(crate) workload: String,
    /// Duration of workloads without a natural end.
    pub(crate) milliseconds: u64,
    /// Bytes moved by bulk workloads.
    pub(crate) bytes: u64,
    /// Samples per second of a profile that the server takes of itself during the run.
    pub(crate) profile_hz: Option<u32>,
    /// Whether the files of a read-only workload are kept for its next run: for many short runs.
    pub(crate) keeps_files: bool,
}

impl Order {
    /// Creates an order for one run with its own files.
    pub(crate) fn once(workload: &str, milliseconds: u64, bytes: u64) -> Order {
        Order { workload: workload.into(), milliseconds, bytes, profile_hz: None, keeps_files: false }
    }
}

/// Answer of a generator.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Answer {
    /// The generator is connected and waits for orders.
    Ready,
    /// The workload ran and moved the right bytes.
    Done(Outcome),
    /// The workload failed.
    Failed(String),
}

/// One run of one workload against one server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Outcome {
    /// Bytes, calls or files completed within `seconds`.
    pub(crate) amount: f64,
    /// Time from the start of the first call to the end of the last one.
    pub(crate) seconds: f64,
    /// CPU time used during `seconds`.
    pub(crate) cpu: CpuSeconds,
    /// Latency of single operations, for workloads of small calls.
    pub(crate) latency: Option<Latency>,
}

impl Outcome {
    /// Returns stolen time as a share of all processors' time.
    pub(crate) fn stolen_share(&self) -> f64 {
        disturbed::share(self.cpu.stolen, self.seconds)
    }
}

/// CPU time, user and system, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct CpuSeconds {
    /// All processes and threads of the server.
    pub(crate) server: f64,
    /// The load generator, with its clients.
    pub(crate) generator: f64,
    /// The rest of the machine, including interrupts and kernel threads.
    pub(crate) other: f64,
    /// Time that the hypervisor gave to other guests.
    pub(crate) stolen: f64,
}

/// Percentiles of an operation's duration, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Latency {
    /// Median.
    pub(crate) p50_us: f64,
    /// 99th percentile.
    pub(crate) p99_us: f64,
}

impl Latency {
    /// Returns the percentiles of durations in nanoseconds; `None` if there are none.
    pub(crate) fn of(nanoseconds: &Histogram<u64>) -> Option<Latency> {
        let microseconds = |quantile| nanoseconds.value_at_quantile(quantile) as f64 / 1e3;
        let latency = || Latency { p50_us: microseconds(0.5), p99_us: microseconds(0.99) };
        (!nanoseconds.is_empty()).then(latency)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_survive_their_line() {
        let outcome = Outcome {
            amount: 12.0,
            seconds: 0.5,
            cpu: CpuSeconds { server: 0.1, generator: 0.2, other: 0.03, stolen: 0.0 },
            latency: Some(Latency { p50_us: 80.0, p99_us: 200.5 }),
        };
        for answer in [Answer::Ready, Answer::Done(outcome), Answer::Failed("no \"x\"\nno y".into())] {
            let line = serde_json::to_string(&answer).unwrap();
            assert!(!line.contains('\n'));
            assert_eq!(serde_json::from_str::<Answer>(&line).unwrap(), answer);
        }
    }
}
