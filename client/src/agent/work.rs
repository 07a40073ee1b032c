//! What an agent is at, from connection to connection: fetching a model, training it, holding its update ready.

use std::sync::{Arc, atomic::Ordering};

use bytes::Bytes;
use selvedge_models::SubModel;
use selvedge_protocols::{
    Card, ClientName, Description, Parts, Rejection,
    message::{Task, ToCoordinator},
    sections::{Encoding, SectionHeader, packed_bytes},
    split::Pieces,
    update::TrainingReport,
    wire::{BlobReference, BlobStore, Held, Limits, Link, Partial, WireError, pull},
};
use tokio::task::{AbortHandle, JoinError, JoinSet, spawn_blocking};

use super::{
    Agent, AgentError, Moment,
    run::{Outcome, Run},
    stepping::{Stepped, step},
};
use crate::{Front, kept::Kept};

/// What the coordinator asked for.
#[derive(Clone, Debug)]
pub(super) struct Assignment {
    pub(super) round: u32,
    pub(super) task: Task,
    pub(super) card: Card,
    pub(super) sections: Vec<SectionHeader>,
    blob: BlobReference,
}

impl Assignment {
    /// Whether it is to train a model that is cut.
    fn is_of_steps(&self) -> bool {
        self.task == Task::Train && self.card.cut.is_some()
    }

    fn is(&self, round: u32, task: Task) -> bool {
        (self.round, self.task) == (round, task)
    }
}

/// An update that is ready to be fetched, until it is known whether it counts.
struct Update {
    round: u32,
    task: Task,
    report: TrainingReport,
    sections: Vec<SectionHeader>,
    held: Held,
}

/// Something that was done beside the conversation.
pub(super) enum Done {
    Pulled {
        connection: u64,
        partial: Partial,
        result: Result<Bytes, WireError>,
    },
    Worked {
        round: u32,
        task: Task,
        result: Result<Outcome, String>,
    },
    Stepped {
        connection: u64,
        round: u32,
        stepped: Stepped,
    },
}

pub(super) struct Work {
    id: String,
    run: Arc<Run>,
    kept: Kept,
    store: BlobStore,
    /// Counts connections: what was pulled on an earlier one has failed with it.
    connection: u64,
    /// What was asked on this connection and is not done.
    assignment: Option<Assignment>,
    /// A model that is being fetched, or what has come of one.
    pulling: Option<AbortHandle>,
    partial: Option<Partial>,
    /// The connection on which something was asked last.
    link: Option<Link>,
    /// The steps that are being made.
    stepping: Option<AbortHandle>,
    /// A front whose steps go on when the coordinator asks for them again.
    front: Option<Box<Front>>,
    /// A model that has come, until the thread that trains is free.
    fetched: Option<Bytes>,
    /// What is being worked on. It cannot be interrupted, and goes on when the connection is lost.
    working: Option<(u32, Task)>,
    update: Option<Update>,
    done: JoinSet<Done>,
}

impl Work {
    pub(super) fn begin(agent: &Agent, client: &ClientName, id: String, description: &str) -> Result<Self, AgentError> {
        let description = Description::parse(description, "the coordinator's description", &[])?;
        let description = Arc::new(description);
        let parts = Parts::of(&description)?;
        let holding = agent.supply.holding(&description, client)?;
        // Where fronts are kept, all clients have all units.
        let cut = description.cuts().of(client).filter(|_| description.keeps_fronts());
        let front = cut.map(|cut| Pieces::of(&description.model, cut)).transpose()?;
        let front = front.map(|pieces| pieces.of_client(&parts.whole().coordinates));
        let whole = SubModel::whole(parts.layout());
        let kept = Kept::open(agent.state.as_deref(), &id, client, &whole, front.as_ref())?;
        let run = Run {
            description,
            client: client.clone(),
            parts,
            holding,
            abandon: Arc::default(),
        };
        Ok(Self {
            id,
            run: Arc::new(run),
            kept,
            store: BlobStore::new(u64::MAX), // It holds one update.
            connection: 0,
            assignment: None,
            pulling: None,
            partial: None,
            link: None,
            stepping: None,
            front: None,
            fetched: None,
            working: None,
            update: None,
            done: JoinSet::new(),
        })
    }

    /// Tells the run from others.
    pub(super) fn run(&self) -> &str {
        &self.id
    }

    pub(super) fn limits(&self) -> Limits {
        Limits::from(&self.run.description.network)
    }

    /// What the coordinator may fetch.
    pub(super) fn store(&self) -> BlobStore {
        self.store.clone()
    }

    /// On a new connection: whatever was asked on another will be asked again, if it is still wanted.
    pub(super) fn resume(&mut self) -> Moment {
        self.connection += 1;
        self.assignment = None;
        self.fetched = None;
        self.pulling = None;
        let description = &self.run.description;
        Moment::Joined {
            name: description.name.clone(),
            rounds: description.rounds,
            examples: self.run.holding.share().indices.len(),
        }
    }

    /// The run is over: nothing of it is needed any more.
    pub(super) fn forget(&self) -> Result<(), AgentError> {
        Ok(self.kept.remove()?)
    }

    /// The coordinator asks for something. Gives what there is to say at once.
    #[allow(clippy::too_many_arguments)]
    pub(super) fn asked(
        &mut self,
        round: u32,
        task: Task,
        card: Card,
        sections: Vec<SectionHeader>,
        blob: BlobReference,
        link: &Link,
        observe: &mut (dyn FnMut(Moment) + Send),
    ) -> Option<ToCoordinator> {
        self.assignment = Some(Assignment {
            round,
            task,
            card,
            sections,
            blob,
        });
        self.fetched = None;
        if let Some(pulling) = self.pulling.take() {
            pulling.abort();
        }
        self.link = Some(link.clone());
        // Nobody answers the steps of a round that is over.
        if self.working.is_some_and(|working| working != (round, task))
            && let Some(stepping) = self.stepping.take()
        {
            stepping.abort();
            self.working = None;
        }
        // Asked again after a lost connection: what was done need not be done again.
        match &self.update {
            Some(update) if (update.round, update.task) == (round, task) => {
                return Some(update.offer());
            }
            _ => self.update = None,
        }
        if self.working == Some((round, task)) {
            return None;
        }
        if self.goes_on_alone(round) {
            self.fetched = Some(Bytes::new());
            self.work(observe);
            return None;
        }
        let begun = self.partial.take();
        let begun = begun.filter(|partial| partial.reference() == blob);
        let mut partial = match begun.map_or_else(|| Partial::new(blob, self.largest()), Ok) {
            Ok(partial) => partial,
            Err(error) => return Some(failed(round, task, error.to_string())),
        };
        let (link, connection) = (link.clone(), self.connection);
        let pulling = self.done.spawn(async move {
            let result = pull(&link, &mut partial).await;
            Done::Pulled {
                connection,
                partial,
                result,
            }
        });
        self.pulling = Some(pulling);
        None
    }

    /// Whether the client has all it needs for what was asked: a front whose steps go on, or one of its own.
    fn goes_on_alone(&mut self, round: u32) -> bool {
        self.front.take_if(|front| front.round() != round);
        let is_cut = self.assignment.as_ref().is_some_and(Assignment::is_of_steps);
        is_cut && (self.front.is_some() || Front::is_kept(self.kept.memory()))
    }

    /// The most bytes that a broadcast of this run may have.
    fn largest(&self) -> u64 {
        let Run { description, parts, .. } = &*self.run;
        let layout = parts.layout();
        let vectors = description.algorithm.broadcast_vectors().iter();
        let whole = &parts.whole().coordinates;
        let header = |name: &str, values: usize| SectionHeader {
            name: name.into(),
            encoding: Encoding::F32,
            values: values as u64,
        };
        let mut headers = vec![
            header("parameters", layout.parameter_count()),
            header("buffers", layout.buffer_count()),
        ];
        headers.extend(vectors.map(|(name, shape)| header(name, shape.length(whole))));
        packed_bytes(&headers).unwrap_or(0)
    }

    /// Waits until something is done beside the conversation.
    pub(super) async fn done(&mut self) -> Result<Done, JoinError> {
        match self.done.join_next().await {
            Some(done) => done,
            None => std::future::pending().await,
        }
    }

    /// Takes in what was done. Gives what there is to say of it.
    pub(super) fn finished(
        &mut self,
        done: Result<Done, JoinError>,
        observe: &mut (dyn FnMut(Moment) + Send),
    ) -> Result<Option<ToCoordinator>, AgentError> {
        let mut answer = None;
        match done {
            Ok(Done::Pulled {
                connection,
                partial,
                result,
            }) => {
                if connection == self.connection {
                    answer = self.pulled(partial, result)?;
                } else {
                    self.partial.get_or_insert(partial);
                }
            }
            Ok(Done::Worked { round, task, result }) => {
                self.working = None;
                answer = self.worked(round, task, result, observe)?;
            }
            Ok(Done::Stepped {
                connection,
                round,
                stepped,
            }) => {
                // Of a round that is over by now, nothing is wanted.
                if self.working == Some((round, Task::Train)) {
                    self.working = None;
                    self.stepping = None;
                    answer = self.stepped(connection, round, stepped, observe)?;
                }
            }
            Err(error) if error.is_cancelled() => {}
            Err(_) => {
                if let Some((round, task)) = self.working.take() {
                    answer = Some(failed(round, task, "training ended unexpectedly".into()));
                }
            }
        }
        self.work(observe);
        Ok(answer)
    }

    fn stepped(
        &mut self,
        connection: u64,
        round: u32,
        stepped: Stepped,
        observe: &mut (dyn FnMut(Moment) + Send),
    ) -> Result<Option<ToCoordinator>, AgentError> {
        match stepped {
            Stepped::Finished(front) => {
                let trained = front.finish().map_err(|error| error.to_string());
                let trained = trained.map(|(sealed, kept)| Outcome::trained(&sealed, Some(kept)));
                self.worked(round, Task::Train, trained, observe)
            }
            Stepped::Broken(front, error) => {
                self.front = Some(front);
                if connection == self.connection {
                    return Err(error.into());
                }
                // On the connection that is there now it was asked again, or will be.
                let is_asked = self
                    .assignment
                    .as_ref()
                    .is_some_and(|assignment| assignment.is(round, Task::Train));
                self.fetched = is_asked.then(Bytes::new).or(self.fetched.take());
                Ok(None)
            }
            Stepped::Failed(reason) => self.worked(round, Task::Train, Err(reason), observe),
        }
    }

    fn pulled(
        &mut self,
        partial: Partial,
        result: Result<Bytes, WireError>,
    ) -> Result<Option<ToCoordinator>, AgentError> {
        let wanted = self
            .assignment
            .as_ref()
            .filter(|assignment| assignment.blob == partial.reference());
        match (result, wanted) {
            (Ok(bytes), Some(_)) => self.fetched = Some(bytes),
            (Err(error), _) if error.is_transient() => {
                // The rest is fetched on the next connection.
                self.partial = Some(partial);
                return Err(error.into());
            }
            // It has gone on without us.
            (Err(WireError::BlobNotHeld { .. }), _) => self.assignment = None,
            (Err(error), Some(assignment)) => {
                let (round, task) = (assignment.round, assignment.task);
                self.assignment = None;
                return Ok(Some(failed(round, task, error.to_string())));
            }
            (_, None) => {}
        }
        Ok(None)
    }

    fn worked(
        &mut self,
        round: u32,
        task: Task,
        result: Result<Outcome, String>,
        observe: &mut (dyn FnMut(Moment) + Send),
    ) -> Result<Option<ToCoordinator>, AgentError> {
        let is_asked = match &self.assignment {
            Some(assignment) if assignment.is(round, task) => true,
            Some(_) => {
                observe(Moment::Dropped { round });
                return Ok(None);
            }
            None => false,
        };
        Ok(match result {
            Ok(Outcome::Trained {
                report,
                sections,
                packed,
                kept,
            }) => {
                if let Some(kept) = kept {
                    self.kept.propose(round, kept)?;
                }
                let held = self.store.hold(packed)?;
                let bytes = held.reference().bytes;
                observe(Moment::Offered { round, bytes });
                let update = self.update.insert(Update {
                    round,
                    task,
                    report,
                    sections,
                    held,
                });
                is_asked.then(|| update.offer())
            }
            Ok(Outcome::Evaluated(evaluation)) => is_asked.then_some(ToCoordinator::Evaluated { round, evaluation }),
            Err(reason) => is_asked.then(|| failed(round, task, reason)),
        })
    }

    /// Begins to work on what was fetched, if nothing else is being worked on.
    fn work(&mut self, observe: &mut (dyn FnMut(Moment) + Send)) {
        let (None, Some(assignment)) = (self.working, self.assignment.clone()) else {
            return;
        };
        let Some(bytes) = self.fetched.take() else {
            return;
        };
        let Assignment { round, task, .. } = assignment;
        let width = assignment.card.width;
        observe(Moment::Begun { round, task, width });
        self.working = Some((round, task));
        let (run, kept) = (self.run.clone(), self.kept.memory().clone());
        if let (true, Some(link)) = (assignment.is_of_steps(), self.link.clone()) {
            let connection = self.connection;
            let front = self.front.take_if(|front| front.round() == round);
            self.stepping = Some(self.done.spawn(async move {
                let begun = match front {
                    Some(front) => Ok(front),
                    None => {
                        let run = run.clone();
                        let front = spawn_blocking(move || run.front(&assignment, &bytes, &kept)).await;
                        front.unwrap_or_else(|error| Err(error.to_string())).map(Box::new)
                    }
                };
                let stepped = match begun {
                    Ok(front) => step(run, link, front).await,
                    Err(reason) => Stepped::Failed(reason),
                };
                Done::Stepped {
                    connection,
                    round,
                    stepped,
                }
            }));
            return;
        }
        self.done.spawn_blocking(move || Done::Worked {
            round,
            task,
            result: run.work(&assignment, &bytes, kept),
        });
    }

    pub(super) fn accepted(&mut self, round: u32, observe: &mut (dyn FnMut(Moment) + Send)) -> Result<(), AgentError> {
        self.kept.accept(round)?;
        if self.withdraw(round) {
            observe(Moment::Accepted { round });
        }
        Ok(())
    }

    pub(super) fn rejected(&mut self, round: u32, reason: Rejection, observe: &mut (dyn FnMut(Moment) + Send)) {
        // A second answer that is turned down says nothing about the first.
        if reason != Rejection::Duplicate {
            self.withdraw(round);
        }
        observe(Moment::Rejected { round, reason });
    }

    /// The update of a round need not be held ready any longer. Says whether it was.
    fn withdraw(&mut self, round: u32) -> bool {
        let is_its = |update: &Update| (update.round, update.task) == (round, Task::Train);
        let withdrawn = self.update.take_if(|update| is_its(update)).is_some();
        if withdrawn {
            self.assignment.take_if(|assignment| assignment.is(round, Task::Train));
        }
        withdrawn
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        self.run.abandon.store(true, Ordering::Relaxed);
    }
}

impl Update {
    fn offer(&self) -> ToCoordinator {
        ToCoordinator::Offer {
            round: self.round,
            task: self.task,
            report: self.report.clone(),
            sections: self.sections.clone(),
            blob: self.held.reference(),
        }
    }
}

fn failed(round: u32, task: Task, reason: String) -> ToCoordinator {
    ToCoordinator::Failed { round, task, reason }
}
