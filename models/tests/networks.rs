//! Live networks at their edges: batches, modes, and what they are refused.
#![allow(clippy::unwrap_used)]

use candle_core::{DType, Device, Tensor};
use candle_nn::VarBuilder;
use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};
use selvedge_models::{CandleModule, LayerDescription, Mode, ModelDescription, ModelError, Network, Weights};

fn live(text: &str) -> Network {
    let description: ModelDescription = toml::from_str(text).unwrap();
    let mut network = Network::new(&description, &Device::Cpu).unwrap();
    let mut rng = ChaCha8Rng::seed_from_u64(0);
    network
        .load(&Weights::initial(&description, &mut rng).unwrap())
        .unwrap();
    network
}

fn values(tensor: &Tensor) -> Vec<f32> {
    tensor.flatten_all().unwrap().to_vec1().unwrap()
}

#[test]
fn batches_that_do_not_fit_are_refused() {
    let mut network = live("input = [2, 3]\nlayers = [{ kind = 'flatten' }]");
    let mut forward = |shape: &[usize]| {
        let input = Tensor::zeros(shape, DType::F32, &Device::Cpu).unwrap();
        network.forward(&input, &mut Mode::Evaluate).map(drop)
    };
    assert!(matches!(forward(&[0, 2, 3]), Err(ModelError::EmptyBatch)));
    assert!(matches!(forward(&[2, 3]), Err(ModelError::Input { .. })));
    assert!(matches!(forward(&[1, 3, 2]), Err(ModelError::Input { .. })));
    assert!(forward(&[1, 2, 3]).is_ok());
}

#[test]
fn backward_needs_a_forward_and_a_gradient_of_its_outputs_size() {
    let mut network = live("input = [3]\nlayers = [{ kind = 'dense', units = 2 }]");
    let zeros = |shape: (usize, usize)| Tensor::zeros(shape, DType::F32, &Device::Cpu).unwrap();
    let refused = network.backward(&zeros((1, 2)));
    assert!(matches!(refused, Err(ModelError::NothingToDifferentiate)));
    network.forward(&zeros((4, 3)), &mut Mode::Evaluate).unwrap();
    let refused = network.backward(&zeros((3, 2)));
    assert!(matches!(
        refused,
        Err(ModelError::OutputGradient { expected: 8, given: 6 })
    ));
    network.backward(&zeros((4, 2))).unwrap();
}

#[test]
fn a_forgotten_gradient_is_zero_until_the_next_backward_and_then_only_that_one() {
    let layers = "{ kind = 'conv2d', channels = 2, kernel = 2 }, { kind = 'batch-norm' }, { kind = 'flatten' }, \
                  { kind = 'residual', layers = [{ kind = 'dense', units = 8 }] }, { kind = 'dense', units = 3 }";
    let mut network = live(&format!("input = [1, 3, 3]\nlayers = [{layers}]"));
    let input = Tensor::arange(0f32, 18.0, &Device::Cpu)
        .unwrap()
        .reshape((2, 1, 3, 3))
        .unwrap();
    let above = Tensor::new(&[[1f32, -1.0, 0.5], [0.0, 2.0, 1.0]], &Device::Cpu).unwrap();
    let gradient = |network: &mut Network| {
        let mut copy = vec![];
        network.update(|_, gradient| copy = gradient.to_vec());
        copy
    };
    network.forward(&input, &mut Mode::Evaluate).unwrap();
    network.backward(&above).unwrap();
    let once = gradient(&mut network);
    assert!(once.iter().any(|value| *value != 0.0));
    network.zero_gradient();
    assert!(gradient(&mut network).iter().all(|value| *value == 0.0));
    network.backward(&above.affine(3.0, 0.0).unwrap()).unwrap();
    network.zero_gradient();
    network.backward(&above).unwrap();
    assert_eq!(gradient(&mut network), once);
}

#[test]
fn weights_of_another_model_are_refused() {
    let mut network = live("input = [3]\nlayers = [{ kind = 'batch-norm' }]");
    let weights = network.weights();
    let parameters = Weights {
        parameters: vec![0.0; 5],
        ..weights.clone()
    };
    let buffers = Weights {
        buffers: vec![],
        ..weights.clone()
    };
    assert!(matches!(
        network.load(&parameters),
        Err(ModelError::Weights { what: "parameters", .. })
    ));
    assert!(matches!(
        network.load(&buffers),
        Err(ModelError::Weights { what: "buffers", .. })
    ));
    network.load(&weights).unwrap();
}

#[test]
fn the_size_of_a_batch_does_not_change_an_examples_output() {
    let mut network = live("preset = 'lenet-5'");
    let pixels = (0..3 * 784).map(|pixel| (pixel % 17) as f32 / 17.0).collect::<Vec<_>>();
    let input = Tensor::from_vec(pixels, (3, 1, 28, 28), &Device::Cpu).unwrap();
    let together = values(&network.forward(&input, &mut Mode::Evaluate).unwrap());
    for example in 0..3 {
        let one = input.narrow(0, example, 1).unwrap();
        let alone = values(&network.forward(&one, &mut Mode::Evaluate).unwrap());
        for (a, b) in alone.iter().zip(&together[example * 10..]) {
            assert!((a - b).abs() < 1e-5);
        }
    }
}

#[test]
fn dropout_keeps_its_share_in_training_and_everything_in_evaluation() {
    let mut network = live("input = [10000]\nlayers = [{ kind = 'dropout', rate = 0.25 }]");
    let input = Tensor::ones((1, 10_000), DType::F32, &Device::Cpu).unwrap();
    let rng = ChaCha8Rng::seed_from_u64(4);
    let trained = values(&network.forward(&input, &mut Mode::Train(&rng)).unwrap());
    let kept = trained.iter().filter(|value| **value != 0.0).count();
    assert!((7_300..7_700).contains(&kept), "{kept}");
    assert!(trained.iter().all(|value| *value == 0.0 || *value == 1.0 / 0.75));
    let evaluated = values(&network.forward(&input, &mut Mode::Evaluate).unwrap());
    assert!(evaluated.iter().all(|value| *value == 1.0));
}

#[test]
fn batch_norm_follows_the_batch_with_the_unbiased_variance() {
    let mut network = live("input = [1]\nlayers = [{ kind = 'batch-norm', momentum = 0.5 }]");
    let input = Tensor::new(&[[1f32], [3.0]], &Device::Cpu).unwrap();
    let rng = ChaCha8Rng::seed_from_u64(0);
    let output = network.forward(&input, &mut Mode::Train(&rng)).unwrap();
    assert!((values(&output)[1] - 1.0).abs() < 1e-4);
    // Mean 2; variance 1 over the two, 2 without bias.
    assert_eq!(network.weights().buffers, [1.0, 1.5]);
    network.forward(&input, &mut Mode::Evaluate).unwrap();
    assert_eq!(network.weights().buffers, [1.0, 1.5]);
}

#[test]
fn batch_norm_of_a_single_value_uses_its_running_statistics_and_leaves_them() {
    let description: ModelDescription = toml::from_str("input = [2]\nlayers = [{ kind = 'batch-norm' }]").unwrap();
    let input = Tensor::new(&[[3f32, -1.0]], &Device::Cpu).unwrap();
    let above = Tensor::new(&[[1f32, 1.0]], &Device::Cpu).unwrap();
    for mut network in [
        Network::new(&description, &Device::Cpu).unwrap(),
        Network::by_definition(&description, &Device::Cpu).unwrap(),
    ] {
        let weights = Weights {
            parameters: vec![2.0, 1.0, 0.0, 0.5],
            buffers: vec![1.0, 0.0, 4.0, 1.0],
        };
        network.load(&weights).unwrap();
        let rng = ChaCha8Rng::seed_from_u64(0);
        let output = values(&network.forward(&input, &mut Mode::Train(&rng)).unwrap());
        assert!(
            (output[0] - 2.0).abs() < 1e-4 && (output[1] + 0.5).abs() < 1e-4,
            "{output:?}"
        );
        let below = values(&network.backward_to_input(&above).unwrap());
        assert!(
            (below[0] - 1.0).abs() < 1e-4 && (below[1] - 1.0).abs() < 1e-4,
            "{below:?}"
        );
        assert_eq!(network.weights(), weights);
    }
}

#[test]
fn a_candle_module_is_a_layer_among_others() {
    let module = CandleModule::new(|variables: VarBuilder| {
        let hidden = candle_nn::linear(8, 6, variables.pp("hidden"))?;
        Ok(candle_nn::seq().add(hidden).add(candle_nn::Activation::Relu))
    });
    let ours = "{ kind = 'dense', units = 6 }, { kind = 'relu' },";
    let text = |middle: &str| {
        format!("input = [2, 4]\nlayers = [{{ kind = 'flatten' }}, {middle} {{ kind = 'dense', units = 3 }}]")
    };
    let same: ModelDescription = toml::from_str(&text(ours)).unwrap();
    let mut plugged: ModelDescription = toml::from_str(&text("")).unwrap();
    plugged.layers.insert(1, LayerDescription::CandleModule(module));
    let layout = plugged.layout().unwrap();
    let names: Vec<&str> = layout.parameters.iter().map(|entry| entry.name.as_str()).collect();
    assert_eq!(names, ["1.hidden.bias", "1.hidden.weight", "2.weight", "2.bias"]);
    let mut rng = ChaCha8Rng::seed_from_u64(9);
    let weights = Weights::initial(&plugged, &mut rng).unwrap();
    // The same values in the order of our own layers.
    let [bias, weight] = [0, 1].map(|entry| &weights.parameters[layout.parameters[entry].range()]);
    let head = &weights.parameters[layout.parameters[2].offset..];
    let reordered = [weight, bias, head].concat();

    let input = Tensor::new(&[[[0.5f32, -1.0, 2.0, 0.1], [1.0, 0.3, -0.2, 0.7]]], &Device::Cpu).unwrap();
    let above = Tensor::new(&[[1f32, -1.0, 0.5]], &Device::Cpu).unwrap();
    let run = |description: &ModelDescription, parameters: Vec<f32>| {
        let mut network = Network::new(description, &Device::Cpu).unwrap();
        network
            .load(&Weights {
                parameters,
                buffers: vec![],
            })
            .unwrap();
        let output = network.forward(&input, &mut Mode::Evaluate).unwrap();
        let below = network.backward_to_input(&above).unwrap();
        let mut gradient = vec![];
        network.update(|_, sum| gradient = sum.to_vec());
        (values(&output), values(&below), gradient)
    };
    let (output, below, gradient) = run(&plugged, weights.parameters.clone());
    let (our_output, our_below, our_gradient) = run(&same, reordered);
    let close = |one: &[f32], other: &[f32]| {
        assert_eq!(one.len(), other.len());
        assert!(
            one.iter().zip(other).all(|(a, b)| (a - b).abs() < 1e-5),
            "{one:?} {other:?}"
        );
    };
    close(&output, &our_output);
    close(&below, &our_below);
    close(&gradient[6..54], &our_gradient[..48]);
    close(&gradient[..6], &our_gradient[48..54]);
}

#[test]
fn a_candle_module_with_running_statistics_or_a_wrong_input_is_refused() {
    let network = |module: CandleModule| {
        let layers = vec![LayerDescription::CandleModule(module)];
        ModelDescription {
            input: vec![4],
            layers,
            first_layer: 0,
        }
        .check()
        .unwrap_err()
        .to_string()
    };
    let norm = CandleModule::new(|variables| candle_nn::batch_norm(4, 1e-5, variables));
    let error = network(norm);
    assert!(
        error.contains("layer 0 (module)") && error.contains("running_mean"),
        "{error}"
    );
    let linear = CandleModule::new(|variables| candle_nn::linear(5, 2, variables));
    let error = network(linear);
    assert!(error.contains("layer 0 (module)") && error.contains("[4]"), "{error}");
}

#[test]
fn a_candle_module_that_candle_cannot_differentiate_is_an_error_not_a_gradient_of_zero() {
    let module = CandleModule::new(|variables: VarBuilder| {
        let hidden = candle_nn::linear(4, 4, variables.pp("hidden"))?;
        let norm = candle_nn::layer_norm(4, 1e-5, variables.pp("norm"))?;
        Ok(candle_nn::seq().add(hidden).add(norm))
    });
    let layers = vec![LayerDescription::CandleModule(module)];
    let description = ModelDescription {
        input: vec![4],
        layers,
        first_layer: 0,
    };
    let mut network = Network::new(&description, &Device::Cpu).unwrap();
    let ones = Tensor::ones((1, 4), DType::F32, &Device::Cpu).unwrap();
    network.forward(&ones, &mut Mode::Evaluate).unwrap();
    let error = network.backward(&ones).unwrap_err();
    assert!(
        matches!(&error, ModelError::NotDifferentiated { name } if name.starts_with("hidden")),
        "{error}"
    );
}
