//! Label skew by a Dirichlet distribution.

use rand::Rng;
use rand::distr::OpenClosed01;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, Gamma};

use super::cut::cut;
use crate::DataError;

/// For each class, proportions over clients ~ Dir(alpha), and the class's shuffled examples cut by them.
pub(super) fn owners(
    by_class: &[Vec<u32>],
    clients: usize,
    alpha: f64,
    rng: &mut ChaCha8Rng,
) -> Result<Vec<u32>, DataError> {
    let gamma = Gamma::new(alpha + 1.0, 1.0).map_err(|problem| DataError::Format(problem.to_string()))?;
    let mut owners = vec![0; by_class.iter().map(Vec::len).sum()];
    let mut shares = vec![0.0; clients];
    for examples in by_class.iter().filter(|examples| !examples.is_empty()) {
        // A Dirichlet draw is a normalised vector of Gamma(alpha) draws. For small alpha all of them can be too
        // small for a float, so they are drawn as logarithms: Gamma(alpha) = Gamma(alpha + 1) u^(1/alpha)
        // (Marsaglia, Tsang 2000, section 6), and the largest is scaled to one.
        for share in &mut shares {
            let uniform: f64 = rng.sample(OpenClosed01);
            *share = gamma.sample(rng).ln() + uniform.ln() / alpha;
        }
        let largest = shares.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        shares.iter_mut().for_each(|share| *share = (*share - largest).exp());

        let mut examples = examples.clone();
        examples.shuffle(rng);
        for (client, range) in cut(examples.len(), &shares, rng).enumerate() {
            examples[range]
                .iter()
                .for_each(|&example| owners[example as usize] = client as u32);
        }
    }
    Ok(owners)
}
