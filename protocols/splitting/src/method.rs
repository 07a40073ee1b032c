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

impl dyn SplitMethod {
    /// Why what the method says of fronts and backs cannot be had together, if so. After a round a front is handed on, kept or
    /// averaged, one of the three; and a back that is one client's alone is averaged as one with the front that it was
    /// trained with, so that this one must be averaged too.
    pub fn contradiction(&self) -> Option<&'static str> {
        match (self.takes_turns(), self.keeps_fronts(), self.has_a_back_for_each()) {
            (true, true, _) => Some("a front that is handed on from client to client cannot be kept by each of them"),
            (true, _, true) => Some("clients that take turns go on with one back: they cannot have a back each"),
            (_, true, true) => Some(
                "a back that is one client's alone is averaged with its front: clients that keep their fronts cannot have a \
                 back each",
            ),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Chosen {
        takes_turns: bool,
        keeps_fronts: bool,
        has_a_back_for_each: bool,
    }

    impl SplitMethod for Chosen {
        fn takes_turns(&self) -> bool {
            self.takes_turns
        }

        fn keeps_fronts(&self) -> bool {
            self.keeps_fronts
        }

        fn has_a_back_for_each(&self) -> bool {
            self.has_a_back_for_each
        }
    }

    #[test]
    fn a_method_says_one_thing_of_fronts_and_backs() {
        for takes_turns in [false, true] {
            for keeps_fronts in [false, true] {
                for has_a_back_for_each in [false, true] {
                    let method = Chosen {
                        takes_turns,
                        keeps_fronts,
                        has_a_back_for_each,
                    };
                    let said = usize::from(takes_turns) + usize::from(keeps_fronts) + usize::from(has_a_back_for_each);
                    let method: &dyn SplitMethod = &method;
                    assert_eq!(method.contradiction().is_some(), said > 1);
                }
            }
        }
    }
}
