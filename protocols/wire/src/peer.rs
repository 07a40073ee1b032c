//! The other side of a link, as errors name it, and the patience with it.

use std::{fmt::Display, sync::Arc, time::Duration};

use tokio::time::timeout;

use super::{WireError, error::Explain};

/// Cheap to clone; whatever talks to a peer carries one.
#[derive(Debug, Clone)]
pub(super) struct Peer {
    /// Name and address.
    pub(super) label: Arc<str>,
    /// The longest silence.
    pub(super) idle: Duration,
}

impl Peer {
    /// Takes one step with the peer, which must not take longer than the idle limit.
    pub(super) async fn within<T, E: Explain>(
        &self,
        doing: &'static str,
        step: impl Future<Output = Result<T, E>>,
    ) -> Result<T, WireError> {
        match timeout(self.idle, step).await {
            Ok(outcome) => outcome.map_err(|error| error.explain(&self.label)),
            Err(_) => Err(self.stalled(doing)),
        }
    }

    pub(super) fn stalled(&self, doing: &'static str) -> WireError {
        WireError::Stalled {
            peer: self.name(),
            doing,
            after: self.idle,
        }
    }

    pub(super) fn breaks(&self, detail: impl Display) -> WireError {
        WireError::Protocol {
            peer: self.name(),
            detail: detail.to_string(),
        }
    }

    /// For an error's `peer`.
    pub(super) fn name(&self) -> String {
        self.label.to_string()
    }
}
