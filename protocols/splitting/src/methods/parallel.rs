//! Parallel split learning, and EPSL: Lin et al., *Efficient Parallel Split Learning over Resource-Constrained Wireless
//! Edge Networks*, IEEE TMC 2024 (arXiv:2303.15991). That a batch's aggregated gradients go back through the mean of its
//! smashed data is ours: the paper does not say through what.

use candle_core::Tensor;
use selvedge_models::{ModelError, STEP};
use serde::{Deserialize, Serialize};

use crate::{Arrival, Back, SplitMethod};

/// Parallel split learning: one back for all, fronts that are never averaged.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Parallel {
    /// φ: of each client's batch, the share whose gradients at the outputs are averaged over the clients, example by
    /// example, and go back as one, from 0 to 1. At 1 the server's backward does not grow with the number of clients.
    /// Default 0.
    pub last_layer_aggregation: f64,
}

impl SplitMethod for Parallel {
    fn keeps_fronts(&self) -> bool {
        true
    }

    fn backward(&self, back: &mut Back, gradients: &[Option<Tensor>]) -> Result<Vec<Tensor>, ModelError> {
        let smallest = back.batch().iter().map(Arrival::rows).min().unwrap_or(0);
        // m = ⌈φ min_i b_i⌉ examples of each client are aggregated
        // (0.07 times 100 is a little more than 7 in floating point.)
        match (self.last_layer_aggregation * smallest as f64 - 1e-9).ceil() as usize {
            0 => back.backward(gradients),
            aggregated => backward_aggregated(back, gradients, aggregated),
        }
    }

    fn needs_one_cut(&self) -> bool {
        self.last_layer_aggregation > 0.0
    }

    fn runs_again(&self) -> bool {
        self.last_layer_aggregation > 0.0
    }

    fn server_work(&self, clients: usize) -> f64 {
        let (clients, phi) = (clients as f64, self.last_layer_aggregation);
        match self.runs_again() {
            true => clients + STEP * (phi + (1.0 - phi) * clients),
            false => STEP * clients,
        }
    }

    fn problem(&self) -> Option<(&'static str, String)> {
        let phi = self.last_layer_aggregation;
        let is_share = (0.0..=1.0).contains(&phi);
        (!is_share).then(|| ("last_layer_aggregation", format!("{phi} is not from 0 to 1")))
    }
}

/// The gradients of the first m examples of each client go back as their mean, through the mean of their smashed data: all
/// clients get the same cut gradients for them. What is beyond goes back as ever.
fn backward_aggregated(back: &mut Back, gradients: &[Option<Tensor>], m: usize) -> Result<Vec<Tensor>, ModelError> {
    let (batch, shares) = (back.batch().to_vec(), back.shares(gradients));
    let clients = || batch.iter().zip(gradients);
    let there = || {
        clients()
            .zip(&shares)
            .filter_map(|((arrival, z), rho)| Some((arrival, z.as_ref()?, *rho)))
    };

    // s̄_j = Σ_i ρ_i s_i,j  and  z̄_j = Σ_i ρ_i z_i,j  for j ≤ m
    let mean = Arrival {
        front: batch.first().map_or(0, |arrival| arrival.front),
        smashed: sum(there().map(|(arrival, _, rho)| weighted(&arrival.smashed, m, rho)))?,
    };
    let mean_gradient = sum(there().map(|(_, z, rho)| weighted(z, m, rho)))?;

    let (mut again, mut again_gradients, mut weights) = (Vec::new(), Vec::new(), Vec::new());
    for (arrival, z, rho) in there().filter(|(arrival, ..)| arrival.rows() > m) {
        let beyond = arrival.rows() - m;
        again.push(Arrival {
            front: arrival.front,
            smashed: arrival.smashed.narrow(0, m, beyond)?,
        });
        again_gradients.push(Some(z.narrow(0, m, beyond)?));
        weights.push(rho);
    }
    again.push(mean);
    again_gradients.push(Some(mean_gradient));
    weights.push(1.0);
    back.forward_again(again)?;
    let mut cut_gradients = back.backward_weighted(&again_gradients, &weights)?;

    // δ_i = [δ̄_1 … δ̄_m, δ_i,m+1 …]
    let of_all = cut_gradients.pop().ok_or(ModelError::EmptyBatch)?;
    let mut beyond = cut_gradients.into_iter();
    let of_client = |(arrival, z): (&Arrival, &Option<Tensor>)| match z {
        None => Ok(arrival.smashed.zeros_like()?),
        Some(_) if arrival.rows() == m => Ok(of_all.clone()),
        Some(_) => Ok(Tensor::cat(
            &[&of_all, &beyond.next().ok_or(ModelError::EmptyBatch)?],
            0,
        )?),
    };
    clients().map(of_client).collect()
}

/// ρ times the first m examples.
fn weighted(values: &Tensor, m: usize, rho: f64) -> Result<Tensor, ModelError> {
    Ok((values.narrow(0, 0, m)? * rho)?)
}

fn sum(mut parts: impl Iterator<Item = Result<Tensor, ModelError>>) -> Result<Tensor, ModelError> {
    let first = parts.next().ok_or(ModelError::EmptyBatch)??;
    parts.try_fold(first, |sum, part| Ok((sum + part?)?))
}
