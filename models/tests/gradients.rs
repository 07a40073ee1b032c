//! Every layer's forward and backward against its definition differentiated by candle, and against finite differences.
#![allow(clippy::unwrap_used)]

use candle_core::{Device, Tensor};
use rand::Rng;
use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};
use selvedge_models::{Mode, ModelDescription, ModelError, Network, Weights};

const EXAMPLES: usize = 3;

fn model(layers: &str) -> ModelDescription {
    toml::from_str(layers).unwrap()
}

fn random(shape: &[usize], rng: &mut ChaCha8Rng) -> Tensor {
    let values: Vec<f32> = (0..shape.iter().product())
        .map(|_| rng.random_range(-1.0..1.0))
        .collect();
    Tensor::from_vec(values, shape, &Device::Cpu).unwrap()
}

fn values(tensor: &Tensor) -> Vec<f32> {
    tensor.flatten_all().unwrap().to_vec1().unwrap()
}

#[track_caller]
fn assert_close(what: &str, one: &[f32], other: &[f32], tolerance: f32) {
    assert_eq!(one.len(), other.len(), "{what}");
    for (index, (a, b)) in one.iter().zip(other).enumerate() {
        let scale = 1.0 + a.abs().max(b.abs());
        assert!(
            (a - b).abs() <= tolerance * scale,
            "{what}: value {index} is {a}, not {b}"
        );
    }
}

fn dot(one: &[f32], other: &[f32]) -> f64 {
    one.iter().zip(other).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum()
}

/// One forward and backward in training mode: output, gradient of parameters, gradient at the input, weights after.
struct Pass {
    output: Vec<f32>,
    gradient: Vec<f32>,
    input_gradient: Vec<f32>,
    weights: Weights,
}

fn pass(mut network: Network, weights: &Weights, input: &Tensor, above: &[f32]) -> Pass {
    network.load(weights).unwrap();
    let rng = ChaCha8Rng::seed_from_u64(7);
    let output = network.forward(input, &mut Mode::Train(&rng)).unwrap();
    let above = Tensor::from_slice(above, output.shape(), &Device::Cpu).unwrap();
    let input_gradient = network.backward_to_input(&above).unwrap();
    let mut gradient = Vec::new();
    network.update(|_, sum| gradient = sum.to_vec());
    Pass {
        output: values(&output),
        gradient,
        input_gradient: values(&input_gradient),
        weights: network.weights(),
    }
}

/// Checks the kernels of a model against its definition, and against finite differences along a few directions.
#[track_caller]
fn check(layers: &str) {
    let description = model(layers);
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let weights = Weights::initial(&description, &mut rng).unwrap();
    let input = random(&[&[EXAMPLES], description.input.as_slice()].concat(), &mut rng);
    check_at(&description, &weights, &input, &mut rng);
}

#[track_caller]
fn check_at(description: &ModelDescription, weights: &Weights, input: &Tensor, rng: &mut ChaCha8Rng) {
    let device = Device::Cpu;
    let size = EXAMPLES * description.output().unwrap().iter().product::<usize>();
    let above: Vec<f32> = (0..size).map(|_| rng.random_range(-1.0..1.0)).collect();
    let run = |network, weights: &Weights, input: &Tensor| pass(network, weights, input, &above);
    let kernels = || Network::new(description, &device).unwrap();

    let ours = run(kernels(), weights, input);
    let reference = run(Network::by_definition(description, &device).unwrap(), weights, input);
    assert_close("output", &ours.output, &reference.output, 1e-5);
    assert_close("parameters' gradient", &ours.gradient, &reference.gradient, 1e-4);
    assert_close("input gradient", &ours.input_gradient, &reference.input_gradient, 1e-4);
    assert_close("buffers", &ours.weights.buffers, &reference.weights.buffers, 1e-5);

    // Without the input's gradient the parameters' is the same, and a second backward adds to it.
    let mut network = kernels();
    network.load(weights).unwrap();
    let output = network
        .forward(input, &mut Mode::Train(&ChaCha8Rng::seed_from_u64(7)))
        .unwrap();
    let output_gradient = Tensor::from_slice(&above, output.shape(), &device).unwrap();
    network.backward(&output_gradient).unwrap();
    network.update(|_, gradient| assert_eq!(gradient, ours.gradient));
    network.backward(&output_gradient).unwrap();
    let twice: Vec<f32> = ours.gradient.iter().map(|value| 2.0 * value).collect();
    network.update(|_, gradient| assert_close("twice", gradient, &twice, 1e-5));

    // <above, output> along random directions.
    let step = 2e-3f32;
    for _ in 0..4 {
        let along = random(input.dims(), rng);
        let direction: Vec<f32> = weights.parameters.iter().map(|_| rng.random_range(-1.0..1.0)).collect();
        let at = |sign: f32| {
            let step = sign * step;
            let parameters = weights
                .parameters
                .iter()
                .zip(&direction)
                .map(|(w, d)| w + step * d)
                .collect();
            let moved = Weights {
                parameters,
                buffers: weights.buffers.clone(),
            };
            let input = (input + along.affine(f64::from(step), 0.0).unwrap()).unwrap();
            dot(&run(kernels(), &moved, &input).output, &above)
        };
        let measured = (at(1.0) - at(-1.0)) / (2.0 * f64::from(step));
        let claimed = dot(&ours.gradient, &direction) + dot(&ours.input_gradient, &values(&along));
        let size = ours
            .gradient
            .iter()
            .chain(&ours.input_gradient)
            .map(|v| v.abs())
            .sum::<f32>();
        let tolerance = 2e-2 * (1.0 + f64::from(size).sqrt());
        assert!(
            (measured - claimed).abs() < tolerance,
            "slope measured {measured}, claimed {claimed}, tolerance {tolerance}"
        );
    }
}

#[test]
fn dense() {
    check("input = [7]\nlayers = [{ kind = 'dense', units = 5 }]");
    check("input = [7]\nlayers = [{ kind = 'dense', units = 1, bias = false }]");
    check("input = [4, 7]\nlayers = [{ kind = 'dense', units = 5 }]");
}

#[test]
fn conv2d() {
    check("input = [2, 6, 7]\nlayers = [{ kind = 'conv2d', channels = 3, kernel = 3 }]");
    check("input = [2, 6, 7]\nlayers = [{ kind = 'conv2d', channels = 3, kernel = 5, padding = 2 }]");
    check("input = [3, 7, 8]\nlayers = [{ kind = 'conv2d', channels = 2, kernel = 3, stride = 2, padding = 1 }]");
    check(
        "input = [3, 7, 8]\nlayers = [{ kind = 'conv2d', channels = 2, kernel = 4, stride = 3, padding = 3, bias = false }]",
    );
    check("input = [3, 4, 5]\nlayers = [{ kind = 'conv2d', channels = 2, kernel = 1 }]");
    check("input = [3, 5, 5]\nlayers = [{ kind = 'conv2d', channels = 2, kernel = 1, stride = 2 }]");
    check("input = [1, 1, 1]\nlayers = [{ kind = 'conv2d', channels = 1, kernel = 5, padding = 4 }]");
}

#[test]
fn max_pool2d() {
    check("input = [2, 6, 8]\nlayers = [{ kind = 'max-pool2d', kernel = 2 }]");
    check("input = [2, 7, 8]\nlayers = [{ kind = 'max-pool2d', kernel = 3 }]");
    check("input = [2, 7, 8]\nlayers = [{ kind = 'max-pool2d', kernel = 3, stride = 2 }]");
}

#[test]
fn average_pool2d() {
    check("input = [2, 6, 8]\nlayers = [{ kind = 'average-pool2d', kernel = 2 }]");
    check("input = [2, 7, 8]\nlayers = [{ kind = 'average-pool2d', kernel = 3 }]");
    check("input = [2, 7, 8]\nlayers = [{ kind = 'average-pool2d', kernel = 3, stride = 1 }]");
    check("input = [2, 4, 3]\nlayers = [{ kind = 'average-pool2d' }]");
    check("input = [2, 1, 1]\nlayers = [{ kind = 'average-pool2d' }]");
}

#[test]
fn dropout() {
    check("input = [4, 5]\nlayers = [{ kind = 'dropout', rate = 0.4 }]");
    check("input = [4, 5]\nlayers = [{ kind = 'dropout', rate = 0.0 }]");
}

#[test]
fn norms() {
    for layer in [
        "{ kind = 'group-norm', groups = 2 }",
        "{ kind = 'group-norm', groups = 4, epsilon = 0.1 }",
        "{ kind = 'batch-norm' }",
        "{ kind = 'batch-norm', momentum = 1.0, epsilon = 0.1 }",
    ] {
        check(&format!("input = [4, 3, 6]\nlayers = [{layer}]"));
        check(&format!(
            "input = [5]\nlayers = [{{ kind = 'dense', units = 8 }}, {layer}, {{ kind = 'tanh' }}]"
        ));
    }
    for input in ["[6]", "[5, 6]"] {
        check(&format!("input = {input}\nlayers = [{{ kind = 'layer-norm' }}]"));
    }
}

#[test]
fn embedding() {
    let description = model(
        "input = [4]
        layers = [{ kind = 'embedding', vocabulary = 5, dimension = 3 }, { kind = 'dense', units = 2 }]",
    );
    let mut rng = ChaCha8Rng::seed_from_u64(2);
    let weights = Weights::initial(&description, &mut rng).unwrap();
    let tokens: Vec<u32> = (0..4 * EXAMPLES).map(|_| rng.random_range(0..5)).collect();
    let input = Tensor::from_vec(tokens, (EXAMPLES, 4), &Device::Cpu).unwrap();
    let pass = |network: Network| {
        let above = vec![0.5; EXAMPLES * 8];
        pass(network, &weights, &input, &above)
    };
    let ours = pass(Network::new(&description, &Device::Cpu).unwrap());
    let reference = pass(Network::by_definition(&description, &Device::Cpu).unwrap());
    assert_close("output", &ours.output, &reference.output, 1e-5);
    assert_close("gradient", &ours.gradient, &reference.gradient, 1e-5);
    assert!(ours.input_gradient.iter().all(|value| *value == 0.0));
    for token in [5.0, -1.0, 0.5, f32::NAN] {
        let mut network = Network::new(&description, &Device::Cpu).unwrap();
        let input = Tensor::new(&[[0.0, token, 0.0, 0.0]], &Device::Cpu).unwrap();
        let error = network.forward(&input, &mut Mode::Evaluate).unwrap_err();
        assert!(matches!(error, ModelError::Token { last: 4, .. }), "{error}");
    }
}

#[test]
fn activations() {
    for kind in ["relu", "gelu", "tanh", "sigmoid"] {
        check(&format!("input = [2, 3]\nlayers = [{{ kind = '{kind}' }}]"));
    }
}

#[test]
fn flatten() {
    check("input = [2, 3, 4]\nlayers = [{ kind = 'flatten' }]");
}

#[test]
fn attention() {
    check("input = [4, 6]\nlayers = [{ kind = 'attention', heads = 2, head_size = 3 }]");
    check("input = [5, 4]\nlayers = [{ kind = 'attention', heads = 3, head_size = 2, causal = true }]");
    check("input = [1, 3]\nlayers = [{ kind = 'attention', heads = 1, head_size = 1 }]");
    check(
        "input = [3, 4]
        layers = [
            { kind = 'dense', units = 6 },
            { kind = 'residual', layers = [{ kind = 'layer-norm' }, { kind = 'attention', heads = 2, head_size = 3 }] },
            { kind = 'flatten' },
            { kind = 'dense', units = 2 },
        ]",
    );
}

#[test]
fn scaler() {
    check("input = [2, 3]\nlayers = [{ kind = 'dense', units = 3 }, { kind = 'scaler', share = 0.25 }]");
}

#[test]
fn residual() {
    check(
        "input = [5]
        layers = [{ kind = 'residual', layers = [{ kind = 'tanh' }, { kind = 'dense', units = 5 }] }]",
    );
    check(
        "input = [2, 6, 6]
        layers = [
            { kind = 'conv2d', channels = 4, kernel = 1 },
            { kind = 'residual', layers = [
                { kind = 'conv2d', channels = 3, kernel = 3, padding = 1, stride = 2 },
                { kind = 'sigmoid' },
                { kind = 'conv2d', channels = 6, kernel = 3, padding = 1 },
            ], shortcut = [{ kind = 'conv2d', channels = 6, kernel = 1, stride = 2 }] },
            { kind = 'gelu' },
        ]",
    );
}

#[test]
fn whole_presets() {
    check("preset = 'logistic-regression'\ninput = [9]\nclasses = 4");
    check("preset = 'mlp'\ninput = [1, 4, 4]\nclasses = 3");
    check("preset = 'mcmahan-cnn'\ninput = [1, 8, 8]\nclasses = 3");
}
