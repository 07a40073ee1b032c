//! How long an agent waits before it tries again, and when it gives up.

use std::time::Duration;

use rand::Rng;
use tokio::time::Instant;

/// The first pause and the longest; each is twice the one before.
const FIRST: Duration = Duration::from_millis(500);
const LONGEST: Duration = Duration::from_secs(30);

pub(super) struct Patience {
    /// How long it lasts without a coordinator.
    limit: Duration,
    pause: Duration,
    last_seen: Instant,
}

impl Patience {
    pub(super) fn new(limit: Duration) -> Self {
        Self {
            limit,
            pause: FIRST,
            last_seen: Instant::now(),
        }
    }

    /// The coordinator is, or until now was, there.
    pub(super) fn renew(&mut self) {
        (self.pause, self.last_seen) = (FIRST, Instant::now());
    }

    /// How much of it is left.
    pub(super) fn left(&self) -> Duration {
        self.limit.saturating_sub(self.last_seen.elapsed())
    }

    /// How long to wait before the next attempt; `None` when there is to be none. Each pause is stretched or shortened
    /// by up to a half, so that the clients of a coordinator that was restarted do not all come at once.
    pub(super) fn pause(&mut self) -> Option<Duration> {
        let pause = self.pause.mul_f64(rand::rng().random_range(0.5..1.5));
        self.pause = LONGEST.min(self.pause * 2);
        (self.last_seen.elapsed() + pause <= self.limit).then_some(pause)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_their_limit_and_begin_again_once_the_coordinator_was_there() {
        let mut patience = Patience::new(Duration::from_secs(3600));
        let about = |pause: Duration, seconds: f64| {
            let range = seconds * 0.5..=seconds * 1.5;
            assert!(
                range.contains(&pause.as_secs_f64()),
                "{pause:?} is not about {seconds} s"
            );
        };
        for seconds in [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0] {
            about(patience.pause().unwrap(), seconds);
        }
        patience.renew();
        about(patience.pause().unwrap(), 0.5);
    }

    #[test]
    fn no_pause_is_begun_that_would_end_too_late() {
        let mut patience = Patience::new(Duration::from_millis(100));
        assert_eq!(patience.pause(), None);
    }
}
