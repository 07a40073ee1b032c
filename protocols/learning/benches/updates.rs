//! What happens to an update between a client's last step and the next model, for the McMahan CNN: aggregation by each
//! algorithm, filters, and encoding.
#![allow(missing_docs, clippy::unwrap_used)]

use std::time::Duration;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use selvedge_learning::{
    Algorithm, Memory, Metrics, Occasion, Trained, Update,
    aggregation::{AGGREGATION, AggregationRule, Contribution, Mean, Median},
    algorithms::{FedAvg, Scaffold},
    filters::Filter,
    sections::{Section, pack, unpack},
    update::{SealedUpdate, expected_sections},
    vectors::{Named, Vector},
};
use selvedge_models::{Layout, OptimiserDescription, Preset, SubModel, Weights};
use selvedge_words::{Choice, Seed};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Updates of one round.
const COHORT: usize = 10;

fn layout() -> Layout {
    Preset::McmahanCnn.describe(&[1, 28, 28], 10).layout().unwrap()
}

fn weights() -> Weights {
    Weights::drawn(&layout(), &mut Seed(0).stream(selvedge_words::Purpose::Initialisation))
}

const OPTIMISER: OptimiserDescription = OptimiserDescription::Sgd {
    learning_rate: 0.1,
    momentum: 0.0,
    weight_decay: 0.0,
    nesterov: false,
};

fn occasion(layout: &Layout) -> Occasion<'_> {
    Occasion {
        seed: Seed(1),
        round: 1,
        rounds: 1,
        clients: COHORT,
        cohort: COHORT,
        client: None,
        layout,
        optimiser: &OPTIMISER,
    }
}

fn update(weights: &Weights, vectors: &[Named]) -> Update {
    let trained = Trained {
        weights: weights.clone(),
        examples: 600,
        steps: 60,
        loss: Some(1.0),
    };
    let vector = |&(name, shape): &Named| {
        let values = weights.parameters.clone();
        (name, Vector { shape, values })
    };
    Update {
        vectors: vectors.iter().map(vector).collect(),
        ..trained.into()
    }
}

fn aggregation(criterion: &mut Criterion) {
    let (layout, weights) = (layout(), weights());
    let whole = SubModel::whole(&layout);
    let bytes = (COHORT * weights.parameters.len() * size_of::<f32>()) as u64;
    let mut group = criterion.benchmark_group("aggregation of ten updates");
    let scaffold = Scaffold {
        server_learning_rate: 1.0,
    };
    let rules: [(&str, &dyn AggregationRule, &[Named]); 3] = [
        ("mean", &Mean {}, &[]),
        ("mean, of SCAFFOLD", &Mean {}, scaffold.update_vectors()),
        ("median", &Median {}, &[]),
    ];
    for (name, rule, vectors) in rules {
        group.throughput(Throughput::Bytes(bytes * (1 + vectors.len() as u64)));
        group.bench_function(name, |bencher| {
            bencher.iter_batched(
                || (0..COHORT).map(|_| update(&weights, vectors)).collect::<Vec<_>>(),
                |updates| {
                    let mut aggregator = rule.begin();
                    for update in updates {
                        aggregator.fold(Contribution {
                            client: None,
                            version: 1,
                            part: &whole,
                            weight: 600.0,
                            update,
                        });
                    }
                    let mut metrics = Metrics::default();
                    aggregator.finish(&weights, &mut occasion(&layout).context(AGGREGATION, &mut metrics))
                },
                BatchSize::LargeInput,
            );
        });
    }
}

fn filters(criterion: &mut Criterion) {
    let (layout, weights) = (layout(), weights());
    let whole = SubModel::whole(&layout);
    let mut group = criterion.benchmark_group("sealing and opening an update");
    group.throughput(Throughput::Bytes((weights.parameters.len() * size_of::<f32>()) as u64));
    let chains: [(&str, Vec<Choice<dyn Filter>>); 4] = [
        ("without filters", vec![]),
        ("bf16", vec![toml::from_str("kind = 'bf16'").unwrap()]),
        ("clip", vec![toml::from_str("kind = 'clip'\nnorm = 1.0").unwrap()]),
        ("top-k", vec![toml::from_str("kind = 'top-k'\nshare = 0.01").unwrap()]),
    ];
    for (name, filters) in chains {
        let expected = expected_sections(&whole, &FedAvg {}, &filters);
        let occasion = occasion(&layout);
        group.bench_function(name, |bencher| {
            bencher.iter_batched(
                || update(&weights, &[]),
                |update| {
                    let (mut memory, mut metrics) = (Memory::new(), Metrics::default());
                    let sealed =
                        SealedUpdate::seal(update, &filters, &weights, &mut memory, &occasion, metrics.clone());
                    let opened = sealed.open(&expected, &FedAvg {}, &filters, &weights, &occasion, &mut metrics);
                    opened.unwrap()
                },
                BatchSize::LargeInput,
            );
        });
    }
}

fn encoding(criterion: &mut Criterion) {
    let sections = [Section::new("parameters", weights().parameters)];
    let headers = sections.each_ref().map(Section::header);
    let bytes = pack(&sections);
    let mut group = criterion.benchmark_group("encoding an update");
    group.throughput(Throughput::Bytes(bytes.len() as u64));
    group.bench_function("pack", |bencher| bencher.iter(|| pack(&sections)));
    group.bench_function("unpack", |bencher| bencher.iter(|| unpack(&headers, &bytes).unwrap()));
    group.bench_function("hash", |bencher| bencher.iter(|| blake3::hash(&bytes)));
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .warm_up_time(Duration::from_millis(200))
        .measurement_time(Duration::from_secs(1))
        .sample_size(10);
    targets = aggregation, filters, encoding
}
criterion_main!(benches);
