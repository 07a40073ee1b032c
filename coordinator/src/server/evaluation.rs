//! Evaluation on the coordinator's test set.

use std::{
    num::NonZeroUsize,
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};

use candle_core::Device;
use selvedge_data::Dataset;
use selvedge_models::Network;
use selvedge_protocols::{
    Broadcast, Description, LocalError, Part,
    evaluation::{TEST_CHUNK, Tested, all_examples, evaluate},
};

/// Evaluates a part of a model on a test set with all processors. The sums are those of a simulation, to the last bit.
pub(super) fn test(
    description: &Description,
    part: &Part,
    broadcast: &Broadcast,
    dataset: &Dataset,
    by_class: bool,
) -> Result<Tested, LocalError> {
    let examples = all_examples(dataset);
    let chunks: Vec<_> = examples.chunks(TEST_CHUNK).collect();
    let threads = thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let next = AtomicUsize::new(0);
    let work = || {
        let mut network = Network::new(&part.model, &Device::Cpu)?;
        network.load(&broadcast.weights)?;
        let mut evaluated = Vec::new();
        loop {
            let chunk = next.fetch_add(1, Ordering::Relaxed);
            let Some(examples) = chunks.get(chunk) else {
                return Ok::<_, LocalError>(evaluated);
            };
            let loss = description.training.loss;
            evaluated.push((chunk, evaluate(&mut network, loss, dataset, examples, by_class)?));
        }
    };
    let mut evaluated = thread::scope(|scope| {
        let threads: Vec<_> = (0..threads.min(chunks.len())).map(|_| scope.spawn(work)).collect();
        let mut evaluated = Vec::new();
        for thread in threads {
            match thread.join() {
                Ok(part) => evaluated.extend(part?),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        Ok::<_, LocalError>(evaluated)
    })?;
    evaluated.sort_unstable_by_key(|&(chunk, _)| chunk);
    let mut sum = Tested::default();
    evaluated.iter().for_each(|(_, part)| sum.add(part));
    Ok(sum)
}
