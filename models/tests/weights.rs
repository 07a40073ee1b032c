//! Weights: drawn, hashed, saved and read.
#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};
use selvedge_models::{ModelDescription, ModelError, Weights};

fn model(text: &str) -> ModelDescription {
    toml::from_str(text).unwrap()
}

fn drawn(description: &ModelDescription, seed: u64) -> Weights {
    Weights::initial(description, &mut ChaCha8Rng::seed_from_u64(seed)).unwrap()
}

#[test]
fn the_same_seed_draws_the_same_weights_and_another_others() {
    let description = model("preset = 'heterofl-cnn'");
    assert_eq!(drawn(&description, 1), drawn(&description, 1));
    assert_ne!(drawn(&description, 1), drawn(&description, 2));
}

#[test]
fn weights_start_where_pytorch_starts_them() {
    let description = model(
        "input = [3, 8, 8]
        layers = [
            { kind = 'conv2d', channels = 200, kernel = 5 },
            { kind = 'batch-norm' },
            { kind = 'flatten' },
            { kind = 'dense', units = 30 },
        ]",
    );
    let layout = description.layout().unwrap();
    let weights = drawn(&description, 0);
    for (name, bound) in [
        ("0.weight", 1.0 / 75f32.sqrt()),
        ("0.bias", 1.0 / 75f32.sqrt()),
        ("3.weight", 1.0 / 3200f32.sqrt()),
        ("3.bias", 1.0 / 3200f32.sqrt()),
    ] {
        let entry = layout.parameters.iter().find(|entry| entry.name == name).unwrap();
        let values = &weights.parameters[entry.range()];
        let largest = values.iter().fold(0f32, |largest, value| largest.max(value.abs()));
        assert!(
            largest <= bound && largest > 0.8 * bound,
            "{name}: {largest} of {bound}"
        );
        let mean = values.iter().sum::<f32>() / values.len() as f32;
        assert!(
            mean.abs() < 2.0 * bound / (values.len() as f32).sqrt(),
            "{name}: {mean}"
        );
    }
    let constant = |entry: usize| &weights.parameters[layout.parameters[entry].range()];
    assert!(constant(2).iter().all(|value| *value == 1.0));
    assert!(constant(3).iter().all(|value| *value == 0.0));
    assert_eq!(layout.buffers[0].name, "1.running_mean");
    assert!(weights.buffers[..200].iter().all(|value| *value == 0.0));
    assert!(weights.buffers[200..].iter().all(|value| *value == 1.0));
}

#[test]
fn the_hash_is_of_the_little_endian_bytes_of_parameters_and_then_buffers() {
    let weights = Weights {
        parameters: vec![1.0, -2.0],
        buffers: vec![0.5],
    };
    let bytes = [0, 0, 128, 63, 0, 0, 0, 192, 0, 0, 0, 63];
    assert_eq!(weights.blake3(), blake3::hash(&bytes).to_hex().to_string());
}

#[test]
fn a_saved_file_is_read_back_bit_for_bit() {
    let description = model("preset = 'resnet-8'");
    let layout = description.layout().unwrap();
    let weights = drawn(&description, 3);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    weights.save(&layout, &path).unwrap();
    assert_eq!(Weights::load(&path, &layout).unwrap(), weights);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    assert!(matches!(
        Weights::load(&folder.path().join("none"), &layout),
        Err(ModelError::Io { .. })
    ));
}

#[test]
fn a_file_of_another_model_is_refused_and_says_why() {
    let file = |text: &str| {
        let description = model(text);
        drawn(&description, 0)
            .to_safetensors(&description.layout().unwrap())
            .unwrap()
    };
    let layout = model("preset = 'mlp'").layout().unwrap();
    let refused = |file: &[u8], part: &str| {
        let error = Weights::from_safetensors(file, &layout).unwrap_err().to_string();
        assert!(error.contains(part), "`{part}` is not in: {error}");
    };
    refused(&file("preset = 'mlp'\nclasses = 4"), "`5.weight` is [4, 200]");
    refused(&file("preset = 'logistic-regression'"), "`1.weight` is [10, 784]");
    refused(&file("preset = 'mcmahan-cnn'"), "the model has no tensor `");
    refused(b"not a safetensors file", "weights file");
    let mut whole = file("preset = 'mlp'");
    whole.truncate(whole.len() - 1);
    refused(&whole, "weights file");
}

proptest! {
    #[test]
    fn any_values_survive_a_file(seeds in proptest::collection::vec(any::<u32>(), 7)) {
        let description = model("input = [2]\nlayers = [{ kind = 'dense', units = 1 }, { kind = 'batch-norm' }]");
        let layout = description.layout().unwrap();
        let values: Vec<f32> = seeds.iter().map(|bits| f32::from_bits(*bits)).collect();
        let weights = Weights { parameters: values[..5].to_vec(), buffers: values[5..].to_vec() };
        let file = weights.to_safetensors(&layout).unwrap();
        let read = Weights::from_safetensors(&file, &layout).unwrap();
        prop_assert_eq!(read.blake3(), weights.blake3());
    }
}
