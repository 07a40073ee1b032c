//! What moves the model once a round's updates are one: the steps of `[[server]]`, in order. A new step is a new file and a
//! line in the list below.

use selvedge_words::choices;

use crate::{Context, Vectors};

choices! {
    dyn ServerStep, "server step":
    sgd::Sgd = "sgd",
    adam::Adam = "adam",
    yogi::Yogi = "yogi",
}

/// One of the steps by which the model moves, in the order of `[[server]]`.
///
/// Implementations are the settings themselves, read from an entry of `[[server]]`.
pub trait ServerStep: Send + Sync {
    /// Changes what the parameters are to become. `x` are those that the round began with; `next` is what the aggregate,
    /// and the steps before this one, have made of them: without any step the model becomes the aggregate. What the step
    /// keeps from round to round is `memory`.
    fn step(&self, x: &[f32], next: &mut [f32], memory: &mut Vectors, context: &mut Context<'_>);

    /// What is wrong with the settings, if anything: (key, what it must be).
    fn problem(&self) -> Option<(&'static str, String)> {
        None
    }
}

/// The problem of a setting that is not above 0.
fn positive(key: &'static str, value: f32) -> Option<(&'static str, String)> {
    (!(value > 0.0 && value.is_finite())).then(|| (key, format!("{value} is not above 0")))
}

/// The problem of a decay that is not in [0, 1).
fn decay(key: &'static str, value: f32) -> Option<(&'static str, String)> {
    (!(0.0..1.0).contains(&value)).then(|| (key, format!("{value} is not in [0, 1)")))
}
