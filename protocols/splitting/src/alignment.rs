//! Gradient direction alignment: a client's gradient is turned towards the leader's. GAPSL (arXiv:2603.18540) has the idea;
//! the ways to do it are ours.

use serde::{Deserialize, Serialize};

use super::leader::Selector;

/// How gradients are aligned: the settings of the method `gapsl`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Alignment {
    /// Which clients lead. Default `{ kind = "quantile", q = 0.25 }`.
    pub selector: Selector,
    /// How a gradient is turned towards the leader's. Default `project`.
    pub towards: Towards,
    /// λ: how far, 0 (not at all) or more. Up to 1 the cosine to the leader never falls. Default 4.
    pub lambda: f64,
    /// Whose gradients are aligned. Default `front`.
    pub placement: Placement,
    /// Steps from one identification of leaders to the next, at least 1. Default 5.
    pub refresh: u32,
    /// β: how much of the leader's direction is kept when it is found anew, from 0 up to but without 1. Default 0.9.
    pub smoothing: f64,
    /// In how many numbers a front's gradient is described, so that only those who lead send it whole, at least 1.
    /// Default 256.
    pub sketch: usize,
}

impl Default for Alignment {
    fn default() -> Self {
        Self {
            selector: Selector::default(),
            towards: Towards::default(),
            lambda: 4.0,
            placement: Placement::default(),
            refresh: 5,
            smoothing: 0.9,
            sketch: 256,
        }
    }
}

/// How a gradient `g` is turned towards the leader `ℓ`; `a` is its direction and `c = a·ℓ`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Towards {
    /// `g' = ‖g‖ (a + λ (ℓ − c a))`: the part of `ℓ` at right angles to `g` is added, and `‖g'‖² = ‖g‖² (1 + λ² (1 − c²))`.
    Project {
        /// Whether `g'` is brought back to the norm of `g`. Default true.
        #[serde(default = "default_keep_norm")]
        keep_norm: bool,
    },
    /// If `g` goes against the leader (`c < 0`), what goes against it is taken away: `g' = ‖g‖ (a − c ℓ)` (Yu et al. 2020).
    /// λ plays no part.
    Pcgrad {},
    /// The gradient of `L + λ (1 − cos(g, ℓ))`, its second derivatives by finite differences: the loss is differentiated
    /// once more for parameters a little aside, which takes another exchange. For fronts only.
    Regulariser {
        /// How far aside, as a Euclidean distance, above 0. Default 0.01.
        #[serde(default = "default_distance")]
        distance: f64,
    },
}

impl Default for Towards {
    fn default() -> Self {
        Self::Project { keep_norm: true }
    }
}

fn default_keep_norm() -> bool {
    true
}

fn default_distance() -> f64 {
    0.01
}

/// Whose gradients are aligned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Placement {
    /// The fronts', by the clients.
    #[default]
    Front,
    /// The back's, by the server, from each client's examples.
    Back,
    /// Both.
    Both,
}

impl Alignment {
    /// Whether the fronts' gradients are aligned.
    pub fn is_of_fronts(&self) -> bool {
        self.placement != Placement::Back
    }

    /// Whether the fronts' gradients are aligned, and that changes anything.
    pub fn is_active_on_fronts(&self) -> bool {
        self.is_of_fronts() && self.is_active()
    }

    /// Whether alignment changes anything.
    pub fn is_active(&self) -> bool {
        self.lambda > 0.0 || self.towards == Towards::Pcgrad {}
    }

    /// Whether a gradient is turned by what a probe shows: the loss is differentiated a second time.
    pub fn is_probed(&self) -> bool {
        matches!(self.towards, Towards::Regulariser { .. })
    }

    /// Whether leaders are identified in this step, counted from 1.
    pub fn is_refreshed(&self, step: u32) -> bool {
        step.saturating_sub(1).is_multiple_of(self.refresh.max(1))
    }

    /// What is wrong with the settings, if anything.
    pub(super) fn problem(&self) -> Option<(&'static str, String)> {
        let Self { lambda, smoothing, .. } = *self;
        if let Some(message) = self.selector.problem() {
            return Some(("selector", message));
        }
        if let Towards::Regulariser { distance } = self.towards {
            if !(distance > 0.0 && distance.is_finite()) {
                return Some(("towards.distance", format!("{distance} is not a number above 0")));
            }
            if self.placement != Placement::Front {
                let message = "the regulariser is of fronts only: set `placement = \"front\"`";
                return Some(("placement", message.into()));
            }
        }
        if !(lambda >= 0.0 && lambda.is_finite()) {
            Some(("lambda", format!("{lambda} is not a number from 0 on")))
        } else if !(0.0..1.0).contains(&smoothing) {
            Some(("smoothing", format!("{smoothing} is not from 0 up to but without 1")))
        } else if self.refresh == 0 {
            Some(("refresh", "0 is not at least 1".into()))
        } else if self.sketch == 0 {
            Some(("sketch", "0 is not at least 1".into()))
        } else {
            None
        }
    }

    /// Turns a gradient towards a leader of norm 1, but for [`Towards::Regulariser`], which needs more than that.
    pub fn align(&self, gradient: &mut [f32], leader: &[f32]) {
        let Geometry { norm, cosine } = Geometry::of(gradient, leader);
        if norm == 0.0 {
            return;
        }
        let (own, of_leader) = match self.towards {
            Towards::Project { keep_norm } => {
                let lambda = self.lambda;
                let grown = (1.0 + lambda * lambda * (1.0 - cosine * cosine).max(0.0)).sqrt();
                let scale = if keep_norm { 1.0 / grown } else { 1.0 };
                (scale * (1.0 - lambda * cosine), scale * lambda * norm)
            }
            Towards::Pcgrad {} if cosine < 0.0 => (1.0, -cosine * norm),
            Towards::Pcgrad {} | Towards::Regulariser { .. } => return,
        };
        for (value, leader) in gradient.iter_mut().zip(leader) {
            *value = (own * f64::from(*value) + of_leader * f64::from(*leader)) as f32;
        }
    }

    /// Where to differentiate once more for the regulariser: the step aside from the parameters, of norm `distance`, and by
    /// what the difference of the gradients is to be multiplied; `None` where the gradient needs no turning.
    ///
    /// With `u = −(λ / ‖g‖) (ℓ − c a)`, the gradient of `λ (1 − cos(g, ℓ))` is `H u ≈ (∇L(w + ε u) − ∇L(w)) / ε`.
    pub fn aside(&self, gradient: &[f32], leader: &[f32]) -> Option<(Vec<f32>, f32)> {
        let Towards::Regulariser { distance } = self.towards else {
            return None;
        };
        let Geometry { norm, cosine } = Geometry::of(gradient, leader);
        let length = self.lambda / norm * (1.0 - cosine * cosine).max(0.0).sqrt();
        if !(length > 0.0 && length.is_finite()) {
            return None;
        }
        let epsilon = distance / length;
        let toward = |(value, leader): (&f32, &f32)| {
            let across = f64::from(*leader) - cosine * f64::from(*value) / norm;
            (-epsilon * self.lambda / norm * across) as f32
        };
        let step = gradient.iter().zip(leader).map(toward).collect();
        Some((step, (1.0 / epsilon) as f32))
    }
}

/// A gradient's norm, and its cosine to a vector of norm 1.
struct Geometry {
    norm: f64,
    cosine: f64,
}

impl Geometry {
    fn of(gradient: &[f32], leader: &[f32]) -> Self {
        let (mut square, mut product) = (0.0, 0.0);
        for (value, leader) in gradient.iter().zip(leader) {
            square += f64::from(*value) * f64::from(*value);
            product += f64::from(*value) * f64::from(*leader);
        }
        let norm: f64 = f64::sqrt(square);
        let cosine = if norm > 0.0 { product / norm } else { 0.0 };
        Self { norm, cosine }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn vector() -> impl Strategy<Value = Vec<f32>> {
        prop::collection::vec(-1e3f32..1e3, 7)
            .prop_filter("not 0", |vector| Geometry::of(vector, &[0.0; 7]).norm > 1e-3)
    }

    fn unit(vector: &[f32]) -> Vec<f32> {
        let norm = Geometry::of(vector, vector).norm;
        vector.iter().map(|value| (f64::from(*value) / norm) as f32).collect()
    }

    fn project(lambda: f64, keep_norm: bool) -> Alignment {
        Alignment {
            lambda,
            towards: Towards::Project { keep_norm },
            ..Alignment::default()
        }
    }

    proptest! {
        #[test]
        fn the_cosine_to_the_leader_never_falls(
            gradient in vector(),
            leader in vector(),
            lambda in 0.0..=1.0f64,
            keep_norm: bool,
        ) {
            let leader = unit(&leader);
            let before = Geometry::of(&gradient, &leader);
            let mut aligned = gradient.clone();
            project(lambda, keep_norm).align(&mut aligned, &leader);
            prop_assert!(Geometry::of(&aligned, &leader).cosine >= before.cosine - 1e-6);
            Alignment { towards: Towards::Pcgrad {}, ..Alignment::default() }.align(&mut aligned, &leader);
            prop_assert!(Geometry::of(&aligned, &leader).cosine >= before.cosine - 1e-6);
        }

        #[test]
        fn the_norm_grows_as_it_is_said_to_or_is_kept(gradient in vector(), leader in vector(), lambda in 0.0..5.0f64) {
            let leader = unit(&leader);
            let Geometry { norm, cosine } = Geometry::of(&gradient, &leader);
            let mut aligned = gradient.clone();
            project(lambda, false).align(&mut aligned, &leader);
            let square = Geometry::of(&aligned, &leader).norm.powi(2);
            let said = norm * norm * (1.0 + lambda * lambda * (1.0 - cosine * cosine));
            prop_assert!((square - said).abs() <= 1e-4 * said, "{square} instead of {said}");
            let mut kept = gradient.clone();
            project(lambda, true).align(&mut kept, &leader);
            prop_assert!((Geometry::of(&kept, &leader).norm - norm).abs() <= 1e-4 * norm);
        }

        #[test]
        fn with_lambda_0_nothing_changes_at_all(gradient in vector(), leader in vector(), keep_norm: bool) {
            let mut aligned = gradient.clone();
            project(0.0, keep_norm).align(&mut aligned, &unit(&leader));
            prop_assert_eq!(aligned, gradient.clone());
            let regulariser = Towards::Regulariser { distance: 0.01 };
            let still = Alignment { towards: regulariser, lambda: 0.0, ..Alignment::default() };
            prop_assert_eq!(still.aside(&gradient, &unit(&leader)), None);
        }

        #[test]
        fn nothing_that_goes_against_the_leader_is_left_by_pcgrad(gradient in vector(), leader in vector()) {
            let leader = unit(&leader);
            let mut aligned = gradient.clone();
            Alignment { towards: Towards::Pcgrad {}, ..Alignment::default() }.align(&mut aligned, &leader);
            let product: f64 = aligned.iter().zip(&leader).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum();
            prop_assert!(product >= -1e-3 * Geometry::of(&gradient, &leader).norm);
        }

        #[test]
        fn the_step_aside_is_as_long_as_it_is_said_to_be(gradient in vector(), leader in vector(), lambda in 0.1..5.0f64) {
            let regulariser = Towards::Regulariser { distance: 0.01 };
            let alignment = Alignment { towards: regulariser, lambda, ..Alignment::default() };
            let leader = unit(&leader);
            if let Some((step, _)) = alignment.aside(&gradient, &leader) {
                // Where gradient and leader are almost one, there is nothing at right angles that 32 bits could tell.
                let geometry = Geometry::of(&gradient, &leader);
                if geometry.cosine.abs() < 0.99 {
                    prop_assert!((Geometry::of(&step, &leader).norm - 0.01).abs() < 1e-5);
                }
            }
        }
    }
}
