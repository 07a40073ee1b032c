//! What a description says, and what is said about one that is wrong.
#![allow(clippy::unwrap_used)]

use candle_core::{Device, Tensor};
use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};
use selvedge_models::{Axis, BatchTargets, Layout, Loss, Mode, ModelDescription, Network, Preset, Weights, WidthGroup};

fn model(text: &str) -> ModelDescription {
    toml::from_str(text).unwrap()
}

fn units(layout: &Layout) -> Vec<usize> {
    layout.groups.iter().map(|group| group.units).collect()
}

#[track_caller]
fn refused(text: &str, parts: &[&str]) {
    let error = toml::from_str::<ModelDescription>(text).unwrap_err().to_string();
    for part in parts {
        assert!(error.contains(part), "`{part}` is not in: {error}");
    }
}

#[test]
fn presets_have_the_parameters_their_papers_count() {
    let count = |preset: &str| {
        model(&format!("preset = '{preset}'"))
            .layout()
            .unwrap()
            .parameter_count()
    };
    assert_eq!(count("logistic-regression"), 7_850);
    assert_eq!(count("mlp"), 199_210);
    assert_eq!(count("lenet-5"), 61_706);
    assert_eq!(count("mcmahan-cnn"), 1_663_370);
    assert_eq!(count("heterofl-cnn"), 1_556_874);
    assert_eq!(count("resnet-8"), 77_754);
    assert_eq!(count("resnet-18"), 11_172_810);
}

#[test]
fn the_heterofl_cnn_at_half_width_has_the_parameters_its_paper_counts() {
    let mut text = toml::to_string(&model("preset = 'heterofl-cnn'")).unwrap();
    for width in [64, 128, 256, 512] {
        text = text.replace(&format!("channels = {width}\n"), &format!("channels = {}\n", width / 2));
    }
    assert_eq!(model(&text).layout().unwrap().parameter_count(), 391_370);
}

#[test]
fn every_preset_takes_other_images_and_classes_and_trains_a_step() {
    for preset in [
        "logistic-regression",
        "mlp",
        "lenet-5",
        "mcmahan-cnn",
        "heterofl-cnn",
        "resnet-8",
        "resnet-18",
    ] {
        let description = model(&format!("preset = '{preset}'\ninput = [3, 16, 16]\nclasses = 7"));
        assert_eq!(description.output().unwrap(), [7]);
        let mut rng = ChaCha8Rng::seed_from_u64(5);
        let mut network = Network::new(&description, &Device::Cpu).unwrap();
        network
            .load(&Weights::initial(&description, &mut rng).unwrap())
            .unwrap();
        let input = Tensor::ones((1, 3, 16, 16), candle_core::DType::F32, &Device::Cpu).unwrap();
        let loss = |network: &mut Network| {
            let output = network.forward(&input, &mut Mode::Train(&rng)).unwrap();
            let loss = Loss::CrossEntropy
                .evaluate(&output, BatchTargets::Classes(&[3]))
                .unwrap();
            network.backward(&loss.gradient).unwrap();
            loss.sum
        };
        let before = loss(&mut network);
        network.update(|parameters, gradient| {
            for (parameter, gradient) in parameters.iter_mut().zip(gradient) {
                *parameter -= 1e-3 * *gradient;
            }
        });
        let after = loss(&mut network);
        assert!(after < before, "{preset}: {before} became {after}");
    }
}

#[test]
fn a_description_written_out_is_read_back_the_same() {
    for preset in ["lenet-5", "mcmahan-cnn", "heterofl-cnn", "resnet-18"] {
        let description = model(&format!("preset = '{preset}'"));
        assert_eq!(model(&toml::to_string(&description).unwrap()), description);
    }
    let (_, back) = model("preset = 'mlp'").cut(2).unwrap();
    assert_eq!(model(&toml::to_string(&back).unwrap()), back);
}

#[test]
fn shapes_that_do_not_chain_are_refused_with_the_layer_and_both_shapes() {
    let image = "input = [1, 8, 8]\nlayers = [{ kind = 'conv2d', channels = 4, kernel = 3 }, ";
    refused(
        &format!("{image}{{ kind = 'dense', units = 2 }}]"),
        &["layer 1 (dense)", "[4, 6, 6]", "[features]", "flatten"],
    );
    refused(
        &format!("{image}{{ kind = 'flatten' }}, {{ kind = 'max-pool2d', kernel = 2 }}]"),
        &["layer 2 (max-pool2d)", "[144]", "[channels, height, width]"],
    );
    refused(
        &format!("{image}{{ kind = 'conv2d', channels = 4, kernel = 9, padding = 1 }}]"),
        &["layer 1 (conv2d)", "9x9", "[4, 6, 6]"],
    );
    refused(
        &format!("{image}{{ kind = 'residual', layers = [{{ kind = 'conv2d', channels = 5, kernel = 1 }}] }}]"),
        &["layer 1 (residual)", "[5, 6, 6]", "[4, 6, 6]"],
    );
    refused(
        &format!("{image}{{ kind = 'residual', layers = [{{ kind = 'relu' }}, {{ kind = 'layer-norm' }}] }}]"),
        &["layer 1.layers.1 (layer-norm)", "[4, 6, 6]", "[sequence, features]"],
    );
    refused(
        &format!("{image}{{ kind = 'group-norm', groups = 3 }}]"),
        &["layer 1 (group-norm)", "`groups` is 3", "4 channels"],
    );
}

#[test]
fn settings_out_of_range_and_unknown_keys_are_refused() {
    let layer = |layer: &str| format!("input = [2, 8, 8]\nlayers = [{{ {layer} }}]");
    refused(
        &layer("kind = 'conv2d', channels = 0, kernel = 3"),
        &["`channels` is 0"],
    );
    refused(&layer("kind = 'conv2d', channels = 1, kernel = 0"), &["`kernel` is 0"]);
    refused(
        &layer("kind = 'conv2d', channels = 1, kernel = 3, stride = 0"),
        &["`stride` is 0"],
    );
    refused(
        &layer("kind = 'conv2d', channels = 1, kernel = 3, padding = 3"),
        &["`padding` is 3"],
    );
    refused(
        &layer("kind = 'conv2d', chanels = 1, kernel = 3"),
        &["unknown field `chanels`"],
    );
    refused(&layer("kind = 'dropout', rate = 1.0"), &["`rate` is 1"]);
    refused(&layer("kind = 'dropout', rate = nan"), &["`rate` is NaN"]);
    refused(&layer("kind = 'batch-norm', momentum = 0.0"), &["`momentum` is 0"]);
    refused(
        &layer("kind = 'group-norm', groups = 1, epsilon = -1.0"),
        &["`epsilon` is -1"],
    );
    refused(
        &layer("kind = 'average-pool2d', stride = 2"),
        &["`stride` is 2", "without `kernel`"],
    );
    refused(&layer("kind = 'relu', slope = 1"), &["unknown field `slope`"]);
    refused(
        &layer("kind = 'convolution'"),
        &["unknown variant `convolution`", "`conv2d`"],
    );
    refused("preset = 'mpl'", &["unknown variant `mpl`", "`mlp`"]);
    refused("input = [4]\nlayers = []", &["no layers"]);
    refused("input = []\nlayers = [{ kind = 'relu' }]", &["`input` is []"]);
    refused("input = [4]", &["`preset`", "`layers`"]);
    refused("preset = 'mlp'\nlayers = []", &["both `preset` and `layers`"]);
    refused("input = [4]\nclasses = 3\nlayers = [{ kind = 'relu' }]", &["`classes`"]);
    refused("preset = 'mcmahan-cnn'\ninput = [784]", &["layer 0 (conv2d)", "[784]"]);
}

#[test]
fn absurd_sizes_are_refused_without_being_allocated() {
    let dense = |units: u64| format!("{{ kind = 'dense', units = {units} }}");
    refused(
        &format!("input = [4]\nlayers = [{}]", dense(1_000_000_000_000)),
        &["layer 0", "more than"],
    );
    refused(
        &format!("input = [4]\nlayers = [{}, {}]", dense(1 << 20), dense(1 << 20)),
        &["parameters", "2147483648"],
    );
    refused(
        "input = [9223372036854775807, 3]\nlayers = [{ kind = 'flatten' }]",
        &["too large"],
    );
    refused(
        "input = [1, 8, 8]\nlayers = [{ kind = 'conv2d', channels = 1, kernel = 4611686018427387904, padding = 4611686018427387903 }]",
        &["layer 0"],
    );
    refused(
        "input = [1, 2000, 2000]\nlayers = [{ kind = 'conv2d', channels = 1000, kernel = 1 }]",
        &["layer 0", "its output"],
    );
}

#[test]
fn width_groups_join_a_layers_outputs_with_the_next_ones_inputs() {
    let group = |group, block| Axis::Group {
        group: WidthGroup(group),
        block,
    };
    let layout = model("preset = 'mcmahan-cnn'").layout().unwrap();
    assert_eq!(units(&layout), [32, 64, 512]);
    let axes = |name: &str| &layout.parameters.iter().find(|entry| entry.name == name).unwrap().axes;
    assert_eq!(*axes("0.weight"), [group(0, 1), Axis::Fixed, Axis::Fixed, Axis::Fixed]);
    assert_eq!(*axes("0.bias"), [group(0, 1)]);
    assert_eq!(*axes("3.weight"), [group(1, 1), group(0, 1), Axis::Fixed, Axis::Fixed]);
    assert_eq!(*axes("7.weight"), [group(2, 1), group(1, 49)]);
    assert_eq!(*axes("9.weight"), [Axis::Fixed, group(2, 1)]);
    assert_eq!(*axes("9.bias"), [Axis::Fixed]);
}

#[test]
fn layers_that_write_into_one_residual_stream_share_a_width_group() {
    let layout = model("preset = 'resnet-8'").layout().unwrap();
    // Three streams, and the inside of each of the three blocks.
    assert_eq!(layout.groups.len(), 6);
    let first = |name: &str| layout.parameters.iter().find(|entry| entry.name == name).unwrap().axes[0];
    assert_eq!(first("0.weight"), first("3.layers.3.weight"));
    assert_ne!(first("0.weight"), first("3.layers.0.weight"));
    assert_eq!(first("5.layers.3.weight"), first("5.shortcut.0.weight"));
}

#[test]
fn a_residual_stream_that_starts_at_the_input_is_never_thinned() {
    let layout = model(
        "input = [6]
        layers = [
            { kind = 'residual', layers = [{ kind = 'dense', units = 9 }, { kind = 'dense', units = 6 }] },
            { kind = 'dense', units = 2 },
        ]",
    )
    .layout()
    .unwrap();
    assert_eq!(units(&layout), [9]);
    assert_eq!(
        layout.parameters[2].axes,
        [
            Axis::Fixed,
            Axis::Group {
                group: WidthGroup(0),
                block: 1
            }
        ]
    );
}

#[test]
fn a_summary_counts_parameters_and_work() {
    let summary = Preset::McmahanCnn.describe(&[1, 28, 28], 10).summary().unwrap();
    assert_eq!(summary.parameters, 1_663_370);
    assert_eq!(summary.layers[3].operations, 64 * 14 * 14 * (2 * 800 + 1));
    assert_eq!(summary.layers[3].output, [64, 14, 14]);
    let text = summary.to_string();
    assert!(text.contains("1,663,370"), "{text}");
    assert!(text.contains("can be cut after 1 to 9 layers"), "{text}");
}
