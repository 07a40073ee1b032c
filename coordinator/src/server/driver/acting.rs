//! What the engine decides becomes messages, receptions and evaluations.

use std::sync::Arc;

use selvedge_protocols::{
    Card, ClientName, LocalError, Rejection,
    message::{Task, ToClient},
};
use tokio::{
    sync::{mpsc::error::TrySendError, oneshot},
    task::spawn_blocking,
};

use super::{Done, Driver};
use crate::{
    Action, Event, Observer, Outcome, Progress, Trial,
    engine::{GlobalModel, Inspector},
    server::{
        ServerError, evaluation,
        reception::{Reception, prepare},
    },
};

impl Driver {
    /// Does what the engine says; the outcome, when that was the last.
    pub(super) fn act(&mut self, action: Action, observe: Observer<'_>) -> Result<Option<Outcome>, ServerError> {
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

    pub(super) fn ask(
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

    pub(super) fn receive(&mut self, client: ClientName, round: u32, task: Task, inspector: Arc<Inspector>) {
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

    pub(super) fn test(
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
}
