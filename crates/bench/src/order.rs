//! What the program and its load generators tell each other: one line of JSON each.

use crate::disturbed;
use serde::{Deserialize, Serialize};

/// Asks a generator to run a workload once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Order {
    /// Name of the workload.
    pub(crate) workload: String,
    /// How long workloads run that have no natural end.
    pub(crate) milliseconds: u64,
    /// Bytes that bulk workloads move.
    pub(crate) bytes: u64,
    /// Samples a second of a profile that the server takes of itself during the run.
    pub(crate) profile_hz: Option<u32>,
    /// Whether the files of a workload that only reads stay, and the next run of it takes them: for many short runs.
    pub(crate) keeps_files: bool,
}

impl Order {
    /// One run with files of its own.
    pub(crate) fn once(workload: &str, milliseconds: u64, bytes: u64) -> Order {
        Order { workload: workload.into(), milliseconds, bytes, profile_hz: None, keeps_files: false }
    }
}

/// What a generator answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Answer {
    /// It is connected and waits for orders.
    Ready,
    /// The workload ran and moved the right bytes.
    Done(Outcome),
    /// It did not.
    Failed(String),
}

/// One run of one workload against one server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Outcome {
    /// Bytes, calls or files done within `seconds`.
    pub(crate) amount: f64,
    /// Time from the first call's begin to the last call's end.
    pub(crate) seconds: f64,
    /// CPU time used in that time.
    pub(crate) cpu: CpuSeconds,
    /// How long single operations took, for workloads of small calls.
    pub(crate) latency: Option<Latency>,
}

impl Outcome {
    /// The part of all processors' time that the hypervisor gave to others.
    pub(crate) fn stolen_share(&self) -> f64 {
        disturbed::share(self.cpu.stolen, self.seconds)
    }
}

/// CPU time, user and system, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct CpuSeconds {
    /// All processes of the server, all their threads.
    pub(crate) server: f64,
    /// The load generator.
    pub(crate) generator: f64,
    /// The rest of the machine, interrupts and the kernel's own threads among it.
    pub(crate) other: f64,
    /// What the hypervisor gave to others.
    pub(crate) stolen: f64,
}

/// Percentiles of one operation's time, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Latency {
    /// Half of the operations were at least as fast.
    pub(crate) p50_us: f64,
    /// 99 of 100 were.
    pub(crate) p99_us: f64,
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
