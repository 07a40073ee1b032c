//! What an algorithm is: a client half and a server half.

use selvedge_models::{OptimiserDescription, Weights};
use selvedge_words::choice::Choice;

use crate::{
    Broadcast, Context, Vectors,
    aggregation::{Aggregate, AggregationRule},
    local::{LocalError, LocalSteps, Update},
    server::ServerStep,
    vectors::Named,
};

/// A federated algorithm: what each client does in a round, and what the server does beside aggregating.
///
/// How updates become one is the [rule of aggregation](AggregationRule)'s affair, and how the model then moves that of
/// the [server steps](ServerStep); an algorithm that is a name for a combination says which.
///
/// Implementations are the settings themselves (`mu`, `beta1`, …), read from `[algorithm]` of the description.
pub trait Algorithm: Send + Sync {
    /// The client half: from what was broadcast, and what this client has kept of its earlier rounds (`memory`), to its
    /// update. Unless the algorithm says otherwise, local training, `w ← w − η ∇ℓ(w; b)` for each local batch b.
    ///
    /// # Errors
    /// When local training fails.
    fn client(
        &self,
        broadcast: &Broadcast,
        memory: &mut Vectors,
        local: &mut dyn LocalSteps,
        context: &mut Context<'_>,
    ) -> Result<Update, LocalError> {
        let _ = (memory, context);
        Ok(local.train(&broadcast.weights, None)?.into())
    }

    /// Whether the client half is local training and nothing else, so that the front of a cut model can be trained for it
    /// too.
    fn is_plain(&self) -> bool {
        false
    }

    /// The server half: what it keeps (`memory`) moves by what the updates came to. It may change `aggregate` too, before
    /// the server steps. `global` is the model that the round began with.
    fn server(&self, global: &Weights, aggregate: &mut Aggregate, memory: &mut Vectors, context: &mut Context<'_>) {
        let _ = (global, aggregate, memory, context);
    }

    /// Of a name for a combination, its rule of aggregation.
    fn rule(&self) -> Option<Choice<dyn AggregationRule>> {
        None
    }

    /// Of a name for a combination, its server steps, which come before those of the description.
    fn server_steps(&self) -> Vec<Choice<dyn ServerStep>> {
        Vec::new()
    }

    /// Which vectors of the server's memory clients receive with the model.
    fn broadcast_vectors(&self) -> &'static [Named] {
        &[]
    }

    /// Which vectors every update carries beside the model.
    fn update_vectors(&self) -> &'static [Named] {
        &[]
    }

    /// Whether clients keep vectors of the algorithm's from round to round.
    fn keeps(&self) -> bool {
        false
    }

    /// The places of layers that are personal (`4`, or `4.0` inside a residual layer): they stay at home, where each client
    /// trains its own, and never travel. What the client half is given and gives is the client's whole model.
    fn personal_layers(&self) -> &[String] {
        &[]
    }

    /// Whether what a client keeps is a model of its own, all of which it must have from its first round: then clients cannot
    /// train parts of the model.
    fn needs_whole_model(&self) -> bool {
        !self.personal_layers().is_empty()
    }

    /// The model that a client evaluates on its own examples; `None` when it is the one that was broadcast, with the
    /// client's own personal tensors.
    fn personalise(&self, broadcast: &Broadcast, memory: &Vectors, context: &mut Context<'_>) -> Option<Weights> {
        let _ = (broadcast, memory, context);
        None
    }

    /// What is wrong with the settings, or with the local optimiser beside them, if anything: (key under `[algorithm]`,
    /// what it must be).
    fn problem(&self, optimiser: &OptimiserDescription) -> Option<(&'static str, String)> {
        let _ = optimiser;
        None
    }
}
