//! Sub-models: what they keep, that they are ordinary models, and that they go back where they came from.
#![allow(clippy::unwrap_used)]

use candle_core::{Device, Tensor};
use proptest::prelude::*;
use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};
use selvedge_models::{Mode, ModelDescription, Network, Preset, SubModel, Weights};

fn model(text: &str) -> ModelDescription {
    toml::from_str(text).unwrap()
}

fn parameters(model: &ModelDescription) -> usize {
    model.layout().unwrap().parameter_count()
}

#[test]
fn the_heterofl_cnn_has_the_parameters_its_paper_counts_at_every_width() {
    let whole = Preset::HeteroflCnn.describe(&[1, 28, 28], 10);
    let layout = whole.layout().unwrap();
    let count = |width| parameters(&whole.thinned(&layout.units_at(width), false).unwrap());
    let counts = [1.0, 0.5, 0.25, 0.125, 0.0625].map(count);
    assert_eq!(counts, [1_556_874, 391_370, 98_922, 25_274, 6_594]);
}

#[test]
fn heads_residual_streams_and_norms_are_thinned_together() {
    let whole = model(
        "input = [5]
        layers = [
            { kind = 'embedding', vocabulary = 7, dimension = 8 },
            { kind = 'residual', layers = [{ kind = 'layer-norm' }, { kind = 'attention', heads = 4, head_size = 2 }] },
            { kind = 'residual', layers = [{ kind = 'dense', units = 16 }, { kind = 'gelu' }, { kind = 'dense', units = 8 }] },
            { kind = 'flatten' },
            { kind = 'dense', units = 3 },
        ]",
    );
    let thinned = model(
        "input = [5]
        layers = [
            { kind = 'embedding', vocabulary = 7, dimension = 4 },
            { kind = 'residual', layers = [{ kind = 'layer-norm' }, { kind = 'attention', heads = 2, head_size = 2 }] },
            { kind = 'residual', layers = [{ kind = 'dense', units = 8 }, { kind = 'gelu' }, { kind = 'dense', units = 4 }] },
            { kind = 'flatten' },
            { kind = 'dense', units = 3 },
        ]",
    );
    let layout = whole.layout().unwrap();
    assert_eq!(whole.thinned(&layout.units_at(0.5), false).unwrap(), thinned);
}

#[test]
fn a_scaler_follows_each_layer_whose_outputs_are_thinned() {
    let whole = model("preset = 'mlp'\ninput = [4]\nclasses = 3");
    let kinds = |model: &ModelDescription| model.layers.iter().map(|layer| layer.kind()).collect::<Vec<_>>();
    let thinned = whole.thinned(&[50, 200], true).unwrap();
    assert_eq!(
        kinds(&thinned),
        ["flatten", "dense", "scaler", "relu", "dense", "relu", "dense"]
    );
    assert_eq!(kinds(&whole.thinned(&[200, 200], true).unwrap()), kinds(&whole));
}

#[test]
fn what_cannot_be_kept_is_refused_and_the_layer_named() {
    let whole = Preset::ResNet8.describe(&[1, 8, 8], 10);
    let refused = |units: &[usize], parts: &[&str]| {
        let error = whole.thinned(units, false).unwrap_err().to_string();
        parts
            .iter()
            .for_each(|part| assert!(error.contains(part), "`{part}` is not in: {error}"));
    };
    refused(&[0, 16, 32, 32, 64, 64], &["layer 0", "cannot keep 0 of its 16 units"]);
    refused(&[16, 17, 32, 32, 64, 64], &["layer 3.layers.0", "17"]);
    refused(
        &[16, 3, 32, 32, 64, 64],
        &["layer 3.layers.1 (group-norm)", "`groups` is 2", "3 channels"],
    );
    refused(&[16], &["1 width groups", "6"]);
    let layout = whole.layout().unwrap();
    for units in [vec![1, 0], vec![0, 0], vec![0, 16], vec![]] {
        let mut all = SubModel::whole(&layout).units;
        all[0] = units;
        assert!(SubModel::new(&layout, all).is_err());
    }
}

/// A chain of blocks on images, then on rows.
fn image_model() -> impl Strategy<Value = String> {
    let block = (
        1usize..6,
        0usize..4,
        prop_oneof!["batch-norm", "relu", "group-norm', groups = 1, epsilon = '1e-5"],
    );
    (1usize..6, proptest::collection::vec(block, 0..4), 1usize..5).prop_map(|(first, blocks, hidden)| {
        let mut layers = vec![format!(
            "{{ kind = 'conv2d', channels = {first}, kernel = 3, padding = 1 }}"
        )];
        let mut channels = first;
        for (inner, shape, norm) in blocks {
            let norm = match norm.starts_with("group") {
                true => "{ kind = 'group-norm', groups = 1 }".to_string(),
                false => format!("{{ kind = '{norm}' }}"),
            };
            let main = |out| {
                format!(
                    "[{{ kind = 'conv2d', channels = {inner}, kernel = 1 }}, {norm}, \
                     {{ kind = 'conv2d', channels = {out}, kernel = 3, padding = 1 }}]"
                )
            };
            layers.push(match shape {
                0 => format!("{{ kind = 'residual', layers = {} }}", main(channels)),
                1 => {
                    channels = inner + 1;
                    let shortcut = format!("[{{ kind = 'conv2d', channels = {channels}, kernel = 1, bias = false }}]");
                    format!(
                        "{{ kind = 'residual', layers = {}, shortcut = {shortcut} }}",
                        main(channels)
                    )
                }
                2 => {
                    channels = inner;
                    format!("{{ kind = 'conv2d', channels = {inner}, kernel = 3, padding = 1 }}, {norm}")
                }
                _ => "{ kind = 'max-pool2d', kernel = 1 }".to_string(),
            });
        }
        layers.push("{ kind = 'flatten' }".into());
        layers.push(format!("{{ kind = 'dense', units = {hidden} }}, {{ kind = 'tanh' }}"));
        layers.push("{ kind = 'dense', units = 3 }".into());
        format!("input = [2, 4, 3]\nlayers = [{}]", layers.join(", "))
    })
}

/// A small transformer.
fn sequence_model() -> impl Strategy<Value = String> {
    let block = (1usize..4, 1usize..3, 1usize..5, any::<bool>());
    (1usize..5, proptest::collection::vec(block, 0..3)).prop_map(|(features, blocks)| {
        let mut layers = vec![format!("{{ kind = 'dense', units = {features} }}")];
        for (heads, size, hidden, norm) in blocks {
            let norm = if norm { "{ kind = 'layer-norm' }, " } else { "" };
            layers.push(format!(
                "{{ kind = 'residual', layers = [{norm}{{ kind = 'attention', heads = {heads}, head_size = {size} }}] }}"
            ));
            layers.push(format!(
                "{{ kind = 'residual', layers = [{{ kind = 'dense', units = {hidden} }}, {{ kind = 'gelu' }}, \
                 {{ kind = 'dense', units = {features} }}] }}"
            ));
        }
        layers.push("{ kind = 'flatten' }, { kind = 'dense', units = 2 }".into());
        format!("input = [3, 2]\nlayers = [{}]", layers.join(", "))
    })
}

/// A model, and for each of its width groups which units to keep.
fn sub_model() -> impl Strategy<Value = (ModelDescription, SubModel)> {
    let text = prop_oneof![image_model(), sequence_model()];
    (text, proptest::collection::vec(any::<u32>(), 40)).prop_map(|(text, draws)| {
        let whole = model(&text);
        let layout = whole.layout().unwrap();
        let keep = |(units, draw): (usize, u32)| {
            let kept: Vec<u32> = (0..units as u32).filter(|unit| draw >> unit & 1 == 1).collect();
            if kept.is_empty() {
                vec![draw % units as u32]
            } else {
                kept
            }
        };
        let units = layout
            .groups
            .iter()
            .map(|group| group.units)
            .zip(draws)
            .map(keep)
            .collect();
        let part = SubModel::new(&layout, units).unwrap();
        (whole, part)
    })
}

fn drawn(model: &ModelDescription) -> Weights {
    let mut weights = Weights::initial(model, &mut ChaCha8Rng::seed_from_u64(3)).unwrap();
    weights
        .buffers
        .iter_mut()
        .enumerate()
        .for_each(|(at, value)| *value += 0.1 * at as f32);
    weights
}

fn evaluate(model: &ModelDescription, weights: &Weights) -> Vec<f32> {
    let mut network = Network::new(model, &Device::Cpu).unwrap();
    network.load(weights).unwrap();
    let shape = [&[2], model.input.as_slice()].concat();
    let values = (0..shape.iter().product())
        .map(|at: usize| (at as f32 * 0.7).sin())
        .collect();
    let input = Tensor::from_vec::<_, f32>(values, shape, &Device::Cpu).unwrap();
    let output = network.forward(&input, &mut Mode::Evaluate).unwrap();
    output.flatten_all().unwrap().to_vec1().unwrap()
}

proptest! {
    #[test]
    fn what_is_kept_is_the_thinned_models_tensors_in_order((whole, part) in sub_model()) {
        let kept: Vec<usize> = part.units.iter().map(Vec::len).collect();
        let thinned = whole.thinned(&kept, false).unwrap().layout().unwrap();
        let layout = whole.layout().unwrap();
        prop_assert_eq!(part.parameters.count(), thinned.parameter_count());
        prop_assert_eq!(part.buffers.count(), thinned.buffer_count());
        for (entries, thin) in [(&layout.parameters, &thinned.parameters), (&layout.buffers, &thinned.buffers)] {
            prop_assert_eq!(entries.len(), thin.len());
            prop_assert!(entries.iter().zip(thin).all(|(one, other)| one.name == other.name));
        }
    }

    #[test]
    fn extracting_and_merging_is_the_identity((whole, part) in sub_model()) {
        let weights = drawn(&whole);
        let mut merged = weights.clone();
        part.merge(&part.extract(&weights), &mut merged);
        prop_assert_eq!(&merged, &weights);
        // And the other way: what was merged is what is extracted, and nothing else has changed.
        let trained = part.extract(&Weights {
            parameters: weights.parameters.iter().map(|value| value + 1.0).collect(),
            buffers: weights.buffers.iter().map(|value| value + 1.0).collect(),
        });
        part.merge(&trained, &mut merged);
        prop_assert_eq!(part.extract(&merged), trained);
        let changed = merged.parameters.iter().zip(&weights.parameters).filter(|(one, other)| one != other);
        prop_assert_eq!(changed.count(), part.parameters.count());
    }

    #[test]
    fn all_units_make_the_whole_model((whole, _) in sub_model()) {
        let layout = whole.layout().unwrap();
        let all = SubModel::whole(&layout);
        prop_assert_eq!(&SubModel::new(&layout, all.units.clone()).unwrap(), &all);
        prop_assert!(all.is_whole());
        prop_assert_eq!(whole.thinned(&layout.units_at(1.0), true).unwrap(), whole);
    }

    /// Which values belong to which unit: with all others 0, the whole model computes what the sub-model does. Not so
    /// with norms over units, whose statistics change with their number.
    #[test]
    fn a_sub_model_computes_what_the_whole_does_without_the_other_units((whole, part) in sub_model()) {
        let kinds = format!("{:?}", whole.layers);
        prop_assume!(!kinds.contains("GroupNorm") && !kinds.contains("LayerNorm"));
        let weights = drawn(&whole);
        let mut alone = Weights::zeros(&whole.layout().unwrap());
        alone.buffers.clone_from(&weights.buffers);
        let extracted = part.extract(&weights);
        part.merge(&extracted, &mut alone);
        let kept: Vec<usize> = part.units.iter().map(Vec::len).collect();
        let thinned = whole.thinned(&kept, false).unwrap();
        for (one, other) in evaluate(&thinned, &extracted).iter().zip(evaluate(&whole, &alone)) {
            prop_assert!((one - other).abs() <= 1e-4 * (1.0 + one.abs()), "{one} {other}");
        }
    }
}
