//! What a method of split learning is.

use candle_core::Tensor;
use selvedge_models::{ModelError, STEP};

use super::{Alignment, Back};

/// A method of split learning: who trains at a time, with which back, and what becomes of the fronts.
///
/// What all have in common, in step t (A client's own mean loss is L_i, its share of the batch ρ_i):
///
/// ```text
/// client i:  s_i = f_c(x_i; w_c,i)                                smashed data → server
/// server:    L_i = loss(f_s(s_i; w_s), y_i),  δ_i = ∂L_i/∂s_i     cut gradient → client
///            w_s ← w_s − η Σ_i ρ_i ∂L_i/∂w_s
/// client i:  w_c,i ← w_c,i − η (∂s_i/∂w_c,i)ᵀ δ_i
/// ```
///
/// Implementations are the settings themselves, read from `method` of `[split]`.
pub trait SplitMethod: Send + Sync {
    /// Whether clients train one after the other, each going on with the front that the one before it has left.
    fn takes_turns(&self) -> bool {
        false
    }

    /// Whether each client has a back of its own on the server.
    fn has_a_back_for_each(&self) -> bool {
        false
    }

    /// Whether clients keep their fronts from round to round, and nobody else gets them but for evaluation; otherwise
    /// fronts are averaged after each round.
    fn keeps_fronts(&self) -> bool {
        false
    }

    /// The server's half of a step: from the gradients of the clients' own mean losses at the outputs (`None` of one that
    /// was lost meanwhile) to the gradient of the back and the cut gradients.
    ///
    /// # Errors
    /// When the back does not run.
    fn backward(&self, back: &mut Back, gradients: &[Option<Tensor>]) -> Result<Vec<Tensor>, ModelError> {
        back.backward(gradients)
    }

    /// How the fronts' gradients are aligned, where they are.
    fn alignment(&self) -> Option<&Alignment> {
        None
    }

    /// Whether all clients' models must be cut at the same place.
    fn needs_one_cut(&self) -> bool {
        false
    }

    /// Whether the back is run on a batch more than once.
    fn runs_again(&self) -> bool {
        false
    }

    /// What the server computes in a step of so many clients, in forwards of one client's batch; a backward counts as two.
    fn server_work(&self, clients: usize) -> f64 {
        STEP * clients as f64
    }

    /// What is wrong with the settings, if anything: (key, what it must be).
    fn problem(&self) -> Option<(&'static str, String)> {
        None
    }
}
