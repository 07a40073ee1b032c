//! Losses against candle's, optimisers against steps worked by hand, and both together learning something.
#![allow(clippy::unwrap_used)]

use candle_core::{Device, Tensor, Var};
use rand::Rng;
use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};
use selvedge_models::{
    BatchTargets, Loss, Mode, ModelDescription, ModelError, Network, Optimiser, OptimiserDescription, Preset, Weights,
};

fn close(one: &[f32], other: &[f32]) {
    assert_eq!(one.len(), other.len());
    for (a, b) in one.iter().zip(other) {
        assert!((a - b).abs() <= 1e-6 * (1.0 + b.abs()), "{one:?} is not {other:?}");
    }
}

fn values(tensor: &Tensor) -> Vec<f32> {
    tensor.flatten_all().unwrap().to_vec1().unwrap()
}

#[test]
fn losses_and_their_gradients_are_candles() {
    let mut rng = ChaCha8Rng::seed_from_u64(0);
    let outputs: Vec<f32> = (0..12).map(|_| rng.random_range(-3.0..3.0)).collect();
    let outputs = Var::from_vec(outputs, (4, 3), &Device::Cpu).unwrap();
    let classes = [2u32, 0, 1, 1];
    let labels: Vec<f32> = (0..12).map(|label| (label % 2) as f32).collect();
    let class_tensor = Tensor::new(&classes, &Device::Cpu).unwrap();
    let label_tensor = Tensor::from_slice(&labels, (4, 3), &Device::Cpu).unwrap();
    for (loss, targets, reference) in [
        (
            Loss::CrossEntropy,
            BatchTargets::Classes(&classes),
            candle_nn::loss::cross_entropy(&outputs, &class_tensor),
        ),
        (
            Loss::BinaryCrossEntropy,
            BatchTargets::Values(&labels),
            candle_nn::loss::binary_cross_entropy_with_logit(&outputs, &label_tensor),
        ),
        (
            Loss::MeanSquaredError,
            BatchTargets::Values(&labels),
            candle_nn::loss::mse(&outputs, &label_tensor),
        ),
    ] {
        let reference = reference.unwrap();
        let ours = loss.evaluate(&outputs, targets).unwrap();
        close(&[ours.sum as f32 / 4.0], &[reference.to_scalar().unwrap()]);
        let gradients = reference.backward().unwrap();
        close(&values(&ours.gradient), &values(gradients.get(&outputs).unwrap()));
        let score = loss.score(&outputs, targets).unwrap();
        assert_eq!((score.sum, score.examples, score.correct), (ours.sum, 4, ours.correct));
    }
}

#[test]
fn the_right_ones_are_counted() {
    let outputs = Tensor::new(&[[1f32, 2.0], [2.0, 2.0], [f32::NAN, 0.0]], &Device::Cpu).unwrap();
    let classes = |classes: &[u32]| {
        Loss::CrossEntropy
            .score(&outputs, BatchTargets::Classes(classes))
            .unwrap()
            .correct
    };
    assert_eq!(classes(&[1, 0, 0]), 2);
    assert_eq!(classes(&[0, 1, 1]), 0);
    let outputs = Tensor::new(&[[1f32, -2.0], [0.5, 0.5]], &Device::Cpu).unwrap();
    let labels = BatchTargets::Values(&[1.0, 0.0, 1.0, 0.0]);
    assert_eq!(Loss::BinaryCrossEntropy.score(&outputs, labels).unwrap().correct, 1);
}

#[test]
fn extreme_logits_give_finite_losses() {
    let outputs = Tensor::new(&[[1e30f32, -1e30]], &Device::Cpu).unwrap();
    let sum = |loss: Loss, targets| {
        let value = loss.evaluate(&outputs, targets).unwrap();
        assert!(values(&value.gradient).iter().all(|gradient| gradient.is_finite()));
        value.sum
    };
    assert_eq!(sum(Loss::CrossEntropy, BatchTargets::Classes(&[0])), 0.0);
    assert!(sum(Loss::CrossEntropy, BatchTargets::Classes(&[1])) >= 1e30);
    assert_eq!(sum(Loss::BinaryCrossEntropy, BatchTargets::Values(&[1.0, 0.0])), 0.0);
}

#[test]
fn targets_that_do_not_fit_are_refused() {
    let outputs = Tensor::new(&[[0f32, 0.0], [0.0, 0.0]], &Device::Cpu).unwrap();
    let refused = |loss: Loss, targets| {
        let error = loss.evaluate(&outputs, targets).unwrap_err();
        assert!(matches!(error, ModelError::Targets(_)), "{error}");
    };
    refused(Loss::CrossEntropy, BatchTargets::Classes(&[0]));
    refused(Loss::CrossEntropy, BatchTargets::Classes(&[0, 2]));
    refused(Loss::CrossEntropy, BatchTargets::Values(&[0.0; 4]));
    refused(Loss::MeanSquaredError, BatchTargets::Values(&[0.0; 3]));
    refused(Loss::BinaryCrossEntropy, BatchTargets::Classes(&[0, 0]));
    let empty = Tensor::zeros((0, 2), candle_core::DType::F32, &Device::Cpu).unwrap();
    let error = Loss::CrossEntropy
        .evaluate(&empty, BatchTargets::Classes(&[]))
        .unwrap_err();
    assert!(matches!(error, ModelError::EmptyBatch));
}

/// The parameter after each of three steps with gradients 1, 2 and -1, from 10.
fn path(description: &str) -> Vec<f32> {
    let description: OptimiserDescription = toml::from_str(description).unwrap();
    let mut optimiser = Optimiser::new(&description, 1).unwrap();
    let mut parameter = [10f32];
    let step = |gradient| {
        optimiser.step(&mut parameter, &[gradient]);
        parameter[0]
    };
    [1.0, 2.0, -1.0].map(step).to_vec()
}

#[test]
fn sgd_makes_the_steps_worked_by_hand() {
    close(&path("kind = 'sgd'\nlearning_rate = 0.5"), &[9.5, 8.5, 9.0]);
    // Velocities 1, 2.5, 0.25.
    close(
        &path("kind = 'sgd'\nlearning_rate = 0.5\nmomentum = 0.5"),
        &[9.5, 8.25, 8.125],
    );
    // Gradient plus half the velocity: 1.5, 3.25, -0.875.
    close(
        &path("kind = 'sgd'\nlearning_rate = 0.5\nmomentum = 0.5\nnesterov = true"),
        &[9.25, 7.625, 8.0625],
    );
    // Gradients 1 + 1, 2 + 0.9, -1 + 0.755.
    close(
        &path("kind = 'sgd'\nlearning_rate = 0.5\nweight_decay = 0.1"),
        &[9.0, 7.55, 7.6725],
    );
}

#[test]
fn adam_makes_the_steps_worked_by_hand() {
    // With both betas 0 a step is the gradient's sign.
    close(
        &path("kind = 'adam'\nlearning_rate = 0.5\nbeta1 = 0.0\nbeta2 = 0.0"),
        &[9.5, 9.0, 9.5],
    );
    // Means 0.5, 1.25, 0.125, unbiased 1, 5/3, 1/7; squares 0.5, 2.25, 1.625, unbiased 1, 3, 13/7.
    let expected = |decay: f32| {
        let moments = [(1f32, 1f32), (5.0 / 3.0, 3.0), (1.0 / 7.0, 13.0 / 7.0)];
        let mut parameter = 10f32;
        moments.map(|(mean, square)| {
            parameter = parameter * (1.0 - 0.5 * decay) - 0.5 * mean / (square.sqrt() + 1e-8);
            parameter
        })
    };
    let betas = "learning_rate = 0.5\nbeta1 = 0.5\nbeta2 = 0.5";
    close(&path(&format!("kind = 'adam'\n{betas}")), &expected(0.0));
    close(
        &path(&format!("kind = 'adamw'\n{betas}\nweight_decay = 0.1")),
        &expected(0.1),
    );
}

#[test]
fn settings_of_optimisers_out_of_range_are_refused() {
    for (text, part) in [
        ("kind = 'sgd'\nlearning_rate = 0.0", "`learning_rate` is 0"),
        ("kind = 'sgd'\nlearning_rate = nan", "`learning_rate` is NaN"),
        ("kind = 'sgd'\nlearning_rate = inf", "`learning_rate` is inf"),
        ("kind = 'sgd'\nlearning_rate = 1.0\nmomentum = 1.0", "`momentum` is 1"),
        ("kind = 'sgd'\nlearning_rate = 1.0\nnesterov = true", "`momentum` is 0"),
        ("kind = 'adam'\nlearning_rate = 1.0\nbeta2 = -0.1", "`beta2` is -0.1"),
        (
            "kind = 'adamw'\nlearning_rate = 1.0\nweight_decay = -1.0",
            "`weight_decay` is -1",
        ),
    ] {
        let description: OptimiserDescription = toml::from_str(text).unwrap();
        let error = description.check().unwrap_err().to_string();
        assert!(error.contains(part), "`{part}` is not in: {error}");
    }
    assert!(toml::from_str::<OptimiserDescription>("kind = 'sgd'\nlearning_rate = 1.0\nbeta1 = 0.5").is_err());
}

#[test]
fn a_small_network_learns_exclusive_or() {
    let description: ModelDescription = toml::from_str(
        "input = [2]
        layers = [{ kind = 'dense', units = 16 }, { kind = 'tanh' }, { kind = 'dense', units = 2 }]",
    )
    .unwrap();
    let mut rng = ChaCha8Rng::seed_from_u64(0);
    let mut network = Network::new(&description, &Device::Cpu).unwrap();
    network
        .load(&Weights::initial(&description, &mut rng).unwrap())
        .unwrap();
    let sgd = OptimiserDescription::sgd(0.5);
    let mut optimiser = Optimiser::new(&sgd, network.layout().parameter_count()).unwrap();
    let input = Tensor::new(&[[0f32, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]], &Device::Cpu).unwrap();
    let targets = BatchTargets::Classes(&[0, 1, 1, 0]);
    for _ in 0..500 {
        network.zero_gradient();
        let output = network.forward(&input, &mut Mode::Train(&rng)).unwrap();
        let loss = Loss::CrossEntropy.evaluate(&output, targets).unwrap();
        network.backward(&loss.gradient).unwrap();
        network.update(|parameters, gradient| optimiser.step(parameters, gradient));
    }
    let output = network.forward(&input, &mut Mode::Evaluate).unwrap();
    let score = Loss::CrossEntropy.score(&output, targets).unwrap();
    assert_eq!(score.correct, 4);
    assert!(score.sum < 0.2, "{}", score.sum);
}

type New = fn(&ModelDescription, &Device) -> Result<Network, ModelError>;

#[test]
fn descending_at_once_is_a_step_of_plain_sgd_to_the_bit() {
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    for (preset, shape) in [
        (Preset::Mlp, vec![1, 9, 9]),
        (Preset::LeNet5, vec![1, 16, 16]),
        (Preset::McmahanCnn, vec![1, 8, 8]),
        (Preset::ResNet8, vec![3, 8, 8]),
    ] {
        let description = preset.describe(&shape, 7);
        // The last is too large for the products of few terms.
        for examples in [1, 10, 70] {
            let shape = [&[examples], shape.as_slice()].concat();
            let pixels: Vec<f32> = (0..shape.iter().product()).map(|_| rng.random()).collect();
            let input = Tensor::from_vec(pixels, shape, &Device::Cpu).unwrap();
            let classes: Vec<u32> = (0..examples as u32).map(|example| example % 7).collect();
            let start = Weights::initial(&description, &mut rng).unwrap();
            let definition = (preset == Preset::Mlp).then_some(Network::by_definition as New);
            for new in [Network::new as New].into_iter().chain(definition) {
                let live = || {
                    let mut network = new(&description, &Device::Cpu).unwrap();
                    network.load(&start).unwrap();
                    network
                };
                let (mut step, mut descent) = (live(), live());
                let mut optimiser = Optimiser::new(&OptimiserDescription::sgd(0.1), start.parameters.len()).unwrap();
                for _ in 0..3 {
                    let output = step.forward(&input, &mut Mode::Train(&rng)).unwrap();
                    let loss = Loss::CrossEntropy
                        .evaluate(&output, BatchTargets::Classes(&classes))
                        .unwrap();
                    step.zero_gradient();
                    step.backward(&loss.gradient).unwrap();
                    step.update(|parameters, gradient| optimiser.step(parameters, gradient));
                    descent.forward(&input, &mut Mode::Train(&rng)).unwrap();
                    descent
                        .descend(&loss.gradient, optimiser.plain_rate().unwrap())
                        .unwrap();
                }
                assert_ne!(step.parameters(), start.parameters);
                assert_eq!(step.parameters(), descent.parameters());
            }
        }
    }
}
