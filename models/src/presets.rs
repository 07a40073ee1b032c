//! Models by name.

use serde::{Deserialize, Serialize};

use crate::{
    description::ModelDescription,
    layers::{Conv2d, Dense, Flatten, LayerDescription, MaxPool2d, Relu},
};

/// A model known by name.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Preset {
    /// One dense layer.
    LogisticRegression,
    /// Two hidden layers of 200 units, the "2NN" of McMahan et al. 2017.
    Mlp,
    /// The CNN of McMahan et al. 2017: two 5x5 convolutions (32 and 64 channels, padded), each followed by 2x2
    /// pooling, and a hidden layer of 512; 1,663,370 parameters on 28x28 images.
    McmahanCnn,
}

impl Preset {
    /// The preset's layers for examples of shape `input` and `classes` classes.
    pub fn describe(self, input: &[usize], classes: usize) -> ModelDescription {
        let layers = match self {
            Self::LogisticRegression => vec![flatten(), dense(classes)],
            Self::Mlp => {
                vec![
                    flatten(),
                    dense(200),
                    relu(),
                    dense(200),
                    relu(),
                    dense(classes),
                ]
            }
            Self::McmahanCnn => vec![
                convolution(32, 5),
                relu(),
                max_pool(),
                convolution(64, 5),
                relu(),
                max_pool(),
                flatten(),
                dense(512),
                relu(),
                dense(classes),
            ],
        };
        ModelDescription {
            input: input.to_vec(),
            layers,
            first_layer: 0,
        }
    }
}

fn flatten() -> LayerDescription {
    LayerDescription::Flatten(Flatten {})
}

fn relu() -> LayerDescription {
    LayerDescription::Relu(Relu {})
}

fn dense(units: usize) -> LayerDescription {
    LayerDescription::Dense(Dense { units, bias: true })
}

/// A convolution that keeps the image's size.
fn convolution(channels: usize, kernel: usize) -> LayerDescription {
    let padding = kernel / 2;
    LayerDescription::Conv2d(Conv2d {
        channels,
        kernel,
        stride: 1,
        padding,
        bias: true,
    })
}

fn max_pool() -> LayerDescription {
    LayerDescription::MaxPool2d(MaxPool2d {
        kernel: 2,
        stride: None,
    })
}
