//! What the settings of several layers share: checks of their range, and a default.

use crate::error::LayerProblem;

/// Refuses a setting of 0.
pub(super) fn at_least_one(setting: &'static str, value: usize) -> Result<(), LayerProblem> {
    if value == 0 {
        return Err(LayerProblem::setting(setting, value, "at least 1"));
    }
    Ok(())
}

/// Refuses a setting that is not above 0.
pub(super) fn positive(setting: &'static str, value: f32) -> Result<(), LayerProblem> {
    if !(value > 0.0 && value.is_finite()) {
        return Err(LayerProblem::setting(setting, value, "above 0"));
    }
    Ok(())
}

/// The default of a setting that is on unless turned off.
pub(super) fn yes() -> bool {
    true
}
