//! Synchronous rounds, as one way in which phases follow one another: *gather* → *train* → *calibrate* (where batch norm is
//! static) → *evaluate* (in the rounds that are evaluated) → record, and again.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use selvedge_protocols::{ClientName, Rejection, Width};

use super::{
    Action, Fronts,
    calibrating::Calibrating,
    cohort::Cohort,
    evaluating::Evaluating,
    gathering::Gathering,
    phase::{Moment, Next, Phase},
    training::{Closed, Training},
};
use crate::RoundRecord;

/// Waits for the clients of a round.
pub(super) fn gather(since: Duration) -> Box<dyn Phase> {
    Box::new(Gathering::new(since, train))
}

/// Opens a round: selects its cohort and asks it to train.
fn train((): (), moment: &mut Moment<'_>) -> Next {
    let run = &mut *moment.run;
    run.round += 1;
    let description = &run.description;
    let names = run
        .roster
        .select(description.cohort_size(), description.seed, run.round);
    let cards = run.deal(&names);
    let model = Arc::new(run.model());
    let cohort = Cohort::new(names, moment.now, run.allowed());
    Next::Phase(Box::new(Training::open(moment, cohort, cards, model, trained)))
}

/// Moves the model by what the updates came to, and goes on to what is to be done with the new one.
fn trained(mut closed: Closed, moment: &mut Moment<'_>) -> Next {
    let run = &mut *moment.run;
    run.apply(&mut closed);
    let round = run.round;
    let fronts = std::mem::take(&mut closed.fronts);
    if run.description.is_evaluated(round) {
        run.fronts = Arc::new(if closed.record.applied { fronts } else { Fronts::new() });
    }
    if let (true, Some(leaders)) = (closed.record.applied, closed.leaders.take()) {
        run.leaders = Arc::new(leaders);
        let keeps = run.description.keeps_fronts();
        run.has_front.extend(closed.cohort.taken().filter(|_| keeps).cloned());
    }
    // Only now is it known whether the updates count: what clients keep must not run ahead of the model.
    moment
        .actions
        .extend(closed.cohort.taken().map(|client| Action::Answer {
            client: client.clone(),
            round,
            verdict: match closed.record.applied {
                true => Ok(()),
                false => Err(Rejection::NotApplied),
            },
        }));
    match run.description.is_evaluated(round) {
        true if run.is_calibrated() => calibrate(closed, moment),
        true => evaluate((closed, BTreeMap::new()), moment),
        false => record(closed.recorded(moment.now), moment),
    }
}

/// Has those who have trained calibrate a specimen of their width.
fn calibrate(closed: Closed, moment: &mut Moment<'_>) -> Next {
    let run = &*moment.run;
    let taken = closed.cohort.taken().filter(|name| run.roster.contains(name));
    let names: Vec<ClientName> = taken.cloned().collect();
    if names.is_empty() {
        return evaluate((closed, BTreeMap::new()), moment);
    }
    let positions = names.iter().filter_map(|name| closed.cohort.position(name));
    let cards = positions.map(|at| run.specimen(closed.hands.width(at))).collect();
    let cohort = Cohort::new(names, moment.now, run.allowed());
    let model = Arc::new(run.new_model());
    Next::Phase(Box::new(Calibrating::open(
        moment, closed, cohort, cards, model, evaluate,
    )))
}

/// Has the new model evaluated by those who are there.
fn evaluate((mut closed, statistics): (Closed, BTreeMap<Width, Vec<f32>>), moment: &mut Moment<'_>) -> Next {
    let run = &mut *moment.run;
    let names: Vec<ClientName> = match run.description.evaluation.by_clients {
        true => closed
            .cohort
            .names()
            .filter(|name| run.roster.contains(name))
            .cloned()
            .collect(),
        false => Vec::new(),
    };
    let mut trials = run.trials();
    if run.is_calibrated() {
        trials.retain(|(trial, _)| statistics.contains_key(&trial.width()));
        if !statistics.contains_key(&Width::WHOLE) {
            let note =
                "no client that holds the whole model has taken its batch norms' statistics: it is not evaluated";
            closed.record.remark(note.into());
        }
        if let (true, Some(whole)) = (closed.record.applied, statistics.get(&Width::WHOLE)) {
            Arc::make_mut(&mut run.state.weights).buffers.clone_from(whole);
        }
    }
    if names.is_empty() && trials.is_empty() {
        return record(closed.recorded(moment.now), moment);
    }
    let cohort = Cohort::new(names, moment.now, run.allowed());
    let model = run.new_model().calibrated(statistics).with_fronts(run.fronts.clone());
    let model = Arc::new(model);
    Next::Phase(Box::new(Evaluating::open(
        moment, closed, cohort, trials, model, record,
    )))
}

/// Writes a round down, and waits for the clients of the next.
fn record(record: RoundRecord, moment: &mut Moment<'_>) -> Next {
    moment.actions.push(Action::Record(Box::new(record)));
    if moment.run.keeps_snapshots {
        moment.actions.push(Action::Snapshot(Arc::new(moment.run.snapshot())));
    }
    Next::Phase(gather(moment.now))
}
