//! How fast this machine trains.

use std::time::{Duration, Instant};

use candle_core::{DType, Device, Tensor};
use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};

use crate::{
    error::ModelError,
    loss::{BatchTargets, Loss},
    mode::Mode,
    network::Network,
    presets::Preset,
    summary::STEP,
    weights::Weights,
};

/// Examples in a batch.
const BATCH: usize = 10;

/// Measures how fast one thread of this machine trains, in floating-point operations a second: steps of LeNet-5 in
/// batches of ten, which takes little memory, for at least this long. The
/// quickest step counts: others were disturbed.
///
/// # Errors
/// None, as long as the preset can be trained.
pub fn training_speed(for_at_least: Duration) -> Result<f64, ModelError> {
    let model = Preset::LeNet5.describe(&[1, 28, 28], 10);
    let random = ChaCha8Rng::seed_from_u64(0);
    let mut network = Network::new(&model, &Device::Cpu)?;
    network.load(&Weights::initial(&model, &mut random.clone())?)?;
    let inputs = Tensor::ones((BATCH, 1, 28, 28), DType::F32, &Device::Cpu)?;
    let classes: Vec<u32> = (0..BATCH as u32).collect();
    let mut step = || {
        let outputs = network.forward(&inputs, &mut Mode::Train(&random))?;
        let gradient = Loss::CrossEntropy
            .evaluate(&outputs, BatchTargets::Classes(&classes))?
            .gradient;
        network.zero_gradient();
        network.backward(&gradient)
    };
    step()?;
    let began = Instant::now();
    let mut quickest = Duration::MAX;
    while quickest == Duration::MAX || began.elapsed() < for_at_least {
        let before = Instant::now();
        step()?;
        quickest = quickest.min(before.elapsed());
    }
    let operations = STEP * model.summary()?.operations as f64 * BATCH as f64;
    Ok(operations / quickest.as_secs_f64().max(f64::MIN_POSITIVE))
}
