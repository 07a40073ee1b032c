//! Descriptions: what is read is what was written, and what is wrong is said.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // What cannot go on must fail.

use candle_core::Tensor;
use selvedge_data::PartitionDescription;
use selvedge_models::{
    CustomLayer, Mode,
    layer::{Fault, Layer, LayerSettings, PlacedLayer, Signal, WidthGroups},
};
use selvedge_protocols::{
    Description, Registry,
    choice::Settings,
    description::{EXAMPLE, Override},
};
use serde::{Deserialize, Serialize};

const SMALLEST: &str = r#"
    rounds = 1
    clients = 1
    data = { source = "fashion-mnist-small" }
    model = { preset = "mlp" }
    training = { optimiser = { kind = "sgd", learning_rate = 0.1 } }
"#;

fn read(text: &str, set: &[&str]) -> Result<Description, String> {
    read_with(&Registry::new(), text, set)
}

fn read_with(registry: &Registry, text: &str, set: &[&str]) -> Result<Description, String> {
    let set: Result<Vec<Override>, _> = set.iter().map(|text| text.parse()).collect();
    set.and_then(|set| Description::parse_with(registry, text, "test", &set))
        .map_err(|error| error.to_string())
}

#[test]
fn the_example_is_in_order() {
    read(EXAMPLE, &[]).unwrap();
}

#[test]
fn every_key_that_the_example_comments_out_is_a_key() {
    // Uncommented one at a time, each shown default must be accepted.
    let mut table = String::new();
    for line in EXAMPLE.lines() {
        let text = line.trim_start_matches("# ");
        if let Some(name) = text.strip_prefix('[').and_then(|text| text.split(']').next()) {
            table = name.trim_start_matches('[').to_owned();
        } else if let (true, Some((key, rest))) = (line.starts_with("# "), text.split_once(" = ")) {
            let value = rest.split(" #").next().unwrap().trim();
            let key = if table.is_empty() {
                key.to_owned()
            } else {
                format!("{table}.{key}")
            };
            if key.starts_with("data.") || key.starts_with("model") || ["server", "filters"].contains(&table.as_str()) {
                continue;
            }
            // The tables that need a key.
            let plan = "sub_models.plan={ kind = 'partitioned', blocks = 4 }";
            let plan = key.starts_with("sub_models.").then_some(plan);
            let split = "split={ method = { kind = 'parallel' }, cut = 2 }";
            let split = key.starts_with("split.").then_some(split);
            let buffer = key.starts_with("buffer.").then_some("buffer.size=5");
            let set: Vec<&str> = plan.into_iter().chain(split).chain(buffer).collect();
            let changed = format!("{key}={value}");
            let set = [set.as_slice(), &[changed.as_str()]].concat();
            read(EXAMPLE, &set).unwrap_or_else(|error| panic!("{key}: {error}"));
        }
    }
}

#[test]
fn what_is_written_out_reads_back_the_same() {
    let sets: [&[&str]; 5] = [
        &[],
        &[
            "algorithm.kind=fedprox",
            "algorithm.mu=0.25",
            "cohort.size=1",
            "training.steps=7",
        ],
        &[
            "algorithm={ kind = \"fedadam\", tau = 0.5 }",
            "filters=[{ kind = \"clip\", norm = inf }, { kind = \"bf16\" }]",
        ],
        &[
            "partition={ kind = \"power-law\", exponent = 1.5 }",
            "evaluation.holdout=0.25",
            "evaluation.by_clients=true",
        ],
        &[
            "aggregation.weighting=uniform",
            "training.optimiser={ kind = \"adamw\", learning_rate = 0.001 }",
        ],
    ];
    for set in sets {
        let description = read(SMALLEST, set).unwrap();
        assert_eq!(read(&description.to_toml(), &[]).as_ref(), Ok(&description), "{set:?}");
    }
}

#[test]
fn overrides_reach_into_tables_that_are_not_there_yet() {
    let description = read(SMALLEST, &["cohort.quorum=0.9", "name=a name"]).unwrap();
    assert_eq!((description.cohort.quorum, description.name.as_str()), (0.9, "a name"));
}

#[test]
fn an_override_that_cannot_be_is_refused() {
    for (set, reason) in [
        ("rounds", "key=value"),
        ("=3", "the key is empty"),
        ("a..b=3", "the key is empty"),
        ("rounds.more=3", "`rounds` is a value"),
    ] {
        let error = read(SMALLEST, &[set]).unwrap_err();
        assert!(error.contains(reason), "{set}: {error}");
    }
}

#[test]
fn a_missing_key_is_named() {
    let error = read("rounds = 1", &[]).unwrap_err();
    assert!(error.contains("missing key `clients`"), "{error}");
}

#[test]
fn text_that_is_no_toml_is_refused_with_its_place() {
    let error = read("rounds = \nclients = 1", &[]).unwrap_err();
    assert!(error.contains("not valid TOML") && error.contains("line 1"), "{error}");
}

#[test]
fn several_mistakes_are_listed_at_once() {
    let error = read(SMALLEST, &["rounds=0", "cohort.quorum=2.0", "training.batch_size=0"]).unwrap_err();
    for key in ["rounds", "cohort.quorum", "training.batch_size"] {
        assert!(error.contains(key), "{key} is not in: {error}");
    }
}

#[test]
fn another_kind_can_be_set_and_the_keys_that_only_the_old_one_knows_go() {
    let set = [
        "algorithm.tau=0.5",
        "algorithm.kind=fedadam",
        "partition.kind=iid",
        "training.optimiser.kind=adam",
    ];
    let text = EXAMPLE.replace("kind = \"fedavg\"", "kind = \"fedprox\"\nmu = 0.5");
    let description = read(&text, &set).unwrap();
    assert_eq!(description.partition, PartitionDescription::Iid {});
    assert_eq!(description.algorithm, read(EXAMPLE, &set[..2]).unwrap().algorithm);
    // What both kinds know stays.
    assert_eq!(description.training.optimiser.learning_rate(), 0.1);
    let error = read(EXAMPLE, &["partition.kind=shards"]).unwrap_err();
    assert!(error.contains("missing key `per_client`"), "{error}");
    // What was set by hand and is not known is an error.
    let error = read(EXAMPLE, &["partition.kind=iid", "partition.alpha=1.0"]).unwrap_err();
    assert!(error.contains("unknown key `alpha`"), "{error}");
    let own = "model={ input = [4], layers = [{ kind = \"dense\", units = 10 }] }";
    assert!(read(EXAMPLE, &[own, "model.preset=mlp"]).is_ok());
}

/// A layer of a crate outside, which says of itself whether it depends on the run.
#[derive(Clone, Serialize, Deserialize)]
struct Outside {
    draws: bool,
}

impl LayerSettings for Outside {
    fn build(&self, _: &str, input: &Signal, _: &mut WidthGroups) -> Result<PlacedLayer, Fault> {
        Ok(PlacedLayer::bare(self.clone(), input.clone(), 0))
    }

    fn depends_on_the_run(&self) -> bool {
        self.draws
    }
}

impl Layer for Outside {
    fn plain(&self, _: &[Tensor], _: &mut [f32], input: &Tensor, _: &Mode<'_>) -> candle_core::Result<Tensor> {
        Ok(input.clone())
    }
}

impl Settings for Outside {
    const KIND: &'static str = "outside";
}

#[test]
fn what_depends_on_the_run_is_refused_where_the_back_is_run_twice_whoever_wrote_the_layer() {
    let registry = Registry::new().with::<dyn CustomLayer, Outside>().unwrap();
    let read = |layer: &str| {
        let model = format!(
            "model={{ input = [1, 28, 28], layers = [{{ kind = 'flatten' }}, {{ kind = 'dense', units = 8 }}, \
             {{ {layer} }}, {{ kind = 'dense', units = 10 }}] }}"
        );
        let split = "split={ method = { kind = 'parallel', last_layer_aggregation = 0.5 }, cut = 2 }";
        read_with(&registry, SMALLEST, &[&model, split])
    };
    for layer in [
        "kind = 'relu'",
        "kind = 'dropout', rate = 0.0",
        "kind = 'outside', draws = false",
    ] {
        let description = read(layer).unwrap();
        let again = read_with(&registry, &description.to_toml(), &[]);
        assert_eq!(again.unwrap(), description);
    }
    for layer in [
        "kind = 'batch-norm'",
        "kind = 'dropout', rate = 0.1",
        "kind = 'outside', draws = true",
    ] {
        let error = read(layer).unwrap_err();
        assert!(error.contains("runs the back on a batch a second time"), "{error}");
    }
    let error = read("kind = 'outsude', draws = true").unwrap_err();
    assert!(
        error.contains("model.layers[2].kind: unknown variant `outsude`"),
        "{error}"
    );
    assert!(error.contains("did you mean `outside`?"), "{error}");
}
