//! Layers and modules that are defined outside the crate, with no kernels: they are layers like any other.
#![allow(clippy::unwrap_used)]

use candle_core::{Device, Tensor};
use candle_nn::VarBuilder;
use rand::Rng;
use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};
use selvedge_models::{
    BatchTargets, CandleModule, Custom, CustomLayer, Initial, LayerDescription, Loss, Mode, ModelDescription,
    ModelError, Network, Optimiser, OptimiserDescription, Weights,
    layer::{DeclaredTensor, Fault, Layer, LayerSettings, PlacedLayer, Signal, Thinner, WidthGroups},
};
use selvedge_words::{Registry, choice::Settings};
use serde::{Deserialize, Serialize};

/// A dense layer that has only its definition.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Linear {
    units: usize,
    #[serde(default)]
    negated: bool,
}

struct LiveLinear {
    negated: bool,
}

impl LayerSettings for Linear {
    fn build(&self, place: &str, input: &Signal, groups: &mut WidthGroups) -> Result<PlacedLayer, Fault> {
        let inputs = input.size();
        let width = groups.open(place, self.units);
        let initial = Initial::uniform_by_inputs(inputs);
        let weight = DeclaredTensor::new("weight", [(self.units, width), (inputs, input.width)], initial);
        let bias = DeclaredTensor::new("bias", [(self.units, width)], initial);
        let output = Signal {
            shape: vec![self.units],
            width,
        };
        let live = LiveLinear { negated: self.negated };
        Ok(PlacedLayer {
            parameters: vec![weight, bias],
            ..PlacedLayer::bare(live, output, 2 * inputs * self.units)
        })
    }

    fn depends_on_the_run(&self) -> bool {
        false
    }

    fn thin(&mut self, place: &str, thinner: &mut Thinner) -> f32 {
        thinner.keep(place, &mut self.units)
    }
}

impl Layer for LiveLinear {
    fn plain(&self, parameters: &[Tensor], _: &mut [f32], input: &Tensor, _: &Mode<'_>) -> candle_core::Result<Tensor> {
        let linear = candle_nn::Linear::new(parameters[0].clone(), Some(parameters[1].clone()));
        let output = candle_nn::Module::forward(&linear, input)?;
        if self.negated { output.neg() } else { Ok(output) }
    }
}

impl Settings for Linear {
    const KIND: &'static str = "linear";
}

/// Opens a width group of as many units as it is given, and cannot give any of them up; keeps something when told so.
#[derive(Clone, Serialize, Deserialize)]
struct Stiff {
    #[serde(default)]
    keeps: bool,
}

impl LayerSettings for Stiff {
    fn build(&self, place: &str, input: &Signal, groups: &mut WidthGroups) -> Result<PlacedLayer, Fault> {
        let linear = Linear {
            units: input.size(),
            negated: false,
        };
        let mut placed = linear.build(place, input, groups)?;
        if self.keeps {
            placed
                .buffers
                .push(DeclaredTensor::new("count", [], Initial::Constant(0.0)));
        }
        Ok(placed)
    }

    fn depends_on_the_run(&self) -> bool {
        true
    }
}

impl Settings for Stiff {
    const KIND: &'static str = "stiff";
}

/// Has the kind of another.
#[derive(Clone, Serialize, Deserialize)]
struct Impostor;

impl LayerSettings for Impostor {
    fn build(&self, _: &str, input: &Signal, _: &mut WidthGroups) -> Result<PlacedLayer, Fault> {
        Ok(PlacedLayer::bare(LiveLinear { negated: false }, input.clone(), 0))
    }

    fn depends_on_the_run(&self) -> bool {
        false
    }
}

impl Settings for Impostor {
    const KIND: &'static str = "dense";
}

fn registry() -> Registry {
    let registry = Registry::new().with::<dyn CustomLayer, Linear>().unwrap();
    registry.with::<dyn CustomLayer, Stiff>().unwrap()
}

fn read(text: &str) -> Result<ModelDescription, toml::de::Error> {
    registry().lend(|| toml::from_str(text))
}

fn model(text: &str) -> ModelDescription {
    read(text).unwrap()
}

/// A model of layers with kernels and, in the places of the two of kind `kind`, of layers of that kind.
fn mixed(kind: &str) -> ModelDescription {
    model(&format!(
        "input = [1, 2, 3]
        layers = [
            {{ kind = 'flatten' }},
            {{ kind = '{kind}', units = 8 }},
            {{ kind = 'tanh' }},
            {{ kind = 'dense', units = 6 }},
            {{ kind = 'residual', layers = [{{ kind = '{kind}', units = 6 }}] }},
            {{ kind = 'dense', units = 3 }},
        ]"
    ))
}

fn live(
    new: impl Fn(&ModelDescription, &Device) -> Result<Network, ModelError>,
    model: &ModelDescription,
    weights: &Weights,
) -> Network {
    let mut network = new(model, &Device::Cpu).unwrap();
    network.load(weights).unwrap();
    network
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

fn gradient(network: &mut Network) -> Vec<f32> {
    let mut copy = vec![];
    network.update(|_, gradient| copy = gradient.to_vec());
    copy
}

/// Output, gradient at the input, and the parameters' gradient.
fn pass(network: &mut Network, input: &Tensor, above: &Tensor) -> [Vec<f32>; 3] {
    let output = network.forward(input, &mut Mode::Evaluate).unwrap();
    let below = network.backward_to_input(above).unwrap();
    [values(&output), values(&below), gradient(network)]
}

#[test]
fn without_kernels_a_layer_gives_the_bits_of_its_definition() {
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let text = |kind: &str| format!("input = [5]\nlayers = [{{ kind = '{kind}', units = 4 }}]");
    let (linear, dense) = (model(&text("linear")), model(&text("dense")));
    assert_eq!(linear.layout().unwrap(), dense.layout().unwrap());
    let weights = Weights::initial(&linear, &mut rng).unwrap();
    let (input, above) = (random(&[3, 5], &mut rng), random(&[3, 4], &mut rng));
    let run = |mut network: Network| pass(&mut network, &input, &above);
    let definition = run(live(Network::by_definition, &dense, &weights));
    assert_eq!(run(live(Network::new, &linear, &weights)), definition);
    assert_eq!(run(live(Network::by_definition, &linear, &weights)), definition);
}

#[test]
fn between_layers_with_kernels_it_is_close_to_one_with_kernels() {
    let mut rng = ChaCha8Rng::seed_from_u64(2);
    let (linear, dense) = (mixed("linear"), mixed("dense"));
    let weights = Weights::initial(&linear, &mut rng).unwrap();
    let (input, above) = (random(&[4, 1, 2, 3], &mut rng), random(&[4, 3], &mut rng));
    let ours = pass(&mut live(Network::new, &dense, &weights), &input, &above);
    let theirs = pass(&mut live(Network::new, &linear, &weights), &input, &above);
    for (ours, theirs) in ours.iter().zip(&theirs) {
        assert_eq!(ours.len(), theirs.len());
        assert!(ours.iter().zip(theirs).all(|(one, other)| (one - other).abs() < 1e-5));
    }
    let definitions = [&linear, &dense].map(|model| {
        let mut network = live(Network::by_definition, model, &weights);
        pass(&mut network, &input, &above)
    });
    assert_eq!(definitions[0], definitions[1]);
}

#[test]
fn gradients_of_several_batches_add_up() {
    let mut rng = ChaCha8Rng::seed_from_u64(3);
    let model = mixed("linear");
    let weights = Weights::initial(&model, &mut rng).unwrap();
    let (input, above) = (random(&[2, 1, 2, 3], &mut rng), random(&[2, 3], &mut rng));
    let mut network = live(Network::new, &model, &weights);
    let [_, _, once] = pass(&mut network, &input, &above);
    let [_, _, twice] = pass(&mut network, &input, &above);
    let doubled: Vec<f32> = once.iter().map(|value| 2.0 * value).collect();
    assert_eq!(twice, doubled);
}

#[test]
fn descending_at_once_is_a_step_of_plain_sgd_to_the_bit() {
    let mut rng = ChaCha8Rng::seed_from_u64(4);
    let model = mixed("linear");
    let weights = Weights::initial(&model, &mut rng).unwrap();
    let (input, above) = (random(&[4, 1, 2, 3], &mut rng), random(&[4, 3], &mut rng));
    let (mut step, mut descent) = (
        live(Network::new, &model, &weights),
        live(Network::new, &model, &weights),
    );
    let mut optimiser = Optimiser::new(&OptimiserDescription::sgd(0.1), weights.parameters.len()).unwrap();
    for _ in 0..3 {
        step.forward(&input, &mut Mode::Train(&rng)).unwrap();
        step.zero_gradient();
        step.backward(&above).unwrap();
        step.update(|parameters, gradient| optimiser.step(parameters, gradient));
        descent.forward(&input, &mut Mode::Train(&rng)).unwrap();
        descent.descend(&above, 0.1).unwrap();
    }
    assert_ne!(step.parameters(), weights.parameters);
    assert_eq!(step.parameters(), descent.parameters());
}

#[test]
fn cut_anywhere_front_and_back_give_the_bits_of_the_whole() {
    let mut rng = ChaCha8Rng::seed_from_u64(5);
    let model = mixed("linear");
    let weights = Weights::initial(&model, &mut rng).unwrap();
    let (input, above) = (random(&[4, 1, 2, 3], &mut rng), random(&[4, 3], &mut rng));
    let whole = pass(&mut live(Network::new, &model, &weights), &input, &above);
    for at in 1..model.layers.len() {
        let (front, back) = model.cut(at).unwrap();
        let (front_weights, back_weights) = weights.cut(&front.layout().unwrap()).unwrap();
        let mut front = live(Network::new, &front, &front_weights);
        let mut back = live(Network::new, &back, &back_weights);
        let smashed = front.forward(&input, &mut Mode::Evaluate).unwrap();
        let output = back.forward(&smashed, &mut Mode::Evaluate).unwrap();
        let cut_gradient = back.backward_to_input(&above).unwrap();
        let below = front.backward_to_input(&cut_gradient).unwrap();
        let gradient = [gradient(&mut front), gradient(&mut back)].concat();
        assert_eq!([values(&output), values(&below), gradient], whole, "cut after {at}");
    }
}

#[test]
fn a_network_of_such_layers_learns_exclusive_or() {
    let model = model(
        "input = [2]
        layers = [{ kind = 'linear', units = 16 }, { kind = 'tanh' }, { kind = 'linear', units = 2, negated = true }]",
    );
    let mut rng = ChaCha8Rng::seed_from_u64(0);
    let mut network = live(Network::new, &model, &Weights::initial(&model, &mut rng).unwrap());
    let input = Tensor::new(&[[0f32, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]], &Device::Cpu).unwrap();
    let targets = BatchTargets::Classes(&[0, 1, 1, 0]);
    for _ in 0..500 {
        let output = network.forward(&input, &mut Mode::Train(&rng)).unwrap();
        let loss = Loss::CrossEntropy.evaluate(&output, targets).unwrap();
        network.descend(&loss.gradient, 0.5).unwrap();
    }
    let output = network.forward(&input, &mut Mode::Evaluate).unwrap();
    let score = Loss::CrossEntropy.score(&output, targets).unwrap();
    assert_eq!(score.correct, 4);
}

#[test]
fn it_is_read_and_written_like_any_other() {
    let mixed = mixed("linear");
    let written = toml::to_string(&mixed).unwrap();
    assert!(
        written.contains("kind = \"linear\"\nunits = 8\nnegated = false"),
        "{written}"
    );
    assert_eq!(model(&written), mixed);
    let custom = |units| {
        let linear = Linear { units, negated: false };
        LayerDescription::Custom(Custom::new(linear))
    };
    assert_eq!((&mixed.layers[1], mixed.layers[1].kind()), (&custom(8), "linear"));
    assert_ne!(mixed.layers[1], custom(7));

    let refused = |layer: &str, part: &str| {
        let text = format!("input = [4]\nlayers = [{{ {layer} }}]");
        let error = read(&text).unwrap_err().to_string();
        assert!(error.contains(part), "`{part}` is not in: {error}");
    };
    refused("kind = 'linear'", "missing field `units`");
    refused("kind = 'linear', units = 4, bias = true", "unknown field `bias`");
    refused("kind = 'linaer', units = 4", "unknown variant `linaer`");
    refused("kind = 'linaer', units = 4", "`module`, `linear`, `stiff`");
    refused("units = 4", "missing field `kind`");
    refused("kind = 'stiff', keeps = true", "layer 0 (stiff): it keeps `count`");
    refused("kind = 'linear', units = 0", "layer 0 (linear): it gives [0]");
}

#[test]
fn a_kind_that_is_taken_is_refused() {
    for (refused, kind) in [
        (registry().with::<dyn CustomLayer, Linear>(), "linear"),
        (registry().with::<dyn CustomLayer, Impostor>(), "dense"),
    ] {
        let error = refused.unwrap_err().to_string();
        assert_eq!(
            error,
            format!("`{kind}` is a known layer already: give yours another name")
        );
    }
    let text = "input = [4]\nlayers = [{ kind = 'linear', units = 2 }]";
    let error = toml::from_str::<ModelDescription>(text).unwrap_err().to_string();
    assert!(
        error.contains("unknown variant `linear`"),
        "known where it is not registered: {error}"
    );
}

#[test]
fn it_is_thinned_as_it_says_or_the_model_is_refused() {
    let (linear, dense) = (mixed("linear"), mixed("dense"));
    let groups = linear.layout().unwrap().groups;
    assert_eq!(groups, dense.layout().unwrap().groups);
    for scaled in [false, true] {
        let [linear, dense] = [&linear, &dense].map(|model| model.thinned(&[4, 3], scaled).unwrap());
        assert_eq!(linear.layout().unwrap(), dense.layout().unwrap());
        let kinds: Vec<_> = linear.layers.iter().map(LayerDescription::kind).collect();
        let expected: Vec<_> = dense.layers.iter().map(LayerDescription::kind).collect();
        assert_eq!(kinds.len(), expected.len());
        assert_eq!(kinds.contains(&"scaler"), scaled);
    }
    let stiff = model(
        "input = [2]
        layers = [
            { kind = 'dense', units = 4 },
            { kind = 'stiff' },
            { kind = 'dense', units = 6 },
            { kind = 'dense', units = 3 },
        ]",
    );
    let error = stiff.thinned(&[4, 2, 6], false).unwrap_err().to_string();
    assert!(error.contains("layer 1 cannot be thinned"), "{error}");
    let thinned = stiff.thinned(&[4, 4, 2], false).unwrap();
    assert_eq!(thinned.layers[2], stiff.thinned(&[4, 4, 2], true).unwrap().layers[2]);
    // What it gives follows what it is given, and is then not what it should keep.
    let error = stiff.thinned(&[3, 4, 6], false).unwrap_err().to_string();
    assert!(error.contains("layer 1 cannot be thinned"), "{error}");
}

#[test]
fn layers_say_whether_they_depend_on_the_run() {
    let depends = |layer: &str| {
        let text = format!("input = [4]\nlayers = [{{ kind = 'dense', units = 4 }}, {{ {layer} }}]");
        model(&text).depends_on_the_run()
    };
    assert!(!depends("kind = 'relu'"));
    assert!(!depends("kind = 'dropout', rate = 0.0"));
    assert!(depends("kind = 'dropout', rate = 0.1"));
    assert!(depends("kind = 'batch-norm'"));
    assert!(depends(
        "kind = 'residual', layers = [{ kind = 'tanh' }], shortcut = [{ kind = 'batch-norm' }]"
    ));
    assert!(!depends("kind = 'residual', layers = [{ kind = 'tanh' }]"));
    assert!(!depends("kind = 'linear', units = 2"));
    assert!(depends("kind = 'stiff'"));
    // A module that says nothing may draw whatever it likes.
    let module = CandleModule::new(|variables| candle_nn::linear(4, 2, variables));
    assert!(LayerDescription::CandleModule(module.clone()).depends_on_the_run());
    let module = module.independent_of_the_run();
    assert!(!LayerDescription::CandleModule(module).depends_on_the_run());
}

#[test]
fn a_module_with_a_name_is_read_by_those_who_know_it() {
    let module = CandleModule::new(|variables: VarBuilder| candle_nn::linear(4, 2, variables));
    let text = |module: &str| format!("input = [4]\nlayers = [{{ {module} }}, {{ kind = 'relu' }}]");
    let read_with = |registry: &Registry, module: &str| {
        let read = registry.lend(|| toml::from_str::<ModelDescription>(&text(module)));
        read.map_err(|error| error.to_string())
    };
    let read = |module: &str| read_with(&Registry::new(), module);
    let error = read("kind = 'module', name = 'small-net'").unwrap_err();
    assert!(error.contains("there is no module `small-net` here"), "{error}");
    let error = read("kind = 'module'").unwrap_err();
    assert!(error.contains("a module without a `name` cannot be read"), "{error}");

    let registry = Registry::new().with_named("small-net", module.clone()).unwrap();
    assert!(registry.clone().with_named("small-net", module.clone()).is_err());
    let model = read_with(&registry, "kind = 'module', name = 'small-net'").unwrap();
    assert_eq!(
        model.layers[0],
        LayerDescription::CandleModule(module.named("small-net"))
    );
    let written = toml::to_string(&model).unwrap();
    assert!(written.contains("kind = \"module\"\nname = \"small-net\""), "{written}");
    assert_eq!(
        registry.lend(|| toml::from_str::<ModelDescription>(&written)).unwrap(),
        model
    );

    // Its parameters are fixed: it is trained and cut, and what is thinned is what lies beside it.
    let mut rng = ChaCha8Rng::seed_from_u64(6);
    let weights = Weights::initial(&model, &mut rng).unwrap();
    let mut network = live(Network::new, &model, &weights);
    let (input, above) = (random(&[3, 4], &mut rng), random(&[3, 2], &mut rng));
    network.forward(&input, &mut Mode::Train(&rng)).unwrap();
    network.descend(&above, 0.1).unwrap();
    assert_ne!(network.parameters(), weights.parameters);
    let (front, back) = model.cut(1).unwrap();
    assert_eq!((front.layers.len(), back.first_layer), (1, 1));
    assert!(model.layout().unwrap().groups.is_empty());
    assert_eq!(model.thinned(&[], false).unwrap(), model);
}
