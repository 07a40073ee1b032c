//! What an agent is at, from connection to connection: fetching a model, training it, holding its update ready.

use std::sync::{Arc, atomic::Ordering};

use bytes::Bytes;
use selvedge_protocols::{
    Card, ClientName, Description, Parts, Rejection,
    message::{Task, ToCoordinator},
    sections::{Encoding, SectionHeader, packed_bytes},
    update::TrainingReport,
    wire::{BlobReference, BlobStore, Held, Limits, Link, Partial, WireError, pull},
};
use tokio::task::{AbortHandle, JoinError, JoinSet};

use super::{
    Agent, AgentError, Moment,
    run::{Outcome, Run},
};
use crate::kept::Kept;

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
        let kept = Kept::open(agent.state.as_deref(), &id, client, parts.layout().parameter_count())?;
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
    pub(super) fn asked(
        &mut self,
        round: u32,
        task: Task,
        card: Card,
        sections: Vec<SectionHeader>,
        blob: BlobReference,
        link: &Link,
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

    /// The most bytes that a broadcast of this run may have.
    fn largest(&self) -> u64 {
        let Run { description, parts, .. } = &*self.run;
        let layout = parts.layout();
        let parameters = layout.parameter_count();
        let vectors = description.algorithm.broadcast_vectors();
        let header = |&name: &&str, values: usize| SectionHeader {
            name: name.into(),
            encoding: Encoding::F32,
            values: values as u64,
        };
        let mut headers = vec![
            header(&"parameters", parameters),
            header(&"buffers", layout.buffer_count()),
        ];
        headers.extend(vectors.iter().map(|name| header(name, parameters)));
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
        let (run, kept) = (self.run.clone(), self.kept.vectors().clone());
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
            report: self.report,
            sections: self.sections.clone(),
            blob: self.held.reference(),
        }
    }
}

fn failed(round: u32, task: Task, reason: String) -> ToCoordinator {
    ToCoordinator::Failed { round, task, reason }
}
