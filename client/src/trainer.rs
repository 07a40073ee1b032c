//! Local training: what a client does with a model and its own examples.

use std::{
    borrow::Cow,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use candle_core::Device;
use selvedge_data::Dataset;
use selvedge_models::{Layout, Mode, ModelDescription, ModelError, Moments, Network, Weights};
use selvedge_protocols::{
    ALGORITHM, Broadcast, ClientName, Description, LocalError, Memory, Metrics, Part, Vectors,
    evaluation::{Batch, Tested, evaluate},
    sections::Section,
    update::{BUFFERS, CALIBRATION_BATCH, SealedUpdate, TrainingReport},
};

use crate::local::Local;

/// Live models and what is needed to train them: one for each thread that trains, however many clients it stands for.
pub struct Trainer {
    pub(crate) networks: Networks,
    pub(crate) batch: Batch,
    pub(crate) abandon: Arc<AtomicBool>,
}

/// The live models used last.
#[derive(Default)]
pub(crate) struct Networks(Vec<(ModelDescription, Network)>);

/// Live models that are kept: clients of a few widths can follow one another without making them anew.
const NETWORKS: usize = 8;

impl Networks {
    /// A live model of this description, with any values.
    pub(crate) fn of(&mut self, model: &ModelDescription) -> Result<&mut Network, ModelError> {
        let networks = &mut self.0;
        match networks.iter().position(|(known, _)| known == model) {
            Some(at) => networks[..=at].rotate_right(1),
            None => {
                networks.truncate(NETWORKS - 1);
                networks.insert(0, (model.clone(), Network::new(model, &Device::Cpu)?));
            }
        }
        Ok(&mut networks[0].1)
    }
}

/// The examples that a client trains or evaluates on: some of a data set.
#[derive(Clone, Copy)]
pub struct Examples<'a> {
    /// The data set.
    pub dataset: &'a Dataset,
    /// Which of its examples.
    pub indices: &'a [u32],
}

/// Where the values lie that the algorithm sees: with personal layers those of the whole model, otherwise what travels.
fn algorithm_layout(part: &Part) -> &Layout {
    part.personal.as_ref().map_or(&part.layout, |personal| &personal.layout)
}

impl Trainer {
    /// A trainer. Once `abandon` is true, local training ends at its next step, with [`LocalError::Abandoned`].
    pub fn new(abandon: Arc<AtomicBool>) -> Self {
        Self {
            networks: Networks::default(),
            batch: Batch::default(),
            abandon,
        }
    }

    /// The client's part of a round: trains its part of the model, which was broadcast to it, by the description's
    /// algorithm, and seals the update. `kept` is what the algorithm keeps on this client from round to round, for the
    /// whole model: that of the part is used and replaced.
    ///
    /// # Errors
    /// When the model cannot be run on the examples.
    #[allow(clippy::too_many_arguments)]
    pub fn train(
        &mut self,
        description: &Description,
        part: &Part,
        client: &ClientName,
        round: u32,
        broadcast: &Broadcast,
        examples: Examples<'_>,
        kept: &mut Memory,
    ) -> Result<SealedUpdate, LocalError> {
        let mut local = Local::new(self, description, part, client, round, examples)?;
        // With personal layers the algorithm is given the whole model: what it keeps is of that, not of what travels.
        let mut of_whole = match &part.personal {
            Some(_) => std::mem::take(kept.of_mut(ALGORITHM)),
            None => Vectors::new(),
        };
        let mut memory = kept.take(&part.coordinates);
        let occasion = description.occasion(round, Some(client), algorithm_layout(part));
        let mut metrics = Metrics::default();
        let context = &mut occasion.context(ALGORITHM, &mut metrics);
        let algorithm = &*description.algorithm;
        let update = match &part.personal {
            None => algorithm.client(broadcast, memory.of_mut(ALGORITHM), &mut local, context)?,
            Some(personal) => {
                let completed = personal.completed(broadcast, &memory);
                let mut update = algorithm.client(&completed, &mut of_whole, &mut local, context)?;
                *kept.of_mut(ALGORITHM) = of_whole;
                personal.keep(&mut update.trained.weights, &mut memory);
                update
            }
        };
        let occasion = description.occasion(round, Some(client), &part.layout);
        let (filters, global) = (&description.filters, &broadcast.weights);
        let sealed = SealedUpdate::seal(update, filters, global, &mut memory, &occasion, metrics);
        kept.merge(memory, &part.coordinates);
        Ok(sealed)
    }

    /// The moments of what the batch norms of a part of a model meet on these examples.
    ///
    /// # Errors
    /// When the model cannot be run on the examples.
    pub fn calibrate(
        &mut self,
        part: &Part,
        broadcast: &Broadcast,
        examples: Examples<'_>,
    ) -> Result<Moments, LocalError> {
        let network = self.networks.of(&part.model)?;
        network.start_from(&broadcast.weights)?;
        let mut moments = Moments::default();
        for batch in calibration_batches(examples.indices) {
            if self.abandon.load(Ordering::Relaxed) {
                return Err(LocalError::Abandoned);
            }
            let inputs = self.batch.gather(examples.dataset, batch)?;
            network.forward(&inputs, &mut Mode::Calibrate)?;
            moments.add(network.layout(), network.buffers(), batch.len() as f64);
        }
        Ok(moments)
    }

    /// [`calibrate`](Self::calibrate), as an update.
    ///
    /// # Errors
    /// As for [`calibrate`](Self::calibrate).
    pub fn calibration(
        &mut self,
        part: &Part,
        broadcast: &Broadcast,
        examples: Examples<'_>,
    ) -> Result<SealedUpdate, LocalError> {
        let layout = self.networks.of(&part.model)?.layout().clone();
        let statistics = self.calibrate(part, broadcast, examples)?.statistics(&layout);
        let statistics = statistics.unwrap_or_else(|| Weights::zeros(&layout).buffers);
        Ok(SealedUpdate {
            report: TrainingReport {
                examples: examples.indices.len() as u64,
                ..TrainingReport::default()
            },
            sections: vec![Section::new(BUFFERS, statistics)],
        })
    }

    /// What a client evaluates on its own examples: what was broadcast, with what is its own.
    pub fn personalised(
        description: &Description,
        part: &Part,
        client: &ClientName,
        round: u32,
        broadcast: &Broadcast,
        kept: &Memory,
    ) -> Broadcast {
        let occasion = description.occasion(round, Some(client), algorithm_layout(part));
        let mut metrics = Metrics::default();
        let context = &mut occasion.context(ALGORITHM, &mut metrics);
        let of_algorithm = kept.of(ALGORITHM);
        // As in training: with personal layers what the algorithm keeps is of the whole model.
        let (completed, memory) = match &part.personal {
            Some(personal) => (personal.completed(broadcast, kept), of_algorithm.cloned()),
            None => (
                broadcast.clone(),
                of_algorithm.map(|kept| kept.slice(&part.coordinates)),
            ),
        };
        let algorithm = &description.algorithm;
        let own = algorithm.personalise(&completed, &memory.unwrap_or_default(), context);
        own.map_or(completed, Broadcast::bare)
    }

    /// Evaluates a part of a model, `by_class` too if that is wanted. Where its statistics did not come with it, they are taken over `calibration`.
    ///
    /// # Errors
    /// When the model cannot be run on the examples.
    pub fn evaluate(
        &mut self,
        description: &Description,
        part: &Part,
        broadcast: &Broadcast,
        calibration: Examples<'_>,
        examples: Examples<'_>,
        by_class: bool,
    ) -> Result<Tested, LocalError> {
        let layout = self.networks.of(&part.model)?.layout().clone();
        let mut weights = Cow::Borrowed(&*broadcast.weights);
        if weights.buffers.len() < layout.buffer_count()
            && let Some(statistics) = self.calibrate(part, broadcast, calibration)?.statistics(&layout)
        {
            weights.to_mut().buffers = statistics;
        }
        let network = self.networks.of(&part.model)?;
        network.start_from(&weights)?;
        evaluate(
            network,
            description.training.loss,
            examples.dataset,
            examples.indices,
            by_class,
        )
    }
}

/// The examples in batches; one that would be left alone, without a variance of its own, goes with the batch before it.
fn calibration_batches(examples: &[u32]) -> impl Iterator<Item = &[u32]> {
    let mut rest = examples;
    std::iter::from_fn(move || {
        let size = match rest.len() {
            0 => return None,
            left if left <= CALIBRATION_BATCH + 1 => left,
            _ => CALIBRATION_BATCH,
        };
        let batch;
        (batch, rest) = rest.split_at(size);
        Some(batch)
    })
}
