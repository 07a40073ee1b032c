//! Models by name.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::layers::{
    AveragePool2d, BatchNorm, Conv2d, Dense, Flatten, GroupNorm, LayerDescription, MaxPool2d, Relu, Residual, Tanh,
};

/// A model known by name.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Preset {
    /// One dense layer.
    LogisticRegression,
    /// Two hidden layers of 200 units, the "2NN" of McMahan et al. 2017; 199,210 parameters on 28x28 images.
    Mlp,
    /// LeCun et al. 1998 as it is usually built today: tanh, average pooling, every channel seeing every other; 61,706
    /// parameters on 28x28 images.
    #[serde(rename = "lenet-5")]
    LeNet5,
    /// The CNN of McMahan et al. 2017: two 5x5 convolutions (32 and 64 channels, padded), each followed by 2x2
    /// pooling, and a hidden layer of 512; 1,663,370 parameters on 28x28 images.
    McmahanCnn,
    /// The CNN of HeteroFL (Diao et al. 2021): four 3x3 convolutions (64, 128, 256 and 512 channels) with batch norm,
    /// 2x2 pooling between them and a global average at the end; 1,556,874 parameters on images of one channel.
    HeteroflCnn,
    /// He et al. 2016 with one block in each of three stages (16, 32 and 64 channels) and group norm.
    #[serde(rename = "resnet-8")]
    ResNet8,
    /// He et al. 2016 with two blocks in each of four stages (64 to 512 channels), a 3x3 stem for small images, and
    /// group norm of two groups as in Reddi et al. 2021.
    #[serde(rename = "resnet-18")]
    ResNet18,
}

impl fmt::Display for Preset {
    /// The name that a description uses.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

impl Preset {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::LogisticRegression,
        Self::Mlp,
        Self::LeNet5,
        Self::McmahanCnn,
        Self::HeteroflCnn,
        Self::ResNet8,
        Self::ResNet18,
    ];

    /// The preset's layers for `classes` classes.
    pub(crate) fn layers(self, classes: usize) -> Vec<LayerDescription> {
        match self {
            Self::LogisticRegression => vec![flatten(), dense(classes)],
            Self::Mlp => vec![flatten(), dense(200), relu(), dense(200), relu(), dense(classes)],
            Self::LeNet5 => vec![
                convolution(6, 5, 1, true),
                tanh(),
                average_pool(Some(2)),
                LayerDescription::Conv2d(Conv2d {
                    padding: 0,
                    ..square(16, 5)
                }),
                tanh(),
                average_pool(Some(2)),
                flatten(),
                dense(120),
                tanh(),
                dense(84),
                tanh(),
                dense(classes),
            ],
            Self::McmahanCnn => vec![
                convolution(32, 5, 1, true),
                relu(),
                max_pool(),
                convolution(64, 5, 1, true),
                relu(),
                max_pool(),
                flatten(),
                dense(512),
                relu(),
                dense(classes),
            ],
            Self::HeteroflCnn => {
                let block = |channels| [convolution(channels, 3, 1, true), batch_norm(), relu()];
                let mut layers = Vec::new();
                for channels in [64, 128, 256] {
                    layers.extend(block(channels));
                    layers.push(max_pool());
                }
                layers.extend(block(512));
                layers.extend([average_pool(None), flatten(), dense(classes)]);
                layers
            }
            Self::ResNet8 => resnet(&[16, 32, 64], 1, classes),
            Self::ResNet18 => resnet(&[64, 128, 256, 512], 2, classes),
        }
    }
}

/// Stages of residual blocks; each stage but the first halves the image's sides.
fn resnet(channels: &[usize], blocks: usize, classes: usize) -> Vec<LayerDescription> {
    let mut layers = vec![convolution(channels[0], 3, 1, false), group_norm(), relu()];
    let mut before = channels[0];
    for (stage, channels) in channels.iter().copied().enumerate() {
        for block in 0..blocks {
            let stride = if stage > 0 && block == 0 { 2 } else { 1 };
            let main = vec![
                convolution(channels, 3, stride, false),
                group_norm(),
                relu(),
                convolution(channels, 3, 1, false),
                group_norm(),
            ];
            let shortcut = match stride == 1 && channels == before {
                true => vec![],
                false => vec![convolution(channels, 1, stride, false), group_norm()],
            };
            let block = Residual { layers: main, shortcut };
            layers.extend([LayerDescription::Residual(block), relu()]);
            before = channels;
        }
    }
    layers.extend([average_pool(None), flatten(), dense(classes)]);
    layers
}

fn flatten() -> LayerDescription {
    LayerDescription::Flatten(Flatten {})
}

fn relu() -> LayerDescription {
    LayerDescription::Relu(Relu {})
}

fn tanh() -> LayerDescription {
    LayerDescription::Tanh(Tanh {})
}

fn dense(units: usize) -> LayerDescription {
    LayerDescription::Dense(Dense { units, bias: true })
}

/// A convolution whose output has the image's size, divided by the stride.
fn convolution(channels: usize, kernel: usize, stride: usize, bias: bool) -> LayerDescription {
    LayerDescription::Conv2d(Conv2d {
        stride,
        bias,
        ..square(channels, kernel)
    })
}

fn square(channels: usize, kernel: usize) -> Conv2d {
    Conv2d {
        channels,
        kernel,
        stride: 1,
        padding: kernel / 2,
        bias: true,
    }
}

fn max_pool() -> LayerDescription {
    LayerDescription::MaxPool2d(MaxPool2d {
        kernel: 2,
        stride: None,
    })
}

fn average_pool(kernel: Option<usize>) -> LayerDescription {
    LayerDescription::AveragePool2d(AveragePool2d { kernel, stride: None })
}

fn group_norm() -> LayerDescription {
    LayerDescription::GroupNorm(GroupNorm {
        groups: 2,
        epsilon: 1e-5,
    })
}

fn batch_norm() -> LayerDescription {
    LayerDescription::BatchNorm(BatchNorm {
        momentum: 0.1,
        epsilon: 1e-5,
    })
}
