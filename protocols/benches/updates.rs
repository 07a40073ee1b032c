//! What happens to an update between a client's last step and the next model, for the McMahan CNN: aggregation by each
//! algorithm, filters, and encoding.
#![allow(missing_docs, clippy::unwrap_used)]

use std::time::Duration;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};
use selvedge_models::{Preset, SubModel, Weights};
use selvedge_protocols::{
    Algorithm, Trained, Update,
    algorithms::{FedAvg, Median, Scaffold},
    filters::FilterDescription,
    sections::{Section, pack, unpack},
    update::{SealedUpdate, expected_sections},
};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Updates of one round.
const COHORT: usize = 10;

fn weights() -> Weights {
    let model = Preset::McmahanCnn.describe(&[1, 28, 28], 10);
    Weights::initial(&model, &mut ChaCha8Rng::seed_from_u64(0)).unwrap()
}

fn update(weights: &Weights, vectors: &[&str]) -> Update {
    let trained = Trained {
        weights: weights.clone(),
        examples: 600,
        steps: 60,
        loss: Some(1.0),
    };
    Update {
        vectors: vectors
            .iter()
            .map(|name| (name.to_string(), weights.parameters.clone()))
            .collect(),
        ..trained.into()
    }
}

fn aggregation(criterion: &mut Criterion) {
    let weights = weights();
    let whole = SubModel::whole(&Preset::McmahanCnn.describe(&[1, 28, 28], 10).layout().unwrap());
    let bytes = (COHORT * weights.parameters.len() * size_of::<f32>()) as u64;
    let mut group = criterion.benchmark_group("aggregation of ten updates");
    let scaffold = Scaffold {
        server_learning_rate: 1.0,
    };
    let algorithms: [(&str, &dyn Algorithm); 3] =
        [("FedAvg", &FedAvg {}), ("SCAFFOLD", &scaffold), ("median", &Median {})];
    for (name, algorithm) in algorithms {
        let vectors = algorithm.update_vectors();
        group.throughput(Throughput::Bytes(bytes * (1 + vectors.len() as u64)));
        group.bench_function(name, |bencher| {
            bencher.iter_batched(
                || (0..COHORT).map(|_| update(&weights, vectors)).collect::<Vec<_>>(),
                |updates| {
                    let mut aggregator = algorithm.aggregator();
                    for update in updates {
                        aggregator.fold(update, &whole, 600.0);
                    }
                    aggregator.finish(&weights)
                },
                BatchSize::LargeInput,
            );
        });
    }
}

fn filters(criterion: &mut Criterion) {
    let weights = weights();
    let model = Preset::McmahanCnn.describe(&[1, 28, 28], 10);
    let whole = SubModel::whole(&model.layout().unwrap());
    let mut group = criterion.benchmark_group("sealing and opening an update");
    group.throughput(Throughput::Bytes((weights.parameters.len() * size_of::<f32>()) as u64));
    let chains: [(&str, Vec<FilterDescription>); 3] = [
        ("without filters", vec![]),
        ("bf16", vec![toml::from_str("kind = 'bf16'").unwrap()]),
        ("clip", vec![toml::from_str("kind = 'clip'\nnorm = 1.0").unwrap()]),
    ];
    for (name, filters) in chains {
        let expected = expected_sections(&whole, &FedAvg {}, &filters);
        group.bench_function(name, |bencher| {
            bencher.iter_batched(
                || (update(&weights, &[]), ChaCha8Rng::seed_from_u64(1)),
                |(update, mut random)| {
                    let sealed = SealedUpdate::seal(update, &filters, &weights, &mut random);
                    sealed.open(&expected, &filters, &weights).unwrap()
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
