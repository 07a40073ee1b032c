//! Optimisers: one pass over the flat parameters and their gradient.

use serde::{Deserialize, Serialize};

use crate::{error::ModelError, kernels::descent::descend};

/// An optimiser and its settings, `kind = "sgd"` and so on. Defaults are PyTorch's.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum OptimiserDescription {
    /// Stochastic gradient descent (with `momentum`, heavy-ball).
    Sgd {
        /// Step size, above 0.
        learning_rate: f64,
        /// Share of the last step kept, 0 (the default) up to but without 1.
        #[serde(default)]
        momentum: f64,
        /// Looks ahead along the momentum. Default false.
        #[serde(default)]
        nesterov: bool,
        /// Added to the gradient for each unit of a parameter. Default 0.
        #[serde(default)]
        weight_decay: f64,
    },
    /// Adam (Kingma & Ba 2015, algorithm 1); weight decay is added to the gradient.
    Adam {
        /// Step size, above 0.
        learning_rate: f64,
        /// Decay of the mean of gradients. Default 0.9.
        #[serde(default = "beta1")]
        beta1: f64,
        /// Decay of the mean of squared gradients. Default 0.999.
        #[serde(default = "beta2")]
        beta2: f64,
        /// Added to the root before dividing by it. Default 1e-8.
        #[serde(default = "epsilon")]
        epsilon: f64,
        /// Added to the gradient for each unit of a parameter. Default 0.
        #[serde(default)]
        weight_decay: f64,
    },
    /// Adam with the decay of weights apart from the gradient (Loshchilov & Hutter 2019, algorithm 2).
    #[serde(rename = "adamw")]
    AdamW {
        /// Step size, above 0.
        learning_rate: f64,
        /// Decay of the mean of gradients. Default 0.9.
        #[serde(default = "beta1")]
        beta1: f64,
        /// Decay of the mean of squared gradients. Default 0.999.
        #[serde(default = "beta2")]
        beta2: f64,
        /// Added to the root before dividing by it. Default 1e-8.
        #[serde(default = "epsilon")]
        epsilon: f64,
        /// Share of each parameter, times the learning rate, taken off it in a step. Default 0.01.
        #[serde(default = "decoupled_decay")]
        weight_decay: f64,
    },
}

fn beta1() -> f64 {
    0.9
}

fn beta2() -> f64 {
    0.999
}

fn epsilon() -> f64 {
    1e-8
}

fn decoupled_decay() -> f64 {
    0.01
}

impl OptimiserDescription {
    /// Plain gradient descent.
    pub fn sgd(learning_rate: f64) -> Self {
        Self::Sgd {
            learning_rate,
            momentum: 0.0,
            nesterov: false,
            weight_decay: 0.0,
        }
    }

    /// The step size.
    pub fn learning_rate(&self) -> f64 {
        match *self {
            Self::Sgd { learning_rate, .. } | Self::Adam { learning_rate, .. } | Self::AdamW { learning_rate, .. } => {
                learning_rate
            }
        }
    }

    /// Checks each setting against its range.
    ///
    /// # Errors
    /// For the first that is out of range.
    pub fn check(&self) -> Result<(), ModelError> {
        let check = |setting, value: f64, needs, holds: bool| match holds && value.is_finite() {
            true => Ok(()),
            false => Err(ModelError::Optimiser { setting, value, needs }),
        };
        // They are used with 32 bits.
        let positive = |setting, value| {
            let used = value as f32;
            check(
                setting,
                value,
                "above 0 and finite, in 32 bits too",
                used > 0.0 && used.is_finite(),
            )
        };
        let not_negative = |setting, value| check(setting, value, "0 or more", value >= 0.0);
        let share = |setting, value| check(setting, value, "from 0 up to 1, without 1", (0.0..1.0).contains(&value));
        match *self {
            Self::Sgd {
                learning_rate,
                momentum,
                nesterov,
                weight_decay,
            } => {
                positive("learning_rate", learning_rate)?;
                share("momentum", momentum)?;
                check(
                    "momentum",
                    momentum,
                    "above 0 with `nesterov`",
                    !nesterov || momentum > 0.0,
                )?;
                not_negative("weight_decay", weight_decay)
            }
            Self::Adam {
                learning_rate,
                beta1,
                beta2,
                epsilon,
                weight_decay,
            }
            | Self::AdamW {
                learning_rate,
                beta1,
                beta2,
                epsilon,
                weight_decay,
            } => {
                positive("learning_rate", learning_rate)?;
                share("beta1", beta1)?;
                share("beta2", beta2)?;
                positive("epsilon", epsilon)?;
                not_negative("weight_decay", weight_decay)
            }
        }
    }
}

/// An optimiser at work: its settings and what it remembers of earlier steps.
#[derive(Clone, Debug)]
pub struct Optimiser {
    description: OptimiserDescription,
    steps: i32,
    /// Momentum, or the mean of gradients; empty where nothing is remembered.
    first: Vec<f32>,
    /// The mean of squared gradients.
    second: Vec<f32>,
}

impl Optimiser {
    /// An optimiser for `parameter_count` parameters that has made no step.
    ///
    /// # Errors
    /// When a setting is out of range.
    pub fn new(description: &OptimiserDescription, parameter_count: usize) -> Result<Self, ModelError> {
        description.check()?;
        let (first, second) = match description {
            OptimiserDescription::Sgd { momentum: 0.0, .. } => (0, 0),
            OptimiserDescription::Sgd { .. } => (parameter_count, 0),
            _ => (parameter_count, parameter_count),
        };
        Ok(Self {
            description: *description,
            steps: 0,
            first: vec![0.0; first],
            second: vec![0.0; second],
        })
    }

    /// The learning rate, where a step is that times the gradient and nothing else: what
    /// [`Network::descend`](crate::Network::descend) makes too, and faster.
    pub fn plain_rate(&self) -> Option<f32> {
        match self.description {
            OptimiserDescription::Sgd {
                learning_rate,
                momentum: 0.0,
                weight_decay: 0.0,
                ..
            } => Some(learning_rate as f32),
            _ => None,
        }
    }

    /// Moves the parameters one step down the gradient. Both are as long as the optimiser was made for.
    pub fn step(&mut self, parameters: &mut [f32], gradient: &[f32]) {
        self.steps = self.steps.saturating_add(1);
        match self.description {
            OptimiserDescription::Sgd {
                learning_rate,
                momentum,
                nesterov,
                weight_decay,
            } => {
                if let Some(rate) = self.plain_rate() {
                    return descend(parameters, gradient, rate);
                }
                let (rate, momentum) = (learning_rate as f32, momentum as f32);
                let decay = weight_decay as f32;
                let values = parameters.iter_mut().zip(gradient);
                if momentum == 0.0 {
                    for (parameter, gradient) in values {
                        *parameter -= rate * (gradient + decay * *parameter);
                    }
                    return;
                }
                for ((parameter, gradient), velocity) in values.zip(&mut self.first) {
                    let gradient = gradient + decay * *parameter;
                    *velocity = momentum * *velocity + gradient;
                    let ahead = gradient + momentum * *velocity;
                    *parameter -= rate * if nesterov { ahead } else { *velocity };
                }
            }
            OptimiserDescription::Adam {
                learning_rate,
                beta1,
                beta2,
                epsilon,
                weight_decay,
            } => {
                let adam = self.adam(learning_rate, beta1, beta2, epsilon);
                adam.step(parameters, gradient, weight_decay as f32, 1.0);
            }
            OptimiserDescription::AdamW {
                learning_rate,
                beta1,
                beta2,
                epsilon,
                weight_decay,
            } => {
                let adam = self.adam(learning_rate, beta1, beta2, epsilon);
                adam.step(parameters, gradient, 0.0, (1.0 - learning_rate * weight_decay) as f32);
            }
        }
    }

    fn adam(&mut self, rate: f64, beta1: f64, beta2: f64, epsilon: f64) -> Adam<'_> {
        let unbiased = |beta: f64| 1.0 - beta.powi(self.steps);
        Adam {
            rate: (rate / unbiased(beta1)) as f32,
            root_scale: unbiased(beta2).sqrt().recip() as f32,
            beta1: beta1 as f32,
            beta2: beta2 as f32,
            epsilon: epsilon as f32,
            first: &mut self.first,
            second: &mut self.second,
        }
    }
}

/// One step of Adam, its bias corrections worked into the scalars.
struct Adam<'a> {
    rate: f32,
    root_scale: f32,
    beta1: f32,
    beta2: f32,
    epsilon: f32,
    first: &'a mut [f32],
    second: &'a mut [f32],
}

impl Adam<'_> {
    fn step(self, parameters: &mut [f32], gradient: &[f32], decay: f32, keep: f32) {
        let moments = self.first.iter_mut().zip(self.second);
        for ((parameter, gradient), (first, second)) in parameters.iter_mut().zip(gradient).zip(moments) {
            let gradient = gradient + decay * *parameter;
            *first = self.beta1 * *first + (1.0 - self.beta1) * gradient;
            *second = self.beta2 * *second + (1.0 - self.beta2) * gradient * gradient;
            let root = second.sqrt() * self.root_scale + self.epsilon;
            *parameter = *parameter * keep - self.rate * *first / root;
        }
    }
}
