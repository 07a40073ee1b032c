//! What a local step is made of, and the step itself.

use candle_core::{Device, Tensor};
use rand::Rng;
use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};
use selvedge_models::{
    BatchTargets, Conv2d, LayerDescription, Loss, Mode, ModelDescription, ModelError, ModelSummary, Network, Preset,
    Weights, matrix_product,
};

use super::{BATCH, BenchmarkError};

/// Rows and columns of the yardstick's matrices.
const SIDE: usize = 768;

const CLASSES: usize = 10;

pub(super) fn random(seed: u64) -> ChaCha8Rng {
    ChaCha8Rng::seed_from_u64(seed)
}

fn values(count: usize, rng: &mut ChaCha8Rng) -> Vec<f32> {
    (0..count).map(|_| rng.random::<f32>() - 0.5).collect()
}

/// A large matrix product, and how many operations it is.
pub(super) fn peak() -> (u64, impl FnMut() -> Result<(), BenchmarkError>) {
    let mut rng = random(0);
    let (left, right) = (values(SIDE * SIDE, &mut rng), values(SIDE * SIDE, &mut rng));
    let mut product = vec![0.0; SIDE * SIDE];
    let operations = 2 * (SIDE * SIDE * SIDE) as u64;
    let multiply = move || {
        matrix_product(&left, &right, SIDE, &mut product);
        Ok(())
    };
    (operations, multiply)
}

/// A live model with random weights.
fn live(description: &ModelDescription) -> Result<Network, ModelError> {
    let mut network = Network::new(description, &Device::Cpu)?;
    network.load(&Weights::initial(description, &mut random(1))?)?;
    Ok(network)
}

/// The second convolution of the McMahan CNN forward and backward, and how many operations that is.
pub(super) fn convolution() -> Result<(u64, impl FnMut() -> Result<(), BenchmarkError>), BenchmarkError> {
    let description = ModelDescription {
        input: vec![32, 14, 14],
        layers: vec![LayerDescription::Conv2d(Conv2d {
            channels: 64,
            kernel: 5,
            stride: 1,
            padding: 2,
            bias: true,
        })],
        first_layer: 0,
    };
    let mut network = live(&description)?;
    let mut rng = random(2);
    let mut tensor = |shape: &[usize]| {
        let shape = [&[BATCH], shape].concat();
        Tensor::from_vec(values(shape.iter().product(), &mut rng), shape, &Device::Cpu).map_err(ModelError::from)
    };
    let (input, above) = (tensor(&description.input)?, tensor(network.output_shape())?);
    let operations = 3 * BATCH as u64 * description.summary()?.operations;
    let both_ways = move || {
        network.forward(&input, &mut Mode::Evaluate)?;
        network.zero_gradient();
        network.backward_to_input(&above)?;
        Ok(())
    };
    Ok((operations, both_ways))
}

/// Local steps of a model on one batch.
pub(super) struct Step {
    pub(super) model: Preset,
    /// Operations of one step.
    pub(super) operations: u64,
    network: Network,
    input: Tensor,
    classes: Vec<u32>,
    rng: ChaCha8Rng,
}

impl Step {
    pub(super) fn new(model: Preset) -> Result<Self, BenchmarkError> {
        let description = model.describe(&[1, 28, 28], CLASSES);
        let mut rng = random(3);
        let pixels = values(BATCH * 28 * 28, &mut rng);
        Ok(Self {
            model,
            operations: BATCH as u64 * step_operations(&description.summary()?),
            network: live(&description)?,
            input: Tensor::from_vec(pixels, (BATCH, 1, 28, 28), &Device::Cpu).map_err(ModelError::from)?,
            classes: (0..BATCH as u32).map(|example| example % CLASSES as u32).collect(),
            rng,
        })
    }

    pub(super) fn make(&mut self) -> Result<(), BenchmarkError> {
        let (network, mode) = (&mut self.network, &mut Mode::Train(&self.rng));
        Ok(step(network, &self.input, &self.classes, mode)?)
    }
}

/// One local step. The learning rate is small, so that a model can make any number of them on one batch.
pub(super) fn step(
    network: &mut Network,
    input: &Tensor,
    classes: &[u32],
    mode: &mut Mode<'_>,
) -> Result<(), ModelError> {
    let output = network.forward(input, mode)?;
    let loss = Loss::CrossEntropy.evaluate(&output, BatchTargets::Classes(classes))?;
    network.descend(&loss.gradient, 1e-4)
}

/// Operations of a training step on one example: forward, and the two gradients of each layer; below the first that has
/// parameters there is none.
fn step_operations(summary: &ModelSummary) -> u64 {
    let first = summary.layers.iter().position(|layer| layer.parameters > 0);
    let passes = |index| match first {
        Some(first) if index > first => 3,
        Some(first) if index == first => 2,
        _ => 1,
    };
    let layers = summary.layers.iter().enumerate();
    layers.map(|(index, layer)| passes(index) * layer.operations).sum()
}
