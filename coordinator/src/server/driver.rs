//! Drives the engine: what clients say becomes events, what the engine decides becomes messages.

use std::{collections::BTreeMap, pin::pin, sync::Arc};

use selvedge_data::Dataset;
use selvedge_models::Weights;
use selvedge_protocols::{
    CannotTrain, Card, ClientName, Description, LocalError, Rejection, Requirements, Resources, ServerState, Width,
    evaluation::Tested,
    message::{FINAL_MODEL_WITHIN, Task, ToClient, ToCoordinator},
    update::check_report,
    wire::{BlobStore, Held, Limits, Partial},
};
use tokio::{
    select,
    sync::{
        Semaphore,
        mpsc::{Receiver, error::TrySendError},
        oneshot,
    },
    task::{JoinSet, spawn_blocking},
    time::{Instant, sleep_until, timeout_at},
};

use super::{
    ServerError, WINDOW,
    advice::Advice,
    broadcasts::Broadcasts,
    evaluation,
    notices::Notices,
    reception::{Offer, Received, Reception, prepare},
    session::{Session, Signal},
    standing::Standing,
    thinking::Thinking,
};
use crate::{
    Action, Clients, Engine, Event, Observer, Outcome, Progress, Snapshot, Trial,
    engine::{GlobalModel, Inspector},
};

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
            description,
            requirements,
            advice,
            engine: Thinking::new(engine),
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

    /// Takes in what a connection says.
    fn hear(&mut self, signal: Signal, observe: Observer<'_>) {
        match signal {
            Signal::Joined(client, resources, session) => {
                let width = match self.reported(&resources) {
                    Ok(width) => width,
                    Err(error) => {
                        self.notice(format!("{client} is turned away: {error}"), observe);
                        let reason = error.to_string();
                        // Nothing else has been said to it.
                        let _ = session.told.try_send(ToClient::TurnedAway { reason });
                        return;
                    }
                };
                if let Some(old) = self.sessions.remove(&client) {
                    self.notice(format!("{client} has connected anew"), observe);
                    let reason = format!("another connection of {client} has taken its place");
                    // Fails only if it is not being read, and then it will end by itself.
                    let _ = old.told.try_send(ToClient::TurnedAway { reason });
                    self.left(client.clone(), false);
                }
                if let Some(width) = width {
                    self.notice(format!("{client} can train width {width}"), observe);
                }
                let round_trip = session.link.round_trip();
                let expected = self
                    .advice
                    .as_mut()
                    .zip(resources.speed)
                    .and_then(|(advice, speed)| advice.on(&client, speed, round_trip));
                if let Some(expected) = expected {
                    self.notice(expected, observe);
                }
                self.sessions.insert(client.clone(), session);
                self.tell(&client, self.welcome.clone(), observe);
                if let Some(message) = self.last_accepted(&client) {
                    self.tell(&client, message, observe);
                }
                self.engine.hear(Event::Joined { client, width });
            }
            Signal::Said(client, number, message) if self.is_current(&client, number) => {
                self.said(client, message);
            }
            Signal::Stepped(client, number, message, payload) if self.is_current(&client, number) => {
                self.engine.hear(Event::Stepped {
                    client,
                    message,
                    payload: payload.into(),
                });
            }
            Signal::Misstepped(client, number, reason) if self.is_current(&client, number) => {
                self.notice(format!("{client}: a step cannot be read: {reason}"), observe);
                self.engine.hear(Event::Misstepped { client, reason });
            }
            Signal::Left {
                client,
                number,
                for_good,
                reason,
            } if self.is_current(&client, number) => {
                self.sessions.remove(&client);
                let notice = match for_good {
                    true => format!("{client} has left"),
                    false => format!("{client} is gone: {reason}"),
                };
                self.notice(notice, observe);
                self.left(client, for_good);
            }
            // Of a connection that has been replaced.
            Signal::Said(..) | Signal::Stepped(..) | Signal::Misstepped(..) | Signal::Left { .. } => {}
            Signal::TurnedAway(reason) => self.notice(reason, observe),
        }
    }

    /// What a client can train by what it has reported, in a run that goes by that.
    fn reported(&self, resources: &Resources) -> Result<Option<Width>, CannotTrain> {
        let requirements = self.requirements.as_ref();
        requirements
            .map(|requirements| requirements.largest_width(resources))
            .transpose()
    }

    /// What a client is told that is there again. Where the coordinator may have begun anew, one that has no update that
    /// counts is told that too: what it keeps may be of a time that did not come to pass.
    fn last_accepted(&self, client: &ClientName) -> Option<ToClient> {
        let none = (!self.resumable.is_empty()).then_some(0);
        let round = self.accepted.get(client).copied().or(none)?;
        let resumable = self.resumable.clone();
        Some(ToClient::Accepted { round, resumable })
    }

    /// Whether clients are under way that were asked in other rounds than this.
    fn rounds_overlap(&self) -> bool {
        self.description.buffer.is_some()
    }

    fn is_current(&self, client: &ClientName, number: u64) -> bool {
        self.sessions
            .get(client)
            .is_some_and(|session| session.number == number)
    }

    fn left(&mut self, client: ClientName, for_good: bool) {
        self.offers.remove(&client);
        self.engine.hear(Event::Left { client, for_good });
    }

    fn said(&mut self, client: ClientName, message: ToCoordinator) {
        let event = match message {
            ToCoordinator::Offer {
                round,
                task,
                report,
                sections,
                blob,
            } => {
                // What cannot be true is turned down by the engine, and not kept.
                if (round == self.engine.round() || self.rounds_overlap()) && check_report(&report).is_ok() {
                    let offer = Offer {
                        round,
                        task,
                        report: report.clone(),
                        blob,
                    };
                    // A second offer does not replace the first of its round: the engine will turn it down. One that
                    // came between rounds, for the round that was over, must not stand in the way of the next.
                    let known = self.offers.get(&client);
                    if known.is_none_or(|known| (known.round, known.task) != (round, task)) {
                        self.offers.insert(client.clone(), offer);
                    }
                    self.standing.answered(&client);
                }
                Event::Offered {
                    client,
                    round,
                    task,
                    report,
                    sections,
                    bytes: blob.bytes,
                }
            }
            ToCoordinator::Evaluated { round, evaluation } => Event::Evaluated {
                client,
                round,
                evaluation,
            },
            ToCoordinator::Failed { round, task, reason } => {
                self.standing.answered(&client);
                Event::Failed {
                    client,
                    round,
                    task,
                    reason,
                }
            }
            // The connection's task keeps these to itself.
            ToCoordinator::Join { .. } | ToCoordinator::Leave => return,
        };
        self.engine.hear(event);
    }

    /// Takes in what was done beside the driver.
    fn finished(&mut self, done: Done) {
        match done {
            Done::Received {
                client,
                round,
                task,
                received: Received::Whole(update),
            } => self.engine.hear(Event::Received {
                client,
                round,
                task,
                update,
            }),
            // No event: the connection's end is one, and the engine asks again when the client is back.
            Done::Received {
                client,
                received: Received::Broken(partial),
                ..
            } => {
                if self.partials.len() < WINDOW {
                    self.partials.insert(client, partial);
                }
            }
            Done::Tested { round, trial, result } => self.engine.hear(Event::Tested {
                round,
                trial,
                evaluation: result.map(Some).map_err(|error| error.to_string()),
            }),
        }
    }

    /// Does what the engine says; the outcome, when that was the last.
    fn act(&mut self, action: Action, observe: Observer<'_>) -> Result<Option<Outcome>, ServerError> {
        match action {
            Action::Ask {
                client,
                round,
                task,
                card,
                model,
            } => self.ask(client, round, task, card, &model, observe)?,
            Action::Receive {
                client,
                round,
                task,
                inspector,
            } => self.receive(client, round, task, inspector),
            Action::Answer { client, round, verdict } => {
                if self.rounds_overlap() && self.offers.get(&client).is_some_and(|offer| offer.round == round) {
                    self.offers.remove(&client);
                }
                let message = match verdict {
                    Ok(()) => {
                        self.accepted.insert(client.clone(), round);
                        let resumable = self.resumable.clone();
                        ToClient::Accepted { round, resumable }
                    }
                    Err(reason) => ToClient::Rejected { round, reason },
                };
                self.tell(&client, message, observe);
            }
            Action::Test {
                round,
                trial,
                card,
                model,
            } => self.test(round, trial, card.as_ref(), &model)?,
            Action::Step {
                client,
                message,
                payload,
            } => {
                let sent = self
                    .sessions
                    .get(&client)
                    .map(|session| session.steps.try_send((message, payload.into())));
                if let Some(Err(TrySendError::Full(_))) = sent {
                    self.drop_deaf(&client, observe);
                }
            }
            Action::Record(record) => {
                if self.rounds_overlap() {
                    self.standing.go_on();
                } else {
                    // What is still under way belongs to a round that is over.
                    self.done.abort_all();
                    self.broadcasts.end();
                    self.offers.clear();
                    self.partials.clear();
                    self.standing.end();
                }
                if let Some(engine) = self.engine.at_rest() {
                    observe(Progress::Record {
                        record: &record,
                        state: engine.state(),
                        units: engine.units(),
                        fronts: engine.fronts(),
                    });
                }
            }
            Action::Snapshot(snapshot) => self.put_down(&snapshot, observe),
            Action::Finish(outcome) => return Ok(Some(outcome)),
        }
        Ok(None)
    }

    fn ask(
        &mut self,
        client: ClientName,
        round: u32,
        task: Task,
        card: Card,
        model: &Arc<GlobalModel>,
        observe: Observer<'_>,
    ) -> Result<(), ServerError> {
        let (sections, blob) = self.broadcasts.offer(model, &card)?;
        let message = ToClient::Task {
            round,
            task,
            card,
            sections,
            blob,
        };
        self.tell(&client, message, observe);
        self.standing.asked(client);
        Ok(())
    }

    fn receive(&mut self, client: ClientName, round: u32, task: Task, inspector: Arc<Inspector>) {
        let offer = self.offers.get(&client).filter(|offer| offer.round == round);
        let (Some(session), Some(offer)) = (self.sessions.get_mut(&client), offer) else {
            let reason = Rejection::TransferFailed("nothing is offered any more".into());
            return self.engine.hear(Event::Received {
                client,
                round,
                task,
                update: Err(reason),
            });
        };
        let begun = self.partials.remove(&client);
        let begun = begun.filter(|partial| partial.reference() == offer.blob);
        let partial = match begun.map_or_else(|| prepare(offer, &inspector), Ok) {
            Ok(partial) => partial,
            Err(reason) => {
                return self.engine.hear(Event::Received {
                    client,
                    round,
                    task,
                    update: Err(reason),
                });
            }
        };
        let (receiving, ended) = oneshot::channel();
        session.receiving = Some(receiving);
        let reception = Reception {
            link: session.link.clone(),
            ended,
            report: offer.report.clone(),
            inspector,
        };
        self.done.spawn(async move {
            Done::Received {
                client,
                round,
                task,
                received: reception.receive(partial).await,
            }
        });
    }

    fn test(
        &mut self,
        round: u32,
        trial: Trial,
        card: Option<&Card>,
        model: &Arc<GlobalModel>,
    ) -> Result<(), ServerError> {
        // Training examples are with the clients.
        let Some(dataset) = self.test.clone().filter(|_| trial != Trial::OnTraining) else {
            self.engine.hear(Event::Tested {
                round,
                trial,
                evaluation: Ok(None),
            });
            return Ok(());
        };
        let (description, model, card) = (self.description.clone(), model.clone(), card.cloned());
        let tests = self.tests.clone();
        self.done.spawn(async move {
            // One at a time: each holds a model of its own, and uses all processors.
            let turn = tests.acquire_owned().await;
            let evaluated = trial.clone();
            let result = spawn_blocking(move || {
                let part = model.part(card.as_ref())?;
                let broadcast = model.evaluated(&part, &evaluated);
                evaluation::test(&description, &part, &broadcast, &dataset, evaluated.is_by_class())
            });
            let result = match result.await {
                Ok(result) => result,
                Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
                Err(_) => Err(LocalError::Abandoned),
            };
            drop(turn);
            Done::Tested { round, trial, result }
        });
        Ok(())
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

    /// How a run ended, for its clients.
    pub(super) fn reason(&self, outcome: Outcome) -> &'static str {
        match outcome {
            Outcome::Completed => "all rounds are done",
            Outcome::Stopped if self.is_put_down(outcome) => "the run was put down, and can be taken up again",
            Outcome::Stopped => "the coordinator was stopped",
            Outcome::TooFewClients => "there were too few clients",
        }
    }

    /// Whether the run can go on from where it was stopped.
    fn is_put_down(&self, outcome: Outcome) -> bool {
        outcome == Outcome::Stopped && !self.resumable.is_empty()
    }

    /// Tells everybody that the run is over, and waits a little while they hang up; those who want the final model fetch it
    /// first. Of a run that was put down nobody is told so: its clients wait for it to be taken up again.
    async fn part(&mut self, outcome: Outcome, weights: &Weights) {
        if self.is_put_down(outcome) {
            return;
        }
        let reason = self.reason(outcome);
        let began = Instant::now();
        let mut model = None;
        // Those who have not hung up, and whether they fetch the model.
        let mut left: BTreeMap<u64, bool> = BTreeMap::new();
        let mut joined: Vec<Session> = std::mem::take(&mut self.sessions).into_values().collect();
        loop {
            for session in joined.drain(..) {
                left.insert(session.number, session.keeps_model);
                if session.keeps_model && model.is_none() {
                    model = self.final_model(weights);
                }
                let held = model.as_ref().filter(|_| session.keeps_model);
                let _ = session.told.try_send(ToClient::Finished {
                    reason: reason.into(),
                    model: held.map(Held::reference),
                });
            }
            if left.is_empty() {
                return;
            }
            let limit = match left.values().any(|&fetches| fetches) {
                true => FINAL_MODEL_WITHIN.max(self.limits.connect),
                false => self.limits.connect,
            };
            match timeout_at(began + limit, self.heard.recv()).await {
                Ok(Some(Signal::Left { number, .. })) => drop(left.remove(&number)),
                Ok(Some(Signal::Joined(_, _, session))) => joined.push(session),
                Ok(Some(_)) => {}
                Ok(None) | Err(_) => return,
            }
        }
    }

    /// Offers the final model, if the run has one.
    fn final_model(&self, weights: &Weights) -> Option<Held> {
        if !self.description.has_one_model() {
            return None;
        }
        let layout = self.description.model.layout().ok()?;
        let file = weights.to_safetensors(&layout).ok()?;
        self.broadcasts.store().hold(file.into()).ok()
    }
}
