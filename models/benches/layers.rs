//! Forward and backward of single layers, as they come in the classic models, on batches of ten and one thread.
#![allow(missing_docs, clippy::unwrap_used)]

use std::time::Duration;

use candle_core::{Device, Tensor};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use rand::Rng;
use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};
use selvedge_models::{Mode, ModelDescription, Network, Weights};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const BATCH: usize = 10;

/// A name, the shape of an example, and the layer.
const LAYERS: [(&str, &[usize], &str); 9] = [
    (
        "convolution 5x5, 1 to 32",
        &[1, 28, 28],
        "kind = 'conv2d'\nchannels = 32\nkernel = 5\npadding = 2",
    ),
    (
        "convolution 5x5, 32 to 64",
        &[32, 14, 14],
        "kind = 'conv2d'\nchannels = 64\nkernel = 5\npadding = 2",
    ),
    (
        "convolution 3x3, 16 to 16",
        &[16, 28, 28],
        "kind = 'conv2d'\nchannels = 16\nkernel = 3\npadding = 1",
    ),
    (
        "convolution 3x3, stride 2",
        &[16, 28, 28],
        "kind = 'conv2d'\nchannels = 32\nkernel = 3\npadding = 1\nstride = 2",
    ),
    ("max-pool 2x2", &[32, 28, 28], "kind = 'max-pool2d'\nkernel = 2"),
    ("relu", &[32, 28, 28], "kind = 'relu'"),
    ("tanh", &[6, 28, 28], "kind = 'tanh'"),
    ("dense, 784 to 200", &[784], "kind = 'dense'\nunits = 200"),
    ("dense, 3136 to 512", &[3136], "kind = 'dense'\nunits = 512"),
];

fn layers(criterion: &mut Criterion) {
    let mut rng = ChaCha8Rng::seed_from_u64(0);
    for (name, shape, layer) in LAYERS {
        let description: ModelDescription = toml::from_str(&format!("input = {shape:?}\n[[layers]]\n{layer}")).unwrap();
        let mut network = Network::new(&description, &Device::Cpu).unwrap();
        network
            .load(&Weights::initial(&description, &mut rng).unwrap())
            .unwrap();
        let mut tensor = |shape: &[usize]| {
            let values: Vec<f32> = (0..shape.iter().product()).map(|_| rng.random::<f32>() - 0.5).collect();
            Tensor::from_vec(values, shape, &Device::Cpu).unwrap()
        };
        let input = tensor(&[&[BATCH], shape].concat());
        let above = tensor(&[&[BATCH], network.output_shape()].concat());
        let mut group = criterion.benchmark_group(name);
        let operations = description.summary().unwrap().operations * BATCH as u64;
        group.throughput(Throughput::Elements(operations));
        group.bench_function("forward", |bencher| {
            bencher.iter(|| network.forward(&input, &mut Mode::Evaluate).unwrap());
        });
        group.throughput(Throughput::Elements(2 * operations));
        // Below a max-pool, of four values of a gradient three are 0.
        let kept: Vec<f32> = (0..above.elem_count())
            .map(|index| f32::from(u8::from(index % 4 == 0)))
            .collect();
        let sparse = (&above * Tensor::from_vec(kept, above.shape(), &Device::Cpu).unwrap()).unwrap();
        for (name, above) in [("backward", &above), ("backward, one in four", &sparse)] {
            group.bench_function(name, |bencher| {
                bencher.iter(|| {
                    network.zero_gradient();
                    network.backward_to_input(above).unwrap()
                });
            });
        }
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .warm_up_time(Duration::from_millis(200))
        .measurement_time(Duration::from_millis(500))
        .sample_size(20);
    targets = layers
}
criterion_main!(benches);
