//! What an update is worth that was trained from a model which has moved on since.

use selvedge_models::Weights;
use serde::{Deserialize, Serialize};

/// How an update is weighted by its staleness τ: how often the model has moved since the client was sent it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Staleness {
    /// (1 + τ)^-`exponent`.
    Polynomial {
        /// The exponent, at least 0. Default 0.5, as in Nguyen et al. 2022.
        #[serde(default = "default_exponent")]
        exponent: f64,
    },
    /// All alike.
    Constant {},
}

fn default_exponent() -> f64 {
    0.5
}

impl Default for Staleness {
    fn default() -> Self {
        Self::Polynomial {
            exponent: default_exponent(),
        }
    }
}

impl Staleness {
    /// By what the change of an update is multiplied; 1 for one that is not stale.
    pub fn weight(self, staleness: u32) -> f64 {
        match self {
            Self::Polynomial { exponent } => (1.0 + f64::from(staleness)).powf(-exponent),
            Self::Constant {} => 1.0,
        }
    }
}

/// Carries what was trained from one model over to another: its change, times `weight`, is made to that.
pub fn carry(trained: &mut Weights, from: &Weights, to: &Weights, weight: f64) {
    for (trained, from, to) in [
        (&mut trained.parameters, &from.parameters, &to.parameters),
        (&mut trained.buffers, &from.buffers, &to.buffers),
    ] {
        for ((trained, from), to) in trained.iter_mut().zip(from).zip(to) {
            let change = f64::from(*trained) - f64::from(*from);
            *trained = (f64::from(*to) + weight * change) as f32;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_staler_an_update_the_less_it_weighs() {
        let staleness = Staleness::default();
        assert_eq!([0, 3, 8].map(|moves| staleness.weight(moves)), [1.0, 0.5, 1.0 / 3.0]);
        assert_eq!([0, 3, 8].map(|moves| Staleness::Constant {}.weight(moves)), [1.0; 3]);
    }

    #[test]
    fn a_change_is_made_to_the_model_of_now() {
        let weights = |parameter: f32, buffer: f32| Weights {
            parameters: vec![parameter],
            buffers: vec![buffer],
        };
        let mut trained = weights(3.0, -1.0);
        carry(&mut trained, &weights(1.0, 1.0), &weights(10.0, 20.0), 0.5);
        assert_eq!(trained, weights(11.0, 19.0));
    }
}
