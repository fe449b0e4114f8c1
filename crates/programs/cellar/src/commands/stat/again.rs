//! Periodic sampling.

use crate::output;
use anyhow::Result;
use clap::Args;
use std::thread;
use std::time::Duration;

/// Sampling options.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct Again {
    /// Repeat every SECONDS seconds, and show the changes since the previous sample.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..))]
    interval: Option<u32>,
    /// End after this number of samples.
    #[arg(long, value_name = "SAMPLES", requires = "interval")]
    count: Option<u32>,
}

impl Again {
    /// Samples `count` times at `interval`; without an interval, once.
    pub(crate) fn new(interval: Option<u32>, count: Option<u32>) -> Again {
        Again { interval, count }
    }

    /// Returns whether only the first sample is taken.
    pub(crate) fn is_once(self) -> bool {
        self.interval.is_none()
    }

    /// Samples after each interval, up to the requested number of times and while standard output is open.
    pub(crate) fn each(self, mut look: impl FnMut() -> Result<()>) -> Result<()> {
        let Some(interval) = self.interval else { return Ok(()) };
        let mut looks = 0;
        while self.count.is_none_or(|count| looks < count) && !output::is_closed() {
            thread::sleep(Duration::from_secs(interval.into()));
            look()?;
            looks += 1;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_looks_as_often_as_is_wanted() {
        let looks = |interval, count| {
            let mut looks = 0;
            let looked = Again { interval, count }.each(|| {
                looks += 1;
                anyhow::ensure!(looks < 3, "enough");
                Ok(())
            });
            (looks, looked.is_ok())
        };
        assert_eq!((looks(None, None), looks(Some(1), Some(0))), ((0, true), (0, true)));
        assert_eq!((looks(Some(1), Some(1)), looks(Some(1), None)), ((1, true), (3, false)));
        assert!(Again { interval: None, count: None }.is_once());
    }
}
