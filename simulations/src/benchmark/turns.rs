//! The clock.

use std::time::{Duration, Instant};

use super::BenchmarkError;

/// How long something is measured in one turn, at least.
const TURN: Duration = Duration::from_millis(100);

/// The best time so far.
#[derive(Clone, Copy)]
pub(super) struct Figure(Duration);

impl Figure {
    pub(super) fn new() -> Self {
        Self(Duration::MAX)
    }

    pub(super) fn take(&mut self, time: Duration) {
        self.0 = self.0.min(time);
    }

    pub(super) fn time(&self) -> Duration {
        self.0
    }

    pub(super) fn seconds(&self) -> f64 {
        self.0.as_secs_f64()
    }
}

/// The best time of a few calls.
pub(super) fn measure(mut call: impl FnMut() -> Result<(), BenchmarkError>) -> Result<Duration, BenchmarkError> {
    let begun = Instant::now();
    let mut best = Figure::new();
    while begun.elapsed() < TURN {
        best.take(timed(&mut call)?);
    }
    Ok(best.0)
}

/// The time of one call.
pub(super) fn timed(call: impl FnOnce() -> Result<(), BenchmarkError>) -> Result<Duration, BenchmarkError> {
    let begun = Instant::now();
    call()?;
    Ok(begun.elapsed())
}
