//! What virtual clients are at, and how far the workers are with it.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use selvedge_coordinator::engine::Inspector;
use selvedge_protocols::{
    ClientName, Memory,
    message::{Evaluation, Task},
    sections::SectionHeader,
    update::{SealedUpdate, TrainingReport},
};

use super::agenda::Entry;
use crate::worker::Job;

/// What a client was asked last.
pub(super) struct Assignment {
    pub(super) round: u32,
    pub(super) task: Task,
    /// When its device is done with it.
    pub(super) finished: Duration,
    /// How long what is left of the answer takes on its way.
    pub(super) upload: Duration,
    /// What the client will say of its answer before it is fetched.
    pub(super) report: TrainingReport,
    pub(super) sections: Vec<SectionHeader>,
    /// What is due next of it.
    pub(super) entry: Option<Entry>,
    /// Opens the answer, once it is fetched.
    pub(super) inspector: Option<Arc<Inspector>>,
    work: Work,
    number: u64,
}

/// How far the workers are.
enum Work {
    Waiting(Box<Job>),
    Running,
    Ready(Came),
}

/// What came of a task.
pub(super) enum Came {
    Update(Result<(SealedUpdate, Memory), String>),
    Evaluation(Result<Evaluation, String>),
}

impl Assignment {
    /// What a client is asked, and what a worker has to do for it.
    pub(super) fn new(round: u32, task: Task, job: Job) -> Self {
        Self {
            round,
            task,
            finished: Duration::ZERO,
            upload: Duration::ZERO,
            report: TrainingReport::default(),
            sections: Vec::new(),
            entry: None,
            inspector: None,
            work: Work::Waiting(Box::new(job)),
            number: 0,
        }
    }

    pub(super) fn is(&self, round: u32, task: Task) -> bool {
        (self.round, self.task) == (round, task)
    }
}

/// What the clients were asked last, each its own.
///
/// When something is computed has nothing to do with when it happens: a job is given out when its result is wanted, and
/// before that while there is room for results that nobody wants yet.
#[derive(Default)]
pub(super) struct Assignments {
    of_clients: BTreeMap<ClientName, Assignment>,
    /// Whose results are wanted, in that order.
    wanted: VecDeque<ClientName>,
    /// What can be computed ahead, in the order in which it will be wanted.
    ahead: BTreeSet<(Duration, u64, ClientName)>,
    /// Updates that wait here.
    ready: usize,
    numbers: u64,
}

impl Assignments {
    pub(super) fn of(&mut self, client: &ClientName) -> Option<&mut Assignment> {
        self.of_clients.get_mut(client)
    }

    /// Gives a client something to do in place of what it was at. `ahead` says when its result will be wanted, if it will
    /// be at all; of equal times those that were asked first come first.
    pub(super) fn begin(&mut self, client: ClientName, mut assignment: Assignment, ahead: Option<Duration>) {
        self.numbers += 1;
        assignment.number = self.numbers;
        if let Some(at) = ahead {
            self.ahead.insert((at, self.numbers, client.clone()));
        }
        self.of_clients.insert(client, assignment);
    }

    /// Nothing more is wanted of what a client is at.
    pub(super) fn forget(&mut self, client: &ClientName) -> Option<Entry> {
        let assignment = self.of_clients.remove(client)?;
        if let Work::Ready(Came::Update(_)) = assignment.work {
            self.ready -= 1;
        }
        assignment.entry
    }

    /// The result of a client's task is wanted.
    pub(super) fn want(&mut self, client: &ClientName) {
        self.wanted.push_back(client.clone());
    }

    /// The result of a client's task is wanted before all others.
    pub(super) fn want_first(&mut self, client: &ClientName) {
        let assignment = self.of_clients.get(client);
        let is_waiting = assignment.is_some_and(|assignment| matches!(assignment.work, Work::Waiting(_)));
        if is_waiting && self.wanted.front() != Some(client) {
            self.wanted.push_front(client.clone());
        }
    }

    /// The next job: one whose result is wanted; or one ahead, if there is room for its result with those that are
    /// `running`.
    pub(super) fn next_job(&mut self, running: usize, window: usize) -> Option<Job> {
        while let Some(client) = self.wanted.pop_front() {
            if let Some(job) = self.start(&client, None) {
                return Some(job);
            }
        }
        while running + self.ready < window
            && let Some((_, number, client)) = self.ahead.pop_first()
        {
            if let Some(job) = self.start(&client, Some(number)) {
                return Some(job);
            }
        }
        None
    }

    fn start(&mut self, client: &ClientName, number: Option<u64>) -> Option<Job> {
        let assignment = self.of_clients.get_mut(client)?;
        let is_it = number.is_none_or(|number| number == assignment.number);
        if !is_it || !matches!(assignment.work, Work::Waiting(_)) {
            return None;
        }
        match std::mem::replace(&mut assignment.work, Work::Running) {
            Work::Waiting(job) => Some(*job),
            Work::Running | Work::Ready(_) => None,
        }
    }

    /// A worker is done. What is not wanted any more is dropped.
    pub(super) fn done(&mut self, client: &ClientName, round: u32, task: Task, came: Came) {
        let assignment = self.of_clients.get_mut(client);
        if let Some(assignment) = assignment.filter(|assignment| assignment.is(round, task)) {
            self.ready += usize::from(matches!(came, Came::Update(_)));
            assignment.work = Work::Ready(came);
        }
    }

    /// Whether what a client is at has been computed.
    pub(super) fn is_ready(&self, client: &ClientName) -> bool {
        let assignment = self.of_clients.get(client);
        assignment.is_none_or(|assignment| matches!(assignment.work, Work::Ready(_)))
    }

    /// Takes what a client has done, if it has been computed.
    pub(super) fn take(&mut self, client: &ClientName) -> Option<(Assignment, Came)> {
        let mut assignment = self.of_clients.remove(client)?;
        match std::mem::replace(&mut assignment.work, Work::Running) {
            Work::Ready(came) => {
                self.ready -= usize::from(matches!(came, Came::Update(_)));
                Some((assignment, came))
            }
            Work::Waiting(_) | Work::Running => None,
        }
    }

    /// Nothing is wanted of anybody any more; what was due of it.
    pub(super) fn end(&mut self) -> Vec<Entry> {
        self.wanted.clear();
        self.ahead.clear();
        self.ready = 0;
        let assignments = std::mem::take(&mut self.of_clients);
        assignments.into_values().filter_map(|one| one.entry).collect()
    }
}
