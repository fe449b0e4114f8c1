//! The load generator for a mounted file system: executes orders from its standard input in a folder.

use crate::cpu::Reading;
use crate::generator::{Done, execute, join, noise, percentiles, repeat, share_bytes};
use crate::order::{Order, Outcome};
use crate::workload::{self, Kind, Workload};
use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Barrier;
use std::time::{Duration, Instant};

/// Options of the load generator.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct MountedOptions {
    /// A folder in the mounted file system
    #[arg(long)]
    folder: PathBuf,
}

/// Executes orders until the end of the input.
pub(crate) fn mounted(options: &MountedOptions) -> Result<()> {
    let mut mounted = Mounted { folder: options.folder.clone(), data: Bytes::new(), kept: None };
    execute(|order| mounted.obey(order))
}

struct Mounted {
    folder: PathBuf,
    data: Bytes,
    /// Workload and bytes of the files that the last run left for the next one.
    kept: Option<(&'static str, u64)>,
}

/// What one thread operates on.
struct Task {
    folder: PathBuf,
    data: Bytes,
}

impl Task {
    fn file(&self) -> PathBuf {
        self.folder.join("file")
    }
}

impl Mounted {
    fn obey(&mut self, order: &Order) -> Result<Outcome> {
        let workload =
            workload::by_name(&order.workload).with_context(|| format!("no workload {}", order.workload))?;
        if (self.data.len() as u64) < order.bytes {
            self.data = noise(order.bytes);
        }
        let tasks = self.tasks(workload, order.bytes);
        let begins_with_data = matches!(workload.kind, Kind::Fetch { .. });
        let is_kept = self.kept.take() == Some((workload.name, order.bytes));
        if !is_kept {
            for task in &tasks {
                std::fs::create_dir_all(&task.folder)?;
                if begins_with_data {
                    store(&task.file(), &task.data)?;
                    fetch_and_compare(&task.file(), &task.data)?;
                }
            }
            // Earlier writes do not continue during the measurement.
            rustix::fs::sync();
        }
        let outcome = measure(workload, &tasks, Duration::from_millis(order.milliseconds))?;
        if order.keeps_files && begins_with_data {
            self.kept = Some((workload.name, order.bytes));
        } else {
            tasks.iter().try_for_each(|task| std::fs::remove_dir_all(&task.folder))?;
        }
        Ok(outcome)
    }

    fn tasks(&self, workload: &Workload, bytes: u64) -> Vec<Task> {
        let share = share_bytes(workload, bytes) as usize;
        let task = |number: usize| {
            let from = if matches!(workload.kind, Kind::Files) { 0 } else { share * number };
            let folder = self.folder.join(format!("client-{number}"));
            Task { folder, data: self.data.slice(from..from + share) }
        };
        (0..workload.clients * workload.threads).map(task).collect()
    }
}

fn measure(workload: &Workload, tasks: &[Task], time: Duration) -> Result<Outcome> {
    let start = Barrier::new(tasks.len() + 1);
    std::thread::scope(|scope| {
        let spawn = |task| {
            let start = &start;
            scope.spawn(move || {
                start.wait();
                work(workload, task, time)
            })
        };
        let threads: Vec<_> = tasks.iter().map(spawn).collect();
        let before = Reading::now();
        let begin = Instant::now();
        start.wait();
        let done: Vec<Done> = threads.into_iter().map(join).collect::<Result<_>>()?;
        let seconds = begin.elapsed().as_secs_f64();
        let cpu = Reading::now()?.since(&before?);
        let amount = done.iter().map(|done| done.amount).sum::<u64>() as f64;
        Ok(Outcome { amount, seconds, cpu, latency: percentiles(&done)? })
    })
}

fn work(workload: &Workload, task: &Task, time: Duration) -> Result<Done> {
    let amount = task.data.len() as u64;
    match workload.kind {
        Kind::Fetch { .. } => {
            fetch_and_compare(&task.file(), &task.data)?;
            Ok(Done { amount, latency: None })
        }
        Kind::Store { .. } => {
            store(&task.file(), &task.data)?;
            Ok(Done { amount, latency: None })
        }
        Kind::Files => repeat(time, |number| {
            let file = task.folder.join(format!("f{number}"));
            store(&file, &task.data)?;
            Ok(std::fs::remove_file(&file)?)
        }),
        Kind::Status | Kind::List | Kind::Mix { .. } => {
            bail!("{} is not measured in a mounted file system", workload.name)
        }
    }
}

/// Writes a file durably.
fn store(path: &Path, data: &[u8]) -> Result<()> {
    let mut file = File::create(path).with_context(|| path.display().to_string())?;
    file.write_all(data)?;
    Ok(file.sync_all()?)
}

fn fetch_and_compare(path: &Path, data: &[u8]) -> Result<()> {
    let mut file = File::open(path).with_context(|| path.display().to_string())?;
    let mut buffer = vec![0; BUFFER_BYTES.min(data.len())];
    for expected in data.chunks(BUFFER_BYTES) {
        let found = &mut buffer[..expected.len()];
        file.read_exact(found)?;
        ensure!(found == expected, "{} has other bytes than were stored", path.display());
    }
    Ok(())
}

/// Bytes that are read at once.
const BUFFER_BYTES: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_are_carried_out_and_leave_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let mut mounted = Mounted { folder: folder.path().into(), data: Bytes::new(), kept: None };
        let bytes = 3 << 20;
        for (name, amount) in [("read-1", bytes), ("write-1", bytes), ("write-16", bytes)] {
            let outcome = mounted.obey(&Order::once(name, 10, bytes)).unwrap();
            assert_eq!(outcome.amount as u64, amount, "{name}");
        }
        let small = mounted.obey(&Order::once("small-16", 10, bytes)).unwrap();
        assert!(small.amount >= 16.0 && small.latency.is_some(), "{small:?}");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        assert!(mounted.obey(&Order::once("list-1", 10, bytes)).is_err());
    }

    #[test]
    fn kept_files_are_read_again_and_wrong_bytes_are_found() {
        let folder = tempfile::tempdir().unwrap();
        let mut mounted = Mounted { folder: folder.path().into(), data: Bytes::new(), kept: None };
        let order = Order { keeps_files: true, ..Order::once("read-1", 10, 1 << 20) };
        mounted.obey(&order).unwrap();
        let file = folder.path().join("client-0/file");
        mounted.obey(&order).unwrap();
        std::fs::write(&file, vec![0; 1 << 20]).unwrap();
        let error = mounted.obey(&order).unwrap_err().to_string();
        assert!(error.contains("other bytes"), "{error}");
    }
}
