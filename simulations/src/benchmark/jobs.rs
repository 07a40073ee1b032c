//! Whole rounds, their local steps in a bare loop, and aggregation.

use std::{
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use candle_core::{Device, Tensor};
use rand::Rng;
use selvedge_coordinator::Progress;
use selvedge_data::{Dataset, Inputs, Targets};
use selvedge_models::{Layout, Mode, ModelError, Network, OptimiserDescription, Preset, SubModel, Weights};
use selvedge_protocols::{
    Dealt, Description, Metrics, Occasion, Seed, Trained, Update,
    aggregation::{AGGREGATION, AggregationRule, Contribution, Mean},
};

use super::{
    BATCH, BenchmarkError,
    kernels::{random, step},
    turns::{Figure, timed},
};
use crate::{Simulation, SimulationError};

/// Examples of each client.
const SHARE: usize = 600;

/// A federation on random images.
pub(super) struct Job {
    pub(super) model: Preset,
    pub(super) clients: usize,
    rounds: u32,
    description: Arc<Description>,
    dataset: Dataset,
    dealt: Dealt,
}

impl Job {
    pub(super) fn new(model: Preset, clients: usize, rounds: u32) -> Result<Self, BenchmarkError> {
        let text = format!(
            "name = 'benchmark'\nrounds = {rounds}\nclients = {clients}\n\
             [data]\nsource = 'fashion-mnist-small'\n[partition]\nkind = 'iid'\n[model]\npreset = '{model}'\n\
             [training]\nepochs = 1\nbatch_size = {BATCH}\n[training.optimiser]\nkind = 'sgd'\nlearning_rate = 1e-4"
        );
        let description = Description::parse(&text, "the benchmark", &[])?;
        let mut rng = random(4);
        let examples = clients * SHARE;
        let pixels = (0..examples * 28 * 28).map(|_| rng.random()).collect();
        let labels = (0..examples).map(|_| rng.random_range(0..10)).collect();
        let dataset = Dataset::new(
            Inputs::Bytes(pixels),
            vec![1, 28, 28],
            Targets::Classes { labels, classes: 10 },
        )?;
        Ok(Self {
            model,
            clients,
            rounds,
            dealt: description.deal(&dataset)?,
            description: Arc::new(description),
            dataset,
        })
    }

    /// The best time of a round's local steps alone, shared evenly among `workers` threads, each on the batches of one
    /// client, over and over.
    pub(super) fn bare(&self, workers: usize) -> Result<Duration, BenchmarkError> {
        let model = &self.description.model;
        let initial = Weights::initial(model, &mut random(5))?;
        let batches = self.batches()?;
        let mut networks = (0..workers)
            .map(|_| {
                let mut network = Network::new(model, &Device::Cpu)?;
                network.load(&initial)?;
                Ok(network)
            })
            .collect::<Result<Vec<_>, ModelError>>()?;
        let steps = self.clients * batches.len() / workers;
        let work = |network: &mut Network| -> Result<(), BenchmarkError> {
            let rng = random(5);
            for (input, classes) in batches.iter().cycle().take(steps) {
                step(network, input, classes, &mut Mode::Train(&rng))?;
            }
            Ok(())
        };
        let work = &work;
        let mut best = Figure::new();
        for _ in 0..self.rounds {
            best.take(timed(|| {
                thread::scope(|scope| {
                    let threads: Vec<_> = networks
                        .iter_mut()
                        .map(|network| scope.spawn(move || work(network)))
                        .collect();
                    let ended = threads.into_iter().map(|thread| thread.join());
                    ended
                        .map(|result| result.unwrap_or(Err(SimulationError::WorkerEnded.into())))
                        .fold(Ok(()), Result::and)
                })
            })?);
        }
        Ok(best.time())
    }

    /// The batches of the first client.
    fn batches(&self) -> Result<Vec<(Tensor, Vec<u32>)>, BenchmarkError> {
        let batch = |examples: &[u32]| {
            let (mut pixels, mut classes) = (Vec::new(), Vec::new());
            self.dataset.gather_inputs(examples, &mut pixels);
            self.dataset.gather_classes(examples, &mut classes)?;
            let input = Tensor::from_vec(pixels, (examples.len(), 1, 28, 28), &Device::Cpu);
            Ok((input.map_err(ModelError::from)?, classes))
        };
        self.dealt.shares.client(0).chunks(BATCH).map(batch).collect()
    }

    /// The time of the best of a run's rounds.
    pub(super) fn round(&self, workers: usize) -> Result<Duration, BenchmarkError> {
        let simulation = Simulation {
            description: self.description.clone(),
            train: &self.dataset,
            test: None,
            shares: &self.dealt.shares,
            held_out: &self.dealt.held_out,
            initial: None,
            resume: None,
            snapshots: false,
            workers,
            stop: None,
        };
        let mut seconds = f64::MAX;
        simulation.run(&mut |progress| {
            if let Progress::Record { record, .. } = progress {
                seconds = record.seconds.min(seconds);
            }
        })?;
        Ok(Duration::from_secs_f64(seconds))
    }
}

/// A round of a run that has no other.
fn occasion<'a>(layout: &'a Layout, optimiser: &'a OptimiserDescription) -> Occasion<'a> {
    Occasion {
        seed: Seed(1),
        round: 1,
        rounds: 1,
        clients: 1,
        cohort: 1,
        client: None,
        layout,
        optimiser,
    }
}

/// Takes ten updates of the McMahan CNN into their mean, and how many bytes these are.
pub(super) fn aggregation() -> Result<(u64, impl FnMut() -> Duration), BenchmarkError> {
    const UPDATES: usize = 10;
    let model = Preset::McmahanCnn.describe(&[1, 28, 28], 10);
    let weights = Weights::initial(&model, &mut random(6))?;
    let bytes = (UPDATES * weights.parameters.len() * size_of::<f32>()) as u64;
    let layout = model.layout()?;
    let (whole, global) = (SubModel::whole(&layout), weights.clone());
    let optimiser = OptimiserDescription::Sgd {
        learning_rate: 0.1,
        momentum: 0.0,
        weight_decay: 0.0,
        nesterov: false,
    };
    let update = move || {
        Update::from(Trained {
            weights: weights.clone(),
            examples: SHARE as u64,
            steps: 1,
            loss: None,
        })
    };
    let aggregate = move || {
        let updates: Vec<Update> = (0..UPDATES).map(|_| update()).collect();
        let begun = Instant::now();
        let mut mean = Mean {}.begin();
        for update in updates {
            mean.fold(Contribution {
                client: None,
                version: 1,
                part: &whole,
                weight: SHARE as f64,
                update,
            });
        }
        let mut metrics = Metrics::default();
        let context = &mut occasion(&layout, &optimiser).context(AGGREGATION, &mut metrics);
        let _ = std::hint::black_box(mean.finish(&global, context));
        begun.elapsed()
    };
    Ok((bytes, aggregate))
}
