//! Does what a client's duty says: pulls, trains, makes steps, keeps, holds. It goes on from connection to connection.

use std::sync::{Arc, atomic::Ordering};

use selvedge_models::{Pieces, SubModel};
use selvedge_protocols::{
    ClientName, Description,
    message::{Task, ToCoordinator},
    wire::{BlobStore, Held, Limits, Link, pull},
};
use tokio::task::{AbortHandle, JoinSet};

use super::{
    Agent, AgentError, Moment,
    assignment::kept_before,
    duty::Duty,
    event::{Action, Event},
    run::Run,
    stepping::{Stepped, step},
    training_thread::TrainingThread,
};
use crate::{
    Front,
    kept::{Damaged, Kept},
};

pub(super) struct Work {
    id: String,
    /// Which beginning of the coordinator it was that was met last.
    beginning: u64,
    run: Arc<Run>,
    duty: Duty,
    kept: Kept,
    store: BlobStore,
    /// The update that is held, and how it is offered.
    held: Option<(Held, ToCoordinator)>,
    /// The connection that is there now.
    link: Link,
    /// The last pull, and what was begun last to be worked on.
    pulling: Option<AbortHandle>,
    working: Option<(u64, AbortHandle)>,
    /// What is done beside the conversation: a pull on this connection and those that end with an earlier one, and what is
    /// worked on.
    tasks: JoinSet<Event>,
}

impl Work {
    pub(super) fn begin(
        agent: &Agent,
        client: &ClientName,
        link: &Link,
        (id, beginning): (String, u64),
        description: &str,
    ) -> Result<Self, AgentError> {
        let description = Description::parse_with(&agent.registry, description, "the coordinator's description", &[])?;
        let description = Arc::new(description);
        let parts = description.parts()?;
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
            thread: TrainingThread::default(),
        };
        Ok(Self {
            id,
            beginning,
            duty: Duty::new(run.largest_broadcast()),
            run: Arc::new(run),
            kept,
            store: BlobStore::new(u64::MAX), // It holds one update.
            held: None,
            link: link.clone(),
            pulling: None,
            working: None,
            tasks: JoinSet::new(),
        })
    }

    /// Tells the run from others.
    pub(super) fn run(&self) -> &str {
        &self.id
    }

    /// What stays the same from round to round.
    pub(super) fn what_stays(&self) -> Arc<Run> {
        self.run.clone()
    }

    pub(super) fn limits(&self) -> Limits {
        Limits::from(&self.run.description.network)
    }

    /// What the coordinator may fetch.
    pub(super) fn store(&self) -> BlobStore {
        self.store.clone()
    }

    /// What is kept and damaged.
    pub(super) fn damaged(&self) -> impl Iterator<Item = Moment> {
        let damaged = self.kept.damaged().iter().cloned();
        damaged.map(|Damaged { path, detail, newest }| Moment::Damaged { path, detail, newest })
    }

    /// Whether the client keeps a front of its own, with which it trains in this round.
    pub(super) fn front_is_kept(&self, round: u32) -> bool {
        Front::is_kept(self.kept.memory_for(round))
    }

    /// Of which round is what is kept, for this task.
    pub(super) fn kept(&self, round: u32, task: Task) -> u32 {
        self.kept.round_for(kept_before(round, task))
    }

    /// Takes note of which beginning of the coordinator this is. Says whether it is another than before.
    pub(super) fn meet(&mut self, beginning: u64) -> bool {
        std::mem::replace(&mut self.beginning, beginning) != beginning
    }

    /// What is to be done from now on is done on this connection.
    pub(super) fn attach(&mut self, link: &Link) -> Moment {
        self.link = link.clone();
        let description = &self.run.description;
        Moment::Joined {
            name: description.name.clone(),
            rounds: description.rounds,
            examples: self.run.holding.share().indices.len(),
        }
    }

    /// Waits until something is done beside the conversation. May be cancelled at any time.
    pub(super) async fn done(&mut self) -> Event {
        loop {
            match self.tasks.join_next().await {
                None => std::future::pending().await,
                Some(Ok(event)) => return event,
                // It was stopped, or has panicked.
                Some(Err(error)) => {
                    let is_its = |(_, task): &mut (u64, AbortHandle)| task.id() == error.id();
                    if let Some((number, _)) = self.working.take_if(is_its) {
                        return Event::Panicked { number };
                    }
                }
            }
        }
    }

    /// Takes in what happened, and does what is to be done. Gives what there is to say to the coordinator.
    pub(super) fn hear(
        &mut self,
        event: Event,
        observe: &mut (dyn FnMut(Moment) + Send),
    ) -> Result<Option<ToCoordinator>, AgentError> {
        let mut message = None;
        for action in self.duty.handle(event) {
            match action {
                Action::Pull { number, mut partial } => {
                    let link = self.link.clone();
                    self.pulling = Some(self.tasks.spawn(async move {
                        let result = pull(&link, &mut partial).await;
                        Event::Pulled {
                            number,
                            partial,
                            result,
                        }
                    }));
                }
                Action::StopPulling => {
                    if let Some(pulling) = self.pulling.take() {
                        pulling.abort();
                    }
                }
                Action::Work {
                    number,
                    assignment,
                    broadcast,
                } => {
                    let before = kept_before(assignment.round, assignment.task);
                    let (run, kept) = (self.run.clone(), self.kept.memory_for(before).clone());
                    let task = self.tasks.spawn(async move {
                        let thread = run.thread.clone();
                        match thread.run(move || run.work(&assignment, &broadcast, kept)).await {
                            Ok(result) => Event::Worked { number, result },
                            Err(_) => Event::Panicked { number },
                        }
                    });
                    self.working = Some((number, task));
                }
                Action::BeginSteps {
                    number,
                    assignment,
                    broadcast,
                } => {
                    let (run, kept) = (self.run.clone(), self.kept.memory_for(assignment.round).clone());
                    self.step(number, async move {
                        let thread = run.thread.clone();
                        let front = thread.run(move || run.front(&assignment, &broadcast, &kept)).await;
                        front.unwrap_or_else(|error| Err(error.to_string())).map(Box::new)
                    });
                }
                Action::ResumeSteps { number, front } => self.step(number, async { Ok(front) }),
                Action::StopSteps => {
                    if let Some((_, steps)) = self.working.take() {
                        steps.abort();
                    }
                }
                Action::Propose { round, kept } => self.kept.propose(round, kept)?,
                Action::Accept { round, resumable } => self.kept.accept(round, &resumable)?,
                Action::Hold { round, task, update } => {
                    let held = self.store.hold(update.bytes)?;
                    let offer = ToCoordinator::Offer {
                        round,
                        task,
                        report: update.report,
                        sections: update.sections,
                        blob: held.reference(),
                    };
                    self.held = Some((held, offer));
                }
                Action::Offer => message = self.held.as_ref().map(|(_, offer)| offer.clone()),
                Action::LetGo => self.held = None,
                Action::Say(said) => message = Some(said),
                Action::Tell(moment) => observe(moment),
                Action::HangUp(error) => return Err(error.into()),
            }
        }
        Ok(message)
    }

    /// Makes steps with a front, once that is there.
    fn step(&mut self, number: u64, front: impl Future<Output = Result<Box<Front>, String>> + Send + 'static) {
        let (run, link) = (self.run.clone(), self.link.clone());
        let task = self.tasks.spawn(async move {
            let stepped = match front.await {
                Ok(front) => step(run, link, front).await,
                Err(reason) => Stepped::Ended(Err(reason)),
            };
            match stepped {
                Stepped::Ended(result) => Event::Worked { number, result },
                Stepped::Broken(front, error) => Event::Broken { number, front, error },
            }
        });
        self.working = Some((number, task));
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        self.run.abandon.store(true, Ordering::Relaxed);
    }
}
