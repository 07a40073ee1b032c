//! The server's half of a step of split learning by itself: the McMahan CNN after its first block, for the batches of ten
//! examples of several clients together.
#![allow(missing_docs, clippy::unwrap_used)]

use std::{collections::BTreeSet, time::Duration};

use candle_core::{Device, Tensor};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use rand::Rng;
use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};
use selvedge_models::{BatchTargets, Cut, Loss, OptimiserDescription, Pieces, Preset, SubModel, Weights};
use selvedge_splitting::{Arrival, Back};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const CUT: Cut = Cut { front: 3, head: 0 };
const BATCH: usize = 10;

fn step(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("back of the McMahan CNN");
    let model = Preset::McmahanCnn.describe(&[1, 28, 28], 10);
    let mut random = ChaCha8Rng::seed_from_u64(0);
    let weights = Weights::initial(&model, &mut random).unwrap();
    let layout = model.layout().unwrap();
    let pieces = Pieces::of(&model, CUT).unwrap();
    for clients in [1, 4, 16, 64] {
        let optimiser = OptimiserDescription::sgd(0.01);
        let mut back = Back::new(&model, &BTreeSet::from([CUT.front]), CUT.head, &optimiser).unwrap();
        back.load(&pieces.of_server(&SubModel::whole(&layout)).extract(&weights))
            .unwrap();
        let batch: Vec<Arrival> = (0..clients)
            .map(|_| {
                // As after a ReLU: half of the values are 0.
                let values = (0..BATCH * 32 * 14 * 14).map(|_| random.random_range(-1.0..1.0f32).max(0.0));
                let smashed = Tensor::from_vec(values.collect(), (BATCH, 32, 14, 14), &Device::Cpu).unwrap();
                Arrival { front: 3, smashed }
            })
            .collect();
        let classes: Vec<u32> = (0..BATCH as u32).collect();
        group.throughput(Throughput::Elements((clients * BATCH) as u64));
        group.bench_function(format!("{clients} clients"), |bencher| {
            bencher.iter(|| {
                let outputs = back.forward(batch.clone(), 1, random.clone()).unwrap();
                let gradient = |outputs| {
                    Loss::CrossEntropy
                        .evaluate(outputs, BatchTargets::Classes(&classes))
                        .unwrap()
                        .gradient
                };
                let gradients: Vec<_> = outputs.iter().map(|outputs| Some(gradient(outputs))).collect();
                let cut_gradients = back.backward(&gradients).unwrap();
                back.update();
                cut_gradients
            });
        });
    }
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(10).measurement_time(Duration::from_secs(5));
    targets = step
}
criterion_main!(benches);
