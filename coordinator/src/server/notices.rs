//! What a person is told beside the rounds, and not too often.

use std::time::Duration;

/// Notices in a [`PERIOD`].
const MOST: usize = 20;
const PERIOD: Duration = Duration::from_secs(60);

/// Lets a bounded number of notices through, so that a peer that keeps knocking does not fill a log.
#[derive(Debug, Default)]
pub(super) struct Notices {
    since: Duration,
    said: usize,
    withheld: usize,
}

impl Notices {
    /// What is to be said, when `notice` is what there is to say.
    pub(super) fn admit(&mut self, now: Duration, notice: String) -> Option<String> {
        if now.saturating_sub(self.since) < PERIOD {
            if self.said == MOST {
                self.withheld += 1;
                return None;
            }
            self.said += 1;
            return Some(notice);
        }
        let withheld = std::mem::take(&mut self.withheld);
        (self.since, self.said) = (now, 1);
        Some(match withheld {
            0 => notice,
            withheld => format!("{notice} (before that, {withheld} notices were left out)"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_notices_is_cut_off_and_counted() {
        let mut notices = Notices::default();
        let mut at = |seconds| notices.admit(Duration::from_secs(seconds), format!("at {seconds}"));
        let said = (0..50).filter_map(&mut at).count();
        assert_eq!(said, MOST);
        let expected = "at 60 (before that, 30 notices were left out)";
        assert_eq!(at(60).as_deref(), Some(expected));
        assert_eq!(at(61).as_deref(), Some("at 61"));
    }
}
