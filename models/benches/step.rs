//! One local step (forward, loss, backward, SGD) of the classic models, on one thread.
#![allow(missing_docs, clippy::unwrap_used)]

use std::time::Duration;

use candle_core::{Device, Tensor};
use criterion::{Criterion, criterion_group, criterion_main};
use rand::Rng;
use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};
use selvedge_models::{BatchTargets, Loss, Mode, Network, Preset, Weights};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn steps(criterion: &mut Criterion) {
    let mut rng = ChaCha8Rng::seed_from_u64(0);
    for (name, preset) in [("mlp", Preset::Mlp), ("mcmahan-cnn", Preset::McmahanCnn)] {
        let description = preset.describe(&[1, 28, 28], 10);
        for batch in [10, 32] {
            let mut network = Network::new(&description, &Device::Cpu).unwrap();
            network
                .load(&Weights::initial(&description, &mut rng).unwrap())
                .unwrap();
            let pixels: Vec<f32> = (0..batch * 784).map(|_| rng.random()).collect();
            let input = Tensor::from_vec(pixels, (batch, 1, 28, 28), &Device::Cpu).unwrap();
            let classes: Vec<u32> = (0..batch).map(|_| rng.random_range(0..10)).collect();
            criterion.bench_function(&format!("{name}, batch {batch}"), |bencher| {
                bencher.iter(|| {
                    let output = network.forward(&input, &mut Mode::Train(&rng)).unwrap();
                    let loss = Loss::CrossEntropy
                        .evaluate(&output, BatchTargets::Classes(&classes))
                        .unwrap();
                    network.descend(&loss.gradient, 0.01).unwrap();
                });
            });
        }
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1))
        .sample_size(20);
    targets = steps
}
criterion_main!(benches);
