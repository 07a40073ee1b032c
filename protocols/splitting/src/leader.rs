//! Leader gradient identification: which clients' gradients agree, and the direction they lead in. GAPSL
//! (arXiv:2603.18540) has the idea; measure, selectors and smoothing are ours.

use rand::Rng;
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

/// Which clients lead, by the cosines `C_ij` between their gradients. The consistency of a client is
/// `s_i = Σ_{j≠i} C_ij / (N − 1)`. Of fewer than three clients all lead, and one always does.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Selector {
    /// Those whose consistency is at least the `q`-quantile of all.
    Quantile {
        /// From 0 (all lead) to 1 (the most consistent leads). Default 0.25.
        #[serde(default = "default_quantile")]
        q: f64,
    },
    /// Those whose consistency is at least the mean.
    AboveMean {},
    /// Those whose consistency is at least `cosine`.
    Threshold {
        /// From −1 to 1.
        cosine: f64,
    },
    /// Those whose cosine to the mean gradient is at least `cosine`.
    CosineToMean {
        /// From −1 to 1.
        cosine: f64,
    },
    /// From the most consistent on, in the order of consistency, those whose cosine to all that lead already is at least
    /// `cosine`.
    GreedyClique {
        /// From −1 to 1.
        cosine: f64,
    },
    /// All.
    All {},
}

fn default_quantile() -> f64 {
    0.25
}

impl Default for Selector {
    fn default() -> Self {
        Self::Quantile { q: default_quantile() }
    }
}

impl Selector {
    /// What is wrong with the settings, if anything.
    pub(super) fn problem(self) -> Option<String> {
        match self {
            Self::Quantile { q } if !(0.0..=1.0).contains(&q) => Some(format!("the quantile {q} is not from 0 to 1")),
            Self::Threshold { cosine } | Self::CosineToMean { cosine } | Self::GreedyClique { cosine }
                if !(-1.0..=1.0).contains(&cosine) =>
            {
                Some(format!("the cosine {cosine} is not from -1 to 1"))
            }
            _ => None,
        }
    }

    /// Which of the gradients lead, ascending; `shares` are the clients' shares of the examples. What is given may be
    /// sketches of the gradients.
    pub fn leaders(self, gradients: &[&[f32]], shares: &[f64]) -> Vec<usize> {
        let clients = gradients.len();
        if clients < 3 {
            return (0..clients).collect();
        }
        let products = products(gradients);
        let norm = |at: usize| products[at][at].sqrt();
        let cosine = |one: usize, other: usize| cosine(&products, one, other);
        let consistency = consistency(&products);
        let mut ranked: Vec<usize> = (0..clients).collect();
        ranked.sort_by(|one, other| consistency[*other].total_cmp(&consistency[*one]));
        let at_least = |least: f64| (0..clients).filter(|at| consistency[*at] >= least).collect();
        let mut leaders: Vec<usize> = match self {
            Self::All {} => (0..clients).collect(),
            Self::Quantile { q } => {
                // The quantile is that of the sorted values' ranks, without interpolation: one of the values themselves.
                let rank = ((1.0 - q) * (clients - 1) as f64).round() as usize;
                at_least(consistency[ranked[rank.min(clients - 1)]])
            }
            Self::AboveMean {} => at_least(consistency.iter().sum::<f64>() / clients as f64),
            Self::Threshold { cosine } => at_least(cosine),
            Self::CosineToMean { cosine: least } => {
                let to_mean = |at: usize| {
                    (0..clients)
                        .map(|other| shares[other] * products[at][other])
                        .sum::<f64>()
                };
                let mean = (0..clients)
                    .map(|at| shares[at] * to_mean(at))
                    .sum::<f64>()
                    .max(0.0)
                    .sqrt();
                (0..clients)
                    .filter(|at| quotient(to_mean(*at), norm(*at) * mean) >= least)
                    .collect()
            }
            Self::GreedyClique { cosine: least } => {
                let mut clique: Vec<usize> = Vec::new();
                for at in &ranked {
                    if clique.iter().all(|member| cosine(*at, *member) >= least) {
                        clique.push(*at);
                    }
                }
                clique
            }
        };
        if leaders.is_empty() {
            leaders.push(ranked[0]);
        }
        leaders.sort_unstable();
        leaders
    }
}

/// How much clients' gradients agree: the mean cosine between two of them, the mean of their consistencies. `None` of
/// fewer than two. What is given may be sketches of the gradients.
pub fn agreement(gradients: &[&[f32]]) -> Option<f64> {
    let consistency = consistency(&products(gradients));
    (gradients.len() > 1).then(|| consistency.iter().sum::<f64>() / gradients.len() as f64)
}

/// `s_i = Σ_{j≠i} C_ij / (N − 1)` of each, from the products of each two.
fn consistency(products: &[Vec<f64>]) -> Vec<f64> {
    let clients = products.len();
    let others = |at: usize| (0..clients).filter(move |other| *other != at);
    let mean = |at: usize| others(at).map(|other| cosine(products, at, other)).sum::<f64>() / (clients - 1) as f64;
    (0..clients).map(mean).collect()
}

fn cosine(products: &[Vec<f64>], one: usize, other: usize) -> f64 {
    let norm = |at: usize| products[at][at].sqrt();
    quotient(products[one][other], norm(one) * norm(other))
}

/// The products of each two vectors, in double precision.
fn products(vectors: &[&[f32]]) -> Vec<Vec<f64>> {
    let product = |one: &[f32], other: &[f32]| one.iter().zip(other).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum();
    vectors
        .iter()
        .map(|one| vectors.iter().map(|other| product(one, other)).collect())
        .collect()
}

fn quotient(above: f64, below: f64) -> f64 {
    if below > 0.0 { above / below } else { 0.0 }
}

/// How long the sketch of a gradient of `parameters` numbers is, if it is to have `length`.
pub fn sketch_length(parameters: usize, length: usize) -> usize {
    parameters.min(length)
}

/// A gradient in fewer numbers, such that products are kept on average: each coordinate is added to one of `length` sums,
/// with a sign, both drawn from `random` (a count sketch, Charikar et al. 2002). A gradient that is no longer is kept as it
/// is.
pub fn sketch(gradient: &[f32], length: usize, mut random: ChaCha8Rng) -> Vec<f32> {
    if gradient.len() <= length {
        return gradient.to_vec();
    }
    let mut sums = vec![0.0; length];
    for value in gradient {
        let draw: u32 = random.random();
        let sign = if draw & 1 == 0 { 1.0 } else { -1.0 };
        sums[(draw >> 1) as usize % length] += sign * f64::from(*value);
    }
    sums.into_iter().map(|sum| sum as f32).collect()
}

/// The direction in which the leaders go, smoothed over time; a unit vector, once there is one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Leader(Option<Vec<f32>>);

impl Leader {
    /// The direction; `None` as long as nobody has led anywhere.
    pub fn direction(&self) -> Option<&[f32]> {
        self.0.as_deref()
    }

    /// Takes in where the leaders go now: `ℓ_t ∝ β ℓ_{t−1} + (1 − β) l_t`, where `l_t` is the direction of the mean of their
    /// gradients, each with its weight.
    pub fn follow(&mut self, gradients: &[(&[f32], f64)], smoothing: f64) {
        let Some((first, _)) = gradients.first() else { return };
        let total: f64 = gradients.iter().map(|(_, weight)| weight).sum();
        let mut mean = vec![0.0f64; first.len()];
        for (gradient, weight) in gradients {
            let share = weight / total;
            mean.iter_mut()
                .zip(*gradient)
                .for_each(|(mean, value)| *mean += share * f64::from(*value));
        }
        let Some(mut direction) = unit(mean) else { return };
        if let Some(before) = self.direction().filter(|before| before.len() == direction.len()) {
            for (now, before) in direction.iter_mut().zip(before) {
                *now = smoothing * f64::from(*before) + (1.0 - smoothing) * *now;
            }
            match unit(direction) {
                Some(unit) => direction = unit,
                None => return,
            }
        }
        self.0 = Some(direction.into_iter().map(|value| value as f32).collect());
    }
}

/// The directions of the gradients that are aligned.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Leaders {
    /// Of the fronts'.
    pub fronts: Leader,
    /// Of the back's.
    pub back: Leader,
}

/// The vector in its direction with norm 1, if it has one.
fn unit(mut vector: Vec<f64>) -> Option<Vec<f64>> {
    let norm = vector.iter().map(|value| value * value).sum::<f64>().sqrt();
    if !(norm > 0.0 && norm.is_finite()) {
        return None;
    }
    vector.iter_mut().for_each(|value| *value /= norm);
    Some(vector)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;

    /// Three that agree, and one that is against them.
    const GRADIENTS: [&[f32]; 4] = [&[1.0, 0.0], &[1.0, 0.2], &[0.9, -0.2], &[-1.0, 0.1]];

    #[test]
    fn those_who_agree_lead() {
        let lead = |selector: Selector| selector.leaders(&GRADIENTS, &[0.25; 4]);
        assert_eq!(lead(Selector::Quantile { q: 0.3 }), [0, 1, 2]);
        assert_eq!(lead(Selector::Quantile { q: 0.0 }), [0, 1, 2, 3]);
        assert_eq!(lead(Selector::Quantile { q: 1.0 }), [0]);
        assert_eq!(lead(Selector::AboveMean {}), [0, 1, 2]);
        assert_eq!(lead(Selector::Threshold { cosine: 0.0 }), [0, 1, 2]);
        assert_eq!(lead(Selector::CosineToMean { cosine: 0.5 }), [0, 1, 2]);
        assert_eq!(lead(Selector::GreedyClique { cosine: 0.9 }), [0, 1, 2]);
        assert_eq!(lead(Selector::All {}), [0, 1, 2, 3]);
        // Nobody is that consistent, but somebody leads.
        assert_eq!(lead(Selector::Threshold { cosine: 1.0 }), [0]);
    }

    #[test]
    fn of_two_both_lead_and_zeros_harm_nobody() {
        let selector = Selector::Quantile { q: 1.0 };
        assert_eq!(selector.leaders(&GRADIENTS[..2], &[0.5; 2]), [0, 1]);
        let zeros: [&[f32]; 3] = [&[0.0, 0.0]; 3];
        assert_eq!(selector.leaders(&zeros, &[1.0 / 3.0; 3]), [0, 1, 2]);
    }

    #[test]
    fn a_leader_turns_towards_where_it_is_led_and_stays_of_norm_one() {
        let mut leader = Leader::default();
        leader.follow(&[(&[0.0, 0.0], 1.0)], 0.9);
        assert_eq!(leader.direction(), None);
        leader.follow(&[(&[3.0, 0.0], 2.0)], 0.9);
        assert_eq!(leader.direction(), Some(&[1.0, 0.0][..]));
        for _ in 0..200 {
            leader.follow(&[(&[0.0, 5.0], 1.0)], 0.9);
        }
        let direction = leader.direction().unwrap();
        assert!(direction[1] > 0.999, "{direction:?}");
    }

    #[test]
    fn a_sketch_keeps_products_on_average_and_short_gradients_as_they_are() {
        let random = || ChaCha8Rng::seed_from_u64(1);
        assert_eq!(sketch(&[1.0, 2.0], 2, random()), [1.0, 2.0]);
        let mut draws = random();
        let one: Vec<f32> = (0..4096).map(|_| draws.random_range(-1.0..1.0)).collect();
        let other: Vec<f32> = one
            .iter()
            .map(|value| value + draws.random_range(-1.0..1.0f32))
            .collect();
        let cosine = |a: &[f32], b: &[f32]| {
            let products = products(&[a, b]);
            products[0][1] / (products[0][0] * products[1][1]).sqrt()
        };
        let sketched = cosine(&sketch(&one, 256, random()), &sketch(&other, 256, random()));
        assert!((sketched - cosine(&one, &other)).abs() < 0.2);
    }
}
