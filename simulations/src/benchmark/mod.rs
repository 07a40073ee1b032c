//! How fast this machine is, and how much of that a run uses.
//!
//! Everything is measured in turns and the best of each is kept, so that what else the machine does, and how it changes
//! its clock, weighs less.

mod jobs;
mod kernels;
mod turns;

use std::{fmt, num::NonZeroUsize};

use selvedge_models::Preset;
use selvedge_protocols::LocalError;
use serde::Serialize;

use self::{
    jobs::{Job, aggregation},
    kernels::{Step, convolution, peak},
    turns::{Figure, measure},
};
use crate::SimulationError;

/// Examples in a batch.
const BATCH: usize = 10;

/// What was measured. One thread, unless it says otherwise.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Benchmark {
    /// How often everything was measured; the best counts.
    pub turns: usize,
    /// Billions of floating-point operations a second in a large matrix product: the yardstick.
    pub peak_gflops: f64,
    /// A convolution forward and backward: 5x5, 32 to 64 channels, 14x14 places, a batch of 10.
    pub convolution: Speed,
    /// A local step (forward, loss, backward, plain SGD) of each preset, on batches of 10 images of 28x28 pixels. Its
    /// operations are those of the definition: products with zeros count, though some are left out.
    pub steps: Vec<StepSpeed>,
    /// Rounds of whole federations.
    pub rounds: Vec<RoundSpeed>,
    /// Billions of bytes of updates a second that go into their weighted mean.
    pub aggregation_gigabytes_per_second: f64,
}

/// How fast something that is made of products is.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Speed {
    /// How long it takes.
    pub milliseconds: f64,
    /// Billions of floating-point operations a second.
    pub gflops: f64,
    /// The share of the yardstick.
    pub of_peak: f64,
}

/// A preset's local step.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct StepSpeed {
    /// The preset.
    pub model: Preset,
    /// How fast it is.
    #[serde(flatten)]
    pub speed: Speed,
}

/// A round in which clients train for an epoch on 600 examples each in batches of 10.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct RoundSpeed {
    /// The preset.
    pub model: Preset,
    /// Clients of the round, as many for each worker.
    pub clients: usize,
    /// Threads that train.
    pub workers: usize,
    /// How long the round takes.
    pub seconds: f64,
    /// That, over the time of as many local steps in bare loops on as many threads.
    pub overhead: f64,
}

/// Why nothing could be measured: a defect.
#[derive(Debug, thiserror::Error)]
pub enum BenchmarkError {
    /// A model could not be run.
    #[error(transparent)]
    Local(#[from] LocalError),
    /// A federation could not be run.
    #[error(transparent)]
    Simulation(#[from] SimulationError),
    /// A federation could not be described.
    #[error(transparent)]
    Description(#[from] selvedge_protocols::description::DescriptionError),
    /// Its data could not be made.
    #[error(transparent)]
    Data(#[from] selvedge_data::DataError),
}

impl From<selvedge_models::ModelError> for BenchmarkError {
    fn from(error: selvedge_models::ModelError) -> Self {
        Self::Local(error.into())
    }
}

impl Benchmark {
    /// Measures this machine, `turns` times over, with one worker and with `workers`. Each turn takes some seconds;
    /// `observe` hears which one begins.
    ///
    /// # Errors
    /// None but for a defect.
    pub fn run(
        turns: NonZeroUsize,
        workers: NonZeroUsize,
        observe: &mut dyn FnMut(usize),
    ) -> Result<Self, BenchmarkError> {
        let workers = workers.get();
        let mut steps = Preset::ALL
            .into_iter()
            .map(|model| Step::new(model).map(|step| (step, Figure::new())))
            .collect::<Result<Vec<_>, _>>()?;
        let clients = |least: usize| least.next_multiple_of(workers);
        let jobs = [
            Job::new(Preset::Mlp, clients(10), 5)?,
            Job::new(Preset::McmahanCnn, clients(4), 1)?,
        ];
        let counts: &[usize] = if workers > 1 { &[1, workers] } else { &[1] };
        let mut rounds: Vec<_> = jobs
            .iter()
            .flat_map(|job| counts.iter().map(move |workers| Round::new(job, *workers)))
            .collect();
        let (convolution_operations, mut convolution) = convolution()?;
        let (peak_operations, mut peak) = peak();
        let (aggregated, mut aggregate) = aggregation()?;

        let (mut peak_time, mut convolution_time, mut aggregation_time) = (Figure::new(), Figure::new(), Figure::new());
        for turn in 1..=turns.get() {
            observe(turn);
            peak_time.take(measure(&mut peak)?);
            convolution_time.take(measure(&mut convolution)?);
            for (step, time) in &mut steps {
                time.take(measure(|| step.make())?);
            }
            for round in &mut rounds {
                round.bare.take(round.job.bare(round.workers)?);
                round.time.take(round.job.round(round.workers)?);
            }
            aggregation_time.take(aggregate());
        }

        let peak_gflops = peak_operations as f64 / peak_time.seconds() / 1e9;
        let speed = |operations: u64, time: &Figure| {
            let gflops = operations as f64 / time.seconds() / 1e9;
            Speed {
                milliseconds: 1e3 * time.seconds(),
                gflops,
                of_peak: gflops / peak_gflops,
            }
        };
        let step_speed = |(step, time): &(Step, Figure)| StepSpeed {
            model: step.model,
            speed: speed(step.operations, time),
        };
        Ok(Self {
            turns: turns.get(),
            peak_gflops,
            convolution: speed(convolution_operations, &convolution_time),
            steps: steps.iter().map(step_speed).collect(),
            rounds: rounds.iter().map(Round::speed).collect(),
            aggregation_gigabytes_per_second: aggregated as f64 / aggregation_time.seconds() / 1e9,
        })
    }
}

/// A job's rounds with so many workers, beside their local steps alone.
struct Round<'a> {
    job: &'a Job,
    workers: usize,
    bare: Figure,
    time: Figure,
}

impl<'a> Round<'a> {
    fn new(job: &'a Job, workers: usize) -> Self {
        Self {
            job,
            workers,
            bare: Figure::new(),
            time: Figure::new(),
        }
    }

    fn speed(&self) -> RoundSpeed {
        RoundSpeed {
            model: self.job.model,
            clients: self.job.clients,
            workers: self.workers,
            seconds: self.time.seconds(),
            overhead: self.time.seconds() / self.bare.seconds(),
        }
    }
}

impl fmt::Display for Benchmark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let turns = self.turns;
        writeln!(f, "best of {turns} turns, one thread unless it says otherwise\n")?;
        writeln!(f, "{:<44} {:>10} {:>10} {:>8}", "", "ms", "GFLOP/s", "of peak")?;
        writeln!(
            f,
            "{:<44} {:>10} {:>10.1}",
            "matrix product, the peak", "", self.peak_gflops
        )?;
        let mut row = |name: &str, speed: &Speed| {
            let Speed {
                milliseconds,
                gflops,
                of_peak,
            } = speed;
            writeln!(f, "{name:<44} {milliseconds:>10.3} {gflops:>10.1} {of_peak:>8.2}")
        };
        row("convolution 5x5, 32 to 64 channels, both ways", &self.convolution)?;
        for step in &self.steps {
            row(&format!("step of {}", step.model), &step.speed)?;
        }
        writeln!(
            f,
            "\nsteps on 10 images of 28x28; operations are those of the definition, zeros that are left out count\n"
        )?;
        writeln!(f, "{:<44} {:>10} {:>10}", "", "seconds", "overhead")?;
        for round in &self.rounds {
            let RoundSpeed {
                model,
                clients,
                workers,
                ..
            } = round;
            let workers = match workers {
                1 => "1 worker".to_owned(),
                workers => format!("{workers} workers"),
            };
            let name = format!("round of {model}, {clients} clients, {workers}");
            writeln!(f, "{name:<44} {:>10.3} {:>10.2}", round.seconds, round.overhead)?;
        }
        writeln!(
            f,
            "\nrounds of 600 examples a client; overhead: over as many steps in bare loops on as many threads\n"
        )?;
        let speed = self.aggregation_gigabytes_per_second;
        write!(f, "aggregation of updates: {speed:.1} GB a second")
    }
}
