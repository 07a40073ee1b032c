//! Simulations of small federations on examples that are made up: 240 of four values each, of three classes.

#![allow(dead_code)] // Not every scenario looks at all that is left of a run.

use std::sync::Arc;

use selvedge_coordinator::{Outcome, Progress, RoundRecord};
use selvedge_data::{Dataset, Inputs, Targets};
use selvedge_protocols::{Description, ServerState};
use selvedge_simulations::Simulation;

/// What is left of a run.
pub(crate) struct Ran {
    pub(crate) state: ServerState,
    pub(crate) outcome: Outcome,
    pub(crate) records: Vec<RoundRecord>,
}

pub(crate) fn parse(description: &str, set: &[&str]) -> Result<Description, String> {
    let set: Vec<_> = set.iter().map(|text| text.parse().unwrap()).collect();
    Description::parse(description, "test", &set).map_err(|error| error.to_string())
}

pub(crate) fn dataset() -> Dataset {
    let inputs = (0..240 * 4).map(|at| (at as f32 * 0.37).sin()).collect();
    let labels = (0..240).map(|at| (at / 7 % 3) as u32).collect();
    Dataset::new(Inputs::Floats(inputs), vec![4], Targets::Classes { labels, classes: 3 }).unwrap()
}

pub(crate) fn run(description: &str, set: &[&str], workers: usize) -> Ran {
    let (description, dataset) = (Arc::new(parse(description, set).unwrap()), dataset());
    let dealt = description.deal(&dataset).unwrap();
    let simulation = Simulation {
        description,
        train: &dataset,
        test: Some(&dataset),
        shares: &dealt.shares,
        held_out: &dealt.held_out,
        workers,
        initial: None,
        resume: None,
        snapshots: false,
        stop: None,
    };
    let mut records = Vec::new();
    let (state, outcome) = simulation
        .run(&mut |progress| {
            if let Progress::Record { record, .. } = progress {
                records.push(record.clone());
            }
        })
        .unwrap();
    Ran {
        state,
        outcome,
        records,
    }
}
