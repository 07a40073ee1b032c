//! What clients say, and what was done for them beside the driver, becomes events.

use selvedge_protocols::{
    CannotTrain, ClientName, Resources, Width,
    message::{ToClient, ToCoordinator},
    update::check_report,
};

use super::{Done, Driver};
use crate::{
    Event, Observer,
    server::{
        WINDOW,
        reception::{Offer, Received},
        session::Signal,
    },
};

impl Driver {
    /// Takes in what a connection says.
    pub(super) fn hear(&mut self, signal: Signal, observe: Observer<'_>) {
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
    pub(super) fn reported(&self, resources: &Resources) -> Result<Option<Width>, CannotTrain> {
        let requirements = self.requirements.as_ref();
        requirements
            .map(|requirements| requirements.largest_width(resources))
            .transpose()
    }

    /// What a client is told that is there again. Where the coordinator may have begun anew, one that has no update that
    /// counts is told that too: what it keeps may be of a time that did not come to pass.
    pub(super) fn last_accepted(&self, client: &ClientName) -> Option<ToClient> {
        let none = (!self.resumable.is_empty()).then_some(0);
        let round = self.accepted.get(client).copied().or(none)?;
        let resumable = self.resumable.clone();
        Some(ToClient::Accepted { round, resumable })
    }

    /// Whether clients are under way that were asked in other rounds than this.
    pub(super) fn rounds_overlap(&self) -> bool {
        self.description.buffer.is_some()
    }

    pub(super) fn is_current(&self, client: &ClientName, number: u64) -> bool {
        self.sessions
            .get(client)
            .is_some_and(|session| session.number == number)
    }

    pub(super) fn left(&mut self, client: ClientName, for_good: bool) {
        self.offers.remove(&client);
        self.engine.hear(Event::Left { client, for_good });
    }

    pub(super) fn said(&mut self, client: ClientName, message: ToCoordinator) {
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
    pub(super) fn finished(&mut self, done: Done) {
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
}
