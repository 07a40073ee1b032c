//! Takes part in a run, connection after connection.

use std::{pin::pin, time::Duration};

use selvedge_protocols::{
    ClientName,
    wire::{Limits, WireError, connect},
};
use tokio::{select, time::sleep};

use super::{
    Agent, AgentError, Ending, Moment,
    event::Event,
    patience::Patience,
    session::{Parted, Session},
    work::Work,
};

/// Even the last attempt may take so long.
const SHORTEST_ATTEMPT: Duration = Duration::from_millis(100);

impl Agent {
    /// Takes part until the run is over or `stop` is ready. Says what happens to `observe`.
    ///
    /// Training runs on a thread of its own: when this returns during training, that thread ends at its next step. End
    /// the runtime without waiting for it.
    ///
    /// # Errors
    /// When trying again would not help: see [`AgentError`].
    pub async fn run(
        &self,
        stop: impl Future<Output = ()>,
        observe: &mut (dyn FnMut(Moment) + Send),
    ) -> Result<Ending, AgentError> {
        let client = ClientName::new(&self.credentials.identity().name)?;
        let mut stop = pin!(stop);
        let mut patience = Patience::new(self.give_up_after);
        let mut work: Option<Work> = None;
        loop {
            let mut limits = work.as_ref().map_or_else(Limits::default, Work::limits);
            limits.connect = limits.connect.min(patience.left()).max(SHORTEST_ATTEMPT);
            let connected = select! {
                connected = connect(&self.coordinator, &self.credentials, limits) => connected,
                () = &mut stop => return Ok(Ending::Stopped),
            };
            let error = match connected {
                Err(error) => error,
                Ok((link, control)) => {
                    let session = Session {
                        agent: self,
                        client: &client,
                        link: &link,
                        patience: &mut patience,
                        observe: &mut *observe,
                    };
                    let parted = session.attend(control, &mut work, stop.as_mut()).await;
                    link.close("this client hangs up").await;
                    match parted {
                        Ok(Parted::Finished(reason)) => {
                            if let Some(mut work) = work {
                                work.hear(Event::Finished, observe)?;
                            }
                            return Ok(Ending::Finished(reason));
                        }
                        Ok(Parted::Stopped) => return Ok(Ending::Stopped),
                        Err(AgentError::Wire(error)) => error,
                        Err(error) => return Err(error),
                    }
                }
            };
            // A host that was found before will be found again.
            let was_found = matches!(error, WireError::Address { .. }) && work.is_some();
            if !(error.is_transient() || was_found) {
                return Err(error.into());
            }
            let Some(pause) = patience.pause() else {
                return Err(AgentError::NoCoordinator {
                    after: self.give_up_after,
                    last: error,
                });
            };
            let error = error.to_string();
            observe(Moment::Lost { error, pause });
            select! {
                () = sleep(pause) => {}
                () = &mut stop => return Ok(Ending::Stopped),
            }
        }
    }
}
