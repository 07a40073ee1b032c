//! Drives the engine: what clients say becomes events, what the engine decides becomes messages.

mod acting;
mod hearing;
mod parting;

use std::{collections::BTreeMap, pin::pin, sync::Arc};

use selvedge_data::Dataset;
use selvedge_protocols::{
    ClientName, Description, LocalError, Requirements, ServerState,
    evaluation::Tested,
    message::{Task, ToClient},
    wire::{BlobStore, Limits, Partial},
};
use tokio::{
    select,
    sync::{
        Semaphore,
        mpsc::{Receiver, error::TrySendError},
    },
    task::JoinSet,
    time::{Instant, sleep_until},
};

use super::{
    ServerError,
    advice::Advice,
    broadcasts::Broadcasts,
    notices::Notices,
    reception::{Offer, Received},
    session::{Session, Signal},
    standing::Standing,
    thinking::Thinking,
};
use crate::{Clients, Engine, Event, Observer, Outcome, Progress, Snapshot, Trial};

/// What was done beside the driver.
enum Done {
    Received {
        client: ClientName,
        round: u32,
        task: Task,
        received: Received,
    },
    Tested {
        round: u32,
        trial: Trial,
        result: Result<Tested, LocalError>,
    },
}

pub(super) struct Driver {
    description: Arc<Description>,
    /// What clients need, in a run that goes by what they report.
    requirements: Option<Requirements>,
    /// What steps will take clients, in a run with models that are cut.
    advice: Option<Advice>,
    engine: Thinking,
    test: Option<Arc<Dataset>>,
    welcome: ToClient,
    heard: Receiver<Signal>,
    limits: Limits,
    began: Instant,
    sessions: BTreeMap<ClientName, Session>,
    broadcasts: Broadcasts,
    /// What clients have offered in this round on the connections they have now.
    offers: BTreeMap<ClientName, Offer>,
    /// What has come of updates whose connection was lost, at most [`WINDOW`] of them.
    partials: BTreeMap<ClientName, Partial>,
    /// The last round in which each client's update was taken in: said again to a client that comes back, since it may
    /// not have heard it.
    accepted: BTreeMap<ClientName, u32>,
    /// The rounds after which the run can be taken up again.
    resumable: Vec<u32>,
    done: JoinSet<Done>,
    /// Lets one evaluation of the coordinator's own run at a time.
    tests: Arc<Semaphore>,
    notices: Notices,
    standing: Standing,
}

impl Driver {
    #[allow(clippy::too_many_arguments)]
    pub(super) fn new(
        description: Arc<Description>,
        requirements: Option<Requirements>,
        advice: Option<Advice>,
        engine: Engine,
        test: Option<Arc<Dataset>>,
        welcome: ToClient,
        heard: Receiver<Signal>,
        limits: Limits,
    ) -> Self {
        Self {
            engine: Thinking::new(engine, &description),
            description,
            requirements,
            advice,
            test,
            welcome,
            heard,
            limits,
            began: Instant::now(),
            sessions: BTreeMap::new(),
            broadcasts: Broadcasts::default(),
            offers: BTreeMap::new(),
            partials: BTreeMap::new(),
            accepted: BTreeMap::new(),
            resumable: Vec::new(),
            done: JoinSet::new(),
            tests: Arc::new(Semaphore::new(1)),
            notices: Notices::default(),
            standing: Standing::default(),
        }
    }

    /// The run is taken up again, with what was known of its clients. Until it is written down anew it could be taken up once
    /// more as it was.
    pub(super) fn taken_up(&mut self, accepted: BTreeMap<ClientName, u32>, resumable: Vec<u32>) {
        self.accepted = accepted;
        self.resumable = resumable;
    }

    /// Tells whoever watches where the run is before its first round.
    pub(super) fn begun(&mut self, observe: Observer<'_>) {
        if let Some(snapshot) = self.engine.at_rest().map(Engine::snapshot) {
            self.put_down(&Arc::new(snapshot), observe);
        }
    }

    /// Tells whoever watches where the run is.
    fn put_down(&mut self, snapshot: &Arc<Snapshot>, observe: Observer<'_>) {
        let clients = Clients::Networked(self.accepted.clone());
        observe(Progress::Snapshot {
            snapshot,
            clients: &clients,
            resumable: &mut self.resumable,
        });
    }

    /// What clients may fetch.
    pub(super) fn store(&self) -> BlobStore {
        self.broadcasts.store()
    }

    /// Drives the run to its end, and gives its final state.
    pub(super) async fn drive(
        &mut self,
        stop: impl Future<Output = ()>,
        observe: Observer<'_>,
    ) -> Result<(ServerState, Outcome), ServerError> {
        let mut stop = pin!(stop);
        let mut is_stopped = false;
        self.engine.hear(Event::Tick);
        loop {
            let deadline = self.engine.deadline();
            let tick = async {
                match deadline {
                    Some(deadline) => sleep_until(deadline).await,
                    None => std::future::pending().await,
                }
            };
            select! {
                actions = self.engine.next() => {
                    let mut ended = None;
                    for action in actions? {
                        ended = self.act(action, observe)?.or(ended);
                    }
                    if let Some(engine) = self.engine.at_rest() {
                        if let Some(outcome) = ended {
                            let state = engine.state().clone();
                            observe(Progress::Ended {
                                outcome,
                                state: &state,
                                units: engine.units(),
                                fronts: engine.fronts(),
                            });
                            self.part(outcome, &state.weights).await;
                            return Ok((state, outcome));
                        }
                        self.standing.show(engine, observe);
                    }
                }
                Some(signal) = self.heard.recv(), if !self.engine.is_full() => self.hear(signal, observe),
                Some(done) = self.done.join_next() => match done {
                    Ok(done) => self.finished(done),
                    Err(error) if error.is_cancelled() => {}
                    Err(_) => return Err(ServerError::ThreadEnded),
                },
                () = tick => {
                    // What came in time is not late because it lay unread.
                    for _ in 0..super::HEARD {
                        match self.heard.try_recv() {
                            Ok(signal) => self.hear(signal, observe),
                            Err(_) => break,
                        }
                    }
                    self.engine.hear(Event::Tick);
                }
                () = &mut stop, if !is_stopped => {
                    is_stopped = true;
                    self.engine.hear(Event::Stop);
                }
            }
        }
    }

    /// Tells a client something, or drops it if it does not listen.
    fn tell(&mut self, client: &ClientName, message: ToClient, observe: Observer<'_>) {
        let Some(session) = self.sessions.get(client) else {
            return;
        };
        if let Err(TrySendError::Full(_)) = session.told.try_send(message) {
            self.drop_deaf(client, observe);
        }
    }

    /// Drops a client that does not listen.
    fn drop_deaf(&mut self, client: &ClientName, observe: Observer<'_>) {
        let Some(session) = self.sessions.remove(client) else {
            return;
        };
        let link = session.link.clone();
        tokio::spawn(async move { link.close("you do not read what you are told").await });
        self.left(client.clone(), false);
        self.notice(
            format!("{client} is dropped: it does not read what it is told"),
            observe,
        );
    }

    fn notice(&mut self, notice: String, observe: Observer<'_>) {
        if let Some(notice) = self.notices.admit(self.began.elapsed(), notice) {
            observe(Progress::Notice(&notice));
        }
    }
}
