//! *stream*: clients are asked one by one, and the model moves every few updates. Nguyen et al., *Federated Learning with
//! Buffered Asynchronous Aggregation*, AISTATS 2022.
//!
//! A round of such a run is a move of the model. The clients that are under way were asked in rounds of their own: the round
//! says which version of the model a client was sent, and how stale its update is.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use selvedge_protocols::{
    Card, ClientName, Purpose, Rejection,
    evaluation::Tested,
    message::{Evaluation, Task},
    update::expected_sections,
};

use super::{
    Action, GlobalModel, Opened, Outcome,
    cohort::{Cohort, Status},
    collection::Collection,
    evaluating::Evaluating,
    filling::Filling,
    gathering::Gathering,
    hands::Hands,
    phase::{Finished, Moment, Next, Offer, Phase},
    run::Run,
    training::Closed,
};
use crate::{Trial, record::RoundRecord};

/// Waits until enough clients are there for clients to be asked one by one.
pub(super) fn gather(since: Duration) -> Box<dyn Phase> {
    Box::new(Gathering::new(since, open))
}

fn open((): (), moment: &mut Moment<'_>) -> Next {
    moment.run.round += 1;
    Next::Phase(Box::new(Streaming::open(moment)))
}

/// A run whose clients are asked one by one.
struct Streaming {
    /// By how many updates the model moves.
    size: usize,
    maximum_staleness: u32,
    /// The model that clients are sent now.
    model: Arc<GlobalModel>,
    /// Those who were asked and have not answered, each a cohort of its own; the round of its record is that in which it
    /// was asked.
    under_way: BTreeMap<ClientName, Collection>,
    /// Those who were asked since the model last moved, or whose updates it has not moved by yet: they have to do with this
    /// version already, and what they keep depends on what becomes of it.
    asked: BTreeSet<ClientName>,
    /// How often clients were drawn since the model last moved.
    draws: u32,
    /// Since when there may be somebody to ask.
    vacant: Option<Duration>,
    /// Whether all that came at that time was heard, so that whom is asked does not depend on who came first.
    is_heard: bool,
    /// Whose updates wait to be fetched, and whose are here, in the order in which they came.
    offered: VecDeque<ClientName>,
    arrived: VecDeque<ClientName>,
    filling: Filling,
    /// The evaluation of the last move, while clients train on, and who takes part in it.
    evaluating: Option<Box<dyn Phase>>,
    evaluators: BTreeSet<ClientName>,
    /// What follows once nothing is left to be done here.
    end: Option<End>,
}

#[derive(Clone, Copy)]
enum End {
    Completed,
    TooFewClients,
}

impl Streaming {
    fn open(moment: &Moment<'_>) -> Self {
        let run = &*moment.run;
        let buffer = run.description.buffer;
        Self {
            size: run.description.updates_at_a_time(),
            maximum_staleness: buffer.map_or(0, |buffer| buffer.maximum_staleness),
            model: Arc::new(run.model()),
            under_way: BTreeMap::new(),
            asked: BTreeSet::new(),
            draws: 0,
            vacant: Some(moment.now),
            is_heard: true,
            offered: VecDeque::new(),
            arrived: VecDeque::new(),
            filling: Filling::begin(run, moment.now),
            evaluating: None,
            evaluators: BTreeSet::new(),
            end: None,
        }
    }

    /// Asks as many as there is room for.
    fn ask(&mut self, moment: &mut Moment<'_>) {
        self.vacant = None;
        self.is_heard = false;
        let run = &mut *moment.run;
        let room = run.description.cohort_size().saturating_sub(self.under_way.len());
        if room == 0 || self.end.is_some() {
            return;
        }
        let mut busy = &self.asked | &self.evaluators;
        busy.extend(self.under_way.keys().cloned());
        let seed = run.description.seed;
        // With nobody busy these are the clients of a synchronous round.
        let mut random = match self.draws {
            0 => seed.round_stream(Purpose::Selection, run.round),
            draws => seed.part_stream(Purpose::Selection, run.round, draws),
        };
        self.draws += 1;
        let names = run.roster.draw(room, &busy, &mut random);
        let cards = run.deal(&names);
        for (client, card) in names.into_iter().zip(cards) {
            self.ask_one(client, card, moment);
        }
    }

    fn ask_one(&mut self, client: ClientName, card: Card, moment: &mut Moment<'_>) {
        let run = &*moment.run;
        let description = run.description.clone();
        let (hands, unplayable) = Hands::new(vec![card], &description, &self.model, |part| {
            let (algorithm, filters) = (&*description.algorithm, &description.filters);
            Ok(expected_sections(&part.coordinates, algorithm, filters))
        });
        let mut collection = Collection {
            task: Task::Train,
            cohort: Cohort::new(vec![client.clone()], moment.now, run.allowed()),
            hands,
            model: self.model.clone(),
            description,
            record: RoundRecord {
                round: run.round,
                ..RoundRecord::default()
            },
            gone: Vec::new(),
        };
        collection.open(unplayable, &BTreeSet::new(), moment.actions);
        self.filling.record.absorb(&mut collection.record);
        self.asked.insert(client.clone());
        self.under_way.insert(client, collection);
    }

    /// Gives up those whose time is over or who have failed, folds what has come as long as there is room for it, and asks
    /// for what is offered.
    fn collect(&mut self, moment: &mut Moment<'_>) {
        let (now, grace) = (moment.now, moment.run.grace());
        let mut settled = Vec::new();
        let mut coming = 0;
        for (client, collection) in &mut self.under_way {
            let expired = collection.cohort.next_deadline().is_some_and(|due| now >= due);
            if expired && let Some(reason) = collection.expire(now, grace) {
                moment.actions.push(answer(client, collection, Err(reason)));
            }
            self.filling.record.absorb(&mut collection.record);
            match status(collection) {
                Some(Status::Failed) => settled.push(client.clone()),
                Some(Status::Receiving { .. } | Status::Held(_)) => coming += 1,
                _ => {}
            }
        }
        for client in &settled {
            self.under_way.remove(client);
            self.vacate(now);
        }
        while self.filling.count() < self.size
            && let Some(client) = self.arrived.pop_front()
        {
            let Some(collection) = self.under_way.get_mut(&client) else {
                continue;
            };
            if let Some((_, opened)) = collection.cohort.take_next() {
                let staleness = moment.run.round.saturating_sub(collection.record.round);
                self.filling.fold(&client, collection, opened, &self.model, staleness);
                self.under_way.remove(&client);
                self.asked.insert(client);
                coming -= 1;
                self.vacate(now);
            }
        }
        let window = moment.run.window;
        while coming < window
            && let Some(client) = self.offered.pop_front()
        {
            if let Some(collection) = self.under_way.get_mut(&client)
                && matches!(status(collection), Some(Status::Offered))
            {
                collection.ask_for(1, now, moment.actions);
                coming += 1;
            }
        }
    }

    /// Somebody has gone, and another can be asked.
    fn vacate(&mut self, now: Duration) {
        self.vacant.get_or_insert(now);
    }

    /// Whether nobody is under way any more, nor can be asked before the model moves.
    fn is_exhausted(&self) -> bool {
        self.under_way.is_empty() && self.vacant.is_none() && self.evaluating.is_none()
    }

    /// Moves the model by what there is, and has the new one evaluated.
    fn close(&mut self, moment: &mut Moment<'_>) {
        let filling = std::mem::replace(&mut self.filling, Filling::begin(moment.run, moment.now));
        let versions = filling.versions();
        let mut closed = filling.close(moment, &self.model, self.size);
        let run = &mut *moment.run;
        run.apply(&mut closed);
        for (client, round) in versions {
            let verdict = match closed.record.applied {
                true => Ok(()),
                false => Err(Rejection::NotApplied),
            };
            moment.actions.push(Action::Answer { client, round, verdict });
        }
        self.asked.clear();
        self.draws = 0;
        let is_last = run.round == run.description.rounds;
        self.end = match is_last {
            true => Some(End::Completed),
            false if self.under_way.is_empty() && run.roster.len() < run.clients_needed() => Some(End::TooFewClients),
            false => None,
        };
        if self.end.is_none() {
            run.round += 1;
            self.filling.record.round = run.round;
            self.model = Arc::new(run.model());
            self.vacate(moment.now);
            self.give_up_stale(moment);
        }
        self.evaluate(closed, moment);
    }

    /// Of those whose updates would be too stale by now, nothing more is expected, and their versions of the model are not
    /// kept.
    fn give_up_stale(&mut self, moment: &mut Moment<'_>) {
        let (now, most) = (moment.run.round, self.maximum_staleness);
        for (client, collection) in &mut self.under_way {
            let staleness = now.saturating_sub(collection.record.round);
            if staleness > most {
                let reason = Rejection::Stale { staleness, most };
                moment.actions.push(answer(client, collection, Err(reason.clone())));
                collection.reject(client, &reason);
            }
        }
    }

    fn evaluate(&mut self, closed: Closed, moment: &mut Moment<'_>) {
        let run = &*moment.run;
        let description = &run.description;
        if !description.is_evaluated(closed.record.round) {
            recorded(closed.recorded(moment.now), moment);
            return;
        }
        let names: Vec<ClientName> = match description.evaluation.by_clients {
            true => closed
                .cohort
                .names()
                .filter(|name| run.roster.contains(name))
                .cloned()
                .collect(),
            false => Vec::new(),
        };
        let trials = run.trials();
        if names.is_empty() && trials.is_empty() {
            recorded(closed.recorded(moment.now), moment);
            return;
        }
        self.evaluators = names.iter().cloned().collect();
        let cohort = Cohort::new(names, moment.now, run.allowed());
        let model = Arc::new(run.new_model());
        let evaluating = Evaluating::open(moment, closed, cohort, trials, model, recorded);
        self.evaluating = Some(Box::new(evaluating));
    }

    /// Goes on with the evaluation that is under way.
    fn evaluate_on(&mut self, moment: &mut Moment<'_>) {
        let Some(evaluating) = self.evaluating.take() else {
            return;
        };
        match evaluating.advance(moment) {
            Next::Stay(evaluating) => self.evaluating = Some(evaluating),
            Next::Phase(_) | Next::Finish(_) => {
                self.evaluators.clear();
                self.vacate(moment.now);
            }
        }
    }
}

/// Writes a round down. The evaluation is over, and what follows it is not its affair.
fn recorded(record: RoundRecord, moment: &mut Moment<'_>) -> Next {
    moment.actions.push(Action::Record(Box::new(record)));
    Next::Phase(Box::new(Finished))
}

fn status(collection: &Collection) -> Option<&Status<Opened>> {
    Some(&collection.cohort.members.first()?.status)
}

fn answer(client: &ClientName, collection: &Collection, verdict: Result<(), Rejection>) -> Action {
    Action::Answer {
        client: client.clone(),
        round: collection.record.round,
        verdict,
    }
}

impl Phase for Streaming {
    fn offered(&mut self, moment: &mut Moment<'_>, client: &ClientName, offer: &Offer) -> Result<(), Rejection> {
        let Some(collection) = self.under_way.get_mut(client).filter(|_| offer.task == Task::Train) else {
            let reason = match self.filling.has(client, offer.round) {
                true => Rejection::Duplicate,
                false => moment.run.wrong_round(offer.round),
            };
            self.filling.record.turn_down(&reason);
            return Err(reason);
        };
        let verdict = collection.offered(client, offer);
        if verdict.is_ok() {
            self.offered.push_back(client.clone());
        }
        verdict
    }

    fn received(
        &mut self,
        client: &ClientName,
        round: u32,
        task: Task,
        update: Result<Opened, Rejection>,
    ) -> Result<(), Rejection> {
        let Some(collection) = self.under_way.get_mut(client) else {
            return Ok(());
        };
        let was_held = matches!(status(collection), Some(Status::Held(_)));
        collection.received(client, round, task, update)?;
        if !was_held && matches!(status(collection), Some(Status::Held(_))) {
            self.arrived.push_back(client.clone());
        }
        Ok(())
    }

    fn failed(&mut self, client: &ClientName, round: u32, task: Task, reason: &Rejection) {
        if let Some(collection) = self.under_way.get_mut(client) {
            collection.failed(client, round, task, reason);
        }
        if let Some(evaluating) = &mut self.evaluating {
            evaluating.failed(client, round, task, reason);
        }
    }

    fn evaluated(
        &mut self,
        moment: &mut Moment<'_>,
        client: &ClientName,
        round: u32,
        evaluation: Evaluation,
    ) -> Result<(), Rejection> {
        match &mut self.evaluating {
            Some(evaluating) => evaluating.evaluated(moment, client, round, evaluation),
            None => Err(moment.run.wrong_round(round)),
        }
    }

    fn tested(&mut self, round: u32, trial: &Trial, evaluation: Result<Option<Tested>, String>) {
        if let Some(evaluating) = &mut self.evaluating {
            evaluating.tested(round, trial, evaluation);
        }
    }

    fn left(&mut self, moment: &mut Moment<'_>, client: &ClientName, for_good: bool) {
        if let Some(collection) = self.under_way.get_mut(client) {
            collection.left(moment, client, for_good);
        }
        if let Some(evaluating) = &mut self.evaluating {
            evaluating.left(moment, client, for_good);
        }
    }

    fn joined(&mut self, moment: &mut Moment<'_>, client: &ClientName) {
        if let Some(collection) = self.under_way.get_mut(client) {
            moment.actions.extend(collection.rejoined(client));
        }
        if let Some(evaluating) = &mut self.evaluating {
            evaluating.joined(moment, client);
        }
        self.vacate(moment.now);
    }

    fn ticked(&mut self, now: Duration) {
        self.is_heard = self.vacant.is_some_and(|since| now >= since);
    }

    fn due(&self, run: &Run) -> Option<Duration> {
        let of_evaluation = self.evaluating.as_ref().and_then(|evaluating| evaluating.due(run));
        if self.end.is_some() {
            return of_evaluation;
        }
        let deadlines = self.under_way.values().filter_map(|one| one.cohort.next_deadline());
        deadlines.chain(of_evaluation).chain(self.vacant).min()
    }

    fn advance(mut self: Box<Self>, moment: &mut Moment<'_>) -> Next {
        loop {
            self.evaluate_on(moment);
            match self.end {
                Some(_) if self.evaluating.is_some() => return Next::Stay(self),
                Some(End::Completed) => return Next::Finish(Outcome::Completed),
                Some(End::TooFewClients) => return Next::Phase(gather(moment.now)),
                None => {}
            }
            self.collect(moment);
            let is_full = self.filling.count() >= self.size;
            if is_full && self.evaluating.is_none() || self.is_exhausted() {
                self.close(moment);
            } else if self.is_heard && self.vacant.is_some() {
                self.ask(moment);
            } else {
                return Next::Stay(self);
            }
        }
    }

    /// What was moved is recorded, though its evaluation may not be complete.
    fn stop(mut self: Box<Self>, moment: &mut Moment<'_>) -> Next {
        match self.evaluating.take() {
            Some(evaluating) => evaluating.stop(moment),
            None => Next::Finish(Outcome::Stopped),
        }
    }
}
