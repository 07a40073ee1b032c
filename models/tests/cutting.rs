//! A model cut in two is the same model.
#![allow(clippy::unwrap_used)]

use candle_core::{Device, Tensor};
use rand::Rng;
use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};
use selvedge_models::{Mode, ModelDescription, Network, Weights};

#[test]
fn cut_anywhere_front_and_back_give_the_bits_of_the_whole() {
    let description: ModelDescription = toml::from_str(
        "input = [2, 6, 6]
        layers = [
            { kind = 'conv2d', channels = 4, kernel = 3, padding = 1 },
            { kind = 'batch-norm' },
            { kind = 'relu' },
            { kind = 'residual', layers = [{ kind = 'conv2d', channels = 4, kernel = 1 }] },
            { kind = 'max-pool2d', kernel = 2 },
            { kind = 'flatten' },
            { kind = 'dropout', rate = 0.3 },
            { kind = 'dense', units = 5 },
        ]",
    )
    .unwrap();
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let weights = Weights::initial(&description, &mut rng).unwrap();
    let device = Device::Cpu;
    let random = |shape: &[usize], rng: &mut ChaCha8Rng| {
        let values = (0..shape.iter().product()).map(|_| rng.random_range(-1.0..1.0f32));
        Tensor::from_vec(values.collect(), shape, &device).unwrap()
    };
    let input = random(&[3, 2, 6, 6], &mut rng);
    let above = random(&[3, 5], &mut rng);
    let live = |description: &ModelDescription, weights: &Weights| {
        let mut network = Network::new(description, &device).unwrap();
        network.load(weights).unwrap();
        network
    };
    let values = |tensor: &Tensor| tensor.flatten_all().unwrap().to_vec1::<f32>().unwrap();
    let gradient = |network: &mut Network| {
        let mut copy = vec![];
        network.update(|_, gradient| copy = gradient.to_vec());
        copy
    };

    let mut whole = live(&description, &weights);
    let draws = ChaCha8Rng::seed_from_u64(2);
    let output = whole.forward(&input, &mut Mode::Train(&draws)).unwrap();
    whole.backward(&above).unwrap();

    for at in 1..description.layers.len() {
        let (front, back) = description.cut(at).unwrap();
        let (front_weights, back_weights) = weights.cut(&front.layout().unwrap()).unwrap();
        assert_eq!(Weights::join(&front_weights, &back_weights), weights);
        let mut front = live(&front, &front_weights);
        let mut back = live(&back, &back_weights);
        let names = [front.layout(), back.layout()];
        let names = names
            .iter()
            .flat_map(|layout| layout.parameters.iter().map(|entry| &entry.name));
        assert!(names.eq(whole.layout().parameters.iter().map(|entry| &entry.name)));

        let draws = ChaCha8Rng::seed_from_u64(2);
        let mut mode = Mode::Train(&draws);
        let smashed = front.forward(&input, &mut mode).unwrap();
        let cut_output = back.forward(&smashed, &mut mode).unwrap();
        let cut_gradient = back.backward_to_input(&above).unwrap();
        front.backward(&cut_gradient).unwrap();

        assert_eq!(values(&cut_output), values(&output), "cut after {at}");
        let joined = [gradient(&mut front), gradient(&mut back)].concat();
        assert_eq!(joined, gradient(&mut whole), "cut after {at}");
        let joined = Weights::join(&front.weights(), &back.weights());
        assert_eq!(joined, whole.weights(), "cut after {at}");
    }
}

#[test]
fn a_cut_that_leaves_nothing_on_one_side_is_refused() {
    let description: ModelDescription = toml::from_str("preset = 'mlp'").unwrap();
    for at in [0, 6, 7, usize::MAX] {
        assert!(description.cut(at).is_err());
    }
}
